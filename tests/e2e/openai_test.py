"""The `openai` package against the daemon: every endpoint, streamed and not, errors, retries."""

from __future__ import annotations

import base64
import json
import struct
import threading
import unittest
from typing import Any

import openai
from daemon import Daemon, DaemonTest

CHAT: list[Any] = [{"role": "user", "content": "Hello there"}]


def client(daemon: Daemon, key: str = "none", retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=daemon.url, api_key=key, max_retries=retries, timeout=60)


class Chat(DaemonTest):
    def setUp(self) -> None:
        self.client = client(self.daemon)

    def collect(self, **fields: Any) -> tuple[dict[int, str], dict[int, str], Any]:
        """Text and finish reason by choice, and the usage of the last chunk."""
        text: dict[int, str] = {}
        reasons: dict[int, str] = {}
        usage = None
        for chunk in self.client.chat.completions.create(
            messages=CHAT, stream=True, stream_options={"include_usage": True}, **fields
        ):
            if chunk.usage is not None:
                self.assertEqual(chunk.choices, [])
                usage = chunk.usage
            for choice in chunk.choices:
                text[choice.index] = text.get(choice.index, "") + (choice.delta.content or "")
                if choice.finish_reason is not None:
                    self.assertNotIn(choice.index, reasons)
                    reasons[choice.index] = choice.finish_reason
        return text, reasons, usage

    def test_streamed_equals_not_streamed(self) -> None:
        for extra in (
            {"temperature": 0},
            {"temperature": 1.3, "seed": 7},
            {"temperature": 0.9, "seed": 3, "n": 3},
            {"temperature": 0.8, "seed": 5, "top_p": 0.8, "presence_penalty": 0.5},
            {"temperature": 1, "seed": 11, "frequency_penalty": 1, "logit_bias": {"40": 3}},
        ):
            with self.subTest(extra=extra):
                fields = {"model": "tiny", "max_completion_tokens": 24, **extra}
                whole = self.client.chat.completions.create(messages=CHAT, **fields)
                text, reasons, usage = self.collect(**fields)
                for choice in whole.choices:
                    self.assertEqual(choice.message.role, "assistant")
                    self.assertEqual(text[choice.index], choice.message.content)
                    self.assertEqual(reasons[choice.index], choice.finish_reason)
                self.assertEqual(len(text), extra.get("n", 1))
                self.assertEqual(usage.prompt_tokens, whole.usage.prompt_tokens)
                self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
                self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def test_stream_helper_accepts_it(self) -> None:
        with self.client.chat.completions.stream(
            model="tiny", messages=CHAT, max_completion_tokens=8, temperature=0
        ) as stream:
            for _ in stream:
                pass
            final = stream.current_completion_snapshot
        whole = self.client.chat.completions.create(
            model="tiny", messages=CHAT, max_completion_tokens=8, temperature=0
        )
        self.assertEqual(final.choices[0].message.content, whole.choices[0].message.content)

    def test_stop_strings(self) -> None:
        fields: dict[str, Any] = {"model": "tiny", "max_completion_tokens": 40, "temperature": 0}
        plain = self.client.chat.completions.create(messages=CHAT, **fields)
        text = plain.choices[0].message.content
        stop = text[len(text) // 2 : len(text) // 2 + 2]
        stopped = self.client.chat.completions.create(messages=CHAT, stop=[stop], **fields)
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        self.assertEqual(stopped.choices[0].message.content, text[: text.index(stop)])
        streamed, reasons, _ = self.collect(stop=stop, **fields)
        self.assertEqual(streamed[0], stopped.choices[0].message.content)
        self.assertEqual(reasons[0], "stop")

    def test_logprobs(self) -> None:
        fields: dict[str, Any] = {
            "model": "tiny",
            "max_completion_tokens": 6,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 4,
        }
        whole = self.client.chat.completions.create(messages=CHAT, **fields)
        content = whole.choices[0].logprobs.content
        self.assertEqual(len(content), whole.usage.completion_tokens)
        for entry in content:
            self.assertEqual(len(entry.top_logprobs), 4)
            self.assertLessEqual(entry.logprob, 0)
            # Greedy: the chosen one is the likeliest.
            self.assertAlmostEqual(entry.top_logprobs[0].logprob, entry.logprob, places=4)
        streamed = []
        for chunk in self.client.chat.completions.create(messages=CHAT, stream=True, **fields):
            for choice in chunk.choices:
                if choice.logprobs is not None:
                    streamed += choice.logprobs.content
        self.assertEqual([e.token for e in streamed], [e.token for e in content])

    def test_unseeded_answers_differ(self) -> None:
        texts = {
            self.client.chat.completions.create(
                model="tiny", messages=CHAT, max_completion_tokens=20, temperature=1.5
            )
            .choices[0]
            .message.content
            for _ in range(4)
        }
        self.assertGreater(len(texts), 1)

    def test_content_parts_and_developer(self) -> None:
        reply = self.client.chat.completions.create(
            model="tiny",
            messages=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            ],
            max_completion_tokens=4,
        )
        self.assertEqual(reply.object, "chat.completion")

    def test_bad_values_name_their_field(self) -> None:
        for field, value in (
            ("temperature", 3.5),
            ("top_p", 1.5),
            ("n", 0),
            ("n", 1 << 31),
            ("max_completion_tokens", 0),
            ("presence_penalty", -3),
            ("logit_bias", {"99999": 1}),
            ("stop", ["a", "b", "c", "d", "e"]),
            ("top_logprobs", 21),
        ):
            with self.subTest(field=field, value=value):
                fields: dict[str, Any] = {"model": "tiny", field: value}
                if field == "top_logprobs":
                    fields["logprobs"] = True
                with self.assertRaises(openai.BadRequestError) as caught:
                    self.client.chat.completions.create(messages=CHAT, **fields)
                self.assertTrue((caught.exception.param or "").startswith(field), caught.exception)
                self.assertIsNotNone(caught.exception.request_id)

    def test_too_long_a_prompt(self) -> None:
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "word " * 500}]
            )
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_unknown_model(self) -> None:
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="nobody", messages=CHAT)
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nobody")

    def test_models(self) -> None:
        self.assertEqual([m.id for m in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").object, "model")

    def test_trimming_is_reported(self) -> None:
        reply = self.client.chat.completions.create(
            model="tiny",
            messages=CHAT,
            max_completion_tokens=80,
            temperature=0,
            extra_body={"max_kv_len": 40, "kv_sinks": 4, "ignore_eos": True},
        )
        self.assertGreater(reply.usage.model_dump()["trimmed_tokens"], 0)


class Completions(DaemonTest):
    def setUp(self) -> None:
        self.client = client(self.daemon)

    def test_prompts_of_every_kind(self) -> None:
        tokens = [5, 6, 7, 8]
        for prompt, count in (
            ("Hello", 1),
            (["Hello", "there"], 2),
            (tokens, 1),
            ([tokens, [9]], 2),
        ):
            with self.subTest(prompt=prompt):
                fields: dict[str, Any] = {"model": "tiny", "prompt": prompt, "temperature": 0}
                whole = self.client.completions.create(max_tokens=6, **fields)
                self.assertEqual([c.index for c in whole.choices], list(range(count)))
                text: dict[int, str] = {}
                for chunk in self.client.completions.create(max_tokens=6, stream=True, **fields):
                    for c in chunk.choices:
                        text[c.index] = text.get(c.index, "") + c.text
                self.assertEqual([text[i] for i in range(count)], [c.text for c in whole.choices])

    def test_echo_and_logprobs(self) -> None:
        whole = self.client.completions.create(
            model="tiny", prompt="Hello there", max_tokens=3, echo=True, logprobs=2, temperature=0
        )
        choice = whole.choices[0]
        self.assertTrue(choice.text.startswith("Hello there"))
        logprobs = choice.logprobs
        self.assertEqual(len(logprobs.tokens), whole.usage.total_tokens)
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertTrue(all(x <= 0 for x in logprobs.token_logprobs[1:]))
        self.assertEqual(logprobs.text_offset[0], 0)

    def test_best_of(self) -> None:
        whole = self.client.completions.create(
            model="tiny", prompt="Hello", max_tokens=5, n=2, best_of=4, temperature=1, seed=3
        )
        self.assertEqual([c.index for c in whole.choices], [0, 1])
        self.assertEqual(whole.usage.completion_tokens, 20)

    def test_sixteen_tokens_by_default(self) -> None:
        whole = self.client.completions.create(
            model="tiny", prompt="Hello", extra_body={"ignore_eos": True}
        )
        self.assertEqual(whole.usage.completion_tokens, 16)
        self.assertEqual(whole.choices[0].finish_reason, "length")

    def test_a_prompt_may_fill_the_context(self) -> None:
        context = self.daemon.get("/v1/models")["data"][0]["max_model_len"]
        body = {"prompt": [5 + i % 200 for i in range(context)], "logprobs": 0}

        def ask(**more: Any) -> tuple[int, Any]:
            status, _, reply = self.daemon.request("POST", "/v1/completions", {**body, **more})
            return status, json.loads(reply)

        status, echoed = ask(echo=True, max_tokens=0)
        self.assertEqual(status, 200, echoed)
        self.assertEqual(len(echoed["choices"][0]["logprobs"]["tokens"]), context)
        self.assertEqual(echoed["choices"][0]["finish_reason"], "length")
        self.assertEqual(echoed["usage"]["completion_tokens"], 0)
        status, refused = ask()
        self.assertEqual((status, refused["error"]["param"]), (400, "prompt"))
        body["prompt"].pop()
        status, one = ask(ignore_eos=True)  # the default of 16 does not fit
        self.assertEqual(status, 200, one)
        self.assertEqual(one["usage"]["completion_tokens"], 1)

    def test_tokens_outside_the_vocabulary(self) -> None:
        for token in (-1, 272, 1 << 31, (1 << 32) + 1):
            with self.assertRaises(openai.BadRequestError):
                self.client.completions.create(model="tiny", prompt=[1, token])


class Embeddings(DaemonTest):
    def test_float_and_base64(self) -> None:
        c = client(self.daemon)
        floats = c.embeddings.create(
            model="tiny", input=["Hello", "there"], encoding_format="float"
        )
        self.assertEqual([d.index for d in floats.data], [0, 1])
        # The client asks for base64 by itself and decodes it.
        default = c.embeddings.create(model="tiny", input=["Hello", "there"])
        for a, b in zip(floats.data, default.data, strict=True):
            self.assertEqual(len(a.embedding), len(b.embedding))
            for x, y in zip(a.embedding, b.embedding, strict=True):
                self.assertAlmostEqual(x, y, places=6)
        raw = self.daemon.request(
            "POST",
            "/v1/embeddings",
            {"model": "tiny", "input": "Hello", "encoding_format": "base64"},
        )
        self.assertEqual(raw[0], 200)
        text = __import__("json").loads(raw[2])["data"][0]["embedding"]
        values = struct.unpack(f"<{len(floats.data[0].embedding)}f", base64.b64decode(text))
        self.assertAlmostEqual(values[0], floats.data[0].embedding[0], places=6)
        self.assertAlmostEqual(sum(v * v for v in values), 1, places=4)  # unit length


class Keys(DaemonTest):
    # SHA-256 of "secret" and of "admin".
    FLAGS = (
        "--api-key",
        "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b:team",
        "--api-key",
        "sha256:8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918:ops:1:admin",
    )

    def test_every_route_but_the_probes_asks(self) -> None:
        with self.assertRaises(openai.AuthenticationError):
            client(self.daemon, "wrong").models.list()
        self.assertEqual(len(client(self.daemon, "secret").models.list().data), 1)
        for path in ("/livez", "/readyz", "/startupz", "/health"):
            self.assertEqual(self.daemon.request("GET", path)[0], 200, path)
        for path in ("/v1/models", "/metrics", "/openapi.json", "/version", "/admin/models", "/x"):
            self.assertEqual(self.daemon.request("GET", path)[0], 401, path)
        for path in ("//v1/models", "/V1/models", "/v1/./models", "/v1/models/", "/%76%31/models"):
            self.assertIn(self.daemon.request("GET", path)[0], (401, 404), path)

    def test_only_admins_manage_models(self) -> None:
        def ask(key: str) -> int:
            return self.daemon.request(
                "POST", "/admin/models/tiny/load", headers={"Authorization": f"Bearer {key}"}
            )[0]

        self.assertEqual(ask("secret"), 403)
        self.assertEqual(ask("admin"), 202)


class Queue(DaemonTest):
    FLAGS = ("--queue-requests", "1", "--max-running", "1")

    def test_a_full_queue_is_429_and_a_client_that_retries_gets_through(self) -> None:
        full: list[openai.RateLimitError] = []

        def ask(retries: int) -> None:
            try:
                client(self.daemon, retries=retries).completions.create(
                    model="tiny", prompt="a", max_tokens=100, extra_body={"ignore_eos": True}
                )
            except openai.RateLimitError as error:
                full.append(error)

        # Clients that start slowly may never meet: again, until they have.
        for _ in range(50):
            threads = [threading.Thread(target=ask, args=(0,)) for _ in range(16)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            if full:
                break
        self.assertGreater(len(full), 0)
        self.assertLess(len(full), 16)
        self.assertGreaterEqual(int(full[0].response.headers["retry-after"]), 1)
        full.clear()
        ask(2)
        self.assertEqual(full, [])


if __name__ == "__main__":
    unittest.main()
