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
from contextvars import Context
from typing import Any, ClassVar, Self

import msgspec
import trio

from actors import Address, Cell, Permit, StopReason, System, Task, TaskEnded, Timer
from mcpbus.fate import DELIVERED, STORED, Reason
from mcpbus.options import Limits
from mcpbus.outbox import Outbox, Outgoing
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.revisions import Era
from mcpbus.routing import Line, Situation, absent
from mcpbus.stores.log import EventLog


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
    """End the stream at once, or a request's part in it; what waits is discarded for `reason`.

    Attributes:
        ending: Why.
        reason: The same, for what waits.
        request_id: The request that ends, if the stream may owe replies to others too; None for the whole stream.
    """

    ending: Ending
    reason: Reason
    request_id: RequestId | None = None


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


class _Resume(msgspec.Struct, frozen=True):
    writer: "Writer"


class Poll(msgspec.Struct, frozen=True):
    """Close the connection, not the stream: its client comes back for the rest.

    Attributes:
        retry: After how many seconds it may.
    """

    retry: float


class _Kept(msgspec.Struct, frozen=True):
    batch: list[Outgoing]


class _Forsaken(msgspec.Struct, frozen=True):
    """Nobody came back to the stream."""


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
        owed: How many replies are still to come before it ends: one, unless it is set anew for a batch of requests.
        log: What it has said, if its client can come back for it.
        registry: Where it is found by its log's name while it lives.
    """

    __slots__ = (
        "_open",
        "_outbox",
        "_patience",
        "_ready",
        "_writer",
        "_writing",
        "address",
        "ending",
        "line",
        "log",
        "owed",
        "registry",
    )

    address: Address[object]

    def __init__(self, line: Line, limits: Limits, open_streams: OpenStreams, log: EventLog | None) -> None:
        self.line = line
        self.log = log
        self.registry: dict[str, Stream] | None = None
        self._patience = limits.abandoned_timeout
        self._open = open_streams
        self.ending: Ending | None = None
        self.owed = 1
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
        *,
        owner: Address[object] | None = None,
        log: EventLog | None = None,
    ) -> "Stream":
        """Open a stream.

        Args:
            system: Where its actor lives.
            line: What kind of stream it is.
            limits: The bounds of its outbox.
            open_streams: Where it is counted while it is open.
            owner: The session that a GET stream returns its leftovers to.
            log: Keeps what it says, so that its client can come back.
        """
        stream = cls(line, limits, open_streams, log)
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

    @property
    def waiting(self) -> int:
        """How many messages wait for its writer."""
        return len(self._outbox)

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

    async def resume(self, connection: trio.CancelScope) -> "Writer | None":
        """Take the stream over from a connection that its client has lost; None if it has ended meanwhile.

        Returns once nobody else writes or keeps anything of it. What is said in the meantime waits.
        """
        writer = Writer(self, connection)
        writer.granted = trio.Event()
        if not self.address.stopped:
            self.address.tell(_Resume(writer))
            try:
                await writer.granted.wait()
            except trio.Cancelled:
                writer.__exit__()
                raise
        return None if self.address.stopped else writer

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
        granted: Set when the stream is this writer's own, if it had to wait for that.
        retry: After how many seconds the client should come back; None unless the connection is to be closed.
    """

    __slots__ = ("_held_back", "_kept", "_stream", "connection", "granted", "retry")

    def __init__(self, stream: Stream, connection: trio.CancelScope | None) -> None:
        self._stream = stream
        self._kept = False
        self._held_back = False
        self.connection = connection
        self.granted: trio.Event | None = None
        self.retry: float | None = None

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
        if not outbox and not outbox.closed and self.retry is None:
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
        if self._held_back:
            self._held_back = False
            batch = [*self._stream._writing, *batch]
        if not batch:
            return None if outbox.closed else batch
        self._stream._writing = batch
        return batch

    def hold_back(self) -> None:
        """Do not write the batch yet: the next one that is taken begins with it."""
        self._held_back = True

    async def keep(self) -> list[str] | None:
        """Put the batch into the stream's log before it is written, and return the ids of its events, if it is kept."""
        stream = self._stream
        if stream.log is None:
            return None
        ids = await stream.log.append(stream._writing)
        self._kept = ids is not None
        return ids

    @property
    def kept(self) -> bool:
        """Whether the batch that is being written is in the log."""
        return self._kept

    def written(self) -> None:
        """Say that the write of the batch returned, and no disconnect was seen."""
        stream = self._stream
        self._kept = False
        stream.address.tell(_Written(stream._writing))


class _StreamActor:
    """Owns the outbox and the connection; see the module."""

    def __init__(self, cell: Cell[object], stream: Stream, owner: Address[object] | None) -> None:
        self._cell = cell
        self._stream = stream
        self._outbox = stream._outbox
        self._owner = owner
        self._finishing = False
        self._keeper: Task | None = None
        self._next: Writer | None = None
        self._patience: Timer | None = None
        stream._open.opened()
        cell.on_stop(self._ended)

    def handle(self, message: object) -> None:
        """Handle one message; see `actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    def _put(self, message: Outgoing) -> None:
        if self._finishing:
            message.discard(Reason.FINISHED)
            return
        if message.final:
            self._stream.owed -= 1
            message.final = self._finishing = not self._stream.owed
        self._outbox.put(message)
        self._stream.wake()

    def _written(self, message: _Written) -> None:
        if self._stream._writing is message.batch:
            self._stream._writing = []
        for written in message.batch:
            written.receipt.settle(DELIVERED)
        self._stop_if_done()

    def _detached(self, message: _Detached) -> None:
        stream, writer = self._stream, message.writer
        if self._next is writer:
            self._next = None
        if stream._writer is not writer:
            return
        if writer.kept:
            for kept in stream._writing:
                kept.receipt.settle(STORED)
            if stream._writing[-1].final:
                stream._writing = []
                self._cell.stop()
                return
            stream._writing = []
        stream._writer = None
        if stream.log is None or not stream.log.resumable:
            self._cell.stop()
            return
        for lost in stream._writing:
            lost.discard(Reason.LOST)
        stream._writing = []
        if self._next is None:
            self._patience = self._cell.after(stream._patience, _Forsaken())
        self._give()

    # -- coming back -----------------------------------------------------------------------------

    def _resume(self, message: _Resume) -> None:
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
        if self._next is not None:
            stream._writer, self._next = self._next, None
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
            if stream._writer.granted is not None:
                stream._writer.granted.set()
        elif self._finishing and not self._outbox:
            self._cell.stop()
        else:
            self._keeper = self._cell.start_task(_keep, stream, self._cell.address, context=Context())

    def _kept(self, message: _Kept) -> None:
        self._stream._writing = []
        for kept in message.batch:
            kept.receipt.settle(STORED)
        if message.batch[-1].final:
            self._cell.stop()

    def _keeper_ended(self, _message: TaskEnded) -> None:
        self._keeper = None
        if self._stream.log is None or not self._stream.log.resumable:
            self._cell.stop()
        elif self._stream._writer is None:
            self._give()

    def _forsaken(self, _message: _Forsaken) -> None:
        self._cell.stop()

    def _poll(self, message: Poll) -> None:
        writer, log = self._stream._writer, self._stream.log
        if writer is not None and log is not None and log.primes:
            writer.retry = message.retry
            self._stream.wake()

    # -- the end ---------------------------------------------------------------------------------

    def _last_turn(self, _message: Finish) -> None:
        # Requests that were told to end before this have sent their replies, which are in the mailbox now.
        self._cell.address.tell(_Finish())

    def _finish(self, _message: _Finish) -> None:
        self._finishing = True
        self._stop_if_done()

    def _abort(self, message: Abort) -> None:
        stream, concerned = self._stream, message.request_id
        stream.ending = message.ending
        for waiting in self._outbox.purge(lambda m: concerned is None or m.request_id == concerned):
            waiting.discard(message.reason)
        stream.owed = 0 if concerned is None else stream.owed - 1
        if not stream.owed:
            self._finishing = True
            stream.wake()  # the writer may keep replies back until the last one
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
        stream._writer = None  # they know each other, and should not wait for the garbage collector
        stream.wake()
        if stream.registry is not None and stream.log is not None:
            stream.registry.pop(stream.log.name, None)
        if self._next is not None and self._next.granted is not None:
            self._next.granted.set()
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
        Poll: _poll,
        _Resume: _resume,
        _Kept: _kept,
        _Forsaken: _forsaken,
        TaskEnded: _keeper_ended,
    }


async def _keep(stream: Stream, actor: Address[object]) -> None:
    """Put what a stream says into its log while no connection is attached."""
    assert stream.log is not None  # noqa: S101 - the actor looked
    with Writer(stream, None) as keeper:
        while (batch := await keeper.take()) is not None:
            if await keeper.keep() is None:
                return
            actor.tell(_Kept(batch))
