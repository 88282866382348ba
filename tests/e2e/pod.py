"""Starts a command as a small pod would: a control group of 1.5 CPUs and 1 GiB, a read-only root,
an empty environment. Says what of it this machine enforces and what it does not.

The groups are children of this process's own, so that no limit around it is left; versions 1 and
2, as far as one may create them. Nothing is changed outside them and a mount namespace.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import time

CPUS = 1.5
MEMORY = 1 << 30
PERIOD_US = 100_000
GROUPS = pathlib.Path("/sys/fs/cgroup")

# $1 is the folder that stays writable; the rest is the command.
READ_ONLY = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind / /
mount -o remount,bind,ro /
cd "$1"
shift
exec "$@"
"""


class Pod:
    def __init__(self, writable: pathlib.Path) -> None:
        self.writable = writable
        self.groups: list[pathlib.Path] = []
        self.enforced: list[str] = []
        self.missing: list[str] = []
        self.memory_group: pathlib.Path | None = None
        self.has_quota = self.has_memory = self.has_read_only_root = False
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            self._limit(controllers.split(","), path.lstrip("/"))
        if not self.has_quota:
            self.missing.append("CPU quota (one core by affinity instead)")
        if not self.has_memory:
            self.missing.append("memory limit")
        probe = ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", str(writable)]
        done = subprocess.run(
            [*probe, "sh", "-c", "! touch /cuvil-probe 2>/dev/null && touch probe"],
            capture_output=True,
            check=False,
        )
        self.has_read_only_root = done.returncode == 0
        if self.has_read_only_root:
            self.enforced.append("read-only root")
        else:
            self.missing.append(f"read-only root ({done.stderr.decode().strip() or 'no effect'})")

    def _limit(self, controllers: list[str], path: str) -> None:
        """Makes a child of one of this process's groups and writes what limits it takes."""
        wanted: list[tuple[str, str, str]] = []
        if controllers == [""]:
            base = GROUPS
            wanted = [
                ("cpu.max", f"{int(CPUS * PERIOD_US)} {PERIOD_US}", "quota"),
                ("memory.max", str(MEMORY), "memory"),
            ]
        elif "cpu" in controllers or "memory" in controllers:
            base = GROUPS / ",".join(controllers)
            if "cpu" in controllers:
                wanted.append(("cpu.cfs_period_us", str(PERIOD_US), ""))
                wanted.append(("cpu.cfs_quota_us", str(int(CPUS * PERIOD_US)), "quota"))
            if "memory" in controllers:
                wanted.append(("memory.limit_in_bytes", str(MEMORY), "memory"))
        group = base / path / f"cuvil-pod-{os.getpid()}" if wanted else GROUPS
        if not wanted or not (base / path / "cgroup.procs").exists():
            return
        try:
            group.mkdir()
        except OSError as error:
            self.missing.append(f"a group in {base / path} ({error.strerror})")
            return
        self.groups.append(group)
        for name, value, kind in wanted:
            try:
                (group / name).write_text(value)
            except OSError:
                continue  # said as missing in the end
            if kind == "quota":
                self.has_quota = True
                self.enforced.append(f"CPU quota {CPUS} ({group / name})")
            elif kind == "memory":
                self.has_memory, self.memory_group = True, group
                self.enforced.append(f"memory limit {MEMORY} ({group / name})")

    def wrap(self, command: list[str]) -> list[str]:
        """The command that runs `command` inside."""
        join = "".join(f"echo $$ > '{group}/cgroup.procs'; " for group in self.groups)
        if self.has_read_only_root:
            command = ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", str(self.writable), *command]
        if not self.has_quota and shutil.which("taskset"):
            core = min(os.sched_getaffinity(0))
            command = ["taskset", "-c", str(core), *command]
        return ["sh", "-c", join + 'exec "$@"', "sh", *command]

    def memory_peak(self) -> int:
        """Most the group ever held, file pages included; 0: unknown."""
        if self.memory_group is None:
            return 0
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if (self.memory_group / name).exists():
                return int((self.memory_group / name).read_text())
        return 0

    def killed(self) -> int:
        """How often the kernel killed for memory; 0 also when unknown."""
        if self.memory_group is None:
            return 0
        for name in ("memory.oom_control", "memory.events"):
            if (self.memory_group / name).exists():
                for line in (self.memory_group / name).read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def close(self) -> None:
        for group in self.groups:
            for _ in range(100):  # the kernel needs a moment after the last process
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.02)

    def says(self) -> str:
        return f"enforced: {'; '.join(self.enforced) or 'nothing'}. Not enforced: " + (
            "; ".join(self.missing) or "nothing"
        )
