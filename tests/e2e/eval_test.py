"""cuvil eval: against committed reference logits, and against itself cut up differently."""

from __future__ import annotations

import ast
import json
import math
import pathlib
import signal
import struct
import subprocess
import unittest

from e2e import BIN, MODELS, CuvilTest


def read_npy(path: pathlib.Path) -> tuple[tuple[int, int], list[float]]:
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack("<H", data[8:10])
    assert (10 + length) % 64 == 0
    header = ast.literal_eval(data[10 : 10 + length].decode())
    assert header["descr"] == "<f4" and header["fortran_order"] is False
    values = [x[0] for x in struct.iter_unpack("<f", data[10 + length :])]
    return header["shape"], values


class Eval(CuvilTest):
    def setUp(self) -> None:
        self.golden = json.loads((MODELS / "llama-f32.json").read_text())
        self.tokens = self.write("golden.json", self.golden["tokens"])
        # Longer than a window, no period.
        self.many = self.write("many.json", [(i * i * 7 + 3 * i) % 272 for i in range(100)])

    def write(self, name: str, tokens: list[int]) -> pathlib.Path:
        path = self.scratch / name
        path.write_text(json.dumps(tokens))
        return path

    def scores(self, *args: str | pathlib.Path) -> dict:
        return self.ok("eval", "--tokens", *args, "--json").json()

    def test_logits_are_the_reference_ones(self) -> None:
        r = self.scores(self.tokens, "--numerics", "exact", "--top", "5")
        tokens = self.golden["tokens"]
        self.assertEqual(list(r), ["tokens", "scored", "nll", "ppl", "kv_bytes_peak", "positions"])
        self.assertEqual((r["tokens"], r["scored"]), (len(tokens), len(tokens) - 1))
        nll = 0.0
        for i, position in enumerate(r["positions"]):
            top = self.golden["top"][i][:5]
            self.assertEqual([t[0] for t in position["top"]], [t[0] for t in top])
            for (_, logit), (_, want) in zip(position["top"], top, strict=True):
                self.assertAlmostEqual(logit, want, delta=2e-4)  # sums in f32, in another order
            nll -= position["logprob"]
        self.assertAlmostEqual(r["nll"], nll, places=9)
        self.assertAlmostEqual(r["ppl"], math.exp(nll / r["scored"]), places=6)

    def test_chunks_do_not_change_exact_scores(self) -> None:
        whole = self.scores(self.many, "--numerics", "exact")
        for chunk in ("1", "7", "33"):
            r = self.scores(self.many, "--numerics", "exact", "--chunk", chunk)
            self.assertAlmostEqual(r["nll"], whole["nll"], delta=1e-3 * whole["scored"])

    def test_windows(self) -> None:
        r = self.scores(self.many, "--window", "16")
        # Six windows; tokens 9 to 15 of each; four tokens are dropped.
        self.assertEqual((r["tokens"], r["scored"], len(r["positions"])), (100, 6 * 7, 42))
        # A window is a text of its own.
        tokens = json.loads(self.many.read_text())
        second = self.scores(self.write("second.json", tokens[16:32]))
        for got, want in zip(r["positions"][7:14], second["positions"][8:15], strict=True):
            self.assertAlmostEqual(got["logprob"], want["logprob"], places=3)

    def test_deterministic_companions_change_nothing(self) -> None:
        args = [self.many, "--numerics", "deterministic", "--chunk", "1", "--top", "3"]
        alone = self.scores(*args)
        together = self.scores(*args, "--companions", "5")
        # Six sequences hold more pages than one; nothing else differs.
        self.assertGreater(together.pop("kv_bytes_peak"), alone.pop("kv_bytes_peak"))
        self.assertEqual(together, alone)

    def test_companions_need_rows(self) -> None:
        args = ["--companions", "9", "--chunk", "510"]
        self.refused("eval", "--tokens", self.many, *args, says="512")

    def test_compare_exact(self) -> None:
        args = [self.many, "--compare", "exact"]
        same = self.scores(*args, "--numerics", "exact")
        self.assertEqual((same["kl"], same["argmax_flips"]), ({"mean": 0.0, "max": 0.0}, 0))
        quantized = self.scores(*args, "--model", MODELS / "llama-q4_1.gguf")
        self.assertGreater(quantized["kl"]["mean"], 0)
        self.assertGreaterEqual(quantized["kl"]["max"], quantized["kl"]["mean"])
        self.assertLess(quantized["kl"]["mean"], 0.1)  # 8-bit activations, not another model

    def test_logits_file(self) -> None:
        path = self.scratch / "logits.npy"
        r = self.scores(self.many, "--window", "16", "--top", "1", "--logits-out", path)
        shape, values = read_npy(path)
        self.assertEqual(shape, (42, 272))
        for i, position in enumerate(r["positions"]):
            row = values[i * 272 : (i + 1) * 272]
            token, logit = position["top"][0]
            self.assertEqual(max(row), row[token])
            self.assertAlmostEqual(row[token], logit, places=4)
        self.assertEqual(list(self.scratch.glob("*.tmp.*")), [])

    def test_logits_file_holds_nothing_else_without_stderr(self) -> None:
        tokens, path = self.write("quiet.json", [1, 2, 3, 4]), self.scratch / "quiet.npy"
        command = f'exec "{BIN}/cuvil" eval --tokens "{tokens}" --logits-out "{path}" --progress'
        subprocess.run(
            ["sh", "-c", command + " 2>&-"],
            stdout=subprocess.DEVNULL,
            env=self.environment(),
            check=True,
        )
        self.assertEqual(path.stat().st_size, 128 + 3 * 272 * 4)

    def test_logits_file_replaces_the_one_before(self) -> None:
        path = self.scratch / "twice.npy"
        path.write_text("before")
        self.ok("eval", "--tokens", self.write("t.json", [1, 2, 3]), "--logits-out", path)
        self.assertEqual(path.stat().st_size, 128 + 2 * 272 * 4)
        self.assertEqual(list(self.scratch.glob("twice.npy.*")), [])

    def test_interrupted_logits_leave_nothing(self) -> None:
        tokens = self.write("long.json", [i % 272 for i in range(200_000)])
        folder = self.scratch / "interrupted"
        folder.mkdir()
        command = [BIN / "cuvil", "eval", "--tokens", tokens, "--window", "8", "--progress"]
        with subprocess.Popen(
            [*map(str, command), "--logits-out", str(folder / "l.npy")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
        ) as run:
            assert run.stderr is not None and run.stdout is not None
            while b"window 2 " not in run.stderr.readline():
                self.assertIsNone(run.poll())
            run.send_signal(signal.SIGINT)
            run.stderr.read()
            self.assertEqual(run.stdout.read(), b"")
        self.assertEqual(run.returncode, 130)
        self.assertEqual(list(folder.iterdir()), [])

    def test_a_wrong_number_is_named_as_it_was_given(self) -> None:
        tokens = self.write("few.json", [1, 2, 3, 4])
        self.refused("eval", "--tokens", tokens, "--window", "-5", says="--window is -5")
        self.refused("eval", "--tokens", tokens, "--companions", "1000", says="is 1000")
        self.refused("eval", "--tokens", tokens, "--logits-out", "", says="--logits-out")

    def test_text(self) -> None:
        path = self.scratch / "text.txt"
        path.write_text("the rain in the street")
        count = len(self.ok("tokenize", stdin=path.read_bytes()).json()["tokens"])
        done = self.ok("eval", "--text", path)
        self.assertIn(f"{count} tokens, {count - 1} predictions scored", done.out.decode())

    def test_bad_tokens(self) -> None:
        bad = self.scratch / "bad.json"
        for text in ("{}", "[1,", "[1.5,2]", "[-1,2]", "[1,99999]", "[1]", "[]", '["a"]', ""):
            with self.subTest(text=text):
                bad.write_text(text)
                self.refused("eval", "--tokens", bad)
        self.refused("eval", "--tokens", self.many, "--window", "129", says="128")
        self.refused("eval", "--tokens", self.many, "--window", "0", says="--window")
        self.refused("eval", "--tokens", self.write("long.json", [1] * 200), says="--window")


if __name__ == "__main__":
    unittest.main()
