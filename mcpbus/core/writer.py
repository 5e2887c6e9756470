"""The writing end of a stream, for the task of the connection that carries it.

A transport's shell attaches its connection to a stream and drains it, from the connection's own task::

    with stream.attach(cancel_scope) as writer:
        while (batch := await writer.take(keep_alive)) is not None:
            ...                       # write the whole batch in one call
            writer.written()

Nothing but that task ever waits for the client.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, Self

import msgspec
import trio
from mcpbus_actors import Address

from mcpbus.core.event_log import EventLog
from mcpbus.core.memory_budget import MemoryAccount
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage, Outbox, data_of
from mcpbus.core.receipt import DELIVERED, STORED, Fate, Location


class Cancellable(Protocol):
    """A `trio.CancelScope`, or what can be ended like one."""

    def cancel(self) -> None:
        """End it."""


class WritableStream(Protocol):
    """A stream, as its writer sees it.

    Attributes:
        outbox: What waits.
        writing: What was taken, and is being written.
        writing_bytes: How much that is.
        account: Where it is counted what waits, if that is much.
        ready: Set when there is something to take, if somebody waits for that.
        log: What the stream has said, if its client can come back for it.
    """

    outbox: Outbox
    writing: Sequence[OutboundMessage]
    writing_bytes: int
    account: MemoryAccount | None
    ready: trio.Event | None
    log: EventLog | None

    @property
    def stopped(self) -> bool:
        """Whether it has ended."""

    @property
    def address(self) -> Address[object]:
        """Where it is told that its writer has let go."""

    def count(self) -> None:
        """Say how much waits."""

    def settle_batch(self, fate: Fate) -> None:
        """Give what is being written its fate."""

    def conclude_first(self, number: int, fate: Fate) -> None:
        """Give the first so many messages of that their fate."""


class WriterDetached(msgspec.Struct, frozen=True):
    """A connection's task has let go of the stream."""

    writer: "Writer"


class WriterTakeOver(msgspec.Struct, frozen=True):
    """A client has come back for the stream on another connection."""

    writer: "Writer"


class Writer:
    """The writing end of a stream, for the task of the attached connection; leaving its block detaches it.

    Attributes:
        connection: The scope in which that task runs, or whatever else ends the connection, if it may be cancelled.
        notify: Called as soon as there is something to take, with whether it is the last; for connections that are written
            without a task which waits. It is called by the stream's actor, which hears what it says only afterwards. It returns
            whether it takes what comes next without being called.
        direct: Called with a drafted notification, or the last reply, where nothing waits, and the stream is at rest. It returns
            whether it has begun to write that, and has entered it in the books; otherwise the stream is to be told.
        granted: Set when the stream is this writer's own, if it had to wait for that.
        left: Called once it is detached.
        retry: After how many seconds the client should come back; None unless the connection is to be closed.
        dismissed: Whether another connection has the stream now: there is nothing more to take, and the response ends.
    """

    __slots__ = (
        "_held_back",
        "_kept",
        "_stream",
        "connection",
        "direct",
        "dismissed",
        "granted",
        "left",
        "notify",
        "retry",
    )

    def __init__(self, stream: WritableStream, connection: Cancellable | None) -> None:
        self._stream = stream
        self._kept = False
        self._held_back = False
        self.connection = connection
        self.notify: Callable[[bool], bool] | None = None
        self.direct: Callable[[OutboundMessage], bool] | None = None
        self.granted: trio.Event | None = None
        self.left: Callable[[], object] | None = None
        self.retry: float | None = None
        self.dismissed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        stream = self._stream
        if self._kept:
            self.settle_stored()
        if not stream.stopped:
            stream.address.tell(WriterDetached(self))
        left, self.left = self.left, None
        if left is not None:
            left()

    def grant(self) -> None:
        """Let whoever waits to have the stream see that it has it, or that there is none any more."""
        if self.granted is not None:
            self.granted.set()

    async def take_after_yield(self) -> list[OutboundMessage] | None:
        """Take all messages that are there after two turns of the scheduler; otherwise as `take`.

        Most handlers end within these turns, and then nothing had to be set up to wait for them.
        """
        for _ in range(2):
            await trio.lowlevel.checkpoint()
            if self._stream.outbox:
                break
        return self.take_now()

    async def take(self, timeout: float = float("inf")) -> list[OutboundMessage] | None:  # noqa: ASYNC109
        """Wait for messages, and take all that there are.

        A cancellation takes nothing.

        Args:
            timeout: After how many seconds to return without a message.

        Returns:
            The batch; an empty list after `timeout`; None when the stream has ended, or the writer was dismissed.
        """
        stream = self._stream
        outbox = stream.outbox
        if not (outbox or outbox.closed or self.dismissed) and self.retry is None:
            ready = stream.ready = trio.Event()
            if timeout == float("inf"):
                await ready.wait()
            else:
                with trio.move_on_after(timeout):
                    await ready.wait()
        return self.take_now()

    def take_now(self) -> list[OutboundMessage] | None:
        """Take all messages that are there; otherwise as `take`."""
        if self.dismissed:
            return None
        stream = self._stream
        outbox, size = stream.outbox, stream.outbox.queued_bytes
        batch = outbox.take()
        if self._held_back:
            self._held_back = False
            batch, size = [*stream.writing, *batch], stream.writing_bytes + size
        if not batch:
            return None if outbox.closed else batch
        stream.writing, stream.writing_bytes = batch, size
        if stream.account is not None:
            stream.count()
            if outbox.closed:
                return None  # that was too much, and for this stream the most waited
        return batch

    def start_writing(self, message: OutboundMessage) -> None:
        """Enter a drafted message in the books as being written, which was not in the outbox."""
        stream = self._stream
        message.receipt.emit(Location.WRITING)
        stream.writing, stream.writing_bytes = [message], len(message.data) + OVERHEAD_BYTES

    def defer_batch(self) -> None:
        """Do not write the batch yet: the next one that is taken begins with it."""
        self._held_back = True

    async def store_batch(self) -> int | None:
        """Put the batch into the stream's log before it is written, and return the number of its first event, if it is kept."""
        stream = self._stream
        if stream.log is None:
            return None
        writing = stream.writing
        first = await stream.log.append(data_of(writing), final=writing[-1].final)
        self._kept = first is not None
        return first

    def store_batch_soon(self, told: Callable[[int | None], object]) -> None:
        """Put the batch into the stream's log as `store_batch` does, without waiting for that; see `EventLog.append_soon`."""
        stream = self._stream

        def hear(first: int | None) -> None:
            self._kept = first is not None
            told(first)

        assert stream.log is not None  # noqa: S101 - the caller looked
        writing = stream.writing
        stream.log.append_soon(data_of(writing), hear, final=writing[-1].final)

    async def store_until_attached(self) -> None:
        """Put what the stream says into its log while no connection is attached."""
        with self:
            while (batch := await self.take()) is not None:
                if not batch:
                    continue  # what woke it was purged, or handed over to another stream
                if await self.store_batch() is None:
                    return
                self.settle_stored()

    def settle_stored(self) -> None:
        """Say that nobody writes the batch any more, which is in the log."""
        self._conclude(STORED)

    def settle_written(self) -> None:
        """Say that the write of the batch returned, and no disconnect was seen."""
        self._conclude(DELIVERED)

    def written_first(self, number: int) -> None:
        """Note that the first so many messages of the batch, which is not in the log, are written."""
        self._stream.conclude_first(number, DELIVERED)

    def _conclude(self, fate: Fate) -> None:
        self._kept = False
        self._stream.settle_batch(fate)
