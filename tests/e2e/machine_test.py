"""cuvil bench, doctor and the perf map: what depends on the machine, by shape only."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from e2e import BIN, LLAMA, TIMEOUT_S, CuvilTest

BENCH = ["bench", "--prompt", "32", "--generate", "8", "--context", "16", "--repeat", "1"]


class Machine(CuvilTest):
    def test_bench_json(self) -> None:
        r = self.ok(*BENCH, "--streams", "1,3", "--greedy-check", "--json").json()
        self.assertEqual(
            list(r),
            [
                "prefill_tok_s",
                "decode_tok_s",
                "streams",
                "first_token_s",
                "read_gb_s",
                "features",
                "limits",
                "greedy_check",
            ],
        )
        self.assertEqual(list(r["streams"]), ["1", "3"])
        numbers = [r["prefill_tok_s"], r["decode_tok_s"], r["first_token_s"], r["read_gb_s"]]
        self.assertTrue(all(x > 0 for x in numbers + list(r["streams"].values())), r)
        self.assertIn("avx2", r["features"])
        # The same tokens as an answer to the same prompt.
        check = r["greedy_check"]
        answer = self.ok(
            "run", "--raw", check["prompt"], "--json", "--ignore-eos", "--max-tokens", "32"
        ).json()
        self.assertEqual(answer["prompt_tokens"], check["prompt_tokens"])
        self.assertEqual(answer["tokens"], check["tokens"])

    def test_bench_text(self) -> None:
        self.assertIn("decode", self.ok(*BENCH, "--streams", "2").out.decode())

    def test_doctor(self) -> None:
        r = self.ok("doctor", "--json").json()
        self.assertEqual(r["model"], {"path": str(LLAMA), "present": True})
        self.assertTrue(r["cache"]["usable"], r["cache"])
        self.assertTrue(r["target"].startswith("cpu:"))
        self.assertGreaterEqual(r["limits"]["cores"], 1)
        env = self.environment()
        del env["CUVIL_MODEL"]
        text = self.ok("doctor", env=env).out.decode()
        self.assertIn("./dev model", text)

    def test_moved_to_another_folder(self) -> None:
        place = self.scratch / "moved"
        (place / "bin").mkdir(parents=True)
        (place / "lib").mkdir()
        program = str(shutil.copy(BIN / "cuvil", place / "bin"))
        module = shutil.copy(BIN.parent / "lib/libcuvil-llvm.so", place / "lib")
        run = ("run", "hi", "--json", "--max-tokens", "1")
        self.ok(*run, program=program)
        os.remove(module)
        # Nothing is to be compiled here, so nothing is missed.
        r = self.ok("doctor", "--json", program=program).json()
        self.assertEqual(r["emitter"], {"path": str(module), "present": False})
        self.refused(*run, says="lib/libcuvil-llvm.so' is missing", program=program)

    def test_a_daemon_without_its_grpc_door(self) -> None:
        place = self.scratch / "doorless"
        (place / "bin").mkdir(parents=True)
        program = str(shutil.copy(BIN / "cuvil", place / "bin"))
        shutil.copytree(BIN.parent / "lib", place / "lib")
        door = place / "lib/libcuvil-grpc.so"
        serve = ("serve", "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0")
        os.remove(door)
        self.refused(*serve, says="lib/libcuvil-grpc.so' is missing", program=program)
        shutil.copy(place / "lib/libcuvil-llvm.so", door)
        self.refused(*serve, says="is of another build than this program", program=program)
        door.write_text("no module")
        self.refused(*serve, says="the gRPC door cannot be loaded", program=program)

    def test_what_few_commands_need_is_not_linked(self) -> None:
        """Each of these costs every start; they belong in a module that is loaded on demand."""
        linked = subprocess.run(["ldd", str(BIN / "cuvil")], stdout=subprocess.PIPE, check=True)
        for library in b"LLVM grpc protobuf libssl libcrypto cares re2 upb".split():
            self.assertNotIn(library, linked.stdout)

    def test_perf_map(self) -> None:
        process = subprocess.Popen(
            [str(BIN / "cuvil"), "run", "hi", "--json", "--max-tokens", "1"],
            stdout=subprocess.PIPE,
            env=self.environment(CUVIL_PERF_MAP="1"),
        )
        path = pathlib.Path(f"/tmp/perf-{process.pid}.map")
        self.addCleanup(path.unlink, missing_ok=True)
        process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 0)
        lines = path.read_text().splitlines()
        self.assertTrue(lines)
        for line in lines:
            self.assertRegex(line, re.compile(r"^[0-9a-f]+ [0-9a-f]+ cuvil:\S+$"))

    def test_help_has_examples(self) -> None:
        self.assertIn("Examples:", self.ok("--help").out.decode())
        for command in "run tokenize eval bench inspect compile explain cache doctor".split():
            self.assertIn("Examples:", self.ok(command, "--help").out.decode())
        self.assertEqual(self.ok("--version").out, b"cuvil 0.1.0\n")


if __name__ == "__main__":
    unittest.main()
