# ruff: noqa: SLF001 - a question watches the cell it was put to
"""Questions: a message, a place for the answer, and an end in every case.

A question ends with a reply, with the failure or end of the actor, with a refusal, or with a timeout.
While its asker waits it watches the actor as another actor would, so that it does not sit out its
timeout when the actor has kept the question for later and then ends.
"""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from actors._errors import AskFailedError, AskRefusedError, AskTimeoutError
from actors._lifecycle import STOPPED
from actors._messages import Discard, StopReason

if TYPE_CHECKING:
    from actors._address import Address
    from actors.system import System

M_co = TypeVar("M_co", covariant=True)


class Ask(Generic[M_co]):
    """A message whose sender waits for an answer; what an actor is handed for `Address.ask`.

    ```python
    def handle(self, message):
        match message:
            case Ask(Get()):
                message.reply(self.total)
    ```

    It may be kept and answered in a later turn.

    Attributes:
        message: The question.
    """

    __match_args__ = ("message",)
    __slots__ = ("_arrived", "_ended", "_failure", "_system", "_value", "message")

    def __init__(self, message: M_co, system: "System") -> None:
        self.message = message
        self._system = system
        self._ended = False
        self._value: Any = None
        self._failure: Discard | None = None
        self._arrived: trio.Event | None = None

    @trio.lowlevel.enable_ki_protection
    def reply(self, value: object) -> Discard | None:
        """Answer the question.

        Returns:
            None if the asker gets it; `Discard.LATE` if the question has already ended, in which case
            the reply is counted and dropped.

        Raises:
            RuntimeError: Called from a thread that trio does not run in.
        """
        self._system.dispatcher.check_thread()
        if self._ended:
            self._system.late_replies += 1
            return Discard.LATE
        self._value = value
        self._end()
        return None

    def fail(self, reason: Discard) -> None:
        """End the question without an answer, if it has not ended; for this package."""
        if not self._ended:
            self._failure = reason
            self._end()

    def watched_ended(self, address: "Address[Any]", _reason: StopReason) -> None:
        """Take notice that the actor has ended; for this package."""
        self.fail(address.refusal)

    def _end(self) -> None:
        self._ended = True
        if self._arrived is not None:
            self._arrived.set()

    def __repr__(self) -> str:
        return f"<Ask {self.message!r}{' ended' if self._ended else ''}>"


async def ask(address: "Address[Any]", message: object, timeout: float) -> Any:  # noqa: ASYNC109 - see Address.ask
    """Put a question; see `Address.ask`."""
    question = Ask(message, address._cell.system)
    discard = address.tell(question)
    if discard is not None:
        await trio.lowlevel.checkpoint()
        raise AskRefusedError(address.name, discard)
    if question._ended:
        await trio.lowlevel.checkpoint()
    else:
        await _wait(address, question, timeout)
    if question._failure is not None:
        raise AskFailedError(address.name, question._failure)
    return question._value


async def _wait(address: "Address[Any]", question: Ask[Any], timeout: float) -> None:  # noqa: ASYNC109
    cell = address._cell
    if cell._state is STOPPED:
        # Taken and kept by an actor that stopped in the same turn.
        question.fail(address.refusal)
        await trio.lowlevel.checkpoint()
        return
    question._arrived = trio.Event()
    cell.add_watcher(question)
    try:
        with trio.move_on_after(timeout):
            await question._arrived.wait()
        if not question._ended:
            raise AskTimeoutError(address.name, timeout)
    finally:
        question._ended = True
        cell.remove_watcher(question)
