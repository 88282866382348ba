#!/usr/bin/env python3
"""Measures what the server still gets done when it is asked for more than it can.

Capacity is what is answered per second with twice as many clients as fill the batch.
Then requests come by themselves (open loop, Poisson) at multiples of it, each on a connection of
its own, and each client leaves at its deadline. Goodput counts the tokens of answers that came in
time. It is compared with the mean of the capacities right before and after, twice: by the clock,
and by the CPU time that the server had meanwhile, which other work on the machine does not change.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

import served

WARM_S = 2.0  # until batch and queue are full; not counted
SEEDS = itertools.count(1)


class Reply(NamedTuple):
    began: float
    took: float
    status: int  # 0: nothing came by the deadline; -1: the connection failed
    tokens: int
    retry_after: int


class Server(served.Daemon):
    def __init__(self, args: argparse.Namespace, cache: str) -> None:
        flags = ["--max-running", str(args.running), "--queue-requests", str(args.queue)]
        super().__init__(args, cache, *flags, "--kv-cache-tokens", str(args.kv_cache_tokens))

    def anon_mib(self) -> float:
        """Memory of the process alone: RssAnon and VmSwap."""
        status = self.status()
        return (status["RssAnon"] + status["VmSwap"]) / 2**20

    def cpu_s(self) -> float:
        """CPU time of the process so far."""
        fields = (
            pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Rate(NamedTuple):
    """Tokens of answers that came in time."""

    per_s: float
    per_cpu_s: float  # of the server


class Load:
    """Requests of bench/http_flood.cc, and what the server used in the window that counts."""

    def __init__(
        self, server: Server, args: argparse.Namespace, load: str, seconds: float, deadline: float
    ) -> None:
        generator = pathlib.Path(args.cuvil).parent / "http_flood"
        command = [str(generator), server.address, load, str(WARM_S + seconds), str(args.prompt)]
        command += [str(args.generate), str(deadline), str(next(SEEDS))]
        self.largest_mib = server.anon_mib()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            time.sleep(WARM_S)
            begin, cpu = time.monotonic(), server.cpu_s()
            while (now := time.monotonic()) < begin + seconds:
                self.largest_mib = max(self.largest_mib, server.anon_mib())
                time.sleep(min(0.1, begin + seconds - now))
            end, used = time.monotonic(), server.cpu_s() - cpu
            assert process.stdout
            printed = process.stdout.read()
        if process.returncode != 0:
            raise SystemExit(f"overload: {generator} ended with {process.returncode}")
        result = json.loads(printed)
        self.client_cpu_s: float = result["cpu_s"]
        self.replies = [Reply(*reply) for reply in result["replies"]]
        tokens = sum(
            r.tokens for r in self.replies if r.status == 200 and begin < r.began + r.took <= end
        )
        self.rate = Rate(tokens / (end - begin), tokens / used)


def capacity(server: Server, args: argparse.Namespace) -> Rate:
    """Closed loop."""
    load = Load(server, args, f"clients={2 * args.running}", args.seconds / 2, 60)
    bad = [r.status for r in load.replies if r.status != 200]
    if bad:
        raise SystemExit(f"overload: a client within capacity got {bad[0]}")
    return load.rate


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else 0


class Round(NamedTuple):
    """A flood between two looks at the capacity."""

    before: Rate
    flood: Load
    after: Rate

    def share(self) -> float:
        return 2 * self.flood.rate.per_s / (self.before.per_s + self.after.per_s)

    def share_by_cpu(self) -> float:
        return 2 * self.flood.rate.per_cpu_s / (self.before.per_cpu_s + self.after.per_cpu_s)


def level(load: float, offered: float, memory: float, rounds: list[Round]) -> dict[str, Any]:
    """What all rounds of one load come to: medians of rates and shares, everything else added up."""
    replies = [reply for r in rounds for reply in r.flood.replies]
    took = [r.took for r in replies if r.status == 200]
    refused = [r for r in replies if r.status == 429]
    return {
        "load": load,
        "offered_per_s": offered,
        "capacity_tok_s": statistics.median((r.before.per_s + r.after.per_s) / 2 for r in rounds),
        "goodput_tok_s": statistics.median(r.flood.rate.per_s for r in rounds),
        "share": statistics.median(r.share() for r in rounds),
        "share_by_cpu": statistics.median(r.share_by_cpu() for r in rounds),
        "shares": [r.share() for r in rounds],
        "shares_by_cpu": [r.share_by_cpu() for r in rounds],
        "ok": len(took),
        "refused": len(refused),
        "without_retry_after": sum(not r.retry_after for r in refused),
        "late": sum(r.status in (0, 504) for r in replies),
        "other": sorted({r.status for r in replies if r.status not in (0, 200, 429, 504)}),
        "p50_s": statistics.median(took) if took else 0,
        "p99_s": p99(took),
        "refused_p99_s": p99([r.took for r in refused]),
        "memory_before_mib": memory,
        "memory_peak_mib": max(r.flood.largest_mib for r in rounds),
        "client_cpu_s": sum(r.flood.client_cpu_s for r in rounds),
    }


def measure(server: Server, args: argparse.Namespace) -> dict[str, Any]:
    before = capacity(server, args)
    # A full batch is served in running / per_s, or nearly; a client has patience for nine of them.
    per_s = before.per_s / args.generate
    deadline = args.deadline or 9 * args.running / per_s
    rounds: dict[float, list[Round]] = {load: [] for load in args.loads}
    memory = server.anon_mib()
    # Loads alternate, so that a slow minute of the machine is not one load's alone.
    for number in range(args.rounds):
        for load in args.loads:
            flood = Load(server, args, f"rate={load * per_s}", args.seconds, deadline)
            after = capacity(server, args)
            rounds[load].append(Round(before, flood, after))
            before = after
            if not args.quiet:
                last = rounds[load][-1]
                print(
                    f"overload: round {number + 1}, {load:g}x: {last.share():.1%}, by CPU time "
                    f"{last.share_by_cpu():.1%}",
                    file=sys.stderr,
                )
    levels = [level(load, load * per_s, memory, rounds[load]) for load in args.loads]
    return {"deadline_s": deadline, "levels": levels}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    served.add_arguments(parser)
    parser.add_argument(
        "--loads",
        default=[2.0, 5.0, 10.0],
        type=lambda s: [float(x) for x in s.split(",")],
        metavar="X,X",
        help="multiples of capacity",
    )
    parser.add_argument("--seconds", default=12.0, type=float, help="of each flood")
    parser.add_argument(
        "--rounds", default=3, type=int, help="floods of each load; the median counts"
    )
    parser.add_argument("--prompt", default=32, type=int, help="tokens of each prompt")
    parser.add_argument("--generate", default=16, type=int, help="tokens of each answer")
    parser.add_argument("--running", default=8, type=int, help="--max-running of the server")
    parser.add_argument("--queue", default=512, type=int, help="--queue-requests of the server")
    parser.add_argument(
        "--kv-cache-tokens",
        default=2048,
        type=int,
        help="of the server; small, so that the pool is full before memory is looked at",
    )
    parser.add_argument(
        "--deadline",
        default=0.0,
        type=float,
        help="of each request in seconds; default: what nine full batches take",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        with Server(args, f"{folder}/cache") as server:
            result = measure(server, args)
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(
        f"deadline {result['deadline_s']:.2f} s, {args.running} running, {args.queue} may wait, {args.prompt} + {args.generate} tokens"
    )
    print(
        f"{'load':>5} {'offered':>9} {'capacity':>11} {'goodput':>11} {'share':>7} {'by CPU':>7} {'ok':>6} "
        f"{'429':>6} {'late':>5} {'other':>6} {'p50':>7} {'p99':>7} {'429 p99':>8} {'memory':>15}"
    )
    for r in result["levels"]:
        print(
            f"{r['load']:>4g}x {r['offered_per_s']:>7.1f}/s {r['capacity_tok_s']:>7.1f} t/s {r['goodput_tok_s']:>7.1f} t/s "
            f"{r['share']:>7.1%} {r['share_by_cpu']:>7.1%} {r['ok']:>6} {r['refused']:>6} {r['late']:>5} "
            f"{len(r['other']) + r['without_retry_after']:>6} {r['p50_s']:>6.2f}s {r['p99_s']:>6.2f}s "
            f"{r['refused_p99_s'] * 1e3:>6.1f}ms {r['memory_before_mib']:>4.0f} to {r['memory_peak_mib']:>4.0f} MiB"
        )


if __name__ == "__main__":
    main()
