# ruff: noqa: SLF001 - the stream, its writer and its actor share one queue
"""The stream actor: owns a stream's outbox, and decides what becomes of it when its connection goes."""

from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Any, ClassVar

import msgspec

from actors import Address, Cell, Stopped, StopReason, System, Task, TaskEnded, Timer
from mcpbus.budget import Budget
from mcpbus.open_streams import OpenStreams
from mcpbus.options import Limits
from mcpbus.outbox import Outgoing, Withdrawal
from mcpbus.protocol.routes import Line, Reason
from mcpbus.stores.log import EventLog
from mcpbus.stream import (
    Abort,
    Cut,
    Detached,
    Ending,
    Finish,
    Poll,
    Purge,
    Returned,
    Stream,
    Supersede,
    TakeOver,
    Writer,
    Written,
)


class _Finish(msgspec.Struct, frozen=True):
    """Told by the stream to itself, so as to hear first what those were about to say who end together with it."""


class _Forsaken(msgspec.Struct, frozen=True):
    """Nobody came back to the stream."""


def open_stream(
    system: System,
    line: Line,
    limits: Limits,
    open_streams: OpenStreams,
    budget: Budget,
    *,
    owner: Address[object] | None = None,
    log: EventLog | None = None,
) -> Stream:
    """Open a stream.

    The answer of one request gets its actor from that; if it is served in brief and does not wait, perhaps never.

    Args:
        system: Where its actor lives.
        line: What kind of stream it is.
        limits: The bounds of its outbox.
        open_streams: Where it is counted while it is open.
        budget: Where it is counted what waits.
        owner: The session that a GET stream returns its leftovers to.
        log: Keeps what it says, so that its client can come back.
    """
    stream = Stream(line, limits, open_streams, budget, log, partial(_start, system, limits, owner))
    if line is not Line.OWN:
        stream.address  # noqa: B018 - it is there now
    return stream


def _start(system: System, limits: Limits, owner: Address[object] | None, stream: Stream) -> Address[object]:
    # Room for all that another stream may hand over at once, beside what is said meanwhile.
    capacity = 2 * limits.outbox_items + limits.max_requests_per_session
    return system.spawn(StreamActor, stream, owner, capacity=capacity)


class StreamActor:
    """Owns the outbox and the connection; see the module."""

    __slots__ = (
        "_cell",
        "_keeper",
        "_leaving",
        "_next",
        "_outbox",
        "_owner",
        "_patience",
        "_stream",
    )

    def __init__(self, cell: Cell[object], stream: Stream, owner: Address[object] | None) -> None:
        self._cell = cell
        self._stream = stream
        self._outbox = stream._outbox
        self._owner = owner
        self._leaving = False
        self._keeper: Task | None = None
        self._next: Writer | None = None
        self._patience: Timer | None = None
        stream._open.opened()
        cell.on_stop(self._ended)
        if owner is not None:
            cell.watch(owner)
        self._stop_if_done()  # it may have ended without an actor, and be asked for afterwards

    def handle(self, message: object) -> None:
        """Handle one message; see `actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    def _put(self, message: Outgoing) -> None:
        self._stream.put(message)

    def _written(self, _message: Written) -> None:
        self._stop_if_done()

    def _detached(self, message: Detached) -> None:
        stream, writer = self._stream, message.writer
        if self._next is writer:
            self._next = None
        if stream._writer is not writer:
            return
        stream._writer = None
        if stream.done or stream.log is None or not stream.log.resumable:
            self._cell.stop()
            return
        for lost in stream.let_go():
            lost.discard(Reason.LOST)
        if self._next is None:
            self._patience = self._cell.after(stream._patience, _Forsaken())
        self._give()

    # -- coming back -----------------------------------------------------------------------------

    def _resume(self, message: TakeOver) -> None:
        if self._next is not None and self._next.connection is not None:
            self._next.connection.cancel()
        self._next = message.writer
        writer = self._stream._writer
        if writer is not None and writer.connection is not None:
            writer.connection.cancel()
        elif writer is None and self._keeper is None:
            self._give()
        elif self._keeper is not None:
            self._keeper.cancel()

    def _give(self) -> None:
        """Give the stream, which nobody writes or keeps, to whoever is next: a connection, or the keeper."""
        stream = self._stream
        if self._leaving:
            self._cell.stop()
        elif self._next is not None:
            stream._writer, self._next = self._next, None
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
            stream._writer.grant()
        elif stream.finishing and not self._outbox:
            self._cell.stop()
        else:
            self._keeper = self._cell.start_task(_keep, stream, context=Context())

    def _keeper_ended(self, _message: TaskEnded) -> None:
        self._keeper = None
        if self._stream.log is None or not self._stream.log.resumable:
            self._cell.stop()
        elif self._stream._writer is None:
            self._give()

    def _forsaken(self, _message: _Forsaken) -> None:
        stream = self._stream
        stream.reached.note("abandoned_timeout", stream.owner, "a stream was ended", usual=True)
        self._leave()

    def _poll(self, message: Poll) -> None:
        writer, log = self._stream._writer, self._stream.log
        if writer is not None and log is not None and log.primes:
            writer.retry = message.retry
            self._stream.wake()

    # -- the end ---------------------------------------------------------------------------------

    def _last_turn(self, _message: Finish | Stopped) -> None:
        # Requests that were told to end before this have sent their replies, which are in the mailbox now.
        self._cell.address.tell(_Finish())

    def _finish(self, _message: _Finish) -> None:
        self._stream.finishing = True
        self._stop_if_done()

    def _abort(self, message: Abort) -> None:
        stream, concerned = self._stream, message.request_id
        stream.ending = message.ending
        if concerned is not None and message.ending is Ending.CANCELLED:
            self._purge(Purge.request(concerned))
        else:
            self._purge(Purge(lambda m: concerned is None or m.request_id == concerned, message.reason))
        stream.owed = 0 if concerned is None else stream.owed - 1
        if not stream.owed:
            stream.finishing = True
            stream.wake()  # the writer may keep replies back until the last one
            self._stop_if_done()

    def _supersede(self, _message: Supersede) -> None:
        # At once, and not when the connection has let go: what is said from now on has to wait for it.
        self._return(self._stream.hand_over(), ())
        self._stream.finishing = True
        self._leave()

    def _cut(self, _message: Cut) -> None:
        self._purge(Purge(lambda _: True, Reason.OVERFLOW))
        self._stream.finishing = True
        self._leave()

    def _leave(self) -> None:
        """Stop when whoever writes or keeps has let go: only then is it known what was kept, and what was lost."""
        self._leaving = True
        writer = self._stream._writer
        if self._keeper is not None:
            self._keeper.cancel()
        elif writer is not None and writer.connection is not None:
            writer.connection.cancel()
        else:
            self._cell.stop()

    def _purge(self, message: Purge) -> None:
        gone = self._outbox.purge(message.unwanted)
        for purged in gone:
            purged.discard(message.reason)
        if gone:
            self._stream.count()

    def _stop_if_done(self) -> None:
        if self._stream.done:
            self._cell.stop()

    def _ended(self, reason: StopReason) -> None:
        """Give every message that is left its fate, whatever ended the stream, and let the writer go."""
        stream = self._stream
        stream._open.ended()
        waiting, lost = self._outbox.remove(), stream.let_go()
        stream.close()
        if stream.registry is not None and stream.log is not None:
            # Where its client cancelled, or ended the session, no reply is due.
            complete = stream.log.finished or stream.ending is not None or stream.line is Line.GET
            stream.registry.ended(stream.log, complete=complete)
        if self._next is not None:
            self._next.grant()
        for message in lost:
            message.discard(Reason.LOST)
        if self._owner is None:
            failed = reason is StopReason.FAILED
            for message in waiting:
                message.discard(Reason.FAILED if failed else stream.lapse(message))
        else:
            self._return(waiting, lost)

    def _return(self, waiting: list[Outgoing], lost: Sequence[Outgoing]) -> None:
        """Give what this stream does not send any more back to the session that it belongs to."""
        if self._owner is not None and not self._owner.stopped:
            self._owner.tell(Returned(self._stream, waiting, lost))
        else:
            for message in waiting:
                message.discard(Reason.SESSION_ENDED)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Outgoing: _put,
        Withdrawal: _put,
        Written: _written,
        Detached: _detached,
        Finish: _last_turn,
        _Finish: _finish,
        Abort: _abort,
        Cut: _cut,
        Supersede: _supersede,
        Purge: _purge,
        Poll: _poll,
        TakeOver: _resume,
        Stopped: _last_turn,
        _Forsaken: _forsaken,
        TaskEnded: _keeper_ended,
    }


async def _keep(stream: Stream) -> None:
    """Put what a stream says into its log while no connection is attached."""
    assert stream.log is not None  # noqa: S101 - the actor looked
    with Writer(stream, None) as keeper:
        while (batch := await keeper.take()) is not None:
            if not batch:
                continue  # what woke it was purged, or handed over to another stream
            if await keeper.keep() is None:
                return
            keeper.stored()
