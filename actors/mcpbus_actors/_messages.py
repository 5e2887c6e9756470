"""Why messages are not handled and lives end, what a supervisor decides, and what comes of a task.

What is made for every task is a msgspec Struct, here and elsewhere: a frozen attrs class takes four times as
long to make, and a task's end is on the hot path.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec


class DeadLetterReason(enum.StrEnum):
    """Why a message was not accepted, or was accepted and then not handled."""

    STOPPED = "stopped"
    """The recipient has stopped, or is about to."""
    FULL = "full"
    """The user lane of the recipient's mailbox holds as much as it may, and the message is expendable."""
    FAILED = "failed"
    """The recipient raised on this message, or on an earlier one and was stopped for it."""
    CLOSED = "closed"
    """The whole system has closed."""
    LATE = "late"
    """A reply to a question that has already ended."""


class StopReason(enum.StrEnum):
    """Why a life ended."""

    STOPPED = "stopped"
    """It was asked to."""
    FAILED = "failed"
    """It raised, and its supervisor did not restart it."""
    PARENT = "parent"
    """Its parent ended or was restarted."""
    SYSTEM = "system"
    """The system closed."""
    RESTARTED = "restarted"
    """This instance ended, and a fresh one took its place; only `ActorContext.on_stop` ever sees this."""


REFUSALS: Final[Mapping[StopReason, DeadLetterReason]] = {
    StopReason.STOPPED: DeadLetterReason.STOPPED,
    StopReason.FAILED: DeadLetterReason.FAILED,
    StopReason.PARENT: DeadLetterReason.STOPPED,
    StopReason.SYSTEM: DeadLetterReason.CLOSED,
    StopReason.RESTARTED: DeadLetterReason.FAILED,
}
"""With what the messages of an actor are refused and discarded that ended for this reason."""


class Directive(enum.Enum):
    """What a supervisor decides about an actor that raised."""

    RESTART = enum.auto()
    """Go on with a fresh instance; address and remaining queue stay. At most 3 times in 5 seconds."""
    STOP = enum.auto()
    """End it; what waits in its queue is discarded with `DeadLetterReason.FAILED`."""
    ESCALATE = enum.auto()
    """End it, and treat its parent as if it had raised the same exception."""


class Succeeded(msgspec.Struct, frozen=True):
    """A task returned this value."""

    value: Any


class Failed(msgspec.Struct, frozen=True):
    """A task raised this exception."""

    exception: BaseException


class TaskCancelled(msgspec.Struct, frozen=True):
    """A task was cancelled before it came to an end of its own."""


Outcome = Succeeded | Failed | TaskCancelled
