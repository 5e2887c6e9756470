"""One JSON-RPC request of a client, from its admission to its reply.

It decides what becomes of what a handler says, and sends the reply. A reply that is in its stream's outbox ends
the request: a cancel that comes later finds nobody. Whatever ends a request, its call is cancelled and its
place at admission is given back.

Most handlers end without ever waiting. Nothing else runs meanwhile, so nothing can be said to the request, and nothing it
says can be in anybody's way: until then it is dormant, see `mcpbus_actors.LazyActor`. Its stream is opened when there is something to
say on it before the reply; a reply without one goes back to whoever runs the request. One that waits stays dormant too.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, Protocol

import msgspec
import trio
from mcpbus_actors import ActorContext, EagerTask, Outcome, Stopped, StopReason, Succeeded, TaskEnded

from mcpbus.core.admission import RequestSlot
from mcpbus.core.call import read_failure
from mcpbus.core.call_rounds import run_rounds
from mcpbus.core.event_log import EventLog
from mcpbus.core.input_requests import InputNeeded, InputRound, InputWithdrawn
from mcpbus.core.legacy_input_requests import LegacyInputRequests
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.message_builder import DRAWN_UP, InlineNotifications, MessageBuilder
from mcpbus.core.message_sinks import NullSink
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbound import OutboundNotification, Progress, UnencodableNotification
from mcpbus.core.outbox import OutboundMessage, Withdrawal
from mcpbus.core.receipt import Location
from mcpbus.core.request_context import OpenStream
from mcpbus.core.sessions.session import SessionStage
from mcpbus.core.signals import (
    Abort,
    Cancel,
    CloseConnection,
    DropRequest,
    Ending,
    FailRequest,
    Finished,
    InputEnded,
    InputProgressReceived,
    InputResponseReceived,
    Purge,
)
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, internal_error
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import ASKING, MessageKind, Reason, StreamKind, StreamState, route

_log = logging.getLogger("mcpbus")

# Before Python 3.12 each look-up by a class's name is a search.
_FINISHED, _RESPONSE, _ENDED = Reason.FINISHED, StreamKind.RESPONSE, SessionStage.ENDED
_MAILBOX = Location.MAILBOX


class ResponseHandler(Protocol):
    """Who has the answer of a request written that is the only one on its stream."""

    @property
    def collects_notifications(self) -> bool:
        """See `mcpbus.transports.response_sinks.ResponseSink`."""

    @property
    def stores_first(self) -> bool:
        """Whether what is said, and the reply, is kept in a store before it is written."""

    def open(self, stream: MessageStream, /) -> None:
        """The answer comes on this stream. No schedule point."""

    def wait(self, request: "RequestActor", /) -> bool:
        """The handler waits, and nothing was said. No schedule point.

        Returns:
            Whether `answer` is given the answer if nothing is said before it. Then it is known meanwhile when to say something
            for the client not to give up, see `RequestActor.begin`, and when that leaves, see `RequestActor.leave`.
        """

    def answer(self, result: bytes | ProtocolError, /) -> None:
        """Answer with an encoded result object, or an error. No schedule point; nothing is raised."""


class _Abandoned(msgspec.Struct, frozen=True):
    """Nobody came back for the answer of a legacy request."""


class RequestActor(MessageBuilder, kw_only=True, eq=False):
    """An admitted request; see the module. To be told to `run`, or to `start`, once.

    Attributes:
        slot: Its place at admission.
        open_stream: Opens the stream for its reply.
        response_handler: Given the stream as soon as there is one, or the answer; None of a request on a stream that others share.
        session_id: The id of the session that its success opens, if it is an HTTP initialize.
        stream: Where what it says goes, and its reply; None as long as nothing was said.
        inline_notifications: What was said without a stream, and goes out together with what `run` returns; None if nothing was.
    """

    slot: RequestSlot
    open_stream: OpenStream
    response_handler: ResponseHandler | None = None
    session_id: str | None = None
    stream: MessageStream | None = None
    inline_notifications: InlineNotifications | None = None
    _questions: LegacyInputRequests | None = None
    _parked: bool = False
    _over: bool = False
    _unsent: bytes | ProtocolError | None = None

    # -- the beginning ---------------------------------------------------------------------------

    def __post_init__(self) -> None:
        """Carry its call, and be found in its place."""
        self.call.sink = self.slot.request = self

    def run(
        self, scope: trio.CancelScope | None, *, streaming: bool = False
    ) -> bytes | ProtocolError | EagerTask | None:
        """Run the handler here until it waits, or ends. No schedule point.

        Args:
            scope: That of whoever asks, see `mcpbus_actors.EagerTask`; None for a handler that cannot wait.
            streaming: Whether the stream is opened first, whatever comes of the handler.

        Returns:
            The encoded result object, or the error to answer with, if nobody has answered, or will; the handler's task, if it
            waits or has cancelled the scope; otherwise None.

        Raises:
            KeyboardInterrupt: The user ends the program.
        """
        call = self.call
        task = call.task = EagerTask(scope, coroutine=run_rounds(call), context=self.slot.copy_context())
        if streaming:
            self.begin()
        try:
            task.start()
        except BaseException:
            if not self.active:
                self._fail()
            raise
        if self._cell is None:
            outcome = task.outcome
            if outcome is None:
                self._wait(task)
            elif (reply := self._conclude(task, outcome)) is not None:
                return reply
        return task if task.outcome is None or task.cancelled else None

    def _wait(self, task: EagerTask) -> None:
        """Have the handler wait. If that cannot be, it is cancelled: it has begun, and is to come to its end."""
        try:
            self._stay(task)
        except Exception as error:  # noqa: BLE001 - there is no memory for it, say; whoever asked is told
            _log.error("%s failed", self.context.request.method, exc_info=error)
            task.report = None
            task.cancel()
            if not self._over:
                self.begin()
                self._fail()
            elif self._unsent is not None:
                self._send_reply(self._unsent, self.begin())

    def _stay(self, task: EagerTask) -> None:
        """Stay dormant while the handler waits: whoever looks for the request finds it in its place.

        So does its session when that ends, as with the stream that they may share; one that has ended already does not.
        """
        session = self.context.session
        if session is not None and session.stage is _ENDED:
            self.address  # noqa: B018 - it is active from now on
            return
        task.report = self._task_ended_late
        self.call.count()
        if (
            self.inline_notifications is not None
            or self.response_handler is None
            or not self.response_handler.wait(self)
        ):
            self.begin()

    @trio.lowlevel.enable_ki_protection
    def _task_ended_late(self, task: EagerTask) -> None:
        assert task.outcome is not None  # noqa: S101 - it has ended
        reply = self._conclude(task, task.outcome)
        answering, self.response_handler = self.response_handler, None
        if reply is not None and answering is not None:
            answering.answer(reply)

    @trio.lowlevel.enable_ki_protection
    def _conclude(self, task: EagerTask, outcome: Outcome) -> bytes | ProtocolError | None:
        """Reply with what came of its handler.

        Returns:
            The reply, where there is no stream for it to go to.
        """
        if self._life is None and self.stream is None and isinstance(outcome, Succeeded):
            result, gathered = outcome.value, self.inline_notifications
            if isinstance(result, bytes) and (gathered is None or self._is_one_answer(gathered, result)):
                # As nearly always. Nobody but whoever runs it has to hear of that, in whose turn it ends.
                self._finish(_FINISHED)
                return result
        self.system.catch_up()  # the reply counts only once the stream has heard of it, and it may be long
        self.tell(TaskEnded(task, outcome))
        task.forget()
        unsent, self._unsent = self._unsent, None
        return unsent

    def client_gone(self) -> None:
        """Take note that the client has left, before anything was said to it."""
        self.response_handler = None
        with self.begin().attach():
            pass  # as its connection does that ends

    def start(self) -> MessageStream:
        """Run the handler in a task of its own, or carry on a call that has waited; return the stream on which the reply comes."""
        try:
            self.address  # noqa: B018 - it is active from now on
            return self.begin()
        except BaseException:
            self.slot.release()
            raise

    def begin(self) -> MessageStream:
        """Open the stream, if it is not there, and return it."""
        if self.stream is not None:
            return self.stream
        context = self.context
        stream = self.stream = self.call.stream = self.open_stream(_RESPONSE, context.session)
        if stream.log is not None:
            self._name_log(stream, stream.log)
            stream.expire_in(self.call.bus.seconds_left(context.principal))
        stream.owner = context.owner
        if not self.active and stream.kind is _RESPONSE:
            stream.maker = self
        # The task outlives its connection, which is not to wait for the garbage collector with it.
        answering, self.response_handler = self.response_handler, None
        gathered, self.inline_notifications = self.inline_notifications, None
        if gathered is not None:
            stream.outbox.begin(gathered.messages, gathered.held)
        if answering is not None:
            answering.open(stream)
        return stream

    def _name_log(self, stream: MessageStream, log: EventLog) -> None:
        process = self.call.bus.process
        if process is not None and stream.resumable_streams is not None and stream.replies_pending == 1:
            stream.resumable_streams.name_after(log, process, self.context.request.id)

    def activated(self, cell: ActorContext[object]) -> None:
        """Watch the stream, and own the handler's task, which is begun if it was not, unless the call does."""
        call = self.call
        cell.watch(self.begin().address)
        if call.task is None:
            call.task = cell.start_task(run_rounds, call, context=self.slot.copy_context())
        elif not call.active:
            cell.adopt(call.task)
        call.count()

    # -- what its handler says -------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def say(self, said: OutboundNotification | Progress) -> bool:
        """Send what its handler says, which is drafted, on the stream; see `MessageSink`.

        What is said in a burst, while the connection is about to write anyway, only joins what waits; and what is said where nothing
        waits is written here. Nobody else has to hear of either.
        """
        if self._life is None or self.at_rest:
            try:
                message = DRAWN_UP[type(said)](self, said)
                if not isinstance(message, OutboundMessage):
                    said.receipt.emit()
                    said.receipt.discard(message)
                    return True
                stream, gathered = self.stream, self.inline_notifications
                if gathered is not None:
                    if gathered.join(message):
                        return True
                elif (stream is None and self._gather(message)) or (stream or self.begin()).try_send_inline(
                    message
                ):
                    return True
            except BaseException as error:  # noqa: BLE001 - whoever speaks is not to blame
                return self._hear(UnencodableNotification(said, error), said)
            return self._hear(message, said)
        return self._hear(said, said)

    def _hear(self, told: object, said: OutboundNotification | Progress) -> bool:
        """Be told what is said, or what has come of it; return as `say` does."""
        receipt = said.receipt
        receipt.emit()
        if self.system.dispatcher.behind:
            self.call.bus.flush_mailbox(said.data)
        self.tell(told)
        crowded = self.stream is not None and self.stream.outbox.half_full
        return receipt.location is not _MAILBOX and not crowded

    def _gather(self, message: OutboundMessage) -> bool:
        """Keep what is said first, if it may go out together with the answer, and is not so long that somebody has to hear of it."""
        answering = self.response_handler
        if answering is None or not answering.collects_notifications:
            return False
        gathered = InlineNotifications(self.call.bus.limits)
        if not gathered.join(message):
            return False
        self.inline_notifications = gathered
        return True

    def _take(self, said: OutboundNotification | Progress) -> None:
        message = DRAWN_UP[type(said)](self, said)
        if isinstance(message, Reason):
            said.receipt.discard(message)
        else:
            self._pass_on(message)

    def _raise(self, message: UnencodableNotification) -> NoReturn:
        raise message.error  # for its supervisor

    def _pass_on(self, message: OutboundMessage) -> None:
        if message.kind in ASKING:  # a question of the session, which knows no routes of requests
            self._send(message)
            return
        stream = self.stream or self.begin()
        if not stream.take(message):
            stream.send(message)

    # -- asking the client -----------------------------------------------------------------------

    def _ask(self, ask: InputRound) -> None:
        if self._questions is None:
            session = self.context.legacy_session
            assert session is not None  # noqa: S101 - a client without a session has declared nothing, and is not asked
            self._questions = LegacyInputRequests(
                session, self.address, self._send, used=self.call.answers.used
            )
        self._questions.ask(ask)

    @property
    def open_rounds(self) -> list[InputRound]:
        """The questions of a legacy request that wait for answers, by round."""
        return [] if self._questions is None else self._questions.open_rounds

    def _on_question(self, message: InputResponseReceived | InputProgressReceived | InputWithdrawn) -> None:
        if self._questions is not None:
            self._questions.hear(message)

    def _input_ended(self, message: InputEnded) -> None:
        self._give_up_questions(message.why)

    def _give_up_questions(self, why: str) -> None:
        if self._questions is not None:
            self._questions.give_up_all(why)

    # -- what goes out ---------------------------------------------------------------------------

    def _close_stream(self, message: CloseConnection) -> None:
        self.begin().address.tell(message)

    def _send(self, message: OutboundMessage) -> None:
        context = self.context
        way = route(message.kind, message.era, context.transport)
        if isinstance(way, Reason):
            message.discard(way)
            return
        message.request_id = context.request.id
        (self.stream or self.begin()).send(message)  # there is no turn where the user ends the program

    def _reply(self, result: bytes | ProtocolError) -> None:
        if isinstance(result, ProtocolError):
            self.context.note_failure("error", str(result.code))
        # What was asked on behalf of this request is withdrawn before its reply, on the same stream.
        if self._questions is not None:
            self._questions.withdraw()
        if self.inline_notifications is not None and not self._is_one_answer(
            self.inline_notifications, result
        ):
            self.begin()
        if self.stream is None:
            self._unsent = result
        else:
            self._send_reply(result, self.stream)
        self._finish(Reason.SUSPENDED if self._parked else _FINISHED)

    def _is_one_answer(self, gathered: InlineNotifications, result: bytes | ProtocolError) -> bool:
        """Tell whether the reply goes out together with what was said: what waits for a store is counted on a stream if it is long."""
        if self.response_handler is None or not self.response_handler.stores_first:
            return True
        return isinstance(result, bytes) and gathered.held + len(result) <= SHORT_BYTES

    def _send_reply(self, result: bytes | ProtocolError, stream: MessageStream) -> None:
        reply = self._draw_up_reply(result, stream)
        if not stream.try_send_final_inline(reply):
            reply.receipt.emit()
            self._send(reply)

    def _draw_up_reply(self, result: bytes | ProtocolError, stream: MessageStream) -> OutboundMessage:
        """Make the reply, with an encoded result object or an error; it is drafted."""
        request, revision = self.context.request, self.context.revision
        error = result if isinstance(result, ProtocolError) else None
        return OutboundMessage(
            MessageKind.REPLY,
            revision.era,
            revision.encode_reply(request.id, result),
            self.call.bus.ledger.draft_reply(request.method, self.context),
            request_id=request.id,
            final=stream.kind is _RESPONSE,
            error=error,
            session_id=None if error is not None else self.session_id,
        )

    # -- the end ---------------------------------------------------------------------------------

    def _task_ended(self, message: TaskEnded) -> None:
        outcome = message.outcome
        result = outcome.value if isinstance(outcome, Succeeded) else read_failure(outcome)
        if isinstance(result, InputNeeded):
            self.call.address.tell(result)
            return
        if self._cell is not None and isinstance(message.task, EagerTask):
            # Its host stays with it for as long as the reply is written, which has all of it.
            message.task.forget()
        self._reply(result)

    def _finished(self, message: Finished) -> None:
        self._parked = message.parked
        self._reply(message.result)

    def _end_with_error(self, message: FailRequest) -> None:
        self._reply(ProtocolError(INTERNAL_ERROR, message.why))

    def _cancel(self, _message: Cancel) -> None:
        if self._questions is not None:
            self._questions.withdraw()
        self._silence(Ending.CANCELLED, Reason.CANCELLED)

    def _drop(self, _message: DropRequest) -> None:
        self._silence(Ending.SESSION_ENDED, Reason.SESSION_ENDED)

    def _silence(self, ending: Ending, reason: Reason) -> None:
        stream, request_id = self.begin(), self.context.request.id
        own = stream.kind is _RESPONSE
        stream.address.tell(Abort(ending, reason, request_id) if own else Purge.request(request_id))
        self._finish(reason)

    def _stream_stopped(self, _message: Stopped) -> None:
        if self.context.revision.era is Era.MODERN or self.session_id is not None:
            # An initialize that nobody waits for would leave a session that nobody knows of.
            self._finish(Reason.CANCELLED)
        elif self.begin().kind is StreamKind.DUPLEX:
            self._finish(Reason.SESSION_ENDED)
        else:
            # A lost connection is not a cancellation (2025-11-25, Transports, "Sending Messages", 6).
            self._give_up_questions(StreamState.DROPPED.value)
            self.cell.after(self.call.bus.limits.abandoned_timeout, _Abandoned())

    def _abandoned(self, _message: _Abandoned) -> None:
        call, method = self.call, self.context.request.method
        call.bus.limit_monitor.note("abandoned_timeout", call.context.owner, f"{method} was cancelled")
        self._finish(Reason.CANCELLED)

    def _finish(self, reason: Reason) -> None:
        self._over = True
        call = self.call
        # A call that has become a task speaks through that.
        if call.sink is self:
            call.sink = NullSink(reason)
        call.stream = None
        self.stop()

    def _fail(self, *, silently: bool = False) -> None:
        if self.inline_notifications is not None:
            self.begin()
        self._finish(Reason.INTERNAL_ERROR)
        if not silently:
            self._reply(internal_error())

    def ended(self, reason: StopReason) -> None:
        """Give its place back, cancel its call, and have it answered if it was not."""
        self.slot.release()
        call, stream = self.call, self.stream
        if not self._parked:
            if call.account is not None:
                call.let_go()
            call.cancel()
        if not self._over:
            self._fail(silently=reason is not StopReason.FAILED)
        self._questions = None  # they know each other, and should not wait for the garbage collector
        if stream is not None:
            stream.detach_from_request()

    HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        OutboundNotification: _take,
        Progress: _take,
        UnencodableNotification: _raise,
        OutboundMessage: _pass_on,
        Withdrawal: _pass_on,
        CloseConnection: _close_stream,
        InputRound: _ask,
        InputResponseReceived: _on_question,
        InputProgressReceived: _on_question,
        InputEnded: _input_ended,
        InputWithdrawn: _on_question,
        TaskEnded: _task_ended,
        Finished: _finished,
        Cancel: _cancel,
        DropRequest: _drop,
        FailRequest: _end_with_error,
        Stopped: _stream_stopped,
        _Abandoned: _abandoned,
    }
