"""What a daemon holds, seen from outside: memory, descriptors, threads, and its own counts."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import time
from typing import Any, NamedTuple

from daemon import Daemon
from e2e import BIN, TIMEOUT_S


class Held(NamedTuple):
    anon_kib: int  # RssAnon + VmSwap: memory of the process alone, in RAM or swapped out
    fds: int
    threads: int


def held(pid: int) -> Held:
    status = {}
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        status[key] = value.split()
    return Held(
        int(status["RssAnon"][0]) + int(status["VmSwap"][0]),
        len(os.listdir(f"/proc/{pid}/fd")),
        int(status["Threads"][0]),
    )


def sanitized() -> bool:
    """The build is one of ASan or TSan: freed blocks stay in quarantine, so memory says little, and
    all but generated code is slow."""
    with (BIN / "cuvil").open("rb") as f:
        text = f.read()
    return b"__asan_init" in text or b"__tsan_init" in text


def total(metrics: dict[str, float], name: str) -> float:
    """Sum of a metric over its labels."""
    return sum(v for k, v in metrics.items() if k == name or k.startswith(name + "{"))


def settle(daemon: Daemon, base: Held, seconds: float = 30) -> list[str]:
    """Waits until nothing is left of any request; what is still there in the end."""
    deadline = time.monotonic() + seconds
    while True:
        m = daemon.metrics()
        now = held(daemon.process.pid)
        left = [
            f"{name} is {total(m, name):g}, not {want}"
            for name, want in (
                ("cuvild_requests_running", 0),
                ("cuvild_requests_waiting", 0),
                ("cuvild_kv_blocks_used", 0),
                ("cuvild_requests_in_flight", 1),  # the scrape itself
                ("cuvild_connections_open", 1),
            )
            if total(m, name) != want
        ]
        if now.fds > base.fds:
            left.append(f"{now.fds} descriptors, {base.fds} before")
        if now.threads > base.threads:
            left.append(f"{now.threads} threads, {base.threads} before")
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


class Client:
    """One connection that is kept; not for several threads."""

    def __init__(self, daemon: Daemon) -> None:
        host, port = daemon.address.rsplit(":", 1)
        self.connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)

    def ask(
        self, path: str, body: Any, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        self.connection.request("POST", path, data, sent)
        reply = self.connection.getresponse()
        return reply.status, reply.headers, reply.read()

    def close(self) -> None:
        self.connection.close()
