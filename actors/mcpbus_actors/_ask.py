# ruff: noqa: SLF001 - a question looks at the state of the mailbox that it was put to
"""Questions: a message, a place for the answer, and an end in every case.

A question ends with a reply, with the failure or end of the actor, with a refusal, or with a timeout.
While its asker waits it watches the actor as another actor would, so that it does not sit out its
timeout when the actor has kept the question for later and then ends.
"""

from typing import Any, Generic, TypeVar

import trio

from mcpbus_actors._dispatch import Dispatcher
from mcpbus_actors._mailbox import Mailbox
from mcpbus_actors._messages import REFUSALS, DeadLetterReason, StopReason
from mcpbus_actors._states import STOPPED

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
    __slots__ = ("_arrived", "_dispatcher", "_ended", "_failure", "_value", "message")

    def __init__(self, message: M_co, dispatcher: Dispatcher) -> None:
        self.message = message
        self._dispatcher = dispatcher
        self._ended = False
        self._value: Any = None
        self._failure: DeadLetterReason | None = None
        self._arrived: trio.Event | None = None

    @trio.lowlevel.enable_ki_protection
    def reply(self, value: object) -> DeadLetterReason | None:
        """Answer the question.

        Returns:
            None if the asker gets it; `DeadLetterReason.LATE` if the question has already ended, in which case
            the reply is counted and dropped.

        Raises:
            RuntimeError: Called from a thread that trio does not run in.
        """
        self._dispatcher.check_thread()
        if self._ended:
            self._dispatcher.late_replies += 1
            return DeadLetterReason.LATE
        self._value = value
        self._end()
        return None

    def fail(self, reason: DeadLetterReason) -> None:
        """End the question without an answer, if it has not ended; for this package."""
        if not self._ended:
            self._failure = reason
            self._end()

    def watched_ended(self, _address: object, reason: StopReason, /) -> None:
        """Take notice that the actor has ended; for this package."""
        self.fail(REFUSALS[reason])

    async def wait(self, mailbox: Mailbox[Any], timeout: float) -> bool:  # noqa: ASYNC109 - see Address.ask
        """Wait until the question has ended, and return whether it did in time; for this package.

        Args:
            mailbox: To what it was put, and what took it.
            timeout: Seconds to wait at most.
        """
        if not self._ended and mailbox._state is STOPPED:
            # Taken and kept by an actor that stopped in the same turn.
            self.fail(mailbox.refusal())
        if self._ended:
            await trio.lowlevel.checkpoint()
            return True
        self._arrived = trio.Event()
        mailbox.add_watcher(self)
        try:
            with trio.move_on_after(timeout):
                await self._arrived.wait()
            return self._ended
        finally:
            self._ended = True
            mailbox.remove_watcher(self)

    def _end(self) -> None:
        self._ended = True
        if self._arrived is not None:
            self._arrived.set()

    def __repr__(self) -> str:
        return f"<Ask {self.message!r}{' ended' if self._ended else ''}>"
