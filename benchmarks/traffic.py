"""Many calls, over connections and sessions that they share."""

import itertools
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from benchmarks.calls import Call
from benchmarks.client import connect, exchange
from benchmarks.crowd import open_sessions
from benchmarks.dialect import BENCH, Client, Dialect
from benchmarks.load import Asking, Question
from benchmarks.process import Target

CONNECTIONS = 32


class InTwo(Asking):
    """Sends the head and the body of each request in a packet of its own."""

    def __init__(self, sock: socket.socket, questions: Iterator[Question]) -> None:
        super().__init__(sock, questions)
        self._send = self._send_in_two

    def _send_in_two(self, request: bytes) -> None:
        head, end, body = request.partition(b"\r\n\r\n")
        self.sock.sendall(head + end)
        self.sock.sendall(body)


class Reconnecting(Asking):
    """Makes a connection for each request.

    An epoll of its own, which is what the load waits for, stands for whichever connection it has.
    """

    def __init__(self, sock: socket.socket, questions: Iterator[Question]) -> None:
        super().__init__(sock, questions)
        self._port: int = sock.getpeername()[1]
        self._poller = select.epoll()

    def fileno(self) -> int:
        """Return what can be read when the connection of the day can."""
        return self._poller.fileno()

    def ask(self) -> None:
        """Connect, and make the next request."""
        self.sock.close()
        self.sock = connect(self._port)
        self._poller.register(self.sock, select.EPOLLIN)
        self._send, self._receive = self.sock.sendall, self.sock.recv
        super().ask()


@attrs.frozen(kw_only=True)
class Traffic:
    """Calls that are made one after the other, and then again from the first one on.

    Attributes:
        calls: In their order, which is the same for all connections together: the next one is for whoever is free.
        sessions: How many sessions they are made in.
        clients: Who opens the sessions, in turn.
        asks: How a connection asks.
    """

    calls: Sequence[Call]
    sessions: int = 0
    clients: Sequence[Client] = (BENCH,)
    asks: type[Asking] = Asking

    @contextmanager
    def to(self, target: Target) -> Iterator[Sequence[Asking]]:
        """Give the connections that make the calls to a server; sessions end with them.

        Raises:
            WrongAnswer: A session was refused.
        """
        sockets = [connect(target.port) for _ in range(CONNECTIONS)]
        sessions = open_sessions(target, self.sessions, sockets, self.clients) if self.sessions else []
        questions = [call.question(_dialect(call, target, sessions)) for call in self.calls]
        shared = itertools.cycle(questions)
        conversations = [self.asks(sock, shared) for sock in sockets]
        try:
            yield conversations
            for session in sessions:
                exchange(conversations[0].sock, session.delete())
        finally:
            for conversation in conversations:
                conversation.sock.close()


def _dialect(call: Call, target: Target, sessions: Sequence[Dialect]) -> Dialect:
    if call.session is None:
        return Dialect(target.port, target.revision, client=call.client)
    return sessions[call.session]
