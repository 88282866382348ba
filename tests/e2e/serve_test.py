"""The daemon as operators see it: probes, drain, admin, memory plan, configuration, kill -9."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import socket
import threading
import time
import unittest
from typing import Any

from daemon import Daemon, DaemonTest
from e2e import LLAMA, CuvilTest

COMPLETION: dict[str, Any] = {"prompt": "Hello", "temperature": 0, "ignore_eos": True}


def open_stream(daemon: Daemon, key: str = "", **fields: Any) -> socket.socket:
    """A streamed completion that has begun: the head and the first event have come."""
    host, port = daemon.address.rsplit(":", 1)
    s = socket.create_connection((host, int(port)), timeout=60)
    body = json.dumps({**COMPLETION, "stream": True, **fields}).encode()
    allowed = f"Authorization: Bearer {key}\r\n" if key else ""
    s.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + f"{allowed}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    seen = b""
    while b"data: " not in seen:
        more = s.recv(4096)
        seen += more
        assert more and b'"error"' not in seen, seen
    return s


def read_all(s: socket.socket) -> bytes:
    text = b""
    while b"[DONE]" not in text and b'"error"' not in text:
        more = s.recv(1 << 16)
        if not more:
            break
        text += more
    s.close()
    return text


class Operation(DaemonTest):
    def test_probes_answer(self) -> None:
        for path in ("/livez", "/readyz", "/startupz", "/health"):
            status, headers, _ = self.daemon.request("GET", path)
            self.assertEqual(status, 200)
            self.assertIn("x-request-id", headers)

    def test_disconnects_free_everything(self) -> None:
        for i in range(30):
            s = open_stream(self.daemon, max_tokens=100)
            if i % 2:
                s.recv(100)
            s.close()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            m = self.daemon.metrics()
            if (
                m['cuvild_requests_running{model="tiny"}'] == 0
                and m['cuvild_kv_blocks_used{model="tiny"}'] == 0
            ):
                break
            time.sleep(0.05)
        else:
            self.fail("pages or requests are left")

    def test_load_unload_sleep_wake(self) -> None:
        def state() -> str:
            return self.daemon.get("/admin/models")["models"][0]["state"]

        def become(action: str, wanted: str) -> None:
            status, _, body = self.daemon.request("POST", f"/admin/models/tiny/{action}")
            self.assertEqual(status, 202, body)
            deadline = time.monotonic() + 60
            while state() != wanted and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertEqual(state(), wanted)

        before = self.daemon.request("POST", "/v1/completions", {**COMPLETION, "max_tokens": 5})
        self.assertEqual(before[0], 200)
        become("sleep", "sleeping")
        weights = 'cuvild_memory_bytes{kind="weights",model="tiny"}'
        self.assertEqual(self.daemon.metrics()[weights], 0)
        self.assertEqual(self.daemon.request("GET", "/readyz")[0], 503)
        self.assertEqual(self.daemon.request("GET", "/livez")[0], 200)
        become("wake", "ready")
        become("unload", "unloaded")
        # A request for it loads it; until then: try again.
        status, headers, _ = self.daemon.request("POST", "/v1/completions", COMPLETION)
        self.assertEqual(status, 503)
        self.assertIn("retry-after", headers)
        deadline = time.monotonic() + 60
        while state() != "ready" and time.monotonic() < deadline:
            time.sleep(0.01)
        after = self.daemon.request("POST", "/v1/completions", {**COMPLETION, "max_tokens": 5})
        self.assertEqual(
            json.loads(after[2])["choices"][0]["text"], json.loads(before[2])["choices"][0]["text"]
        )

    def test_commands_that_talk_to_it(self) -> None:
        url = ("--url", f"http://{self.daemon.address}")
        self.assertEqual(self.ok("ps", "--json", *url).json()[0]["name"], "tiny")
        self.assertIn(b"tiny", self.ok("models", *url).out)
        ask = ("run", "--raw", "Hello", "--temperature", "0", "--max-tokens", "5", *url)
        whole = self.ok(*ask, "--json").json()["choices"][0]["text"]
        self.assertEqual(self.ok(*ask).out.decode().rstrip("\n"), whole.rstrip("\n"))
        self.assertGreater(len(self.ok("run", "Hello", "--max-tokens", "9", *url).out), 0)
        self.ok("unload", "--sleep", "tiny", *url)
        self.assertEqual(self.ok("ps", "--json", *url).json()[0]["state"], "sleeping")
        self.ok("load", "tiny", *url)
        self.ok("unload", "tiny", *url)
        self.assertEqual(self.ok("ps", "--json", *url).json(), [])
        self.ok("load", "tiny", *url)
        self.assertEqual(self.ok(*ask, "--json").json()["choices"][0]["text"], whole)
        self.refused("load", "nobody", *url, says="nobody")
        self.refused("ps", "--url", "http://127.0.0.1:1", code=1, says="127.0.0.1:1")
        self.refused("ps", "--url", "ftp://x", says="ftp://x")
        self.refused("run", "Hello", "--temperature", "9", *url, says="temperature")

    def test_no_text_in_the_log(self) -> None:
        secret = "xyzzy-plugh"
        self.daemon.request("POST", "/v1/completions", {"prompt": secret, "max_tokens": 2})
        self.daemon.request("POST", "/v1/completions", {"prompt": secret, "max_tokens": "two"})
        self.daemon.request("GET", "/v1/models/" + secret)
        time.sleep(0.2)
        self.assertNotIn(secret, self.daemon.log.read_text())

    def test_metrics_add_up(self) -> None:
        for _ in range(3):
            self.daemon.request("POST", "/v1/completions", {**COMPLETION, "max_tokens": 4})
        self.daemon.request("POST", "/v1/completions", {"prompt": 5})
        time.sleep(0.1)
        m = self.daemon.metrics()
        started = sum(v for k, v in m.items() if k.startswith("cuvild_requests_started_total"))
        ended = sum(v for k, v in m.items() if k.startswith("cuvild_requests_total"))
        # The scrape itself has started and not ended.
        self.assertEqual(started, ended + 1)
        self.assertGreater(m['cuvild_generated_tokens_total{model="tiny"}'], 11)


class Lifecycle(CuvilTest):
    def daemon(self, *flags: str, **kwargs: Any) -> Daemon:
        daemon = Daemon(self.scratch, self.environment(), *flags, **kwargs)
        self.addCleanup(daemon.kill)
        return daemon

    def test_sigterm_finishes_what_runs(self) -> None:
        daemon = self.daemon()
        stream = open_stream(daemon, max_tokens=120)
        daemon.process.send_signal(signal.SIGTERM)
        text = read_all(stream)
        self.assertIn(b"[DONE]", text)
        self.assertNotIn(b'"error"', text)
        self.assertEqual(daemon.process.wait(timeout=60), 0)

    def test_drain_has_an_end_and_says_so(self) -> None:
        daemon = self.daemon("--drain-timeout-s", "0.3")
        streams = [open_stream(daemon, max_tokens=126, prompt=[5]) for _ in range(6)]
        daemon.process.send_signal(signal.SIGTERM)
        texts = [read_all(s) for s in streams]
        self.assertEqual(daemon.process.wait(timeout=60), 0)
        for text in texts:  # each ended one way or the other, never silently
            self.assertTrue(b"[DONE]" in text or b'"error"' in text, text[-200:])

    def test_a_half_sent_body_does_not_hold_up_the_end(self) -> None:
        daemon = self.daemon("--drain-timeout-s", "300")
        host, port = daemon.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as half:
            half.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                b'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"pro'
            )
            time.sleep(0.2)
            daemon.process.send_signal(signal.SIGTERM)
            self.assertIn(b"503", half.recv(64))
            self.assertEqual(daemon.process.wait(timeout=60), 0)

    def test_sighup_reads_the_keys_again(self) -> None:
        def key(name: str, tenant: str) -> str:
            return f"sha256:{hashlib.sha256(name.encode()).hexdigest()}:{tenant}\n"

        keys = self.scratch / "keys"
        keys.write_text(key("old", "a") + key("both", "a"))
        daemon = self.daemon("--api-keys-file", str(keys))

        def ask(name: str) -> int:
            headers = {"Authorization": f"Bearer {name}"}
            return daemon.request("GET", "/v1/models", headers=headers)[0]

        def reload(text: str) -> str:
            """What the log says about it."""
            before = len(daemon.lines())
            keys.write_text(text)
            daemon.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                for line in daemon.lines()[before:]:
                    if line["event"] == "config":
                        return line["detail"]
                time.sleep(0.05)
            raise AssertionError(daemon.log.read_text())

        self.assertEqual([ask(n) for n in ("old", "both", "new")], [200, 200, 401])
        stream = open_stream(daemon, key="old", max_tokens=120)
        told = reload(key("new", "a") + key("both", "b"))
        self.assertIn("2 API keys now: 1 added, 1 removed, 1 with other rights", told)
        self.assertEqual([ask(n) for n in ("old", "both", "new")], [401, 200, 200])
        text = read_all(stream)  # was let in before
        self.assertIn(b"[DONE]", text)
        self.assertNotIn(b'"error"', text)
        # What is wrong, or would open the door to all, changes nothing.
        self.assertIn("not reloaded", reload("sha256:nonsense\n"))
        self.assertIn("not reloaded: no API key is left", reload("# none\n"))
        keys.unlink()
        self.assertEqual([ask(n) for n in ("old", "both", "new")], [401, 200, 200])
        self.assertEqual(daemon.stop(), 0)

    def test_a_second_signal_stops(self) -> None:
        daemon = self.daemon("--drain-timeout-s", "300")
        stream = open_stream(daemon, max_tokens=120)
        self.addCleanup(stream.close)
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        daemon.process.send_signal(signal.SIGINT)
        read_all(stream)
        self.assertEqual(daemon.process.wait(timeout=60), 0)

    def test_killed_at_random_it_starts_again(self) -> None:
        rng = random.Random(1)
        for _ in range(10):
            daemon = self.daemon(wait=False)
            time.sleep(rng.random() * 1.5)
            daemon.kill()
        daemon = self.daemon()
        status, _, _ = daemon.request("POST", "/v1/completions", {**COMPLETION, "max_tokens": 3})
        self.assertEqual(status, 200)
        self.assertEqual(daemon.stop(), 0)

    def test_a_read_only_home(self) -> None:
        env = self.environment(HOME="/nonexistent", CUVIL_CACHE_DIR="/proc/nowhere")
        daemon = Daemon(self.scratch, env)
        self.addCleanup(daemon.kill)
        self.assertEqual(daemon.request("GET", "/readyz")[0], 200)

    def test_the_service_manager_is_told_and_asked_to_wait(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            path = self.scratch / "notify"
            manager.bind(str(path))
            manager.settimeout(60)
            env = self.environment(NOTIFY_SOCKET=str(path))
            daemon = Daemon(self.scratch, env, "--drain-timeout-s", "100")
            self.addCleanup(daemon.kill)
            self.assertEqual(manager.recv(4096), b"EXTEND_TIMEOUT_USEC=30000000\n")
            self.assertEqual(manager.recv(4096), b"READY=1\nSTATUS=taking requests\n")
            daemon.process.send_signal(signal.SIGTERM)
            self.assertEqual(manager.recv(4096), b"STOPPING=1\nSTATUS=finishing what runs\n")
            self.assertEqual(manager.recv(4096), b"EXTEND_TIMEOUT_USEC=130000000\n")
            self.assertEqual(daemon.stop(), 0)

    def test_plan_and_config(self) -> None:
        plan = self.ok("serve", "--plan", "--json", "--model", str(LLAMA)).json()
        model = plan["models"][0]
        parts = ("weights", "kv", "workspace", "code", "tokenizer")
        self.assertEqual(model["total"], sum(model[part] for part in parts))
        self.assertTrue(plan["fits"])
        self.refused(
            "serve", "--plan", "--model", str(LLAMA), "--queue-requets", "3", says="--queue-req"
        )

    def test_two_default_pools_fit_one_limit_as_planned(self) -> None:
        two = ("--model", f"a={LLAMA}", "--model", f"b={LLAMA}")
        one = ("--threads", "1")
        plan = self.ok("serve", "--plan", "--json", *one, *two).json()
        whole = plan["models"][0]
        fixed = whole["weights"] + whole["workspace"] + whole["code"]
        limit = ("--memory-limit", str(2 * fixed + whole["kv"]))
        plan = self.ok("serve", "--plan", "--json", *one, *two, *limit).json()
        self.assertTrue(plan["fits"])
        daemon = Daemon(self.scratch, self.environment(), *two[2:], *limit)
        self.addCleanup(daemon.kill)
        for _ in range(600):
            states = [m["state"] for m in daemon.get("/admin/models")["models"]]
            if "loading" not in states:
                break
            time.sleep(0.05)
        self.assertEqual(states, ["ready", "ready"])
        m = daemon.metrics()
        for planned, name in zip(plan["models"], ("tiny", "b"), strict=True):
            self.assertLess(planned["kv"], whole["kv"])
            kv = m[f'cuvild_memory_bytes{{kind="kv",model="{name}"}}']
            self.assertEqual(kv, planned["kv"])

    def test_configuration(self) -> None:
        self.refused(
            *("serve", "--model", str(LLAMA), "--listen", "127.0.0.1:0", "--max-running", "600"),
            says="max_running: takes 1 to 512 sequences, not 600",
        )
        config = self.ok("config", "--json", "--queue-requests", "7").json()
        self.assertEqual(config["queue_requests"]["value"], 7)
        self.assertIn("--queue-requests", config["queue_requests"]["origin"])
        toml = self.scratch / "c.toml"
        toml.write_text("[limits]\nqueue_requests = 9\n")
        config = self.ok("config", "--json", "--config", str(toml)).json()
        self.assertEqual(config["queue_requests"]["value"], 9)
        toml.write_text("[limits]\nqueue_request = 9\n")
        self.refused("config", "--config", str(toml), says="queue_requests")
        example = self.ok("config", "--example")
        toml.write_bytes(example.out)
        self.ok("config", "--config", str(toml))

    def test_without_lazy_load_a_request_loads_nothing(self) -> None:
        daemon = self.daemon("--lazy-load=false")
        daemon.request("POST", "/admin/models/tiny/unload")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if daemon.get("/admin/models")["models"][0]["state"] == "unloaded":
                break
            time.sleep(0.02)
        status, _, body = daemon.request("POST", "/v1/completions", COMPLETION)
        self.assertEqual(status, 503)
        self.assertIn(b"load it first", body)
        self.assertEqual(daemon.get("/admin/models")["models"][0]["state"], "unloaded")

    def test_a_taken_port_and_a_missing_model(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.refused(
                *("serve", "--model", str(LLAMA), "--listen", f"127.0.0.1:{port}"),
                *("--log-level", "off"),
                code=1,
                says=str(port),
            )
        self.refused(
            *("serve", "--model", str(self.scratch / "gone.gguf"), "--listen", "127.0.0.1:0"),
            *("--log-level", "off"),
            says="gone.gguf",
        )

    def test_a_ready_file_takes_no_pipe_s_place(self) -> None:
        pipe = self.scratch / "pipe"
        os.mkfifo(pipe)
        self.refused(
            *("serve", "--model", str(LLAMA), "--listen", "127.0.0.1:0"),
            *("--log-level", "off", "--ready-file", str(pipe)),
            says="no regular file",
        )
        self.assertTrue(pipe.is_fifo())

    def test_many_at_once_are_not_mixed(self) -> None:
        daemon = self.daemon("--kv-cache-tokens", "512")
        prompts = [[5 + i % 200, 7 + i // 200, 11] for i in range(120)]

        def ask(prompt: list[int]) -> str:
            body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
            for _ in range(200):
                status, _, reply = daemon.request("POST", "/v1/completions", body)
                if status == 200:
                    return json.loads(reply)["choices"][0]["text"]
                self.assertEqual(status, 429)
                time.sleep(0.02)
            self.fail("never accepted")

        alone = [ask(p) for p in prompts]
        together: list[str | None] = [None] * len(prompts)

        def run(start: int) -> None:
            for i in range(start, len(prompts), 24):
                together[i] = ask(prompts[i])

        threads = [threading.Thread(target=run, args=(k,)) for k in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(together, alone)


if __name__ == "__main__":
    unittest.main()
