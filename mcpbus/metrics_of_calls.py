"""The figures of a watched bus for Prometheus: calls by tool, failures, and the oldest request and message."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from time import perf_counter
from typing import Final, NamedTuple

from mcpbus.watch import Watch
from mcpbus.watch.tallies import BOUNDS


class CallFigure(NamedTuple):
    """One of the figures; see `mcpbus.metrics.Figure`.

    Attributes:
        name: Its name.
        kind: `histogram`, `counter` or `gauge`.
        meaning: What it counts, in a sentence. `docs/metrics.md` has the same.
        label: The names of its labels.
    """

    name: str
    kind: str
    meaning: str
    label: str = ""


_DURATION: Final = CallFigure(
    "mcpbus_operation_duration_seconds",
    "histogram",
    "Durations of ended requests, by method and by tool or prompt.",
    "method,name",
)
_FAILURES: Final = CallFigure(
    "mcpbus_operation_failures_total",
    "counter",
    "Requests that failed, by the class of the exception or the code of the error.",
    "method,name,error",
)
_OLDEST_REQUEST: Final = CallFigure(
    "mcpbus_oldest_request_seconds", "gauge", "Age of the oldest request in flight, 0 for none."
)
_OLDEST_MESSAGE: Final = CallFigure(
    "mcpbus_oldest_message_seconds", "gauge", "Age of the oldest message without a fate, 0 for none."
)
OF_A_WATCH: Final = (_DURATION, _FAILURES, _OLDEST_REQUEST, _OLDEST_MESSAGE)


def lines_of_calls(watch: Watch) -> Iterator[str]:
    """Yield the lines of the page that come from a watch."""
    tallies = sorted(watch.records.tallies.by_label.values(), key=lambda tally: str(tally.label))
    yield from _head(_DURATION)
    for tally in tallies:
        labels = {"method": tally.label[0], "name": tally.label[1] or ""}
        for bound, number in zip((*map(str, BOUNDS), "+Inf"), accumulate(tally.counts), strict=True):
            yield f"{_DURATION.name}_bucket{_labels({**labels, 'le': bound})} {number}"
        yield f"{_DURATION.name}_sum{_labels(labels)} {tally.seconds:.6f}"
        yield f"{_DURATION.name}_count{_labels(labels)} {tally.calls}"
    yield from _head(_FAILURES)
    for tally in tallies:
        labels = {"method": tally.label[0], "name": tally.label[1] or ""}
        for error, number in tally.failures.items():
            yield f"{_FAILURES.name}{_labels({**labels, 'error': error})} {number}"
    yield from _head(_OLDEST_REQUEST)
    began = (life.began for life, _, _ in watch.in_flight() if life.seconds is None)
    yield f"{_OLDEST_REQUEST.name} {_age(began)}"
    yield from _head(_OLDEST_MESSAGE)
    made = (receipt.made for receipt in watch.records.tape if receipt.fate is None)
    yield f"{_OLDEST_MESSAGE.name} {_age(made)}"


def _head(figure: CallFigure) -> Iterator[str]:
    yield f"# HELP {figure.name} {figure.meaning}"
    yield f"# TYPE {figure.name} {figure.kind}"


def _age(times: Iterable[float]) -> str:
    now = perf_counter()
    return f"{now - min(times, default=now):.6f}"


def _labels(values: dict[str, str]) -> str:
    # A name of an upstream server's tool may have any character.
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name, value in values.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
