"""One run of an author's handler, and the questions that it asks.

As long as the handler neither asks its client nor becomes a task there is nothing to decide, and the call is dormant, see
`mcpbus_actors.LazyActor`: its request owns the handler's task. Once it is active, it owns that itself. What the handler says reaches
a client through the request that carries the call at the moment, which the handler's `Context` finds here.

A legacy request carries its call to the end, and questions go out on its stream. In the modern era a question
ends the request with ``input_required``: the call *parks*, its coroutine still suspended, until a retry carries
it on from the very line. A call that becomes a task is carried by the task's actor from then on, as by a request.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgspec
from mcpbus_actors import (
    ActorContext,
    Failed,
    LazyActor,
    Outcome,
    StopReason,
    Succeeded,
    Task,
    TaskCancelled,
    TaskEnded,
    Timer,
)

from mcpbus.core.bus_services import BusServices
from mcpbus.core.input_requests import InputNeeded, InputRound, InputRounds, InputWithdrawn
from mcpbus.core.input_responses import InputResponses
from mcpbus.core.memory_budget import MemoryAccount
from mcpbus.core.message_sinks import MessageSink, NullSink, TaskSink
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.request_context import RequestContext
from mcpbus.core.signals import BecomeTask, CancelCall, FailRequest, Finished, Park, Resume
from mcpbus.core.suspended_calls import SuspendedCall
from mcpbus.features.input_requests.errors import cannot_ask
from mcpbus.features.input_requests.input_required import InputRequired
from mcpbus.features.schemas import python_types
from mcpbus.protocol.errors import ProtocolError, internal_error
from mcpbus.protocol.extensions import TaskSupport
from mcpbus.protocol.large import weigh
from mcpbus.protocol.results import Tail
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import Reason

_log = logging.getLogger("mcpbus")

_SHORT_BYTES = 1024
"""Of arguments that are not counted among what is kept for clients: the number of requests bounds them well enough."""

_TOO_MUCH = "The request was ended because the server keeps too much in memory, and for it the most"


class _SuspensionExpired(msgspec.Struct, frozen=True):
    """Nobody came back in time."""


class _Evicted(msgspec.Struct, frozen=True):
    """Others need the room."""


class Handler(Protocol):
    """What a call runs."""

    @property
    def replayable(self) -> bool:
        """Whether it may be run again from the top where a run that waited for the client is lost."""

    @property
    def rounds(self) -> bool:
        """Whether its request may be answered with questions, where the revision has that.

        If not, answers and a state that a request brings are its own affair: to the bus it is one like any other.
        """

    @property
    def own_rounds(self) -> bool:
        """Whether the handler seals states of its own, besides those of the bus.

        A retry whose state the bus did not seal, or that has none, is then a request like any other.
        """

    @property
    def task_support(self) -> TaskSupport | None:
        """How the call may become a task; None if it may not."""

    async def run(self, call: "CallActor", /) -> bytes | InputRequired:
        """Run, once.

        Returns:
            The encoded result object, or what is to be asked before it is run again.

        Raises:
            ProtocolError: What to answer instead. Any other exception of an author's function has been logged.
        """


def read_failure(outcome: Outcome) -> ProtocolError:
    """Return the error to answer with where a handler did not succeed. What has not been logged is logged."""
    if isinstance(outcome, Failed):
        if isinstance(outcome.exception, ProtocolError):
            return outcome.exception
        _log.error("a handler failed", exc_info=outcome.exception)
    return internal_error()


class CallActor(LazyActor[object], kw_only=True, eq=False):
    """One run of a handler; see the module.

    Attributes:
        bus: The bus.
        context: What is asked, and by whom.
        handler: What answers it.
        sink: The request by which it speaks to its client, or the task that it is; or the silence that keeps it.
        stream: Where what is said leaves; None if nothing was said yet, or nobody is reached any more.
        task: The handler's task, while it runs.
        task_id: The id of the task that the call is for its client, or None.
        becoming_task: Whether it is about to become one; what is asked meanwhile waits for that.
        account: Where it is counted what it keeps in memory, if that is worth it.
    """

    bus: BusServices
    context: RequestContext
    handler: Handler
    sink: MessageSink | TaskSink | NullSink = NullSink(Reason.INTERNAL_ERROR)
    stream: MessageStream | None = None
    task: Task | None = None
    task_id: str | None = None
    becoming_task: bool = False
    account: MemoryAccount | None = None
    _answers: InputResponses | None = None
    _name: str | None = None
    _asks: InputRounds | None = None
    _lapse_timer: Timer | None = None
    _result: bytes | ProtocolError | None = None

    # -- its request -----------------------------------------------------------------------------

    def count(self, asked: int = 0) -> None:
        """Count what the call keeps in memory while it waits: its arguments, and what it asked. A little is not worth it.

        Args:
            asked: Bytes of the questions that its client is to come back with answers to.
        """
        text = self.context.request.text
        if self.account is None and len(text) + asked > _SHORT_BYTES:
            self.account = self.bus.budget.account("a call", self._make_room, owner=self.context.owner)
        if self.account is not None:
            # Arguments that are decoded are flat, and do not grow.
            flat = isinstance(self.context.routing.arguments, dict)
            self.account.hold_now((len(text) if flat else weigh(text)) + asked)

    def _make_room(self) -> None:
        """End, and tell why by what carries it. One that has not begun is refused instead."""
        if isinstance(self.sink, NullSink):
            self.cancel()
        elif self.task is not None:
            self.sink.address.tell(FailRequest(_TOO_MUCH))

    @property
    def evicted(self) -> bool:
        """Whether it is to end, since too much is kept in memory, and for it the most."""
        return self.account is not None and self.account.leaving

    def let_go(self) -> None:
        """Count nothing any more: the call has ended."""
        if self.account is not None:
            self.account.close()

    @property
    def result_suffix(self) -> Tail:
        """What ends each result for its client."""
        return self.bus.result_suffixes[self.context.revision]

    @property
    def answers(self) -> InputResponses:
        """What its handler was answered, and is to be; most are never asked for it."""
        if self._answers is None:
            self._answers = InputResponses()
        return self._answers

    @answers.setter
    def answers(self, answers: InputResponses) -> None:
        self._answers = answers

    def continue_in(self, context: RequestContext) -> None:
        """Belong to another request of the client from now on: a retry with input responses."""
        if context.life is not None:
            context.life.carry_on(context, self.context.life)
        self.context = context

    @property
    def open_rounds(self) -> list[InputRound]:
        """The questions of its own that wait for answers, by round; see `RequestActor.open_rounds` for those of a legacy request."""
        return list(self._asks or ())

    @property
    def unreachable(self) -> bool:
        """Whether what is said now reaches nobody."""
        return isinstance(self.sink, NullSink)

    @property
    def asks_directly(self) -> bool:
        """Whether questions go to who carries it when they are asked; otherwise the request is answered with them."""
        return self.context.revision.era is Era.LEGACY or (
            self.task_id is not None and not self.becoming_task
        )

    def deliver(self, message: object) -> bool:
        """Tell it something, and return whether it took it: not once it has ended, or its request without it."""
        if not self.active:
            if isinstance(self.sink, MessageSink):
                self.sink.address  # noqa: B018 - if its client turns out to have gone, it ends
            if self.unreachable:
                return False
        return self.address.tell(message) is None

    def cancel(self) -> None:
        """Cancel it if it owns its handler's task; otherwise the task's owner does, which has ended."""
        if self._cell is None:
            self.task = None  # they know each other, and should not wait for the garbage collector
        elif not self.stopped:
            self.address.tell(CancelCall())

    def _report(self, message: object) -> None:
        """Tell whoever carries it."""
        if not isinstance(self.sink, NullSink):
            self.sink.address.tell(message)

    # -- life ------------------------------------------------------------------------------------

    def activated(self, cell: ActorContext[object]) -> None:
        """Take over the handler's task."""
        if self.task is not None:
            cell.adopt(self.task)

    def _task_ended(self, message: TaskEnded) -> None:
        outcome = message.outcome
        result = outcome.value if isinstance(outcome, Succeeded) else read_failure(outcome)
        if isinstance(result, InputNeeded):
            result = self._require([result.ask], result.state)
        if self._lapse_timer is None:
            self._finish(result, cancelled=isinstance(message.outcome, TaskCancelled))
        else:
            # It ended although it waits, since another part of it went on. The retry gets what came of it.
            self._result = result

    def _finish(self, result: bytes | ProtocolError, *, cancelled: bool = False) -> None:
        self._report(Finished(result, cancelled=cancelled))
        self.stop()

    def _answer_with_questions(self, message: InputNeeded) -> None:
        self._finish(self._require([message.ask], message.state))

    def _give_way(self) -> None:
        self.address.tell(_Evicted())

    def _lapse(self, message: _SuspensionExpired) -> None:
        self.bus.limit_monitor.note(
            "suspended_timeout",
            self.context.owner,
            "a call that waited for its client was given up",
            usual=True,
        )
        self._cancel(message)

    def _cancel(self, _message: CancelCall | _SuspensionExpired | _Evicted) -> None:
        self._leave_parking()
        if self._result is None and self.task is not None:
            self.task.cancel()
            self._fail_asks()
        else:
            self.stop()

    def _fail_asks(self) -> None:
        # For parts that the cancellation does not reach: plain functions, and what outlives the handler.
        for ask in self._asks or ():
            ask.fail(cannot_ask("its request has ended"))

    # -- questions -------------------------------------------------------------------------------

    def _ask(self, ask: InputRound) -> None:
        if self._asks is None:
            self._asks = InputRounds()
        asks = self._asks
        if not self.asks_directly:
            if not asks and self._lapse_timer is None:
                # What is asked in the same turn goes out together.
                self.cell.after(0, Park())
        elif not isinstance(self.sink, NullSink):
            self._report(ask)
        else:
            ask.fail(cannot_ask(self.sink.reason.value))
        asks.add(ask)

    def _withdraw(self, message: InputWithdrawn) -> None:
        if self._asks is not None:
            self._asks.discard(message.ask)
        self._report(message)

    def _park(self, _message: Park) -> None:
        asks = list(self._asks or ())
        if not asks or self.unreachable or self.becoming_task or self._lapse_timer is not None:
            return
        self._lapse_timer = self.cell.after(self.bus.parked_calls.timeout, _SuspensionExpired())
        self._report(Finished(self._require(asks, None), parked=True))

    def _require(self, asks: Sequence[InputRound], author: bytes | None) -> bytes:
        """Make the result that asks: for another run, if an `author` left a state for that; otherwise the call parks."""
        again = author is not None
        if self._name is None:
            self._name = self.bus.new_name()
        answers = self.answers.all() if again else self.answers.portable()
        if not again and self.answers.state is not None:
            author = python_types.encode(self.answers.state)
        name, sealed = self.bus.parked_calls.sealer.seal(
            self.context.binding(), self._name, answers, self.bus.parked_calls.timeout, author, again=again
        )
        requests = {
            key: {"method": ask.questions[key].method, "params": ask.params[key]}
            for ask in asks
            for key in ask.unanswered
        }
        body: dict[str, Any] = {"inputRequests": requests} if requests else {}
        result = python_types.encode(body | {"requestState": sealed})[:-1] + self.result_suffix.input_required
        if not again:
            parked = SuspendedCall(name, self, self.context.principal, self._give_way, self.context.owner)
            self.bus.parked_calls.park(self._name, parked)
            self.count(len(result))
        return result

    def _resume(self, message: Resume) -> None:
        self._leave_parking()
        if self._result is not None:
            self._finish(self._result)
            return
        self.answers.given.update(message.answers)
        for ask in self._asks or ():
            self.answers.fill(ask)
        if self._asks:
            self.cell.after(0, Park())

    def _hand_over(self, message: BecomeTask) -> None:
        self._report(Finished(message.result, parked=True))
        self.sink, self.becoming_task = TaskSink(message.task, self.bus), False
        # Another part of the handler asked meanwhile: its question is the task's first.
        for ask in self._asks or ():
            self._report(ask)

    def _leave_parking(self) -> None:
        if self._lapse_timer is not None:
            self._lapse_timer.cancel()
            self._lapse_timer = None
        if self._name is not None:
            self.bus.parked_calls.discard(self._name)

    def ended(self, reason: StopReason) -> None:
        """Leave nobody waiting."""
        self._leave_parking()
        self._fail_asks()
        self.let_go()
        self.task = None
        if reason is StopReason.FAILED:
            self._report(Finished(internal_error()))

    HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        TaskEnded: _task_ended,
        InputNeeded: _answer_with_questions,
        CancelCall: _cancel,
        _SuspensionExpired: _lapse,
        _Evicted: _cancel,
        InputRound: _ask,
        InputWithdrawn: _withdraw,
        Park: _park,
        Resume: _resume,
        BecomeTask: _hand_over,
    }
