#!/usr/bin/env python3
"""Writes goldens for the tiny models: logits by a forward pass of its own, beside llama.cpp's.

For each tests/data/gguf/NAME.gguf writes NAME.json with
  tokens        the token ids that were evaluated, from position 0
  top           per position, the 20 largest logits as [id, value], largest first
  lse           per position, the log of the sum of exp of all logits
  greedy        the next 8 tokens after the last, each the largest logit
  greedy_gap    the smallest lead of a greedy token over the runner-up
  llama_cpp     max_abs_diff of all logits against llama.cpp, and whether its greedy tokens agree
Logits come from float64 arithmetic on the decoded f32 weights, so a reader's distance to them is
the reader's own error. llama.cpp rounds activations to the weights' type (f16, bf16, q8), so it
agrees to rounding of f32 only for F32 files; its figure is information, F32 and F16 asserted.
"""

import argparse
import dataclasses
import json
import math
import pathlib

import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, quants

N_TOKENS = 24
N_GREEDY = 8
N_TOP = 20
# Largest logits are about 10. F32: summation order only. F16: activations are rounded to 11 bits.
# gemma3-f32: llama.cpp reads GELU from a table of f16 values, whatever the weights are.
LLAMA_CPP_LIMITS = {"gemma3-f32": 2e-2, "-f32": 2e-4, "-f16": 5e-2}

Array = np.ndarray


def read_weights(reader: GGUFReader) -> dict[str, Array]:
    out = {}
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, GGMLQuantizationType(tensor.tensor_type))
        out[tensor.name] = values.astype(np.float64)
    return out


def yarn_mix(base: float, dim: int, context: int, i: int) -> float:
    def pair(turns: float) -> float:
        return dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(0, math.floor(pair(32))), min(dim - 1, math.ceil(pair(1)))
    return 1 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))


@dataclasses.dataclass
class Model:
    reader: GGUFReader

    def __post_init__(self) -> None:
        self.arch = self.get("general.architecture")
        self.w = read_weights(self.reader)
        self.n_layer = self.hp("block_count")
        self.n_embd = self.hp("embedding_length")
        self.n_head = self.hp("attention.head_count")
        self.n_kv = self.hp("attention.head_count_kv")
        self.dim = self.hp("attention.key_length")
        self.eps = self.hp("attention.layer_norm_rms_epsilon")
        self.window = self.hp("attention.sliding_window", 0)

    def get(self, key: str, fallback: object = None) -> object:
        field = self.reader.get_field(key)
        return fallback if field is None else field.contents()

    def hp(self, key: str, fallback: object = None) -> object:
        return self.get(f"{self.arch}.{key}", fallback)

    def is_local(self, layer: int) -> bool:
        return self.window > 0 and layer % 6 != 5

    def rotation(self, layer: int, positions: Array) -> tuple[Array, Array]:
        """Cosines and sines, [position, pair]."""
        local = self.is_local(layer)
        base = 10000.0 if local else self.hp("rope.freq_base")
        kind = "none" if local else self.hp("rope.scaling.type", "none")
        factor = self.hp("rope.scaling.factor", 1.0)
        magnitude = 1 + 0.1 * math.log(factor) if kind == "yarn" else 1.0
        freqs = []
        for i in range(self.dim // 2):
            f = base ** (-2 * i / self.dim)
            if "rope_freqs.weight" in self.w:
                f /= self.w["rope_freqs.weight"][i]
            if kind == "linear":
                f /= factor
            if kind == "yarn":
                context = self.hp("rope.scaling.original_context_length")
                mix = yarn_mix(base, self.dim, context, i)
                f = f / factor * (1 - mix) + f * mix
            freqs.append(f)
        angles = np.outer(positions, freqs)
        return np.cos(angles) * magnitude, np.sin(angles) * magnitude

    def rope(self, x: Array, cos: Array, sin: Array) -> Array:
        """x: [position, head, dim]."""
        out = np.empty_like(x)
        half = self.dim // 2
        if self.arch == "llama":
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, half), slice(half, None)
        a, b, c, s = x[..., first], x[..., second], cos[:, None, :], sin[:, None, :]
        out[..., first], out[..., second] = a * c - b * s, a * s + b * c
        return out

    def norm(self, x: Array, name: str) -> Array:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.w[name]

    def linear(self, x: Array, name: str) -> Array:
        bias = self.w.get(name + ".bias")
        y = x @ self.w[name + ".weight"].T
        return y if bias is None else y + bias

    def attention(self, x: Array, layer: int) -> Array:
        n, blk = len(x), f"blk.{layer}.attn_"
        q = self.linear(x, blk + "q").reshape(n, self.n_head, self.dim)
        k = self.linear(x, blk + "k").reshape(n, self.n_kv, self.dim)
        v = self.linear(x, blk + "v").reshape(n, self.n_kv, self.dim)
        if blk + "q_norm.weight" in self.w:
            q, k = self.norm(q, blk + "q_norm.weight"), self.norm(k, blk + "k_norm.weight")
        cos, sin = self.rotation(layer, np.arange(n))
        q, k = self.rope(q, cos, sin), self.rope(k, cos, sin)
        k, v = (np.repeat(t, self.n_head // self.n_kv, axis=1) for t in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(self.dim)
        ahead = np.arange(n)[:, None] - np.arange(n)[None, :]  # query minus key
        hidden = ahead < 0
        if self.is_local(layer):
            hidden |= ahead >= self.window
        scores[:, hidden] = -np.inf
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return self.linear(np.einsum("hqk,khd->qhd", p, v).reshape(n, -1), blk + "output")

    def feed_forward(self, x: Array, layer: int) -> Array:
        blk = f"blk.{layer}.ffn_"
        gate, up = self.linear(x, blk + "gate"), self.linear(x, blk + "up")
        if self.arch == "gemma3":
            inner = math.sqrt(2 / math.pi) * gate * (1 + 0.044715 * gate * gate)
            gate = 0.5 * gate * (1 + np.tanh(inner))
        else:
            gate = gate / (1 + np.exp(-gate))
        return self.linear(gate * up, blk + "down")

    def logits(self, tokens: list[int]) -> Array:
        x = self.w["token_embd.weight"][tokens]
        if self.arch == "gemma3":
            x = x * math.sqrt(self.n_embd)
        for i in range(self.n_layer):
            a = self.attention(self.norm(x, f"blk.{i}.attn_norm.weight"), i)
            if self.arch == "gemma3":
                a = self.norm(a, f"blk.{i}.post_attention_norm.weight")
            x = x + a
            f = self.feed_forward(self.norm(x, f"blk.{i}.ffn_norm.weight"), i)
            if self.arch == "gemma3":
                f = self.norm(f, f"blk.{i}.post_ffw_norm.weight")
            x = x + f
        x = self.norm(x, "output_norm.weight")
        head = self.w.get("output.weight", self.w["token_embd.weight"])
        return x @ head.T


def greedy(model: Model, tokens: list[int]) -> tuple[list[int], float]:
    out, gap = list(tokens), math.inf
    for _ in range(N_GREEDY):
        last = model.logits(out)[-1]
        order = np.argsort(-last, kind="stable")
        gap = min(gap, float(last[order[0]] - last[order[1]]))
        out.append(int(order[0]))
    return out[len(tokens) :], gap


def llama_cpp_logits(path: pathlib.Path, tokens: list[int]) -> Array:
    llm = llama_cpp.Llama(
        str(path), n_ctx=64, n_batch=64, n_threads=1, n_threads_batch=1, logits_all=True,
        type_k=0, type_v=0, flash_attn=False, verbose=False,
    )  # fmt: skip
    llm.eval(tokens)
    out = np.array(llm.scores[: len(tokens)], dtype=np.float64)
    llm.close()
    return out


def golden(path: pathlib.Path) -> dict[str, object]:
    model = Model(GGUFReader(path))
    vocab = len(model.w["token_embd.weight"])
    rng = np.random.default_rng(sum(path.stem.encode()))
    tokens = [int(t) for t in rng.integers(0, vocab, size=N_TOKENS)]
    logits = model.logits(tokens)
    peak = logits.max(axis=1)
    following, gap = greedy(model, tokens)
    # One evaluation of prompt and continuation shows both differences.
    peer = llama_cpp_logits(path, tokens + following)
    diff = float(np.abs(peer[:N_TOKENS] - logits).max())
    agrees = [int(t) for t in peer[N_TOKENS - 1 : -1].argmax(axis=1)] == following
    limit = next((v for k, v in LLAMA_CPP_LIMITS.items() if k in path.stem), math.inf)
    if diff > limit:
        raise SystemExit(f"{path}: llama.cpp differs by {diff}, more than {limit}")
    print(f"{path.stem:16} peak {peak.max():6.3f} llama.cpp {diff:.2e} gap {gap:.3f} {agrees}")
    order = np.argsort(-logits, axis=1, kind="stable")[:, :N_TOP]
    lse = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
    return {
        "tokens": tokens,
        "top": [
            [[int(i), round(float(logits[p, i]), 6)] for i in order[p]] for p in range(N_TOKENS)
        ],
        "lse": [round(float(x), 6) for x in lse],
        "greedy": following,
        "greedy_gap": round(gap, 6),
        "llama_cpp": {"max_abs_diff": float(f"{diff:.2e}"), "greedy_agrees": agrees},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("tests/data/gguf"))
    args = parser.parse_args()
    for path in sorted(args.data.glob("*.gguf")):
        text = json.dumps(golden(path), separators=(",", ":"))
        path.with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
