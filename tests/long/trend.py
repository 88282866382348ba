"""Theil-Sen: the median slope of a series, with a confidence interval after Kendall and Sen.

The interval takes no normal errors, and single peaks do not move it. It does take independent
points; memory of a process stays where it was, so neighbouring points are not. Points are
therefore medians of blocks long enough to forget.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

BLOCKS = 40  # 780 pairs; fewer points make the interval wide, more make it too narrow
Z95 = 1.96


class Trend(NamedTuple):
    slope: float
    low: float  # 95 % interval
    high: float


def blocks(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = max(1, math.ceil(len(points) / BLOCKS))
    return [
        (
            statistics.median(x for x, _ in points[i : i + size]),
            statistics.median(y for _, y in points[i : i + size]),
        )
        for i in range(0, len(points), size)
    ]


def trend(points: Sequence[tuple[float, float]]) -> Trend:
    """Slope of y over x. Needs at least ten points with x increasing."""
    p = blocks(points)
    n = len(p)
    assert n >= 10, f"{n} blocks of {len(points)} points are too few for a slope"
    slopes = sorted(
        (p[j][1] - p[i][1]) / (p[j][0] - p[i][0])
        for i in range(n)
        for j in range(i + 1, n)
        if p[j][0] > p[i][0]
    )
    spread = Z95 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, int((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, int((len(slopes) + spread) / 2))
    return Trend(statistics.median(slopes), slopes[low], slopes[high])
