#!/usr/bin/env python3
"""Compares what `cuvil serve --plan` says a server takes with what it takes at its fullest.

For each configuration: the plan's total; then a daemon with the same flags and the same (now warm)
cache of compiled kernels, loaded until every page of the pool has been written and a full batch has
run, with long prompts, log probabilities and embeddings among it. Its peak is VmHWM: everything
resident, pages of files included. The parts of the difference come from /proc/PID/smaps.
"""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from typing import Any

import served
from served import FIRST_TOKEN, TOKENS

CONFIGURATIONS = (
    ("--kv-cache-tokens", "4096", "--max-running", "8"),
    ("--kv-cache-tokens", "16384", "--max-running", "64"),
    ("--kv-cache-tokens", "8192", "--max-running", "32", "--numerics", "exact"),
)
PROMPT = 1000
BAR = 0.05  # of the measured peak


def resident_of(pid: int, model: str) -> dict[str, int]:
    """Resident bytes by what they are."""
    found = {"model_file": 0, "programs_and_libraries": 0, "heap_and_mappings": 0, "stacks": 0}
    kind = ""
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)$", line)
        if head:
            name = head[1]
            kind = "heap_and_mappings"
            if name == str(pathlib.Path(model).resolve()):
                kind = "model_file"
            elif name.startswith("/"):
                kind = "programs_and_libraries"
            elif name.startswith("[stack"):
                kind = "stacks"
        elif line.startswith("Rss:"):
            found[kind] += int(line.split()[1]) * 1024
    return found


class Server(served.Daemon):
    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        connection = http.client.HTTPConnection(self.address, timeout=600)
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        if reply.status != 200:
            raise SystemExit(f"memory_plan: {path}: {reply.status} {text!r}")
        return text


def fill(server: Server, running: int) -> None:
    """Until every page has been written, and a full batch has run."""
    rng = random.Random(1)

    def tokens(n: int) -> list[int]:
        return [FIRST_TOKEN + rng.randrange(TOKENS) for _ in range(n)]

    def complete(n: int, generate: int, **more: Any) -> None:
        fields = {"prompt": tokens(n), "max_tokens": generate, "ignore_eos": True, **more}
        server.ask("POST", "/v1/completions", fields)

    with concurrent.futures.ThreadPoolExecutor(running) as pool:
        jobs = [pool.submit(complete, 20, 24) for _ in range(running)]
        jobs += [pool.submit(complete, 100, 8, logprobs=5, echo=True) for _ in range(4)]
        jobs += [pool.submit(server.ask, "POST", "/v1/embeddings", {"input": ["word " * 200] * 4})]
        for job in jobs:
            job.result()
        pages = server.metric("cuvild_kv_blocks_total")
        while server.metric("cuvild_kv_blocks_cached") < pages - 1:
            held = server.metric("cuvild_kv_blocks_cached")
            for job in [pool.submit(complete, PROMPT, 2) for _ in range(2)]:
                job.result()
            if server.metric("cuvild_kv_blocks_evicted_total") > 0 and held >= pages - 64:
                break  # a page or two are between two prompts for good; all have been written


def measure(args: argparse.Namespace, flags: tuple[str, ...], folder: str) -> dict[str, Any]:
    cache = f"{folder}/cache"
    command = [args.cuvil, "serve", *served.of_engine(args, cache), *flags]
    subprocess.run([*command, "--plan", "--json"], check=True, capture_output=True)  # compiles
    plan = json.loads(
        subprocess.run(
            [*command, "--plan", "--json"], check=True, capture_output=True, text=True
        ).stdout
    )
    with Server(args, cache, *flags) as server:
        started = server.status()
        fill(server, int(flags[3]))
        status, parts = server.status(), resident_of(server.process.pid, args.model)
    model = plan["models"][0]
    planned = model["weights"] + model["kv"] + model["workspace"] + model.get("tokenizer", 0)
    return {
        "flags": list(flags),
        "plan": plan,
        "peak": status["VmHWM"],
        "ready_peak": started["VmHWM"],
        "difference": plan["total"] / status["VmHWM"] - 1,
        "anonymous": status["RssAnon"],
        "anonymous_not_planned": status["RssAnon"] - planned,
        "file": status["RssFile"],
        "parts": parts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    served.add_arguments(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [measure(args, flags, folder) for flags in CONFIGURATIONS]
    worst = max(abs(r["difference"]) for r in results)
    if args.json:
        print(json.dumps({"configurations": results, "worst": worst, "bar": BAR}, indent=1))
    else:
        mib = 1 << 20
        for r in results:
            m = r["plan"]["models"][0]
            print(" ".join(r["flags"]))
            print(
                f"  plan {r['plan']['total'] / mib:.1f} MiB, peak {r['peak'] / mib:.1f} MiB: {r['difference']:+.1%}"
            )
            print(
                "  plan:     "
                + ", ".join(
                    f"{k} {m[k] / mib:.1f}"
                    for k in ("weights", "kv", "workspace", "code", "tokenizer")
                )
                + f", process {r['plan']['process'] / mib:.1f}"
            )
            print("  resident: " + ", ".join(f"{k} {v / mib:.1f}" for k, v in r["parts"].items()))
            print(
                f"  anonymous {r['anonymous'] / mib:.1f}, of it not planned {r['anonymous_not_planned'] / mib:.1f}; files {r['file'] / mib:.1f}; peak when ready {r['ready_peak'] / mib:.1f}"
            )
        print(f"worst {worst:.1%}, bar {BAR:.0%}")
    sys.exit(0 if worst <= BAR else 1)


if __name__ == "__main__":
    main()
