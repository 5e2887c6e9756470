"""The records of one bus: what it did lately, counted and kept, within bounds that no client can stretch."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import attrs
import msgspec

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.bus_services import BusServices
from mcpbus.core.call import CallActor
from mcpbus.core.input_requests import InputRound
from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.core.message_sinks import NullSink, TaskSink
from mcpbus.core.receipt import Fate
from mcpbus.core.request_actor import RequestActor
from mcpbus.core.request_context import Life, RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.core.watching import WatchedReceipt
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.printable import quoted
from mcpbus.protocol.routes import Reason
from mcpbus.watch.naming import LONGEST, PrincipalNames, client_name, session_name
from mcpbus.watch.tallies import UNKNOWN, Tallies
from mcpbus.watch.tape import Tape
from mcpbus.watch.views import LimitView

_log = logging.getLogger("mcpbus")

EVENTS: Final = ("began", "listening", "ended", "said", "settled", "replied", "asked", "answered")
"""The methods that an observer may have."""

_FINISHED: Final = Reason.FINISHED
_NO_FAILURES: Final = frozenset({"ok", "suspended", "task"})
ANSWERED: Final = frozenset({"ok", "tool_error", "timeout", "error", "suspended", "task"})
"""The outcomes after which there is a reply."""
_MESSAGE_BYTES: Final = 250
_CALL_BYTES: Final = 1_000
_COUNT_EVERY: Final = 64
_MOST_ENDED: Final = 200
"""Sessions and listens whose names are known after their end, and limits that were reached."""


@attrs.frozen
class Facts:
    """The texts about a request that a watch keeps after its end; see `RequestView`."""

    id: str
    session: str | None
    owner: str
    client: str
    peer: str
    revision: str
    transport: str


class BusRecords:
    """The records of one bus; a `Recorder`.

    Args:
        messages: How many messages are kept.
        calls: How many ended requests are kept.
        names: Names principals.
        observers: Objects that are called when something happens.

    Attributes:
        tape: The newest messages.
        tallies: The counts, and the newest ended requests.
        observes_starts: Whether an observer wants to know of starts.
        names: Names principals.
        epoch: The time of day when `time.perf_counter` was 0, in seconds since 1970.
        sessions: The names of open sessions and listens, by address.
        limits: The last limits that were reached, oldest first.
    """

    def __init__(self, messages: int, calls: int, names: PrincipalNames, observers: Sequence[object]) -> None:
        self.tape = Tape(messages)
        self.tallies = Tallies(calls)
        self.names = names
        self.epoch = time.time() - perf_counter()
        self.sessions: dict[object, str] = {}
        self._ended: dict[object, str] = {}
        self.limits: deque[LimitView] = deque(maxlen=_MOST_ENDED)
        self._observers: dict[str, list[Callable[..., object]]] = {
            event: [method for each in observers if (method := getattr(each, event, None)) is not None]
            for event in EVENTS
        }
        self.observes_starts = bool(self._observers["began"])
        self._on_ended, self._on_said = self._observers["ended"], self._observers["said"]
        self._on_settled, self._on_replied = self._observers["settled"], self._observers["replied"]
        self._complaints = RateLimitedLogger(_log)
        self._account: Any = None
        self._uncounted = 0

    def attach(self, bus: BusServices) -> None:
        """Count what it keeps as memory of a bus."""
        self._account = bus.budget.account("the watch")

    # -- requests --------------------------------------------------------------------------------

    def started(self, life: Life) -> None:
        """See `Recorder`."""
        self._tell("began", life)

    def ended(self, life: Life, context: RequestContext, request: Any, *, known: bool = True) -> None:
        """See `Recorder`."""
        try:
            seconds = life.seconds = perf_counter() - life.began
            name = context.routing.name
            if request is None:
                outcome = life.outcome or "ok"
                if not known:
                    name = name and UNKNOWN
            else:
                sink = request.call.sink
                finished = type(sink) is NullSink and sink.reason is _FINISHED
                outcome = (life.outcome or "ok") if finished else _outcome(life, request)
            life.outcome = outcome
            tally = self.tallies.of(context.request.method, name)
            life.label = tally.label
            keep = tally.add(life, seconds, outcome)
            if outcome not in _NO_FAILURES:
                self.tallies.fail(tally, life.error or outcome)
            if keep or self._on_ended:
                life.facts = self.facts(context)
            if keep:
                self.tallies.keep(tally, life, outcome)
                self._count()
            if life.first is not None and life.first.current is life:
                life.first.current = None
            if self._on_ended:
                life.context = context
                self._tell("ended", life)
            life.context = None
        except Exception as error:  # noqa: BLE001 - a fault of the watch harms no request
            life.context = None
            self.failed(error)

    def refused(self, context: RequestContext, error: ProtocolError) -> None:
        """See `BusWatch`."""
        life = context.life
        if life is None or life.seconds is not None:
            return
        if isinstance(error, ServerOverloaded):
            life.outcome, life.error = "refused", str(error.status)
        else:
            life.outcome, life.error = "error", str(error.code)
        self.ended(life, context, None)

    def facts(self, context: RequestContext) -> Facts:
        """Return the texts about a request that are kept."""
        session = context.session
        return Facts(
            quoted(context.request.id, LONGEST),
            None if session is None else session.short_id,
            self.names.name(context.principal, context.peer),
            client_name(context),
            str(context.peer),
            context.revision.name,
            context.transport.value,
        )

    def replied(self, life: Life, fate: Fate) -> None:
        """See `Recorder`."""
        life.reply = fate
        if self._on_replied:
            self._tell("replied", life, fate)

    @contextmanager
    def asking(self, life: Life | None, asked: InputRound) -> Iterator[None]:
        """See `BusWatch`."""
        if life is None or not asked.unanswered:  # what is run again is answered already
            yield
            return
        self._tell("asked", life, asked.questions)
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._tell("answered", life, asked.questions, error)
            del error

    # -- messages --------------------------------------------------------------------------------

    def emitted(self, receipt: WatchedReceipt) -> None:
        """See `Recorder`."""
        self.tape.add(receipt)
        self._count()
        if self._on_said:
            self._tell("said", receipt)

    def settled(self, receipt: WatchedReceipt, fate: Fate) -> None:
        """See `Recorder`."""
        life = receipt.life
        if receipt.reply:
            if life is not None:
                self.replied(life, fate)
            return
        self.tape.count(receipt.method, life, fate)
        if self._on_settled:
            self._tell("settled", receipt, fate)

    def _count(self) -> None:
        """Count from time to time what is kept."""
        self._uncounted += 1
        if self._uncounted >= _COUNT_EVERY and self._account is not None:
            self._uncounted = 0
            self._account.hold_now(len(self.tape) * _MESSAGE_BYTES + self.tallies.kept * _CALL_BYTES)

    # -- sessions and listens --------------------------------------------------------------------

    def opened(self, address: object, described: Any) -> None:
        """See `BusWatch`."""
        try:
            if isinstance(described, Session):
                self.sessions[address] = session_name(described)
            elif (life := described.life) is not None:
                self.sessions[address] = f"listen {life.number}"
                if self._observers["listening"]:
                    life.context = described
                    self._tell("listening", life)
                    life.context = None
        except Exception as error:  # noqa: BLE001 - a fault of the watch harms no session
            self.failed(error)

    def closed(self, address: object) -> None:
        """See `BusWatch`."""
        name = self.sessions.pop(address, None)
        if name is not None:
            self._ended[address] = name
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def target_of(self, recipient: object) -> str | None:
        """See `Recorder`."""
        return self.sessions.get(recipient) or self._ended.get(recipient)

    def limit_reached(self, limit: str, whom: object, consequence: str) -> None:
        """See `BusWatch`."""
        try:
            found = LimitView(time.time(), limit, self.names.owner(whom), consequence)
            last = self.limits[-1] if self.limits else None
            if last is not None and _is_same(last, found):
                self.limits[-1] = msgspec.structs.replace(found, times=last.times + 1)
            else:
                self.limits.append(found)
        except Exception as error:  # noqa: BLE001 - a fault of the watch harms nobody
            self.failed(error)

    # -- observers, and faults -------------------------------------------------------------------

    def _tell(self, event: str, *facts: object) -> None:
        """Call the observers; one that raises is left out from then on."""
        for method in tuple(self._observers[event]):
            try:
                method(*facts)
            except Exception:  # noqa: BLE001 - the author's code, and no request's
                owner = getattr(method, "__self__", None)
                for methods in self._observers.values():
                    methods[:] = [each for each in methods if getattr(each, "__self__", each) is not owner]
                _log.exception("an observer of the watch raised, and is left out from now on: %r", owner)

    def failed(self, error: Exception) -> None:
        """See `Recorder`."""
        self._complaints.warn("the watch has failed to record something", exc_info=error)


def _is_same(one: LimitView, other: LimitView) -> bool:
    return (one.limit, one.owner, one.consequence) == (other.limit, other.owner, other.consequence)


def _outcome(life: Life, request: Any) -> str:
    """Return how a request has ended that was not simply answered."""
    if not isinstance(request, RequestActor):
        return "error"
    call: CallActor = request.call
    sink = call.sink
    if isinstance(sink, TaskSink) or call.task_id is not None:
        return "task"
    if not isinstance(sink, NullSink):
        return "error"
    if sink.reason is Reason.SUSPENDED:
        return "suspended"
    if sink.reason in {Reason.CANCELLED, Reason.SESSION_ENDED}:
        return "cancelled"
    return life.outcome or "error"
