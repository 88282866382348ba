#!/usr/bin/env python3
"""What trimming saves in memory at a long context: the plan's arithmetic, and a run that meets it.

The plan: for the shapes of 7B models, written as GGUF files of holes (no weights are read), what
`cuvil serve --plan` says that one sequence takes, untrimmed and with each budget.

The run: a seeded tiny model reads a prompt of the same length, and the most pages that it held are
compared with what the plan says of that model. Steps of 511 rows begin everywhere in a page, and
must meet the plan to the byte; steps of 512 rows begin at page borders, where a trimmed sequence
holds a page less. Ends with 1 when a figure differs.

--write FILE makes the page (docs/trimming.md).
"""

import argparse
import dataclasses
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDED = "llama-q4_k"  # of tests/data/gguf
SEEDED_CONTEXT, SEEDED_VOCABULARY = 20480, 272
NUMERICS = ("exact", "fast")
STORED = {"exact": "f32", "fast": "f16"}  # what keys and values are stored in
ALIGNED, UNALIGNED = 512, 511  # rows of a step: its most, which is a multiple of a page; one less

U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5  # GGUF's types of metadata
TENSOR_F32, TENSOR_Q4_0 = 0, 2
ALIGNMENT = 32
Key = tuple[str, int, Any]


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    kv_heads: int
    feed_forward: int
    layers: int = 32
    heads: int = 32
    head_dim: int = 128
    vocabulary: int = 32000
    context: int = 32768


SHAPES = (
    Shape("7B, 32 KV heads (Llama 2)", kv_heads=32, feed_forward=11008),
    Shape("7B, 8 KV heads (Mistral)", kv_heads=8, feed_forward=14336),
)


def packed(kind: int, value: Any) -> bytes:
    if kind == STRING:
        data = value.encode()
        return struct.pack("<Q", len(data)) + data
    return struct.pack({U32: "<I", F32: "<f", I32: "<i"}[kind], value)


def metadata(key: Key) -> bytes:
    name, kind, value = key
    data = packed(STRING, name)
    if isinstance(value, list):
        data += struct.pack("<IIQ", ARRAY, kind, len(value))
        return data + b"".join(packed(kind, v) for v in value)
    return data + struct.pack("<I", kind) + packed(kind, value)


def keys_of(shape: Shape) -> list[Key]:
    normal, byte = 1, 6
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    types = [2, 3, 3, *[byte] * 256]
    tokens += [f"w{i}" for i in range(len(tokens), shape.vocabulary)]
    types += [normal] * (shape.vocabulary - len(types))
    numbers = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.heads * shape.head_dim,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "rope.dimension_count": shape.head_dim,
        "vocab_size": shape.vocabulary,
    }
    return [
        ("general.architecture", STRING, "llama"),
        *((f"llama.{name}", U32, number) for name, number in numbers.items()),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("llama.rope.freq_base", F32, 10000.0),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.scores", F32, [-float(i) for i in range(shape.vocabulary)]),
        ("tokenizer.ggml.token_type", I32, types),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
    ]


def tensors_of(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    """Names and sizes, rows last."""
    width, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    tensors: list[tuple[str, tuple[int, ...]]] = [
        ("token_embd.weight", (width, shape.vocabulary)),
        ("output_norm.weight", (width,)),
        ("output.weight", (width, shape.vocabulary)),
    ]
    for i in range(shape.layers):
        of_layer = {
            "attn_norm": (width,),
            "attn_q": (width, width),
            "attn_k": (width, kv),
            "attn_v": (width, kv),
            "attn_output": (width, width),
            "ffn_norm": (width,),
            "ffn_gate": (width, shape.feed_forward),
            "ffn_up": (width, shape.feed_forward),
            "ffn_down": (shape.feed_forward, width),
        }
        tensors += [(f"blk.{i}.{name}.weight", size) for name, size in of_layer.items()]
    return tensors


def write_hollow(shape: Shape, path: pathlib.Path) -> None:
    """A model file whose weights are a hole: as long as a real one, and nearly nothing on disk."""
    tensors, keys = tensors_of(shape), keys_of(shape)
    infos, offset = b"", 0
    for name, size in tensors:
        count = size[0] * (size[1] if len(size) == 2 else 1)
        kind = TENSOR_Q4_0 if len(size) == 2 else TENSOR_F32
        infos += packed(STRING, name) + struct.pack(f"<I{len(size)}Q", len(size), *size)
        infos += struct.pack("<IQ", kind, offset)
        data = count // 32 * 18 if kind == TENSOR_Q4_0 else count * 4
        offset += -(-data // ALIGNMENT) * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(metadata(key) for key in keys) + infos
    head += bytes(-len(head) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + offset)


def write_seeded(path: pathlib.Path) -> None:
    """The committed tiny model, with a context that holds the prompt."""
    data = bytearray((ROOT / f"tests/data/gguf/{SEEDED}.gguf").read_bytes())
    key = b"llama.context_length"
    struct.pack_into("<I", data, data.index(key) + len(key) + 4, SEEDED_CONTEXT)
    path.write_bytes(data)


class Cuvil:
    def __init__(self, program: str, folder: pathlib.Path, sinks: int) -> None:
        self.program, self.folder, self.sinks = program, folder, sinks

    def json(self, *arguments: str) -> Any:
        command = [self.program, *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        # A plan that does not fit this machine is an answer too, and a 1.
        if not done.stdout:
            raise SystemExit(f"trim_memory: {' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def plan(self, model: pathlib.Path, numerics: str, budget: int, tokens: int) -> dict[str, int]:
        """What one sequence of so many tokens takes, by `cuvil serve --plan`."""
        config = self.folder / "plan.toml"
        lines = ["[[models]]", f'name = "{model.stem}"', f'path = "{model}"']
        lines += [f'numerics = "{numerics}"']
        if budget:
            lines += [f"max_kv_len = {budget}", f"kv_sinks = {self.sinks}"]
        config.write_text("\n".join(lines) + "\n")
        arguments = ["--config", str(config), "--sequence-tokens", str(tokens)]
        arguments += ["--cache-dir", str(self.folder / "cache")]
        return self.json("serve", "--plan", *arguments)["models"][0]["sequence"]

    def peak(self, model: pathlib.Path, numerics: str, budget: int, tokens: int, chunk: int) -> int:
        """Bytes of the most pages that a run of so many tokens held at once."""
        prompt = self.folder / "prompt.json"
        rng = random.Random(1)
        # The last one is predicted, not fed.
        ids = [rng.randrange(SEEDED_VOCABULARY) for _ in range(tokens + 1)]
        prompt.write_text(json.dumps(ids))
        trim = ["--max-kv-len", str(budget), "--kv-sinks", str(self.sinks)] if budget else []
        arguments = ["--model", str(model), "--tokens", str(prompt), "--numerics", numerics]
        arguments += ["--chunk", str(chunk), "--cache-dir", str(self.folder / "cache")]
        return self.json("eval", *arguments, *trim)["kv_bytes_peak"]


def plans(cuvil: Cuvil, args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for shape in SHAPES:
        model = cuvil.folder / "hollow.gguf"
        write_hollow(shape, model)
        for numerics in NUMERICS:
            row: dict[str, Any] = {"shape": shape.name, "numerics": numerics, "budgets": {}}
            for budget in args.budgets:
                sequence = cuvil.plan(model, numerics, budget, args.tokens)
                row["untrimmed"] = sequence["kv_untrimmed"]
                row["budgets"][budget] = sequence["kv"]
            rows.append(row)
    return rows


def runs(cuvil: Cuvil, args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    model = cuvil.folder / "seeded.gguf"
    write_seeded(model)
    for numerics in NUMERICS:
        for budget in [0, *args.budgets]:
            planned = cuvil.plan(model, numerics, budget, args.tokens)
            page = planned["kv"] // planned["pages"]
            row = {"numerics": numerics, "budget": budget, "planned": planned["kv"], "page": page}
            for chunk in (UNALIGNED, ALIGNED):
                row[str(chunk)] = cuvil.peak(model, numerics, budget, args.tokens, chunk)
            less = page if budget and planned["pages"] < planned["pages_untrimmed"] else 0
            row["equal"] = row[str(UNALIGNED)] == row["planned"]
            row["equal"] &= row[str(ALIGNED)] == row["planned"] - less
            rows.append(row)
    return rows


def mib(size: int) -> str:
    return f"{size / 2**20:,.2f}" if size < 100 * 2**20 else f"{size / 2**20:,.0f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def page(result: dict[str, Any], args: argparse.Namespace) -> str:
    head = ["shape", "arithmetic", "KV type", "untrimmed (MiB)"]
    head += [f"{b:,} kept (MiB)" for b in args.budgets]
    rows = []
    for r in result["plans"]:
        cells = [f"{mib(v)} ({1 - v / r['untrimmed']:.0%} less)" for v in r["budgets"].values()]
        numerics = r["numerics"]
        rows.append([r["shape"], numerics, STORED[numerics], mib(r["untrimmed"]), *cells])
    planned = table(head, rows)
    head = ["arithmetic", "kept", "plan", f"steps of {UNALIGNED}", f"steps of {ALIGNED}", "as said"]
    rows = []
    for r in result["runs"]:
        cells = [f"{r[k] // r['page']:,}" for k in ("planned", str(UNALIGNED), str(ALIGNED))]
        kept = f"{r['budget']:,}" if r["budget"] else "all"
        rows.append([r["numerics"], kept, *cells, "yes" if r["equal"] else "**no**"])
    measured = table(head, rows)
    command = f"bench/trim_memory.py --tokens {args.tokens} --sinks {args.sinks}"
    command += " --budgets " + ",".join(str(b) for b in args.budgets)
    return f"""# What trimming saves

<!-- Written by bench/trim_memory.py --write; edit that. -->

A sequence with `max_kv_len` (docs/serving.md) keeps that many positions, here {args.sinks} of them the first,
and the rows of the step that runs; what it costs in quality is in [trimming_quality.md](trimming_quality.md).

## The plan, for a sequence of {args.tokens:,} tokens

What `cuvil serve --plan --sequence-tokens {args.tokens}` says of models of these shapes, context
{SHAPES[0].context:,}: the worst case that the scheduler sets aside (`kvcache::TrimPolicy::PagesMax`).

{planned}
From the budget on, the length of the sequence no longer matters.

## A run that meets it

The most pages that a prompt of {args.tokens:,} tokens held on a seeded model ({SEEDED}, context
{SEEDED_CONTEXT:,}), against the plan of that model. Steps of {UNALIGNED} rows begin everywhere in a page and reach
the worst case; steps of {ALIGNED} rows begin at page borders, where a trimmed sequence holds one page less.

{measured}
Figures are exact and do not depend on the machine. The command:

    {command} --write docs/trimming.md
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuvil", default=str(ROOT / "build/release/bin/cuvil"))
    parser.add_argument("--tokens", default=18000, type=int, help="length of the sequence")
    parser.add_argument(
        "--budgets",
        default=[1024, 2048, 4096],
        metavar="N,N",
        type=lambda s: [int(n) for n in s.split(",")],
        help="max_kv_len",
    )
    parser.add_argument("--sinks", default=4, type=int, help="kv_sinks")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the page")
    parser.add_argument("--write", metavar="FILE", help="write the page there")
    args = parser.parse_args()
    if not 1 <= args.tokens < SEEDED_CONTEXT:
        parser.error(f"--tokens is {args.tokens}; it must be 1 to {SEEDED_CONTEXT - 1}")
    with tempfile.TemporaryDirectory() as folder:
        cuvil = Cuvil(args.cuvil, pathlib.Path(folder), args.sinks)
        result = {"plans": plans(cuvil, args), "runs": runs(cuvil, args)}
    result["equal"] = all(r["equal"] for r in result["runs"])
    text = json.dumps(result, indent=1) + "\n" if args.json else page(result, args)
    if args.write:
        pathlib.Path(args.write).write_text(page(result, args))
    else:
        sys.stdout.write(text)
    sys.exit(0 if result["equal"] else 1)


if __name__ == "__main__":
    main()
