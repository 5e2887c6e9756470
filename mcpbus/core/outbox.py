"""What waits for one stream's writer: a queue that is bounded in items and in bytes.

Room is made in a fixed order when a notification finds the outbox full: notifications with the same key
collapse into the newest, then the oldest log lines go, and if that is not enough the newcomer is discarded.
Replies, acknowledgements and the end of a listen are never refused: there is at most one of each for a request,
and requests are bounded at admission. They queue behind what was said before them.
"""

from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import TypeAlias

import msgspec

from mcpbus.core.receipt import Location, Receipt, enter_all, move_all
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import IN_REQUEST, MessageKind, Reason, StreamKind

OVERHEAD_BYTES = 128
"""What a queued message costs beside its data, roughly, in bytes."""

BOUNDED = IN_REQUEST | {
    MessageKind.QUESTION,
    MessageKind.SESSION_QUESTION,
    MessageKind.SESSION_LOG,
    MessageKind.SESSION_CUSTOM,
    MessageKind.LIST_CHANGED,
    MessageKind.RESOURCE_UPDATED,
    MessageKind.TASK,
}
"""What handlers and programs say, of which there may be any number. Of the other kinds, requests bound it."""
_STREAMS = {
    StreamKind.RESPONSE: "the answer to a request",
    StreamKind.STANDALONE: "a GET stream",
    StreamKind.LISTEN: "a listen",
    StreamKind.DUPLEX: "a connection",
}
_LOGS = frozenset({MessageKind.LOG, MessageKind.SESSION_LOG})
_Said: TypeAlias = tuple[RequestId | None, Hashable]
_OUTBOX, _WRITING = Location.OUTBOX, Location.WRITING


class OutboundMessage(msgspec.Struct, eq=False, gc=False):
    """One encoded message on its way to one stream.

    Attributes:
        kind: What it is, for routing.
        era: The era of the client, for routing.
        data: The JSON-RPC message, one line of UTF-8.
        receipt: Its place in the books.
        key: Messages of one request, or of none, with the same key say the same thing; the newest is enough. None
            collapses with nothing.
        request_id: The request that it belongs to, or None.
        final: Whether it is one of the replies that its stream owes; once it is in the outbox, whether it is the last.
        error: What is replied, if it is an error.
        session_id: The id of the session that it opens, if it is an InitializeResult over HTTP.
        refused: Told why, if it is a request to the client that is refused; its sender must not wait for ever.
    """

    kind: MessageKind
    era: Era
    data: bytes
    receipt: Receipt
    key: Hashable = None
    request_id: RequestId | None = None
    final: bool = False
    error: ProtocolError | None = None
    session_id: str | None = None
    refused: Callable[[Reason], object] | None = None

    def discard(self, reason: Reason) -> None:
        """Give it the fate of what is not sent: discarded, or refused if somebody waits for its answer."""
        if self.refused is None:
            self.receipt.discard(reason)
        else:
            self.receipt.refuse(reason)
            self.refused(reason)

    def __repr__(self) -> str:
        return f"<OutboundMessage {self.kind.value}, {len(self.data)} bytes, {self.receipt!r}>"


_RECEIPT, _DATA = attrgetter("receipt"), attrgetter("data")


def receipts_of(messages: Iterable[OutboundMessage]) -> list[Receipt]:
    """Return the receipts of messages."""
    return list(map(_RECEIPT, messages))


def data_of(messages: Iterable[OutboundMessage]) -> list[bytes]:
    """Return the encoded messages."""
    return list(map(_DATA, messages))


class Withdrawal(OutboundMessage, eq=False, gc=False, kw_only=True):
    """Tells the client that a question needs no answer any more.

    Attributes:
        question: The question's place in the books.
    """

    question: Receipt

    @property
    def due(self) -> bool:
        """Whether the question is more than something that waits beside it: only then is there anything to withdraw."""
        return self.question.location is not Location.OUTBOX


class Outbox:
    """The queue of one stream.

    Args:
        max_items: How many notifications may wait.
        max_bytes: How many bytes of notifications may wait, `OVERHEAD_BYTES` a message included.

    Attributes:
        closed: Whether nothing is put in any more.
        half_full: Whether half of the notifications wait that may, or more.
        queued_bytes: How many bytes wait, of whatever kind.
        max_bytes: As given.
        join_limit: Up to how many bytes may wait so that nobody has to hear of what joins them; 0 if somebody has to of all.
    """

    __slots__ = (
        "_half_bytes",
        "_half_items",
        "_logs_from",
        "_max_items",
        "_queue",
        "_reserved_bytes",
        "_reserved_items",
        "_said",
        "closed",
        "half_full",
        "join_limit",
        "max_bytes",
        "queued_bytes",
    )

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self.max_bytes = max_bytes
        self._half_items = (max_items + 1) // 2
        self._half_bytes = (max_bytes + 1) // 2
        self.half_full = False
        self._queue: list[OutboundMessage] | tuple[()] = ()  # most outboxes are empty, and share that
        self._reserved_items = 0  # of the kinds that are not bounded here, like the bytes
        self._reserved_bytes = 0
        self.queued_bytes = 0
        self.join_limit = 0
        # For a client that takes nothing for long, to whom much is said: what is known of the queue once it was full.
        # Who says what, each once; None while that is not known.
        self._said: dict[_Said, OutboundMessage] | None = None
        self._logs_from = 0  # before this one there is no log line
        self.closed = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def oldest(self) -> OutboundMessage | None:
        """The message that has waited for the longest, if one waits."""
        return self._queue[0] if self._queue else None

    def put(self, message: OutboundMessage) -> str | None:
        """Queue a message, or discard it where there is no room; other notifications may go in its favour.

        Returns:
            The option whose bound was reached, so that a message was discarded; None as a rule.
        """
        size = len(message.data) + OVERHEAD_BYTES
        full = None
        if message.kind in BOUNDED:
            items = len(self._queue) - self._reserved_items + 1
            waiting = self.queued_bytes - self._reserved_bytes + size
            if items >= self._half_items or waiting >= self._half_bytes:
                if items > self._max_items or waiting > self.max_bytes:
                    full = "outbox_items" if items > self._max_items else "outbox_bytes"
                    if not self._make_room(message, size):
                        message.discard(Reason.OVERFLOW)
                        return full
                self._validate_crowd(1, size)
        else:
            self._reserved_items += 1
            self._reserved_bytes += size
        self.queued_bytes += size
        if self._said is not None and message.key is not None:
            self._note(message, self._said)
        message.receipt.move(_OUTBOX)
        if self._queue:
            self._queue.append(message)
        else:
            self._queue = [message]
        return full

    def begin(self, said: list[OutboundMessage], held: int) -> None:
        """Queue drafted notifications, which take so many bytes and do not crowd it, in an empty outbox; enter them in the books."""
        self._queue, self.queued_bytes = said, held
        enter_all(receipts_of(said), _OUTBOX)

    def allow_joining(self, most: int) -> None:
        """Let others `try_append` what waits until that is taken, which will be soon; up to so many bytes, and before it is crowded.

        Not once it was full: then it is noted of each who says what.
        """
        if self._queue and self._said is None:
            self.join_limit = min(most, self._half_bytes, self._half_items * OVERHEAD_BYTES)

    def try_append(self, message: OutboundMessage) -> bool:
        """Queue a drafted notification, and enter it in the books, if nobody has to hear of it; return whether that is so."""
        size = len(message.data) + OVERHEAD_BYTES
        held = self.queued_bytes + size
        if held >= self.join_limit:
            return False
        self.queued_bytes = held
        message.receipt.emit(_OUTBOX)
        self._queue.append(message)  # type: ignore[union-attr]  # it is a list while others may join
        return True

    def take(self) -> list[OutboundMessage]:
        """Take everything that waits, in order, to be written at once."""
        if not self._queue:
            return []
        batch = self.remove()
        move_all(receipts_of(batch), _WRITING)
        return batch

    def remove(self) -> list[OutboundMessage]:
        """Take everything that waits, in order, to be sent elsewhere or discarded."""
        batch = self._queue or []
        self._queue, self._said, self.half_full = (), None, False
        self._reserved_items = self._reserved_bytes = self._logs_from = self.queued_bytes = (
            self.join_limit
        ) = 0
        return batch

    def remove_if(self, unwanted: Callable[[OutboundMessage], bool]) -> list[OutboundMessage]:
        """Take out what is `unwanted`; the rest keeps its order."""
        gone = [message for message in self._queue if unwanted(message)]
        self._drop(gone)
        return gone

    def _fits(self, size: int) -> bool:
        items, waiting = len(self._queue) - self._reserved_items, self.queued_bytes - self._reserved_bytes
        return items < self._max_items and waiting + size <= self.max_bytes

    def _validate_crowd(self, more: int = 0, more_bytes: int = 0) -> None:
        items = len(self._queue) - self._reserved_items + more
        waiting = self.queued_bytes - self._reserved_bytes + more_bytes
        self.half_full = items >= self._half_items or waiting >= self._half_bytes

    def _make_room(self, newcomer: OutboundMessage, size: int) -> bool:
        if size > self.max_bytes:
            return False
        self._supersede(newcomer)
        while not self._fits(size) and (log := self._take_log()) is not None:
            log.discard(Reason.OVERFLOW)
        return self._fits(size)

    def _supersede(self, newcomer: OutboundMessage) -> None:
        """Discard what waits and what a newer message, or the newcomer, says as well."""
        said = _said_by(newcomer)
        if self._said is None:
            self._collapse(said)
        elif (older := self._said.get(said)) is not None:
            self._take(self._queue.index(older)).discard(Reason.SUPERSEDED)

    def _collapse(self, newest: _Said) -> None:
        """Discard what waits and what a newer message, or the one that says `newest`, says as well."""
        known: dict[_Said, OutboundMessage] = {}
        superseded = []
        for message in reversed(self._queue):
            if message.key is not None:
                said = _said_by(message)
                if said == newest or said in known:
                    superseded.append(message)
                else:
                    known[said] = message
        self._drop(superseded)
        self._said, self.join_limit = known, 0
        for message in superseded:
            message.discard(Reason.SUPERSEDED)

    def _note(self, message: OutboundMessage, known: dict[_Said, OutboundMessage]) -> None:
        """Note that a message joins a queue of which it is known what it says."""
        said = _said_by(message)
        if said in known:
            self._said = None
        else:
            known[said] = message

    def _take_log(self) -> OutboundMessage | None:
        """Take the oldest log line out of the queue; None if there is none."""
        while self._logs_from < len(self._queue):
            if self._queue[self._logs_from].kind in _LOGS:
                return self._take(self._logs_from)
            self._logs_from += 1
        return None

    def _take(self, index: int) -> OutboundMessage:
        """Take one message out of a queue of which it is known what it says."""
        assert isinstance(self._queue, list)  # noqa: S101 - there is a message in it
        assert self._said is not None  # noqa: S101 - it is known
        message = self._queue.pop(index)
        if index < self._logs_from:
            self._logs_from -= 1
        self._said.pop(_said_by(message), None)
        self._uncount(message)
        return message

    def _drop(self, messages: list[OutboundMessage]) -> None:
        if messages:
            gone = set(map(id, messages))
            self._queue = [message for message in self._queue if id(message) not in gone]
            self._said, self._logs_from = None, 0
            for message in messages:
                self._uncount(message)

    def _uncount(self, message: OutboundMessage) -> None:
        size = len(message.data) + OVERHEAD_BYTES
        self.queued_bytes -= size
        if message.kind not in BOUNDED:
            self._reserved_items -= 1
            self._reserved_bytes -= size
        self._validate_crowd()


def overflowed(stream: StreamKind, message: OutboundMessage) -> str:
    """What became of what waits where a message found an outbox full, for the log."""
    return f"its client reads {_STREAMS[stream]} too slowly, and something was discarded at {message.receipt.method}"


def _said_by(message: OutboundMessage) -> _Said:
    return message.request_id, message.key
