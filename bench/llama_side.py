#!/usr/bin/env python3
"""The llama.cpp side of bench/compare.py, through llama-cpp-python's low-level API.

Three modes, all printing JSON lines on stdout:

  serve   keeps the model loaded; a request a line on stdin, an answer a line on stdout:
          {"work": "prefill"|"decode"|"streams", "threads": 2, "prompt": 512, "generate": 128,
           "streams": 8, "seed": 1}                         -> {"tok_s": ..., "seconds": ...}
          {"work": "tokenize", "text": "..."}               -> {"tokens": [...]}
  first   one fresh process: from before the model is opened to the first token of --text; imports
          and loading of the shared library are left out, which favours llama.cpp
  memory  one fresh process: peak resident memory of reading the token ids on stdin as one prompt,
          and what the process held after its imports

Work is the same as `cuvil bench` does: random tokens without repetition, greedy choice, every
sequence's own prompt read first, one token a sequence in each step. No prefix is ever reused.
"""

import argparse
import ctypes
import json
import os
import random
import resource
import sys
import time

import llama_cpp as lc
import numpy as np

BATCH = 512  # logical and physical batch: one prompt of 512 is one llama_decode of one micro-batch
CELLS = 256  # llama.cpp rounds each sequence's share of the KV cache up to this


@lc.llama_log_callback
def quiet(level: int, text: bytes, user: ctypes.c_void_p) -> None:
    """Drops llama.cpp's log: stdout carries the protocol and stderr real errors."""


class Model:
    """An open model. Lives as long as the process, so nothing is freed."""

    def __init__(self, path: str) -> None:
        lc.llama_log_set(quiet, ctypes.c_void_p(0))
        lc.llama_backend_init()
        handle = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
        if not handle:
            raise SystemExit(f"llama.cpp cannot load '{path}'; check that it is a GGUF file")
        self.handle = handle
        self.vocab = lc.llama_model_get_vocab(handle)
        self.vocab_size = int(lc.llama_vocab_n_tokens(self.vocab))

    def tokenize(self, text: str) -> list[int]:
        raw = text.encode()
        room = len(raw) + 8
        out = (lc.llama_token * room)()
        count = lc.llama_tokenize(self.vocab, raw, len(raw), out, room, True, False)
        return list(out[:count])


class Context:
    """One llama context and one batch; tokens go in, rows of logits come out."""

    def __init__(self, model: Model, sequences: int, tokens_each: int, threads: int) -> None:
        params = lc.llama_context_default_params()
        params.n_ctx = sequences * (-(-tokens_each // CELLS) * CELLS)
        params.n_batch = params.n_ubatch = BATCH
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        self.model = model
        self.handle = lc.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise SystemExit(f"llama.cpp cannot make a context of {params.n_ctx} tokens")
        self.batch = lc.llama_batch_init(BATCH, 0, 1)
        self.lengths = [0] * sequences

    def close(self) -> None:
        lc.llama_batch_free(self.batch)
        lc.llama_free(self.handle)

    def _put(self, row: int, token: int, sequence: int, wants_logits: bool) -> None:
        batch = self.batch
        batch.token[row] = token
        batch.pos[row] = self.lengths[sequence]
        batch.n_seq_id[row] = 1
        batch.seq_id[row][0] = sequence
        batch.logits[row] = wants_logits
        self.lengths[sequence] += 1

    def _decode(self, rows: int) -> None:
        self.batch.n_tokens = rows
        code = lc.llama_decode(self.handle, self.batch)
        if code != 0:
            raise SystemExit(f"llama_decode of {rows} tokens failed with code {code}")

    def _argmax(self, row: int) -> int:
        pointer = lc.llama_get_logits_ith(self.handle, row)  # waits for the computation
        logits = np.ctypeslib.as_array(pointer, shape=(self.model.vocab_size,))
        return int(logits.argmax())

    def read(self, sequence: int, tokens: list[int]) -> int:
        """Appends a prompt to a sequence; returns the likeliest token after it."""
        last = 0
        for at in range(0, len(tokens), BATCH):
            piece = tokens[at : at + BATCH]
            for row, token in enumerate(piece):
                self._put(row, token, sequence, at + row + 1 == len(tokens))
            self._decode(len(piece))
            last = len(piece) - 1
        return self._argmax(last)

    def step(self, tokens: list[int]) -> list[int]:
        """Appends one token to every sequence, in one batch; returns the likeliest next ones."""
        for sequence, token in enumerate(tokens):
            self._put(sequence, token, sequence, True)
        self._decode(len(tokens))
        return [self._argmax(row) for row in range(len(tokens))]


def prefill(model: Model, request: dict, tokens: random.Random) -> tuple[int, float]:
    prompt = tokens.sample(range(model.vocab_size), request["prompt"])
    context = Context(model, 1, len(prompt), request["threads"])
    # A context allocates on first use; cuvil's arena exists by then too.
    context.read(0, tokens.sample(range(model.vocab_size), request["prompt"]))
    lc.llama_memory_clear(lc.llama_get_memory(context.handle), True)
    context.lengths = [0]
    start = time.perf_counter()
    context.read(0, prompt)
    seconds = time.perf_counter() - start
    context.close()
    return len(prompt), seconds


def decode(model: Model, request: dict, tokens: random.Random) -> tuple[int, float]:
    """`streams` sequences with a prompt of `prompt` tokens each, then `generate` steps together."""
    streams, generate = request.get("streams", 1), request["generate"]
    context = Context(model, streams, request["prompt"] + generate + 1, request["threads"])
    following = [
        context.read(s, tokens.sample(range(model.vocab_size), request["prompt"]))
        for s in range(streams)
    ]
    start = time.perf_counter()
    for _ in range(generate):
        following = context.step(following)
    seconds = time.perf_counter() - start
    context.close()
    return generate * streams, seconds


def answer(model: Model, request: dict) -> dict:
    work = request["work"]
    if work == "tokenize":
        return {"tokens": model.tokenize(request["text"])}
    tokens = random.Random(request["seed"])
    count, seconds = (prefill if work == "prefill" else decode)(model, request, tokens)
    return {"tok_s": count / seconds, "seconds": seconds}


def say(value: dict) -> None:
    print(json.dumps(value), flush=True)


def serve(args: argparse.Namespace) -> None:
    model = Model(args.model)
    info = lc.llama_print_system_info().decode().strip()
    say({"version": lc.__version__, "system_info": info, "vocab": model.vocab_size})
    for line in sys.stdin:
        say(answer(model, json.loads(line)))


def first(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    model = Model(args.model)
    prompt = model.tokenize(args.text)
    context = Context(model, 1, len(prompt) + 1, args.threads)
    token = context.read(0, prompt)
    seconds = time.perf_counter() - start
    say({"first_token_s": seconds, "prompt_tokens": prompt, "token": token})


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(args: argparse.Namespace) -> None:
    imports = resident_bytes()
    prompt = json.load(sys.stdin)
    context = Context(Model(args.model), 1, len(prompt) + 1, args.threads)
    context.read(0, prompt)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    say({"peak_bytes": peak, "after_imports_bytes": imports})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=["serve", "first", "memory"])
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--threads", type=int, default=2, help="for first and memory")
    parser.add_argument("--text", default="", help="prompt of `first`")
    args = parser.parse_args()
    {"serve": serve, "first": first, "memory": memory}[args.mode](args)


if __name__ == "__main__":
    main()
