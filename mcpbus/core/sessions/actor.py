"""The session actor: hears what is said to a session, by its client and by the server, and decides when the session ends."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import msgspec
import trio
from mcpbus_actors import ActorContext, Stopped, StopReason, TaskEnded, Timer

from mcpbus.core.concurrency import run_all
from mcpbus.core.input_requests import InputRound, InputWithdrawn
from mcpbus.core.lease import LeaseExtended
from mcpbus.core.legacy_input_requests import LegacyInputRequests
from mcpbus.core.message_stream import MessageStream, UnsentReturned
from mcpbus.core.outbound import OutboundNotification
from mcpbus.core.outbox import OutboundMessage, Withdrawal
from mcpbus.core.receipt import Location
from mcpbus.core.sessions.delivery import ExpireHeld, SessionDelivery
from mcpbus.core.sessions.messages import (
    CancelRequest,
    CloseSession,
    EndGet,
    HeldMessagesReleased,
    Initialized,
    OpenGet,
    Reconnect,
    Registered,
    RestoreHeldMessage,
    SessionTakenOver,
    SessionYielded,
    StopWaitingForWrites,
    Stored,
    Unsubscribed,
    YieldSession,
)
from mcpbus.core.sessions.migration import MigrateNow, SessionMigration
from mcpbus.core.sessions.session import Session, SessionCallbacks, SessionStage
from mcpbus.core.signals import (
    Cancel,
    CloseConnection,
    DropRequest,
    ExpireIn,
    FailRequest,
    Finish,
    InputEnded,
    InputProgressReceived,
    InputResponseReceived,
)
from mcpbus.core.topics import covers
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason, StreamState

_ANSWERS_ELSEWHERE = "another process has its session, to which it answers"
_EXPIRED = "The token with which the connection was opened has expired; connect again with a new one"


class _Tick(msgspec.Struct, frozen=True):
    """Look whether the session is idle."""


class _EndSilence(msgspec.Struct, frozen=True):
    """Look whether the client of a channel has said anything."""


class SessionActor:
    """See the module.

    Args:
        cell: Its cell.
        session: The session.
        directory: Where it is entered.
        shared: The channel that carries everything; None over Streamable HTTP.
        timed: Whether the client has to initialize the session in time, or if it is a channel to say something at least.
    """

    def __init__(
        self,
        cell: ActorContext[object],
        session: Session,
        directory: SessionCallbacks,
        shared: MessageStream | None,
        timed: bool,
    ) -> None:
        limits = session.bus.limits
        self._cell = cell
        self._session = session
        self._directory = directory
        self._limits = limits
        self._delivery = SessionDelivery(cell, session, directory, shared)
        self._departure = SessionMigration(cell, session, directory, self._delivery)
        self._shared = shared
        self._timed = timed
        self._opened = session.last_active
        self._questions: LegacyInputRequests | None = None
        self._why: str | None = None
        self._expiry: Timer | None = None
        session.address = cell.address
        cell.on_stop(self._ended)
        if shared is not None:
            cell.watch(shared.address)
            if timed:
                cell.after(limits.initialize_timeout, _EndSilence())

    def handle(self, message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    # -- life ------------------------------------------------------------------------------------

    def _registered(self, _message: Registered) -> None:
        self._session.enter(SessionStage.REGISTERED)
        if self._timed:
            self._cell.after(self._limits.initialize_timeout, _Tick())

    def _initialized(self, _message: Initialized) -> None:
        if self._session.stage is SessionStage.REGISTERED:
            self._session.enter(SessionStage.READY)
            self._directory.ready(self._session)
            self._delivery.flush()

    def _tick(self, _message: _Tick) -> None:
        session, now = self._session, trio.current_time()
        if session.stage is SessionStage.REGISTERED:
            self._note("initialize_timeout", "a session was ended")
            self._end(
                f"The client sent no notifications/initialized for {self._limits.initialize_timeout:g} s"
            )
        elif self._shared is None:
            idle_since = session.idle_since()
            since = now if idle_since is None else idle_since
            # By the moment and not by how long is left: a rest that is too small to add to the time would never pass.
            due = since + self._limits.idle_timeout
            if due <= now:
                self._note("idle_timeout", "a session was ended", usual=True)
                self._end("The session was idle for too long")
            else:
                self._cell.after(due - now, _Tick())

    def _end_silence(self, _message: _EndSilence) -> None:
        session = self._session
        if session.stage is SessionStage.CONNECTED and session.last_active == self._opened:
            self._note("initialize_timeout", "a connection was ended")
            self._end(f"The client said nothing for {self._limits.initialize_timeout:g} s")

    def _note(self, limit: str, consequence: str, *, usual: bool = False) -> None:
        self._session.bus.limit_monitor.note(limit, self._session.owner, consequence, usual=usual)

    def _close(self, message: CloseSession) -> None:
        self._end(message.why)

    def _expire_in(self, message: ExpireIn) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._cell.after(message.seconds, CloseSession(_EXPIRED))

    def _end(self, why: str | None) -> None:
        self._why = why
        self._cell.stop()

    def _ended(self, reason: StopReason) -> None:
        session = self._session
        session.enter(SessionStage.ENDED)
        silent = self._why is None and reason is not StopReason.FAILED
        end = DropRequest() if silent else FailRequest(self._why or "The session failed")
        steps: list[Callable[[], object]] = [partial(self._directory.forget, session)]
        # With the system all requests end, and none becomes an actor any more that was dormant.
        if reason is not StopReason.SYSTEM:
            steps += [partial(request.tell, end) for request in session.in_flight.addresses()]
        steps.append(partial(self._delivery.end_streams, silent=silent))
        if self._questions is not None:
            steps.append(partial(self._questions.end, StreamState.ENDED.value))
        steps += self._departure.end, self._delivery.end, session.account.close
        run_all("the end of a session", steps)

    # -- what the client says --------------------------------------------------------------------

    def _input_ended(self, message: InputEnded) -> None:
        self._session.close_input(message.why)
        for request in self._session.in_flight.addresses():
            request.tell(message)
        if self._questions is not None:
            self._questions.give_up_all(message.why)

    def _unsubscribed(self, _message: Unsubscribed) -> None:
        self._delivery.drop_unsubscribed()

    def _cancel_request(self, message: CancelRequest) -> None:
        request = self._session.in_flight.find(message.request_id)
        if request is not None:
            request.tell(Cancel())

    # -- streams ---------------------------------------------------------------------------------

    def _open_get(self, message: OpenGet) -> None:
        self._session.listening = True
        self._delivery.open_get(message.stream)
        self._departure.on_get(message.stream)
        self._delivery.flush()

    def _end_get(self, _message: EndGet) -> None:
        if self._delivery.get is not None:
            self._delivery.get.address.tell(Finish())

    def _close_connection(self, message: CloseConnection) -> None:
        if self._delivery.get is not None:
            self._delivery.get.address.tell(message)

    def _returned(self, message: UnsentReturned) -> None:
        self._delivery.take_back(message)
        self._departure.depart_if_returned()

    def _stream_stopped(self, message: Stopped) -> None:
        if self._shared is not None:
            self._end(None)
        self._departure.on_stream_end(message.address)

    # -- when another process goes on ------------------------------------------------------------

    def _reconnect(self, _message: Reconnect) -> None:
        self._departure.reconnect()

    def _leave(self, message: YieldSession) -> None:
        self._departure.leave(message)

    def _hurry(self, _message: StopWaitingForWrites) -> None:
        self._departure.hurry()

    def _left(self, message: SessionYielded) -> None:
        self._delivery.hand_over(message.pass_on)
        self._end("The server is shutting down")

    def _be_taken_over(self, message: SessionTakenOver) -> None:
        self._delivery.paused_for_other_node = True
        self._input_ended(InputEnded(_ANSWERS_ELSEWHERE))
        self._departure.take_over(message)

    def _depart(self, _message: MigrateNow) -> None:
        self._departure.depart()

    def _in_flight_ended(self, _message: TaskEnded) -> None:
        self._end(None)

    # -- what the server says --------------------------------------------------------------------

    def _emit(self, said: OutboundNotification) -> None:
        session = self._session
        threshold = session.threshold.level
        if said.level is not None and (threshold is None or said.level < threshold):
            said.receipt.discard(Reason.FILTERED)
        elif said.uri is not None and not covers(session.subscriptions.canonical, said.uri):
            said.receipt.discard(Reason.NOT_SUBSCRIBED)
        else:
            self._delivery.send(OutboundMessage(said.kind, Era.LEGACY, said.data, said.receipt, key=said.key))

    def _ask(self, ask: InputRound) -> None:
        if self._questions is None:
            self._questions = LegacyInputRequests(
                self._session,
                self._cell.address,
                self._put_question,
                question=MessageKind.SESSION_QUESTION,
                withdrawal=MessageKind.SESSION_WITHDRAWAL,
            )
        self._questions.ask(ask)

    def _put_question(self, message: OutboundMessage) -> None:
        """Send a question, or what withdraws one; one that is still held is taken back instead, and its client sees neither."""
        if isinstance(message, Withdrawal) and message.question.location is Location.HELD:
            self._delivery.withdraw_held(message.question)
            message.discard(Reason.FINISHED)
        else:
            self._delivery.send(message)

    def _on_question(self, message: InputResponseReceived | InputProgressReceived | InputWithdrawn) -> None:
        if self._questions is not None:
            self._questions.hear(message)

    # -- what is held ----------------------------------------------------------------------------

    def _restore(self, message: RestoreHeldMessage) -> None:
        self._delivery.restore(message)

    def _stored(self, message: Stored) -> None:
        self._delivery.stored(message.names)

    def _taken(self, _message: HeldMessagesReleased) -> None:
        self._delivery.taken()
        self._departure.leave_if_silent()

    def _lease_extended(self, _message: LeaseExtended) -> None:
        self._delivery.lease_extended()

    def _expire_held(self, _message: ExpireHeld) -> None:
        self._delivery.expire()

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        OutboundNotification: _emit,
        InputRound: _ask,
        InputResponseReceived: _on_question,
        InputProgressReceived: _on_question,
        InputWithdrawn: _on_question,
        OpenGet: _open_get,
        EndGet: _end_get,
        CloseConnection: _close_connection,
        UnsentReturned: _returned,
        Initialized: _initialized,
        Unsubscribed: _unsubscribed,
        CancelRequest: _cancel_request,
        InputEnded: _input_ended,
        CloseSession: _close,
        ExpireIn: _expire_in,
        Stopped: _stream_stopped,
        Stored: _stored,
        HeldMessagesReleased: _taken,
        LeaseExtended: _lease_extended,
        RestoreHeldMessage: _restore,
        YieldSession: _leave,
        SessionTakenOver: _be_taken_over,
        TaskEnded: _in_flight_ended,
        MigrateNow: _depart,
        Reconnect: _reconnect,
        StopWaitingForWrites: _hurry,
        SessionYielded: _left,
        Registered: _registered,
        _Tick: _tick,
        _EndSilence: _end_silence,
        ExpireHeld: _expire_held,
    }
