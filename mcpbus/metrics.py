"""The metrics of a bus in the text format of Prometheus, by tool where a watch runs, and the addresses at which servers offer them."""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from functools import partial
from itertools import accumulate
from time import perf_counter
from typing import Final, NamedTuple

from mcpbus.core.concurrency import background
from mcpbus.core.hub import Hub
from mcpbus.core.receipt import Location
from mcpbus.core.statistics import Statistics
from mcpbus.protocol.http.options import is_loopback
from mcpbus.protocol.routes import Reason
from mcpbus.serving import ServeOptions, serve
from mcpbus.serving.asgi import AsgiApp, Receive, Scope, Send
from mcpbus.serving.counters import ServerCounters
from mcpbus.serving.errors import CannotListenError
from mcpbus.serving.listeners import listening
from mcpbus.watch import Watch
from mcpbus.watch.tallies import BOUNDS


def addresses_of(metrics: object, workers: int = 1, *, option: str = "metrics") -> list[str]:
    """Return where each of several workers has its figures, and one more, for who is about to take another one's place.

    Args:
        metrics: Where the first one has them, as the author gave it.
        workers: How many there are; one has no successor.
        option: The name of the option.

    Raises:
        ValueError: That cannot be; the message names the option and says what can.
    """
    try:
        ServeOptions(bind=str(metrics))
    except ValueError:
        raise ValueError(
            f"{option} is {metrics!r}: write HOST:PORT (127.0.0.1:9464, [::1]:9464, port 0 for any free one), unix:PATH or fd://NUMBER"
        ) from None
    bind = str(metrics)
    if workers == 1:
        return [bind]
    if bind.startswith("fd://"):
        own = "figures" if option == "metrics" else "an inspector"
        raise ValueError(
            f"{option} is {bind!r}, one socket, and each worker has {own} of its own: write HOST:PORT or unix:PATH"
        )
    found = [address_of(bind, number) for number in range(workers + 1)]
    try:
        ServeOptions(bind=found)
    except ValueError:
        raise ValueError(
            f"{option} is {bind!r}, and {workers} workers need {workers + 1} ports from there on: write a lower one"
        ) from None
    return found


def address_of(bind: str, number: int) -> str:
    """Return where one of several workers has its figures: of `HOST:PORT` the port above, of `unix:PATH` with its number behind it."""
    host, _, port = bind.rpartition(":")
    if number == 0 or port == "0":
        return bind
    return f"{host}:{int(port) + number}" if port.isdecimal() else f"{bind}.{number}"


def check_free(metrics: object, workers: int, *, option: str = "metrics") -> None:
    """See to it that each of several workers can have its figures. One that cannot would be started again and again.

    Raises:
        CannotListenError: One of them could not; the message names the option and the address.
        ValueError: As for `addresses_of`.
    """
    bind = addresses_of(metrics, workers, option=option)
    with naming_the_option(option), listening(ServeOptions(bind=bind)):
        pass


@contextmanager
def naming_the_option(option: str = "metrics") -> Iterator[None]:
    """Have an error of the block that an address cannot be listened on say for what it was."""
    try:
        yield
    except CannotListenError as error:
        raise CannotListenError(f"{option}: {error}") from error


def check_inspect(inspect: object, workers: int = 1) -> None:
    """Refuse an address for the inspector that is not on this machine alone.

    Raises:
        ValueError: It is none; the message says what can be.
    """
    for bind in addresses_of(inspect, workers, option="inspect"):
        if not (bind.startswith("unix:") or is_loopback(bind)):
            raise ValueError(
                f"inspect is {bind!r}, which other machines reach: write a loopback address (127.0.0.1:9474) or unix:PATH"
            )


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


_log = logging.getLogger("mcpbus")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of what `exposition` returns."""
MOST_READERS: Final = 64
"""How many may be connected at once who read figures; past it an idle one makes room."""


class Figure(NamedTuple):
    """One of the figures.

    Attributes:
        name: What it is called.
        source: The attribute of `Statistics` or `ServerCounters` that has it.
        kind: `counter`, which only grows, or `gauge`.
        meaning: What it counts, in a sentence without backslash and line end. `docs/metrics.md` has the same.
        label: What sets its values apart, if there are several.
        values: The values of the label that are there from the start, so that the first of a kind is seen to grow from 0.
    """

    name: str
    source: str
    kind: str
    meaning: str
    label: str = ""
    values: tuple[Enum, ...] = ()


OF_A_BUS: Final = (
    Figure("mcpbus_sessions", "sessions", "gauge", "Legacy sessions that are open."),
    Figure("mcpbus_requests", "requests", "gauge", "Requests in flight, listens included."),
    Figure("mcpbus_listens", "listens", "gauge", "Requests in flight that are listens."),
    Figure(
        "mcpbus_messages_emitted_total",
        "emitted",
        "counter",
        "Messages made for clients: replies, notifications and questions.",
    ),
    Figure(
        "mcpbus_messages_adopted_total",
        "adopted",
        "counter",
        "Messages of sessions that were taken over from another process.",
    ),
    Figure(
        "mcpbus_messages_delivered_total",
        "delivered",
        "counter",
        "Messages that were written to the stream they belong to.",
    ),
    Figure(
        "mcpbus_messages_stored_total",
        "stored",
        "counter",
        "Messages kept for a client that lost its stream.",
    ),
    Figure(
        "mcpbus_messages_discarded_total",
        "discarded",
        "counter",
        "Messages that were given up, by reason.",
        "reason",
        tuple(Reason),
    ),
    Figure(
        "mcpbus_messages_refused_total",
        "refused",
        "counter",
        "Questions that could not be asked; their askers were told.",
    ),
    Figure(
        "mcpbus_messages_moved_total",
        "moved",
        "counter",
        "Messages handed over to another process, with their session.",
    ),
    Figure(
        "mcpbus_messages_pending",
        "pending",
        "gauge",
        "Messages without a fate, by the place where they are.",
        "place",
        tuple(Location),
    ),
    Figure("mcpbus_actors", "actors", "gauge", "Actors that are alive."),
    Figure("mcpbus_tasks", "tasks", "gauge", "Tasks that actors run."),
    Figure(
        "mcpbus_held_bytes",
        "held_bytes",
        "gauge",
        "Bytes kept in memory for clients, which Limits.memory_bytes bounds.",
    ),
    Figure(
        "mcpbus_limits_reached_total",
        "limits_reached",
        "counter",
        "How often a limit was reached, by the name of the option that sets it.",
        "limit",
    ),
)
OF_CONNECTIONS: Final = (
    Figure("mcpbus_connections", "open", "gauge", "Connections that are open."),
    Figure("mcpbus_connections_accepted_total", "accepted", "counter", "Connections that were accepted."),
    Figure(
        "mcpbus_connections_displaced_total",
        "displaced",
        "counter",
        "Idle connections that were closed to make room for others.",
    ),
    Figure(
        "mcpbus_connections_turned_away_total",
        "turned_away",
        "counter",
        "Connections for which there was no room.",
    ),
    Figure(
        "mcpbus_connections_failed_total",
        "failed",
        "counter",
        "Connections ended by a fault inside them, most often a malformed request.",
    ),
    Figure(
        "mcpbus_connections_stalled_total",
        "stalled",
        "counter",
        "Connections whose client accepted nothing for the write deadline.",
    ),
    Figure(
        "mcpbus_connections_abusive_total",
        "abusive",
        "counter",
        "Connections of HTTP/2 whose client asked for too much.",
    ),
    Figure(
        "mcpbus_http2_streams_malformed_total",
        "malformed",
        "counter",
        "Requests over HTTP/2 that were reset because they are malformed.",
    ),
    Figure(
        "mcpbus_http2_streams_refused_total",
        "refused",
        "counter",
        "Requests over HTTP/2 that were not begun, such as past the most at once in a connection.",
    ),
    Figure(
        "mcpbus_http2_streams_withheld_total",
        "withheld",
        "counter",
        "Answers over HTTP/2 given up because the client opened no window.",
    ),
    Figure(
        "mcpbus_http2_buffered_bytes",
        "buffered",
        "gauge",
        "Bytes of answers over HTTP/2 that wait for the client to open a window.",
    ),
)


def exposition(
    statistics: Statistics, counters: ServerCounters | None = None, watch: Watch | None = None
) -> bytes:
    """Return what `Bus.statistics` returned as a page for Prometheus, of the type `CONTENT_TYPE`.

    Args:
        statistics: Of the bus.
        counters: Of its connections, if who serves it counts them.
        watch: Its watch, if it has one: for the figures of calls.
    """
    lines = [line for figure in OF_A_BUS for line in _lines(figure, getattr(statistics, figure.source))]
    if counters is not None:
        lines += [
            line for figure in OF_CONNECTIONS for line in _lines(figure, getattr(counters, figure.source))
        ]
    if watch is not None:
        lines += lines_of_calls(watch)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _lines(figure: Figure, found: int | Mapping[Enum | str, int]) -> Iterator[str]:
    yield f"# HELP {figure.name} {figure.meaning}"
    yield f"# TYPE {figure.name} {figure.kind}"
    if not isinstance(found, Mapping):
        yield f"{figure.name} {found}"
        return
    numbers: dict[Enum | str, int] = {}
    numbers.update(dict.fromkeys(figure.values, 0))
    numbers.update(found)
    for value, number in numbers.items():
        named = value.name.lower() if isinstance(value, Enum) else value
        yield f'{figure.name}{{{figure.label}="{named}"}} {number}'


def metrics_app(read: Callable[[], bytes]) -> AsgiApp:
    """Return an ASGI application that has such a page at ``/metrics``, and nothing else. It needs no lifespan.

    Args:
        read: Returns it.
    """

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        fields = [(b"content-type", CONTENT_TYPE.encode()), (b"cache-control", b"no-store")]
        if scope["path"] != "/metrics":
            status, body = 404, b"Not found: figures are at /metrics\n"
        elif scope["method"] not in {"GET", "HEAD"}:
            status, body = 405, b"Figures can only be read\n"
            fields.append((b"allow", b"GET, HEAD"))
        else:
            status, body = 200, read()
        fields.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    return app


@asynccontextmanager
async def metrics_served(
    bus: Hub, counters: ServerCounters | None, bind: str, number: int
) -> AsyncIterator[None]:
    """Have the figures of a bus at an address of their own while the block lasts, its drain included.

    Args:
        bus: Whose.
        counters: Of its connections.
        bind: Where to listen, as `ServeOptions` has it.
        number: Which of several workers this is: each has the port above that of the one before it.

    Raises:
        CannotListenError: It cannot be listened on; the message names the option.
        ValueError: It is no address; so does that.
    """
    watch = bus.recorder if isinstance(bus.recorder, Watch) else None
    app = metrics_app(lambda: exposition(bus.statistics(), counters, watch))
    (first,) = addresses_of(bind)
    options = ServeOptions(bind=address_of(first, number), max_connections=MOST_READERS)
    async with background() as nursery:
        with naming_the_option():
            urls = await nursery.start(partial(serve, app, options))
        for url in urls:
            _log.info("figures are at %s/metrics", url)
            if not (url.startswith("unix:") or is_loopback(url.removeprefix("http://"))):
                _log.warning(
                    "figures at %s are told without authorization: whoever reaches it may read them", url
                )
        yield
        nursery.cancel_scope.cancel()
