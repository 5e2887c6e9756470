# ruff: noqa: SLF001 - the stream, its writer and its actor share one queue
"""One logical stream to a client, as the rest of the bus holds it, and the writing end for its connection.

`Stream` is what the rest of the bus holds. The bus's actors `send` to it; a transport's shell attaches its
connection and drains it, from the connection's own task::

    with stream.attach(cancel_scope) as writer:
        while (batch := await writer.take(keep_alive)) is not None:
            ...                       # write the whole batch in one call
            writer.written()

Nothing but that task ever waits for the client. The stream's actor is in `stream_actor`.
"""

import enum
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

import msgspec
import trio

from actors import Address
from mcpbus.budget import SHORT_BYTES, Account, Budget
from mcpbus.fate import DELIVERED, STORED, Fate, settle_all
from mcpbus.open_streams import OpenStreams
from mcpbus.options import Limits
from mcpbus.outbox import NOT_WRITTEN, Outbox, Outgoing, Withdrawal
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import Line, Reason, Situation, absent
from mcpbus.reached import ReachedLimits
from mcpbus.resumable import ResumableStreams
from mcpbus.stores.log import EventLog

if TYPE_CHECKING:
    from mcpbus.brief import Brief


class Ending(enum.Enum):
    """Why a stream ended without the reply that its client waits for, where it did."""

    CANCELLED = "the client cancelled the request"
    SESSION_ENDED = "the session has ended"
    CLOSED = "the server closed the stream"


class Finish(msgspec.Struct, frozen=True):
    """End the stream once what waits has been written."""


class Abort(msgspec.Struct, frozen=True):
    """End the stream, or a request's part in it; what waits is discarded for `reason`.

    Where the client cancelled, what withdraws a question is sent before the end.

    Attributes:
        ending: Why.
        reason: The same, for what waits.
        request_id: The request that ends, if the stream may owe replies to others too; None for the whole stream.
    """

    ending: Ending
    reason: Reason
    request_id: RequestId | None = None


class Cut(msgspec.Struct, frozen=True):
    """End the stream and its connection at once: too much waits for clients that do not read, and for this one the most."""


class Supersede(msgspec.Struct, frozen=True):
    """A newer stream takes this one's place: return what waits now, and end the connection."""


class Purge(msgspec.Struct, frozen=True):
    """Discard what waits and is `unwanted` now."""

    unwanted: Callable[[Outgoing], bool]
    reason: Reason

    @classmethod
    def request(cls, request_id: RequestId) -> Self:
        """Discard what waits for one request, which its client cancelled.

        What withdraws a question that the client has seen goes out all the same: the client would wait otherwise.
        """

        def unwanted(message: Outgoing) -> bool:
            return message.request_id == request_id and not (isinstance(message, Withdrawal) and message.due)

        return cls(unwanted, Reason.CANCELLED)


class Returned(msgspec.Struct, frozen=True):
    """Told to the session by a GET stream that has ended, and before that by one that a newer one takes the place of.

    Attributes:
        stream: The stream.
        waiting: What nobody took from its outbox, in order; still pending.
        lost: What was being written when the connection ended; settled.
    """

    stream: "Stream"
    waiting: list[Outgoing]
    lost: Sequence[Outgoing]


class Written(msgspec.Struct, frozen=True):
    """The last of the stream was written, or kept."""


class Detached(msgspec.Struct, frozen=True):
    """A connection's task has let go of the stream."""

    writer: "Writer"


class TakeOver(msgspec.Struct, frozen=True):
    """A client has come back for the stream on another connection."""

    writer: "Writer"


class Poll(msgspec.Struct, frozen=True):
    """Close the connection, not the stream: its client comes back for the rest.

    Attributes:
        retry: After how many seconds it may.
    """

    retry: float


class Cancellable(Protocol):
    """A `trio.CancelScope`, or what can be ended like one."""

    def cancel(self) -> None:
        """End it."""


class Stream:
    """A logical stream to a client. Only the bus makes them.

    Attributes:
        line: What kind of stream it is.
        brief: The request that speaks on it, where neither has an actor for as long as nobody else knows of them.
        finishing: Whether what waits is the last of it.
        ending: Why it ended without a reply; None if it did not, or has not.
        owed: How many replies are still to come before it ends: one, unless it is set anew for a batch of requests.
        log: What it has said, if its client can come back for it.
        registry: Where its session finds it by its log's name, if it has one.
        spared: Whether it does not end for others' sake, however much waits.
        owner: To whom what waits is counted; None if that is not known.
    """

    __slots__ = (
        "_account",
        "_address",
        "_budget",
        "_open",
        "_outbox",
        "_patience",
        "_ready",
        "_relief",
        "_start",
        "_writer",
        "_writing",
        "_writing_bytes",
        "brief",
        "ending",
        "finishing",
        "line",
        "log",
        "owed",
        "owner",
        "registry",
        "spared",
    )

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        line: Line,
        limits: Limits,
        open_streams: OpenStreams,
        budget: Budget,
        log: EventLog | None,
        start: "Callable[[Stream], Address[object]]",
    ) -> None:
        self.line = line
        self.log = log
        self.brief: Brief | None = None
        self.finishing = False
        self._start = start
        self._address: Address[object] | None = None
        self.registry: ResumableStreams | None = None
        self.spared = False
        self.owner: Hashable = None
        self._patience = limits.abandoned_timeout
        self._open = open_streams
        self._budget = budget
        self._account: Account | None = None  # most streams never have anything that waits
        self.ending: Ending | None = None
        self.owed = 1
        self._outbox = Outbox(limits.outbox_items, limits.outbox_bytes)
        self._writing: Sequence[Outgoing] = ()
        self._writing_bytes = 0
        self._writer: Writer | None = None
        self._ready: trio.Event | None = None
        self._relief: trio.Event | None = None

    @property
    def address(self) -> Address[object]:
        """Its actor, which is there as soon as somebody asks for it."""
        if self.brief is not None:
            self.brief.appear()
        if self._address is None:
            self._address = self._start(self)
        return self._address

    @property
    def reached(self) -> ReachedLimits:
        """Where it is noted that a limit was reached."""
        return self._budget.reached

    @property
    def over(self) -> bool:
        """Whether it has ended, or is about to: it takes nothing any more."""
        return self._outbox.closed if self._address is None else self._address.stopped

    def send(self, message: Outgoing) -> None:
        """Queue a message for the client. Never waits; the receipt tells what became of it."""
        address = self.address
        if address.stopped:
            message.discard(self.lapse(message))
        else:
            address.tell(message)

    def put(self, message: Outgoing) -> None:
        """Put a message into the outbox. For its actor, and for a request in brief while there is none."""
        if self.finishing:
            message.discard(Reason.FINISHED)
            return
        if message.final:
            self.owed -= 1
            message.final = self.finishing = not self.owed
            self._relieve()
        full = self._outbox.put(message)
        if full is not None:
            self.reached.note(full, self.owner, NOT_WRITTEN)
        self.wake(final=self.finishing)
        if self._account is not None or self._outbox.held + self._writing_bytes > SHORT_BYTES:
            self.count()

    def conclude(self, fate: Fate) -> None:
        """Give what is being written its fate. For whoever writes it, who alone knows that, at the very moment."""
        settle_all([message.receipt for message in self.let_go()], fate)

    def let_go(self) -> Sequence[Outgoing]:
        """Return what is being written, which nobody writes any more."""
        given_up, self._writing, self._writing_bytes = self._writing, (), 0
        if self._account is not None:
            self.count()
            self._relieve()
        return given_up

    @property
    def done(self) -> bool:
        """Whether the last of it was written."""
        return self.finishing and not self._outbox and not self._writing

    def count(self) -> None:
        """Say how much waits: what is being written is there twice, as a message and as what its connection makes of it."""
        if self._account is None:
            self._account = self._budget.account(
                "a stream", None if self.spared else self._cut, owner=self.owner
            )
        self._account.hold_now(self._outbox.held + 2 * self._writing_bytes)

    def _cut(self) -> None:
        self.address.tell(Cut())

    def close(self) -> None:
        """Take nothing any more. For its actor, and for its writer while there is none."""
        self._outbox.closed = True
        self._relieve()
        if self._account is not None:
            self._account.close()
        self.wake(final=True)
        self._writer = None  # they know each other, and should not wait for the garbage collector

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

    @property
    def laden(self) -> bool:
        """Whether more waits for its writer, and for the end of a write, replies included, than of notifications alone may."""
        return self._outbox.held + self._writing_bytes > self._outbox.max_bytes

    async def relieved(self) -> None:
        """Wait until a reply has come, something was written, or it has ended."""
        if self._relief is None:
            self._relief = trio.Event()
        await self._relief.wait()

    def _relieve(self) -> None:
        if self._relief is not None:
            self._relief.set()
            self._relief = None

    @property
    def crowded(self) -> bool:
        """Whether so much waits for its writer that whoever says more should let that run first."""
        return self._outbox.crowded

    def hand_over(self) -> list[Outgoing]:
        """Take what waits out of the outbox, to be sent on another stream. For its actor."""
        taken = self._outbox.remove()
        if self._account is not None:
            self.count()
        return taken

    def attach(self, connection: Cancellable | None = None) -> "Writer":
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
            self.address.tell(TakeOver(writer))
            try:
                await writer.granted.wait()
            except trio.Cancelled:
                writer.__exit__()
                raise
        return None if self.address.stopped else writer

    def wake(self, *, final: bool = False) -> None:
        """Let the writer look at the outbox. For the stream's actor.

        Args:
            final: Whether the last message is there, or none will come any more.
        """
        writer = self._writer
        if writer is not None and writer.notify is not None:
            writer.notify(final)
        elif self._ready is not None:
            self._ready.set()
            self._ready = None

    def __repr__(self) -> str:
        return f"<Stream {self.line.value}, {len(self._outbox)} waiting>"


class Writer:
    """The writing end of a stream, for the task of the attached connection; leaving its block detaches it.

    Attributes:
        connection: The scope in which that task runs, or whatever else ends the connection, if it may be cancelled.
        notify: Called as soon as there is something to take, with whether it is the last; for connections that are written
            without a task which waits. It is called by the stream's actor, which hears what it says only afterwards.
        granted: Set when the stream is this writer's own, if it had to wait for that.
        retry: After how many seconds the client should come back; None unless the connection is to be closed.
    """

    __slots__ = ("_held_back", "_kept", "_stream", "connection", "granted", "notify", "retry")

    def __init__(self, stream: Stream, connection: Cancellable | None) -> None:
        self._stream = stream
        self._kept = False
        self._held_back = False
        self.connection = connection
        self.notify: Callable[[bool], None] | None = None
        self.granted: trio.Event | None = None
        self.retry: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        stream = self._stream
        if self._kept:
            self.stored()
        if not stream.over:
            stream.address.tell(Detached(self))

    def grant(self) -> None:
        """Let whoever waits to have the stream see that it has it, or that there is none any more."""
        if self.granted is not None:
            self.granted.set()

    async def take_soon(self) -> list[Outgoing] | None:
        """Take all messages that are there after two turns of the scheduler; otherwise as `take`.

        Most handlers end within these turns, and then nothing had to be set up to wait for them.
        """
        for _ in range(2):
            await trio.lowlevel.checkpoint()
            if self._stream._outbox:
                break
        return self.take_now()

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
        return self.take_now()

    def take_now(self) -> list[Outgoing] | None:
        """Take all messages that are there; otherwise as `take`."""
        stream = self._stream
        outbox, size = stream._outbox, stream._outbox.held
        batch = outbox.take()
        if self._held_back:
            self._held_back = False
            batch, size = [*stream._writing, *batch], stream._writing_bytes + size
        if not batch:
            return None if outbox.closed else batch
        stream._writing, stream._writing_bytes = batch, size
        if stream._account is not None:
            stream.count()
            if outbox.closed:
                return None  # that was too much, and for this stream the most waited
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

    def stored(self) -> None:
        """Say that nobody writes the batch any more, which is in the log."""
        self._conclude(STORED)

    def written(self) -> None:
        """Say that the write of the batch returned, and no disconnect was seen."""
        self._conclude(DELIVERED)

    def _conclude(self, fate: Fate) -> None:
        stream = self._stream
        self._kept = False
        stream.conclude(fate)
        if not stream.done:
            return
        if stream._address is not None:
            stream._address.tell(Written())
        else:
            # Nobody else can tell, or be told: the request that speaks is in brief.
            stream.close()
