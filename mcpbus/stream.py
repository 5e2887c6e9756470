# ruff: noqa: SLF001 - the stream, its writer and its actor share one queue
"""The stream actor: one logical stream to a client, and the connection that is attached to it.

`Stream` is what the rest of the bus holds. The bus's actors `send` to it; a transport's shell attaches its
connection and drains it, from the connection's own task::

    with stream.attach(cancel_scope) as writer:
        while (batch := await writer.take(keep_alive)) is not None:
            ...                       # write the whole batch in one call
            writer.written()

Nothing but that task ever waits for the client.
"""

import enum
from collections.abc import Callable
from typing import Any, ClassVar, Self

import msgspec
import trio

from actors import Address, Cell, Permit, StopReason, System
from mcpbus.fate import DELIVERED, Reason
from mcpbus.options import Limits
from mcpbus.outbox import Outbox, Outgoing
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.revisions import Era
from mcpbus.routing import Line, Situation, absent


class Ending(enum.Enum):
    """Why a stream ended without the reply that its client waits for, where it did."""

    CANCELLED = "the client cancelled the request"
    SESSION_ENDED = "the session has ended"
    CLOSED = "the server closed the stream"


class Finish(msgspec.Struct, frozen=True):
    """End the stream once what waits has been written."""


class _Finish(msgspec.Struct, frozen=True):
    """Told by the stream to itself, so as to hear first what those were about to say who end together with it."""


class Abort(msgspec.Struct, frozen=True):
    """End the stream at once; what waits is discarded for `reason`."""

    ending: Ending
    reason: Reason


class Supersede(msgspec.Struct, frozen=True):
    """A newer stream has taken this one's place, and what waited; end its connection."""


class Purge(msgspec.Struct, frozen=True):
    """Discard what waits and is `unwanted` now."""

    unwanted: Callable[[Outgoing], bool]
    reason: Reason

    @classmethod
    def request(cls, request_id: RequestId) -> Self:
        """Discard what waits for one request, which its client cancelled."""
        return cls(lambda message: message.request_id == request_id, Reason.CANCELLED)


class Returned(msgspec.Struct, frozen=True):
    """Told to the session by a GET stream that has ended.

    Attributes:
        stream: The stream.
        waiting: What nobody took from its outbox, in order; still pending.
        lost: What was being written when the connection ended; settled.
    """

    stream: "Stream"
    waiting: list[Outgoing]
    lost: list[Outgoing]


class _Written(msgspec.Struct, frozen=True):
    batch: list[Outgoing]


class _Detached(msgspec.Struct, frozen=True):
    writer: "Writer"


class OpenStreams:
    """How many streams a bus has open, for whoever waits until the last one has written what it had."""

    __slots__ = ("_count", "_none")

    def __init__(self) -> None:
        self._count = 0
        self._none: trio.Event | None = None

    def __len__(self) -> int:
        return self._count

    def opened(self) -> None:
        """Count a stream."""
        self._count += 1

    def ended(self) -> None:
        """Count a stream no longer."""
        self._count -= 1
        if not self._count and self._none is not None:
            self._none.set()

    async def wait_none(self) -> None:
        """Wait until no stream is open."""
        while self._count:
            if self._none is None:
                self._none = trio.Event()
            await self._none.wait()
            self._none = None


class Stream:
    """A logical stream to a client. Only the bus makes them.

    Attributes:
        line: What kind of stream it is.
        address: Its actor.
        ending: Why it ended without a reply; None if it did not, or has not.
    """

    __slots__ = ("_open", "_outbox", "_ready", "_writer", "_writing", "address", "ending", "line")

    address: Address[object]

    def __init__(self, line: Line, limits: Limits, open_streams: OpenStreams) -> None:
        self.line = line
        self._open = open_streams
        self.ending: Ending | None = None
        self._outbox = Outbox(limits.outbox_items, limits.outbox_bytes)
        self._writing: list[Outgoing] = []
        self._writer: Writer | None = None
        self._ready: trio.Event | None = None

    @classmethod
    def open(
        cls,
        system: System,
        line: Line,
        limits: Limits,
        open_streams: OpenStreams,
        owner: Address[object] | None = None,
    ) -> "Stream":
        """Open a stream.

        Args:
            system: Where its actor lives.
            line: What kind of stream it is.
            limits: The bounds of its outbox.
            open_streams: Where it is counted while it is open.
            owner: The session that a GET stream returns its leftovers to.
        """
        stream = cls(line, limits, open_streams)
        # Room for all that another stream may hand over at once, beside what is said meanwhile.
        capacity = 2 * limits.outbox_items + limits.max_requests_per_session
        stream.address = system.spawn(_StreamActor, stream, owner, capacity=capacity)
        return stream

    def send(self, message: Outgoing, permit: Permit[object] | None = None) -> None:
        """Queue a message for the client. Never waits; the receipt tells what became of it.

        Args:
            message: The message.
            permit: Room that was reserved for it in the mailbox, so that it cannot be refused there.
        """
        if self.address.stopped:
            message.discard(self.lapse(message))
        else:
            (permit or self.address).tell(message)

    def lapse(self, message: Outgoing) -> Reason:
        """Return why a message is discarded now that this stream is gone."""
        # On a shared channel the connection is the session, for those that have one.
        shared = self.line is Line.SHARED and message.era is Era.LEGACY
        fate = absent(message.kind, message.era, Situation.ENDED if shared else Situation.DROPPED)
        return fate if isinstance(fate, Reason) else Reason.NO_STREAM

    def hand_over(self) -> list[Outgoing]:
        """Take what waits out of the outbox, to be sent on another stream. For the session that owns it."""
        return self._outbox.remove()

    def attach(self, connection: trio.CancelScope | None = None) -> "Writer":
        """Attach a connection; its task drains the stream inside the writer's block.

        Args:
            connection: The scope in which the connection's task runs; cancelled when a newer stream takes
                this one's place. It may be given to the writer later.
        """
        writer = self._writer = Writer(self, connection)
        return writer

    def wake(self) -> None:
        """Let the writer look at the outbox. For the stream's actor."""
        if self._ready is not None:
            self._ready.set()
            self._ready = None

    def __repr__(self) -> str:
        return f"<Stream {self.line.value}, {len(self._outbox)} waiting>"


class Writer:
    """The writing end of a stream, for the task of the attached connection; leaving its block detaches it.

    Attributes:
        connection: The scope in which that task runs, if it may be cancelled.
    """

    __slots__ = ("_stream", "connection")

    def __init__(self, stream: Stream, connection: trio.CancelScope | None) -> None:
        self._stream = stream
        self.connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        address = self._stream.address
        if not address.stopped:
            address.tell(_Detached(self))

    async def take_soon(self) -> list[Outgoing] | None:
        """Take all messages that are there after two turns of the scheduler; otherwise as `take`.

        Most handlers end within these turns, and then nothing had to be set up to wait for them.
        """
        for _ in range(2):
            await trio.lowlevel.checkpoint()
            if self._stream._outbox:
                break
        return self._take()

    async def take(self, timeout: float = float("inf")) -> list[Outgoing] | None:  # noqa: ASYNC109
        """Wait for messages, and take all that there are.

        A cancellation takes nothing.

        Args:
            timeout: After how many seconds to return without a message.

        Returns:
            The batch; an empty list after `timeout`; None when the stream has ended.
        """
        stream = self._stream
        outbox = stream._outbox
        if not outbox and not outbox.closed:
            ready = stream._ready = trio.Event()
            if timeout == float("inf"):
                await ready.wait()
            else:
                with trio.move_on_after(timeout):
                    await ready.wait()
        return self._take()

    def _take(self) -> list[Outgoing] | None:
        outbox = self._stream._outbox
        batch = outbox.take()
        if not batch:
            return None if outbox.closed else batch
        self._stream._writing = batch
        return batch

    def written(self) -> None:
        """Say that the write of the batch returned, and no disconnect was seen."""
        stream = self._stream
        stream.address.tell(_Written(stream._writing))


class _StreamActor:
    """Owns the outbox and the connection; see the module."""

    def __init__(self, cell: Cell[object], stream: Stream, owner: Address[object] | None) -> None:
        self._cell = cell
        self._stream = stream
        self._outbox = stream._outbox
        self._owner = owner
        self._finishing = False
        stream._open.opened()
        cell.on_stop(self._ended)

    def handle(self, message: object) -> None:
        """Handle one message; see `actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    def _put(self, message: Outgoing) -> None:
        if self._finishing:
            message.discard(Reason.FINISHED)
            return
        self._outbox.put(message)
        if message.final:
            self._finishing = True
        self._stream.wake()

    def _written(self, message: _Written) -> None:
        self._stream._writing = []
        for written in message.batch:
            written.receipt.settle(DELIVERED)
        self._stop_if_done()

    def _detached(self, message: _Detached) -> None:
        if self._stream._writer is message.writer:
            self._stream._writer = None
            self._cell.stop()

    def _last_turn(self, _message: Finish) -> None:
        # Requests that were told to end before this have sent their replies, which are in the mailbox now.
        self._cell.address.tell(_Finish())

    def _finish(self, _message: _Finish) -> None:
        self._finishing = True
        self._stop_if_done()

    def _abort(self, message: Abort) -> None:
        self._stream.ending = message.ending
        for waiting in self._outbox.remove():
            waiting.discard(message.reason)
        self._finishing = True
        self._stop_if_done()

    def _supersede(self, _message: Supersede) -> None:
        self._finishing = True
        writer = self._stream._writer
        if writer is None or writer.connection is None:
            self._cell.stop()
        else:
            # The actor stays until the connection's task has let go: only then is it known what was lost.
            writer.connection.cancel()

    def _purge(self, message: Purge) -> None:
        for purged in self._outbox.purge(message.unwanted):
            purged.discard(message.reason)

    def _stop_if_done(self) -> None:
        if self._finishing and not self._outbox and not self._stream._writing:
            self._cell.stop()

    def _ended(self, reason: StopReason) -> None:
        """Give every message that is left its fate, whatever ended the stream, and let the writer go."""
        stream = self._stream
        stream._open.ended()
        waiting, lost = self._outbox.remove(), stream._writing
        stream._writing = []
        self._outbox.closed = True
        stream.wake()
        for message in lost:
            message.discard(Reason.LOST)
        if self._owner is None:
            failed = reason is StopReason.FAILED
            for message in waiting:
                message.discard(Reason.FAILED if failed else stream.lapse(message))
        elif self._owner.stopped:
            for message in waiting:
                message.discard(Reason.SESSION_ENDED)
        else:
            self._owner.tell(Returned(stream, waiting, lost))

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Outgoing: _put,
        _Written: _written,
        _Detached: _detached,
        Finish: _last_turn,
        _Finish: _finish,
        Abort: _abort,
        Supersede: _supersede,
        Purge: _purge,
    }
