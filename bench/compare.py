#!/usr/bin/env python3
"""Measures Cuvil against llama.cpp on this machine, and writes docs/performance.md.

Examples:
  bench/setup_peer.sh                                 once: builds llama.cpp for this CPU
  bench/compare.py                                    the table, about 5 minutes on two cores
  bench/compare.py --write docs/performance.md        the same, and the page
  bench/compare.py --generate 16 --streams 8 --pairs 2 --allow-noise       a quick look
  bench/quality.py --json > q.json && bench/compare.py --quality q.json --write docs/performance.md

Close everything else first. Pairs disturbed by other processes are measured again, up to three
times as many as asked; figures that stay disturbed end the command with 1, and no page is written.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import report
from conditions import ROOT, command_line, commit, machine
from quiet import ChildFailed, Watch
from sides import Cuvil, Llama, Workload

MODEL = ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMORY_TEXT = "tests/data/smollm2/ppl_gpl3.txt"
ATTEMPTS_PER_PAIR = 3
# OpenMP threads of the side that just finished spin for up to 0.2 s (libomp's default block time).
SETTLE_S = 0.3
MIB = float(1 << 20)

Figures = dict[str, tuple[float, float]]  # metric -> Cuvil's figure, llama.cpp's


class Comparison:
    """Runs the pairs. Owns neither side."""

    def __init__(
        self, args: argparse.Namespace, work: Workload, cuvil: Cuvil, llama: Llama
    ) -> None:
        self.args, self.work, self.cuvil, self.llama = args, work, cuvil, llama
        self.metrics: dict[str, report.Metric] = {}
        self.last_bench: dict[str, Any] = {}
        self.prompt_lengths = {"first": 0, "memory": 0}

    def say(self, text: str) -> None:
        if not self.args.quiet:
            print(f"compare: {text}", file=sys.stderr, flush=True)

    def best_threads(self, name: str, cost_of: Callable[[int], float]) -> int:
        """The number of threads with which llama.cpp's cost is lowest, each tried twice."""
        costs = {n: min(cost_of(n), cost_of(n)) for n in self.args.peer_threads}
        best = min(costs, key=lambda n: costs[n])
        self.say(f"{name}: llama.cpp is best with {best} threads")
        return best

    def pairs(self, label: str, run_pair: Callable[[int], Figures]) -> None:
        """Measures pairs until args.pairs of them count or the attempts are used up."""
        kept = 0
        for attempt in range(self.args.pairs * ATTEMPTS_PER_PAIR):
            if kept == self.args.pairs:
                return
            kept += self._one(label, attempt, run_pair)
        if kept < self.args.pairs:
            self.say(f"{label}: gave up with {kept} undisturbed pairs")

    def _one(self, label: str, attempt: int, run_pair: Callable[[int], Figures]) -> int:
        watch = Watch([self.llama.pid])
        figures = run_pair(attempt)
        share = watch.others_share()
        disturbed = share > self.args.noise
        dropped = disturbed and not self.args.allow_noise
        self.say(
            f"{label}, attempt {attempt + 1}: others used {share:.1%} of the CPU"
            + (", dropped" if dropped else "")
        )
        if dropped:
            return 0
        for name, (ours, theirs) in figures.items():
            self.metrics[name].add(ours, theirs, disturbed)
        return 1

    def rates(self) -> None:
        work, repeat = self.work, self.args.repeat
        for name in work.rates():

            def cost(threads: int, name: str = name) -> float:
                return 1 / self.llama.rate(name, work, threads, seed=1000 + threads)

            self.metrics[name] = report.Metric(name, "tok/s", self.best_threads(name, cost))

        def pair(attempt: int) -> Figures:
            ours, self.last_bench = self.cuvil.rates(work, seed=attempt + 1, repeat=repeat)
            time.sleep(SETTLE_S)
            theirs = {}
            for name in work.rates():
                threads = self.metrics[name].peer_threads
                theirs[name] = self.llama.rate(name, work, threads, 1 + attempt * repeat, repeat)
            time.sleep(SETTLE_S)
            return {name: (ours[name], theirs[name]) for name in ours}

        self.pairs("rates", pair)

    def first_token(self) -> None:
        text = self.work.first_text
        self.cuvil.first_token(text)  # fills the cache of kernels and the page cache

        def cost(threads: int) -> float:
            return self.llama.first_token(text, threads)[0]["first_token_s"]

        threads = self.best_threads("first token", cost)
        self.metrics["first token"] = report.Metric("first token", "s", threads)
        self.metrics["whole process"] = report.Metric("whole process", "s", threads)

        def pair(_: int) -> Figures:
            ours, our_process = self.cuvil.first_token(text)
            time.sleep(SETTLE_S)
            theirs, _process = self.llama.first_token(text, threads)
            time.sleep(SETTLE_S)
            if ours["prompt_tokens"] != theirs["prompt_tokens"]:
                raise ChildFailed("the two sides tokenise the prompt differently")
            self.prompt_lengths["first"] = len(ours["prompt_tokens"])
            seconds = theirs["first_token_s"]
            return {
                "first token": (ours["timing"]["first_token_s"], seconds),
                # Cuvil from spawn to exit, llama.cpp as before: the strictest reading.
                "whole process": (our_process.wall_s, seconds),
            }

        self.pairs("first token", pair)

    def memory(self) -> None:
        threads = max(self.args.peer_threads)
        metric = report.Metric("peak memory", "MiB", threads)
        self.metrics["peak memory"] = metric
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(self._text_of(self.work.prompt))
            file.flush()
            for _ in range(self.args.pairs):
                ours, process = self.cuvil.read_file(file.name)
                prompt = ours["prompt_tokens"]
                theirs = self.llama.memory(prompt, threads)
                net = theirs["peak_bytes"] - theirs["after_imports_bytes"]
                metric.add(process.peak_bytes / MIB, net / MIB, noisy=False)
        self.prompt_lengths["memory"] = len(prompt)

    def _text_of(self, tokens: int) -> str:
        """The longest beginning of a fixed text, cut between words, of at most `tokens` tokens."""
        words = (ROOT / MEMORY_TEXT).read_text(encoding="utf-8").split(" ")
        counts = range(1, min(len(words), tokens) + 1)
        starts = [" ".join(words[:n]) for n in counts]
        lengths = self.cuvil.count_tokens(starts)
        return [start for start, n in zip(starts, lengths, strict=True) if n <= tokens][-1]

    def first_start(self, runs: int = 3) -> dict[str, float]:
        """Seconds to the first token when nothing is compiled yet; the model file is cached."""
        timings = []
        for _ in range(runs):
            with tempfile.TemporaryDirectory(prefix="cuvil-empty-") as empty:
                timings.append(self.cuvil.first_token(self.work.first_text, empty)[0]["timing"])
        out = {k: statistics.median(t[k] for t in timings) for k in ("first_token_s", "compile_s")}
        return out | {"runs": runs}


def method(args: argparse.Namespace, work: Workload, lengths: dict[str, int]) -> dict[str, Any]:
    return {
        **{"pairs": args.pairs, "noise": args.noise, "spread": args.spread},
        "threads": " and ".join(str(n) for n in args.peer_threads),
        **{"prompt": work.prompt, "generate": work.generate, "context": work.context},
        **{"stream_prompt": work.stream_prompt},
        **{"first_prompt": lengths["first"], "memory_prompt": lengths["memory"]},
    }


def measure(args: argparse.Namespace, cuvil: Cuvil, llama: Llama) -> dict[str, Any]:
    work = Workload(args.prompt, args.generate, args.context, args.streams)
    comparison = Comparison(args, work, cuvil, llama)
    parts = {"rates": comparison.rates, "first": comparison.first_token}
    parts["memory"] = comparison.memory
    for name in args.only:
        if name in parts:
            parts[name]()
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command_line(),
        "model": {"name": os.path.basename(args.model), "bytes": os.path.getsize(args.model)},
        "metrics": {n: m.json(args.pairs, args.spread) for n, m in comparison.metrics.items()},
    }
    if "cold" in args.only:
        result["first_start"] = comparison.first_start()
    if "greedy" in args.only:
        result["greedy_check"] = cuvil.greedy_check()
    result["machine"] = machine(cuvil.doctor(), comparison.last_bench)
    result["method"] = method(args, work, comparison.prompt_lengths)
    result["versions"] = {
        "cuvil": cuvil.version(),
        "commit": commit(),
        "llama_cpp_python": llama.about["version"],
        "llama_cpp_system": llama.about["system_info"],
    }
    return result


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in text.split(","))


PARTS = ["rates", "first", "memory", "cold", "greedy"]


def parts_list(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [n for n in names if n not in PARTS]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(PARTS)}")
    return names


def peer_thread_counts() -> tuple[int, ...]:
    return tuple(sorted({1, 2, len(os.sched_getaffinity(0))}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    default_model = os.environ.get("CUVIL_MODEL", str(ROOT / MODEL))
    add("--cuvil", default=str(ROOT / "build/release/bin/cuvil"), help="the program to measure")
    add("--model", default=default_model, help="GGUF file; default: $CUVIL_MODEL, else the cache's")
    add("--peer-python", default=str(ROOT / ".cache/peer/bin/python"), metavar="PATH",
        help="Python with llama_cpp and numpy; default: what setup_peer.sh makes")  # fmt: skip
    add("--peer-threads", type=numbers, default=peer_thread_counts(), metavar="N,N",
        help="numbers of threads llama.cpp may choose from (default: 1, 2 and all)")  # fmt: skip
    add("--threads", type=int, help="threads of Cuvil; default: its own choice")
    add("--numerics", default="fast", choices=["exact", "fast", "deterministic"])
    add("--prompt", type=int, default=512, help="tokens of the prefill prompt")
    add("--generate", type=int, default=128, help="tokens decoded per sequence")
    add("--context", type=int, default=64, help="tokens before the first decoded one")
    add("--streams", type=numbers, default=(8, 32), metavar="N,N", help="sequences in one batch")
    add("--pairs", type=int, default=5, help="undisturbed pairs wanted (default 5)")
    add("--repeat", type=int, default=1, help="runs within a pair; their median counts")
    add("--noise", type=float, default=0.05, help="CPU share of others that spoils a pair")
    add("--spread", type=float, default=0.20, help="spread of llama.cpp that spoils a figure")
    add("--allow-noise", action="store_true", help="keep disturbed pairs, marked; exit code 0")
    add("--only", type=parts_list, default=PARTS, metavar="PART,PART", help=", ".join(PARTS))
    add("--quality", metavar="FILE", help="output of bench/quality.py --json, for the page")
    add("--write", metavar="FILE", help="write the page there, when every figure is believable")
    add("--json", action="store_true", help="one JSON object on stdout instead of the table")
    add("--quiet", action="store_true", help="no progress on stderr")
    args = parser.parse_args()
    for path, fix in ((args.cuvil, "./dev build release"), (args.model, "./dev model"),
                      (args.peer_python, "bench/setup_peer.sh")):  # fmt: skip
        if not os.path.exists(path):
            parser.error(f"'{path}' does not exist; {fix} makes it")
    if args.pairs < 1 or args.repeat < 1:
        parser.error("--pairs and --repeat must be at least 1")
    if args.write and args.only != PARTS:
        parser.error("--write needs every part; drop --only")
    return args


def main() -> int:
    args = parse()
    quality = None
    if args.quality:
        quality = json.loads(pathlib.Path(args.quality).read_text(encoding="utf-8"))
    extra = ["--numerics", args.numerics]
    extra += ["--threads", str(args.threads)] if args.threads else []
    try:
        with tempfile.TemporaryDirectory(prefix="cuvil-bench-") as cache:
            cuvil = Cuvil(args.cuvil, args.model, cache, extra)
            llama = Llama(args.peer_python, args.model)
            try:
                result = measure(args, cuvil, llama)
            finally:
                llama.close()
    except ChildFailed as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1) if args.json else report.text(result))
    doubtful = [n for n, m in result["metrics"].items() if m["problems"]]
    different = not result.get("greedy_check", {"equal": True})["equal"]
    if different or (doubtful and not args.allow_noise):
        why = "the greedy tokens differ" if different else f"not believable: {', '.join(doubtful)}"
        print(f"compare: {why}" + ("; no page written" if args.write else ""), file=sys.stderr)
        return 1
    if args.write:
        pathlib.Path(args.write).write_text(report.page(result, quality), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
