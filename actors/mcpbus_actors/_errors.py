"""What can be raised, split by whose fault it is.

`LifecycleError` and `NameTakenError` are the caller's: the program asks for something that cannot be.
`AskError` is the other side's: the question was proper and no answer came.
"""

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
