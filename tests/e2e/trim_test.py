"""Trimming at a long context: what the plan says of memory is what a run of 18,000 tokens takes."""

from __future__ import annotations

import json
import sys
import unittest

from e2e import BIN, LLAMA, SOURCE, CuvilTest

sys.path.insert(0, str(SOURCE / "bench"))
import trim_memory

TOKENS, BUDGET, SINKS, PAGE, ROWS = 18000, 2048, 128, 32, 512


class Trim(CuvilTest):
    def measured(self, cuvil: trim_memory.Cuvil, numerics: str, budget: int, chunk: int) -> int:
        return cuvil.peak(self.scratch / "seeded.gguf", numerics, budget, TOKENS, chunk)

    def test_a_run_of_18000_tokens_meets_the_plan(self) -> None:
        cuvil = trim_memory.Cuvil(str(BIN / "cuvil"), self.scratch, SINKS)
        model = self.scratch / "seeded.gguf"
        trim_memory.write_seeded(model)
        for numerics, bytes_each in (("exact", 4), ("fast", 2)):
            with self.subTest(numerics=numerics):
                plan = cuvil.plan(model, numerics, BUDGET, TOKENS)
                untrimmed = -(-TOKENS // PAGE)
                # The rows of a step see the window before the first of them, from anywhere in a page.
                seen = BUDGET - SINKS - 1 + ROWS
                trimmed = SINKS // PAGE + -(-seen // PAGE) + 1
                page = plan["kv"] // plan["pages"]
                self.assertEqual((plan["pages_untrimmed"], plan["pages"]), (untrimmed, trimmed))
                self.assertEqual(
                    page, PAGE * 2 * 32 * bytes_each
                )  # one head of 32, keys and values
                self.assertEqual(plan["kv_untrimmed"], untrimmed * page)
                self.assertEqual(self.measured(cuvil, numerics, 0, ROWS), plan["kv_untrimmed"])
                # Steps that begin everywhere in a page reach the worst case; steps that begin at
                # page borders hold one page less.
                self.assertEqual(self.measured(cuvil, numerics, BUDGET, ROWS - 1), plan["kv"])
                self.assertEqual(self.measured(cuvil, numerics, BUDGET, ROWS), plan["kv"] - page)

    def test_the_plan_of_a_7b_shape(self) -> None:
        cuvil = trim_memory.Cuvil(str(BIN / "cuvil"), self.scratch, 4)
        model = self.scratch / "hollow.gguf"
        shape = trim_memory.SHAPES[0]
        trim_memory.write_hollow(shape, model)
        self.assertLess(model.stat().st_blocks * 512, 8 << 20)  # nearly all of it is a hole
        self.assertGreater(model.stat().st_size, 3 << 30)
        plan = cuvil.plan(model, "fast", BUDGET, TOKENS)
        # Keys and values in f16: 512 KiB a token.
        self.assertEqual(plan["kv_untrimmed"], 563 * PAGE * (512 << 10))
        self.assertEqual(plan["kv"], 82 * PAGE * (512 << 10))

    def test_what_the_plan_refuses(self) -> None:
        for tokens, says in (("129", "context of model"), ("0", "at least 1"), ("-3", "is -3")):
            self.refused(
                "serve", "--plan", "--model", LLAMA, "--sequence-tokens", tokens, says=says
            )
        toml = self.scratch / "bad.toml"
        toml.write_text(f"[[models]]\npath = {json.dumps(str(LLAMA))}\nmax_kv_len = 20\n")
        self.refused("serve", "--plan", "--config", toml, says="max_kv_len 20")

    def test_the_table_tells_of_one_sequence(self) -> None:
        toml = self.scratch / "trim.toml"
        model = self.scratch / "table.gguf"
        trim_memory.write_seeded(model)
        toml.write_text(f"[[models]]\npath = {json.dumps(str(model))}\nmax_kv_len = 2048\n")
        text = self.ok("serve", "--plan", "--model", model).out.decode()
        self.assertIn("One sequence of 20480 tokens of table holds at most 2.5 MiB", text)
        self.assertNotIn("untrimmed", text)
        text = self.ok("serve", "--plan", "--config", toml).out.decode()
        self.assertIn("holds at most 335872 bytes of its kv; untrimmed 2.5 MiB", text)


if __name__ == "__main__":
    unittest.main()
