"""What a handler said before it waited for anything, and its reply, as one whole answer; where a store is to keep it, once that has it.

There is no stream then, which nobody could see: what is kept has its log in its session all the same, from which a client that has got a
part of it fetches the rest.
"""

import math

from mcpbus.core.event_log import EventLog
from mcpbus.core.hub import Hub
from mcpbus.core.message_builder import InlineNotifications
from mcpbus.core.outbox import data_of, receipts_of
from mcpbus.core.receipt import LOST, STORED, Location, Receipt, enter_all, enter_settled, settle_all
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.http.sse import HEADERS, encode_event, encode_events, encode_numbered
from mcpbus.protocol.routes import StreamKind
from mcpbus.transports.ledger_responses import LedgerResponse
from mcpbus.transports.response_sinks import ResponseSink


def answer_burst(
    bus: Hub,
    context: RequestContext,
    sink: ResponseSink,
    gathered: InlineNotifications,
    result: bytes | ProtocolError,
    *,
    keeps: bool,
) -> HttpResponse | None:
    """Answer with what was said, and an outcome, that were there at once.

    Args:
        bus: The bus.
        context: The request.
        sink: Who writes the answer.
        gathered: What was said.
        result: The encoded result object, or the error to answer with.
        keeps: Whether it is kept in the store before it is written.

    Returns:
        The answer; None if the sink has it written when the store has told what is kept.
    """
    reply = bus.ledger.draft_reply(context.request.method, context)
    receipts = [*receipts_of(gathered.messages), reply]
    try:
        said = [*data_of(gathered.messages), context.revision.encode_reply(context.request.id, result)]
        if not keeps:
            return LedgerResponse(200, HEADERS, encode_events(said), receipts=receipts)
        burst = _open_burst(bus, context, sink, said, receipts)
    except Exception:  # there is no memory for it
        enter_settled(receipts, LOST)
        raise
    return burst.keep()


def _open_burst(
    bus: Hub,
    context: RequestContext,
    sink: ResponseSink,
    said: list[bytes],
    receipts: list[Receipt],
) -> "_StoredInlineNotifications":
    session = context.session
    assert session is not None  # noqa: S101 - the caller looked
    log = bus.open_log(StreamKind.RESPONSE, session)
    assert log is not None  # noqa: S101 - likewise
    if bus.process is not None:
        session.streams.name_after(log, bus.process, context.request.id)
    return _StoredInlineNotifications(session, log, said, receipts, sink)


class _StoredInlineNotifications:
    """A burst of which the store is asked that it keep it. It is what its sink waits for, see `KeepAliveHandler`.

    Args:
        session: The session.
        log: Its log there.
        said: What was said, and the reply, encoded, in order.
        receipts: Theirs.
        sink: Who is to write it.
    """

    __slots__ = ("_answer", "_client_left", "_log", "_receipts", "_said", "_session", "_sink", "_waits")

    def __init__(
        self,
        session: Session,
        log: EventLog,
        said: list[bytes],
        receipts: list[Receipt],
        sink: ResponseSink,
    ) -> None:
        self._session = session
        self._log = log
        self._said = said
        self._receipts = receipts
        self._sink = sink
        self._waits = False
        self._answer: HttpResponse | None = None
        self._client_left = False

    def keep(self) -> HttpResponse | None:
        """Ask the store, and return the answer if that has told at once."""
        enter_all(self._receipts, Location.WRITING)
        self._log.append_soon(self._said, self._hear, final=True)
        if self._answer is None:
            # For longer than a store may take it does not wait; nothing can be said meanwhile.
            self._waits = self._sink.on_handler_waiting(self, math.inf)
        return self._answer

    def keep_alive(self) -> None:
        """See `KeepAliveHandler`: what is said goes out only when the store has it."""

    def cancel(self) -> None:
        """See `KeepAliveHandler`."""
        self._client_left = True

    def _hear(self, first: int | None) -> None:
        """Hear what is kept."""
        self._session.streams.ended(self._log, complete=True)
        receipts, lost = self._receipts, LOST if first is None else STORED
        if self._client_left:
            settle_all(receipts, lost)
            return
        try:
            self._answer = LedgerResponse(200, HEADERS, self._encode(first), receipts=receipts, lost=lost)
        except Exception as failure:  # there is no memory: others that wait for the store are not to blame
            settle_all(receipts, lost)
            if not self._waits:
                raise
            self._sink.fail(failure)
            return
        if self._waits:
            self._sink.finish(self._answer)

    def _encode(self, first: int | None) -> bytes:
        said, log = self._said, self._log
        if first is None:
            return encode_events(said)
        before = encode_event(b"", id=f"{log.name}.{first - 1}") if log.primes else b""
        return before + encode_numbered(said, log.name, first)
