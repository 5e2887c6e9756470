"""The short call over stdio: a line each way, and as many calls in flight as connections have together over the other wires.

Each load has a server of its own, which is warm when it begins.
"""

import os
import select
from contextlib import ExitStack

import msgspec

from benchmarks.answers import WrongAnswer, text_of, words
from benchmarks.client import PIECE
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, numbers, warm_up
from benchmarks.process import START_SECONDS, Target
from benchmarks.servers.on_stdio import open_pipes


class Lines(Conversation):
    """Short calls, each a line."""

    def __init__(self, target: Target, at_once: int) -> None:
        self.at_once = at_once
        self._reading, self._writing = open_pipes(target.port)
        self._dialect = Dialect(target.port, target.revision)
        self._asked: set[int] = set()
        self._heard = b""

    def fileno(self) -> int:
        """Return what can be read when an answer has come."""
        return self._reading

    def close(self) -> None:
        """End the server, by the end of its input."""
        os.close(self._writing)
        os.close(self._reading)

    def ask(self) -> None:
        """Send the call."""
        number = next(numbers)
        self._asked.add(number)
        line = msgspec.json.encode(self._dialect.echo_message(number)) + b"\n"
        if os.write(self._writing, line) < len(line):
            raise WrongAnswer("a line was not written whole")

    def wait_until_started(self) -> None:
        """Make a call, and wait for its answer.

        Raises:
            WrongAnswer: There was none in time.
        """
        self.ask()
        if not select.select([self], [], [], START_SECONDS)[0]:
            raise WrongAnswer(f"the server has not started within {START_SECONDS:g} s")
        while not self.answered():
            pass

    def answered(self) -> int:
        """Read lines, and return how many there were."""
        data = os.read(self._reading, PIECE)
        if not data:
            raise WrongAnswer("the server has ended")
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            answer = msgspec.json.decode(line)
            if answer["id"] not in self._asked or text_of(answer["result"]) != words(answer["id"]):
                raise WrongAnswer(f"not what was said: {line!r}")
            self._asked.remove(answer["id"])
        return len(lines)


def repeat_lines(target: Target, at_once: int) -> list[Conversation]:
    """Return what repeats the short call over stdio, once the server that starts for it is warm.

    Raises:
        WrongAnswer: It has not in time.
    """
    lines = Lines(target, at_once)
    with ExitStack() as stack:
        stack.callback(lines.close)
        lines.wait_until_started()
        warm_up(target, [lines], target.warm_up)
        stack.pop_all()
    return [lines]
