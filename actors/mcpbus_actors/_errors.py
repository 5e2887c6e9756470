"""What can be raised, split by whose fault it is.

`LifecycleError` and `NameTakenError` are the caller's: the program asks for something that cannot be.
`AskError` is the other side's: the question was proper and no answer came.

Whose affair an exception is: that of the code that raised it, or of the trio task in which it ran.

Whatever code of somebody else's raises is the end of what it did, and of nothing else: also a `SystemExit` out of a parser of
command lines, or a class of its author's own. Two things are not its own. A `KeyboardInterrupt` is the user's, who wants the
program to end; and by `trio.Cancelled` trio ends what runs in a scope that is cancelled.

A `Cancelled` that somebody has kept, and raises again where nobody is cancelled, is a failure like any other. It must not get
further: the first nursery that meets it takes it for its own, cancels all that it holds, and ends without a word.
"""

import math

import trio

from mcpbus_actors._messages import DeadLetterReason


class ActorError(Exception):
    """The root of every error this package raises on purpose."""


class LifecycleError(ActorError, RuntimeError):
    """The actor or the system is in a state in which this cannot be done."""


class NameTakenError(ActorError, KeyError):
    """The name is registered to another living actor."""

    def __str__(self) -> str:
        """Return the message; `KeyError` would quote it."""
        return str(self.args[0])


def wrong_thread() -> RuntimeError:
    """Make the error for a call from outside trio's thread."""
    return RuntimeError("actors can only be reached from trio's own thread; use trio.from_thread.run_sync")


class AskError(ActorError):
    """An ask ended without a reply."""


class AskRefusedError(AskError):
    """The question was not accepted.

    Attributes:
        discard: Why not.
    """

    def __init__(self, name: str, discard: DeadLetterReason) -> None:
        super().__init__(f"{name} did not accept the question: {discard.value}")
        self.discard = discard


class AskFailedError(AskError):
    """The question was accepted, and the actor raised on it or ended before it replied.

    Attributes:
        discard: `DeadLetterReason.FAILED` if the actor raised, else why it ended.
    """

    def __init__(self, name: str, discard: DeadLetterReason) -> None:
        super().__init__(f"{name} ended before it replied: {discard.value}")
        self.discard = discard


class AskTimeoutError(AskError, TimeoutError):
    """No reply came in time. The actor may still handle the question; a late reply is counted."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"{name} did not reply within {seconds} s")


def split_failure(
    error: BaseException, *, waited: bool = True
) -> tuple[BaseException | None, BaseException | None]:
    """Divide an exception between the code that raised it and the trio task in which it ran.

    Args:
        error: What was raised; a group of several is divided into groups.
        waited: Whether the code may have waited for something; otherwise no cancellation can have reached it.

    Returns:
        The failure, which is to be told or logged, and what is to be raised on in the task. Each is None if there is no such part.
    """
    if isinstance(error, Exception):  # and so is everything in it, if it is a group
        return error, None
    cancelled = waited and trio.current_effective_deadline() == -math.inf
    passing = (KeyboardInterrupt, trio.Cancelled) if cancelled else (KeyboardInterrupt,)
    if isinstance(error, BaseExceptionGroup):
        rest, failure = error.split(passing)
        return (error, None) if rest is None else (failure, rest)
    return (None, error) if isinstance(error, passing) else (error, None)
