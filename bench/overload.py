#!/usr/bin/env python3
"""Measures what the server still gets done when it is asked for more than it can.

Capacity is what is answered per second with twice as many clients as fill the batch.
Then requests come by themselves (open loop, Poisson) at multiples of it, each on a connection of
its own, and each client leaves at its deadline. Goodput counts the tokens of answers that came in
time. It is compared with the mean of the capacities right before and after, twice: by the clock,
and by the CPU time that the server had meanwhile, which other work on the machine does not change.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
from typing import Any, NamedTuple

import served
from served import FIRST_TOKEN, TOKENS

WARM_S = 2.0  # until batch and queue are full; not counted


class Reply(NamedTuple):
    tokens: int
    status: int  # 0: nothing came by the deadline; -1: the connection failed
    retry_after: bool
    began: float
    took: float


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


async def ask(
    server: Server, args: argparse.Namespace, rng: random.Random, deadline: float
) -> Reply:
    """One request on its own connection, which is given up at the deadline."""
    began = time.monotonic()
    prompt = [FIRST_TOKEN + rng.randrange(TOKENS) for _ in range(args.prompt)]
    tokens = rng.randint(args.generate // 2, args.generate * 3 // 2)  # or all end together
    body = json.dumps(
        {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += f"x-request-timeout: {deadline:.3f}\r\n\r\n"

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        try:
            writer.write(head.encode() + body)
            return await reader.read()
        finally:
            writer.close()

    try:
        reply = await asyncio.wait_for(exchange(), deadline)
    except asyncio.TimeoutError:
        return Reply(tokens, 0, False, began, time.monotonic() - began)
    except OSError:
        return Reply(tokens, -1, False, began, time.monotonic() - began)
    status = int(reply.split(b" ", 2)[1]) if reply else -1
    return Reply(
        tokens, status, b"\r\nretry-after:" in reply.lower(), began, time.monotonic() - began
    )


class Rate(NamedTuple):
    """Tokens of answers that came in time."""

    per_s: float
    per_cpu_s: float  # of the server


async def rate_of(server: Server, seconds: float, replies: list[Reply]) -> Rate:
    """Of the window that begins WARM_S from now; `replies` grows meanwhile."""
    await asyncio.sleep(WARM_S)
    begin, cpu = time.monotonic(), server.cpu_s()
    await asyncio.sleep(seconds)
    end, used = time.monotonic(), server.cpu_s() - cpu
    tokens = sum(r.tokens for r in replies if r.status == 200 and begin < r.began + r.took <= end)
    return Rate(tokens / (end - begin), tokens / used)


async def capacity(server: Server, args: argparse.Namespace, seed: int) -> Rate:
    """Closed loop."""
    replies: list[Reply] = []
    measured = asyncio.create_task(rate_of(server, args.seconds / 2, replies))

    async def client(k: int) -> None:
        rng = random.Random(seed * 1000 + k)
        while not measured.done():
            replies.append(await ask(server, args, rng, 60))
            if replies[-1].status != 200:
                raise SystemExit(f"overload: a client within capacity got {replies[-1].status}")

    await asyncio.gather(*(client(k) for k in range(2 * args.running)))
    return measured.result()


async def flood(
    server: Server, args: argparse.Namespace, rate: float, deadline: float, seed: int
) -> tuple[list[Reply], Rate, float]:
    """Open loop, `rate` requests per second: replies, goodput, and the largest memory seen."""
    rng = random.Random(seed)
    replies: list[Reply] = []
    measured = asyncio.create_task(rate_of(server, args.seconds, replies))
    tasks, largest = [], server.anon_mib()
    at = looked = time.monotonic()

    async def client(seed: float) -> None:
        replies.append(await ask(server, args, random.Random(seed), deadline))

    while not measured.done():
        at += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        tasks.append(asyncio.create_task(client(rng.random())))
        if time.monotonic() > looked + 0.1:
            looked = time.monotonic()
            largest = max(largest, server.anon_mib())
    await asyncio.gather(*tasks)
    return replies, measured.result(), largest


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))] if values else 0


async def measure(server: Server, args: argparse.Namespace) -> dict[str, Any]:
    before = await capacity(server, args, 0)
    # A full batch is served in running / per_s, or nearly; a client has patience for nine of them.
    per_s = before.per_s / args.generate
    deadline = args.deadline or 9 * args.running / per_s
    result: dict[str, Any] = {"deadline_s": deadline, "levels": []}
    for i, load in enumerate(args.loads):
        memory = server.anon_mib()
        offered = load * before.per_s / args.generate
        replies, good, largest = await flood(server, args, offered, deadline, i + 1)
        after = await capacity(server, args, i + 1)
        took = [r.took for r in replies if r.status == 200]
        refused = [r for r in replies if r.status == 429]
        result["levels"].append(
            {
                "load": load,
                "offered_per_s": offered,
                "capacity_tok_s": (before.per_s + after.per_s) / 2,
                "goodput_tok_s": good.per_s,
                "share": 2 * good.per_s / (before.per_s + after.per_s),
                "share_by_cpu": 2 * good.per_cpu_s / (before.per_cpu_s + after.per_cpu_s),
                "ok": len(took),
                "refused": len(refused),
                "without_retry_after": sum(not r.retry_after for r in refused),
                "late": sum(r.status in (0, 504) for r in replies),
                "other": sorted({r.status for r in replies if r.status not in (0, 200, 429, 504)}),
                "p50_s": statistics.median(took) if took else 0,
                "p99_s": p99(took),
                "refused_p99_s": p99([r.took for r in refused]),
                "memory_before_mib": memory,
                "memory_peak_mib": largest,
            }
        )
        if not args.quiet:
            print(
                f"overload: {load:g}x: {result['levels'][-1]['share']:.1%}, by CPU time {result['levels'][-1]['share_by_cpu']:.1%}",
                file=sys.stderr,
            )
        before = after
    return result


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
    parser.add_argument("--seconds", default=20.0, type=float, help="of each level")
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
            result = asyncio.run(measure(server, args))
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
