"""Mixed load for CUVIL_LONG_SECONDS (1,200): memory, descriptors and threads stay where they are.

The test of the slopes: over the second half, Theil-Sen on a sample per second. Memory (RssAnon +
VmSwap) is taken over requests answered: the 95 % interval of its slope contains 0, or its upper end
is below LEAK_BYTES per request, so that a leak of the smallest object of a request would show.
Descriptors and threads: the interval of their slope over time contains 0, and in the end they are
what they were before the load.
"""

from __future__ import annotations

import collections
import hashlib
import json
import random
import statistics
import threading
import time
import unittest
from typing import Any

from paths import budget  # isort: skip  # first: it finds the others

from cancel_test import connect, leave, message, read_until
from daemon import Daemon
from e2e import CuvilTest
from trend import trend
from watch import Client, held, sanitized, settle, total

WORKERS = 6
# No object of a request that could leak (its text, its tokens, its answer) is smaller; the
# noise of an allocator over 10^5 requests is less than a tenth of that.
LEAK_BYTES = 64
TENANTS = ("red", "green", "blue")
PAUSE_S = 0.01  # of each client between requests, so that the load leaves the machine to others


def key_flags() -> list[str]:
    flags = []
    for weight, tenant in enumerate(TENANTS, 1):
        digest = hashlib.sha256(tenant.encode()).hexdigest()
        flags += ["--api-key", f"sha256:{digest}:{tenant}:{weight}:admin"]
    return flags


class Load:
    """One client's mixed requests, each with the statuses that are right for it."""

    def __init__(self, daemon: Daemon, seed: int) -> None:
        self.daemon = daemon
        self.rng = random.Random(seed)
        self.client = Client(daemon)
        self.kinds = [
            (30, "plain", self.plain),
            (20, "streamed", self.streamed),
            (12, "chat", self.chat),
            (10, "abort", self.abort),
            (10, "embedding", self.embedding),
            (10, "error", self.error),
            (4, "tokenize", self.tokenize),
            (3, "reconnect", self.reconnect),
            (1, "scrape", self.scrape),
        ]

    def one(self) -> tuple[str, int]:
        rng = self.rng
        _, name, work = rng.choices(self.kinds, [w for w, _, _ in self.kinds])[0]
        return name, work()

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.rng.choice(TENANTS)}"}

    def fields(self) -> dict[str, Any]:
        rng = self.rng
        size = rng.choice((1, 5, 20, 60, 110))
        fields: dict[str, Any] = {
            "max_tokens": rng.choice((1, 4, 17)),
            "temperature": rng.choice((0, 0.7, 1.5)),
            "prompt": [3 + rng.randrange(200)] * (size // 2) + [5 + size] * (size - size // 2),
        }
        if rng.random() < 0.3:
            fields["cache_salt"] = f"salt{rng.randrange(50)}"
        if rng.random() < 0.2:
            fields["n"] = rng.randint(2, 4)
        if rng.random() < 0.2:
            fields["logprobs"] = rng.randint(0, 5)
        if rng.random() < 0.1:
            fields["stop"] = ["a", "the"]
        if rng.random() < 0.1:
            fields |= {"max_kv_len": 40, "kv_sinks": 4}
        if rng.random() < 0.1:
            fields["presence_penalty"] = 0.5
        return fields

    def expect(self, path: str, body: Any, *wanted: int) -> int:
        status, _, reply = self.client.ask(path, body, self.headers())
        assert status in wanted, (path, body, status, reply)
        return status

    def plain(self) -> int:
        return self.expect("/v1/completions", self.fields(), 200)

    def streamed(self) -> int:
        fields = self.fields() | {"stream": True, "stream_options": {"include_usage": True}}
        status, _, reply = self.client.ask("/v1/completions", fields, self.headers())
        assert status == 200 and reply.rstrip().endswith(b"data: [DONE]"), (status, reply[-200:])
        return status

    def chat(self) -> int:
        text = "word " * self.rng.choice((1, 4, 12))
        body = {"messages": [{"role": "user", "content": text}], "max_completion_tokens": 5}
        return self.expect("/v1/chat/completions", body, 200)

    def abort(self) -> int:
        head, body = message(self.fields() | {"stream": True, "max_tokens": 16, "n": 4})
        name, value = next(iter(self.headers().items()))
        head = head.replace(b"\r\n\r\n", f"\r\n{name}: {value}\r\n\r\n".encode())
        s = connect(self.daemon.address)
        s.sendall(head + body[: self.rng.choice((0, 20, len(body), len(body)))])
        if self.rng.random() < 0.3:
            time.sleep(0.001)
        leave(s, reset=self.rng.random() < 0.5)
        return 0

    def embedding(self) -> int:
        texts = ["Hello there, you"] * self.rng.choice((1, 1, 8))
        return self.expect("/v1/embeddings", {"input": texts}, 200)

    def error(self) -> int:
        path, body, status = self.rng.choice(
            (
                ("/v1/completions", b'{"prompt": "a"', 400),
                ("/v1/completions", {"prompt": [9999]}, 400),
                ("/v1/completions", {"prompt": "a", "temperature": 9}, 400),
                ("/v1/completions", {"prompt": [5] * 500}, 400),
                ("/v1/completions", {"prompt": "a", "model": "nobody"}, 404),
                ("/v1/nothing", {}, 404),
                ("/v1/chat/completions", {"messages": []}, 400),
            )
        )
        return self.expect(path, body, status)

    def tokenize(self) -> int:
        return self.expect("/tokenize", {"prompt": "Hello " * 200}, 200)

    def reconnect(self) -> int:
        self.client.close()
        self.client = Client(self.daemon)
        s = connect(self.daemon.address)
        s.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        read_until(s, b"\r\n\r\n")
        s.close()
        return 200

    def scrape(self) -> int:
        self.client.connection.request("GET", "/metrics", headers=self.headers())
        reply = self.client.connection.getresponse()
        assert reply.read()
        return reply.status


class Soak(CuvilTest):
    def test_nothing_grows(self) -> None:
        seconds = budget("SECONDS", 1200)
        daemon = Daemon(
            self.scratch,
            self.environment(),
            *("--log-level", "error", "--kv-cache-tokens", "1024", "--metrics-auth=false"),
            *key_flags(),
        )
        self.addCleanup(daemon.kill)
        pid = daemon.process.pid
        warm = Load(daemon, 0)
        for _, _, work in warm.kinds * 3:
            work()
        warm.client.close()
        time.sleep(0.5)
        base = held(pid)
        base = base._replace(fds=base.fds + 1)
        answered = [0] * WORKERS
        kinds: collections.Counter[tuple[str, int]] = collections.Counter()
        slow: list[tuple[float, float]] = []  # when, and how long a plain request took
        failed: list[str] = []
        over = threading.Event()

        def run(worker: int) -> None:
            load = Load(daemon, 1 + worker)
            while not over.is_set():
                began = time.monotonic()
                try:
                    kind = load.one()
                except (AssertionError, OSError) as error:
                    failed.append(repr(error))
                    return
                if kind[0] == "plain":
                    slow.append((began, time.monotonic() - began))
                kinds[kind] += 1
                answered[worker] += 1
                time.sleep(PAUSE_S)
            load.client.close()

        threads = [threading.Thread(target=run, args=(k,)) for k in range(WORKERS)]
        began = time.monotonic()
        for t in threads:
            t.start()
        samples = []
        told = began
        while (now := time.monotonic()) < began + seconds and not failed:
            samples.append((now - began, sum(answered), held(pid)))
            if now > told + 60:
                told = now
                print(f"{now - began:.0f} s: {sum(answered)} answers, {samples[-1][2]}", flush=True)
            time.sleep(max(0.0, began + len(samples) - time.monotonic()))
        over.set()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])
        left = settle(daemon, base)
        half = samples[len(samples) // 2 :]
        memory = trend([(answers, h.anon_kib * 1024) for _, answers, h in half])
        print(
            f"{sum(answered)} answers in {seconds} s: {json.dumps({f'{k} {v}': n for (k, v), n in sorted(kinds.items())})}"
        )
        print(
            f"memory {samples[0][2].anon_kib} KiB, at half {half[0][2].anon_kib}, at the end "
            f"{half[-1][2].anon_kib}: {memory.slope:.2f} bytes per request, "
            f"95 % of [{memory.low:.2f}, {memory.high:.2f}]"
        )
        for name in ("fds", "threads"):
            t = trend([(at, getattr(h, name)) for at, _, h in half])
            values = sorted(getattr(h, name) for _, _, h in half)
            print(
                f"{name} {values[0]} to {values[-1]}: {t.slope * 60:.3f} per minute, "
                f"95 % of [{t.low * 60:.3f}, {t.high * 60:.3f}]"
            )
            self.assertTrue(t.low <= 0 <= t.high, name)
        middle = began + seconds / 2
        for name, times in (
            ("first", [d for at, d in slow if at < middle]),
            ("second", [d for at, d in slow if at >= middle]),
        ):
            q = statistics.quantiles(times, n=100)
            print(f"{name} half: p50 {q[49] * 1e3:.2f} ms, p99 {q[98] * 1e3:.2f} ms")
        self.assertEqual(left, [])
        if sanitized():
            print("memory is not judged: the sanitizer keeps freed blocks")
        else:
            self.assertTrue(memory.low <= 0 or memory.high < LEAK_BYTES, memory)
        m = daemon.metrics()
        self.assertEqual(
            total(m, "cuvild_requests_started_total"), total(m, "cuvild_requests_total") + 1
        )
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
