"""More than the server can take: the queue stays short, memory flat, and whoever does not get in
is told so at once. Rates and goodput: bench/overload.py."""

from __future__ import annotations

import json
import threading
import time
import unittest
from collections import Counter

from daemon import Daemon
from e2e import CuvilTest
from watch import Client, held, sanitized, settle, total

CLIENTS = 48
SECONDS = 4.0
QUEUE, RUNNING = 8, 2
# Whatever 48 clients make the process hold, in KiB: buffers of connections and of answers.
GROWTH_KIB = 8 * 1024


class Overload(CuvilTest):
    def test_a_bounded_queue_and_honest_refusals(self) -> None:
        daemon = Daemon(
            self.scratch,
            self.environment(),
            *("--queue-requests", str(QUEUE), "--max-running", str(RUNNING)),
            *("--numerics", "deterministic", "--log-level", "error"),
        )
        self.addCleanup(daemon.kill)
        body = {"prompt": "Hello", "max_tokens": 100, "temperature": 0, "ignore_eos": True}
        first = Client(daemon)
        status, _, reply = first.ask("/v1/completions", body)
        self.assertEqual(status, 200, reply)
        expected = json.loads(reply)["choices"]
        first.close()
        time.sleep(0.1)
        base = held(daemon.process.pid)
        base = base._replace(fds=base.fds + 1)
        seen: Counter[int] = Counter()
        wrong: list[str] = []
        took: list[float] = []
        end = time.monotonic() + SECONDS

        def run() -> None:
            client = Client(daemon)
            while time.monotonic() < end and len(wrong) < 5:
                began = time.monotonic()
                status, headers, reply = client.ask("/v1/completions", body)
                seen[status] += 1
                if status == 200:
                    took.append(time.monotonic() - began)
                    if json.loads(reply)["choices"] != expected:
                        wrong.append(f"another answer: {reply!r}")
                elif status != 429 or int(headers.get("Retry-After", 0)) < 1:
                    wrong.append(f"{status} {dict(headers)} {reply!r}")
                time.sleep(0.01)
            client.close()

        threads = [threading.Thread(target=run) for _ in range(CLIENTS)]
        for t in threads:
            t.start()
        waiting, memory, halfway = 0.0, 0, 0
        while time.monotonic() < end:
            m = daemon.metrics()
            waiting = max(waiting, total(m, "cuvild_requests_waiting"))
            memory = max(memory, held(daemon.process.pid).anon_kib)
            if not halfway and time.monotonic() > end - SECONDS / 2:
                halfway = memory
            time.sleep(0.05)
        for t in threads:
            t.join()
        print(
            f"{dict(seen)}, at most {waiting:g} waiting, longest {max(took):.3f} s, "
            f"memory {base.anon_kib} to {halfway} to {memory} KiB"
        )
        self.assertEqual(wrong, [])
        self.assertGreater(seen[200], 20)
        self.assertGreater(seen[429], 20)
        # Sequences that have been given up their place for another wait too, beside the queue.
        self.assertLessEqual(waiting, QUEUE + RUNNING)
        if not sanitized():
            self.assertLess(memory - base.anon_kib, GROWTH_KIB)
        self.assertEqual(settle(daemon, base), [])
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
