"""Makes the modules of tests/e2e importable here, and reads the budgets of the long tests."""

from __future__ import annotations

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))


def budget(name: str, default: int) -> int:
    """CUVIL_LONG_<name>: a count, or seconds."""
    return int(os.environ.get(f"CUVIL_LONG_{name}", default))
