#!/usr/bin/env python3
"""Each rule of tidy.py fires on the smallest thing it is there for, and stays quiet beside it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tidy

FLOORS = "foreach(folder IN ITEMS\n    base\n    compiler/ir\n    compiler/emit/llvm\n    engine)\n"


def findings(rule: str, files: dict[str, str]) -> list[str]:
    """What one rule says about a repository of these files, as `path:line`."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text, encoding="utf-8")
        found = tidy.check(tidy.Repo(Path(folder), sorted(files)), [rule])
        return [f"{f.path}:{f.line}" for f in found if f.path != "tools/tidy.py"]


class Includes(unittest.TestCase):
    def rule(self, path: str, include: str) -> list[str]:
        return findings(
            "include-direction", {"CMakeLists.txt": FLOORS, path: f'// x\n#include "{include}"\n'}
        )

    def test_upward_is_found(self) -> None:
        self.assertEqual(self.rule("base/a.cc", "engine/b.h"), ["base/a.cc:2"])
        self.assertEqual(
            self.rule("compiler/ir/a.h", "compiler/emit/llvm/b.h"), ["compiler/ir/a.h:2"]
        )
        self.assertEqual(
            self.rule("compiler/ir/a_test.cc", "engine/b.h"), ["compiler/ir/a_test.cc:2"]
        )
        self.assertEqual(self.rule("base/a_test.cc", "engine/b.h"), ["base/a_test.cc:2"])

    def test_down_and_own_are_fine(self) -> None:
        self.assertEqual(self.rule("engine/a.cc", "base/b.h"), [])
        self.assertEqual(self.rule("engine/a.cc", "engine/b.h"), [])
        self.assertEqual(self.rule("engine/a.cc", "absl/strings/str_cat.h"), [])

    def test_folder_on_no_floor_is_found(self) -> None:
        self.assertEqual(self.rule("attic/a.cc", "base/b.h"), ["attic/a.cc:1"])

    def test_headers_of_modules(self) -> None:
        for header, home in (
            ('"llvm/IR/Module.h"', "compiler/emit/llvm"),
            ("<llvm-c/Core.h>", "compiler/emit/inspect"),
            ("<grpcpp/grpcpp.h>", "server/grpc"),
            ("<google/protobuf/message.h>", "server/grpc"),
            ('"proto/cuvil/v1/cuvil.pb.h"', "server/grpc"),
        ):
            with self.subTest(header):
                text = f"#include {header}\n"
                self.assertEqual(findings("module-headers", {f"{home}/a.cc": text}), [])
                self.assertEqual(
                    findings("module-headers", {"engine/a.cc": text}), ["engine/a.cc:1"]
                )

    def test_libraries_of_modules(self) -> None:
        for text, found in (("cuvil_server_grpc", True), ("cuvil_server_grpc_module", False)):
            with self.subTest(text):
                lists = {
                    "cli/CMakeLists.txt": f"cuvil_binary(x\n  DEPS {text})\n",
                    "server/grpc/module/CMakeLists.txt": f"cuvil_module(x LIBRARIES {text})\n",
                }
                self.assertEqual(
                    findings("module-libraries", lists), ["cli/CMakeLists.txt:2"] if found else []
                )


class Registration(unittest.TestCase):
    def test_unregistered_tests(self) -> None:
        for name in ("a_test.cc", "a_fuzz.cc", "a_test.py", "a_test.sh"):
            with self.subTest(name):
                lists = {"base/CMakeLists.txt": f"cuvil_test(x SOURCES {name})"}
                self.assertEqual(findings("test-registered", {**lists, f"base/{name}": ""}), [])
                other = {"base/CMakeLists.txt": f"x(b{name})", "text/CMakeLists.txt": f"x({name})"}
                self.assertEqual(
                    findings("test-registered", {**other, f"base/{name}": ""}), [f"base/{name}:1"]
                )

    def test_registered_by_a_loop(self) -> None:
        lists = {
            "base/CMakeLists.txt": "foreach(n IN ITEMS a b)\n  test(${n}_test.py)\nendforeach()"
        }
        files = {**lists, "base/a_test.py": "", "base/c_test.py": ""}
        self.assertEqual(findings("test-registered", files), ["base/c_test.py:1"])

    def test_unlisted_sources(self) -> None:
        files = {
            "base/CMakeLists.txt": "x(SOURCES sub/a.cc)",
            "base/sub/a.cc": "",
            "base/b.cc": "",
            "c.cc": "",
        }
        self.assertEqual(findings("source-listed", files), ["base/b.cc:1", "c.cc:1"])
        self.assertEqual(findings("source-listed", {**files, "x.cmake": "b.cc c.cc"}), [])


class Text(unittest.TestCase):
    def test_machine_paths_and_registries(self) -> None:
        for bad in (
            "/wo" + "rk/x",
            "see /wo" + "rk",
            "'/ro" + "ot/.cache'",
            "/tm" + "p/w/a",
            "https://py" + "pi.org/x",
        ):
            with self.subTest(bad):
                self.assertEqual(findings("machine-paths", {"a.md": f"x\n{bad}\n"}), ["a.md:2"])
        for good in (
            "network/x",
            "../work/x",
            "/workers",
            "${d}/root/",
            "/rootfs",
            "/tmp/wide",
            "the pypi package",
        ):
            with self.subTest(good):
                self.assertEqual(findings("machine-paths", {"a.md": good}), [])

    def test_leftovers(self) -> None:
        for word in ("TO" + "DO", "FIX" + "ME"):
            self.assertEqual(findings("leftovers", {"a.h": f"\n// {word}: later\n"}), ["a.h:2"])
        self.assertEqual(findings("leftovers", {"a.h": "// to do so\n"}), [])

    def test_banned_calls(self) -> None:
        bad = [
            "std::" + "regex r;",
            "int x = sys" + "tem(c);",
            "std::sys" + "tem(c);",
            "f = po" + "pen(a, b);",
        ]
        bad += [
            "x = ra" + "nd();",
            "sra" + "nd(1);",
            "GTEST_" + "SKIP();",
            "TEST(A, DIS" + "ABLED_B) {",
            "#include <re" + "gex>",
        ]
        for line in bad:
            with self.subTest(line):
                self.assertEqual(findings("banned-calls", {"a.cc": f"\n{line}\n"}), ["a.cc:2"])
        good = [
            "// calls ra" + "nd()",
            's = "ra" "nd()";',
            "x.sys" + "tem(1);",
            "file_sys" + "tem(1);",
            "p->ra" + "nd();",
        ]
        good += ["int n = 1'000'000; f();", 'R"(sys' + 'tem("x"))"']
        for line in good:
            with self.subTest(line):
                self.assertEqual(findings("banned-calls", {"a.cc": line}), [])

    def test_file_size(self) -> None:
        limit = tidy.LINES_MAX
        self.assertEqual(findings("file-size", {"a.cc": "x\n" * limit}), [])
        self.assertEqual(
            findings("file-size", {"a.cc": "x\n" * (limit + 1)}), [f"a.cc:{limit + 1}"]
        )
        for path, lines in tidy.LINES_RATCHET.items():
            self.assertGreater(lines, limit)
            self.assertEqual(findings("file-size", {path: "x\n" * lines}), [])
            self.assertEqual(
                findings("file-size", {path: "x\n" * (lines + 1)}), [f"{path}:{lines + 1}"]
            )


class Pages(unittest.TestCase):
    def test_links(self) -> None:
        page = "# A b\n[a](b.md) [b](docs/c.md#deep-down) [c](docs) [d](https://x.y) [e](#a-b)"
        files = {"a.md": page, "b.md": "# B\n", "docs/c.md": "# C\n## Deep down\n[up](../b.md)\n"}
        self.assertEqual(findings("page-links", files), [])
        for bad in ("(none.md)", "(docs/c.md#nowhere)", "(#nowhere)", "(../b.md/x)"):
            with self.subTest(bad):
                self.assertEqual(
                    findings("page-links", {**files, "a.md": f"# A\n[x]{bad}\n"}), ["a.md:2"]
                )
        self.assertEqual(
            findings("page-links", {"a.md": "# A\n```\n[x](none.md)\n```\n`[y](none.md)`\n"}), []
        )

    def test_titles(self) -> None:
        self.assertEqual(findings("page-title", {"a.md": "# A\n```\n# comment\n```\n## B\n"}), [])
        self.assertEqual(findings("page-title", {"a.md": "# A\n\n# B\n"}), ["a.md:3"])
        self.assertEqual(findings("page-title", {"a.md": "text\n"}), ["a.md:1"])


class Python(unittest.TestCase):
    def test_types(self) -> None:
        self.assertEqual(
            findings("python-typed", {"a.py": "def f(a: int, *b: str) -> None: ...\n"}), []
        )
        for bad in (
            "def f(a) -> None: ...",
            "def f(a: int): ...",
            "def f(**k) -> None: ...",
            "def (",
        ):
            with self.subTest(bad):
                self.assertEqual(findings("python-typed", {"a.py": f"\n{bad}\n"}), ["a.py:2"])


class Program(unittest.TestCase):
    def test_exit_code_and_every_rule_is_tested(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.md").write_text("no title\n", encoding="utf-8")
            subprocess.run(["git", "init", "-q", folder], check=True)
            subprocess.run(["git", "-C", folder, "add", "a.md"], check=True)
            command = [sys.executable, tidy.__file__, "--root", folder, "--rule", "page-title"]
            self.assertEqual(
                subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode, 1
            )
            Path(folder, "a.md").write_text("# title\n", encoding="utf-8")
            self.assertEqual(
                subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode, 0
            )
        own = Path(__file__).read_text(encoding="utf-8")
        for name in tidy.RULES:
            self.assertIn(f'"{name}"', own, f"rule {name} has no test here")


if __name__ == "__main__":
    unittest.main()
