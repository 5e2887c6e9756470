"""What a bus has done and holds, in the text format that Prometheus and its kin read."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from mcpbus.core.hub import Hub
from mcpbus.core.nursery import background
from mcpbus.core.receipt import Location
from mcpbus.core.statistics import Statistics
from mcpbus.metrics_address import address_of, addresses_of, naming_the_option
from mcpbus.metrics_of_calls import lines_of_calls
from mcpbus.protocol.http.options import is_loopback
from mcpbus.protocol.routes import Reason
from mcpbus.serving import ServeOptions, serve
from mcpbus.serving.asgi import AsgiApp, Receive, Scope, Send
from mcpbus.serving.counters import ServerCounters
from mcpbus.watch import Watch

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
