#!/usr/bin/env python3
"""Measures what the server costs over the engine alone.

For each number of streams: `cuvil bench` in its own process (the engine, no server), then the same
number of streams over HTTP against a fresh daemon, interleaved, several pairs; the ratio of each
pair counts, and its median is reported. HTTP rates are those of the window in which all streams
decode (bench/http_load.cc). Also the time to the first token on an idle server, and what a long
prompt does to streams that are running.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent


def say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(f"serve_bench: {text}", file=sys.stderr)


@contextlib.contextmanager
def daemon(args: argparse.Namespace, cache: str) -> Iterator[str]:
    """A daemon on any free port; yields its address."""
    with tempfile.TemporaryDirectory() as folder:
        ready = pathlib.Path(folder) / "ready.json"
        command = [args.cuvil, "serve", "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
        command += ["--model", args.model, "--cache-dir", cache, "--log-level", "warning"]
        command += ["--prefix-cache=false"]
        if args.threads:
            command += ["--threads", str(args.threads)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            for _ in range(3000):
                if ready.exists():
                    break
                if process.poll() is not None:
                    raise SystemExit(f"serve_bench: the daemon ended with {process.returncode}")
                time.sleep(0.01)
            yield json.loads(ready.read_text())["http"]
        finally:
            process.terminate()
            process.wait(timeout=60)


def load(args: argparse.Namespace, address: str, streams: int, prompt: int, generate: int, seed: int) -> dict[str, Any]:
    command = [args.http_load, address, str(streams), str(prompt), str(generate), str(seed)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def in_process(args: argparse.Namespace, cache: str, streams: list[int], seed: int) -> dict[str, Any]:
    command = [args.cuvil, "bench", "--model", args.model, "--cache-dir", cache, "--json"]
    command += ["--prompt", "60", "--generate", str(args.generate), "--context", "60"]
    command += ["--streams", ",".join(str(n) for n in streams), "--repeat", "1", "--seed", str(seed)]
    if args.threads:
        command += ["--threads", str(args.threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ratios(args: argparse.Namespace, cache: str) -> dict[str, Any]:
    found: dict[int, dict[str, list[float]]] = {
        n: {"in_process": [], "http": [], "ratio": [], "reader_cpu": []} for n in args.streams
    }
    for pair in range(args.pairs):
        engine = in_process(args, cache, args.streams, pair)
        with daemon(args, cache) as address:
            load(args, address, 1, 60, 8, 99)  # the first request touches memory for all
            for n in args.streams:
                result = load(args, address, n, 60, args.generate, pair)
                if result["window_s"] <= 0:
                    raise SystemExit(
                        f"serve_bench: {n} streams never all decode at once; raise --generate"
                    )
                rate = engine["decode_tok_s"] if n == 1 else engine["streams"][str(n)]
                found[n]["in_process"].append(rate)
                found[n]["http"].append(result["window_tok_s"])
                found[n]["ratio"].append(result["window_tok_s"] / rate)
                found[n]["reader_cpu"].append(result["cpu_s"] / result["wall_s"])
        say(args, f"pair {pair + 1} of {args.pairs}: " + ", ".join(f"{n}: {found[n]['ratio'][-1]:.3f}" for n in args.streams))
    return {str(n): {k: statistics.median(v) for k, v in f.items()} | {"ratios": f["ratio"]} for n, f in found.items()}


def first_token(args: argparse.Namespace, cache: str) -> dict[str, float]:
    """Time to the first token of a 10-token prompt, idle server, against the engine's own time."""
    with daemon(args, cache) as address:
        times = []
        for i in range(args.pairs * 4 + 2):
            times.append(load(args, address, 1, 10, 2, i)["first_token_s"][0])
        http = statistics.median(times[2:])
    command = [args.cuvil, "bench", "--model", args.model, "--cache-dir", cache, "--json", "--prompt", "10"]
    command += ["--generate", "1", "--context", "10", "--streams", "1", "--repeat", str(args.pairs * 4)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    engine = 10 / result["prefill_tok_s"]
    return {"http_s": http, "engine_s": engine, "added_ms": (http - engine) * 1e3}


def long_prompt(args: argparse.Namespace, cache: str) -> dict[str, float]:
    """Seven streams decode; a prompt of 2,000 tokens arrives: their p99 gap against a quiet one."""
    quiet, busy = [], []
    with daemon(args, cache) as address:
        load(args, address, 1, 60, 8, 99)
        for i in range(args.pairs):
            quiet.append(load(args, address, 7, 60, args.generate * 2, i)["gaps_ms"]["p99"])
            command = [args.http_load, address, "7", "60", str(args.generate * 2), str(100 + i)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as streams:
                time.sleep(0.5)
                load(args, address, 1, 2000, 2, 200 + i)
                out, _ = streams.communicate()
            busy.append(json.loads(out)["gaps_ms"]["p99"])
    return {"quiet_p99_ms": statistics.median(quiet), "busy_p99_ms": statistics.median(busy),
            "ratio": statistics.median(b / q for b, q in zip(busy, quiet, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuvil", default=str(ROOT / "build/release/bin/cuvil"), help="the program to measure")
    parser.add_argument("--http-load", default=str(ROOT / "build/release/bin/http_load"), help="the load generator")
    parser.add_argument("--model", default=str(ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"), help="GGUF file")
    parser.add_argument("--streams", default=[1, 8, 32], type=lambda s: [int(n) for n in s.split(",")], metavar="N,N")
    parser.add_argument("--generate", default=64, type=int, help="tokens of each stream")
    parser.add_argument("--pairs", default=5, type=int, help="pairs of in-process and HTTP runs")
    parser.add_argument("--threads", default=0, type=int, help="workers; default: the program's choice")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        in_process(args, cache, args.streams, 0)  # compiles once
        result = {
            "streams": ratios(args, cache),
            "first_token": first_token(args, cache),
            "long_prompt": long_prompt(args, cache),
        }
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{'streams':>8} {'in process':>12} {'HTTP':>12} {'ratio':>8} {'reader CPU':>11}")
    for n, r in result["streams"].items():
        print(f"{n:>8} {r['in_process']:>10.1f}/s {r['http']:>10.1f}/s {r['ratio']:>8.3f} {r['reader_cpu']:>10.1%}")
    f, p = result["first_token"], result["long_prompt"]
    print(f"first token, 10-token prompt, idle: {f['http_s'] * 1e3:.2f} ms over HTTP, {f['engine_s'] * 1e3:.2f} ms in the engine: {f['added_ms']:+.2f} ms")
    print(f"2,000-token prompt among 7 streams: p99 gap {p['busy_p99_ms']:.1f} ms, quiet {p['quiet_p99_ms']:.1f} ms: {p['ratio']:.2f} x")


if __name__ == "__main__":
    main()
