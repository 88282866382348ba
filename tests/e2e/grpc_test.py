"""The gRPC door of a daemon says what its HTTP door says, and ends as gently."""

from __future__ import annotations

import json
import threading
import time
import unittest
from typing import Any

import grpc
from daemon import Daemon, DaemonTest
from e2e import CuvilTest
from grpc_client import Answer, Client, messages

CHAT = [{"role": "user", "content": "Hello there"}]
GRPC = ("--grpc-listen", "127.0.0.1:0")
REASONS = {1: "stop", 2: "length"}


class DoorTest(DaemonTest):
    """A daemon with both doors, and a client of each."""

    FLAGS = GRPC

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.pb = messages(cls.scratch, "cuvil/v1/cuvil.proto")
        cls.client = Client(cls.daemon.addresses["grpc"], cls.pb)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.client.close()
        super().tearDownClass()

    def request(self, **fields: Any) -> Any:
        return self.pb.GenerateRequest(model="tiny", **fields)

    def chat(self, **fields: Any) -> Any:
        return self.request(chat=self.pb.Messages(messages=CHAT), **fields)

    def post(self, path: str, body: Any) -> Any:
        status, _, reply = self.daemon.request("POST", path, {"model": "tiny", **body})
        self.assertEqual(status, 200, reply)
        return json.loads(reply)

    def check_usage(self, mine: Any, theirs: Any) -> None:
        self.assertEqual(mine.prompt_tokens, theirs["prompt_tokens"])
        self.assertEqual(mine.completion_tokens, theirs["completion_tokens"])
        self.assertEqual(mine.trimmed_tokens, theirs["trimmed_tokens"])


class Parity(DoorTest):
    SAMPLINGS: tuple[dict[str, Any], ...] = (
        {"temperature": 0},
        {"temperature": 1.3, "seed": 7},
        {"temperature": 0.9, "seed": 3, "top_p": 0.7, "top_k": 40, "min_p": 0.01},
        {"temperature": 0.8, "seed": 5, "presence_penalty": 0.5, "repetition_penalty": 1.2},
        {"temperature": 1, "seed": 11, "frequency_penalty": 1, "logit_bias": {40: 3.0}},
    )

    def test_chat(self) -> None:
        for sampling in self.SAMPLINGS:
            for n in (1, 3):
                with self.subTest(sampling=sampling, n=n):
                    whole = self.post(
                        "/v1/chat/completions",
                        {
                            "messages": CHAT,
                            "max_completion_tokens": 24,
                            "n": n,
                            "logprobs": True,
                            "top_logprobs": 2,
                            **sampling,
                        },
                    )
                    answer = Answer(
                        self.client.stream(
                            self.chat(
                                max_tokens=24,
                                n=n,
                                logprobs=2,
                                sampling=self.pb.Sampling(**sampling),
                            )
                        )
                    )
                    self.assertEqual(sorted(answer.text), list(range(n)))
                    for choice in whole["choices"]:
                        self.check_choice(answer, choice)
                    self.check_usage(answer.done.usage, whole["usage"])

    def check_choice(self, answer: Answer, choice: Any) -> None:
        index = choice["index"]
        self.assertEqual(answer.text[index], choice["message"]["content"])
        self.assertEqual(REASONS[answer.finish[index].reason], choice["finish_reason"])
        content = choice["logprobs"]["content"]
        self.assertEqual(len(answer.tokens[index]), len(content))
        for mine, theirs in zip(answer.tokens[index], content, strict=True):
            self.assertEqual(list(mine.piece), theirs["bytes"])
            self.assertEqual(mine.logprob, theirs["logprob"])
            self.assertEqual(
                [(list(t.piece), t.logprob) for t in mine.top],
                [(t["bytes"], t["logprob"]) for t in theirs["top_logprobs"]],
            )

    def test_texts_and_tokens(self) -> None:
        for prompt, fields in (
            ("Hello there", {"text": "Hello there"}),
            ([5, 6, 7, 8], {"tokens": self.pb.TokenIds(ids=[5, 6, 7, 8])}),
        ):
            with self.subTest(prompt=prompt):
                whole = self.post(
                    "/v1/completions",
                    {
                        "prompt": prompt,
                        "max_tokens": 8,
                        "temperature": 0,
                        "echo": True,
                        "logprobs": 1,
                    },
                )
                answer = Answer(
                    self.client.stream(
                        self.request(
                            max_tokens=8,
                            prompt_logprobs=1,
                            logprobs=1,
                            sampling=self.pb.Sampling(temperature=0),
                            **fields,
                        )
                    )
                )
                self.assertTrue(whole["choices"][0]["text"].endswith(answer.text[0]))
                self.check_usage(answer.done.usage, whole["usage"])
                logprobs = [t.logprob if t.HasField("logprob") else None for t in answer.prompt]
                logprobs += [t.logprob for t in answer.tokens[0]]
                self.assertEqual(logprobs, whole["choices"][0]["logprobs"]["token_logprobs"])

    def test_stop_strings(self) -> None:
        plain = Answer(
            self.client.stream(self.chat(max_tokens=40, sampling=self.pb.Sampling(temperature=0)))
        )
        text = plain.text[0]
        stop = text[len(text) // 2 : len(text) // 2 + 2]
        for include in (False, True):
            with self.subTest(include=include):
                whole = self.post(
                    "/v1/chat/completions",
                    {
                        "messages": CHAT,
                        "max_completion_tokens": 40,
                        "temperature": 0,
                        "stop": [stop],
                        "include_stop_str_in_output": include,
                    },
                )
                answer = Answer(
                    self.client.stream(
                        self.chat(
                            max_tokens=40,
                            sampling=self.pb.Sampling(temperature=0),
                            stop=[stop],
                            include_stop=include,
                        )
                    )
                )
                self.assertEqual(answer.text[0], whole["choices"][0]["message"]["content"])
                self.assertEqual(REASONS[answer.finish[0].reason], "stop")
                self.assertEqual(answer.finish[0].stop_matched, stop)

    def test_best_of(self) -> None:
        sampling = {"temperature": 1, "seed": 3}
        whole = self.post(
            "/v1/completions",
            {"prompt": "Hello", "max_tokens": 5, "n": 2, "best_of": 4, **sampling},
        )
        answer = Answer(
            self.client.stream(
                self.request(
                    text="Hello",
                    max_tokens=5,
                    n=2,
                    best_of=4,
                    sampling=self.pb.Sampling(**sampling),
                )
            )
        )
        best = list(answer.done.best)[:2]
        self.assertEqual([answer.text[i] for i in best], [c["text"] for c in whole["choices"]])
        self.assertEqual(answer.done.usage.completion_tokens, whole["usage"]["completion_tokens"])

    def test_trimming(self) -> None:
        whole = self.post(
            "/v1/chat/completions",
            {
                "messages": CHAT,
                "max_completion_tokens": 80,
                "temperature": 0,
                "ignore_eos": True,
                "max_kv_len": 40,
                "kv_sinks": 4,
            },
        )
        answer = Answer(
            self.client.stream(
                self.chat(
                    max_tokens=80,
                    ignore_eos=True,
                    sampling=self.pb.Sampling(temperature=0),
                    trim=self.pb.Trim(max_kv_len=40, sinks=4),
                )
            )
        )
        self.assertEqual(answer.text[0], whole["choices"][0]["message"]["content"])
        self.assertGreater(answer.done.usage.trimmed_tokens, 0)
        self.check_usage(answer.done.usage, whole["usage"])

    def test_embeddings(self) -> None:
        whole = self.post("/v1/embeddings", {"input": "Hello", "encoding_format": "float"})
        answer = self.client.ask("Embed", self.pb.EmbedRequest(text="Hello"))
        theirs = whole["data"][0]["embedding"]
        self.assertEqual(len(answer.embedding), len(theirs))
        for x, y in zip(answer.embedding, theirs, strict=True):
            self.assertAlmostEqual(x, y, places=6)  # JSON has nine digits
        self.assertEqual(answer.usage.prompt_tokens, whole["usage"]["prompt_tokens"])

    def test_tokens_and_back(self) -> None:
        for fields, body in (
            ({"text": "Hello <|im_end|>"}, {"prompt": "Hello <|im_end|>"}),
            (
                {"text": "Hello <|im_end|>", "parse_special": True},
                {"prompt": "Hello <|im_end|>", "parse_special": True},
            ),
            (
                {"text": "Hi", "add_special_tokens": False},
                {"prompt": "Hi", "add_special_tokens": False},
            ),
            ({"chat": self.pb.Messages(messages=CHAT)}, {"messages": CHAT}),
        ):
            with self.subTest(body=body):
                whole = self.post("/tokenize", body)
                answer = self.client.ask("Tokenize", self.pb.TokenizeRequest(**fields))
                self.assertEqual(list(answer.tokens), whole["tokens"])
                self.assertEqual(answer.context, whole["max_model_len"])
                back = self.client.ask(
                    "Detokenize", self.pb.DetokenizeRequest(tokens=answer.tokens)
                )
                theirs = self.post("/detokenize", {"tokens": whole["tokens"]})
                self.assertEqual(back.text, theirs["prompt"])

    def test_errors_have_the_same_sentences(self) -> None:
        sampling = self.pb.Sampling
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        for body, fields, code in (
            ({"temperature": 3.5}, {"sampling": sampling(temperature=3.5)}, invalid),
            ({"top_p": -0.5}, {"sampling": sampling(top_p=-0.5)}, invalid),
            ({"top_k": -7}, {"sampling": sampling(top_k=-7)}, invalid),
            (
                {"repetition_penalty": 0},
                {"sampling": sampling(repetition_penalty=0)},
                invalid,
            ),
            ({"logit_bias": {"5": 101}}, {"sampling": sampling(logit_bias={5: 101})}, invalid),
            ({"logit_bias": {"9999": 1}}, {"sampling": sampling(logit_bias={9999: 1})}, invalid),
            ({"n": 200}, {"n": 200}, invalid),
            ({"n": 100}, {"n": 100}, invalid),  # more than run at once
            ({"min_tokens": 4000}, {"min_tokens": 4000}, invalid),
            ({"max_tokens": 0}, {"max_tokens": 0}, invalid),
            ({"max_tokens": 4000}, {"max_tokens": 4000}, invalid),
            ({"min_tokens": 9, "max_tokens": 4}, {"min_tokens": 9, "max_tokens": 4}, invalid),
            ({"stop": ["a"] * 5}, {"stop": ["a"] * 5}, invalid),
            ({"stop_token_ids": [300]}, {"stop_token_ids": [300]}, invalid),
            ({"priority": 500}, {"priority": 500}, invalid),
            ({"max_kv_len": 3}, {"trim": self.pb.Trim(max_kv_len=3)}, invalid),
            (
                {"messages": [{"role": "king", "content": ""}]},
                {"chat": self.pb.Messages(messages=[self.pb.Message(role="king")])},
                invalid,
            ),
            (
                {"messages": [{"role": "user", "content": "word " * 500}]},
                {
                    "chat": self.pb.Messages(
                        messages=[self.pb.Message(role="user", content="word " * 500)]
                    )
                },
                invalid,
            ),
            ({"model": "tinny"}, {"model": "tinny"}, grpc.StatusCode.NOT_FOUND),
        ):
            with self.subTest(body=str(body)[:80]):
                whole = {"model": "tiny", "messages": CHAT, **body}
                status, _, reply = self.daemon.request("POST", "/v1/chat/completions", whole)
                self.assertGreaterEqual(status, 400)
                error = json.loads(reply)["error"]
                request = self.chat()
                for name, value in fields.items():
                    if isinstance(value, list):
                        getattr(request, name)[:] = value
                    elif isinstance(value, int | str):
                        setattr(request, name, value)
                    else:
                        getattr(request, name).CopyFrom(value)
                with self.assertRaises(grpc.RpcError) as caught:
                    Answer(self.client.stream(request))
                self.assertEqual(caught.exception.code(), code)
                self.assertEqual(caught.exception.details(), error["message"])
                trailers = dict(caught.exception.trailing_metadata())
                self.assertEqual(trailers.get("cuvil-error-param"), error["param"])
                self.assertEqual(trailers.get("cuvil-error-code"), error["code"])

    def test_what_is_no_message(self) -> None:
        for name in ("Generate", "Embed"):
            for sent in (b"\xff\xff\xff", b"\x12\x01\xff"):  # no message; a name that is no UTF-8
                call = self.client.channel.unary_stream(f"/cuvil.v1.Cuvil/{name}")
                with self.assertRaises(grpc.RpcError) as caught:
                    list(call(sent, timeout=30))
                self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn(".proto file", caught.exception.details())
        self.assertEqual(self.client.ask("GetLoad", self.pb.GetLoadRequest()).running, 0)
        with self.assertRaises(grpc.RpcError) as caught:
            list(self.client.channel.unary_stream("/cuvil.v1.Cuvil/Nothing")(b"", timeout=30))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_models_and_load(self) -> None:
        info = self.client.ask("GetModelInfo", self.pb.GetModelInfoRequest()).models[0]
        admin = self.daemon.get("/admin/models")["models"][0]
        for field in ("name", "state", "architecture", "context", "vocab_size", "memory_bytes"):
            self.assertEqual(getattr(info, field), admin[field], field)
        load = self.client.ask("GetLoad", self.pb.GetLoadRequest())
        self.assertGreater(load.pages_total, 0)
        self.assertEqual(load.running, 0)


class Operations(DoorTest):
    def health(self, name: str) -> int:
        pb = messages(self.scratch, "grpc/health/v1/health.proto")
        call = self.client.method(
            "grpc.health.v1.Health", "Check", "unary_unary", pb.HealthCheckResponse
        )
        return call(pb.HealthCheckRequest(service=name), timeout=30).status

    def test_health(self) -> None:
        self.assertEqual(self.health(""), 1)
        self.assertEqual(self.health("tiny"), 1)
        with self.assertRaises(grpc.RpcError) as caught:
            self.health("nobody")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_reflection(self) -> None:
        pb = messages(self.scratch, "grpc/reflection/v1alpha/reflection.proto")
        call = self.client.method(
            "grpc.reflection.v1alpha.ServerReflection",
            "ServerReflectionInfo",
            "stream_stream",
            pb.ServerReflectionResponse,
        )
        questions = [
            pb.ServerReflectionRequest(list_services=""),
            pb.ServerReflectionRequest(file_containing_symbol="cuvil.v1.Cuvil.Generate"),
        ]
        services, file = call(iter(questions), timeout=30)
        names = [s.name for s in services.list_services_response.service]
        self.assertIn("cuvil.v1.Cuvil", names)
        self.assertTrue(file.file_descriptor_response.file_descriptor_proto)

    def test_ids_metrics_and_log(self) -> None:
        before = self.daemon.metrics()
        request = self.chat(max_tokens=3)
        request.request_id = "one.of-mine"
        call = self.client.stream(request)
        Answer(call)
        self.assertEqual(dict(call.trailing_metadata())["x-request-id"], "one.of-mine")
        label = 'endpoint="/cuvil.v1.Cuvil/Generate",protocol="grpc"'
        started = f"cuvild_requests_started_total{{{label}}}"
        self.wait_for(lambda: self.daemon.metrics()[f"cuvild_requests_in_flight{{{label}}}"] == 0)
        after = self.daemon.metrics()
        self.assertEqual(after[started], before[started] + 1)
        self.wait_for(lambda: bool(self.logged("one.of-mine")))
        line = self.logged("one.of-mine")[0]
        self.assertEqual(line["endpoint"], "/cuvil.v1.Cuvil/Generate")
        self.assertEqual(line["protocol"], "grpc")
        self.assertEqual(line["generated_tokens"], 3)

    def logged(self, request_id: str) -> list[dict[str, Any]]:
        return [line for line in self.daemon.lines() if line.get("request_id") == request_id]

    def wait_for(self, condition: Any) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not come to that")
            time.sleep(0.02)

    def idle(self) -> bool:
        load = self.client.ask("GetLoad", self.pb.GetLoadRequest())
        return load.running + load.waiting == 0

    def test_cancel_and_abort_free_the_model(self) -> None:
        stream = self.client.stream(self.chat(ignore_eos=True, n=8))
        next(stream)
        stream.cancel()
        self.wait_for(self.idle)
        request = self.chat(ignore_eos=True, n=8)
        request.request_id = "to-abort"
        stream = self.client.stream(request)
        next(stream)
        abort = self.pb.AbortRequest(request_id="to-abort")
        if self.client.ask("Abort", abort).found:  # unless it was done by then
            with self.assertRaises(grpc.RpcError) as caught:
                for _ in stream:
                    pass
            self.assertEqual(caught.exception.code(), grpc.StatusCode.CANCELLED)
        self.wait_for(self.idle)
        self.assertFalse(self.client.ask("Abort", abort).found)


class Keys(DoorTest):
    # SHA-256 of "secret".
    FLAGS = (
        *GRPC,
        "--api-key",
        "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b:team",
    )

    def test_a_key_is_asked_for(self) -> None:
        reply = self.daemon.request("GET", "/v1/models")[2]
        address = self.daemon.addresses["grpc"]
        for key in (None, "wrong"):
            with self.assertRaises(grpc.RpcError) as caught:
                Client(address, self.pb, key).ask("GetLoad", self.pb.GetLoadRequest())
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            self.assertEqual(caught.exception.details(), json.loads(reply)["error"]["message"])
        good = Client(address, self.pb, "secret")
        self.assertEqual(
            Answer(good.stream(self.chat(max_tokens=2))).done.usage.completion_tokens, 2
        )


class Lifecycle(CuvilTest):
    def test_a_drain_lets_streams_finish(self) -> None:
        pb = messages(self.scratch, "cuvil/v1/cuvil.proto")
        daemon = Daemon(self.scratch, self.environment(), *GRPC)
        self.addCleanup(daemon.kill)
        client = Client(daemon.addresses["grpc"], pb)
        request = pb.GenerateRequest(text="Hello", ignore_eos=True, n=4, max_tokens=100)
        stream = client.stream(request)
        first = next(stream)
        self.assertEqual(first.WhichOneof("event"), "token")
        stopper = threading.Thread(target=daemon.stop)
        stopper.start()
        rest = Answer(stream)
        self.assertEqual(rest.done.usage.completion_tokens, 400)
        stopper.join()
        self.assertEqual(daemon.process.returncode, 0)

    def test_grpc_alone_and_none(self) -> None:
        daemon = Daemon(self.scratch, self.environment(), *GRPC, "--listen", "")
        self.addCleanup(daemon.kill)
        self.assertEqual(list(daemon.addresses), ["grpc"])
        pb = messages(self.scratch, "cuvil/v1/cuvil.proto")
        client = Client(daemon.addresses["grpc"], pb)
        models = client.ask("GetModelInfo", pb.GetModelInfoRequest()).models
        self.assertEqual([m.name for m in models], ["tiny"])
        self.assertEqual(daemon.stop(), 0)
        daemon = Daemon(self.scratch, self.environment())
        self.addCleanup(daemon.kill)
        self.assertEqual(list(daemon.addresses), ["http"])
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
