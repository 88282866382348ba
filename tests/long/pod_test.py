"""A pod of 1 GiB whose pool of pages is filled to the last: it answers on and is not killed."""

from __future__ import annotations

import random
import threading
import time
import unittest

from paths import budget  # isort: skip  # first: it finds the others

import pod_test as e2e_pod  # tests/e2e comes first in the path
from watch import Client, sanitized, total

CLIENTS = 4
PROMPT = 1000


class FullPod(e2e_pod.PodStart):
    test_a_tiny_model = None  # type: ignore[assignment]  # tests/e2e has it
    test_the_default_model = None  # type: ignore[assignment]

    def test_a_full_pool(self) -> None:
        self.assertTrue(e2e_pod.MODEL.exists(), f"no model at {e2e_pod.MODEL}: ./dev model")
        flags: tuple[str, ...] = ()
        if sanitized():
            print("a sanitizer's own memory is in no plan: the pool is 8,192 tokens here")
            flags = ("--kv-cache-tokens", "8192")
        pod, daemon = self.start(e2e_pod.MODEL.resolve(), *flags)
        self.check_sizing(pod, daemon)
        pages = total(daemon.metrics(), "cuvild_kv_blocks_total")
        end = time.monotonic() + budget("POD_SECONDS", 300)
        failed: list[str] = []
        full = threading.Event()

        def run(seed: int) -> None:
            rng = random.Random(seed)
            client = Client(daemon)
            while not full.is_set() and time.monotonic() < end:
                prompt = [rng.randrange(1000, 20000) for _ in range(PROMPT)]
                status, _, reply = client.ask(
                    "/v1/completions", {"prompt": prompt, "max_tokens": 2}
                )
                if status != 200:
                    failed.append(f"{status} {reply!r}")
                    return
            client.close()

        threads = [threading.Thread(target=run, args=(k,)) for k in range(CLIENTS)]
        for t in threads:
            t.start()
        cached = 0.0
        while any(t.is_alive() for t in threads):
            time.sleep(0.5)
            m = daemon.metrics()
            cached = max(cached, total(m, "cuvild_kv_blocks_cached"))
            if total(m, "cuvild_kv_blocks_evicted_total") > 0:
                full.set()  # every page has been written
        print(
            f"{cached:g} of {pages:g} pages held keys ({'all written' if full.is_set() else 'not all in time'}); "
            f"the group held at most {pod.memory_peak() / 2**20:.0f} MiB of 1024, "
            f"killed {pod.killed()} times"
        )
        self.assertEqual(failed, [])
        self.assertEqual(pod.killed(), 0)
        self.assertTrue(self.answer(daemon))
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
