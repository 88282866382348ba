"""Whether a measurement was alone on the machine, and child processes with what they cost.

Everything a program under measurement uses is ours; everything else the machine did meanwhile,
steal by other virtual machines included, is noise.
"""

import dataclasses
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence

_TICKS = os.sysconf("SC_CLK_TCK")
_WAITING_FIELDS = (3, 4)  # idle, iowait


def _machine_busy_s() -> float:
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(x) for x in file.readline().split()[1:9]]  # guest is part of user
    return sum(x for i, x in enumerate(fields) if i not in _WAITING_FIELDS) / _TICKS


def _process_s(pid: int) -> float:
    """CPU seconds of a running process and of its children that ended."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(int(x) for x in fields[11:15]) / _TICKS


class Watch:
    """Measures the share of the machine's CPU that others used since it was made.

    `running` are our long-lived children: their time counts as ours.
    """

    def __init__(self, running: Sequence[int] = ()) -> None:
        self._running = tuple(running)
        self._start = time.monotonic()
        self._busy, self._ours = _machine_busy_s(), self._our_s()

    def _our_s(self) -> float:
        return sum(os.times()[:4]) + sum(_process_s(pid) for pid in self._running)

    def others_share(self) -> float:
        elapsed = max(time.monotonic() - self._start, 1e-3)
        others = (_machine_busy_s() - self._busy) - (self._our_s() - self._ours)
        return max(0.0, others / (elapsed * (os.cpu_count() or 1)))


@dataclasses.dataclass(frozen=True)
class Finished:
    stdout: str
    wall_s: float
    peak_bytes: int


class ChildFailed(Exception):
    """A program under measurement failed; the message says which and why."""


def run(command: Sequence[str], stdin: str = "") -> Finished:
    """Runs a program to its end. Peaks below this Python's own size (20 MB) cannot be told."""
    # A file, not a pipe: a program that writes before it has read everything would block us both.
    with tempfile.TemporaryFile("w+") as source:
        source.write(stdin)
        source.seek(0)
        start = time.monotonic()
        process = subprocess.Popen(list(command), stdin=source, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    stdout = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise ChildFailed(f"'{' '.join(command)}' ended with code {process.returncode}")
    return Finished(stdout, wall, usage.ru_maxrss * 1024)
