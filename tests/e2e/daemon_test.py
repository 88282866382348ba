"""Daemons of tests and measurements are not left behind when they do not become ready."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
import unittest
from unittest import mock

import daemon
from e2e import SOURCE, CuvilTest

sys.path.append(str(SOURCE / "bench"))
import served  # noqa: E402


class NeverReady(CuvilTest):
    """`cuvil` is a program that writes down its id and goes on for ever."""

    def setUp(self) -> None:
        self.program = self.scratch / "cuvil"
        self.program.write_text(f"#!/bin/sh\necho $$ > {self.scratch}/pid\nexec sleep 1000\n")
        self.program.chmod(0o755)

    def check_gone(self) -> None:
        file = pathlib.Path(self.scratch / "pid")
        with self.assertRaises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
        file.unlink()

    def test_of_tests(self) -> None:
        for broken in (mock.patch.object(daemon, "TIMEOUT_S", 0.5), self.interrupted()):
            with mock.patch.object(daemon, "BIN", self.scratch), broken:
                with self.assertRaises((AssertionError, KeyboardInterrupt)):
                    daemon.Daemon(self.scratch, self.environment())
            self.check_gone()

    def test_of_measurements(self) -> None:
        args = argparse.Namespace(cuvil=str(self.program), model="m", threads=0)
        for broken in (mock.patch.object(served, "START_S_MAX", 0.5), self.interrupted()):
            with broken, self.assertRaises((SystemExit, KeyboardInterrupt)):
                with served.Daemon(args, str(self.scratch)):
                    pass
            self.check_gone()

    def interrupted(self) -> mock._patch[mock.Mock]:
        """Ctrl-C while it is waited for, once it has begun."""

        presses = [KeyboardInterrupt()]

        def wait(seconds: float) -> None:
            if presses and (self.scratch / "pid").exists():
                time_sleep(0.05)  # the id is written
                raise presses.pop()
            time_sleep(seconds)

        time_sleep = time.sleep
        return mock.patch.object(time, "sleep", mock.Mock(side_effect=wait))


if __name__ == "__main__":
    unittest.main()
