"""What a server holds in memory for clients that do nothing."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from benchmarks.client import connect
from benchmarks.crowd import Crowd, open_sessions, opening_seconds
from benchmarks.load_http2 import open_listens
from benchmarks.load_websocket import repeat_websocket
from benchmarks.peers.peer import Ability, Wire
from benchmarks.process import Target
from benchmarks.scenarios.scenario import Figures, Metric, Served
from benchmarks.usage import resident_bytes

BEFORE = 20
STREAMS_EACH = 50
CONNECTIONS = 8
SETTLE_SECONDS = 0.25
SETTLED_SECONDS = 3.0
STEADY = 64 * 1024


class Closeable(Protocol):
    """What was opened."""

    def close(self) -> None:
        """Close it."""


_METRICS = (
    Metric("each", "KiB each", 1, scale=1 / 1024),
    Metric("all", "MB for all of them", 1, scale=1e-6),
    Metric("before", "MB before", 1, scale=1e-6),
    Metric("resident", "MB with them", 1, scale=1e-6),
)


class Idle(Served):
    """More and more of something that does nothing."""

    sizes = {100: 3, 1_000: 3, 10_000: 3}
    others = {100: 1, 1_000: 1, 10_000: 1}
    costly = frozenset({10_000})
    quick_sizes = (100,)
    metrics = _METRICS
    grows = "all"
    grows_up = True

    def cost(self, sizes: Sequence[int], seconds: float) -> float:  # noqa: ARG002  it takes as long as it takes
        """Return about how many seconds a turn takes."""
        return (len(sizes) + 1) * 1.5 * SETTLE_SECONDS + opening_seconds(sizes)


class IdleSessions(Idle):
    """Sessions without a stream."""

    name = "idle-sessions"
    title = "Resident memory of idle sessions"
    what = (
        "Growth of the server's resident memory by sessions (`initialize`, `initialized`) that have no stream, "
        f"opened over {CONNECTIONS} connections. With a garbage collector, what it has not collected is counted."
    )
    size_title = "sessions"
    needs = Ability.SESSIONS

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002
        """Open sessions."""
        sockets = [connect(target.port) for _ in range(CONNECTIONS)]
        open_sessions(target, BEFORE, sockets)  # what is made once is made now
        before, opened = _settled(target), 0
        for size in sizes:
            open_sessions(target, size - opened, sockets)
            opened = size
            yield size, _figures(before, _settled(target), size)
        for sock in sockets:
            sock.close()


class IdleStreams(Idle):
    """Streams on which nothing is said."""

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002
        """Open streams."""
        if self.needs is None:
            raise NotImplementedError
        crowd = Crowd(target, self.needs)
        try:
            crowd.grow(BEFORE)
            before = _settled(target)
            for size in sizes:
                crowd.grow(BEFORE + size)
                yield size, _figures(before, _settled(target), size)
        finally:
            crowd.close()


class IdleListens(IdleStreams):
    """Streams of 2026-07-28."""

    name = "idle-listens"
    in_quick = False
    title = "Resident memory of idle listens"
    what = "The same for `subscriptions/listen` of 2026-07-28: a connection and a stream each."
    size_title = "listens"
    needs = Ability.LISTENS


class IdleGets(IdleStreams):
    """Streams of sessions."""

    name = "idle-gets"
    in_quick = False
    title = "Resident memory of idle sessions with a GET stream"
    what = "The same for sessions that each have their GET stream: a session, a connection and a stream each."
    size_title = "GET streams"
    sizes = {100: 1, 1_000: 1, 10_000: 1}
    needs = Ability.GET_STREAMS


class IdleHttp2(Idle):
    """Listens on streams of HTTP/2."""

    name = "idle-http2"
    in_quick = False
    title = "Resident memory of idle streams of HTTP/2"
    what = f"The same for listens that are streams of HTTP/2, {STREAMS_EACH} of each connection."
    size_title = "streams"
    sizes = {100: 1, 1_000: 3}
    wires = frozenset({Wire.HTTP2})
    base = "mcpbus-http2"

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002
        """Open streams."""
        yield from _grow(target, sizes, STREAMS_EACH, lambda: open_listens(target, STREAMS_EACH))


class IdleWebSockets(Idle):
    """WebSockets on which nothing is said."""

    name = "idle-websockets"
    in_quick = False
    title = "Resident memory of idle WebSockets"
    what = "The same for WebSockets, each a connection and a session."
    size_title = "WebSockets"
    sizes = {100: 1, 1_000: 3}
    wires = frozenset({Wire.WEBSOCKET})
    base = "mcpbus-websocket"

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002
        """Open connections."""
        yield from _grow(target, sizes, 1, lambda: repeat_websocket(target, 1)[0])


def _grow(
    target: Target, sizes: Sequence[int], each: int, connect: Callable[[], Closeable]
) -> Iterator[tuple[int, Figures]]:
    """Open connections that bring so many each of what is measured."""
    opened = [connect() for _ in range(BEFORE)]
    try:
        before = _settled(target)
        for size in sizes:
            while (len(opened) - BEFORE) * each < size:
                opened.append(connect())
            yield size, _figures(before, _settled(target), size)
    finally:
        for connection in opened:
            connection.close()


def _settled(target: Target) -> int:
    """Return the resident memory when it no longer changes; nobody asks an allocator to give anything back."""
    end = time.monotonic() + SETTLED_SECONDS
    before = -STEADY
    while abs((now := resident_bytes(target.group)) - before) >= STEADY and time.monotonic() < end:
        before = now
        time.sleep(SETTLE_SECONDS)
    return now


def _figures(before: int, now: int, size: int) -> Figures:
    return {"each": (now - before) / size, "all": now - before, "before": before, "resident": now}
