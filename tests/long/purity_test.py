"""Ten thousand answers at once, none mixed with another: CUVIL_LONG_ANSWERS, in rounds of 2,000."""

from __future__ import annotations

import unittest

from paths import budget  # isort: skip  # first: it finds the others

import purity
from daemon import Daemon
from e2e import CuvilTest

ROUND = 2000


class Purity(CuvilTest):
    def test_answers_together_equal_answers_alone(self) -> None:
        alone = Daemon(self.scratch, self.environment(), *purity.BOTH, *purity.ALONE)
        self.addCleanup(alone.kill)
        together = Daemon(self.scratch, self.environment(), *purity.BOTH, *purity.TOGETHER)
        self.addCleanup(together.kill)
        left, seed = budget("ANSWERS", 10_000), 100
        while left > 0:
            print(
                f"seed {seed}: {purity.check(alone, together, min(ROUND, left), seed)}", flush=True
            )
            left -= ROUND
            seed += 1
        self.assertEqual(alone.stop(), 0)
        self.assertEqual(together.stop(), 0)


if __name__ == "__main__":
    unittest.main()
