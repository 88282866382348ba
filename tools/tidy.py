#!/usr/bin/env python3
"""The repository checks itself: rules that a compiler does not know.

Run by CTest (label tidy) and by `./dev lint`. Prints one line per finding, `file:line: rule:
sentence`, and exits 1 when there is any. `--list` names the rules. tidy_test.py shows each firing.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

LINES_MAX = 500
# Files over LINES_MAX with a size they may not grow past; one that gets below leaves the list.
LINES_RATCHET = {
    "compiler/emit/llvm/emit.cc": 661,
    "compiler/ir/text_parse.cc": 590,
    "compiler/plan/step_plan.cc": 539,
    "tests/conformance/kernel_generator.cc": 533,
    "text/jinja_parser.cc": 580,
}

# Built from halves so that this file does not contain what it looks for.
MACHINE_PATHS = re.compile(r"(?<![\w.~}-])/(?:" + "work|" + r"tmp/w|" + r"root)(?=/|\b(?![\w-]))")
REGISTRY_HOSTS = re.compile(
    r"\b(?:"
    + r"|".join(["py" + r"pi\.org", "python" + r"hosted\.org", "registry" + r"\.npmjs\.org"])
    + r")"
    r"|\b(?:deb|security|ftp)\." + r"debian\.org|\bcrates" + r"\.io\b|\bproxy\." + r"golang\.org",
    re.I,
)
LEFTOVERS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
BANNED_CPP = [
    (
        re.compile(r"\bstd::" + r"(?:basic_)?w?regex\b"),
        "use a hand-written scanner: it backtracks without limit",
    ),
    (
        re.compile(r"#\s*include\s*<regex>"),
        "use a hand-written scanner: it backtracks without limit",
    ),
    (
        re.compile(r"(?<![\w.>])(?:std::|::)?system\s*\("),
        "start programs with posix_spawn, without a shell",
    ),
    (
        re.compile(r"(?<![\w.>])(?:std::|::)?popen\s*\("),
        "start programs with posix_spawn, without a shell",
    ),
    (re.compile(r"(?<![\w.>])(?:std::|::)?s?rand\s*\("), "use a seeded generator passed in"),
    (
        re.compile(r"\bGTEST_" + r"SKIP\b"),
        "a test that does not run proves nothing; make it run or delete it",
    ),
    (
        re.compile(r"\bDISABLED_\w"),
        "a test that does not run proves nothing; make it run or delete it",
    ),
]
GRPC_HOME = "server/grpc"
MODULE_HEADERS = [
    ("LLVM", re.compile(r'\s*#\s*include\s+["<]llvm'), "compiler/emit"),
    (
        "gRPC and protobuf",
        re.compile(r'\s*#\s*include\s+["<](?:grpc|google/protobuf|proto/)'),
        GRPC_HOME,
    ),
]
TEST_NAME = re.compile(r"_(?:test|fuzz)\.(?:cc|py|sh)$")
BINARY_SUFFIXES = {".gguf", ".npy", ".bin", ".png", ".o"}


@dataclass
class Repo:
    """Files as text, by path from the root; binary ones are only names."""

    root: Path
    paths: list[str]
    cache: dict[str, str] = field(default_factory=dict)

    def text(self, path: str) -> str:
        if path not in self.cache:
            self.cache[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self.cache[path]

    def code(self, *suffixes: str) -> list[str]:
        return [p for p in self.paths if p.endswith(suffixes)]

    def texts(self) -> list[str]:
        """Files people write: no data, no binaries."""
        return [
            p
            for p in self.paths
            if PurePosixPath(p).suffix not in BINARY_SUFFIXES
            and not p.startswith(("tests/data/", "tests/fuzz/corpus/"))
            and b"\0" not in (self.root / p).read_bytes()[:4096]
        ]

    def floors(self) -> list[str]:
        """The folders of the root CMakeLists.txt, lowest first."""
        found = re.search(r"foreach\(folder IN ITEMS(.*?)\)", self.text("CMakeLists.txt"), re.S)
        return found.group(1).split() if found else []


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    says: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.says}"


Found = Iterator[tuple[str, int, str]]
RULES: dict[str, Callable[[Repo], Found]] = {}


def rule(function: Callable[[Repo], Found]) -> Callable[[Repo], Found]:
    RULES[function.__name__.replace("_", "-")] = function
    return function


def blank_comments(source: str) -> str:
    """C++ with comments and the insides of strings replaced by spaces; lines stay lines."""
    pattern = re.compile(
        r'R"(?P<d>[^()\s\\]*)\(.*?\)(?P=d)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
        re.S,
    )

    def blank(match: re.Match[str]) -> str:
        # Digit separators look like character literals.
        before = source[match.start() - 1 : match.start()]
        if match.group(0).startswith("'") and before.isalnum():
            return match.group(0)
        return re.sub(r"[^\n]", " ", match.group(0))

    return pattern.sub(blank, source)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def floor_of(path: str, floors: list[str]) -> str | None:
    """The most specific floor that holds the path."""
    holding = [f for f in floors if path.startswith(f + "/")]
    return max(holding, key=len) if holding else None


@rule
def include_direction(repo: Repo) -> Found:
    """Includes go to the own folder or a lower floor of the list in CMakeLists.txt."""
    floors = repo.floors()
    for path in repo.code(".cc", ".h"):
        own = floor_of(path, floors)
        if own is None:
            yield path, 1, "its folder is on no floor of the list in CMakeLists.txt"
            continue
        for number, line in enumerate(repo.text(path).splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            target = floor_of(match.group(1), floors) if match else None
            if target is None or target == own or floors.index(target) < floors.index(own):
                continue
            # A test may prepare its subject with a part beside it (emit/inspect with emit/llvm).
            beside = PurePosixPath(target).parent == PurePosixPath(own).parent
            if TEST_NAME.search(path) and beside and own.count("/") >= 2:
                continue
            yield path, number, f"{own} may not include {target}, which is above it"


@rule
def module_headers(repo: Repo) -> Found:
    """What lives in a module is seen by its folder alone: programs are not linked with it."""
    for path in repo.code(".cc", ".h"):
        for number, line in enumerate(repo.text(path).splitlines(), 1):
            for name, pattern, home in MODULE_HEADERS:
                if pattern.match(line) and not path.startswith(home + "/"):
                    yield path, number, f"{name} headers belong in {home} alone"


@rule
def module_libraries(repo: Repo) -> Found:
    """A program that links the library behind a module would pay for it at every start."""
    for path in repo.paths:
        if path.endswith("CMakeLists.txt") and not path.startswith(GRPC_HOME + "/"):
            for number, line in enumerate(repo.text(path).splitlines(), 1):
                if re.search(r"\bcuvil_server_grpc\b", line):
                    yield path, number, f"load the door by cuvil_server_grpc_module of {GRPC_HOME}"


def nearest_list(repo: Repo, path: str) -> str | None:
    """The CMakeLists.txt of the nearest folder that has one."""
    for parent in PurePosixPath(path).parents:
        home = str(parent / "CMakeLists.txt")
        if home in repo.paths:
            return home
    return None


def named_in(repo: Repo, path: str, lists: list[str]) -> bool:
    """Whether a list has the file's name, or its stem beside a pattern such as ${name}_test.py."""
    name = PurePosixPath(path).name
    suffix = re.search(r"_[a-z]+\.[a-z]+$", name)
    for text in map(repo.text, lists):
        if re.search(rf"(?<![\w.]){re.escape(name)}\b", text):
            return True
        stem = re.escape(name[: suffix.start()]) if suffix else ""
        if (
            suffix
            and "}" + suffix.group(0) in text
            and re.search(rf"(?<![\w.]){stem}(?![\w.])", text)
        ):
            return True
    return False


@rule
def test_registered(repo: Repo) -> Found:
    """Every test and fuzz target is named in its CMakeLists.txt: one that is not, does not run."""
    for path in repo.paths:
        if TEST_NAME.search(path):
            home = nearest_list(repo, path)
            if home is None or not named_in(repo, path, [home]):
                yield (
                    path,
                    1,
                    f"{home or 'no CMakeLists.txt'} does not register it, so it never runs",
                )


@rule
def source_listed(repo: Repo) -> Found:
    """The CMakeLists.txt of the nearest folder names every .cc below it."""
    # The build's shared functions may add a file to any folder's targets (the fuzz replay's main).
    shared = [p for p in repo.paths if p.endswith(".cmake")]
    for path in repo.code(".cc"):
        home = nearest_list(repo, path)
        if not TEST_NAME.search(path) and not named_in(
            repo, path, [home, *shared] if home else shared
        ):
            yield path, 1, f"{home or 'no CMakeLists.txt'} does not name it"


@rule
def machine_paths(repo: Repo) -> Found:
    """Nothing refers to a folder of one machine or to a registry's host."""
    for path in repo.texts():
        for number, line in enumerate(repo.text(path).splitlines(), 1):
            if match := MACHINE_PATHS.search(line):
                yield path, number, f"'{match.group(0)}' exists on one machine only"
            if match := REGISTRY_HOSTS.search(line):
                yield (
                    path,
                    number,
                    f"'{match.group(0)}': leave the registry to the client's settings",
                )


@rule
def banned_calls(repo: Repo) -> Found:
    """Calls that have a better replacement here."""
    for path in repo.code(".cc", ".h"):
        source = blank_comments(repo.text(path))
        for pattern, instead in BANNED_CPP:
            for match in pattern.finditer(source):
                yield path, line_of(source, match.start()), f"'{match.group(0)}': {instead}"


@rule
def leftovers(repo: Repo) -> Found:
    """Unfinished business is finished, or written down where people look for it."""
    for path in repo.texts():
        for number, line in enumerate(repo.text(path).splitlines(), 1):
            if match := LEFTOVERS.search(line):
                yield path, number, f"'{match.group(0)}': do it, or describe the limit"


@rule
def file_size(repo: Repo) -> Found:
    """Files stay readable; those over the limit may not grow."""
    for path in repo.code(".cc", ".h", ".py", ".cmake"):
        lines = len(repo.text(path).splitlines())
        limit = LINES_RATCHET.get(path, LINES_MAX)
        if lines > limit:
            yield path, lines, f"{lines} lines, {limit} at most: split it by idea"
    for path in LINES_RATCHET:
        if path not in repo.paths or len(repo.text(path).splitlines()) <= LINES_MAX:
            yield (
                "tools/tidy.py",
                1,
                f"'{path}' is no longer over {LINES_MAX} lines: take it off LINES_RATCHET",
            )


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a page outside code blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def heading_anchors(text: str) -> set[str]:
    anchors = set()
    for _, line in prose_lines(text):
        if match := re.match(r"#+\s+(.*)", line):
            title = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).strip().lower()
            anchors.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return anchors


@rule
def page_links(repo: Repo) -> Found:
    """Links of pages lead to something: a file or folder here, a heading that exists."""
    folders = {str(parent) for p in repo.paths for parent in PurePosixPath(p).parents}
    for path in repo.code(".md"):
        for number, line in prose_lines(repo.text(path)):
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                there = resolve(PurePosixPath(path).parent, name) if name else path
                if there not in repo.paths and there not in folders:
                    yield path, number, f"link to '{target}', which is not here"
                elif (
                    anchor
                    and there.endswith(".md")
                    and anchor not in heading_anchors(repo.text(there))
                ):
                    yield path, number, f"link to '{target}': the page has no such heading"


def resolve(folder: PurePosixPath, name: str) -> str:
    parts: list[str] = []
    for part in (folder / name).parts:
        if part == ".." and parts:
            parts.pop()
        elif part not in (".", ".."):
            parts.append(part)
    return "/".join(parts) or "."


@rule
def page_title(repo: Repo) -> Found:
    """A page has one title, and it comes first."""
    for path in repo.code(".md"):
        titles = [n for n, line in prose_lines(repo.text(path)) if re.match(r"#\s", line)]
        if len(titles) != 1:
            yield path, titles[1] if titles else 1, f"{len(titles)} top-level headings, one wanted"


@rule
def python_typed(repo: Repo) -> Found:
    """Python functions say the types of what they take and give."""
    for path in repo.code(".py"):
        try:
            tree = ast.parse(repo.text(path), path)
        except SyntaxError as error:
            yield path, error.lineno or 1, f"not Python: {error.msg}"
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            args += [a for a in (node.args.vararg, node.args.kwarg) if a]
            bare = [a.arg for a in args if a.annotation is None and a.arg not in ("self", "cls")]
            if bare:
                yield path, node.lineno, f"{node.name}: no type for {', '.join(bare)}"
            if node.returns is None:
                yield path, node.lineno, f"{node.name}: no return type"


def tracked(root: Path) -> list[str]:
    # The checkout may belong to another user, as in a container.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    return [p for p in listed.split("\0") if p and (root / p).is_file()]


def check(repo: Repo, only: list[str] | None = None) -> list[Finding]:
    findings = [
        Finding(path, line, name, says)
        for name, function in RULES.items()
        if not only or name in only
        for path, line, says in function(repo)
    ]
    return sorted(set(findings), key=lambda f: (f.path, f.line, f.rule, f.says))


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the repository's own rules.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument(
        "--rule", action="append", choices=sorted(RULES), help="only this rule (may be repeated)"
    )
    parser.add_argument("--list", action="store_true", help="name the rules and stop")
    options = parser.parse_args()
    if options.list:
        for name, function in RULES.items():
            print(f"{name:18} {(function.__doc__ or '').strip()}")
        return 0
    repo = Repo(options.root, tracked(options.root))
    findings = check(repo, options.rule)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(repo.paths)} files, {len(findings)} findings")
    return 1 if findings or not repo.paths else 0


if __name__ == "__main__":
    sys.exit(main())
