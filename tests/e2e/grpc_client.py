"""Clients of the gRPC door for tests: messages from the .proto files, calls made by hand."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
from types import ModuleType
from typing import Any

import grpc
from e2e import SOURCE, TIMEOUT_S

PROTO = SOURCE / "proto"


def messages(scratch: pathlib.Path, path: str) -> ModuleType:
    """The module of one .proto file, as protoc writes it. Loaded by its file's name: the package of
    the health protocol is called like gRPC's own."""
    out = scratch / "proto"
    out.mkdir(exist_ok=True)
    subprocess.run(
        ["protoc", f"--proto_path={PROTO}", f"--python_out={out}", str(PROTO / path)], check=True
    )
    name = pathlib.Path(path).stem + "_pb2"
    spec = importlib.util.spec_from_file_location(
        name, out / path.replace(".proto", "_pb2.py"), submodule_search_locations=None
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Client:
    """One channel. Methods are called by name with a message of `pb`."""

    def __init__(self, address: str, pb: ModuleType, key: str | None = None) -> None:
        self.pb = pb
        self.channel = grpc.insecure_channel(address, options=[("grpc.enable_retries", 0)])
        self.metadata = [("authorization", f"Bearer {key}")] if key is not None else []

    def close(self) -> None:
        self.channel.close()

    def method(self, service: str, name: str, kind: str, answer: Any) -> Any:
        make = getattr(self.channel, kind)
        return make(
            f"/{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )

    def stream(self, request: Any, timeout: float = TIMEOUT_S) -> Any:
        call = self.method("cuvil.v1.Cuvil", "Generate", "unary_stream", self.pb.GenerateResponse)
        return call(request, timeout=timeout, metadata=self.metadata)

    def ask(self, name: str, request: Any) -> Any:
        answer = getattr(self.pb, f"{name}Response")
        call = self.method("cuvil.v1.Cuvil", name, "unary_unary", answer)
        return call(request, timeout=TIMEOUT_S, metadata=self.metadata)


class Answer:
    """What a Generate stream said, gathered by choice."""

    def __init__(self, stream: Any) -> None:
        self.text: dict[int, str] = {}
        self.tokens: dict[int, list[Any]] = {}
        self.finish: dict[int, Any] = {}
        self.prompt: list[Any] = []
        self.done: Any = None
        for message in stream:
            event = message.WhichOneof("event")
            assert self.done is None, "something came after Done"
            if event == "token":
                token = message.token
                assert token.choice not in self.finish, "a token came after its Finish"
                self.text[token.choice] = self.text.get(token.choice, "") + token.text
                self.tokens.setdefault(token.choice, []).append(token)
            elif event == "finish":
                finish = message.finish
                self.text[finish.choice] = self.text.get(finish.choice, "") + finish.text
                self.finish[finish.choice] = finish
            elif event == "prompt_logprobs":
                self.prompt = list(message.prompt_logprobs.tokens)
            else:
                self.done = message.done
