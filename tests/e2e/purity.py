"""Many answers at once, none of them mixed with another.

Every request carries a marker that no other has, in tokens right after a beginning that it shares
with many others. The pool of pages is far too small for all, so that prefixes are found, evicted
and computed again, and sequences preempted. Each answer is compared, text and log probabilities
to the last bit, with what a second daemon says that has no prefix cache and one request at a time.
"""

from __future__ import annotations

import json
import random
import re
import threading
from typing import Any

from daemon import Daemon
from watch import Client, total

# Letters of the tiny model are one token each: byte + 3.
MARK = re.compile("<[A-Z]{6}>")
BEGINNINGS = 12
CONNECTIONS = 48
ALONE = ("--prefix-cache=false", "--max-running", "1")
# 20 pages of 32 tokens for 32 sequences of up to 4 pages.
TOGETHER = ("--kv-cache-tokens", "640", "--max-running", "32")
# Only there does the program promise that company changes no bit.
BOTH = ("--numerics", "deterministic", "--log-level", "warning")


def tokens_of(text: str) -> list[int]:
    return [b + 3 for b in text.encode()]


def mark_of(i: int) -> str:
    letters = ""
    for _ in range(6):
        i, digit = divmod(i, 26)
        letters += chr(ord("A") + digit)
    return f"<{letters}>"


def requests(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    beginnings = [
        "".join(rng.choice("abcdefgh ") for _ in range(rng.choice((32, 40, 64, 70))))
        for _ in range(BEGINNINGS)
    ]
    wanted = []
    for i in range(count):
        text = rng.choice(beginnings) + mark_of(i * 7919 % 26**6)
        fields: dict[str, Any] = {
            "prompt": tokens_of(text),
            "max_tokens": rng.randint(4, 24),
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 1,
        }
        if rng.random() < 0.5:
            fields["echo"] = True  # the answer starts with the prompt, its marker included
        if rng.random() < 0.3:
            fields["cache_salt"] = f"salt-{rng.randrange(3)}"
        wanted.append(fields)
    return wanted


def answer_of(client: Client, fields: dict[str, Any]) -> str:
    status, _, reply = client.ask("/v1/completions", fields)
    assert status == 200, (status, reply)
    body = json.loads(reply)
    return json.dumps(body["choices"], sort_keys=True)


def answers_alone(daemon: Daemon, wanted: list[dict[str, Any]]) -> list[str]:
    client = Client(daemon)
    try:
        return [answer_of(client, fields) for fields in wanted]
    finally:
        client.close()


def answers_together(daemon: Daemon, wanted: list[dict[str, Any]]) -> list[str]:
    found = [""] * len(wanted)
    errors: list[BaseException] = []

    def run(first: int) -> None:
        client = Client(daemon)
        try:
            for i in range(first, len(wanted), CONNECTIONS):
                found[i] = answer_of(client, wanted[i])
        except (AssertionError, OSError) as error:
            errors.append(error)
        finally:
            client.close()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(CONNECTIONS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise AssertionError(f"{len(errors)} connections failed; the first: {errors[0]!r}")
    return found


def check(alone: Daemon, together: Daemon, count: int, seed: int) -> str:
    """AssertionError for the first answer that differs; else a line of what was done."""
    wanted = requests(count, seed)
    expected = answers_alone(alone, wanted)
    before = together.metrics()
    found = answers_together(together, wanted)
    after = together.metrics()
    marks = 0
    for i, (fields, want, got) in enumerate(zip(wanted, expected, found, strict=True)):
        own = MARK.search("".join(chr(t - 3) for t in fields["prompt"]))
        assert own is not None
        seen = set(MARK.findall(json.loads(got)[0]["text"]))
        assert seen <= {own[0]}, f"answer {i} to {own[0]} has the marker of another: {seen}"
        assert bool(seen) or not fields.get("echo"), f"answer {i} lacks its own marker {own[0]}"
        marks += len(seen)
        assert got == want, f"answer {i} to {fields} is {got}, alone it is {want}"
    counts = {
        name: int(total(after, f"cuvild_{name}_total") - total(before, f"cuvild_{name}_total"))
        for name in ("kv_blocks_evicted", "prefix_cache_hits", "preemptions")
    }
    for name, value in counts.items():
        assert value > 0, f"{name} is 0: the pool was not small enough to test anything"
    return f"{count} answers equal, {marks} own markers and no other; " + ", ".join(
        f"{name} {value}" for name, value in counts.items()
    )
