"""The session actor: decides on which stream what is said to a session leaves, and when the session ends."""

from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, ClassVar

import msgspec
import trio
from mcpbus_actors import Cell, Stopped, StopReason, TaskEnded, Timer

from mcpbus.core.client_questions import ClientQuestions
from mcpbus.core.lease import LeaseExtended
from mcpbus.core.notification import OutboundNotification
from mcpbus.core.outbox import NOT_WRITTEN, OutboundMessage, Outbox, Withdrawal
from mcpbus.core.pending_questions import Ask, Withdraw
from mcpbus.core.receipt import LOST, MOVED, Place
from mcpbus.core.session import (
    CancelRequest,
    Close,
    Directory,
    EndGet,
    Hurry,
    Initialized,
    Leave,
    Left,
    OpenGet,
    Reconnect,
    Registered,
    Restore,
    Session,
    SessionStash,
    Stage,
    Stored,
    Taken,
    TakenOver,
    Unsubscribed,
)
from mcpbus.core.signals import (
    Abort,
    Answered,
    Cancel,
    Drop,
    End,
    Ending,
    ExpireIn,
    Finish,
    InputEnded,
    PassOn,
    Purge,
    Recall,
    Reported,
    Supersede,
)
from mcpbus.core.stash import MOVABLE, Stash
from mcpbus.core.stream import Returned, Stream
from mcpbus.core.topics import covers
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import ABSENT, CHANGES, Hold, Kind, Reason, StreamKind, StreamState, absent, route

_RETURN_SECONDS = 1.0
"""How long streams may take to return what they have not written, which they do at once."""
_ANSWERS_ELSEWHERE = "another process has its session, to which it answers"
_EXPIRED = "The token with which the connection was opened has expired; connect again with a new one"


class _Tick(msgspec.Struct, frozen=True):
    """Look whether the session is idle."""


class _EndSilence(msgspec.Struct, frozen=True):
    """Look whether the client of a channel has said anything."""


class _Expire(msgspec.Struct, frozen=True):
    """Look what was held for too long."""


class _Depart(msgspec.Struct, frozen=True):
    """Wait no longer for what streams have not written."""


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
        cell: Cell[object],
        session: Session,
        directory: Directory,
        shared: Stream | None,
        timed: bool,
    ) -> None:
        limits = session.bus.limits
        self._cell = cell
        self._session = session
        self._directory = directory
        self._limits = limits
        self._get: Stream | None = None
        # Has not returned yet what it had, when a newer one took its place, or when that was recalled.
        self._older: Stream | None = None
        self._newer: Outbox | None = (
            None  # what was said since then, or while what is held is taken out of the store
        )
        self._dropped = False
        self._store: SessionStash | None = None
        self._taking = False
        self._withheld = False
        self._leaving: Leave | None = None
        self._taken_over: TakenOver | None = None
        self._heir: TakenOver | None = None
        self._passed_on: tuple[Stream, ...] = ()
        self._shared = shared
        self._timed = timed
        self._opened = session.last_active
        self._stash: Stash | None = None
        self._questions: ClientQuestions | None = None
        self._expiring = False
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
        self._session.enter(Stage.REGISTERED)
        if self._timed:
            self._cell.after(self._limits.initialize_timeout, _Tick())

    def _initialized(self, _message: Initialized) -> None:
        if self._session.stage is Stage.REGISTERED:
            self._session.enter(Stage.READY)
            self._directory.ready(self._session)
            self._flush()

    def _tick(self, _message: _Tick) -> None:
        session, now = self._session, trio.current_time()
        if session.stage is Stage.REGISTERED:
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
        if session.stage is Stage.CONNECTED and session.last_active == self._opened:
            self._note("initialize_timeout", "a connection was ended")
            self._end(f"The client said nothing for {self._limits.initialize_timeout:g} s")

    def _note(self, limit: str, consequence: str, *, usual: bool = False) -> None:
        self._session.bus.reached.note(limit, self._session.owner, consequence, usual=usual)

    def _close(self, message: Close) -> None:
        self._end(message.why)

    def _expire_in(self, message: ExpireIn) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._cell.after(message.seconds, Close(_EXPIRED))

    def _end(self, why: str | None) -> None:
        self._why = why
        self._cell.stop()

    def _ended(self, reason: StopReason) -> None:
        session = self._session
        session.enter(Stage.ENDED)
        self._directory.forget(session)
        silent = self._why is None and reason is not StopReason.FAILED
        end = Drop() if silent else End(self._why or "The session failed")
        for request in session.in_flight.addresses():
            request.tell(end)
        if self._get is not None:
            self._get.address.tell(Abort(Ending.SESSION_ENDED, Reason.SESSION_ENDED) if silent else Finish())
        if self._leaving is not None:
            self._leaving.done()
        if self._shared is not None:
            self._shared.address.tell(Finish())
        if self._questions is not None:
            self._questions.end(StreamState.ENDED.value)
        if self._taken_over is not None:
            self._leave_to(self._taken_over)
        if self._stash is not None:
            self._stash.discard(Reason.SESSION_ENDED)
        session.account.close()
        if self._newer is not None:
            for message in self._newer.remove():
                message.discard(Reason.SESSION_ENDED)

    # -- what the client says --------------------------------------------------------------------

    def _input_ended(self, message: InputEnded) -> None:
        self._session.end_input(message.why)
        for request in self._session.in_flight.addresses():
            request.tell(message)
        if self._questions is not None:
            self._questions.give_up_all(message.why)

    def _unsubscribed(self, _message: Unsubscribed) -> None:
        if self._stash is not None:
            self._stash.discard(Reason.NOT_SUBSCRIBED, self._not_subscribed)
        stream = self._shared or self._get
        if stream is not None:
            stream.address.tell(Purge(self._not_subscribed, Reason.NOT_SUBSCRIBED))

    def _not_subscribed(self, message: OutboundMessage) -> bool:
        # A shared channel has the modern client's updates too, whose listens are no concern of the session.
        if message.kind is not Kind.RESOURCE_UPDATED or message.era is not Era.LEGACY:
            return False
        return isinstance(message.key, tuple) and not covers(self._session.subscriptions, message.key[1])

    def _cancel_request(self, message: CancelRequest) -> None:
        request = self._session.in_flight.find(message.request_id)
        if request is not None:
            request.tell(Cancel())

    # -- streams ---------------------------------------------------------------------------------

    def _open_get(self, message: OpenGet) -> None:
        old, self._get = self._get, message.stream
        self._session.listening = True
        if old is not None:
            old.address.tell(Supersede())
            if self._older is None:  # otherwise nothing was sent to that one yet
                self._older = old
                self._collect()
        if self._taken_over is not None:
            message.stream.address.tell(PassOn())
        elif self._leaving is None:
            self._flush()
        else:
            self._pass_on(message.stream)

    def _collect(self) -> None:
        """Have what is said from now on wait for what was said before."""
        if self._newer is None:
            self._newer = Outbox(self._limits.outbox_items, self._limits.outbox_bytes)

    def _release(self) -> list[OutboundMessage]:
        """Return what was said meanwhile, to be sent after what was waited for."""
        newer = [] if self._newer is None else self._newer.remove()
        self._newer = None
        if self._taking or self._older is not None:
            self._collect()
        return newer

    def _end_get(self, _message: EndGet) -> None:
        if self._get is not None:
            self._get.address.tell(Finish())

    def _returned(self, message: Returned) -> None:
        if self._get is message.stream and not message.goes_on:
            self._get = None
            self._session.listening = False
            self._dropped = True
            self._session.last_active = trio.current_time()
        newer: list[OutboundMessage] = []
        if self._older is message.stream:
            self._older = None
            newer = self._release()
        # What was lost is older than what waited, and that than what was said since.
        for lost in message.lost:
            if lost.kind in CHANGES:
                receipt = self._session.bus.ledger.enter(lost.receipt.method)
                self._send(OutboundMessage(lost.kind, Era.LEGACY, lost.data, receipt, key=lost.key))
        self._send_on([*message.waiting, *newer])
        self._depart_if_returned()

    def _stream_stopped(self, message: Stopped) -> None:
        if self._shared is not None:
            self._end(None)
        if self._passed_on:
            self._passed_on = tuple(each for each in self._passed_on if each.address != message.address)
        self._leave_if_silent()

    # -- when another process goes on ------------------------------------------------------------

    def _leave(self, message: Leave) -> None:
        self._leaving = message
        if self._older is not None:
            self._pass_on(self._older)
        if self._get is not None:
            self._pass_on(self._get)
        self._leave_if_silent()

    def _pass_on(self, stream: Stream) -> None:
        """Have a GET stream end here, whose client goes on elsewhere; what it returns is held."""
        if self._get is stream:
            self._get = None
            if self._older is None:
                self._older = stream
                self._collect()
        self._passed_on += (stream,)
        self._cell.watch(stream.address)
        stream.address.tell(PassOn())

    def _reconnect(self, _message: Reconnect) -> None:
        if self._get is not None:
            self._pass_on(self._get)
            self._session.listening = False
            self._session.last_active = trio.current_time()
            self._dropped = True

    def _hurry(self, _message: Hurry) -> None:
        for stream in self._passed_on:
            stream.address.tell(Supersede())

    def _leave_if_silent(self) -> None:
        if self._leaving is not None and not self._passed_on and not self._taking:
            self._leaving.done()

    def _left(self, _message: Left) -> None:
        if self._stash is not None:
            # While it is being taken out of the store, nobody knows whether it is still there for another process.
            self._stash.hand_over(LOST if self._taking else MOVED)
        self._end("The server is shutting down")

    def _be_taken_over(self, message: TakenOver) -> None:
        self._taken_over = message
        self._input_ended(InputEnded(_ANSWERS_ELSEWHERE))
        if self._get is not None:
            self._get.address.tell(PassOn())
        self._cell.after(_RETURN_SECONDS, _Depart())
        self._depart_if_returned()

    def _depart_if_returned(self) -> None:
        """Depart once it is here what streams have not written, of a session that another process has."""
        if self._get is None and self._older is None:
            self._depart(_Depart())

    def _depart(self, _message: _Depart) -> None:
        """Be found no more, and wait until what is in flight has its answers, which its client still waits for here."""
        if self._taken_over is not None and self._heir is None:
            self._leave_to(self._taken_over)
            self._directory.depart(self._session)
            self._cell.start_task(self._session.in_flight.wait_idle, context=Context())

    def _in_flight_ended(self, _message: TaskEnded) -> None:
        self._end(None)

    def _leave_to(self, heir: TakenOver) -> None:
        """Pass on what is still to be said."""
        for message in [] if self._newer is None else self._newer.remove():
            self._hold(message)
        self._newer = None
        self._heir = heir
        if self._stash is not None:
            self._stash.pass_on(heir.pass_on, kept=not self._taking)

    def _say_elsewhere(self, heir: TakenOver, message: OutboundMessage) -> None:
        """Have something said by who has the session; a question is of use only where somebody waits for its answer."""
        if message.kind in MOVABLE or message.kind in CHANGES:
            heir.pass_on(message, None)
        else:
            message.discard(Reason.SESSION_ENDED)

    # -- what the server says --------------------------------------------------------------------

    def _emit(self, said: OutboundNotification) -> None:
        session = self._session
        threshold = session.threshold.level
        if said.level is not None and (threshold is None or said.level < threshold):
            said.receipt.discard(Reason.FILTERED)
        elif said.uri is not None and not covers(session.subscriptions, said.uri):
            said.receipt.discard(Reason.NOT_SUBSCRIBED)
        else:
            self._send(OutboundMessage(said.kind, Era.LEGACY, said.data, said.receipt, key=said.key))

    def _ask(self, ask: Ask) -> None:
        if self._questions is None:
            self._questions = ClientQuestions(
                self._session,
                self._cell.address,
                self._put_question,
                question=Kind.SESSION_QUESTION,
                withdrawal=Kind.SESSION_WITHDRAWAL,
            )
        self._questions.ask(ask)

    def _put_question(self, message: OutboundMessage) -> None:
        """Send a question, or what withdraws one; one that is still held is taken back instead, and its client sees neither."""
        if isinstance(message, Withdrawal) and message.question.place is Place.HELD:
            assert self._stash is not None  # noqa: S101 - there it is held
            self._stash.discard(Reason.FINISHED, lambda held: held.receipt is message.question)
            message.discard(Reason.FINISHED)
        else:
            self._send(message)

    def _hear_of_question(self, message: Answered | Reported | Withdraw) -> None:
        if self._questions is not None:
            self._questions.hear(message)

    def _send(self, message: OutboundMessage) -> None:
        if self._heir is not None:
            self._say_elsewhere(self._heir, message)
            return
        way: StreamKind | Hold | Reason = route(message.kind, Era.LEGACY, self._session.transport)
        withheld = way is StreamKind.STANDALONE and self._withholds()
        if self._newer is not None and way is StreamKind.STANDALONE:
            full = self._newer.put(message)
            if full is not None:
                self._note(full, NOT_WRITTEN)
            return
        stream = self._get if way is StreamKind.STANDALONE else self._shared
        if (
            self._session.stage is not Stage.READY
            and (message.kind, Era.LEGACY, StreamState.UNINITIALIZED) in ABSENT
        ):
            way = absent(message.kind, Era.LEGACY, StreamState.UNINITIALIZED)
        elif stream is None and self._leaving is not None and way is StreamKind.STANDALONE:
            way = Hold.HOLD  # its client comes back
        elif stream is None:
            way = absent(
                message.kind, Era.LEGACY, StreamState.DROPPED if self._dropped else StreamState.NEVER
            )
        elif withheld:
            way = Hold.HOLD
        if isinstance(way, Reason):
            message.discard(way)
        elif way is Hold.HOLD or stream is None:
            self._hold(message)
        else:
            stream.send(message)

    def _withholds(self) -> bool:
        """Whether what is for the client waits, to which another process may be speaking."""
        if self._taken_over is not None:
            return True
        lease = self._session.bus.lease
        if lease is not None and self._shared is None and not self._withheld and not lease.lasts:
            self._withheld = True
            lease.tell_extended(self._cell.address)
            if self._get is not None and self._older is None:
                # What its client has not taken yet waits as well.
                self._older = self._get
                self._collect()
                self._get.address.tell(Recall())
        return self._withheld

    def _lease_extended(self, _message: LeaseExtended) -> None:
        self._withheld = False
        self._flush()

    def _send_on(self, waited: Iterable[OutboundMessage]) -> None:
        """Send what has waited, but for what the client has unsubscribed from meanwhile."""
        for message in waited:
            if self._not_subscribed(message):
                message.discard(Reason.NOT_SUBSCRIBED)
            else:
                self._send(message)

    def _hold(self, message: OutboundMessage) -> None:
        full = self._open_stash().put(message, trio.current_time())
        if full is not None:
            self._note(full, "what was held for a stream that is not open was discarded")
        self._await_expiry()

    def _open_stash(self) -> Stash:
        if self._stash is None:
            limits, account = self._limits, self._session.account
            self._store = self._directory.stash_store(self._session)
            self._stash = Stash(
                limits.held_items, limits.outbox_bytes, limits.held_timeout, account, self._store
            )
        return self._stash

    def _restore(self, message: Restore) -> None:
        self._open_stash().restore(message.message, message.name, trio.current_time() + message.seconds)
        self._await_expiry()

    def _stored(self, message: Stored) -> None:
        if self._stash is not None:
            self._stash.note_stored(message.names)

    def _taken(self, _message: Taken) -> None:
        self._taking = False
        held = [] if self._stash is None else self._stash.take()
        self._send_on([*held, *self._release()])
        self._leave_if_silent()

    def _await_expiry(self) -> None:
        if not self._expiring and self._stash is not None and self._stash.deadline is not None:
            self._expiring = True
            self._cell.after(max(0.0, self._stash.deadline - trio.current_time()), _Expire())

    def _expire(self, _message: _Expire) -> None:
        self._expiring = False
        if self._stash is not None and self._stash.expire(trio.current_time()):
            self._note(
                "held_timeout", "what was held for a stream that did not open was discarded", usual=True
            )
        self._await_expiry()

    def _flush(self) -> None:
        """Send what is held, where its stream is there now; what is in the store leaves that before."""
        if not self._stash or self._taking or (self._get or self._shared) is None or self._withholds():
            return
        if self._store is not None and self._stash.stored:
            self._taking = True
            self._collect()
            self._store.take(self._stash.stored)
        else:
            for message in self._stash.take():
                self._send(message)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        OutboundNotification: _emit,
        Ask: _ask,
        Answered: _hear_of_question,
        Reported: _hear_of_question,
        Withdraw: _hear_of_question,
        OpenGet: _open_get,
        EndGet: _end_get,
        Returned: _returned,
        Initialized: _initialized,
        Unsubscribed: _unsubscribed,
        CancelRequest: _cancel_request,
        InputEnded: _input_ended,
        Close: _close,
        ExpireIn: _expire_in,
        Stopped: _stream_stopped,
        Stored: _stored,
        Taken: _taken,
        LeaseExtended: _lease_extended,
        Restore: _restore,
        Leave: _leave,
        TakenOver: _be_taken_over,
        TaskEnded: _in_flight_ended,
        _Depart: _depart,
        Reconnect: _reconnect,
        Hurry: _hurry,
        Left: _left,
        Registered: _registered,
        _Tick: _tick,
        _EndSilence: _end_silence,
        _Expire: _expire,
    }
