"""cuvil run: its JSON, its streams and its determinism."""

from __future__ import annotations

import signal
import subprocess
import time
import unittest

from e2e import BIN, MODELS, CuvilTest


class Run(CuvilTest):
    def answer(self, *args: str) -> dict:
        return self.ok("run", *args, "--json").json()

    def test_schema(self) -> None:
        r = self.answer("the cat", "--raw", "--max-tokens", "6", "--logprobs", "3", "--ignore-eos")
        self.assertEqual(
            list(r),
            ["prompt_tokens", "tokens", "text", "finish_reason", "logprobs", "timing", "memory"],
        )
        self.assertEqual(len(r["tokens"]), 6)
        self.assertEqual(r["finish_reason"], "length")
        self.assertTrue(all(isinstance(t, int) for t in r["prompt_tokens"] + r["tokens"]))
        self.assertEqual([p["token"] for p in r["logprobs"]], r["tokens"])
        for p in r["logprobs"]:
            self.assertEqual(list(p), ["token", "logprob", "top"])
            self.assertEqual(len(p["top"]), 3)
            # Greedy: the token is the likeliest, and the list falls.
            self.assertEqual(p["top"][0][0], p["token"])
            self.assertAlmostEqual(p["top"][0][1], p["logprob"], places=5)
            self.assertLessEqual(p["logprob"], 0)
            self.assertEqual(p["top"], sorted(p["top"], key=lambda t: -t[1]))
        self.assertEqual(
            list(r["timing"]), ["load_s", "compile_s", "prefill_s", "decode_s", "first_token_s"]
        )
        self.assertTrue(all(x > 0 for x in r["timing"].values()), r["timing"])
        self.assertEqual(list(r["memory"]), ["weights", "kv", "workspace", "code"])
        self.assertTrue(all(x > 0 for x in r["memory"].values()), r["memory"])
        self.assertGreaterEqual(r["timing"]["first_token_s"], r["timing"]["prefill_s"])

    def test_without_logprobs_there_is_no_key(self) -> None:
        self.assertNotIn("logprobs", self.answer("hi", "--max-tokens", "1"))

    def test_json_is_greedy_by_default(self) -> None:
        a = self.answer("hi", "--max-tokens", "8")
        b = self.answer("hi", "--max-tokens", "8", "--temperature", "0", "--seed", "9")
        self.assertEqual(a["tokens"], b["tokens"])

    def test_seed_decides(self) -> None:
        args = ["hi", "--temperature", "1.5", "--max-tokens", "16", "--ignore-eos", "--seed"]
        a, b, c = (self.answer(*args, seed)["tokens"] for seed in ("7", "7", "8"))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)

    def test_no_seed_is_a_new_one(self) -> None:
        args = ["hi", "--temperature", "2", "--max-tokens", "16", "--ignore-eos"]
        self.assertNotEqual(self.answer(*args)["tokens"], self.answer(*args)["tokens"])

    def test_text_is_the_json_text(self) -> None:
        args = ["hi", "--temperature", "0", "--max-tokens", "12"]
        text = self.answer(*args)["text"]
        printed = self.ok("run", *args)
        self.assertEqual(printed.err, "")
        self.assertEqual(printed.out.decode(), text if text.endswith("\n") else text + "\n")

    def test_stop_text_ends_the_answer_and_is_not_in_it(self) -> None:
        args = ["hi", "--raw", "--max-tokens", "48", "--ignore-eos"]
        args += ["--temperature", "2", "--seed", "1"]
        text = self.answer(*args)["text"]
        stop = next(c for c in text[3:] if c.isascii() and c.isalnum())
        stopped = self.answer(*args, "--stop", stop)
        self.assertEqual(stopped["finish_reason"], "stop")
        self.assertEqual(stopped["text"], text[: text.index(stop)])

    def test_end_token_is_reported(self) -> None:
        end = 2  # <|im_end|>
        r = self.answer("hi", "--logit-bias", f"{end}=100")
        self.assertEqual((r["tokens"], r["text"], r["finish_reason"]), ([end], "", "stop"))

    def test_messages_cannot_spell_control_tokens(self) -> None:
        start, end = 1, 2
        r = self.answer("<|im_end|>", "--max-tokens", "1", "--system", "<|im_start|>")
        # One per message and one for the answer to come, all from the template.
        self.assertEqual(r["prompt_tokens"].count(start), 3)
        self.assertEqual(r["prompt_tokens"].count(end), 2)
        raw = self.answer("<|im_end|>", "--raw", "--max-tokens", "1")
        self.assertNotIn(end, raw["prompt_tokens"])
        special = self.answer("<|im_end|>", "--raw", "--parse-special", "--max-tokens", "1")
        self.assertEqual(special["prompt_tokens"], [end])

    def test_begin_token_where_the_vocabulary_wants_it(self) -> None:
        model = str(MODELS / "gemma3-f32.gguf")
        r = self.answer("hi", "--raw", "--max-tokens", "1", "--model", model)
        self.assertEqual(r["prompt_tokens"].count(2), 1)
        self.assertEqual(r["prompt_tokens"][0], 2)

    def test_prompt_from_a_file_and_from_standard_input(self) -> None:
        path = self.scratch / "prompt.txt"
        path.write_bytes("naïve\n".encode())
        args = ["--raw", "--json", "--max-tokens", "2"]
        a = self.ok("run", "--prompt-file", path, *args).json()
        b = self.ok("run", "--prompt-file", "-", *args, stdin=path.read_bytes()).json()
        c = self.ok("run", "naïve\n", *args).json()
        self.assertEqual(a["prompt_tokens"], c["prompt_tokens"])
        self.assertEqual(b["prompt_tokens"], c["prompt_tokens"])

    def test_a_prompt_may_be_the_name_of_a_command(self) -> None:
        self.assertTrue(self.answer("cache", "--raw", "--max-tokens", "1")["prompt_tokens"])

    def test_a_prompt_as_long_as_the_context_has_no_answer(self) -> None:
        r = self.answer("x" * 128, "--raw")
        self.assertEqual((r["tokens"], r["finish_reason"]), ([], "length"))
        self.assertEqual(r["timing"]["first_token_s"], 0)

    def test_answers_end_with_the_context(self) -> None:
        r = self.answer("x" * 120, "--raw", "--ignore-eos")
        self.assertEqual((len(r["tokens"]), r["finish_reason"]), (8, "length"))

    def test_every_numerics_and_thread_count(self) -> None:
        args = ["hi", "--max-tokens", "8", "--ignore-eos"]
        for numerics in ("exact", "fast", "deterministic"):
            one = self.answer(*args, "--numerics", numerics, "--threads", "1")
            two = self.answer(*args, "--numerics", numerics, "--threads", "2")
            self.assertEqual(one["tokens"], two["tokens"], numerics)

    def test_interruption_while_loading(self) -> None:
        # No cache: compiling takes long enough to be interrupted.
        process = subprocess.Popen(
            [str(BIN / "cuvil"), "run", "hi", "--json", "--no-cache", "--threads", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
        )
        time.sleep(0.15)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, b""))


if __name__ == "__main__":
    unittest.main()
