"""One change, and all who want to know of it."""

import socket
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing

from benchmarks.answers import CLOCK, WrongAnswer, result_of, text_of
from benchmarks.client import connect, exchange, ready
from benchmarks.crowd import Crowd, opening_seconds
from benchmarks.load import numbers
from benchmarks.peers.peer import Ability
from benchmarks.process import Target
from benchmarks.scenarios.scenario import SLICE_SECONDS, Apart, Figures, Metric
from benchmarks.usage import processor_seconds

LEAST_CHANGES = 5


class FanOut(Apart):
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

    def cost(self, sizes: Sequence[int], seconds: float) -> float:
        """Return about how many seconds a turn takes: most of it for many streams is their opening."""
        return len(sizes) * seconds + opening_seconds([sum(sizes)])

    def turn(self, targets: Mapping[int, Target], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Announce changes for a while, to few streams and to many in turns."""
        if self.needs is None:
            raise NotImplementedError
        with ExitStack() as stack:
            crowds = {
                size: stack.enter_context(closing(Crowd(targets[size], self.needs))) for size in targets
            }
            for size, crowd in crowds.items():
                crowd.grow(size)
            # New connections: a server may have ended those that said nothing while the streams were opened.
            told = [
                Told(targets[size], stack.enter_context(connect(targets[size].port)), crowd)
                for size, crowd in crowds.items()
            ]
            end = time.monotonic() + seconds * len(targets)
            while time.monotonic() < end or any(len(each.lasts) < LEAST_CHANGES for each in told):
                for each in told:
                    each.announce(min(seconds, SLICE_SECONDS))
        for size, each in zip(targets, told, strict=True):
            yield size, each.figures()


class Told:
    """Streams that are told of changes.

    Args:
        target: Their server.
        sock: A connection to it, for announcing.
        crowd: The streams.

    Attributes:
        lasts: How long each change took until the last one had it, in nanoseconds.
    """

    def __init__(self, target: Target, sock: socket.socket, crowd: Crowd) -> None:
        self._target = target
        self._sock = sock
        self._crowd = crowd
        # What is announced on behalf of a session must not be held for a stream that it does not have.
        self._dialect = ready(sock, target.port, target.revision)
        self.lasts: list[int] = []
        self._halves: list[int] = []
        self._begun = processor_seconds(target.group)

    def announce(self, seconds: float) -> None:
        """Announce one change after the other for a while; one at least.

        Raises:
            WrongAnswer: Somebody was not told, or the tool did not answer as is expected.
        """
        end = time.monotonic() + seconds
        while True:
            number = next(numbers)
            self._sock.sendall(self._dialect.call(number, tool="change"))
            arrivals = self._crowd.arrivals()
            text = text_of(result_of(exchange(self._sock, b""), number))
            if (clock := CLOCK.search(text.encode())) is None:
                raise WrongAnswer(f"no clock in {text!r}")
            self.lasts.append(arrivals[-1] - int(clock[1]))
            self._halves.append(arrivals[len(arrivals) // 2] - int(clock[1]))
            if time.monotonic() >= end:
                return

    def figures(self) -> Figures:
        """Return what was measured; what a server does between the changes counts as theirs."""
        used = processor_seconds(self._target.group) - self._begun
        return {
            "last_ms": statistics.median(self.lasts) / 1e6,
            "half_ms": statistics.median(self._halves) / 1e6,
            "cpu_us": used / len(self._crowd.streams) / len(self.lasts) * 1e6,
            "changes": len(self.lasts),
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
    in_quick = False
    title = "Fan-out of a change to GET streams"
    what = "The same with sessions that subscribed to the resource, each with its GET stream."
    size_title = "GET streams"
    sizes = {10: 1, 100: 1, 1_000: 2, 5_000: 2}
    others = {10: 1, 100: 1, 1_000: 1, 5_000: 1}
    needs = Ability.GET_STREAMS
