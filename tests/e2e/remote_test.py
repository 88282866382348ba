"""Commands that talk to a server, against one that notes what it is asked and does as it is told."""

from __future__ import annotations

import http.server
import json
import signal
import subprocess
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

from e2e import BIN, TIMEOUT_S, CuvilTest


class Handler(http.server.BaseHTTPRequestHandler):
    """One request: what it says goes to the server's list, and the test's function answers it."""

    server: Server

    def do_GET(self) -> None:
        self.server.answer(self)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.bodies.append(json.loads(body or b"null"))
        self.server.answer(self)

    def reply(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, *texts: str) -> None:
        """A streamed answer's head and first events, without an end."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for text in texts:
            event = json.dumps({"choices": [{"text": text, "delta": {"content": text}}]})
            self.wfile.write(f"data: {event}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Callable[[Handler], None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.bodies: list[Any] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *args: object) -> None:
        self.shutdown()
        super().__exit__(*args)

    @property
    def url(self) -> tuple[str, str]:
        return ("--url", f"http://127.0.0.1:{self.server_port}")


def whole(handler: Handler) -> None:
    handler.reply(200, {"choices": [{"text": "yes"}]})


class RunFlags(CuvilTest):
    """`cuvil run --url`: each flag is sent or refused."""

    def body(self, *args: str) -> dict[str, Any]:
        with Server(whole) as server:
            self.ok("run", "Hi", "--json", *args, *server.url)
            (body,) = server.bodies
        return body

    def test_what_the_server_knows_is_sent(self) -> None:
        body = self.body("--max-kv-len", "40", "--kv-sinks", "2", "--model", "tiny")
        self.assertEqual((body["max_kv_len"], body["kv_sinks"], body["model"]), (40, 2, "tiny"))
        body = self.body("--raw", "--parse-special", "--stop", "a", "--stop", "b", "--ignore-eos")
        self.assertIs(body["parse_special"], True)
        self.assertEqual((body["stop"], body["ignore_eos"]), (["a", "b"], True))

    def test_what_is_not_given_is_the_servers_choice(self) -> None:
        body = self.body()
        for name in ("max_kv_len", "kv_sinks", "parse_special", "stop", "seed", "logprobs"):
            self.assertNotIn(name, body)

    def test_what_is_about_loading_is_refused(self) -> None:
        url = ("--url", "http://127.0.0.1:1")
        for flag in (
            ("--threads", "2"),
            ("--numerics", "exact"),
            ("--target", "cpu:avx2"),
            ("--cache-dir", "/tmp"),
            ("--no-cache",),
            ("--progress",),
            ("--perf-map",),
        ):
            with self.subTest(flag=flag):
                self.refused("run", "Hi", *flag, *url, says=f"{flag[0]} is about loading")
        self.refused("run", "Hi", "--key", "k", says="--url")


class Interrupted(CuvilTest):
    """Ctrl-C during `cuvil run --url` ends the answer as it does without --url: what there is
    stays, with its line ended, and nobody is told off."""

    def interrupt(self, answer: Callable[[Handler], None], seen: bytes) -> tuple[int, bytes, bytes]:
        with Server(answer) as server:
            process = subprocess.Popen(
                [BIN / "cuvil", "run", "Hi", *server.url],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            try:
                assert process.stdout is not None
                self.assertEqual(process.stdout.read(len(seen)), seen)
                self.assertTrue(self.asked.wait(TIMEOUT_S))
                time.sleep(0.2)  # it waits for more
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=20)
            finally:
                process.kill()
                process.wait()
                self.over.set()
        return process.returncode, seen + out, err

    def setUp(self) -> None:
        self.asked, self.over = threading.Event(), threading.Event()

    def test_while_the_stream_is_silent(self) -> None:
        def answer(handler: Handler) -> None:
            handler.stream("some ", "text")
            self.asked.set()
            self.over.wait(TIMEOUT_S)

        self.assertEqual(self.interrupt(answer, b"some text"), (0, b"some text\n", b""))

    def test_while_only_pings_come(self) -> None:
        def answer(handler: Handler) -> None:
            handler.stream("x")
            self.asked.set()
            while not self.over.wait(0.001):
                try:
                    handler.wfile.write(b": keep-alive\n\n")
                except OSError:
                    return

        self.assertEqual(self.interrupt(answer, b"x"), (0, b"x\n", b""))

    def test_before_anything_has_come(self) -> None:
        def answer(handler: Handler) -> None:
            self.asked.set()
            self.over.wait(TIMEOUT_S)

        self.assertEqual(self.interrupt(answer, b""), (0, b"", b""))


class CutOff(CuvilTest):
    """A server that took the request and then went away is not one that is not there."""

    def test_in_the_middle_of_an_answer(self) -> None:
        def answer(handler: Handler) -> None:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

        with Server(answer) as server:
            for command in (("ps",), ("run", "Hi", "--json"), ("run", "Hi")):
                with self.subTest(command=command):
                    self.refused(*command, *server.url, code=1, says="the answer was cut off: ")

    def test_before_an_answer(self) -> None:
        with Server(lambda handler: None) as server:
            for command in (("ps",), ("run", "Hi", "--json"), ("run", "Hi")):
                with self.subTest(command=command):
                    self.refused(*command, *server.url, code=1, says="the answer was cut off: ")


class Unload(CuvilTest):
    """`cuvil unload` ends, whatever other clients have done with the model meanwhile."""

    def server(self, *states: str) -> Server:
        """Each look at the models finds the next state; the last one stays."""
        left = list(states)

        def answer(handler: Handler) -> None:
            if handler.command == "POST":
                return handler.reply(202, {})
            state = left.pop(0) if len(left) > 1 else left[0]
            model = {"name": "m", "state": state, "error": "no" if state == "failed" else ""}
            handler.reply(200, {"models": [model]})

        return Server(answer)

    def test_it_is_loading_again(self) -> None:
        for states in (
            ("ready", "loading"),
            ("ready", "unloading", "loading", "ready"),
            ("unloading", "ready"),
        ):
            for command, said in (
                (("unload",), "unloaded"),
                (("unload", "--sleep"), "put to sleep"),
            ):
                with self.subTest(states=states, command=command):
                    with self.server(*states) as server:
                        done = self.refused(*command, "m", *server.url, says=f"'m' was {said}")
                    self.assertIn("because a request asked for it", done.err)

    def test_it_failed_again(self) -> None:
        with self.server("failed") as server:
            self.refused("unload", "m", *server.url, says="model 'm': no")

    def test_it_is_dropped(self) -> None:
        for states in (("ready", "unloading", "unloaded"), ("failed", "failed", "unloaded")):
            with self.subTest(states=states), self.server(*states) as server:
                self.ok("unload", "m", *server.url)


if __name__ == "__main__":
    unittest.main()
