"""Which stream a message to a client belongs to: two tables, and the function that reads them.

A message's `MessageKind` and its client's era and `TransportKind` choose the stream, before anybody looks which streams are
connected (`ROUTES`). Where that stream is not there, the `StreamState` decides between holding the message and
discarding it (`ABSENT`). Nothing else in the bus chooses a stream, and a pair that neither table has cannot
occur: looking it up is an error that names it. ``mcpbus routes`` prints both tables.

The tables follow the dated specifications ("Transports", "Progress", "Logging", "Subscriptions"). Where these
leave a choice, the row's note says which one was made.
"""

from collections.abc import Mapping, Sequence

from mcpbus.protocol.enums import IdentityEnum
from mcpbus.protocol.revisions import Era


class MessageKind(IdentityEnum):
    """The kinds of message that a server sends."""

    REPLY = "reply"
    PROGRESS = "progress"
    LOG = "log in a request"
    CUSTOM = "custom notification in a request"
    QUESTION = "request to the client"
    WITHDRAWAL = "cancelled, for a request to the client"
    SESSION_QUESTION = "request to the client outside a request"
    SESSION_WITHDRAWAL = "cancelled, for such a request to the client"
    SESSION_LOG = "log outside a request"
    SESSION_CUSTOM = "custom notification outside a request"
    LIST_CHANGED = "list_changed"
    RESOURCE_UPDATED = "resources/updated"
    ACKNOWLEDGED = "subscriptions/acknowledged"
    TASK = "tasks"
    LISTEN_RESULT = "closing result of a listen"


IN_REQUEST = frozenset({MessageKind.PROGRESS, MessageKind.LOG, MessageKind.CUSTOM})
ASKING = frozenset({MessageKind.QUESTION, MessageKind.WITHDRAWAL})
SESSION_ASKING = frozenset({MessageKind.SESSION_QUESTION, MessageKind.SESSION_WITHDRAWAL})
CHANGES = frozenset({MessageKind.LIST_CHANGED, MessageKind.RESOURCE_UPDATED})
LISTENING = frozenset({MessageKind.ACKNOWLEDGED, MessageKind.LISTEN_RESULT})


class TransportKind(IdentityEnum):
    """How the client is connected, as far as it decides routes."""

    HTTP = "http"
    """Streamable HTTP; an answer may become an SSE stream."""
    HTTP_JSON = "http, JSON only"
    """Streamable HTTP whose answers are always JSON."""
    STATELESS = "stateless"
    """Legacy Streamable HTTP without sessions; an answer may become an SSE stream."""
    STATELESS_JSON = "stateless, JSON only"
    """Legacy Streamable HTTP without sessions whose answers are always JSON."""
    DUPLEX = "duplex"
    """One channel for everything: stdio, HTTP+SSE, WebSocket, in process."""


class StreamKind(IdentityEnum):
    """The streams to a client, by what they are for."""

    RESPONSE = "response"
    """The answer to the POST of the request that it belongs to."""
    STANDALONE = "standalone"
    """The newest GET stream of the session."""
    LISTEN = "listen"
    """The stream of the `subscriptions/listen` that it is a copy for."""
    DUPLEX = "duplex"
    """The connection's one channel."""


class HoldPolicy(IdentityEnum):
    """What becomes of a message that can wait for its stream."""

    HOLD = "held"
    """Its session keeps it, within bounds, until a stream opens that may carry it."""


class StreamState(IdentityEnum):
    """How the stream is that a message belongs to and that cannot take it."""

    UNINITIALIZED = "the client has not sent initialized"
    NEVER = "no such stream was opened yet"
    DROPPED = "the stream's connection has ended"
    ENDED = "the session has ended"


class Reason(IdentityEnum):
    """Why a message was discarded."""

    NO_STREAM = "no stream that may carry it is there"
    FINISHED = "its request was answered already"
    CANCELLED = "its request was cancelled, or its client has gone"
    SUSPENDED = "its call waits for the client to come back"
    IN_TASK = "its call is a task, which carries neither progress nor logs"
    FILTERED = "the client did not ask for messages of this kind or level"
    NOT_SUBSCRIBED = "the client is not, or no longer, subscribed to that resource"
    NOT_IN_REVISION = "the client's protocol revision has no place for such a message"
    NO_TOKEN = "its request carries no progress token"  # noqa: S105 - not a password
    NOT_INCREASING = "progress must increase and did not"
    SUPERSEDED = "a newer message says all that it said"
    OVERFLOW = "the client reads too slowly: the outbox was full"
    EXPIRED = "no stream opened for it in time"
    LOST = "the connection ended while it was being written"
    SESSION_ENDED = "its session has ended"
    UNREACHABLE = "no process that has its session could be reached"
    INTERNAL_ERROR = "an internal failure ended its carrier"


Route = StreamKind | Reason
Absence = HoldPolicy | Reason


def _rows(
    kinds: frozenset[MessageKind], era: Era, **routes: Route
) -> dict[tuple[MessageKind, Era, TransportKind], Route]:
    """Return one entry for each of `kinds` and each transport in `routes`."""
    return {(kind, era, TransportKind[name]): route for kind in kinds for name, route in routes.items()}


ROUTES: Mapping[tuple[MessageKind, Era, TransportKind], Route] = {
    # A reply never moves: it is on its own stream or nowhere.
    **_rows(
        frozenset({MessageKind.REPLY}),
        Era.LEGACY,
        HTTP=StreamKind.RESPONSE,
        HTTP_JSON=StreamKind.RESPONSE,
        STATELESS=StreamKind.RESPONSE,
        STATELESS_JSON=StreamKind.RESPONSE,
        DUPLEX=StreamKind.DUPLEX,
    ),
    **_rows(
        frozenset({MessageKind.REPLY}),
        Era.MODERN,
        HTTP=StreamKind.RESPONSE,
        HTTP_JSON=StreamKind.RESPONSE,
        DUPLEX=StreamKind.DUPLEX,
    ),
    # What a request says goes with it. It is not moved to the GET stream when the answer is JSON: the legacy
    # texts want GET messages unrelated to running requests, and the modern one forbids it.
    **_rows(
        IN_REQUEST,
        Era.LEGACY,
        HTTP=StreamKind.RESPONSE,
        HTTP_JSON=Reason.NO_STREAM,
        STATELESS=StreamKind.RESPONSE,
        STATELESS_JSON=Reason.NO_STREAM,
        DUPLEX=StreamKind.DUPLEX,
    ),
    **_rows(
        IN_REQUEST, Era.MODERN, HTTP=StreamKind.RESPONSE, HTTP_JSON=Reason.NO_STREAM, DUPLEX=StreamKind.DUPLEX
    ),
    # A request to the client goes with the request that caused it and is refused where that cannot carry it; in
    # the modern era it is data inside a reply. Where the POST may not become a stream, there is nowhere to ask.
    **_rows(
        ASKING,
        Era.LEGACY,
        HTTP=StreamKind.RESPONSE,
        HTTP_JSON=Reason.NO_STREAM,
        STATELESS=Reason.NO_STREAM,
        STATELESS_JSON=Reason.NO_STREAM,
        DUPLEX=StreamKind.DUPLEX,
    ),
    **_rows(
        ASKING,
        Era.MODERN,
        HTTP=Reason.NOT_IN_REVISION,
        HTTP_JSON=Reason.NOT_IN_REVISION,
        DUPLEX=Reason.NOT_IN_REVISION,
    ),
    # What no request caused. A change caused by a running request counts among these too: it concerns the
    # session, not the request. That a client is asked something no request of its own is about, the texts up to 2025-11-25
    # allow; later guidance has clients refuse it, so it happens only where an author asks a session.
    **_rows(
        CHANGES | SESSION_ASKING | {MessageKind.SESSION_LOG, MessageKind.SESSION_CUSTOM},
        Era.LEGACY,
        HTTP=StreamKind.STANDALONE,
        HTTP_JSON=StreamKind.STANDALONE,
        STATELESS=Reason.NO_STREAM,
        STATELESS_JSON=Reason.NO_STREAM,
        DUPLEX=StreamKind.DUPLEX,
    ),
    **_rows(
        CHANGES, Era.MODERN, HTTP=StreamKind.LISTEN, HTTP_JSON=StreamKind.LISTEN, DUPLEX=StreamKind.DUPLEX
    ),
    **_rows(
        SESSION_ASKING | {MessageKind.SESSION_LOG, MessageKind.SESSION_CUSTOM},
        Era.MODERN,
        HTTP=Reason.NOT_IN_REVISION,
        HTTP_JSON=Reason.NOT_IN_REVISION,
        DUPLEX=Reason.NOT_IN_REVISION,
    ),
    # Two pages of the specification disagree on how a server ends a listen: with a result, or with a cancelled notification
    # on a shared channel. Clients take the latter for a loss, even after the result, which alone is an end in good order.
    # How a task is goes to those listens alone that name it, also while its handler's request is open.
    **_rows(
        frozenset({MessageKind.ACKNOWLEDGED, MessageKind.TASK, MessageKind.LISTEN_RESULT}),
        Era.MODERN,
        HTTP=StreamKind.LISTEN,
        HTTP_JSON=StreamKind.LISTEN,
        DUPLEX=StreamKind.DUPLEX,
    ),
}


def _fates(
    kinds: frozenset[MessageKind], era: Era, **fates: Absence
) -> dict[tuple[MessageKind, Era, StreamState], Absence]:
    """Return one entry for each of `kinds` and each state in `fates`."""
    return {(kind, era, StreamState[name]): fate for kind in kinds for name, fate in fates.items()}


ABSENT: Mapping[tuple[MessageKind, Era, StreamState], Absence] = {
    **_fates(
        IN_REQUEST | ASKING | {MessageKind.REPLY},
        Era.LEGACY,
        DROPPED=Reason.NO_STREAM,
        ENDED=Reason.SESSION_ENDED,
    ),
    # Changes and custom notifications are of use later; a log line is not, and may not wait.
    **_fates(
        CHANGES | {MessageKind.SESSION_CUSTOM},
        Era.LEGACY,
        UNINITIALIZED=HoldPolicy.HOLD,
        NEVER=HoldPolicy.HOLD,
        DROPPED=HoldPolicy.HOLD,
        ENDED=Reason.SESSION_ENDED,
    ),
    # A question waits as long as whoever asks does. What withdraws one is not kept for a stream that may come.
    **_fates(
        frozenset({MessageKind.SESSION_QUESTION}),
        Era.LEGACY,
        NEVER=HoldPolicy.HOLD,
        DROPPED=HoldPolicy.HOLD,
        ENDED=Reason.SESSION_ENDED,
    ),
    **_fates(
        frozenset({MessageKind.SESSION_LOG, MessageKind.SESSION_WITHDRAWAL}),
        Era.LEGACY,
        NEVER=Reason.NO_STREAM,
        DROPPED=Reason.NO_STREAM,
        ENDED=Reason.SESSION_ENDED,
    ),
    # A modern client that has gone has cancelled; nothing is kept, since nothing could name its heir.
    **_fates(
        IN_REQUEST | CHANGES | LISTENING | {MessageKind.REPLY, MessageKind.TASK},
        Era.MODERN,
        DROPPED=Reason.CANCELLED,
    ),
}


def route(kind: MessageKind, era: Era, transport: TransportKind) -> Route:
    """Return the stream that such a message belongs to, or why it belongs to none.

    Raises:
        LookupError: Such a message cannot occur there; the text names it.
    """
    try:
        return ROUTES[kind, era, transport]
    except KeyError:
        raise LookupError(f"no {era.value} client has a {kind.value!r} over {transport.value!r}") from None


def when_unavailable(kind: MessageKind, era: Era, state: StreamState) -> Absence:
    """Return what becomes of such a message while its stream cannot take it: `HoldPolicy.HOLD`, or a reason.

    Raises:
        LookupError: That cannot happen to such a message; the text names it.
    """
    try:
        return ABSENT[kind, era, state]
    except KeyError:
        raise LookupError(f"a {era.value} {kind.value!r} cannot meet {state.value!r}") from None


def render() -> str:
    """Return both tables as text, one row a line, for people."""
    lines = ["Which stream a message belongs to", ""]
    for era in Era:
        transports = [s for s in TransportKind if any((k, era, s) in ROUTES for k in MessageKind)]
        lines += _table(era.value, transports, {(k, s): r for (k, e, s), r in ROUTES.items() if e is era})
    lines += ["What becomes of it while that stream cannot take it", ""]
    for era in Era:
        states = [s for s in StreamState if any((k, era, s) in ABSENT for k in MessageKind)]
        lines += _table(era.value, states, {(k, s): r for (k, e, s), r in ABSENT.items() if e is era})
    return "\n".join(lines)


def _table(
    title: str,
    columns: Sequence[IdentityEnum],
    cells: Mapping[tuple[MessageKind, IdentityEnum], Route | Absence],
) -> list[str]:
    kinds = [kind for kind in MessageKind if any((kind, column) in cells for column in columns)]
    rows = [[title, *(column.name.lower() for column in columns)]]
    for kind in kinds:
        routes = (cells.get((kind, column)) for column in columns)
        rows.append([kind.value, *("-" if r is None else _cell(r) for r in routes)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [*lines, ""]


def _cell(route: Route | Absence) -> str:
    return f"({route.name.lower()})" if isinstance(route, Reason) else route.value
