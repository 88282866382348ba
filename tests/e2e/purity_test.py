"""A thousand answers at once, none mixed with another; ten thousand are tests/long/purity_test.py."""

from __future__ import annotations

import unittest

import purity
from daemon import Daemon
from e2e import CuvilTest


class Purity(CuvilTest):
    def test_answers_together_equal_answers_alone(self) -> None:
        alone = Daemon(self.scratch, self.environment(), *purity.BOTH, *purity.ALONE)
        self.addCleanup(alone.kill)
        together = Daemon(self.scratch, self.environment(), *purity.BOTH, *purity.TOGETHER)
        self.addCleanup(together.kill)
        print(purity.check(alone, together, 1000, seed=1))
        self.assertEqual(alone.stop(), 0)
        self.assertEqual(together.stop(), 0)


if __name__ == "__main__":
    unittest.main()
