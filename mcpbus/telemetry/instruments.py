"""The metrics: histograms that requests and messages are recorded in, and counts that are read from the bus when they are collected."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from mcpbus.core.hub import Hub
from mcpbus.telemetry import names
from mcpbus.watch.tallies import BOUNDS

_Reader = Callable[[Hub], Iterator[Observation]]


class Instruments:
    """The instruments of one meter.

    What is observed is read in a thread of the SDK: integers alone, of all buses that are open.

    Args:
        meter: Makes them.
    """

    def __init__(self, meter: Meter) -> None:
        self._buses: tuple[Hub, ...] = ()
        self._operation = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "Duration of a request, from its arrival to its result.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self._request = meter.create_histogram(
            names.REQUEST_DURATION,
            "s",
            "Duration of a request to another server, until its result is there.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self._delivery = meter.create_histogram(
            names.DELIVERY_DURATION,
            "s",
            "Time from the emission of a notification or question until it is written.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        for name, unit, meaning, read in _COUNTERS:
            meter.create_observable_counter(name, [self._callback(read)], unit, meaning)
        for name, unit, meaning, read in _LEVELS:
            meter.create_observable_up_down_counter(name, [self._callback(read)], unit, meaning)

    def ended(self, seconds: float, attributes: Mapping[str, str | int], context: Context) -> None:
        """Record the duration of a request."""
        self._operation.record(seconds, attributes, context)

    def answered(self, seconds: float, attributes: Mapping[str, str | int], context: Context) -> None:
        """Record how long a request to another server took."""
        self._request.record(seconds, attributes, context)

    def delivered(self, method: str, seconds: float) -> None:
        """Record how long a message took to be written."""
        self._delivery.record(seconds, {names.METHOD: method})

    @contextmanager
    def observing(self, bus: Hub) -> Iterator[None]:
        """Observe a bus that is open."""
        self._buses += (bus,)
        try:
            yield
        finally:
            self._buses = tuple(each for each in self._buses if each is not bus)

    def _callback(self, read: _Reader) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(_options: CallbackOptions) -> list[Observation]:
            sums: dict[tuple[tuple[str, object], ...], float] = {}
            values: dict[tuple[tuple[str, object], ...], Observation] = {}
            for bus in self._buses:
                for each in read(bus):
                    key = tuple((each.attributes or {}).items())
                    sums[key] = sums.get(key, 0) + each.value
                    values[key] = each
            return [Observation(sums[key], each.attributes) for key, each in values.items()]

        return observe


def _messages(bus: Hub) -> Iterator[Observation]:
    ledger = bus.ledger
    yield Observation(ledger.delivered, {names.FATE: "delivered"})
    yield Observation(ledger.stored, {names.FATE: "stored"})
    yield Observation(ledger.refused, {names.FATE: "refused"})
    yield Observation(ledger.moved, {names.FATE: "moved"})
    for reason, count in ledger.discarded.items():
        if count:
            yield Observation(count, {names.FATE: "discarded", names.REASON: reason.name})


def _pending(bus: Hub) -> Iterator[Observation]:
    for place, count in bus.ledger.pending.items():
        yield Observation(count, {names.PLACE: place.value})


def _limits(bus: Hub) -> Iterator[Observation]:
    for limit, count in tuple(bus.limit_monitor.counts.items()):
        yield Observation(count, {names.LIMIT: limit})


def _one(read: Callable[[Hub], int]) -> _Reader:
    def observe(bus: Hub) -> Iterator[Observation]:
        yield Observation(read(bus))

    return observe


_COUNTERS: Final[tuple[tuple[str, str, str, _Reader], ...]] = (
    (names.MESSAGE_COUNT, "{message}", "Messages by fate.", _messages),
    (names.LIMITS_REACHED, "{time}", "How often each limit was reached.", _limits),
)
_LEVELS: Final[tuple[tuple[str, str, str, _Reader], ...]] = (
    (names.PENDING, "{message}", "Messages without a fate, by place.", _pending),
    (
        names.REQUESTS,
        "{request}",
        "Requests in flight, without listens.",
        _one(lambda bus: len(bus.admission)),
    ),
    (names.SESSIONS, "{session}", "Open legacy sessions.", _one(lambda bus: len(bus.sessions))),
    (names.LISTENS, "{listen}", "Open listens.", _one(lambda bus: len(bus.listens))),
    (names.SUSPENDED, "{call}", "Suspended calls.", _one(lambda bus: len(bus.parked_calls))),
    (names.HELD, "By", "Memory that is kept for clients.", _one(lambda bus: bus.budget.held)),
)
