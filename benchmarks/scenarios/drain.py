"""Sessions that are handed over by a process that ends."""

import os
import select
import signal
import socket
import time
from collections.abc import Iterator, Sequence

import attrs

from benchmarks.answers import Answer, WrongAnswer, check_echo, result_of
from benchmarks.client import PIECE, connect, exchange
from benchmarks.dialect import Dialect
from benchmarks.engine import valkey
from benchmarks.load import Connection, load, numbers
from benchmarks.machine import LOAD_CORE, on_core
from benchmarks.peers.peer import Setting
from benchmarks.process import Target, running
from benchmarks.scenarios.scenario import Figures, Inside, Metric
from benchmarks.servers import OURS

_CONNECTIONS = 8
_CALLED = 100
_PATIENCE_MILLISECONDS = 30_000
_MCPBUS = OURS[0]


class Drain(Inside):
    """Open sessions at one of two replicas, and end it."""

    name = "drain"
    title = "A drain that hands sessions over"
    what = (
        "Idle sessions of one of two replicas, in Valkey: from SIGTERM to the end of its process. Then calls in a "
        f"hundredth of the sessions, or in {_CALLED}, are answered by the other one."
    )
    size_title = "sessions"
    in_quick = False
    sizes = {10_000: 1}
    metrics = (Metric("seconds", "s until it has ended", 2), Metric("each_us", "µs for each session"))

    def cost(self, sizes: Sequence[int], seconds: float) -> float:  # noqa: ARG002  as long as it takes
        """Return about how many seconds a turn takes."""
        return sum(4 + size / 700 for size in sizes)

    def turn(self, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002  as long as it takes
        """Drain."""
        for size in sizes:
            with on_core(LOAD_CORE), valkey() as url:
                environment = {Setting.REDIS: url}
                with running(_MCPBUS, environment) as here, running(_MCPBUS, environment) as there:
                    taken = drained(here, there, size)
            yield size, {"seconds": taken, "each_us": taken / size * 1e6}


class _Opening(Connection):
    """A connection on which sessions are opened, one after the other.

    Args:
        sock: The connection.
        target: What it leads to.
        sessions: Where they are put.
    """

    def __init__(self, sock: socket.socket, target: Target, sessions: list[Dialect]) -> None:
        super().__init__(sock)
        if target.session_revision is None:
            raise WrongAnswer("it has no sessions")
        self._outside = Dialect(target.port, target.session_revision)
        self._sessions = sessions
        self._opened: Dialect | None = None
        self._answer = Answer()

    def ask(self) -> None:
        """Begin to open one."""
        self._opened = None
        self._answer.begin()
        self.sock.sendall(self._outside.initialize())

    def answered(self) -> bool:
        """Read an answer, and complete the handshake; return whether that is done."""
        if not self._answer.feed(self.sock.recv(PIECE)):
            return False
        if self._opened is None:
            result_of(self._answer)
            self._opened = attrs.evolve(self._outside, session=self._answer.headers[b"mcp-session-id"])
            self._answer.begin()
            self.sock.sendall(self._opened.initialized())
            return False
        self._sessions.append(self._opened)
        return True


def drained(here: Target, there: Target, count: int) -> float:
    """Open sessions, end their process, and return how many seconds that takes.

    Args:
        here: Where they are opened.
        there: Where they go on.
        count: How many.

    Raises:
        WrongAnswer: They were not opened, or it does not end, or they do not go on.
    """
    sessions: list[Dialect] = []
    conversations = [_Opening(connect(here.port), here, sessions) for _ in range(_CONNECTIONS)]
    load(here, conversations, 0.0, least=-(-count // _CONNECTIONS))
    ended = os.pidfd_open(here.group)
    try:
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        begun = time.monotonic()
        os.kill(here.group, signal.SIGTERM)
        if not poller.poll(_PATIENCE_MILLISECONDS):
            raise WrongAnswer(f"it has not ended within {_PATIENCE_MILLISECONDS / 1e3:g} s")
        taken = time.monotonic() - begun
    finally:
        os.close(ended)
        for conversation in conversations:
            conversation.sock.close()
    with connect(there.port) as sock:
        for session in sessions[:: max(1, count // _CALLED)]:
            number = next(numbers)
            check_echo(exchange(sock, session.echo(number)), number)
    return taken
