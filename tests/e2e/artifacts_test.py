"""Compiled programs: in the cache, in folders of their own, and explained."""

from __future__ import annotations

import json
import pathlib
import unittest

from e2e import LLAMA, MODELS, CuvilTest


class Cache(CuvilTest):
    def entries(self) -> list[dict]:
        return self.ok("cache", "ls", "--json").json()["entries"]

    def run_once(self, *args: str) -> dict:
        return self.ok("run", "hi", "--json", "--max-tokens", "4", *args).json()

    def test_lifecycle(self) -> None:
        first = self.run_once()
        before = self.entries()
        self.assertGreaterEqual(len(before), 1)
        second = self.run_once()
        after = self.entries()
        # Found, not written again: the same entries, used later.
        self.assertEqual({e["key"] for e in before}, {e["key"] for e in after})
        self.assertGreater(max(e["used_ns"] for e in after), max(e["used_ns"] for e in before))
        self.assertEqual(first["tokens"], second["tokens"])
        self.assertLess(second["timing"]["compile_s"], first["timing"]["compile_s"])

        # Another target is another program, and the difference has a name.
        self.run_once("--target", "cpu:avx2")
        self.run_once("--numerics", "exact")
        keys = [e["key"] for e in self.entries()]
        self.assertGreater(len(keys), len(after))

        # A damaged entry is one warning and a compilation, and then it is good again.
        objects = sorted((self.scratch / "cache/v1").glob("*/00000.o"))
        for path in objects:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        third = self.ok("run", "hi", "--json", "--max-tokens", "4")
        self.assertEqual(third.json()["tokens"], first["tokens"])
        self.assertIn("cuvil: warning: ", third.err)
        report = self.ok("cache", "verify", "--json").json()
        self.assertGreaterEqual(len(report["dropped"]), 1)
        self.assertEqual(self.ok("cache", "verify", "--json").json()["dropped"], [])
        self.assertEqual(self.ok("cache", "gc", "--json").json()["entries"], 0)

    def test_no_cache_writes_nothing(self) -> None:
        env = self.environment(CUVIL_CACHE_DIR=str(self.scratch / "unused"))
        self.ok("run", "hi", "--json", "--max-tokens", "1", "--no-cache", env=env)
        self.assertFalse((self.scratch / "unused").exists())

    def test_explain_key(self) -> None:
        env = self.environment(CUVIL_CACHE_DIR=str(self.scratch / "keys"))
        args = ["run", "hi", "--json", "--max-tokens", "1"]
        for target in ("cpu:avx2", "cpu:avx512"):
            if self.cuvil(*args, "--target", target, env=env).code != 0:
                self.assertEqual(target, "cpu:avx512")  # a machine without it
                self.ok(*args, "--target", "cpu:avx2", "--numerics", "exact", env=env)
        keys = {}
        for path in (self.scratch / "keys/v1").glob("*/key.json"):
            components = json.loads(path.read_text())
            if "ir" in components:  # a step, not the sampler's kernels
                keys[path.parent.name] = components
        a, b = keys
        done = self.ok("cache", "explain-key", a[:16], b[:16], env=env)
        self.assertTrue("target" in done.out.decode() or "numerics" in done.out.decode(), done.out)
        self.refused("cache", "explain-key", "", a, env=env, says="several")
        self.refused("cache", "explain-key", "zz", a, env=env, says="zz")


class Folders(CuvilTest):
    def compile(self, path: pathlib.Path, *args: str) -> None:
        self.ok("compile", "--model", LLAMA, "-o", path, *args)

    def test_same_input_same_bytes(self) -> None:
        a, b = self.scratch / "a", self.scratch / "b"
        self.compile(a, "--threads", "1")
        self.compile(b, "--threads", "2", "--llvm-ir")
        names = {p.relative_to(a) for p in a.rglob("*") if p.is_file()}
        self.assertIn(pathlib.Path("program.json"), names)
        self.assertIn(pathlib.Path("kernels/00000.kir"), names)
        self.assertTrue((b / "llvm/00000.ll").exists())
        for name in names - {pathlib.Path("times.json")}:
            self.assertEqual((a / name).read_bytes(), (b / name).read_bytes(), name)
        self.assertEqual(list(self.scratch.glob("*.tmp.*")), [])

    def test_explain_a_folder_and_a_file(self) -> None:
        path = self.scratch / "explained"
        self.compile(path)
        folder = self.ok("explain", path, "--json").json()
        file = self.ok("explain", LLAMA, "--json").json()
        for r in (folder, file):
            self.assertEqual(list(r), ["key", "target", "kernels", "plans", "decisions"])
            for kernel in r["kernels"]:
                self.assertGreater(kernel["code_bytes"], 0)
                self.assertGreater(kernel["compile_ms"], 0)
                self.assertGreater(kernel["launches"], 0)
            symbols = {k["symbol"] for k in r["kernels"]}
            for plan in r["plans"]:
                self.assertTrue(plan["launches"])
                for launch in plan["launches"]:
                    self.assertIn(launch["kernel"], symbols)
            for decision in r["decisions"]:
                self.assertTrue(decision["rule"] and decision["reason"])
            self.assertTrue(any(d["sources"] for d in r["decisions"]))
        for r in (folder, file):
            for kernel in r["kernels"]:
                del kernel["compile_ms"]
        self.assertEqual(folder, file)
        self.assertIn("plan decode", self.ok("explain", path).out.decode())

    def test_replaces_artifacts_only(self) -> None:
        path = self.scratch / "twice"
        self.compile(path)
        self.compile(path, "--target", "cpu:avx2")
        self.assertEqual(json.loads((path / "program.json").read_text())["target"], "cpu:avx2")
        mine = self.scratch / "mine"
        mine.mkdir()
        (mine / "thesis.txt").write_text("irreplaceable")
        self.refused("compile", "-o", mine, says="mine")
        self.assertEqual((mine / "thesis.txt").read_text(), "irreplaceable")
        # Web pages and extensions have a manifest.json as well.
        (mine / "manifest.json").write_text('{"name":"my extension","key":"k"}')
        self.refused("compile", "-o", mine, says="no artifact")
        self.assertEqual((mine / "thesis.txt").read_text(), "irreplaceable")
        self.refused("explain", mine, says="no artifact")
        self.refused("compile", "-o", "/nowhere/out", code=1, says="/nowhere/out")

    def test_damaged_folder(self) -> None:
        path = self.scratch / "damaged"
        self.compile(path)
        program = path / "program.json"
        program.write_bytes(program.read_bytes().replace(b"decode", b"dec0de", 1))
        self.refused("explain", path, code=1, says="damaged")
        self.refused("explain", self.scratch, says="no artifact")

    def test_every_architecture_compiles(self) -> None:
        for name in ("gemma3-f16", "qwen2-f16"):
            with self.subTest(model=name):
                path = self.scratch / name
                self.ok("compile", "--model", MODELS / f"{name}.gguf", "-o", path, "--explain")


if __name__ == "__main__":
    unittest.main()
