"""A start as in a small pod: it sizes itself by the limits, says so, and answers.

What the machine does not let a test enforce is printed, and what follows from it is not checked;
everything else is. tests/long/pod_test.py fills the memory of such a pod.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time
import unittest
from typing import Any

from daemon import Daemon
from e2e import BIN, LLAMA, SOURCE, TIMEOUT_S, CuvilTest
from pod import MEMORY, Pod
from watch import total

MODEL = pathlib.Path(
    os.environ.get("CUVIL_MODEL") or SOURCE / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
)


class InPod(Daemon):
    """In a pod, with no environment at all: no HOME, no PATH, no cache folder."""

    def __init__(self, pod: Pod, model: pathlib.Path, *flags: str) -> None:
        self.ready = pod.writable / "ready.json"
        self.log = pod.writable / "log.jsonl"
        command = [str(BIN / "cuvil"), "serve", "--listen", "127.0.0.1:0", "--log-format", "json"]
        command += ["--ready-file", str(self.ready), "--model", f"tiny={model}", *flags]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                pod.wrap(["env", "-i", *command]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.addresses: dict[str, str] = {}
        self.wait_until_ready()


class PodStart(CuvilTest):
    def start(self, model: pathlib.Path, *flags: str) -> tuple[Pod, InPod]:
        folder = self.scratch / f"pod-{time.monotonic_ns()}"
        folder.mkdir()
        pod = Pod(folder)
        self.addCleanup(pod.close)
        print(pod.says(), flush=True)
        daemon = InPod(pod, model, *flags)
        self.addCleanup(daemon.kill)
        return pod, daemon

    def check_sizing(self, pod: Pod, daemon: InPod) -> None:
        start = next(line for line in daemon.lines() if line["event"] == "start")
        print(f"it says: {start['detail']}", flush=True)
        self.assertEqual(start["threads"], 1)  # 1.5 CPUs carry one worker all the time, not two
        if pod.has_quota:
            self.assertIn("CPU quota 1.5", start["detail"])
        if pod.has_memory:
            self.assertIn("the control group's memory limit 1.0 GiB", start["detail"])
            self.assertLess(start["memory_bytes"], MEMORY)
        m = daemon.metrics()
        self.assertLessEqual(total(m, "cuvild_memory_bytes"), start["memory_bytes"])

    def answer(self, daemon: InPod, **fields: Any) -> str:
        body = {"prompt": "Hello", "max_tokens": 8, "temperature": 0, **fields}
        status, _, reply = daemon.request("POST", "/v1/completions", body)
        self.assertEqual(status, 200, reply)
        return json.loads(reply)["choices"][0]["text"]

    def test_a_tiny_model(self) -> None:
        pod, daemon = self.start(LLAMA)
        self.check_sizing(pod, daemon)
        self.assertEqual(self.answer(daemon), self.answer(daemon))
        if pod.has_read_only_root:
            # Kernels could not be kept: that is said once, and is no error.
            self.assertNotIn('"level":"error"', daemon.log.read_text())
        self.assertEqual(daemon.stop(), 0)

    def test_the_default_model(self) -> None:
        self.assertTrue(MODEL.exists(), f"no model at {MODEL}: ./dev model, or set CUVIL_MODEL")
        began = time.monotonic()
        pod, daemon = self.start(MODEL.resolve())
        print(f"ready after {time.monotonic() - began:.1f} s, compiled without a cache")
        self.check_sizing(pod, daemon)
        self.assertTrue(self.answer(daemon))
        print(f"the group held at most {pod.memory_peak() / 2**20:.0f} MiB")
        self.assertEqual(pod.killed(), 0)
        self.assertEqual(daemon.stop(), 0)
        self.assertLess(time.monotonic() - began, TIMEOUT_S)


if __name__ == "__main__":
    unittest.main()
