"""What an address points to once its actor has stopped."""

from typing import TYPE_CHECKING, Any, Final

from actors._cell import Cell, make_nobody
from actors._lifecycle import STOPPED
from actors._messages import Discard, StopReason

if TYPE_CHECKING:
    from actors._dispatch import Dispatcher
    from actors.system import System

REFUSALS: Final = {
    StopReason.STOPPED: Discard.STOPPED,
    StopReason.FAILED: Discard.FAILED,
    StopReason.PARENT: Discard.STOPPED,
    StopReason.SYSTEM: Discard.CLOSED,
    StopReason.RESTARTED: Discard.FAILED,
}
"""With what the messages of an actor are refused and discarded that ended for this reason."""


class Tombstone(Cell[Any]):
    """A stopped cell without an actor; one in a system for all that ended for the same reason.

    So the address of a stopped actor keeps nothing of it in memory, and `Address.tell` looks at a
    state as it always does.
    """

    __slots__ = ("_reason",)

    def __init__(self, system: "System", dispatcher: "Dispatcher", reason: StopReason) -> None:
        super().__init__(system, dispatcher, None, make_nobody, (), 1, None)
        self._state = STOPPED
        self._reason = reason

    def refusal(self) -> Discard:
        """Return with what a message is refused."""
        return REFUSALS[self._reason]

    def end_reason(self) -> StopReason:
        """Return why the actors ended whose addresses point here."""
        return self._reason
