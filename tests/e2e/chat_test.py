"""cuvil run on a terminal: a conversation, and Ctrl-C."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
import unittest

from e2e import BIN, CuvilTest

WAIT_S = 120  # for output that will come; tests end as soon as it is there


class Terminal:
    """cuvil run with a terminal as its input, output and errors."""

    def __init__(self, env: dict[str, str], *args: str) -> None:
        self.master, slave = pty.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            [str(BIN / "cuvil"), "run", *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
        )
        os.close(slave)

    def wait_for(self, text: str) -> str:
        """Everything up to `text`, which is consumed."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], deadline - time.monotonic())
            if not ready:
                raise AssertionError(f"no {text!r} in {self.seen!r}")
            try:
                data = os.read(self.master, 4096)
            except OSError as error:  # the program is gone
                raise AssertionError(f"ended before {text!r}: {self.seen!r}") from error
            self.seen += data.decode(errors="replace")
        before, self.seen = self.seen.split(text, 1)
        return before

    def say(self, line: str) -> None:
        os.write(self.master, line.encode() + b"\n")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        try:
            return self.process.wait(timeout=WAIT_S)
        finally:
            os.close(self.master)


class Chat(CuvilTest):
    def start(self, *args: str) -> Terminal:
        terminal = Terminal(self.environment(), "--temperature", "0", *args)
        terminal.wait_for("\n> ")
        return terminal

    def test_remembers_and_ends(self) -> None:
        chat = self.start("--max-tokens", "4")
        chat.say("hi")
        first = chat.wait_for("\n> ")
        chat.say("hi")
        chat.wait_for("\n> ")
        chat.say("/clear")
        chat.wait_for("> ")
        chat.say("hi")
        self.assertEqual(chat.wait_for("\n> "), first)  # as if nothing had been said
        chat.say("/bye")
        self.assertEqual(chat.end(), 0)

    def test_end_of_input(self) -> None:
        chat = self.start()
        os.write(chat.master, b"\x04")
        self.assertEqual(chat.end(), 0)

    def test_too_long_a_message_leaves_the_chat_alive(self) -> None:
        chat = self.start("--max-tokens", "2")
        chat.say("x" * 200)
        self.assertIn("/clear", chat.wait_for("\n> "))
        chat.say("hi")
        self.assertNotIn("cuvil:", chat.wait_for("\n> "))
        chat.say("/bye")
        self.assertEqual(chat.end(), 0)

    def test_two_interruptions_at_the_prompt_end_it(self) -> None:
        chat = self.start()
        time.sleep(0.2)  # until it reads
        chat.interrupt()
        chat.wait_for("/bye ends")
        chat.wait_for("> ")
        time.sleep(0.2)
        chat.interrupt()
        self.assertEqual(chat.end(), 130)

    def test_an_interruption_ends_the_answer_only(self) -> None:
        chat = self.start("--ignore-eos", "--max-tokens", "100000")
        for _ in range(3):
            chat.say("hi")
            time.sleep(0.02)
            chat.interrupt()  # in the answer, or just after it: the chat goes on in either case
            chat.wait_for("> ")
            time.sleep(0.3)
            chat.say("/clear")
            chat.wait_for("> ")
        chat.say("/bye")
        self.assertEqual(chat.end(), 0)


if __name__ == "__main__":
    unittest.main()
