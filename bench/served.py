"""A daemon that is measured, and the flags that every such measurement takes."""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from types import TracebackType

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Ids that a vocabulary of any size has; control tokens come first, so not those.
FIRST_TOKEN, TOKENS = 1000, 20000
START_S_MAX = 600  # compiling a large model with an empty cache, on a busy machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cuvil", default=str(ROOT / "build/release/bin/cuvil"), help="the program to measure"
    )
    parser.add_argument(
        "--model",
        default=str(ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
        help="GGUF file",
    )
    parser.add_argument(
        "--threads", default=0, type=int, help="workers; default: the program's choice"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")


def of_engine(args: argparse.Namespace, cache: str) -> list[str]:
    """What any command gets that runs the model of these flags."""
    threads = ["--threads", str(args.threads)] if args.threads else []
    return ["--model", args.model, "--cache-dir", cache, *threads]


class Daemon:
    """`cuvil serve` on any free port, from entering to leaving the context."""

    def __init__(self, args: argparse.Namespace, cache: str, *flags: str) -> None:
        self._command = [args.cuvil, "serve", *of_engine(args, cache), "--log-level", "error"]
        self._command += ["--listen", "127.0.0.1:0", *flags]

    def __enter__(self) -> "Daemon":
        self._folder = tempfile.TemporaryDirectory()
        ready = pathlib.Path(self._folder.name) / "ready.json"
        self.process = subprocess.Popen(
            [*self._command, "--ready-file", str(ready)], stdout=subprocess.DEVNULL
        )
        try:
            self._wait_for(ready)
        except BaseException:
            self._end()
            raise
        self.host, port = self.address.rsplit(":", 1)
        self.port = int(port)
        return self

    def _wait_for(self, ready: pathlib.Path) -> None:
        name = pathlib.Path(sys.argv[0]).stem
        deadline = time.monotonic() + START_S_MAX
        while not ready.exists():
            if self.process.poll() is not None:
                raise SystemExit(f"{name}: the daemon ended with {self.process.returncode}")
            if time.monotonic() > deadline:
                raise SystemExit(f"{name}: the daemon is not ready after {START_S_MAX} s")
            time.sleep(0.01)
        self.address: str = json.loads(ready.read_text())["http"]

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._folder.cleanup()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def metric(self, name: str) -> float:
        """The sum over its labels."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as reply:
            text = reply.read().decode()
        values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M)
        return sum(float(value) for value in values)

    def status(self) -> dict[str, int]:
        """Memory lines of /proc/PID/status, in bytes."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return {k: int(v) * 1024 for k, v in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.M)}
