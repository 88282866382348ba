"""Runs the built `cuvil` as a user would, with a cache folder and a home of its own."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from typing import Any, NamedTuple

SOURCE = pathlib.Path(
    os.environ.get("CUVIL_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2]
)
BIN = pathlib.Path(os.environ.get("CUVIL_BIN_DIR") or SOURCE / "build/dev/bin")
MODELS = SOURCE / "tests/data/gguf"
LLAMA = MODELS / "llama-f32.gguf"  # 272 tokens, a context of 128, a chat template
CONTEXT = 128
TIMEOUT_S = 240  # a sanitizer build on a busy core; the work itself takes a second


class Done(NamedTuple):
    code: int
    out: bytes
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class CuvilTest(unittest.TestCase):
    """A scratch folder per class; compiled kernels are shared by its tests."""

    scratch: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="cuvil-e2e-"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)

    @classmethod
    def environment(cls, **changes: str) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("CUVIL_")}
        env.pop("XDG_CACHE_HOME", None)
        env["HOME"] = str(cls.scratch)
        env["CUVIL_MODEL"] = str(LLAMA)
        env["CUVIL_CACHE_DIR"] = str(cls.scratch / "cache")
        env.update(changes)
        return env

    def cuvil(
        self,
        *args: str | pathlib.Path | bytes,
        stdin: bytes = b"",
        env: dict[str, str] | None = None,
        stdout: Any = subprocess.PIPE,
        program: str = "cuvil",
    ) -> Done:
        done = subprocess.run(
            [str(BIN / program), *[a if isinstance(a, bytes) else str(a) for a in args]],
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=env if env is not None else self.environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout or b"", done.stderr.decode())

    def ok(self, *args: str | pathlib.Path | bytes, **kwargs: Any) -> Done:
        done = self.cuvil(*args, **kwargs)
        self.assertEqual(done.code, 0, done.err)
        return done

    def refused(
        self, *args: str | pathlib.Path | bytes, code: int = 2, says: str = "", **kwargs: Any
    ) -> Done:
        """Nothing on stdout, one sentence on stderr, and the exit code."""
        done = self.cuvil(*args, **kwargs)
        self.assertEqual(done.code, code, done.err)
        self.assertEqual(done.out, b"")
        lines = done.err.splitlines()
        self.assertEqual(len(lines), 1, done.err)
        self.assertTrue(lines[0].startswith("cuvil: "), lines[0])
        self.assertIn(says, lines[0])
        return done
