"""A plain float32 forward of a GGUF model of the `llama` architecture: what the others are held to.

Weights are decoded to float32 once and nothing is quantised afterwards: no 8-bit activations, no
half-precision cache. One whole window at a time, so there is no cache at all. Needs numpy and gguf.
"""

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, quants

Array = np.ndarray


def log_softmax(logits: Array) -> Array:
    """Of the last axis, in float64: a KL of 1e-6 drowns in float32 sums over 49,152 terms."""
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Reference:
    """The weights and shapes of one model file."""

    def __init__(self, path: str) -> None:
        reader = GGUFReader(path)
        architecture = str(reader.get_field("general.architecture").contents())
        if architecture != "llama":
            raise SystemExit(f"'{path}' is a '{architecture}' model; this reference knows llama")

        def number(key: str, default: float | None = None) -> float:
            field = reader.get_field(f"llama.{key}")
            if field is not None:
                return field.contents()
            if default is None:
                raise SystemExit(f"'{path}' has no llama.{key}")
            return default

        self.layers = int(number("block_count"))
        self.heads = int(number("attention.head_count"))
        self.kv_heads = int(number("attention.head_count_kv", self.heads))
        self.width = int(number("embedding_length"))
        self.head_dim = int(number("attention.key_length", self.width // self.heads))
        self.rotated = int(number("rope.dimension_count", self.head_dim))
        self.rope_base = float(number("rope.freq_base", 10000.0))
        self.epsilon = float(number("attention.layer_norm_rms_epsilon"))
        self._weights = {
            t.name: quants.dequantize(t.data, GGMLQuantizationType(t.tensor_type)).astype(
                np.float32, copy=False
            )
            for t in reader.tensors
        }
        if "rope_freqs.weight" in self._weights:
            raise SystemExit(f"'{path}' scales its rotation; this reference does not know how")

    def _weight(self, name: str) -> Array:
        return self._weights[f"{name}.weight"]

    def _norm(self, x: Array, name: str) -> Array:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean_square + np.float32(self.epsilon)) * self._weight(name)

    def _rotate(self, x: Array) -> Array:
        """Turns adjacent pairs (2i, 2i+1) of every head by position · base^(−2i/rotated)."""
        exponents = np.arange(0, self.rotated, 2) / self.rotated
        angles = np.arange(len(x))[:, None] * self.rope_base**-exponents
        cos, sin = np.cos(angles), np.sin(angles)
        cos, sin = (v.astype(np.float32)[:, None, :] for v in (cos, sin))
        even, odd = x[..., 0 : self.rotated : 2], x[..., 1 : self.rotated : 2]
        out = x.copy()
        out[..., 0 : self.rotated : 2] = even * cos - odd * sin
        out[..., 1 : self.rotated : 2] = even * sin + odd * cos
        return out

    def _attention(self, x: Array, layer: str) -> Array:
        rows = len(x)

        def heads(name: str, count: int) -> Array:
            return (x @ self._weight(f"{layer}.{name}").T).reshape(rows, count, self.head_dim)

        q = self._rotate(heads("attn_q", self.heads))
        k = self._rotate(heads("attn_k", self.kv_heads))
        v = heads("attn_v", self.kv_heads)
        future = np.triu(np.full((rows, rows), -np.inf, dtype=np.float32), k=1)
        group = self.heads // self.kv_heads
        out = np.empty((rows, self.heads, self.head_dim), dtype=np.float32)
        for head in range(self.heads):
            scores = (
                q[:, head] @ k[:, head // group].T / np.float32(np.sqrt(self.head_dim)) + future
            )
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ v[:, head // group]
        return out.reshape(rows, -1) @ self._weight(f"{layer}.attn_output").T

    def _feed_forward(self, x: Array, layer: str) -> Array:
        gate = x @ self._weight(f"{layer}.ffn_gate").T
        up = x @ self._weight(f"{layer}.ffn_up").T
        with np.errstate(over="ignore"):  # exp of a very negative gate: its SiLU is 0
            return (gate / (1 + np.exp(-gate)) * up) @ self._weight(f"{layer}.ffn_down").T

    def logits(self, tokens: list[int], first: int, end: int) -> Array:
        """float32 [end - first, vocab]: row i predicts the token after tokens[first + i]."""
        x = self._weight("token_embd")[tokens]
        for i in range(self.layers):
            layer = f"blk.{i}"
            x = x + self._attention(self._norm(x, f"{layer}.attn_norm"), layer)
            x = x + self._feed_forward(self._norm(x, f"{layer}.ffn_norm"), layer)
        tied = "output.weight" not in self._weights
        head = self._weight("token_embd" if tied else "output")
        return self._norm(x[first:end], "output_norm") @ head.T


def windows(tokens: list[int], size: int) -> list[list[int]]:
    """Disjoint windows; the remainder is dropped, as `cuvil eval --window` does."""
    return [tokens[at : at + size] for at in range(0, len(tokens) - size + 1, size)]


def scored(size: int) -> tuple[int, int]:
    """Rows of a window whose predictions count: those of tokens size/2+1 … size−1."""
    return size // 2, size - 1
