"""The slope test tells a leak from noise."""

from __future__ import annotations

import random
import unittest

from trend import trend


def series(slope: float, seed: int, n: int = 600) -> list[tuple[float, float]]:
    """Samples that wander like a process's memory: steps up and down that stay a while."""
    rng = random.Random(seed)
    at, level, points = 0.0, 0.0, []
    for _ in range(n):
        at += rng.uniform(80, 120)
        level = rng.choice((0, 0, 0, 4096, 40960)) if rng.random() < 0.2 else level
        points.append((at, 20e6 + level + slope * at))
    return points


class Trend(unittest.TestCase):
    def test_a_line_is_itself(self) -> None:
        t = trend([(float(x), 3.0 * x + 1) for x in range(100)])
        self.assertAlmostEqual(t.slope, 3)
        self.assertAlmostEqual(t.low, 3)
        self.assertAlmostEqual(t.high, 3)

    def test_noise_is_no_leak(self) -> None:
        inside = sum(t.low <= 0 <= t.high for t in (trend(series(0, s)) for s in range(100)))
        self.assertGreaterEqual(inside, 90)

    def test_a_leak_of_64_bytes_a_request_is_seen(self) -> None:
        for seed in range(20):
            t = trend(series(64, seed))
            self.assertGreater(t.low, 32)

    def test_single_peaks_do_not_move_it(self) -> None:
        points = [(float(x), 0.0) for x in range(200)]
        points[150] = (150.0, 1e9)
        self.assertEqual(trend(points).slope, 0)


if __name__ == "__main__":
    unittest.main()
