#!/usr/bin/env python3
"""What trimming keys and values costs in quality, and what it saves in memory.

Perplexity of a long text, untrimmed and with each budget; a needle test (a fact is told early, then
filler, then a question), which counts only where the untrimmed model finds the needle; and the
pages a sequence holds at start contexts of 4,096 and 8,192 tokens.

A budget passes when its perplexity is within --ppl-limit of the untrimmed one, and every needle
that lies inside what it can see is found as often as without trimming. What lies outside its view
cannot be found: those are counted and shown, not judged.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Plain statements without numbers, so that the needle is the only number in the text.
FILLER = [
    "The river runs slowly past the old mill and the children watch the boats.",
    "In the morning the baker opens the shop and the street smells of bread.",
    "A long road leads over the hills to the village where the market is held.",
    "The gardener waters the roses while the cat sleeps on the warm stones.",
    "When the rain stops the farmers walk to the fields and talk about the harvest.",
    "The teacher closes the window because the wind carries leaves into the room.",
]


class Cuvil:
    def __init__(self, args: argparse.Namespace, cache: str) -> None:
        self.args, self.cache = args, cache

    def json(self, *arguments: str, stdin: str = "") -> Any:
        command = [self.args.cuvil, *arguments, "--model", self.args.model]
        if arguments[0] != "tokenize":
            command += ["--cache-dir", self.cache, "--json"]
        done = subprocess.run(command, input=stdin, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def tokens(self, text: str) -> list[int]:
        return self.json("tokenize", stdin=text)["tokens"]


def trim_flags(budget: int, sinks: int) -> list[str]:
    return ["--max-kv-len", str(budget), "--kv-sinks", str(sinks)] if budget else []


def perplexity(cuvil: Cuvil, tokens: list[int], budget: int, sinks: int, folder: str) -> float:
    """Of the second half of the text: the part that a short budget sees differently."""
    path = pathlib.Path(folder) / "text.json"
    path.write_text(json.dumps(tokens))
    flags = trim_flags(budget, sinks)
    result = cuvil.json("eval", "--tokens", str(path), "--window", str(len(tokens)), *flags)
    return math.exp(result["nll"] / result["scored"])


def needle_prompt(cuvil: Cuvil, number: int, before: int, after: int) -> tuple[str, int]:
    """Filler, the fact, filler, the question; and how many tokens follow the fact."""

    def filler(count: int) -> str:
        return " ".join(FILLER[i % len(FILLER)] for i in range(count))

    fact = f" Remember this: the secret number is {number}. "
    question = " What was said above about the secret number? The secret number is"
    text = filler(before) + fact + filler(after) + question
    return text, len(cuvil.tokens(filler(after) + question))


def needles(cuvil: Cuvil, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Where the untrimmed model finds the number, and what each budget does there."""
    rows = []
    for i, after in enumerate(args.distances):
        for k in range(args.repeats):
            number = 1000 + (7919 * (i * args.repeats + k + 1)) % 9000
            text, distance = needle_prompt(cuvil, number, 2 + k, after)
            row: dict[str, Any] = {"distance": distance, "number": number}
            for budget in [0, *args.budgets]:
                answer = cuvil.json(
                    "run",
                    "--raw",
                    text,
                    "--max-tokens",
                    "8",
                    "--temperature",
                    "0",
                    *trim_flags(budget, args.sinks),
                )
                row[str(budget)] = str(number) in answer["text"]
            rows.append(row)
    return rows


def memory(cuvil: Cuvil, args: argparse.Namespace, tokens: list[int]) -> list[dict[str, Any]]:
    """Bytes of pages that one sequence holds at most, from its own report."""
    rows = []
    for context in args.contexts:
        prompt = (tokens * (context // len(tokens) + 1))[: context - 32]
        row: dict[str, Any] = {"context": context}
        # The prompt as text would be cut differently; ids go through the evaluation instead.
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prompt.json"
            path.write_text(json.dumps(prompt))
            for budget in [0, *args.budgets]:
                flags = trim_flags(budget, args.sinks)
                result = cuvil.json("eval", "--tokens", str(path), *flags)
                row[str(budget)] = result["kv_bytes_peak"]
        rows.append(row)
    return rows


def page(result: dict[str, Any], args: argparse.Namespace) -> str:
    ppl, found = result["perplexity"], result["found"]
    head = (
        "| `max_kv_len` | perplexity | change | needles in view | found | out of view | found |\n"
    )
    rows = f"| untrimmed | {ppl[0]:.3f} | | {result['counted']} | {result['counted']} | | |\n"
    for b in args.budgets:
        f = found[b]
        rows += f"| {b:,} | {ppl[b]:.3f} | {ppl[b] / ppl[0] - 1:+.2%} | {f['inside']} "
        rows += f"| {f['found']} | {f['outside']} | {f['found_outside']} |\n"
    memory = "| context | untrimmed (MiB) |" + "".join(f" {b:,} (MiB) |" for b in args.budgets)
    memory += "\n|" + " --- |" * (2 + len(args.budgets)) + "\n"
    for row in result["memory"]:
        cells = [
            f" {row[str(b)] / 2**20:.1f} ({1 - row[str(b)] / row['0']:.0%} less) |"
            for b in args.budgets
        ]
        memory += f"| {row['context']:,} | {row['0'] / 2**20:.1f} |" + "".join(cells) + "\n"
    command = f"bench/trim_guard.py --budgets {','.join(str(b) for b in args.budgets)}"
    command += f" --sinks {args.sinks} --distances {','.join(str(d) for d in args.distances)}"
    command += f" --repeats {args.repeats}"
    return f"""# What trimming costs

<!-- Written by bench/trim_guard.py --write; edit that. -->

Of {pathlib.Path(args.model).name}, {args.sinks} sinks. Perplexity is that of the second half of {result["tokens"]:,} tokens
of {pathlib.Path(args.text).name}. A needle is a number told early, then filler, then a question about it; of
{len(result["needles"])} needles those {result["counted"]} count that the untrimmed model finds. One that lies outside of what a budget
can see is lost by intention: it is shown, not judged.

{head}| --- | --- | --- | --- | --- | --- | --- |
{rows}
Pages of one sequence at most:

{memory}
What trimming saves at longer contexts, and in models of other shapes, is in [trimming.md](trimming.md).
A budget passes when its perplexity is within {args.ppl_limit - 1:.0%} of the untrimmed one and no needle in view is
lost; {"all pass" if result["passed"] else "**not all pass**"}. The command:

    {command} --write docs/trimming_quality.md
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuvil", default=str(ROOT / "build/release/bin/cuvil"))
    parser.add_argument(
        "--model", default=str(ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    )
    parser.add_argument("--text", default=str(ROOT / "tests/data/smollm2/ppl_gpl3.ids.json"))
    parser.add_argument(
        "--budgets",
        default=[512, 1024, 2048],
        metavar="N,N",
        type=lambda s: [int(n) for n in s.split(",")],
    )
    parser.add_argument("--sinks", default=4, type=int)
    parser.add_argument(
        "--distances",
        default=[4, 12, 24, 48],
        metavar="N,N",
        type=lambda s: [int(n) for n in s.split(",")],
        help="sentences between the fact and the question",
    )
    parser.add_argument(
        "--contexts",
        default=[4096, 8192],
        metavar="N,N",
        type=lambda s: [int(n) for n in s.split(",")],
    )
    parser.add_argument("--repeats", default=4, type=int, help="needles per distance")
    parser.add_argument(
        "--ppl-limit",
        default=1.10,
        type=float,
        help="highest ratio of trimmed to untrimmed perplexity that passes",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--write", metavar="FILE", help="write the page there as well")
    args = parser.parse_args()
    tokens = json.loads(pathlib.Path(args.text).read_text())
    passed = True
    with tempfile.TemporaryDirectory() as cache:
        cuvil = Cuvil(args, cache)
        ppl = {b: perplexity(cuvil, tokens, b, args.sinks, cache) for b in [0, *args.budgets]}
        rows = needles(cuvil, args)
        pages = memory(cuvil, args, tokens)
    counted = [r for r in rows if r["0"]]
    found = {}
    for b in args.budgets:
        # The question's own tokens see `b - sinks` positions back.
        inside = [r for r in counted if r["distance"] + 16 <= b - args.sinks]
        hits = sum(r[str(b)] for r in inside)
        outside = [r for r in counted if r not in inside]
        found[b] = {
            "inside": len(inside),
            "found": hits,
            "outside": len(outside),
            "found_outside": sum(r[str(b)] for r in outside),
        }
        passed &= hits == len(inside) and ppl[b] / ppl[0] <= args.ppl_limit
    result = {
        "tokens": len(tokens),
        "perplexity": ppl,
        "needles": rows,
        "found": found,
        "counted": len(counted),
        "memory": pages,
        "passed": passed,
    }
    if args.write:
        pathlib.Path(args.write).write_text(page(result, args))
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(f"perplexity of the second half of {len(tokens)} tokens: untrimmed {ppl[0]:.3f}")
        for b in args.budgets:
            f = found[b]
            print(
                f"  {b:>6}: {ppl[b]:.3f} ({ppl[b] / ppl[0] - 1:+.2%}); needles in view "
                f"{f['found']} of {f['inside']}, out of view {f['found_outside']} of {f['outside']}"
            )
        print(f"needles that count: {len(counted)} of {len(rows)}")
        for row in pages:
            cells = ", ".join(
                f"{b}: {row[str(b)] / 2**20:.1f} MiB ({1 - row[str(b)] / row['0']:.0%} less)"
                for b in args.budgets
            )
            print(
                f"pages at context {row['context']}: untrimmed {row['0'] / 2**20:.1f} MiB, {cells}"
            )
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
