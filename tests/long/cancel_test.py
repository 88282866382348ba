"""Clients that leave in every state of a request: CUVIL_LONG_CANCELS of them (2,000).

Meanwhile one client that stays gets its answer, always the same to the byte. Afterwards nothing is
left of those that went: no page, no place in the queue or the batch, no descriptor, no thread.
With the default model, whose steps are slow enough to be counted from outside: nobody who has
gone takes part in a second step.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
import socket
import struct
import threading
import time
import unittest
from collections import Counter
from typing import Any

from paths import budget  # isort: skip  # first: it finds the others

from daemon import Daemon
from e2e import SOURCE, CuvilTest
from watch import Client, held, sanitized, settle, total

WORKERS = 12
# flushing: a large answer is on its way to a client that does not read. whole: without a stream, the
# first byte of the answer has come. done: the stream has said [DONE].
STATES = ("before_body", "mid_body", "queued", "prefill", "decode", "flushing", "whole", "done")
MODEL = pathlib.Path(
    os.environ.get("CUVIL_MODEL") or SOURCE / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
)
LONG: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 100}


def message(fields: dict[str, Any]) -> tuple[bytes, bytes]:
    body = json.dumps(fields).encode()
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
    )
    return head, body


def connect(address: str, window: int = 0) -> socket.socket:
    host, port = address.rsplit(":", 1)
    s = socket.socket()
    s.settimeout(60)
    if window:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    s.connect((host, int(port)))
    return s


def leave(s: socket.socket, reset: bool) -> None:
    if reset:  # RST instead of FIN
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def read_until(s: socket.socket, mark: bytes, times: int = 1) -> bytes:
    seen = b""
    while seen.count(mark) < times:
        more = s.recv(4096)
        assert more, seen[-300:]
        seen += more
    return seen


def leave_in(state: str, address: str, rng: random.Random) -> None:
    reset = rng.random() < 0.5
    prompt = [rng.randrange(3, 250) for _ in range(rng.choice((1, 10, 27)))]
    fields: dict[str, Any] = {**LONG, "prompt": prompt, "stream": rng.random() < 0.5}
    if state == "queued":  # eight sequences run at a time: most of these 8 x 4 wait
        fields |= {"n": 8, "stream": False}
        head, body = message(fields)
        several = [connect(address) for _ in range(4)]
        for s in several:
            s.sendall(head + body)
        time.sleep(rng.random() * 0.003)
        for s in several:
            leave(s, reset)
        return
    if state == "prefill":
        fields["prompt"] = [rng.randrange(3, 250) for _ in range(120)]
        fields["max_tokens"] = 7
    if state == "flushing":
        fields |= {"n": 8, "logprobs": 5}
    if state in ("decode", "done"):
        fields["stream"] = True
    head, body = message(fields)
    s = connect(address, window=4096 if state == "flushing" else 0)
    if state == "before_body":
        s.sendall(head[: rng.randrange(1, len(head) + 1)])
    elif state == "mid_body":
        s.sendall(head + body[: rng.randrange(1, len(body))])
    else:
        s.sendall(head + body)
    if state == "prefill":
        time.sleep(rng.random() * 0.001)
    elif state == "decode":
        read_until(s, b"data: ", rng.randrange(1, 40))
    elif state == "flushing":
        s.recv(100)
        time.sleep(rng.random() * 0.02)
    elif state == "whole":
        s.recv(1)
    elif state == "done":
        read_until(s, b"[DONE]")
    leave(s, reset)


class Cancel(CuvilTest):
    def daemon(self, *flags: str, **kwargs: Any) -> Daemon:
        daemon = Daemon(self.scratch, self.environment(), *flags, **kwargs)
        self.addCleanup(daemon.kill)
        return daemon

    def test_leaving_in_every_state(self) -> None:
        daemon = self.daemon(
            *("--numerics", "deterministic", "--max-running", "8", "--log-level", "warning"),
            *("--kv-cache-tokens", "2048"),
        )
        count = budget("CANCELS", 2000)
        answer = {**LONG, "prompt": "Hello there", "max_tokens": 60, "logprobs": 2}

        def ask(client: Client) -> str:
            status, _, reply = client.ask("/v1/completions", answer)
            self.assertEqual(status, 200, reply)
            return json.dumps(json.loads(reply)["choices"])

        stays = Client(daemon)
        expected = ask(stays)
        stays.close()
        # Whatever is made on the first use is made now.
        for state in STATES:
            leave_in(state, daemon.address, random.Random(0))
        time.sleep(0.2)
        base = held(daemon.process.pid)._replace(anon_kib=0)
        base = base._replace(fds=base.fds + 1)  # the connection that asks for metrics
        self.assertEqual(settle(daemon, base), [])
        done: Counter[str] = Counter()
        failed: list[str] = []
        over = threading.Event()

        def run(worker: int) -> None:
            rng = random.Random(worker)
            for i in range(worker, count, WORKERS):
                state = STATES[i % len(STATES)]
                try:
                    leave_in(state, daemon.address, rng)
                    done[state] += 1
                except (AssertionError, OSError) as error:
                    failed.append(f"{state}: {error!r}")

        answered = [0]

        def stay() -> None:
            client = Client(daemon)
            while not over.is_set():
                if ask(client) != expected:
                    failed.append("the client that stays got another answer")
                answered[0] += 1
            client.close()

        staying = threading.Thread(target=stay)
        staying.start()
        workers = [threading.Thread(target=run, args=(k,)) for k in range(WORKERS)]
        began = time.monotonic()
        for t in workers:
            t.start()
        for t in workers:
            t.join()
        over.set()
        staying.join()
        left = settle(daemon, base)
        m = daemon.metrics()
        print(
            f"{sum(done.values())} left in {time.monotonic() - began:.1f} s ({dict(done)}), "
            f"{answered[0]} answers beside them, {total(m, 'cuvild_cancelled_total'):g} cancelled "
            f"of {total(m, 'cuvild_requests_started_total'):g} requests; left over: {left}"
        )
        self.assertEqual(failed, [])
        self.assertEqual(left, [])
        self.assertGreater(answered[0], count // 100)
        self.assertGreater(total(m, "cuvild_cancelled_total"), count / len(STATES))
        self.assertEqual(
            total(m, "cuvild_requests_started_total"), total(m, "cuvild_requests_total") + 1
        )
        self.assertEqual(daemon.stop(), 0)

    def test_gone_before_the_second_step(self) -> None:
        """Counted between a look right before the client goes and the end of its sequence."""
        self.assertTrue(MODEL.exists(), f"no model at {MODEL}: ./dev model, or set CUVIL_MODEL")
        daemon = self.daemon("--kv-cache-tokens", "4096", "--prefix-cache=false", model=MODEL)
        steps = 'cuvild_batch_size_count{model="tiny"}'
        metrics = Client(daemon)

        def look() -> dict[str, float]:
            metrics.connection.request("GET", "/metrics")
            found = {}
            for line in metrics.connection.getresponse().read().decode().splitlines():
                if line.startswith(("cuvild_batch_size_count", "cuvild_requests_")):
                    name, value = line.rsplit(" ", 1)
                    found[name] = float(value)
            return found

        def last_steps(prompt: int, events: int, stream: bool, streams: int) -> tuple[float, int]:
            rng = random.Random(prompt + events)
            fields = {**LONG, "stream": stream, "max_tokens": 400}
            gone = []
            for _ in range(streams):
                fields["prompt"] = [rng.randrange(1000, 20000) for _ in range(prompt)]
                gone.append(connect(daemon.address))
                gone[-1].sendall(b"".join(message(fields)))
            for s in gone:
                if events:
                    read_until(s, b"data: ", events)
            while total(earlier := look(), "cuvild_requests_running") < streams:
                pass
            first = time.monotonic()
            time.sleep(0.05)
            looked = time.monotonic()
            before = look()[steps]
            for s in gone:
                s.close()
            closed = time.monotonic()
            # What may have ended between the look and the close, at the pace so far; and the one
            # that was running.
            pace = (before - earlier[steps]) / (closed - first)
            allowed = 1 + math.ceil(pace * (closed - looked))
            if sanitized():
                # Generated code runs at full speed, what notices the client's end does not.
                allowed += 1
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                m = look()
                if total(m, "cuvild_requests_running") + total(m, "cuvild_requests_waiting") == 0:
                    return m[steps] - before, allowed
            self.fail("it runs on")

        for what, args, times in (
            ("decoding, streamed", (20, 3, True, 1), 20),
            ("decoding, not streamed", (20, 0, False, 1), 20),
            ("decoding, eight of them", (20, 2, True, 8), 5),
            ("in its prompt", (1900, 0, True, 1), 5),
        ):
            found = [last_steps(*args) for _ in range(times)]
            counts = Counter(count for count, _ in found)
            print(f"{what}: steps that ended after the look: {dict(counts)}", flush=True)
            for count, allowed in found:
                self.assertLessEqual(count, allowed, what)
            self.assertLessEqual(min(counts), 1, what)
        metrics.close()
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
