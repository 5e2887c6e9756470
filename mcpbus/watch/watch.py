"""The watch as authors hold it: its options, and the questions that it answers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from time import perf_counter
from typing import Any, cast

from mcpbus.core.admission import Admission
from mcpbus.core.backend import Backend
from mcpbus.core.bus_services import BusServices
from mcpbus.core.call import CallActor, Handler
from mcpbus.core.hub import Hub
from mcpbus.core.input_requests import InputRound
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.core.receipt import Fate, Ledger
from mcpbus.core.request_actor import RequestActor
from mcpbus.core.request_context import Life, RequestContext
from mcpbus.core.watching import WatchedAdmission, WatchedLedger, WatchedReceipt, watched_begin
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.printable import printable
from mcpbus.protocol.validators import check_positive
from mcpbus.watch.naming import NamePrincipal, PrincipalNames
from mcpbus.watch.records import BusRecords, Facts
from mcpbus.watch.stacks import Coroutines, where
from mcpbus.watch.views import MessageView, RequestView, StackFrame, State

_LONGEST_QUESTION = 200


class Watch:
    """Records what a bus does, and shows it: ``server.open(watch=Watch())``, then ``bus.watch.requests()``.

    It keeps texts and numbers of ended requests alone, and never arguments, results or whole session ids. A fault of it, or of an
    observer, harms no request. It may watch one bus after another, and shows the newest.

    Args:
        messages: How many messages it keeps.
        calls: How many ended requests it keeps: of each method, name and outcome the newest eight.
        name_principal: Returns the name of a principal, for people; None for its class and a short digest.
        observers: Objects with any of these methods, which are called in trio's thread and must not wait. What one raises is logged,
            and it is left out from then on.

            - ``began(life)``: a handler is about to start; called in its context, with its context variables.
            - ``listening(life)``: a listen is about to be acknowledged; `ended` is not called for it.
            - ``ended(life)``: a request has ended; its reply is not written yet. After this, `Life.context` is None.
            - ``said(receipt)``: a message is in the ledger.
            - ``settled(receipt, fate)``: it has its fate.
            - ``replied(life, fate)``: so has the reply of a request.
            - ``asked(life, questions)``: a handler is about to ask its client; called in its context. The questions are by key.
            - ``answered(life, questions, error)``: it has the answers to these, or the exception with which its waiting ended.

    Raises:
        ValueError: A number is not positive.
        TypeError: One of these is no such thing.
    """

    def __init__(
        self,
        *,
        messages: int = 5_000,
        calls: int = 1_000,
        name_principal: NamePrincipal | None = None,
        observers: Sequence[object] = (),
    ) -> None:
        check_positive("Watch", messages=messages, calls=calls)
        if name_principal is not None and not callable(name_principal):
            raise TypeError(f"name_principal is a function of a principal, not {name_principal!r}")
        if isinstance(observers, str) or not isinstance(observers, Sequence):
            raise TypeError(f"observers is a list of objects, not {observers!r}")
        self._messages = messages
        self._calls = calls
        self._names = PrincipalNames(name_principal)
        self._observers = tuple(observers)
        self._bus: Hub | None = None
        self.records = self._record()

    def _record(self) -> BusRecords:
        return BusRecords(self._messages, self._calls, self._names, self._observers)

    # -- for the bus -----------------------------------------------------------------------------

    def make_ledger(self) -> Ledger:
        """See `BusWatch`: a bus begins with this, and the records with it."""
        self.records = self._record()
        return WatchedLedger(self.records)

    def make_admission(self, limit: int, budget: MemoryBudget, **options: Any) -> Admission:
        """See `BusWatch`."""
        admission = WatchedAdmission(limit, budget, **options)
        admission.recorder = self.records
        return admission

    def watch_backend(self, backend: Backend) -> Callable[[RequestContext], bytes | Handler | None]:
        """See `BusWatch`."""
        return watched_begin(backend, self.records)

    def attach(self, bus: BusServices) -> None:
        """See `BusWatch`."""
        self._bus = cast("Hub", bus)
        self.records.attach(bus)

    def opened(self, address: object, described: Any) -> None:
        """See `BusWatch`."""
        self.records.opened(address, described)

    def refused(self, context: RequestContext, error: ProtocolError) -> None:
        """See `BusWatch`."""
        self.records.refused(context, error)

    def asking(self, life: Life | None, asked: InputRound) -> AbstractContextManager[None]:
        """See `BusWatch`."""
        return self.records.asking(life, asked)

    def closed(self, address: object) -> None:
        """See `BusWatch`."""
        self.records.closed(address)

    def limit_reached(self, limit: str, whom: object, consequence: str) -> None:
        """See `BusWatch`."""
        self.records.limit_reached(limit, whom, consequence)

    def progress_of(self, request: Any) -> str:
        """See `BusWatch`."""
        if not isinstance(request, RequestActor) or (life := request.context.life) is None:
            return ""
        try:
            line = where(Coroutines().stack_of(request.call.task))
        except Exception as error:  # noqa: BLE001 - a fault of the watch harms no drain
            self.records.failed(error)
            line = None
        return f"for {perf_counter() - life.began:.0f} s" + ("" if line is None else f" at {line}")

    @contextmanager
    def observed_by(self, observer: object) -> Iterator[None]:
        """Have one more observer of each bus that is opened within the block."""
        before = self._observers
        self._observers = (*before, observer)
        try:
            yield
        finally:
            self._observers = before

    # -- what it shows ---------------------------------------------------------------------------

    def requests(self, *, ended: bool = False) -> list[RequestView]:
        """Return the requests in flight, the suspended calls and the tasks, oldest first.

        Args:
            ended: Whether to return the ended requests that are kept instead, newest first.
        """
        if ended:
            lives = sorted(self.records.tallies, key=_end_of, reverse=True)
            return [self._view(life, life.facts, "ended") for life in lives]
        return [view for view, _ in self.look()]

    def request(self, number: int) -> RequestView | None:
        """Return a request by its number, be it in flight or ended; None if it is not known."""
        for view, _ in self.look(number):
            return view
        for life in self.records.tallies:
            if life.number == number:
                return self._view(life, life.facts, "ended")
        return None

    def stack(self, number: int) -> list[StackFrame]:
        """Return the lines of code at which the handler of a request is, outermost first.

        Args:
            number: The `RequestView.number`.

        Returns:
            The frames; none of a request that has ended, or is not known.
        """
        return next((frames for _, frames in self.look(number)), [])

    def tape(
        self,
        *,
        target: str | None = None,
        request: int | None = None,
        tool: str | None = None,
        method: str | None = None,
        fate: str | None = None,
        reason: str | None = None,
        since: int = 0,
        limit: int | None = None,
    ) -> list[MessageView]:
        """Return the newest messages, newest first.

        Args:
            target: Only those for this session or listen; see `MessageView.target`.
            request: Only those that the request of this number caused.
            tool: Only those that requests of the tool or prompt of this name caused.
            method: Only those of this method.
            fate: Only those of this fate, or ``pending``.
            reason: Only those that were discarded or refused for this reason, such as ``SUPERSEDED``.
            since: Only those of greater numbers.
            limit: How many at most.
        """
        wanted = {"target": target, "request": request, "tool": tool, "method": method, "reason": reason}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        found: list[MessageView] = []
        for receipt in self.records.tape:
            if receipt.number <= since or len(found) == limit:
                break
            view = self._message(receipt)
            if any(getattr(view, name) != value for name, value in wanted.items()):
                continue
            if fate is None or fate == (view.fate or "pending"):
                found.append(view)
        return found

    # -- how ---------------------------------------------------------------------------------------

    def look(
        self, number: int | None = None, limit: int | None = None, *, suspended: bool = False
    ) -> list[tuple[RequestView, list[StackFrame]]]:
        """Return the requests of `requests` with their stacks, oldest first.

        Args:
            number: Only that of this number.
            limit: How many at most.
            suspended: Whether only suspended calls are wanted.
        """
        coroutines = Coroutines()
        found = ((life, context, call) for life, context, call in self.in_flight())
        if number is not None:
            found = (each for each in found if each[0].number == number)
        if suspended:
            found = (each for each in found if each[0].seconds is not None and each[2].task_id is None)
        shown: list[tuple[RequestView, list[StackFrame]]] = []
        for life, context, call in islice(found, limit):
            frames = coroutines.stack_of(call.task)
            shown.append((self._live_view(life, context, call, frames), frames))
        return shown

    def in_flight(self) -> Iterator[tuple[Life, RequestContext, CallActor]]:
        """Iterate over the requests that have not ended, and the calls that go on after theirs, oldest first."""
        bus = self._bus
        if bus is None:
            return
        for slot in bus.admission:
            # Asking a dormant request for its address would wake it.
            request = slot.request
            if isinstance(request, RequestActor) and request.context.life is not None:
                yield request.context.life, request.context, request.call
        for call in bus.parked_calls:
            if isinstance(call, CallActor) and call.context.life is not None:
                yield call.context.life, call.context, call
        for task in bus.tasks:
            if task.call is not None and task.call.context.life is not None:
                yield task.call.context.life, task.call.context, task.call

    def _live_view(
        self, life: Life, context: RequestContext, call: CallActor, frames: list[StackFrame]
    ) -> RequestView:
        question = _question(call)
        state: State = "running" if any(frame.thread for frame in frames) else "waiting"
        if question is not None:
            state = "asking"
        if life.seconds is not None:
            state = "suspended" if call.task_id is None else "task"
        line = where(frames)
        return self._view(
            life,
            self.records.facts(context),
            state,
            question=question,
            where=None if line is None else str(line),
        )

    def _view(self, life: Life, facts: Facts | None, state: State, **more: Any) -> RequestView:
        facts = facts or Facts("", None, "", "", "", "", "")
        seconds = life.seconds
        if seconds is None or state != "ended":
            seconds = perf_counter() - life.began
        return RequestView(
            number=life.number,
            method=life.method,
            name=life.name,
            id=facts.id,
            session=facts.session,
            owner=facts.owner,
            client=facts.client,
            revision=facts.revision,
            transport=facts.transport,
            began=self.records.epoch + life.began,
            seconds=seconds,
            state=state,
            outcome=life.outcome,
            error=life.error,
            messages=life.said,
            reply=None if life.reply is None else fate_name(life.reply),
            resumes=None if life.first is None else life.first.number,
            **more,
        )

    def _message(self, receipt: WatchedReceipt) -> MessageView:
        fate, life = receipt.fate, receipt.life
        location = receipt.location
        return MessageView(
            number=receipt.number,
            method=receipt.method,
            reply=receipt.reply,
            made=self.records.epoch + receipt.made,
            seconds=(receipt.ended or perf_counter()) - receipt.made,
            location=None if location is None else location.value,
            fate=None if fate is None else fate.kind.value,
            reason=None if fate is None or fate.reason is None else fate.reason.name,
            request=None if life is None else life.number,
            tool=None if life is None else life.name,
            target=receipt.target,
        )


def fate_name(fate: Fate) -> str:
    """Return a fate as text, such as ``discarded SUPERSEDED``."""
    return fate.kind.value if fate.reason is None else f"{fate.kind.value} {fate.reason.name}"


def _end_of(life: Life) -> float:
    return life.began + (life.seconds or 0.0)


def _question(call: CallActor) -> str | None:
    """Return the first question of a call that waits for its answer."""
    for ask in open_rounds(call):
        for key in ask.unanswered:
            message = getattr(ask.questions[key], "message", None)
            return printable(message or ask.questions[key].method, lines=False, longest=_LONGEST_QUESTION)
    return None


def open_rounds(call: CallActor) -> list[InputRound]:
    """Return the rounds of questions that a call waits for."""
    return call.open_rounds + (call.sink.open_rounds if isinstance(call.sink, RequestActor) else [])
