"""The request actor: one JSON-RPC request of a client, from its admission to its reply.

It decides what a handler's emissions become, and sends the reply. A reply that is in its stream's outbox ends
the request: a cancel that comes later finds nobody. Whatever ends a request, its call is cancelled and its
place at admission is given back.
"""

import contextvars
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from actors import Cell, Guest, Stopped, StopReason, Succeeded, TaskEnded
from mcpbus.admission import Slot
from mcpbus.asking.ask import Ask, Required, Withdraw
from mcpbus.call import Carrier, Finished, read_outcome
from mcpbus.emission import Emission, Progress
from mcpbus.fate import Ledger, Receipt
from mcpbus.features.asking.errors import AskError, ClientRefusedError, cannot_ask
from mcpbus.features.schemas import jsontypes
from mcpbus.outbox import Outgoing, Withdrawal
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, internal_error
from mcpbus.protocol.jsonrpc import (
    RequestId,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from mcpbus.protocol.large import decode_large
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.protocol.routes import Kind, Line, Reason, Setting, Situation, absent, route
from mcpbus.rounds import run_rounds
from mcpbus.stream import Abort, Ending, Poll, Purge, Stream
from mcpbus.voice import LogThreshold, Voice

if TYPE_CHECKING:
    from mcpbus.session import Session

_TOO_MUCH = "The request was ended because the server keeps too much in memory, and for it the most"
_TOLD = Succeeded(None)


class Cancel(msgspec.Struct, frozen=True):
    """The client cancelled the request: it is not answered."""


class End(msgspec.Struct, frozen=True):
    """The server ends the request, and answers it with an internal error.

    Attributes:
        why: For the client, in the error's message.
    """

    why: str


class Drop(msgspec.Struct, frozen=True):
    """The client ended its session: the request is not answered."""


class Answered(msgspec.Struct, frozen=True):
    """The client answered a question."""

    response: Response


class _Abandoned(msgspec.Struct, frozen=True):
    """Nobody came back for the answer of a legacy request."""


def give_up(carrier: Carrier) -> None:
    """End the request that carries a call: too much is kept in memory, and for this call the most."""
    if carrier.begun:
        carrier.address.tell(End(_TOO_MUCH))


class Ticket(msgspec.Struct, eq=False, gc=False):
    """What is known of a request when it begins.

    Attributes:
        id: Its JSON-RPC id.
        method: Its method.
        revision: The revision that it is served under.
        setting: How its client is connected.
        stream: Where its reply goes.
        slot: Its place at admission.
        progress_token: The client's token, or None if it wants no progress.
        log_level: From which level it wants log lines; None for none. Asked at each line, since a legacy
            client may change it meanwhile.
        abandoned_timeout: Seconds that a legacy request runs on without a stream.
        session: Its legacy session; None in the modern era and in stateless serving.
        session_id: The id of the session that its success opens, if it is an HTTP initialize.
    """

    id: RequestId
    method: str
    revision: Revision
    setting: Setting
    stream: Stream
    slot: Slot
    progress_token: RequestId | None
    log_level: LogThreshold
    abandoned_timeout: float
    session: "Session | None" = None
    session_id: str | None = None

    def voice(self) -> Voice:
        """Make what puts into messages what its handler says."""
        return Voice(self.id, self.revision, self.setting, self.progress_token, self.log_level)

    def reply(self, ledger: Ledger, result: bytes | ProtocolError) -> Outgoing:
        """Make the reply, with an encoded result object or an error."""
        code = None
        if isinstance(result, ProtocolError):
            error = self.revision.admissible(result)
            data = encode_error(self.id, error)
            code = error.code
        else:
            data = encode_result(self.id, result)
        return Outgoing(
            Kind.REPLY,
            self.revision.era,
            data,
            ledger.enter(self.method),
            request_id=self.id,
            final=self.stream.line is Line.OWN,
            error_code=code,
            session_id=None if code is not None else self.session_id,
        )


class RequestActor:
    """See the module.

    Args:
        cell: Its cell.
        ticket: The request.
        ledger: Where what it says is entered.
        carrier: What its call speaks through; if none of its handler's tasks runs yet, one is started.
        guest: The handler's task, where it began before there was an actor.
        voice: What puts into messages what it says, if it has said something by then.
    """

    __slots__ = (
        "_carrier",
        "_cell",
        "_ledger",
        "_over",
        "_parked",
        "_questions",
        "_situation",
        "_ticket",
        "_voice",
    )

    def __init__(  # noqa: PLR0917 - made in few places, each time for a request
        self,
        cell: Cell[object],
        ticket: Ticket,
        ledger: Ledger,
        carrier: Carrier,
        guest: Guest | None,
        voice: Voice | None = None,
    ) -> None:
        self._cell = cell
        self._ticket = ticket
        self._ledger = ledger
        self._carrier = carrier
        self._questions: dict[RequestId, tuple[Ask, str, Receipt]] | None = None
        self._situation: Situation | None = None
        self._parked = False
        self._over = False
        self._voice = voice
        carrier.address = cell.address
        carrier.stream = ticket.stream
        ticket.slot.occupy(cell.address)
        cell.on_stop(self._ended)
        cell.watch(ticket.stream.address)
        if guest is not None:
            carrier.running = guest
            cell.adopt(guest)
        elif carrier.running is None:
            carrier.running = cell.start_task(run_rounds, carrier, context=contextvars.copy_context())
        carrier.count(partial(give_up, carrier))

    def handle(self, message: object) -> None:
        """Handle one message; see `actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    def _emit(self, said: Emission | Progress) -> None:
        if self._voice is None:
            self._voice = self._ticket.voice()
        message = self._voice.word(said)
        if message is not None and self._situation is None:
            self._ticket.stream.send(message)
        elif message is not None:
            self._send(message)

    # -- asking the client -----------------------------------------------------------------------

    def _ask(self, ask: Ask) -> None:
        ticket, session = self._ticket, self._ticket.session
        if session is None:
            ask.fail(cannot_ask(Reason.NO_STREAM.value))
            return
        if self._questions is None:
            self._questions = {}
        for key in ask.open:
            if not ask.open:
                return  # one of them was refused, and with it all
            method = ask.questions[key].method
            question_id = session.next_question_id()
            receipt = self._ledger.enter(method)
            self._questions[question_id] = (ask, key, receipt)
            session.questions[question_id] = self._cell.address
            data = encode_request(question_id, method, ask.params[key])
            refused = partial(self._refused, question_id)
            self._send(Outgoing(Kind.QUESTION, ticket.revision.era, data, receipt, refused=refused))

    def _answered(self, message: Answered) -> None:
        response = message.response
        asked = self._forget(response.id)
        if asked is None:
            return
        ask, key, _ = asked
        try:
            if response.error is not None:
                error = response.error
                data = None if error.data is msgspec.UNSET else msgspec.json.decode(error.data)
                raise ClientRefusedError(error.code, error.message, data)
            answer = decode_large(msgspec.json.decode, response.result or b"null")
            ask.answer(key, answer)
            self._carrier.used[key] = jsontypes.encode(answer)
        except AskError as error:
            self._give_up(ask, error)

    def _refused(self, question_id: RequestId, reason: Reason) -> None:
        asked = self._forget(question_id)
        if asked is not None:
            self._give_up(asked[0], cannot_ask(reason.value))

    def _withdraw(self, message: Withdraw) -> None:
        self._give_up(message.ask, cannot_ask("the question was withdrawn"))

    def _give_up(self, ask: Ask, error: AskError) -> None:
        """Fail what was asked together, and tell the client that the rest needs no answer."""
        ask.fail(error)
        self._withdraw_questions(lambda other: other is ask)

    def _withdraw_questions(self, unwanted: Callable[[Ask], bool] = lambda _: True) -> None:
        """Tell the client which questions need no answer any more; whoever asked them learns it elsewhere."""
        for question_id, (ask, _, question) in tuple((self._questions or {}).items()):
            if unwanted(ask):
                self._forget(question_id)
                params = {"requestId": question_id, "reason": "The answer is no longer needed"}
                data = encode_notification("notifications/cancelled", params)
                receipt = self._ledger.enter("notifications/cancelled")
                era = self._ticket.revision.era
                self._send(Withdrawal(Kind.WITHDRAWAL, era, data, receipt, question=question))

    def _forget(self, question_id: RequestId | None) -> tuple[Ask, str, Receipt] | None:
        if not self._questions or question_id is None:
            return None
        if self._ticket.session is not None:
            self._ticket.session.questions.pop(question_id, None)
        return self._questions.pop(question_id, None)

    # -- the end ---------------------------------------------------------------------------------

    def _close_stream(self, message: Poll) -> None:
        self._ticket.stream.address.tell(message)

    def _send(self, message: Outgoing) -> None:
        ticket = self._ticket
        way = route(message.kind, message.era, ticket.setting)
        if self._situation is not None and isinstance(way, Line):
            way = absent(message.kind, message.era, self._situation)
        if isinstance(way, Reason):
            message.discard(way)
            return
        message.request_id = ticket.id
        ticket.stream.send(message)

    def _task_ended(self, message: TaskEnded) -> None:
        outcome = read_outcome(message.outcome)
        if isinstance(message.outcome, Succeeded) and isinstance(message.task, Guest):
            # Its host stays with it for as long as the reply is written, which has all of it.
            message.task.outcome = _TOLD
        if isinstance(outcome, Required):
            self._carrier.call.tell(outcome)
        else:
            self._reply(outcome)

    def _finished(self, message: Finished) -> None:
        self._parked = message.parked
        self._reply(message.result)

    def _end(self, message: End) -> None:
        self._reply(ProtocolError(INTERNAL_ERROR, message.why))

    def _reply(self, result: bytes | ProtocolError) -> None:
        # What was asked on behalf of this request is withdrawn before its reply, on the same stream.
        self._withdraw_questions()
        self._send(self._ticket.reply(self._ledger, result))
        self._stop(Reason.PARKED if self._parked else Reason.FINISHED)

    def _cancel(self, _message: Cancel) -> None:
        self._withdraw_questions()
        self._silence(Ending.CANCELLED, Reason.CANCELLED)

    def _drop(self, _message: Drop) -> None:
        self._silence(Ending.SESSION_ENDED, Reason.SESSION_ENDED)

    def _silence(self, ending: Ending, reason: Reason) -> None:
        stream = self._ticket.stream
        if stream.line is Line.OWN:
            stream.address.tell(Abort(ending, reason, self._ticket.id))
        else:
            stream.address.tell(Purge.request(self._ticket.id))
        self._stop(reason)

    def _stream_stopped(self, _message: Stopped) -> None:
        if self._ticket.revision.era is Era.MODERN or self._ticket.session_id is not None:
            # An initialize that nobody waits for would leave a session that nobody knows of.
            self._stop(Reason.CANCELLED)
        elif self._ticket.stream.line is Line.SHARED:
            self._stop(Reason.SESSION_ENDED)
        else:
            # A lost connection is not a cancellation (2025-11-25, Transports, "Sending Messages", 6).
            self._situation = Situation.DROPPED
            for ask, *_ in tuple((self._questions or {}).values()):
                self._give_up(ask, cannot_ask(Situation.DROPPED.value))
            self._cell.after(self._ticket.abandoned_timeout, _Abandoned())

    def _abandoned(self, _message: _Abandoned) -> None:
        carrier = self._carrier
        carrier.bus.reached.note(
            "abandoned_timeout", carrier.caller.owner, f"{self._ticket.method} was cancelled"
        )
        self._stop(Reason.CANCELLED)

    def _stop(self, reason: Reason) -> None:
        self._over = True
        self._let_go(reason)
        self._cell.stop()

    def _let_go(self, reason: Reason) -> None:
        carrier = self._carrier
        # A call that has become a task speaks through that.
        if carrier.address is self._cell.address:
            carrier.ended = reason
        carrier.stream = None

    def _ended(self, reason: StopReason) -> None:
        self._ticket.slot.release()
        for question_id in tuple(self._questions or ()):
            self._forget(question_id)
        if not self._parked:
            self._carrier.let_go()
            self._carrier.cancel()
            # They know each other, and should not wait for the garbage collector.
            self._carrier.running = None
        if not self._over:
            if reason is StopReason.FAILED:
                self._reply(internal_error())
            self._let_go(Reason.FAILED)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Emission: _emit,
        Progress: _emit,
        Poll: _close_stream,
        Ask: _ask,
        Answered: _answered,
        Withdraw: _withdraw,
        TaskEnded: _task_ended,
        Finished: _finished,
        Cancel: _cancel,
        Drop: _drop,
        End: _end,
        Stopped: _stream_stopped,
        _Abandoned: _abandoned,
    }
