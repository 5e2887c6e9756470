"""One logical stream to a client: what waits for its connection, and what becomes of it when that goes.

The bus's actors `send` to a stream; the connection that carries it drains it through a `Writer`. The answer of one request is
dormant, see `mcpbus_actors.LazyActor`, for as long as nobody but its request knows of it: most end before that.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import Context
from typing import Any, ClassVar, Final

import msgspec
import trio
from mcpbus_actors import (
    ActorContext,
    Address,
    Failed,
    LazyActor,
    Stopped,
    StopReason,
    Task,
    TaskCancelled,
    TaskEnded,
    Timer,
)

from mcpbus.core.budget import SHORT_BYTES, MemoryAccount, MemoryBudget
from mcpbus.core.event_log import EventLog, ResumableStreams
from mcpbus.core.limits import Limits
from mcpbus.core.open_count import ActiveCounter
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage, Outbox, Withdrawal, overflowed, receipts_of
from mcpbus.core.reached_limits import LimitMonitor
from mcpbus.core.receipt import Fate, settle_all
from mcpbus.core.signals import (
    Abort,
    CloseConnection,
    Ending,
    EvictStream,
    Finish,
    Purge,
    ReturnUnsent,
    ReturnUnsentAndEnd,
    Supersede,
)
from mcpbus.core.writer import Cancellable, Writer, WriterDetached, WriterTakeOver
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import Reason, StreamKind, StreamState, absent

_RETRY_SECONDS: Final = 1.0
_LAST_SECONDS: Final = 1.0
"""How long a stream that is superseded may take for the write that is under way. What its session sends meanwhile is on the newer one."""


class UnsentReturned(msgspec.Struct, frozen=True):
    """Told to the session by a GET stream that has ended, before that by one that a newer one takes the place of, and by one that is told to.

    Attributes:
        stream: The stream.
        waiting: What nobody took from its outbox, in order; still pending.
        lost: What was being written when the connection ended; settled.
        goes_on: Whether more may be sent to the stream.
    """

    stream: "MessageStream"
    waiting: list[OutboundMessage]
    lost: Sequence[OutboundMessage]
    goes_on: bool = False


class _FinishAfterMailbox(msgspec.Struct, frozen=True):
    """Told by the stream to itself, so as to hear first what those were about to say who end together with it."""


class _StreamAbandoned(msgspec.Struct, frozen=True):
    """Nobody came back to the stream."""


class _Overdue(msgspec.Struct, frozen=True):
    """The last write of a superseded stream takes too long."""


class _TokenExpired(msgspec.Struct, frozen=True):
    """The token has expired with which its client opened it."""


class MessageStream(LazyActor[object], kw_only=True, eq=False):
    """A logical stream to a client. Made by `Hub.open_stream`.

    Attributes:
        kind: What kind of stream it is.
        limits: The bounds of its outbox, and how long it waits for its client.
        budget: Where it is counted what waits.
        outbox: What waits for its writer.
        log: What it has said, if its client can come back for it.
        registry: Where its session finds it by its log's name, if it has one.
        returns_to: The session to which a GET stream returns what it does not send.
        finishing: Whether what waits is the last of it.
        ending: Why it ended without a reply; None if it did not, or has not.
        owed: How many replies are still to come before it ends: one, unless it is set anew for a batch of requests.
        spared: Whether it does not end for others' sake, however much waits.
        owner: To whom what waits is counted; None if that is not known.
        writing: What is being written.
        writing_bytes: How much that is.
        account: Where it is counted what waits; None of most streams, which never have anything that waits.
        ready: Set when there is something to take, if its writer waits for that.
        retry: After how many seconds its client should open another one; None unless that is why it ended.
    """

    kind: StreamKind
    limits: Limits
    budget: MemoryBudget
    outbox: Outbox
    _open: ActiveCounter
    log: EventLog | None = None
    registry: "ResumableStreams[MessageStream] | None" = None
    returns_to: Address[object] | None = None
    finishing: bool = False
    ending: Ending | None = None
    owed: int = 1
    spared: bool = False
    owner: Hashable = None
    writing: Sequence[OutboundMessage] = ()
    writing_bytes: int = 0
    account: MemoryAccount | None = None
    ready: trio.Event | None = None
    retry: float | None = None
    _expiry: Timer | None = None
    _relief: trio.Event | None = None
    _writer: Writer | None = None
    _next: Writer | None = None
    _keeper: Task | None = None
    _recalled: bool = False  # whether it has cancelled its keeper
    _patience: Timer | None = None
    _leaving: bool = False
    _counted: bool = False  # among those that are open

    # -- life ------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Room for all that another stream may hand over at once, beside what is said meanwhile."""
        return 2 * self.limits.outbox_items + self.limits.max_requests_per_session

    def activated(self, cell: ActorContext[object]) -> None:
        """Count among the streams that are open."""
        self._count_open()
        self.outbox.ease = 0
        if self.returns_to is not None:
            cell.watch(self.returns_to)

    def _count_open(self) -> None:
        if not self._counted:
            self._counted = True
            self._open.opened()

    def outlive_maker(self) -> None:
        """Go on alone: what is still to be written is its own affair. It stays dormant while its writer has the last of it."""
        self.maker = None
        if self.stopped:
            return
        if self.writing and not self.outbox and self.finishing:
            self._count_open()
        else:
            self.address  # noqa: B018 - it is active from now on

    def ended(self, reason: StopReason) -> None:
        """Give every message that is left its fate, whatever ended the stream, and let the writer go."""
        if self._counted:
            self._open.ended()
        waiting, lost = self.outbox.remove(), self.let_go()
        self._close()
        if self.registry is not None and self.log is not None:
            # Where its client cancelled, or ended the session, no reply is due.
            complete = self.log.finished or self.ending is not None or self.kind is StreamKind.STANDALONE
            self.registry.ended(self.log, complete=complete)
        if self._next is not None:
            self._next.grant()
        for message in lost:
            message.discard(Reason.LOST)
        if self.returns_to is None:
            failed = reason is StopReason.FAILED
            for message in waiting:
                message.discard(Reason.FAILED if failed else self.lapse(message))
        else:
            self._return(waiting, lost)

    def _close(self) -> None:
        self.outbox.closed = True
        self._relieve()
        if self.account is not None:
            self.account.close()
        self._wake(True)
        self._writer = None  # they know each other, and should not wait for the garbage collector

    def _return(
        self, waiting: list[OutboundMessage], lost: Sequence[OutboundMessage], *, goes_on: bool = False
    ) -> None:
        """Give what this stream does not send any more back to the session that it belongs to."""
        if self.returns_to is not None and not self.returns_to.stopped:
            self.returns_to.tell(UnsentReturned(self, waiting, lost, goes_on))
        else:
            for message in waiting:
                message.discard(Reason.SESSION_ENDED)

    # -- what is said ----------------------------------------------------------------------------

    def send(self, message: OutboundMessage) -> None:
        """Queue a message for the client. Never waits; the receipt tells what became of it."""
        if self._address is not None and self._address.stopped:
            message.discard(self.lapse(message))
        else:
            self.tell(message)

    def say(self, message: OutboundMessage) -> bool:
        """Have a drafted notification join what waits, or written in this very stack if nothing does.

        Returns:
            Whether it has, or that has begun; otherwise the stream is to be told.
        """
        outbox, writer = self.outbox, self._writer
        if outbox.held:
            return outbox.join(message)
        return (
            writer is not None
            and writer.direct is not None
            and not self.finishing
            and (self._life is None or self.at_rest)
            and writer.direct(message)
        )

    def say_last(self, reply: OutboundMessage) -> bool:
        """Have the drafted reply written in this very stack, if it is the last that is owed, and nothing waits; the stream ends with it.

        Returns:
            Whether it has, or that has begun; otherwise the stream is to be sent it.
        """
        writer = self._writer
        if (
            not reply.final
            or self.owed != 1
            or self.outbox.held
            or writer is None
            or writer.direct is None
            or self.finishing
            or self._life is not None
        ):
            return False
        self.finishing = True  # it ends as soon as it hears that this is written
        if not writer.direct(reply):
            self.finishing = False
            return False
        self.owed = 0
        return True

    def lapse(self, message: OutboundMessage) -> Reason:
        """Return why a message is discarded now that this stream is gone."""
        # On a shared channel the connection is the session, for those that have one.
        shared = self.kind is StreamKind.DUPLEX and message.era is Era.LEGACY
        fate = absent(message.kind, message.era, StreamState.ENDED if shared else StreamState.DROPPED)
        return fate if isinstance(fate, Reason) else Reason.NO_STREAM

    def _put(self, message: OutboundMessage) -> None:
        if self.finishing:
            message.discard(Reason.FINISHED)
            return
        if message.final:
            self.owed -= 1
            message.final = self.finishing = not self.owed
            self._relieve()
        full = self.outbox.put(message)
        if full is not None:
            self.reached.note(full, self.owner, overflowed(self.kind, message))
        writer = self._writer
        if writer is not None and writer.notify is not None:
            # Nobody else may tell a stream anything that is dormant.
            if writer.notify(self.finishing) and not self.finishing and self._cell is None:
                self.outbox.relax(SHORT_BYTES - self.writing_bytes)
        elif self.ready is not None:
            self._wake()
        if self.account is not None or self.outbox.held + self.writing_bytes > SHORT_BYTES:
            self.count()

    def _put_withdrawal(self, message: Withdrawal) -> None:
        """Send what withdraws a question, unless there was no room for that either: its client has never heard of it."""
        fate = message.question.fate
        if fate is not None and fate.reason is Reason.OVERFLOW:
            message.discard(Reason.FINISHED)
        else:
            self._put(message)

    def _purge(self, message: Purge) -> None:
        gone = self.outbox.purge(message.unwanted)
        for purged in gone:
            purged.discard(message.reason)
        if gone:
            self.count()

    # -- how much waits --------------------------------------------------------------------------

    @property
    def reached(self) -> LimitMonitor:
        """Where it is noted that a limit was reached."""
        return self.budget.reached

    @property
    def waiting(self) -> int:
        """How many messages wait for its writer."""
        return len(self.outbox)

    @property
    def laden(self) -> bool:
        """Whether more waits for its writer, and for the end of a write, replies included, than of notifications alone may."""
        return self.outbox.held + self.writing_bytes > self.outbox.max_bytes

    async def relieved(self) -> None:
        """Wait until a reply has come, something was written, or it has ended."""
        if self.account is None:
            self.count()  # only then it is told what was written
        if self._relief is None:
            self._relief = trio.Event()
        await self._relief.wait()

    def _relieve(self) -> None:
        if self._relief is not None:
            self._relief.set()
            self._relief = None

    def count(self) -> None:
        """Say how much waits: what is being written is there twice, as a message and as what its connection makes of it."""
        if self.account is None:
            end = None if self.spared else self._cut
            self.account = self.budget.account("a stream", end, owner=self.owner)
        self.account.hold_now(self.outbox.held + 2 * self.writing_bytes)

    def _cut(self) -> None:
        self.address.tell(EvictStream())

    # -- its writer ------------------------------------------------------------------------------

    def attach(self, connection: Cancellable | None = None) -> Writer:
        """Attach a connection; its task drains the stream inside the writer's block.

        Args:
            connection: The scope in which the connection's task runs; cancelled when a newer stream takes
                this one's place. It may be given to the writer later.
        """
        writer = self._writer = Writer(self, connection)
        return writer

    async def resume(self, connection: trio.CancelScope) -> Writer | None:
        """Take the stream over from a connection that its client has lost; None if it has ended meanwhile.

        Returns once no other connection writes or keeps anything of it; or, with a writer that is dismissed, once the client has come
        back on yet another one. Messages that are sent in the meantime wait.
        """
        writer = Writer(self, connection)
        writer.granted = trio.Event()
        self.address.tell(WriterTakeOver(writer))
        try:
            await writer.granted.wait()
        except trio.Cancelled:
            writer.__exit__()
            raise
        return None if self.stopped else writer

    def conclude(self, fate: Fate) -> None:
        """Give what is being written its fate. For whoever writes it, who alone knows that, at the very moment."""
        settle_all(receipts_of(self.let_go()), fate)
        self._stop_if_done()

    def conclude_first(self, number: int, fate: Fate) -> None:
        """Give the first so many messages of what is being written their fate, whatever becomes of the rest."""
        done, self.writing = self.writing[:number], self.writing[number:]
        self.writing_bytes -= sum(len(message.data) + OVERHEAD_BYTES for message in done)
        settle_all(receipts_of(done), fate)
        if self.account is not None:
            self.count()
            self._relieve()

    def let_go(self) -> Sequence[OutboundMessage]:
        """Return what is being written, which nobody writes any more."""
        given_up, self.writing, self.writing_bytes = self.writing, (), 0
        if self.account is not None:
            self.count()
            self._relieve()
        return given_up

    @property
    def done(self) -> bool:
        """Whether the last of it was written."""
        return self.finishing and not self.outbox and not self.writing

    def _wake(self, final: bool = False) -> None:
        """Let the writer look at the outbox.

        Args:
            final: Whether the last message is there, or none will come any more.
        """
        writer = self._writer
        if writer is not None and writer.notify is not None:
            writer.notify(final)
        elif self.ready is not None:
            self.ready.set()
            self.ready = None

    def _detached(self, message: WriterDetached) -> None:
        writer = message.writer
        if self._next is writer:
            self._next = None
        if self._writer is not writer:
            return
        self._writer = None
        if self.done or self.log is None or not self.log.resumable:
            self.stop()
            return
        for lost in self.let_go():
            lost.discard(Reason.LOST)
        if self._next is None:
            self._patience = self.cell.after(self.limits.abandoned_timeout, _StreamAbandoned())
        self._give()

    # -- coming back -----------------------------------------------------------------------------

    def _take_over(self, message: WriterTakeOver) -> None:
        if self._next is not None:
            self._next.dismissed = True
            self._next.grant()
        self._next = message.writer
        if self._keeper is not None:
            self._recall_keeper(self._keeper)
        elif self._writer is None:
            self._give()
        elif self.writing:
            if self._writer.connection is not None:
                self._writer.connection.cancel()
        else:
            # The old connection may take its time for the end of its response: it has nothing more to do with the stream.
            self._writer.dismissed = True
            self._wake(True)
            self._writer = None
            self._give()

    def _give(self) -> None:
        """Give the stream, which nobody writes or keeps, to whoever is next: a connection, or the keeper."""
        if self._leaving:
            self.stop()
        elif self._next is not None:
            self._writer, self._next = self._next, None
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
            self._writer.grant()
        elif self.finishing and not self.outbox:
            self.stop()
        else:
            self._keeper = self.cell.start_task(Writer(self, None).keep_all, context=Context())

    def _recall_keeper(self, keeper: Task) -> None:
        self._recalled = True
        keeper.cancel()

    def _keeper_ended(self, message: TaskEnded) -> None:
        recalled, self._keeper, self._recalled = self._recalled, None, False
        if isinstance(message.outcome, Failed):
            raise message.outcome.exception  # the fault is the stream's own
        cut_short = isinstance(message.outcome, TaskCancelled) and not recalled
        if cut_short or self.log is None or not self.log.resumable:
            self.stop()  # another keeper would be cut short as well, with all tasks of the bus
        elif self._writer is None:
            self._give()

    def _forsaken(self, _message: _StreamAbandoned) -> None:
        self.reached.note("abandoned_timeout", self.owner, "a stream was ended", usual=True)
        self._leave()

    def _close_connection(self, message: CloseConnection) -> None:
        if self._writer is not None and self.log is not None and self.log.primes:
            self._writer.retry = message.retry
            self._wake()

    def expire_in(self, seconds: float) -> None:
        """Have its client come back after so many seconds, with another token, if it can; what was said of that before is void."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if seconds < math.inf:
            self.address  # noqa: B018 - it is active from now on
            self._expiry = self.cell.after(seconds, _TokenExpired())

    def _expired(self, _message: _TokenExpired) -> None:
        if self._writer is not None and self.log is not None and self.log.primes:
            self._close_connection(CloseConnection(_RETRY_SECONDS))
        elif self.kind is StreamKind.STANDALONE:
            self.retry = _RETRY_SECONDS
            self._finish(_FinishAfterMailbox())

    # -- the end ---------------------------------------------------------------------------------

    def _last_turn(self, _message: Finish | Stopped) -> None:
        # Requests that were told to end before this have sent their replies, which are in the mailbox now.
        self.address.tell(_FinishAfterMailbox())

    def _finish(self, _message: _FinishAfterMailbox) -> None:
        self.finishing = True
        self._stop_if_done()

    def _abort(self, message: Abort) -> None:
        concerned = message.request_id
        self.ending = message.ending
        if concerned is not None and message.ending is Ending.CANCELLED:
            self._purge(Purge.request(concerned))
        else:
            self._purge(Purge(lambda m: concerned is None or m.request_id == concerned, message.reason))
        self.owed = 0 if concerned is None else self.owed - 1
        if not self.owed:
            self.finishing = True
            self._wake()  # the writer may keep replies back until the last one
            self._stop_if_done()

    def _supersede(self, _message: Supersede) -> None:
        had_time = self.finishing
        self._return_waiting()
        if self.writing and not had_time:
            self.cell.after(_LAST_SECONDS, _Overdue())
        else:
            self._leave()

    def _overdue(self, _message: _Overdue) -> None:
        self._leave()

    def _pass_on(self, _message: ReturnUnsentAndEnd) -> None:
        self.retry = 0.0
        self._return_waiting()
        self._stop_if_done()

    def _recall(self, _message: ReturnUnsent) -> None:
        self._return_waiting(goes_on=True)
        self._stop_if_done()

    def _return_waiting(self, *, goes_on: bool = False) -> None:
        # At once, and not when the connection has let go: what is said from now on has to wait for it.
        waiting = self.outbox.remove()
        if self.account is not None:
            self.count()
        self._return(waiting, (), goes_on=goes_on)
        self.finishing = self.finishing or not goes_on

    def _cut_off(self, _message: EvictStream) -> None:
        self._purge(Purge(lambda _: True, Reason.OVERFLOW))
        self.finishing = True
        self._leave()

    def _leave(self) -> None:
        """Stop once the writer or the keeper has let go of what it has: only then it is known what was kept, and what was lost."""
        self._leaving = True
        if self._keeper is not None:
            self._recall_keeper(self._keeper)
        elif self._writer is not None and self._writer.connection is not None and self.writing:
            self._writer.connection.cancel()
        else:
            self.stop()  # the writer takes this for the end of its response

    def _stop_if_done(self) -> None:
        if self.done:
            self.stop()

    def __repr__(self) -> str:
        return f"<MessageStream {self.kind.value}, {len(self.outbox)} waiting>"

    HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        OutboundMessage: _put,
        Withdrawal: _put_withdrawal,
        WriterDetached: _detached,
        Finish: _last_turn,
        _FinishAfterMailbox: _finish,
        Abort: _abort,
        EvictStream: _cut_off,
        Supersede: _supersede,
        ReturnUnsentAndEnd: _pass_on,
        ReturnUnsent: _recall,
        Purge: _purge,
        CloseConnection: _close_connection,
        WriterTakeOver: _take_over,
        Stopped: _last_turn,
        _StreamAbandoned: _forsaken,
        _Overdue: _overdue,
        _TokenExpired: _expired,
        TaskEnded: _keeper_ended,
    }
