"""The two sides of the comparison: `cuvil` as a command, llama.cpp through bench/llama_side.py."""

import dataclasses
import json
import pathlib
import statistics
import subprocess
from typing import Any

from quiet import ChildFailed, Finished, run

_HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Workload:
    """What both sides do. The sizes of `cuvil bench`; its streams have prompts of 60 tokens."""

    prompt: int = 512
    generate: int = 128
    context: int = 64
    streams: tuple[int, ...] = (8, 32)
    stream_prompt: int = 60
    first_text: str = "The quick brown fox jumps over the lazy dog."  # 10 tokens by default

    def rates(self) -> list[str]:
        return ["decode", "prefill", *(f"streams {n}" for n in self.streams)]


class Cuvil:
    """`cuvil`, a fresh process for every answer, with a cache folder of its own."""

    def __init__(self, binary: str, model: str, cache_dir: str, extra: list[str]) -> None:
        self.binary, self.model, self.cache_dir, self.extra = binary, model, cache_dir, extra

    def _common(self, cache_dir: str | None = None) -> list[str]:
        return ["--model", self.model, "--cache-dir", cache_dir or self.cache_dir, *self.extra]

    def json(self, arguments: list[str], cache_dir: str | None = None) -> tuple[Any, Finished]:
        done = run([self.binary, *arguments, "--json", *self._common(cache_dir)])
        return json.loads(done.stdout), done

    def version(self) -> str:
        return run([self.binary, "--version"]).stdout.strip()

    def doctor(self) -> dict[str, Any]:
        """What the machine offers; empty where this build has no doctor."""
        try:
            return json.loads(run([self.binary, "doctor", "--json"]).stdout)
        except (ChildFailed, json.JSONDecodeError):
            return {}

    def bench(self, work: Workload, seed: int, repeat: int) -> dict[str, Any]:
        streams = ",".join(str(n) for n in (1, *work.streams))
        sizes = {"prompt": work.prompt, "generate": work.generate, "context": work.context}
        flags = [x for name, value in sizes.items() for x in (f"--{name}", str(value))]
        flags += ["--streams", streams, "--repeat", str(repeat), "--seed", str(seed)]
        return self.json(["bench", *flags])[0]

    def rates(self, work: Workload, seed: int, repeat: int) -> tuple[dict[str, float], dict]:
        result = self.bench(work, seed, repeat)
        rates = {"decode": result["decode_tok_s"], "prefill": result["prefill_tok_s"]}
        rates |= {f"streams {n}": result["streams"][str(n)] for n in work.streams}
        return rates, result

    def first_token(self, text: str, cache_dir: str | None = None) -> tuple[dict, Finished]:
        # The text follows "--": a prompt is free to begin with a dash.
        flags = ["run", "--raw", "--max-tokens", "1", "--ignore-eos", "--temperature", "0"]
        done = run([self.binary, *flags, "--json", *self._common(cache_dir), "--", text])
        return json.loads(done.stdout), done

    def read_file(self, path: str) -> tuple[dict, Finished]:
        flags = ["run", "--raw", "--max-tokens", "1", "--ignore-eos", "--temperature", "0"]
        return self.json([*flags, "--prompt-file", path])

    def count_tokens(self, texts: list[str]) -> list[int]:
        lines = "".join(json.dumps(text) + "\n" for text in texts)
        command = [self.binary, "tokenize", "--jsonl", "--model", self.model]
        answers = run(command, stdin=lines).stdout.splitlines()
        return [len(json.loads(line)["tokens"]) for line in answers]

    def greedy_check(self) -> dict[str, Any]:
        """The greedy tokens of `bench` and of `run --temperature 0` after the same prompt."""
        small = ["--prompt", "8", "--generate", "1", "--context", "8", "--streams", "1"]
        bench = self.json(["bench", *small, "--repeat", "1", "--greedy-check"])[0]["greedy_check"]
        flags = ["run", "--raw", "--temperature", "0", "--ignore-eos", "--json"]
        flags += ["--max-tokens", str(len(bench["tokens"]))]
        done = run([self.binary, *flags, *self._common(), "--", bench["prompt"]])
        tokens = json.loads(done.stdout)["tokens"]
        return {
            "prompt": bench["prompt"],
            "tokens": tokens,
            "equal": tokens == bench["tokens"],
        }


class Llama:
    """llama.cpp: one long-lived process with the model, and fresh ones where start counts."""

    def __init__(self, python: str, model: str) -> None:
        self._command = [python, str(_HERE / "llama_side.py")]
        self._model = ["--model", model]
        self._process = subprocess.Popen(
            [*self._command, "serve", *self._model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        try:
            self.about: dict[str, Any] = self._answer()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # the end of its requests
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ChildFailed("the llama.cpp process ended early; see its message above")
        return json.loads(line)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        return self._answer()

    def rate(self, name: str, work: Workload, threads: int, seed: int, repeat: int = 1) -> float:
        request: dict[str, Any] = {"threads": threads, "generate": work.generate}
        if name == "prefill":
            request |= {"work": "prefill", "prompt": work.prompt}
        elif name == "decode":
            request |= {"work": "decode", "prompt": work.context}
        else:
            streams = int(name.split()[1])
            request |= {"work": "streams", "prompt": work.stream_prompt, "streams": streams}
        runs = [self.ask(request | {"seed": seed + i})["tok_s"] for i in range(repeat)]
        return statistics.median(runs)

    def first_token(self, text: str, threads: int) -> tuple[dict[str, Any], Finished]:
        command = [*self._command, "first", *self._model, "--threads", str(threads)]
        done = run([*command, "--text", text])
        return json.loads(done.stdout), done

    def memory(self, prompt: list[int], threads: int) -> dict[str, Any]:
        command = [*self._command, "memory", *self._model, "--threads", str(threads)]
        return json.loads(run(command, stdin=json.dumps(prompt)).stdout)
