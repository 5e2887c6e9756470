"""The call actor: one run of an author's handler that asks its client, or becomes a task.

It owns the handler's task, and the questions that it waits for. A handler that does neither needs none: its request's
actor owns its task, and hands it over when there is something to decide. What the handler says reaches a client through
the request that carries the call at the moment, which the handler's `Context` finds in the call's `Carrier`.

A legacy request carries its call to the end, and questions go out on its stream. In the modern era a question
ends the request with ``input_required``: the call *parks*, its coroutine still suspended, until a retry carries
it on from the very line. A call that becomes a task is carried by the task's actor from then on, as by a request.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from actors import (
    Address,
    Cell,
    Failed,
    Outcome,
    StopReason,
    Succeeded,
    Task,
    TaskCancelled,
    TaskEnded,
    Timer,
)
from mcpbus.asking.ask import Ask, Required, Withdraw
from mcpbus.asking.parking import Parked, Parking
from mcpbus.budget import Account, weigh
from mcpbus.features.asking.errors import InvalidAnswerError, cannot_ask
from mcpbus.features.asking.input_required import InputRequired
from mcpbus.features.schemas import jsontypes
from mcpbus.protocol.errors import ProtocolError, internal_error
from mcpbus.protocol.jsonrpc import Request
from mcpbus.protocol.messages import decode_params
from mcpbus.protocol.request_state import Binding
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import Reason

if TYPE_CHECKING:
    from mcpbus.brief import Brief
    from mcpbus.bus import Bus
    from mcpbus.dispatch.handlers import Caller
    from mcpbus.stream import Stream

_log = logging.getLogger("mcpbus")

_SHORT_BYTES = 1024
"""Of arguments that are not counted among what is kept for clients: the number of requests bounds them well enough."""

_TRAVELLING_BYTES = 1024 * 1024
"""Of answers in a state. It has to fit into the body of a retry, beside the new answers."""


class CancelCall(msgspec.Struct, frozen=True):
    """Cancel the handler; nobody waits for its result any more."""


class Resume(msgspec.Struct, frozen=True):
    """A retry carries the call on.

    Attributes:
        answers: What it brings, decoded JSON by key.
    """

    answers: Mapping[str, Any]


class HandOver(msgspec.Struct, frozen=True):
    """The call is a task now.

    Attributes:
        task: The task's actor, which carries the call from now on.
        result: The encoded result object with which the request is answered.
    """

    task: Address[object]
    result: bytes


class Finished(msgspec.Struct, frozen=True):
    """Told to the request, or the task: what to answer.

    Attributes:
        result: The encoded result object, or an error.
        parked: Whether the call goes on, for a retry or as a task; otherwise it has ended.
        cancelled: Whether its handler was cancelled.
    """

    result: bytes | ProtocolError
    parked: bool = False
    cancelled: bool = False


class Park(msgspec.Struct, frozen=True):
    """Ask for all that was asked in this turn."""


class _Lapse(msgspec.Struct, frozen=True):
    """Nobody came back in time."""


class _GiveWay(msgspec.Struct, frozen=True):
    """Others need the room."""


class Carrier(msgspec.Struct, eq=False):
    """The request by which a call speaks to its client; after a retry it is another one, or it is a task.

    Attributes:
        bus: The bus.
        caller: Who asks.
        request: What they ask.
        handler: What answers it.
        rounds: Whether the request can be answered with questions.
        brief: The request, where it has no actor for as long as nobody needs it.
        running: The handler's task, once there is an actor.
        stream: Where what is said leaves, while the request is open; None of one in brief that has said nothing.
        ended: Why what is said now reaches nobody; None while the request is open.
        task: The id of the task that it is, or None.
        beginning: Whether it is about to become one; what is asked meanwhile waits for that.
        answers: Answers that came, decoded JSON by key, whether or not they were asked for yet.
        used: Answers that the handler has got, encoded, by key.
        state: What an earlier run of the handler left with `InputRequired`.
    """

    bus: "Bus"
    caller: "Caller"
    request: Request
    handler: "Handler"
    rounds: bool
    brief: "Brief | None" = None
    running: Task | None = None
    stream: "Stream | None" = None
    ended: Reason | None = None
    task: str | None = None
    beginning: bool = False
    answers: dict[str, Any] = msgspec.field(default_factory=dict)
    used: dict[str, bytes] = msgspec.field(default_factory=dict)
    state: Any = None
    _keys: dict[str, int] = msgspec.field(default_factory=dict)
    account: Account | None = None
    _call: Address[object] | None = None
    _address: Address[object] | None = None

    def count(self, end: Callable[[], object], asked: int = 0) -> None:
        """Count what the call keeps in memory while it waits: its arguments, and what it asked. A little is not worth it.

        Args:
            end: Ends it, where it has no actor of its own.
            asked: Bytes of the questions that its client is to come back with answers to.
        """
        params = self.request.params
        if self.account is None:
            if len(params) + asked <= _SHORT_BYTES:
                return
            self.account = self.bus.budget.account(
                "a call", lambda: self.cancel() or end(), owner=self.caller.owner
            )
        self.account.hold_now(weigh(params) + asked)

    @property
    def gives_up(self) -> bool:
        """Whether it is to end, since too much is kept in memory, and for it the most."""
        return self.account is not None and self.account.leaving

    @property
    def begun(self) -> bool:
        """Whether somebody carries it already."""
        return self.brief is not None or self._address is not None

    def let_go(self) -> None:
        """Count nothing any more: the call has ended."""
        if self.account is not None:
            self.account.close()

    def carry(self, caller: "Caller", request: Request) -> None:
        """Speak through another request from now on, which can be answered with questions as well."""
        self.caller = caller
        self.request = request
        self.ended = None

    @property
    def direct(self) -> bool:
        """Whether questions go to `address` when they are asked; otherwise the request is answered with them."""
        return self.caller.revision.era is Era.LEGACY or (self.task is not None and not self.beginning)

    @property
    def address(self) -> Address[object]:
        """The request's actor, or the task's."""
        if self.brief is not None:
            self.brief.appear()
        assert self._address is not None  # noqa: S101 - whoever carries a call says so at once
        return self._address

    @address.setter
    def address(self, address: Address[object]) -> None:
        self._address = address

    @property
    def call(self) -> Address[object]:
        """The call's actor, which the handler's task is handed over to when it is first needed."""
        if self._call is None:
            if self.brief is not None:
                self.brief.appear()
            self._call = self.bus.system.spawn(CallActor, self, self.bus.parking)
        return self._call

    def tell_call(self, message: object) -> bool:
        """Tell the call's actor, and return whether it took it: not once the call has ended, or its request without it."""
        if self._call is None:
            if self.brief is not None:
                self.brief.appear()  # and if its client turns out to have gone, end
            if self.ended is not None:
                return False
        return self.call.tell(message) is None

    def cancel(self) -> bool:
        """Cancel the call if it has an actor of its own, and return whether it has; otherwise its task's owner is to."""
        if self._call is None:
            return False
        if not self._call.stopped:
            self._call.tell(CancelCall())
        return True

    def meta(self) -> dict[str, Any]:
        """Decode the request's ``_meta``."""
        return decode_params(_WithMeta, self.request.params).meta

    def binding(self) -> Binding:
        """Make what a state for this request is bound to."""
        return Binding.of(self.request, self.caller.principal)

    def unique(self, key: str) -> str:
        """Return a key that was not used in this run: the second ``name`` is ``name-2``.

        It depends on nothing but the order of the questions, so that a run from the top makes the same keys.
        """
        unique = key
        while unique in self._keys:
            self._keys[key] += 1
            unique = f"{key}-{self._keys[key]}"
        self._keys[unique] = 1
        return unique

    def begin_again(self, state: Any) -> None:
        """Prepare for another run of the handler."""
        self._keys.clear()
        self.state = state

    def fill(self, ask: Ask) -> None:
        """Answer questions with what has come; one whose answer cannot be used stays open."""
        for key in ask.open:
            if key in self.answers:
                answer = self.answers.pop(key)
                try:
                    ask.answer(key, answer)
                except InvalidAnswerError:
                    continue
                self.used[key] = jsontypes.encode(answer)


class Handler(Protocol):
    """What a request runs, and through what it speaks."""

    async def run(self, carrier: Carrier, /) -> bytes | InputRequired:
        """Run, once; see `Prepared.run`."""


class _WithMeta(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(default_factory=dict, name="_meta")


def read_outcome(outcome: Outcome) -> bytes | Required | ProtocolError:
    """Return what came of `run_rounds`: what it returned, or the error to answer with. What has not been logged is logged."""
    if isinstance(outcome, Succeeded):
        return outcome.value  # type: ignore[no-any-return]  # what run_rounds returns
    if isinstance(outcome, Failed):
        if isinstance(outcome.exception, ProtocolError):
            return outcome.exception
        _log.error("a handler failed", exc_info=outcome.exception)
    return internal_error()


class CallActor:
    """Owns the task of one handler; see the module."""

    def __init__(self, cell: Cell[object], carrier: Carrier, parking: Parking) -> None:
        self._cell = cell
        self._carrier = carrier
        self._parking = parking
        self._name: str | None = None
        self._asks: list[Ask] | None = None
        self._lapse_timer: Timer | None = None
        self._result: bytes | ProtocolError | None = None
        cell.on_stop(self._ended)
        self._task = carrier.running
        if self._task is not None:
            cell.adopt(self._task)

    def handle(self, message: object) -> None:
        """Handle one message; see `actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    def _task_ended(self, message: TaskEnded) -> None:
        outcome = read_outcome(message.outcome)
        result = self._require([outcome.ask], outcome.state) if isinstance(outcome, Required) else outcome
        if self._lapse_timer is None:
            self._finish(result, cancelled=isinstance(message.outcome, TaskCancelled))
        else:
            # It ended although it waits, since another part of it went on. The retry gets what came of it.
            self._result = result

    def _finish(self, result: bytes | ProtocolError, *, cancelled: bool = False) -> None:
        self._carrier.address.tell(Finished(result, cancelled=cancelled))
        self._cell.stop()

    def _answer_with_questions(self, message: Required) -> None:
        self._finish(self._require([message.ask], message.state))

    def _give_way(self) -> None:
        self._cell.address.tell(_GiveWay())

    def _lapse(self, message: _Lapse) -> None:
        carrier = self._carrier
        carrier.bus.reached.note(
            "parked_timeout",
            carrier.caller.owner,
            "a call that waited for its client was given up",
            usual=True,
        )
        self._cancel(message)

    def _cancel(self, _message: CancelCall | _Lapse | _GiveWay) -> None:
        self._leave()
        if self._result is None and self._task is not None:
            self._task.cancel()
            self._fail_asks()
        else:
            self._cell.stop()

    def _fail_asks(self) -> None:
        # For parts that the cancellation does not reach: plain functions, and what outlives the handler.
        for ask in self._asks or ():
            ask.fail(cannot_ask("its request has ended"))

    # -- questions -------------------------------------------------------------------------------

    def _ask(self, ask: Ask) -> None:
        carrier = self._carrier
        self._asks = [other for other in self._asks or () if other.open]
        self._asks.append(ask)
        if not carrier.direct:
            if len(self._asks) == 1 and self._lapse_timer is None:
                # What is asked in the same turn goes out together.
                self._cell.after(0, Park())
        elif carrier.ended is None:
            carrier.address.tell(ask)
        else:
            ask.fail(cannot_ask(carrier.ended.value))

    def _withdraw(self, message: Withdraw) -> None:
        self._asks = [ask for ask in self._asks or () if ask is not message.ask]
        if self._carrier.direct and self._carrier.ended is None:
            self._carrier.address.tell(message)

    def _park(self, _message: Park) -> None:
        carrier = self._carrier
        asks = [ask for ask in self._asks or () if ask.open]
        if not asks or carrier.ended is not None or carrier.beginning or self._lapse_timer is not None:
            return
        self._lapse_timer = self._cell.after(self._parking.timeout, _Lapse())
        carrier.address.tell(Finished(self._require(asks, None), parked=True))

    def _require(self, asks: Sequence[Ask], author: bytes | None) -> bytes:
        """Make the result that asks: for another run, if an `author` left a state for that; otherwise the call parks."""
        carrier, again = self._carrier, author is not None
        if self._name is None:
            self._name = secrets.token_urlsafe(16)
        answers: dict[str, bytes] | None = carrier.used
        if again:
            # The next run begins at the top, and asks for what it wants again.
            answers = carrier.used | {key: jsontypes.encode(value) for key, value in carrier.answers.items()}
        else:
            author = None if carrier.state is None else jsontypes.encode(carrier.state)
            if sum(map(len, carrier.used.values())) > _TRAVELLING_BYTES:
                answers = None
        name, sealed = self._parking.sealer.seal(
            carrier.binding(), self._name, answers, self._parking.timeout, author, again=again
        )
        requests = {
            key: {"method": ask.questions[key].method, "params": ask.params[key]}
            for ask in asks
            for key in ask.open
        }
        body: dict[str, Any] = {"inputRequests": requests} if requests else {}
        result = jsontypes.encode(body | {"requestState": sealed})[:-1] + carrier.caller.tail.input_required
        if not again:
            parked = Parked(name, carrier, self._give_way, carrier.caller.owner)
            self._parking.park(self._name, parked)
            carrier.count(self._give_way, len(result))
        return result

    def _resume(self, message: Resume) -> None:
        self._leave()
        if self._result is not None:
            self._finish(self._result)
            return
        self._carrier.answers.update(message.answers)
        asks, self._asks = self._asks or [], []
        for ask in asks:
            self._carrier.fill(ask)
            if ask.open:
                self._asks.append(ask)
        if self._asks:
            self._cell.after(0, Park())

    def _hand_over(self, message: HandOver) -> None:
        carrier, request = self._carrier, self._carrier.address
        carrier.address, carrier.beginning = message.task, False
        request.tell(Finished(message.result, parked=True))
        # Another part of the handler asked meanwhile: its question is the task's first.
        for ask in self._asks or ():
            if ask.open:
                carrier.address.tell(ask)

    def _leave(self) -> None:
        if self._lapse_timer is not None:
            self._lapse_timer.cancel()
            self._lapse_timer = None
        if self._name is not None:
            self._parking.discard(self._name)

    def _ended(self, reason: StopReason) -> None:
        self._leave()
        self._fail_asks()
        self._carrier.let_go()
        if reason is StopReason.FAILED:
            self._carrier.address.tell(Finished(internal_error()))

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        TaskEnded: _task_ended,
        Required: _answer_with_questions,
        CancelCall: _cancel,
        _Lapse: _lapse,
        _GiveWay: _cancel,
        Ask: _ask,
        Withdraw: _withdraw,
        Park: _park,
        Resume: _resume,
        HandOver: _hand_over,
    }
