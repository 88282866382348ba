#!/usr/bin/env python3
"""Measures what the server costs over the engine alone.

For each number of streams: `cuvil bench` in its own process (the engine, no server) and the same
number of streams over HTTP, one right after the other, several pairs; the ratio of each pair
counts, and its median is reported. HTTP rates are those of the window in which all streams
decode (bench/http_load.cc). Also the time to the first token on an idle server, and what a long
prompt does to streams that are running.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import served
from served import ROOT


def say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(f"serve_bench: {text}", file=sys.stderr)


def daemon(args: argparse.Namespace, cache: str) -> served.Daemon:
    # Prompts repeat from run to run: each shall be computed.
    return served.Daemon(args, cache, "--prefix-cache=false")


def load(
    args: argparse.Namespace,
    address: str,
    streams: int,
    prompt: int,
    generate: int,
    seed: int,
) -> dict[str, Any]:
    command = [
        args.http_load,
        address,
        str(streams),
        str(prompt),
        str(generate),
        str(seed),
    ]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def in_process(args: argparse.Namespace, cache: str, streams: int, seed: int) -> float:
    """Tokens per second of the engine alone: decoding, after the same prompts."""
    command = [args.cuvil, "bench", *served.of_engine(args, cache), "--json"]
    command += ["--prompt", "60", "--generate", str(args.generate), "--context", "60"]
    command += ["--streams", str(streams), "--repeat", "1", "--seed", str(seed)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    return result["decode_tok_s"] if streams == 1 else result["streams"][str(streams)]


def over_http(args: argparse.Namespace, address: str, streams: int, seed: int) -> dict[str, Any]:
    result = load(args, address, streams, 60, args.generate, seed)
    if result["window_s"] <= 0:
        raise SystemExit(
            f"serve_bench: {streams} streams never all decode at once; raise --generate"
        )
    return result


def ratios(args: argparse.Namespace, cache: str) -> dict[str, Any]:
    """Both sides of a pair right after each other, in turns: the machine is the same for both."""
    found: dict[int, dict[str, list[float]]] = {
        n: {"in_process": [], "http": [], "ratio": [], "reader_cpu": []} for n in args.streams
    }
    for pair in range(args.pairs):
        with daemon(args, cache) as server:
            load(args, server.address, 1, 60, 8, 99)  # the first request touches memory for all
            for n in args.streams:
                rate = in_process(args, cache, n, pair) if pair % 2 == 0 else 0.0
                result = over_http(args, server.address, n, pair)
                rate = rate or in_process(args, cache, n, pair)
                found[n]["in_process"].append(rate)
                found[n]["http"].append(result["window_tok_s"])
                found[n]["ratio"].append(result["window_tok_s"] / rate)
                found[n]["reader_cpu"].append(result["cpu_s"] / result["wall_s"])
        shown = ", ".join(f"{n}: {found[n]['ratio'][-1]:.3f}" for n in args.streams)
        say(args, f"pair {pair + 1} of {args.pairs}: {shown}")
    return {
        str(n): {k: statistics.median(v) for k, v in f.items()} | {"ratios": f["ratio"]}
        for n, f in found.items()
    }


def first_token(args: argparse.Namespace, cache: str) -> dict[str, float]:
    """Time to the only token of a 10-token prompt on an idle server, less what its step took.

    A step on an idle machine is slower than the same one in a loop (cores sleep, caches are cold);
    that is the engine's, so both times come from the same request.
    """
    times, steps = [], []
    with daemon(args, cache) as server:
        for i in range(args.pairs * 4 + 2):
            time.sleep(0.05)
            before = server.metric("cuvild_step_seconds_sum")
            times.append(load(args, server.address, 1, 10, 1, i)["first_token_s"][0])
            steps.append(server.metric("cuvild_step_seconds_sum") - before)
    added = statistics.median(t - s for t, s in zip(times[2:], steps[2:], strict=True))
    return {
        "http_s": statistics.median(times[2:]),
        "engine_s": statistics.median(steps[2:]),
        "added_ms": added * 1e3,
    }


def long_prompt(args: argparse.Namespace, cache: str) -> dict[str, float]:
    """Seven streams decode; a prompt of 2,000 tokens arrives: their p99 gap against a quiet one."""
    quiet, busy = [], []
    with daemon(args, cache) as server:
        load(args, server.address, 1, 60, 8, 99)
        for i in range(args.pairs):
            quiet.append(load(args, server.address, 7, 60, args.generate * 2, i)["gaps_ms"]["p99"])
            command = [
                args.http_load,
                server.address,
                "7",
                "60",
                str(args.generate * 2),
                str(100 + i),
            ]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as streams:
                time.sleep(0.5)
                load(args, server.address, 1, 2000, 2, 200 + i)
                out, _ = streams.communicate()
            busy.append(json.loads(out)["gaps_ms"]["p99"])
    return {
        "quiet_p99_ms": statistics.median(quiet),
        "busy_p99_ms": statistics.median(busy),
        "ratio": statistics.median(b / q for b, q in zip(busy, quiet, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    served.add_arguments(parser)
    parser.add_argument(
        "--http-load",
        default=str(ROOT / "build/release/bin/http_load"),
        help="the load generator",
    )
    parser.add_argument(
        "--streams",
        default=[1, 8, 32],
        type=lambda s: [int(n) for n in s.split(",")],
        metavar="N,N",
    )
    parser.add_argument("--generate", default=64, type=int, help="tokens of each stream")
    parser.add_argument("--pairs", default=5, type=int, help="pairs of in-process and HTTP runs")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        in_process(args, cache, 1, 0)  # compiles once
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
        print(
            f"{n:>8} {r['in_process']:>10.1f}/s {r['http']:>10.1f}/s {r['ratio']:>8.3f} {r['reader_cpu']:>10.1%}"
        )
    f, p = result["first_token"], result["long_prompt"]
    print(
        f"first token, 10-token prompt, idle: {f['http_s'] * 1e3:.2f} ms over HTTP, {f['engine_s'] * 1e3:.2f} ms in the engine: {f['added_ms']:+.2f} ms"
    )
    print(
        f"2,000-token prompt among 7 streams: p99 gap {p['busy_p99_ms']:.1f} ms, quiet {p['quiet_p99_ms']:.1f} ms: {p['ratio']:.2f} x"
    )


if __name__ == "__main__":
    main()
