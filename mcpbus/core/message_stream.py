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

from mcpbus.core.concurrency import ActiveCounter
from mcpbus.core.event_log import EventLog, ResumableStreams
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.limits import Limits
from mcpbus.core.memory_budget import SHORT_BYTES, MemoryAccount, MemoryBudget
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage, Outbox, Withdrawal, overflowed, receipts_of
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
from mcpbus.protocol.routes import Reason, StreamKind, StreamState, when_unavailable

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
        resumable_streams: Where its session finds it by its log's name, if it has one.
        session_address: The session to which a GET stream returns what it does not send.
        closing: Whether what waits is the last of it.
        end_reason: Why it ended without a reply; None if it did not, or has not.
        replies_pending: How many replies are still to come before it ends: one, unless it is set anew for a batch of requests.
        exempt_from_eviction: Whether it does not end for others' sake, however much waits.
        owner: To whom what waits is counted; None if that is not known.
        writing: What is being written.
        writing_bytes: How much that is.
        account: Where it is counted what waits; None of most streams, which never have anything that waits.
        ready: Set when there is something to take, if its writer waits for that.
        retry_after: After how many seconds its client should open another one; None unless that is why it ended.
    """

    kind: StreamKind
    limits: Limits
    budget: MemoryBudget
    outbox: Outbox
    _open: ActiveCounter
    log: EventLog | None = None
    resumable_streams: "ResumableStreams[MessageStream] | None" = None
    session_address: Address[object] | None = None
    closing: bool = False
    end_reason: Ending | None = None
    replies_pending: int = 1
    exempt_from_eviction: bool = False
    owner: Hashable = None
    writing: Sequence[OutboundMessage] = ()
    writing_bytes: int = 0
    account: MemoryAccount | None = None
    ready: trio.Event | None = None
    retry_after: float | None = None
    _expiry: Timer | None = None
    _relief: trio.Event | None = None
    _writer: Writer | None = None
    _next_writer: Writer | None = None
    _recorder: Task | None = None
    _recalled: bool = False  # whether it has cancelled its keeper
    _abandon_timer: Timer | None = None
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
        self.outbox.join_limit = 0
        if self.session_address is not None:
            cell.watch(self.session_address)

    def _count_open(self) -> None:
        if not self._counted:
            self._counted = True
            self._open.opened()

    def detach_from_request(self) -> None:
        """Go on alone: what is still to be written is its own affair. It stays dormant while its writer has the last of it."""
        self.maker = None
        if self.stopped:
            return
        if self.writing and not self.outbox and self.closing:
            self._count_open()
        else:
            self.address  # noqa: B018 - it is active from now on

    def ended(self, reason: StopReason) -> None:
        """Give every message that is left its fate, whatever ended the stream, and let the writer go."""
        if self._counted:
            self._open.ended()
        waiting, lost = self.outbox.remove(), self.abandon_batch()
        self._close()
        if self.resumable_streams is not None and self.log is not None:
            # Where its client cancelled, or ended the session, no reply is due.
            complete = self.log.finished or self.end_reason is not None or self.kind is StreamKind.STANDALONE
            self.resumable_streams.ended(self.log, complete=complete)
        if self._next_writer is not None:
            self._next_writer.grant()
        for message in lost:
            message.discard(Reason.LOST)
        if self.session_address is None:
            failed = reason is StopReason.FAILED
            for message in waiting:
                message.discard(Reason.INTERNAL_ERROR if failed else self.drop_reason(message))
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
        if self.session_address is not None and not self.session_address.stopped:
            self.session_address.tell(UnsentReturned(self, waiting, lost, goes_on))
        else:
            for message in waiting:
                message.discard(Reason.SESSION_ENDED)

    # -- what is said ----------------------------------------------------------------------------

    def send(self, message: OutboundMessage) -> None:
        """Queue a message for the client. Never waits; the receipt tells what became of it."""
        if self._address is not None and self._address.stopped:
            message.discard(self.drop_reason(message))
        else:
            self.tell(message)

    def try_send_inline(self, message: OutboundMessage) -> bool:
        """Have a drafted notification join what waits, or written in this very stack if nothing does.

        Returns:
            Whether it has, or that has begun; otherwise the stream is to be told.
        """
        outbox, writer = self.outbox, self._writer
        if outbox.queued_bytes:
            return outbox.try_append(message)
        return (
            writer is not None
            and writer.direct is not None
            and not self.closing
            and (self._life is None or self.at_rest)
            and writer.direct(message)
        )

    def try_send_final_inline(self, reply: OutboundMessage) -> bool:
        """Have the drafted reply written in this very stack, if it is the last that is owed, and nothing waits; the stream ends with it.

        Returns:
            Whether it has, or that has begun; otherwise the stream is to be sent it.
        """
        writer = self._writer
        if (
            not reply.final
            or self.replies_pending != 1
            or self.outbox.queued_bytes
            or writer is None
            or writer.direct is None
            or self.closing
            or self._life is not None
        ):
            return False
        self.closing = True  # it ends as soon as it hears that this is written
        if not writer.direct(reply):
            self.closing = False
            return False
        self.replies_pending = 0
        return True

    def drop_reason(self, message: OutboundMessage) -> Reason:
        """Return why a message is discarded now that this stream is gone."""
        # On a shared channel the connection is the session, for those that have one.
        shared = self.kind is StreamKind.DUPLEX and message.era is Era.LEGACY
        fate = when_unavailable(
            message.kind, message.era, StreamState.ENDED if shared else StreamState.DROPPED
        )
        return fate if isinstance(fate, Reason) else Reason.NO_STREAM

    def _put(self, message: OutboundMessage) -> None:
        if self.closing:
            message.discard(Reason.FINISHED)
            return
        if message.final:
            self.replies_pending -= 1
            message.final = self.closing = not self.replies_pending
            self._relieve()
        full = self.outbox.put(message)
        if full is not None:
            self.reached.note(full, self.owner, overflowed(self.kind, message))
        writer = self._writer
        if writer is not None and writer.notify is not None:
            # Nobody else may tell a stream anything that is dormant.
            if writer.notify(self.closing) and not self.closing and self._cell is None:
                self.outbox.allow_joining(SHORT_BYTES - self.writing_bytes)
        elif self.ready is not None:
            self._wake()
        if self.account is not None or self.outbox.queued_bytes + self.writing_bytes > SHORT_BYTES:
            self.count()

    def _put_withdrawal(self, message: Withdrawal) -> None:
        """Send what withdraws a question, unless there was no room for that either: its client has never heard of it."""
        fate = message.question.fate
        if fate is not None and fate.reason is Reason.OVERFLOW:
            message.discard(Reason.FINISHED)
        else:
            self._put(message)

    def _purge(self, message: Purge) -> None:
        gone = self.outbox.remove_if(message.unwanted)
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
    def above_high_water(self) -> bool:
        """Whether more waits for its writer, and for the end of a write, replies included, than of notifications alone may."""
        return self.outbox.queued_bytes + self.writing_bytes > self.outbox.max_bytes

    async def wait_writable(self) -> None:
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
            end = None if self.exempt_from_eviction else self._cut
            self.account = self.budget.account("a stream", end, owner=self.owner)
        self.account.hold_now(self.outbox.queued_bytes + 2 * self.writing_bytes)

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

    def settle_batch(self, fate: Fate) -> None:
        """Give what is being written its fate. For whoever writes it, who alone knows that, at the very moment."""
        settle_all(receipts_of(self.abandon_batch()), fate)
        self._stop_if_done()

    def conclude_first(self, number: int, fate: Fate) -> None:
        """Give the first so many messages of what is being written their fate, whatever becomes of the rest."""
        done, self.writing = self.writing[:number], self.writing[number:]
        self.writing_bytes -= sum(len(message.data) + OVERHEAD_BYTES for message in done)
        settle_all(receipts_of(done), fate)
        if self.account is not None:
            self.count()
            self._relieve()

    def abandon_batch(self) -> Sequence[OutboundMessage]:
        """Return what is being written, which nobody writes any more."""
        given_up, self.writing, self.writing_bytes = self.writing, (), 0
        if self.account is not None:
            self.count()
            self._relieve()
        return given_up

    @property
    def all_written(self) -> bool:
        """Whether the last of it was written."""
        return self.closing and not self.outbox and not self.writing

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
        if self._next_writer is writer:
            self._next_writer = None
        if self._writer is not writer:
            return
        self._writer = None
        if self.all_written or self.log is None or not self.log.resumable:
            self.stop()
            return
        for lost in self.abandon_batch():
            lost.discard(Reason.LOST)
        if self._next_writer is None:
            self._abandon_timer = self.cell.after(self.limits.abandoned_timeout, _StreamAbandoned())
        self._give()

    # -- coming back -----------------------------------------------------------------------------

    def _take_over(self, message: WriterTakeOver) -> None:
        if self._next_writer is not None:
            self._next_writer.dismissed = True
            self._next_writer.grant()
        self._next_writer = message.writer
        if self._recorder is not None:
            self._recall_keeper(self._recorder)
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
        elif self._next_writer is not None:
            self._writer, self._next_writer = self._next_writer, None
            if self._abandon_timer is not None:
                self._abandon_timer.cancel()
                self._abandon_timer = None
            self._writer.grant()
        elif self.closing and not self.outbox:
            self.stop()
        else:
            self._recorder = self.cell.start_task(Writer(self, None).store_until_attached, context=Context())

    def _recall_keeper(self, keeper: Task) -> None:
        self._recalled = True
        keeper.cancel()

    def _keeper_ended(self, message: TaskEnded) -> None:
        recalled, self._recorder, self._recalled = self._recalled, None, False
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
            self.retry_after = _RETRY_SECONDS
            self._finish(_FinishAfterMailbox())

    # -- the end ---------------------------------------------------------------------------------

    def _last_turn(self, _message: Finish | Stopped) -> None:
        # Requests that were told to end before this have sent their replies, which are in the mailbox now.
        self.address.tell(_FinishAfterMailbox())

    def _finish(self, _message: _FinishAfterMailbox) -> None:
        self.closing = True
        self._stop_if_done()

    def _abort(self, message: Abort) -> None:
        concerned = message.request_id
        self.end_reason = message.ending
        if concerned is not None and message.ending is Ending.CANCELLED:
            self._purge(Purge.request(concerned))
        else:
            self._purge(Purge(lambda m: concerned is None or m.request_id == concerned, message.reason))
        self.replies_pending = 0 if concerned is None else self.replies_pending - 1
        if not self.replies_pending:
            self.closing = True
            self._wake()  # the writer may keep replies back until the last one
            self._stop_if_done()

    def _supersede(self, _message: Supersede) -> None:
        had_time = self.closing
        self._return_waiting()
        if self.writing and not had_time:
            self.cell.after(_LAST_SECONDS, _Overdue())
        else:
            self._leave()

    def _overdue(self, _message: _Overdue) -> None:
        self._leave()

    def _pass_on(self, _message: ReturnUnsentAndEnd) -> None:
        self.retry_after = 0.0
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
        self.closing = self.closing or not goes_on

    def _cut_off(self, _message: EvictStream) -> None:
        self._purge(Purge(lambda _: True, Reason.OVERFLOW))
        self.closing = True
        self._leave()

    def _leave(self) -> None:
        """Stop once the writer or the keeper has let go of what it has: only then it is known what was kept, and what was lost."""
        self._leaving = True
        if self._recorder is not None:
            self._recall_keeper(self._recorder)
        elif self._writer is not None and self._writer.connection is not None and self.writing:
            self._writer.connection.cancel()
        else:
            self.stop()  # the writer takes this for the end of its response

    def _stop_if_done(self) -> None:
        if self.all_written:
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
