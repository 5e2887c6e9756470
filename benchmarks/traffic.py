"""Many calls, over connections and sessions that they share."""

import itertools
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import attrs

from benchmarks.calls import SESSION, Call
from benchmarks.client import connect, exchange
from benchmarks.crowd import open_sessions, opening_seconds
from benchmarks.dialect import Client, Dialect
from benchmarks.load import Asking, Conversation, Question
from benchmarks.process import Target

CONNECTIONS = 32

Body = tuple[socket.socket, bytes]
"""One that is not sent yet, and where it goes."""


class InTwo(Asking):
    """Sends the body of a request when the server must have read the head: when another request has been answered.

    Half of the connections have withheld their bodies at any time, and the other half have calls in flight.
    """

    def __init__(
        self, sock: socket.socket, questions: Iterator[Question], withheld: "deque[Body]", most: int
    ) -> None:
        super().__init__(sock, questions)
        self._send = self._send_head
        self._withheld, self._most = withheld, most

    @classmethod
    def over(cls, sockets: Sequence[socket.socket], questions: Iterator[Question]) -> Sequence[Asking]:
        """Return connections that send each other's bodies."""
        withheld: deque[Body] = deque()
        return [cls(sock, questions, withheld, len(sockets) // 2) for sock in sockets]

    def answered(self) -> bool:
        """Read a piece of the answer; if that was the last one, it is another's turn."""
        complete = super().answered()
        if complete and self._withheld:
            self._send_body()
        return complete

    def _send_head(self, request: bytes) -> None:
        head, end, body = request.partition(b"\r\n\r\n")
        self.sock.sendall(head + end)
        self._withheld.append((self.sock, body))
        if len(self._withheld) > self._most:
            self._send_body()

    def _send_body(self) -> None:
        sock, body = self._withheld.popleft()
        sock.sendall(body)


class InSessions(Asking):
    """Makes requests in sessions that all connections share, each in one in which there is no other at that time."""

    def __init__(
        self, sock: socket.socket, questions: Iterator[Question], pools: Sequence[deque[bytes]]
    ) -> None:
        super().__init__(sock, questions)
        self._send = self._send_in_session
        self._pools = pools
        self._session = b""

    def answered(self) -> bool:
        """Read a piece of the answer; if that was the last one, the session is free."""
        complete = super().answered()
        if complete and self._question.pool is not None:
            self._pools[self._question.pool].append(self._session)
        return complete

    def _send_in_session(self, request: bytes) -> None:
        if self._question.pool is not None:
            self._session = self._pools[self._question.pool].popleft()
            request = request.replace(SESSION, self._session, 1)
        self.sock.sendall(request)


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


class Calls(Protocol):
    """Calls that are made again and again."""

    @property
    def each(self) -> int:
        """How many calls each connection has made, on average, when all of them have been made once."""

    @property
    def opening_seconds(self) -> float:
        """About how long it takes to open what they need and to end it, for the estimate."""

    def to(self, target: Target) -> AbstractContextManager[Sequence[Conversation]]:
        """Give the connections that make the calls to a server."""


@attrs.frozen
class OverWire:
    """The short call over another wire than HTTP/1.1.

    Attributes:
        connect: Makes the connections.
    """

    connect: Callable[[Target], Sequence[Conversation]]
    each = 1
    opening_seconds = 0.0

    @contextmanager
    def to(self, target: Target) -> Iterator[Sequence[Conversation]]:
        """See `Calls`."""
        conversations = self.connect(target)
        try:
            yield conversations
        finally:
            for conversation in conversations:
                conversation.close()


@attrs.frozen(kw_only=True)
class Traffic:
    """Calls that are made one after the other, and then again from the first one on.

    Attributes:
        calls: In their order, which is the same for all connections together: the next one is for whoever is free.
        sessions: Who opens sessions, as many as there are connections. They are a pool, and a call says by its place from which
            pool its session comes.
        asks: How a connection asks that has no sessions.
        tls: As for `connect`.
    """

    calls: Sequence[Call]
    sessions: Sequence[Client] = ()
    asks: type[Asking] = Asking
    tls: str | None = None

    @property
    def each(self) -> int:
        """How many calls each connection has made, on average, when all of them have been made once."""
        return -(-len(self.calls) // CONNECTIONS)

    @property
    def opening_seconds(self) -> float:
        """About how long it takes to open the sessions and to end them, for the estimate."""
        return 2 * opening_seconds((CONNECTIONS * len(self.sessions),))

    @contextmanager
    def to(self, target: Target) -> Iterator[Sequence[Asking]]:
        """Give the connections that make the calls to a server; sessions end with them.

        Raises:
            WrongAnswer: A session was refused.
        """
        sockets = [connect(target.port, tls=self.tls) for _ in range(CONNECTIONS)]
        questions = itertools.cycle([call.question(target) for call in self.calls])
        opened = [open_sessions(target, CONNECTIONS, sockets, client) for client in self.sessions]
        conversations = self._over(sockets, questions, opened)
        try:
            yield conversations
            for session in itertools.chain.from_iterable(opened):
                exchange(conversations[0].sock, session.delete())
        finally:
            for conversation in conversations:
                conversation.close()

    def _over(
        self,
        sockets: Sequence[socket.socket],
        questions: Iterator[Question],
        opened: Sequence[Sequence[Dialect]],
    ) -> Sequence[Asking]:
        if not opened:
            return self.asks.over(sockets, questions)
        pools = [deque(dialect.session or b"" for dialect in sessions) for sessions in opened]
        return [InSessions(sock, questions, pools) for sock in sockets]
