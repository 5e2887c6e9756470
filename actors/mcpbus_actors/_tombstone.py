"""What an address points to once its actor has stopped."""

from typing import Any

from mcpbus_actors._lifecycle import STOPPED
from mcpbus_actors._mailbox import Mailbox, SystemHandle
from mcpbus_actors._messages import REFUSALS, DeadLetterReason, StopReason


class ClosedMailbox(Mailbox[Any]):
    """The mailbox of those who have none any more; one in a system for all that ended for the same reason.

    So the address of a stopped actor keeps nothing of it in memory, and `Address.tell` looks at a
    state as it always does. Nothing that is there only while an actor lives is here.
    """

    __slots__ = ("_reason",)

    def __init__(self, system: SystemHandle, reason: StopReason) -> None:
        self.system = system
        self._state = STOPPED
        self._watchers = ()
        self._reason = reason

    def refusal(self) -> DeadLetterReason:
        """Return with what a message is refused."""
        return REFUSALS[self._reason]

    def end_reason(self) -> StopReason:
        """Return why the actors ended whose addresses point here."""
        return self._reason

    def end(self, reason: StopReason) -> None:
        """Do nothing: they have ended."""

    def raised(self, message: object, error: BaseException) -> None:
        """Do nothing: nobody is there who could raise anything."""

    def lose(self, message: object, reason: DeadLetterReason | None) -> None:
        """Do nothing: no message is accepted that could be lost."""
