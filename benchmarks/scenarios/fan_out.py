"""One change, and all who want to know of it."""

import socket
import statistics
import time
from collections.abc import Iterator, Sequence

from benchmarks.answers import CLOCK, WrongAnswer, result_of, text_of
from benchmarks.client import connect, exchange, ready
from benchmarks.crowd import Crowd, opening_seconds
from benchmarks.load import numbers
from benchmarks.peers.peer import Ability
from benchmarks.process import Target
from benchmarks.scenarios.scenario import Figures, Metric, Served
from benchmarks.usage import processor_seconds

LEAST_CHANGES = 5


class FanOut(Served):
    """A tool announces a change; each of many streams is told of it."""

    sizes = {10: 3, 100: 3, 1_000: 3, 5_000: 3}
    others = {10: 2, 100: 2, 1_000: 2, 5_000: 1}
    costly = frozenset({5_000})
    quick_sizes = (10, 100)
    metrics = (
        Metric("last_ms", "last one told, ms", 2),
        Metric("half_ms", "half of them told, ms", 2),
        Metric("cpu_us", "µs of processor time for each", 2),
        Metric("changes", "changes", more_is_better=None),
    )
    grows = "last_ms"
    grows_up = True

    def cost(self, sizes: Sequence[int], seconds: float) -> float:
        """Return about how many seconds a turn takes: most of it for many streams is their opening."""
        return len(sizes) * seconds + opening_seconds(sizes)

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Announce changes for a while, to more and more streams."""
        if self.needs is None:
            raise NotImplementedError
        crowd = Crowd(target, self.needs)
        try:
            for size in sizes:
                crowd.grow(size)
                # A new connection: a server may have ended one that said nothing while the streams were opened.
                with connect(target.port) as sock:
                    yield size, _announce(target, sock, crowd, seconds)
        finally:
            crowd.close()


def _announce(target: Target, sock: socket.socket, crowd: Crowd, seconds: float) -> Figures:
    # What is announced on behalf of a session must not be held for a stream that it does not have.
    dialect = ready(sock, target.port, target.revision)
    lasts: list[int] = []
    halves: list[int] = []
    used, end = processor_seconds(target.group), time.monotonic() + seconds
    while len(lasts) < LEAST_CHANGES or time.monotonic() < end:
        number = next(numbers)
        sock.sendall(dialect.call(number, tool="change"))
        arrivals = crowd.arrivals()
        text = text_of(result_of(exchange(sock, b""), number))
        if (clock := CLOCK.search(text.encode())) is None:
            raise WrongAnswer(f"no clock in {text!r}")
        lasts.append(arrivals[-1] - int(clock[1]))
        halves.append(arrivals[len(arrivals) // 2] - int(clock[1]))
    used = processor_seconds(target.group) - used
    return {
        "last_ms": statistics.median(lasts) / 1e6,
        "half_ms": statistics.median(halves) / 1e6,
        "cpu_us": used / len(crowd.streams) / len(lasts) * 1e6,
        "changes": len(lasts),
    }


class ListenFanOut(FanOut):
    """To streams of 2026-07-28."""

    name = "fan-out-listens"
    title = "Fan-out of a change to listens"
    what = "From the making of a change until it has arrived on every `subscriptions/listen` of 2026-07-28; medians of many changes."
    size_title = "listens"
    needs = Ability.LISTENS


class GetFanOut(FanOut):
    """To streams of sessions."""

    name = "fan-out-gets"
    title = "Fan-out of a change to GET streams"
    what = "The same with sessions that subscribed to the resource, each with its GET stream."
    size_title = "GET streams"
    sizes = {10: 2, 100: 2, 1_000: 2, 5_000: 2}
    others = {10: 1, 100: 1, 1_000: 1, 5_000: 1}
    needs = Ability.GET_STREAMS
