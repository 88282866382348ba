"""kill -9 at random points of start and work, CUVIL_LONG_KILLS times (100): the next start needs
no clean-up.

Address, ready file and cache folder stay the same all along, so that whatever a killed process
leaves behind is in the way of the next. The cache starts empty every tenth time, so that kills hit
compilation and writes too. After each kill `cuvil cache verify` must be content; after every fifth
the daemon has to start and give the answer it always gave.
"""

from __future__ import annotations

import http.client
import json
import pathlib
import random
import shutil
import socket
import subprocess
import threading
import time
import unittest
from typing import Any

from paths import budget  # isort: skip  # first: it finds the others

from cancel_test import connect, message
from daemon import Daemon
from e2e import BIN, LLAMA, TIMEOUT_S, CuvilTest
from watch import Client

START_S = 1.6  # until it is ready with an empty cache, about
FIELDS: dict[str, Any] = {
    "prompt": "Hello there",
    "max_tokens": 40,
    "temperature": 0,
    "ignore_eos": True,
}


class Killed(Daemon):
    """At a fixed address, with a ready file that is there already."""

    def __init__(self, folder: pathlib.Path, env: dict[str, str], port: int) -> None:
        self.ready = folder / "ready.json"
        self.log = folder / "log.jsonl"
        command = [str(BIN / "cuvil"), "serve", "--listen", f"127.0.0.1:{port}", "--threads", "1"]
        command += ["--ready-file", str(self.ready), "--model", f"tiny={LLAMA}"]
        self.written = self.ready.stat().st_mtime_ns if self.ready.exists() else 0
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.addresses = {"http": f"127.0.0.1:{port}"}

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(
                    f"it ended with {self.process.returncode}: {self.log.read_text()}"
                )
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise AssertionError(f"not ready: {self.log.read_text()}")


class Kill(CuvilTest):
    def verify(self) -> None:
        """Content, or that there is no cache yet."""
        if (self.scratch / "cache").exists():
            self.ok("cache", "verify")

    def answer(self, daemon: Daemon) -> Any:
        client = Client(daemon)
        status, _, reply = client.ask("/v1/completions", FIELDS)
        client.close()
        self.assertEqual(status, 200, reply)
        return json.loads(reply)["choices"]

    def test_a_kill_needs_no_clean_up(self) -> None:
        count = budget("KILLS", 100)
        rng = random.Random(9)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        expected: Any = None
        at = {"starting": 0, "working": 0}
        stale = 0
        for i in range(count):
            if i % 10 == 0:
                shutil.rmtree(self.scratch / "cache", ignore_errors=True)
            daemon = Killed(self.scratch, self.environment(), port)
            try:
                if i % 5 == 4:
                    daemon.wait_until_ready()
                    found = self.answer(daemon)
                    expected = expected or found
                    self.assertEqual(found, expected, f"after kill {i}")
                if i % 2:
                    daemon.wait_until_ready()
                    self.work_and_kill(daemon, rng)
                    at["working"] += 1
                else:
                    time.sleep(rng.random() * START_S)
                    # Whoever waits for the file must not take an older one for this start's.
                    listens = '"listen"' in daemon.log.read_text()
                    old = (
                        daemon.ready.exists() and daemon.ready.stat().st_mtime_ns == daemon.written
                    )
                    stale += listens and old
                    at["starting"] += 1
            finally:
                daemon.kill()
            self.verify()
        daemon = Killed(self.scratch, self.environment(), port)
        self.addCleanup(daemon.kill)
        daemon.wait_until_ready()
        self.assertEqual(self.answer(daemon), expected)
        self.assertEqual(daemon.stop(), 0)
        files = [p for p in (self.scratch / "cache").rglob("*") if p.is_file()]
        print(
            f"{count} kills, {at}; ready file of an earlier start still there in {stale}; "
            f"cache in the end: {sorted(p.name for p in files)}"
        )
        self.assertEqual(stale, 0, "a ready file outlives the process it speaks of")

    def work_and_kill(self, daemon: Daemon, rng: random.Random) -> None:
        """Streams and short requests run when it is killed."""
        streams = []
        for _ in range(4):
            head, body = message({**FIELDS, "stream": True, "max_tokens": 110, "n": 8})
            s = connect(daemon.address)
            s.sendall(head + body)
            streams.append(s)
        over = threading.Event()

        def run() -> None:
            client = Client(daemon)
            while not over.is_set():
                try:
                    client.ask("/v1/completions", FIELDS)
                except (OSError, http.client.HTTPException):
                    break  # it was killed: that is the point
            client.close()

        threads = [threading.Thread(target=run) for _ in range(3)]
        for t in threads:
            t.start()
        time.sleep(rng.random() * 0.2)
        daemon.kill()
        over.set()
        for t in threads:
            t.join()
        for s in streams:
            s.close()


if __name__ == "__main__":
    unittest.main()
