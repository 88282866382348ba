"""The conditions of a measurement: machine, commit and command line, as a page may show them."""

import os
import pathlib
import platform
import shlex
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def machine(doctor: dict[str, Any], bench: dict[str, Any]) -> dict[str, Any]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": doctor.get("cpu") or cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": pages / (1 << 30),
        "features": bench.get("features", doctor.get("features", [])),
        "read_gb_s": bench.get("read_gb_s", 0.0),
        "limits": bench.get("limits", {}),
        "kernel": platform.release(),
        "doctor": doctor,
    }


def commit() -> str:
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if head.returncode != 0:
        return "unknown"
    dirty = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True).returncode != 0
    return head.stdout.strip() + (" with local changes" if dirty else "")


def command_line() -> str:
    """This command, with paths outside the tree cut to their last part: pages are published."""
    words = ["bench/compare.py"]
    for word in sys.argv[1:]:
        path = pathlib.Path(word)
        if path.is_absolute():
            inside = path.is_relative_to(ROOT)
            word = str(path.relative_to(ROOT)) if inside else f".../{path.name}"
        words.append(word)
    return shlex.join(words)
