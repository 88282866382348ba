"""Every bad input gets its exit code and one sentence, and leaves stdout empty."""

from __future__ import annotations

import os
import pathlib
import resource
import struct
import subprocess
import unittest

from e2e import BIN, LLAMA, CuvilTest


class BadModels(CuvilTest):
    def write(self, name: str, data: bytes) -> pathlib.Path:
        path = self.scratch / name
        path.write_bytes(data)
        return path

    def test_missing(self) -> None:
        self.refused("run", "hi", "--model", "/nowhere/m.gguf", says="/nowhere/m.gguf")

    def test_default_model_missing_says_how_to_get_it(self) -> None:
        env = self.environment()
        del env["CUVIL_MODEL"]
        self.refused("run", "hi", env=env, says="./dev model")

    def test_empty(self) -> None:
        self.refused("run", "hi", "--model", self.write("empty.gguf", b""), says="empty")

    def test_directory(self) -> None:
        self.refused("run", "hi", "--model", self.scratch, says="directory")

    def test_text_file(self) -> None:
        path = self.write("t.gguf", b"Dear model,\n" * 99)
        self.refused("run", "hi", "--model", path, says="t.gguf")

    def test_truncated(self) -> None:
        data = LLAMA.read_bytes()
        for size in (3, 24, 2000, len(data) - 1):
            with self.subTest(size=size):
                self.refused("run", "hi", "--model", self.write("cut.gguf", data[:size]))

    def test_unsupported_architecture(self) -> None:
        data = LLAMA.read_bytes()
        name = struct.pack("<Q", 5) + b"llama"
        self.assertIn(name, data)
        path = self.write("arch.gguf", data.replace(name, name[:-5] + b"mamba", 1))
        self.refused("run", "hi", "--model", path, says="mamba")

    def test_unreadable_name_stays_one_line(self) -> None:
        self.refused("run", "hi", "--model", "two\nlines\x1b[31m.gguf")

    def test_a_damaged_name_is_shown_as_text(self) -> None:
        data = LLAMA.read_bytes()
        name = struct.pack("<Q", 6) + b"smollm"
        self.assertIn(name, data)
        bad = data.replace(name, name[:-6] + b"\xffm\xc2\x9b3m", 1)
        self.refused("run", "hi", "--model", self.write("pre.gguf", bad), says='"\\xffm 3m"')

    def test_every_command_refuses_a_bad_model(self) -> None:
        path = self.write("bad.gguf", b"GGUF but not really")
        text = self.write("text.txt", b"some text")
        for args in (
            ("tokenize", "--model", path),
            ("eval", "--text", text, "--model", path),
            ("bench", "--model", path),
            ("inspect", path),
            ("compile", "--model", path, "-o", self.scratch / "out"),
            ("explain", path),
        ):
            with self.subTest(command=args[0]):
                self.refused(*args)
        self.assertFalse((self.scratch / "out").exists())


class BadRequests(CuvilTest):
    def test_flags(self) -> None:
        for args in (
            (),
            ("fly",),
            ("run", "hi", "--fly"),
            ("run", "hi", "there"),
            ("run", "hi", "--max-tokens", "many"),
            ("run", "hi", "--max-tokens", "0"),
            ("run", "hi", "--threads", "0"),
            ("run", "hi", "--threads", "100000"),
            ("run", "hi", "--numerics", "rough"),
            ("run", "hi", "--target", "cpu:abacus"),
            ("run", "hi", "--temperature", "-1"),
            ("run", "hi", "--temperature", "nan"),
            ("run", "hi", "--top-p", "2"),
            ("run", "hi", "--logprobs", "99", "--json"),
            ("run", "hi", "--logit-bias", "1:2"),
            ("run", "hi", "--logit-bias", "99999=1"),
            ("run", "hi", "--stop", ""),
            ("run", "hi", "--prompt-file", "x"),
            ("run", "hi", "--parse-special"),
            ("run", "hi", "--raw", "--system", "s"),
            ("run", "--json"),
            ("run",),
            ("run", "hi", "--seed", "-1"),
            ("run", "hi", "--seed", "18446744073709551616"),
            ("run", "hi", "--top-k", "9223372036854775808"),
            ("run", "hi", "--top-k", "010"),
            ("run", "hi", "--max-tokens", "9223372036854775808"),
            ("bench", "--repeat", "9223372036854775808"),
            ("bench", "--streams", "1", "--seed", "-1"),
            ("cache", "ls", "--cache-dir", LLAMA),
            ("compile", "-o", ""),
            ("eval",),
            ("bench", "--streams", "0"),
            ("bench", "--prompt", "4096"),
            ("compile",),
            ("cache", "explain-key", "aa", "bb"),
        ):
            with self.subTest(args=args):
                self.refused(*args)

    def test_prompt_over_the_context(self) -> None:
        self.refused("run", "--raw", "x" * 129, says="129")
        self.refused("run", "x" * 129, says="128")

    def test_empty_prompt(self) -> None:
        self.refused("run", "--raw", "", says="no tokens")

    def test_invalid_utf8(self) -> None:
        self.refused("run", b"caf\xe9", says="byte 3")
        self.refused("run", "--prompt-file", "-", stdin=b"ab\xff", says="byte 2")
        self.refused("run", "hi", "--system", b"\xff", says="--system")
        self.refused("run", "hi", "--stop", b"\xff", says="--stop")
        self.refused("tokenize", stdin=b"a\xc0\x80", says="1")

    def test_missing_prompt_file(self) -> None:
        self.refused("run", "--prompt-file", self.scratch / "none.txt", says="none.txt")

    def test_a_folder_is_no_prompt_file(self) -> None:
        self.refused("run", "--prompt-file", self.scratch, says="directory")
        self.refused("inspect", self.scratch / ("x" * 300), says="too long")

    def test_a_server_that_cannot_start(self) -> None:
        self.refused("serve", "--listen", "nowhere", says="nowhere")
        self.refused("--listen", "nowhere", program="cuvild", says="nowhere")


class Outputs(CuvilTest):
    def test_full_disk_on_stdout(self) -> None:
        for args in (
            ("run", "hi", "--json", "--max-tokens", "2"),
            ("run", "hi", "--max-tokens", "2"),
            ("inspect", LLAMA),
            ("tokenize",),
            ("doctor",),
            ("--help",),
        ):
            with self.subTest(args=args), open("/dev/full", "wb") as full:
                done = self.cuvil(*args, stdout=full)
                self.assertEqual(done.code, 1, done.err)
                self.assertIn("No space left", done.err)
                self.assertEqual(len(done.err.splitlines()), 1)

    def test_closed_pipe_is_quiet(self) -> None:
        read, write = os.pipe()
        os.close(read)
        done = self.cuvil("inspect", LLAMA, stdout=write)
        os.close(write)
        self.assertEqual(done.code, 1)
        self.assertEqual(done.err, "")

    def test_closed_stdout(self) -> None:
        command = f'exec "{BIN}/cuvil" inspect "{LLAMA}" >&-'
        done = subprocess.run(
            ["sh", "-c", command], stderr=subprocess.PIPE, env=self.environment(), check=False
        )
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_logits_on_a_full_disk(self) -> None:
        tokens = self.scratch / "tokens.json"
        tokens.write_text("[1,2,3,4]")
        self.refused(
            "eval", "--tokens", tokens, "--logits-out", "/dev/full", code=1, says="No space left"
        )
        self.refused("eval", "--tokens", tokens, "--logits-out", "/nowhere/l.npy", code=1)


class FileLimits(CuvilTest):
    """A limit on file sizes (ulimit -f) is a failed write, not the end by a signal."""

    def limited(self, *args: str | pathlib.Path, stdout: int = subprocess.PIPE) -> tuple[int, str]:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        done = subprocess.run(
            [str(BIN / "cuvil"), *[str(a) for a in args]],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=self.environment(),
            preexec_fn=limit,
            check=False,
        )
        return done.returncode, done.stderr.decode()

    def test_outputs(self) -> None:
        tokens = self.scratch / "tokens.json"
        tokens.write_text("[1,2,3,4]")
        out = self.scratch / "out"
        out.mkdir()
        for args in (
            ("eval", "--tokens", tokens, "--no-cache", "--logits-out", out / "l.npy"),
            ("compile", "-o", out / "artifact"),
        ):
            with self.subTest(command=args[0]):
                code, err = self.limited(*args)
                self.assertEqual(code, 1, err)
                self.assertIn("too large", err)
                self.assertEqual(list(out.iterdir()), [])

    def test_standard_output(self) -> None:
        with (self.scratch / "stdout").open("wb") as file:
            code, err = self.limited("inspect", LLAMA, stdout=file.fileno())
        self.assertEqual(code, 1, err)

    def test_cache(self) -> None:
        code, err = self.limited("run", "hi", "--json", "--max-tokens", "1")
        self.assertEqual(code, 0, err)
        self.assertIn("cuvil: warning: ", err)


class UnusableCaches(CuvilTest):
    """An unusable cache is one warning; the answer comes all the same."""

    def warned(self, cache: pathlib.Path) -> None:
        done = self.ok("run", "hi", "--json", "--max-tokens", "2", "--cache-dir", cache)
        self.assertEqual(len(done.json()["tokens"]), 2)
        lines = done.err.splitlines()
        self.assertEqual(len(lines), 1, done.err)
        self.assertTrue(lines[0].startswith("cuvil: warning: "), lines[0])
        self.assertIn(str(cache), lines[0])

    def test_a_file_in_its_place(self) -> None:
        path = self.scratch / "file"
        path.write_text("")
        self.warned(path)

    def test_open_to_others(self) -> None:
        path = self.scratch / "open"
        path.mkdir()
        path.chmod(0o777)
        self.warned(path)

    def test_a_link(self) -> None:
        (self.scratch / "real").mkdir(mode=0o700)
        path = self.scratch / "link"
        path.symlink_to(self.scratch / "real")
        self.warned(path)

    def test_nowhere_to_make_it(self) -> None:
        self.warned(pathlib.Path("/proc/cuvil-cache"))


if __name__ == "__main__":
    unittest.main()
