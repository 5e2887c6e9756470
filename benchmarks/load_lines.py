"""The short call over stdio: a line each way, and as many calls in flight as connections have together over the other wires.

The server's standard input and output are one socket, as a program that waits for connections on its behalf hands it on.
"""

import socket

import msgspec

from benchmarks.answers import WrongAnswer, text_of, words
from benchmarks.client import PIECE, connect
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, numbers
from benchmarks.process import START_SECONDS, Target


class Lines(Conversation):
    """Short calls, each a line."""

    def __init__(self, sock: socket.socket, target: Target, at_once: int) -> None:
        super().__init__(sock)
        self.at_once = at_once
        self._dialect = Dialect(target.port, target.revision)
        self._asked: set[int] = set()
        self._heard = b""

    def ask(self) -> None:
        """Send the call."""
        number = next(numbers)
        self._asked.add(number)
        self.sock.sendall(msgspec.json.encode(self._dialect.echo_message(number)) + b"\n")

    def answered(self) -> int:
        """Read lines, and return how many there were."""
        data = self.sock.recv(PIECE)
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
    """Return the connection that repeats the short call over stdio, once its server, which starts for it, has answered.

    Raises:
        WrongAnswer: It has not in time.
    """
    sock = connect(target.port)
    patience = sock.gettimeout()
    sock.settimeout(START_SECONDS)
    lines = Lines(sock, target, at_once)
    try:
        lines.ask()
        while not lines.answered():
            pass
    except TimeoutError as error:
        raise WrongAnswer(f"the server has not started within {START_SECONDS:g} s") from error
    sock.settimeout(patience)
    return [lines]
