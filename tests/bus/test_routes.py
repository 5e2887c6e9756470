"""The two routing tables, cell by cell, against the table of the specification.

Each case is a row of it: legacy (L, up to 2025-11-25) and modern (E, 2026-07-28) in its own columns. RESPONSE,
STANDALONE, LISTEN and DUPLEX are streams; HOLD is the session's; what is in lower case is the reason for which it is discarded.
"""

import pytest

from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import (
    ABSENT,
    ASKING,
    IN_REQUEST,
    ROUTES,
    HoldPolicy,
    MessageKind,
    Reason,
    StreamKind,
    StreamState,
    TransportKind,
    render,
    route,
    when_unavailable,
)
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT

NEVER = "-"
"""In a table: no such message is there, and asking for it is an error."""


def expected(cell):
    return (
        next((words[cell] for words in (StreamKind, HoldPolicy) if cell in words.__members__), None)
        or Reason[{"era": "NOT_IN_REVISION"}.get(cell, cell.upper())]
    )


def cases(rows, columns):
    return [
        pytest.param(kind, era, column, cell, id=f"{era.value}-{kind.name}-{column.name}")
        for kind, era, *cells in rows
        for column, cell in zip(columns, cells, strict=True)
    ]


L, E = Era.LEGACY, Era.MODERN

# Columns of the specification: own/oth/GET, json, sl, slj, io/ws. An "own" stream is never another POST's
# ("oth") because RESPONSE names the stream of the message's own request and no other.
TRANSPORTS = (
    TransportKind.HTTP,
    TransportKind.HTTP_JSON,
    TransportKind.STATELESS,
    TransportKind.STATELESS_JSON,
    TransportKind.DUPLEX,
)
PLACES = [
    # InitializeResult; result or error with id: own, json, sl, slj, io; never oth, never GET.
    (MessageKind.REPLY, L, "RESPONSE", "RESPONSE", "RESPONSE", "RESPONSE", "DUPLEX"),
    # progress, request running: own preferred; with JSON only it is not moved to GET (note 1).
    (MessageKind.PROGRESS, L, "RESPONSE", "no_stream", "RESPONSE", "no_stream", "DUPLEX"),
    # log caused by a request.
    (MessageKind.LOG, L, "RESPONSE", "no_stream", "RESPONSE", "no_stream", "DUPLEX"),
    # extension/custom notification tied to a request.
    (MessageKind.CUSTOM, L, "RESPONSE", "no_stream", "RESPONSE", "no_stream", "DUPLEX"),
    # sampling, elicitation, roots caused by a request: own; refused in JSON-only mode and without sessions. The
    # server's cancelled for one: the same stream as the request that it cancels.
    (MessageKind.QUESTION, L, "RESPONSE", "no_stream", "no_stream", "no_stream", "DUPLEX"),
    (MessageKind.WITHDRAWAL, L, "RESPONSE", "no_stream", "no_stream", "no_stream", "DUPLEX"),
    # the same, caused by nothing (note 2): GET alone, as for a log line.
    (MessageKind.SESSION_QUESTION, L, "STANDALONE", "STANDALONE", "no_stream", "no_stream", "DUPLEX"),
    (MessageKind.SESSION_WITHDRAWAL, L, "STANDALONE", "STANDALONE", "no_stream", "no_stream", "DUPLEX"),
    # log outside a request: GET alone; nowhere without sessions.
    (MessageKind.SESSION_LOG, L, "STANDALONE", "STANDALONE", "no_stream", "no_stream", "DUPLEX"),
    # extension/custom notification, untied.
    (MessageKind.SESSION_CUSTOM, L, "STANDALONE", "STANDALONE", "no_stream", "no_stream", "DUPLEX"),
    # list_changed, provoked by a running request or not: GET, once per session (note 3).
    (MessageKind.LIST_CHANGED, L, "STANDALONE", "STANDALONE", "no_stream", "no_stream", "DUPLEX"),
    # resources/updated for a subscribed uri: GET, once per session; no subscription memory without sessions.
    (MessageKind.RESOURCE_UPDATED, L, "STANDALONE", "STANDALONE", "no_stream", "no_stream", "DUPLEX"),
    # Listens do not exist in the legacy era (note 21).
    (MessageKind.ACKNOWLEDGED, L, NEVER, NEVER, NEVER, NEVER, NEVER),
    (MessageKind.LISTEN_RESULT, L, NEVER, NEVER, NEVER, NEVER, NEVER),
    # The tasks of the extension are not for legacy clients (TX-17).
    (MessageKind.TASK, L, NEVER, NEVER, NEVER, NEVER, NEVER),
    # Result or error with id, any method; early kernel error: own or json, io; never a listen.
    (MessageKind.REPLY, E, "RESPONSE", "RESPONSE", NEVER, NEVER, "DUPLEX"),
    # progress, request running: own; in JSON-only mode discarded.
    (MessageKind.PROGRESS, E, "RESPONSE", "no_stream", NEVER, NEVER, "DUPLEX"),
    # log, request carried logLevel, level reached (the threshold is the request's business).
    (MessageKind.LOG, E, "RESPONSE", "no_stream", NEVER, NEVER, "DUPLEX"),
    # extension notification tied to a request.
    (MessageKind.CUSTOM, E, "RESPONSE", "no_stream", NEVER, NEVER, "DUPLEX"),
    # sampling, elicitation, roots, ping as a request: nowhere; they are data inside a reply.
    (MessageKind.QUESTION, E, "era", "era", NEVER, NEVER, "era"),
    (MessageKind.WITHDRAWAL, E, "era", "era", NEVER, NEVER, "era"),
    (MessageKind.SESSION_QUESTION, E, "era", "era", NEVER, NEVER, "era"),
    (MessageKind.SESSION_WITHDRAWAL, E, "era", "era", NEVER, NEVER, "era"),
    # log outside any request: nowhere, on no transport.
    (MessageKind.SESSION_LOG, E, "era", "era", NEVER, NEVER, "era"),
    # extension notification, untied: only if an extension defines a filter for it; none does.
    (MessageKind.SESSION_CUSTOM, E, "era", "era", NEVER, NEVER, "era"),
    # list_changed: one stamped copy per matching listen, never on own.
    (MessageKind.LIST_CHANGED, E, "LISTEN", "LISTEN", NEVER, NEVER, "DUPLEX"),
    # resources/updated: per matching listen.
    (MessageKind.RESOURCE_UPDATED, E, "LISTEN", "LISTEN", NEVER, NEVER, "DUPLEX"),
    # notifications/tasks: per listen naming the task.
    (MessageKind.TASK, E, "LISTEN", "LISTEN", NEVER, NEVER, "DUPLEX"),
    # subscriptions/acknowledged: first of that id. A listen is never JSON, whatever the mode.
    (MessageKind.ACKNOWLEDGED, E, "LISTEN", "LISTEN", NEVER, NEVER, "DUPLEX"),
    # listen's closing result: its own stream, then close.
    (MessageKind.LISTEN_RESULT, E, "LISTEN", "LISTEN", NEVER, NEVER, "DUPLEX"),
]

# States of section 5: (not initialized), a never, c dropped without a store, e ended. What was answered or cancelled (d) has
# given its stream up by itself.
STATES = (
    StreamState.UNINITIALIZED,
    StreamState.NEVER,
    StreamState.DROPPED,
    StreamState.ENDED,
)
FATES = [
    # Reply: a impossible; c no stream, never to GET; e session.
    (MessageKind.REPLY, L, NEVER, NEVER, "no_stream", "session_ended"),
    # progress, in-request log: c, e. Before initialized there is no request to carry them.
    (MessageKind.PROGRESS, L, NEVER, NEVER, "no_stream", "session_ended"),
    (MessageKind.LOG, L, NEVER, NEVER, "no_stream", "session_ended"),
    (MessageKind.CUSTOM, L, NEVER, NEVER, "no_stream", "session_ended"),
    # nested request: refused once the drop is noticed, or with its session; its cancelled is then of no use either.
    (MessageKind.QUESTION, L, NEVER, NEVER, "no_stream", "session_ended"),
    (MessageKind.WITHDRAWAL, L, NEVER, NEVER, "no_stream", "session_ended"),
    (MessageKind.SESSION_QUESTION, L, NEVER, "HOLD", "HOLD", "session_ended"),
    (MessageKind.SESSION_WITHDRAWAL, L, NEVER, "no_stream", "no_stream", "session_ended"),
    # list_changed, resources/updated: HOLD until the first GET, after a drop as in a, and before initialized.
    (MessageKind.LIST_CHANGED, L, "HOLD", "HOLD", "HOLD", "session_ended"),
    (MessageKind.RESOURCE_UPDATED, L, "HOLD", "HOLD", "HOLD", "session_ended"),
    # custom, untied: as what has its value in arriving later (elicitation/complete is the model).
    (MessageKind.SESSION_CUSTOM, L, "HOLD", "HOLD", "HOLD", "session_ended"),
    # out-of-request log: never held, and exempt from waiting for initialized.
    (MessageKind.SESSION_LOG, L, NEVER, "no_stream", "no_stream", "session_ended"),
    (MessageKind.ACKNOWLEDGED, L, NEVER, NEVER, NEVER, NEVER),
    (MessageKind.LISTEN_RESULT, L, NEVER, NEVER, NEVER, NEVER),
    (MessageKind.TASK, L, NEVER, NEVER, NEVER, NEVER),
    # Modern: a drop is a cancellation, and nothing is ever held.
    (MessageKind.REPLY, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.PROGRESS, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.LOG, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.CUSTOM, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.QUESTION, E, NEVER, NEVER, NEVER, NEVER),
    (MessageKind.WITHDRAWAL, E, NEVER, NEVER, NEVER, NEVER),
    (MessageKind.SESSION_QUESTION, E, NEVER, NEVER, NEVER, NEVER),
    (MessageKind.SESSION_WITHDRAWAL, E, NEVER, NEVER, NEVER, NEVER),
    (MessageKind.LIST_CHANGED, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.RESOURCE_UPDATED, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.TASK, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.ACKNOWLEDGED, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.LISTEN_RESULT, E, NEVER, NEVER, "cancelled", NEVER),
    (MessageKind.SESSION_LOG, E, NEVER, NEVER, NEVER, NEVER),
    (MessageKind.SESSION_CUSTOM, E, NEVER, NEVER, NEVER, NEVER),
]


@pytest.mark.parametrize(("kind", "era", "transport", "cell"), cases(PLACES, TRANSPORTS))
def test_a_message_belongs_to_the_stream_that_the_specification_says(kind, era, transport, cell):
    if cell == NEVER:
        with pytest.raises(LookupError, match=f"no {era.value} client has") as error:
            route(kind, era, transport)
        assert kind.value in str(error.value)
        assert transport.value in str(error.value)
    else:
        assert route(kind, era, transport) is expected(cell)


@pytest.mark.parametrize(("kind", "era", "state", "cell"), cases(FATES, STATES))
def test_a_message_without_its_stream_has_the_fate_that_the_specification_says(kind, era, state, cell):
    if cell == NEVER:
        with pytest.raises(LookupError, match="cannot meet") as error:
            when_unavailable(kind, era, state)
        assert kind.value in str(error.value)
        assert state.value in str(error.value)
    else:
        assert when_unavailable(kind, era, state) is expected(cell)


@pytest.mark.parametrize(
    ("rows", "columns", "table"), [(PLACES, TRANSPORTS, ROUTES), (FATES, STATES, ABSENT)]
)
def test_the_tables_here_have_every_row_once_and_the_tables_there_no_other(rows, columns, table):
    assert sorted((kind.name, era.name) for kind, era, *_ in rows) == sorted(
        (kind.name, era.name) for kind in MessageKind for era in Era
    )
    written = {
        (kind, era, column)
        for kind, era, *cells in rows
        for column, cell in zip(columns, cells, strict=True)
        if cell != NEVER
    }
    assert written == set(table)


def test_no_modern_message_waits_and_no_legacy_one_is_for_a_listen():
    assert all(way is not HoldPolicy.HOLD for (_, era, _), way in ABSENT.items() if era is Era.MODERN)
    assert all(way is not StreamKind.LISTEN for (_, era, _), way in ROUTES.items() if era is Era.LEGACY)
    assert all(way is not StreamKind.STANDALONE for (_, era, _), way in ROUTES.items() if era is Era.MODERN)


def test_only_what_stands_in_a_request_or_answers_it_is_on_a_posts_stream():
    own = {kind for (kind, _, _), way in ROUTES.items() if way is StreamKind.RESPONSE}
    assert own == {MessageKind.REPLY} | IN_REQUEST | ASKING


def parsed(text):
    """Read the printed tables back: {(table, era, row, column): cell}."""
    cells, table, era, columns = {}, "", "", []
    for line in text.splitlines():
        parts = [part for part in line.split("  ") if part.strip()]
        if len(parts) == 1:
            table, columns = line, []
        elif not parts:
            columns = []
        elif not columns:
            era, *columns = [part.strip() for part in parts]
        else:
            row, *values = [part.strip() for part in parts]
            assert len(values) == len(columns)
            cells |= {(table, era, row, column): value for column, value in zip(columns, values, strict=True)}
    return cells


def test_the_printed_tables_say_what_the_tables_say():
    cells = parsed(render())
    first, second = dict.fromkeys(table for table, *_ in cells)
    for title, table in ((first, ROUTES), (second, ABSENT)):
        shown = {key[1:]: cell for key, cell in cells.items() if key[0] == title and cell != "-"}
        assert shown == {
            (era.value, kind.value, column.name.lower()): (
                f"({way.name.lower()})" if isinstance(way, Reason) else way.value
            )
            for (kind, era, column), way in table.items()
        }


def test_each_row_and_each_column_of_a_printed_table_says_something():
    lines = {}
    for (table, era, row, column), cell in parsed(render()).items():
        lines.setdefault((table, era, "row", row), set()).add(cell)
        lines.setdefault((table, era, "column", column), set()).add(cell)
    assert [line for line, cells in lines.items() if cells == {"-"}] == []
