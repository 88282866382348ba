#!/usr/bin/env python3
"""Writes tiny seeded GGUF models to tests/data/gguf: every architecture and every weight type.

Also writes the smaller seeds of gguf_fuzz.

Needs numpy, gguf and llama_cpp (whose ggml library quantises the K types). Weights are random, so
the models say nothing sensible; they exist to be computed exactly. Every file stays below 300 KB.
"""

import argparse
import ctypes
import dataclasses
import pathlib
import struct

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Q

MERGES = ["Ġ t", "h e", "Ġt he", "i n", "Ġ a", "r e", "o n", "Ġ s", "e r", "a t", "e n", "Ġ w"]
MERGES += ["Ġthe re"]
CHATML_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPM_PIECES = ["▁", "▁t", "he", "▁the", "in", "▁a", "re", "on", *"etaoinhr"]


@dataclasses.dataclass(frozen=True)
class Spec:
    """One file. Matrices take `weights`; rows that do not fill its blocks fall back to Q8_0."""

    name: str
    arch: str
    weights: Q
    n_layer: int = 2
    n_embd: int = 64
    n_ff: int = 96
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 32  # the smallest the kernel templates take, and not n_embd / n_head
    rope_base: float = 10000.0
    linear: float = 0.0
    yarn: float = 0.0
    divisors: bool = False
    tied: bool = True
    window: int = 0


def k_quant(name: str, weights: Q) -> Spec:
    # K types need rows of 256; one layer keeps the file small.
    return Spec(
        f"llama-{name}", "llama", weights, n_layer=1, n_embd=256, n_ff=256, n_head=2, n_head_kv=1
    )


SPECS = [
    Spec("llama-f32", "llama", Q.F32, n_ff=64, n_head=3, n_head_kv=1),
    Spec("llama-f16", "llama", Q.F16, tied=False, divisors=True, rope_base=500000.0),
    Spec("llama-bf16", "llama", Q.BF16, n_head=2, linear=4.0),
    Spec("llama-q4_0", "llama", Q.Q4_0),
    Spec("llama-q4_1", "llama", Q.Q4_1),
    Spec("llama-q5_0", "llama", Q.Q5_0),
    Spec("llama-q5_1", "llama", Q.Q5_1, n_head_kv=1),
    Spec("llama-q8_0", "llama", Q.Q8_0),
    Spec("llama-iq4_nl", "llama", Q.IQ4_NL),
    k_quant("q2_k", Q.Q2_K),
    k_quant("q3_k", Q.Q3_K),
    k_quant("q4_k", Q.Q4_K),
    k_quant("q5_k", Q.Q5_K),
    k_quant("q6_k", Q.Q6_K),
    Spec("qwen2-f16", "qwen2", Q.F16, n_head=2, n_head_kv=1, rope_base=1e6),
    Spec("qwen2-f32-yarn", "qwen2", Q.F32, n_ff=64, n_head=2, n_head_kv=1, yarn=4.0),
    Spec("qwen3-f16", "qwen3", Q.F16, rope_base=1e6),
    Spec("qwen3-f32", "qwen3", Q.F32, n_ff=64, n_head=2, n_head_kv=1),
    Spec("gemma3-f16", "gemma3", Q.F16, n_layer=7, n_embd=32, n_ff=96, n_head=2, n_head_kv=1,
         rope_base=1e6, linear=8.0, window=8),
    Spec("gemma3-f32", "gemma3", Q.F32, n_layer=6, n_embd=32, n_ff=32, n_head=2, n_head_kv=1,
         rope_base=1e6, window=5),
]  # fmt: skip

# A few KB each, so that mutations reach every field.
FUZZ_SPECS = [
    Spec("llama", "llama", Q.Q4_0, n_layer=1, n_embd=32, n_ff=32, n_head=2, n_head_kv=1,
         head_dim=16, divisors=True),
    Spec("qwen2", "qwen2", Q.IQ4_NL, n_layer=1, n_embd=32, n_ff=32, n_head=2, n_head_kv=1,
         head_dim=16, yarn=4.0),
    Spec("gemma3", "gemma3", Q.Q4_1, n_layer=2, n_embd=32, n_ff=32, n_head=1, n_head_kv=1,
         head_dim=32, linear=8.0, window=8),
]  # fmt: skip


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in byte-level BPE, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def add_bpe_vocab(writer: gguf.GGUFWriter, arch: str) -> int:
    tokens = CHATML_SPECIALS + byte_alphabet() + [m.replace(" ", "") for m in MERGES]
    types = [gguf.TokenType.CONTROL] * len(CHATML_SPECIALS)
    types += [gguf.TokenType.NORMAL] * (len(tokens) - len(types))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if arch == "llama" else "qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    return len(tokens)


def add_spm_vocab(writer: gguf.GGUFWriter) -> int:
    control, kinds = ["<pad>", "<eos>", "<bos>"], gguf.TokenType
    tokens = [*control, "<unk>", *(f"<0x{b:02X}>" for b in range(256)), *SPM_PIECES]
    types = [kinds.CONTROL] * 3 + [kinds.UNKNOWN] + [kinds.BYTE] * 256
    types += [kinds.NORMAL] * len(SPM_PIECES)
    scores = [0.0] * 260 + [-float(i) for i in range(len(SPM_PIECES))]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    return len(tokens)


def add_metadata(writer: gguf.GGUFWriter, spec: Spec) -> None:
    writer.add_name(f"tiny {spec.name}")
    writer.add_block_count(spec.n_layer)
    writer.add_context_length(128)
    writer.add_embedding_length(spec.n_embd)
    writer.add_feed_forward_length(spec.n_ff)
    writer.add_head_count(spec.n_head)
    writer.add_head_count_kv(spec.n_head_kv)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_layer_norm_rms_eps(1e-5 if spec.arch == "llama" else 1e-6)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_base)
    if spec.linear or spec.yarn:
        kind = gguf.RopeScalingType.YARN if spec.yarn else gguf.RopeScalingType.LINEAR
        writer.add_rope_scaling_type(kind)
        writer.add_rope_scaling_factor(spec.yarn or spec.linear)
    if spec.yarn:
        writer.add_rope_scaling_orig_ctx_len(32)
    if spec.window:
        writer.add_sliding_window(spec.window)


def quantize(values: np.ndarray, kind: Q) -> np.ndarray:
    """Rows of f32 to rows of packed bytes, by ggml's own reference quantiser."""
    base = pathlib.Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"
    pack = ctypes.CDLL(str(base)).ggml_quantize_chunk
    pack.restype = ctypes.c_size_t
    pack.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3
    pack.argtypes += [ctypes.c_void_p]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = values.shape
    out = np.zeros((rows, columns // block * size), dtype=np.uint8)
    source = np.ascontiguousarray(values, dtype=np.float32)
    written = pack(int(kind), source.ctypes.data, out.ctypes.data, 0, rows, columns, None)
    assert written == out.nbytes, (kind, written, out.nbytes)
    return out


class Weights:
    """Adds seeded tensors to a writer."""

    def __init__(self, writer: gguf.GGUFWriter, spec: Spec, seed: int) -> None:
        self.writer, self.spec = writer, spec
        self.rng = np.random.default_rng(seed)

    def matrix(self, name: str, rows: int, columns: int, std: float) -> None:
        values = self.rng.normal(0, std, size=(rows, columns)).astype(np.float32)
        kind = self.spec.weights
        if columns % gguf.GGML_QUANT_SIZES[kind][0] != 0:
            kind = Q.Q8_0
        if kind == Q.F32:
            self.writer.add_tensor(name, values)
        elif kind == Q.F16:
            self.writer.add_tensor(name, values.astype(np.float16))
        elif kind == Q.BF16:
            self.writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            self.writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    def vector(self, name: str, size: int, mean: float, std: float) -> None:
        self.writer.add_tensor(name, self.rng.normal(mean, std, size=size).astype(np.float32))

    def norm(self, name: str, size: int) -> None:
        self.vector(name, size, 1.0, 0.2)


def add_layer(w: Weights, index: int) -> None:
    s, blk = w.spec, f"blk.{index}."
    q, kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    # Unit-variance outputs, with wider q and k so that attention is not uniform.
    std = s.n_embd**-0.5
    w.norm(blk + "attn_norm.weight", s.n_embd)
    w.matrix(blk + "attn_q.weight", q, s.n_embd, 1.5 * std)
    w.matrix(blk + "attn_k.weight", kv, s.n_embd, 1.5 * std)
    w.matrix(blk + "attn_v.weight", kv, s.n_embd, std)
    w.matrix(blk + "attn_output.weight", s.n_embd, q, q**-0.5)
    if s.arch == "qwen2":
        w.vector(blk + "attn_q.bias", q, 0.0, 0.5)
        w.vector(blk + "attn_k.bias", kv, 0.0, 0.5)
        w.vector(blk + "attn_v.bias", kv, 0.0, 0.5)
    if s.arch in ("qwen3", "gemma3"):
        w.norm(blk + "attn_q_norm.weight", s.head_dim)
        w.norm(blk + "attn_k_norm.weight", s.head_dim)
    if s.arch == "gemma3":
        w.norm(blk + "post_attention_norm.weight", s.n_embd)
        w.norm(blk + "post_ffw_norm.weight", s.n_embd)
    w.norm(blk + "ffn_norm.weight", s.n_embd)
    w.matrix(blk + "ffn_gate.weight", s.n_ff, s.n_embd, std)
    w.matrix(blk + "ffn_up.weight", s.n_ff, s.n_embd, std)
    w.matrix(blk + "ffn_down.weight", s.n_embd, s.n_ff, 1.5 * s.n_ff**-0.5)


def write_model(spec: Spec, folder: pathlib.Path, seed: int) -> pathlib.Path:
    path = folder / f"{spec.name}.gguf"
    writer = gguf.GGUFWriter(path, spec.arch)
    add_metadata(writer, spec)
    bpe = spec.arch != "gemma3"
    vocab = add_bpe_vocab(writer, spec.arch) if bpe else add_spm_vocab(writer)
    writer.add_vocab_size(vocab)
    w = Weights(writer, spec, seed)
    # Logits of a few units; gemma multiplies its embeddings by sqrt(n_embd), so they start smaller.
    embedding_std = 0.2 if spec.arch == "gemma3" else 3.2 * spec.n_embd**-0.5
    w.matrix("token_embd.weight", vocab, spec.n_embd, embedding_std)
    w.norm("output_norm.weight", spec.n_embd)
    if not spec.tied:
        w.matrix("output.weight", vocab, spec.n_embd, embedding_std)
    if spec.divisors:
        divisors = np.linspace(1.0, 8.0, spec.head_dim // 2).astype(np.float32)
        writer.add_tensor("rope_freqs.weight", divisors)
    for i in range(spec.n_layer):
        add_layer(w, i)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def dense_files() -> dict[str, bytes]:
    """Files whose items are as small as the format allows, where allocation per byte is worst."""

    def header(tensors: int, keys: int) -> bytes:
        return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)

    model = text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("gpt2")
    tokens = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 4000) + bytes(8 * 4000)
    keys = b"".join(text(f"{i:x}") + struct.pack("<IB", 0, 0) for i in range(2000))
    infos = b"".join(
        text(f"{i:x}") + struct.pack("<IQIQ", 1, 1, 24, 32 * i)
        for i in range(500)  # i8 [1]
    )
    padding = bytes(-len(header(0, 0) + infos) % 32)
    return {
        "dense_tokens": header(0, 2) + model + tokens,
        "dense_keys": header(0, 2000) + keys,
        "dense_tensors": header(500, 0) + infos + padding + bytes(32 * 500),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/gguf"))
    parser.add_argument(
        "--fuzz", type=pathlib.Path, default=pathlib.Path("tests/fuzz/corpus/gguf_fuzz")
    )
    args = parser.parse_args()
    for folder, specs in ((args.out, SPECS), (args.fuzz, FUZZ_SPECS)):
        folder.mkdir(parents=True, exist_ok=True)
        for seed, spec in enumerate(specs, start=1):
            path = write_model(spec, folder, seed)
            print(f"{path} {path.stat().st_size}")
    for name, data in dense_files().items():
        (args.fuzz / f"{name}.gguf").write_bytes(data)


if __name__ == "__main__":
    main()
