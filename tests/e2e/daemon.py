"""A `cuvil serve` process of its own, on a free port, for tests."""

from __future__ import annotations

import http.client
import json
import pathlib
import signal
import subprocess
import time
from typing import Any

from e2e import BIN, LLAMA, TIMEOUT_S, CuvilTest


class Daemon:
    """Started at once; `stop` ends it by SIGTERM and returns its exit code."""

    def __init__(
        self,
        scratch: pathlib.Path,
        env: dict[str, str],
        *flags: str,
        model: pathlib.Path = LLAMA,
        wait: bool = True,
    ) -> None:
        self.ready = scratch / f"ready-{time.monotonic_ns()}.json"
        self.log = scratch / f"log-{time.monotonic_ns()}.jsonl"
        command = [str(BIN / "cuvil"), "serve", "--listen", "127.0.0.1:0"]
        command += ["--ready-file", str(self.ready), "--model", f"tiny={model}"]
        command += ["--threads", "1", "--log-format", "json", *flags]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.addresses: dict[str, str] = {}
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """One that does not become ready is ended: who started it has nothing yet to end it by."""
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not self.ready.exists():
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the daemon is not ready: {self.log.read_text()}")
                time.sleep(0.01)
            self.addresses = json.loads(self.ready.read_text())
        except BaseException:
            self.kill()
            raise

    @property
    def address(self) -> str:
        return self.addresses["http"]

    @property
    def url(self) -> str:
        return f"http://{self.address}/v1"

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        host, port = self.address.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
        try:
            sent = dict(headers or {})
            data = None
            if body is not None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, data, sent)
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, _, body = self.request("GET", path)
        assert status == 200, (status, body)
        return json.loads(body)

    def metrics(self) -> dict[str, float]:
        _, _, body = self.request("GET", "/metrics")
        found = {}
        for line in body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(by)
        return self.process.wait(timeout=TIMEOUT_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=TIMEOUT_S)


class DaemonTest(CuvilTest):
    """One daemon for the tests of a class; FLAGS are its flags."""

    FLAGS: tuple[str, ...] = ()
    daemon: Daemon

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.daemon = Daemon(cls.scratch, cls.environment(), *cls.FLAGS)
        cls.addClassCleanup(cls.daemon.kill)  # also when a subclass's setUpClass fails

    @classmethod
    def tearDownClass(cls) -> None:
        code = cls.daemon.stop()
        super().tearDownClass()
        assert code == 0, f"the daemon ended with {code}"
