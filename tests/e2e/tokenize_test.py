"""cuvil tokenize and cuvil inspect: what is read from a model file without loading it."""

from __future__ import annotations

import json
import unittest

from e2e import LLAMA, MODELS, CuvilTest


class Tokenize(CuvilTest):
    def tokens(self, text: str, *args: str) -> list[int]:
        return self.ok("tokenize", *args, stdin=text.encode()).json()["tokens"]

    def test_text(self) -> None:
        self.assertEqual(self.tokens(""), [])
        self.assertEqual(len(self.tokens("the the")), 3)  # t, he, " the"
        self.assertGreater(len(self.tokens("naïve 🙂\n")), 4)

    def test_special(self) -> None:
        self.assertNotIn(2, self.tokens("<|im_end|>"))
        self.assertEqual(self.tokens("<|im_end|>", "--parse-special"), [2])
        self.assertEqual(self.tokens("a", "--add-bos")[0], 1)

    def test_jsonl(self) -> None:
        texts = ["one", "two\nlines", "", "\u00e9"]
        stdin = "".join(json.dumps(t) + "\n" for t in texts).encode()
        lines = self.ok("tokenize", "--jsonl", stdin=stdin).out.decode().splitlines()
        self.assertEqual([json.loads(x)["tokens"] for x in lines], [self.tokens(t) for t in texts])

    def test_a_bad_line_leaves_nothing(self) -> None:
        self.refused("tokenize", "--jsonl", stdin=b'"fine"\nnot\n', says="line 2")
        self.refused("tokenize", "--jsonl", stdin=b'"fine"\n{"a":1}\n', says="line 2")


class Inspect(CuvilTest):
    def test_json(self) -> None:
        r = self.ok("inspect", LLAMA, "--json").json()
        self.assertEqual(
            list(r),
            ["path", "version", "alignment", "bytes", "metadata", "tensors", "parameters"],
        )
        self.assertEqual(r["bytes"], LLAMA.stat().st_size)
        self.assertEqual(r["metadata"]["general.architecture"], "llama")
        self.assertEqual(r["metadata"]["llama.context_length"], 128)
        tokens = r["metadata"]["tokenizer.ggml.tokens"]
        self.assertEqual(tokens["count"], 272)
        self.assertEqual(tokens["first"][:2], ["<|endoftext|>", "<|im_start|>"])
        tensor = next(t for t in r["tensors"] if t["name"] == "token_embd.weight")
        self.assertEqual((tensor["type"], tensor["shape"]), ("f32", [272, 64]))
        self.assertEqual(tensor["bytes"], 272 * 64 * 4)

    def test_every_model_here(self) -> None:
        for path in sorted(MODELS.glob("*.gguf")):
            with self.subTest(model=path.name):
                text = self.ok("inspect", path).out.decode()
                self.assertIn("general.architecture", text)


if __name__ == "__main__":
    unittest.main()
