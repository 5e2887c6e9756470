"""The classes that a watched bus uses for requests and messages, in place of the plain ones.

A bus that nothing watches never imports this module. The classes record facts, and a `Recorder` keeps what is worth it. A fault of the
recorder is reported to it, and harms neither the request nor the message.
"""

from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar, copy_context
from itertools import count
from time import perf_counter
from typing import Any, Protocol

from msgspec.structs import force_setattr

from mcpbus.core.admission import Admission, RequestSlot
from mcpbus.core.backend import Backend
from mcpbus.core.call import Handler
from mcpbus.core.receipt import DELIVERED, Fate, Ledger, Location, Receipt
from mcpbus.core.request_context import Life, RequestContext

LIFE: ContextVar[Life | None] = ContextVar("mcpbus_life", default=None)
"""The request whose handler runs here, or whose handler started the task or the thread that does."""


class Recorder(Protocol):
    """Keeps facts about a bus. Nothing here waits."""

    def started(self, life: Life, /) -> None:
        """Record that the handler of a request is about to start; called in its context."""

    def ended(self, life: Life, context: RequestContext, request: Any, /, *, known: bool = True) -> None:
        """Record that a request has ended, before its reply is written.

        Args:
            life: Its record.
            context: The request.
            request: Its `RequestActor`; None of a request that was answered without one.
            known: Whether there is what it names.
        """

    def replied(self, life: Life, fate: Fate, /) -> None:
        """Record the fate of a reply."""

    def emitted(self, receipt: "WatchedReceipt", /) -> None:
        """Record a message that the ledger counts from now on."""

    def settled(self, receipt: "WatchedReceipt", fate: Fate, /) -> None:
        """Record the fate of a message."""

    def target_of(self, recipient: object, /) -> str | None:
        """Return the name of a session or a listen, by its address."""

    def failed(self, error: Exception, /) -> None:
        """Report a fault of the recorder itself."""


class WatchedReceipt(Receipt, eq=False, gc=False):
    """A receipt with a memory.

    Attributes:
        life: The request that caused the message.
        target: The session or the listen that it is for; None of what a handler sends to its own client.
        reply: Whether it is the reply of the request.
        number: Counts the messages of the bus; 0 of a draft.
        made: When it was made, by `time.perf_counter`.
        ended: When it got its fate; 0 while it is pending.
    """

    life: Life | None = None
    target: str | None = None
    reply: bool = False
    number: int = 0
    made: float = 0.0
    ended: float = 0.0

    def __post_init__(self) -> None:
        """Note when it is made, and for which request: in a thread, too, whose context is a copy."""
        self.made = perf_counter()
        if self.life is None and (life := LIFE.get()) is not None:
            self.life = life.current or life

    def aim(self, recipient: object) -> None:
        """As `Receipt.aim`."""
        assert isinstance(self._ledger, WatchedLedger)  # noqa: S101 - which has made it
        self.target = self._ledger.recorder.target_of(recipient)

    def emit(self, place: Location = Location.MAILBOX) -> None:
        """As `Receipt.emit`."""
        Receipt.emit(self, place)
        if (recorder := self._ledger.recorder) is not None:
            recorder.messages_emitted((self,))

    def emit_delivered(self) -> None:
        """As `Receipt.emit_delivered`."""
        Receipt.emit_delivered(self)
        if (recorder := self._ledger.recorder) is not None:
            recorder.messages_emitted((self,))
            recorder.messages_settled((self,), DELIVERED)


class ContainedRecorder:
    """Records messages and replies, whatever is wrong with a recorder."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def messages_emitted(self, receipts: Sequence[Receipt]) -> None:
        """See `MessageRecorder`."""
        try:
            for receipt in receipts:
                self._recorder.emitted(receipt)  # type: ignore[arg-type]  # its ledger makes no other ones
        except Exception as error:  # noqa: BLE001 - a fault of the watch harms no message
            self._recorder.failed(error)

    def messages_settled(self, receipts: Sequence[Receipt], fate: Fate) -> None:
        """See `MessageRecorder`."""
        try:
            now = perf_counter()
            for receipt in receipts:
                receipt.ended = now  # type: ignore[attr-defined]  # as above
                self._recorder.settled(receipt, fate)  # type: ignore[arg-type]  # as above
        except Exception as error:  # noqa: BLE001 - as above
            self._recorder.failed(error)

    def target_of(self, recipient: object) -> str | None:
        """See `Recorder`."""
        try:
            return self._recorder.target_of(recipient)
        except Exception as error:  # noqa: BLE001 - as above
            self._recorder.failed(error)
            return None


class WatchedLedger(Ledger):
    """A ledger whose messages are recorded.

    Args:
        recorder: Records them.
    """

    __slots__ = ("_replied", "recorder")
    receipt = WatchedReceipt
    recorder: ContainedRecorder

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._replied = recorder.replied
        self.recorder = ContainedRecorder(recorder)

    def emit(self, method: str, _context: object = None, _recipient: object = None) -> Receipt:
        """As `Ledger.emit`."""
        receipt = WatchedReceipt(method, self) if _context is None else self.draft_reply(method, _context)
        if _recipient is not None:
            receipt.aim(_recipient)
        receipt.emit()
        return receipt

    def adopt(self, method: str) -> Receipt:
        """As `Ledger.adopt`."""
        self.adopted += 1
        self.pending[Location.MAILBOX] += 1
        receipt = WatchedReceipt(method, self)
        self.recorder.messages_emitted((receipt,))
        return receipt

    def draft_reply(self, method: str, _context: object) -> Receipt:
        """As `Ledger.draft_reply`."""
        life = _context.life if isinstance(_context, RequestContext) else None
        return WatchedReceipt(method, self, life=life, reply=True)

    def emit_settled(self, fate: Fate, _context: Any = None) -> None:
        """As `Ledger.emit_settled`."""
        self.emitted += 1
        if fate is DELIVERED:
            self.delivered += 1
        else:
            self.count(fate)
        if _context is not None and (life := _context.life) is not None:
            self._replied(life, fate)


class WatchedSlot(RequestSlot, eq=False):
    """The place of a watched request."""

    def copy_context(self) -> Context:
        """Return the context for the handler, in which it is known whose handler that is."""
        context, whose = copy_context(), self._whose
        if type(whose) is RequestContext and (life := whose.life) is not None:
            life.context = whose
            context.run(LIFE.set, life)
            recorder = self._admission.recorder  # type: ignore[attr-defined]  # it is a `WatchedAdmission`
            if recorder.observes_starts:
                context.run(recorder.started, life)
        return context

    def release(self) -> None:
        """As `RequestSlot.release`; the request ends with it."""
        whose, request = self._whose, self.request
        RequestSlot.release(self)
        if type(whose) is RequestContext and (life := whose.life) is not None and life.seconds is None:
            self._admission.recorder.ended(life, whose, request)  # type: ignore[attr-defined]  # as above


class WatchedAdmission(Admission):
    """The admission of a watched bus.

    Attributes:
        recorder: Records its requests.
    """

    __slots__ = ("recorder",)
    slot_class = WatchedSlot
    recorder: Recorder


def watched_begin(backend: Backend, recorder: Recorder) -> Callable[[RequestContext], bytes | Handler | None]:
    """Return what makes the record of a request, and begins it as `Backend.begin` does."""
    begin, number = backend.begin, count(1).__next__

    def begin_watched(context: RequestContext) -> bytes | Handler | None:
        life = Life(number(), perf_counter())
        force_setattr(context, "life", life)
        try:
            found = begin(context)
        except Exception as error:
            life.outcome, life.error = "error", str(getattr(error, "code", type(error).__name__))
            recorder.ended(life, context, None, known=False)
            raise
        if isinstance(found, bytes):
            recorder.ended(life, context, None)
        return found

    return begin_watched
