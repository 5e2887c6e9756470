"""Many open streams: each a connection that waits for what the server says by itself."""

import select
import socket
import time
from collections.abc import Callable, Sequence

import attrs

from benchmarks.answers import Answer, WrongAnswer
from benchmarks.client import PIECE, connect, exchange, open_session
from benchmarks.dialect import BENCH, CHANGED_URI, Client, Dialect
from benchmarks.peers.peer import Ability
from benchmarks.process import Target

OPENING_SECONDS = 20.0
ARRIVAL_SECONDS = 10.0
_CHANGES = (b"notifications/resources/updated", b"list_changed")
_LONGEST = max(map(len, _CHANGES))


_A_SECOND = 1_500.0


def opening_seconds(sizes: Sequence[int]) -> float:
    """Return about how long the opening of so many takes, for the estimate."""
    return max(sizes) / _A_SECOND


@attrs.define(eq=False)
class Stream:
    """One of them.

    Attributes:
        sock: Its connection.
        tail: The last of what was read, which may hold the begin of a notification.
    """

    sock: socket.socket
    tail: bytes = b""

    def changes(self) -> int:
        """Read what has come, and return how many changes it announces.

        Raises:
            WrongAnswer: The stream has ended.
        """
        data = self.sock.recv(PIECE)
        if not data:
            raise WrongAnswer("a stream has ended")
        data = self.tail + data
        found = sum(map(data.count, _CHANGES))
        end = max(data.rfind(change) + len(change) for change in _CHANGES) if found else 0
        self.tail = data[end:][-_LONGEST:]
        return found


class Crowd:
    """Streams of one kind to one server."""

    def __init__(self, target: Target, kind: Ability) -> None:
        self._target = target
        self._open = _OPENERS[kind]
        self._poller = select.epoll()
        self.streams: dict[int, Stream] = {}

    def grow(self, count: int) -> None:
        """Open streams until there are so many.

        Raises:
            WrongAnswer: One was refused, or it took too long.
        """
        deadline = time.monotonic() + OPENING_SECONDS
        while len(self.streams) < count:
            self.add(Stream(self._open(self._target)))
            if time.monotonic() > deadline:
                raise WrongAnswer(
                    f"{len(self.streams):,} of {count:,} streams opened within {OPENING_SECONDS:g} s"
                )

    def add(self, stream: Stream) -> None:
        """Take one that is open."""
        self.streams[stream.sock.fileno()] = stream
        self._poller.register(stream.sock, select.EPOLLIN)

    def arrivals(self) -> list[int]:
        """Wait until each has been told of one change, and return when, in nanoseconds of the monotonic clock.

        Raises:
            WrongAnswer: One was not in time, or was told twice.
        """
        arrived: list[int] = []
        waiting = set(self.streams)
        deadline = time.monotonic() + ARRIVAL_SECONDS
        while waiting:
            ready = self._poller.poll(ARRIVAL_SECONDS)
            # Streams may be kept alive meanwhile, so that there is always something to read.
            if not ready or time.monotonic() > deadline:
                raise WrongAnswer(
                    f"{len(waiting):,} of {len(self.streams):,} streams were not told of a change"
                )
            for number, _ in ready:
                changes = self.streams[number].changes()
                if changes == 0:
                    continue
                if changes > 1 or number not in waiting:
                    raise WrongAnswer("a stream was told twice of one change")
                arrived.append(time.monotonic_ns())
                waiting.remove(number)
        return arrived

    def close(self) -> None:
        """Close all of them."""
        for stream in self.streams.values():
            stream.sock.close()
        self._poller.close()


def _listen(target: Target) -> socket.socket:
    sock = connect(target.port)
    sock.sendall(Dialect(target.port, target.revision).listen())
    answer = _first_event(sock, b"notifications/subscriptions/acknowledged")
    if answer.status != 200:
        raise WrongAnswer(f"subscriptions/listen was answered with {answer.status}: {bytes(answer.body)!r}")
    return sock


def _get(target: Target) -> socket.socket:
    sock = connect(target.port)
    if target.session_revision is None:
        raise WrongAnswer("it has GET streams, but no sessions")
    session = open_session(sock, target.port, target.session_revision)
    # Where a server announces that its tools have changed, nobody subscribes to anything; an error does no harm.
    exchange(sock, session.request("resources/subscribe", {"uri": CHANGED_URI}))
    sock.sendall(session.get())
    answer = _first_event(sock, b"")
    if answer.status != 200 or not answer.is_stream:
        raise WrongAnswer(f"GET was answered with {answer.status}: {bytes(answer.body)!r}")
    return sock


def _first_event(sock: socket.socket, awaited: bytes) -> Answer:
    """Read an answer until something is in its body; if that is nothing, until it has begun."""
    answer = Answer()
    while not answer.headers_complete or awaited not in answer.body:
        if answer.feed(sock.recv(PIECE)):
            break
    return answer


_OPENERS: dict[Ability, Callable[[Target], socket.socket]] = {
    Ability.LISTENS: _listen,
    Ability.GET_STREAMS: _get,
}


def open_sessions(
    target: Target, count: int, sockets: Sequence[socket.socket], client: Client = BENCH
) -> list[Dialect]:
    """Open sessions that have no stream, over connections that they share.

    Raises:
        WrongAnswer: One was refused, or it took too long.
    """
    if target.session_revision is None:
        raise WrongAnswer("it has no sessions")
    deadline = time.monotonic() + OPENING_SECONDS
    sessions: list[Dialect] = []
    while len(sessions) < count:
        sock = sockets[len(sessions) % len(sockets)]
        sessions.append(open_session(sock, target.port, target.session_revision, client))
        if sessions[-1].session is None:
            raise WrongAnswer("initialize gave no session id")
        if time.monotonic() > deadline:
            raise WrongAnswer(f"{len(sessions):,} of {count:,} sessions opened within {OPENING_SECONDS:g} s")
    return sessions
