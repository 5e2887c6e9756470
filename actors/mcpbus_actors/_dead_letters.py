"""Where messages go that nobody handled."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import trio

from mcpbus_actors._address import Address
from mcpbus_actors._ask import Ask
from mcpbus_actors._messages import DeadLetterReason, Failed
from mcpbus_actors._tasks import TaskEnded

logger = logging.getLogger("mcpbus.actors")


Exceptions: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
"""Types of exceptions, as for `isinstance`."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that no actor handled to its end."""

    recipient: Address[Any]
    message: Any
    reason: DeadLetterReason


class DeadLetters:
    """The dead letters of one system: counted by reason, and shown to every tap.

    Attributes:
        counts: How many there were of each reason.
    """

    __slots__ = ("_expected", "_surface", "_tapping", "_taps", "counts")

    def __init__(self, surface: Callable[[BaseException], None], expected: Exceptions) -> None:
        self.counts: Counter[DeadLetterReason] = Counter()
        self._surface = surface
        self._expected = expected
        self._taps: dict[object, Callable[[DeadLetter], object]] = {}
        self._tapping = False

    def tap(self, callback: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Show every further dead letter to a callback.

        Returns:
            A function that ends this; calling it twice is harmless.
        """
        token = object()
        self._taps[token] = callback

        def untap() -> None:
            self._taps.pop(token, None)

        return untap

    @trio.lowlevel.enable_ki_protection
    def post(self, recipient: Address[Any], message: Any, reason: DeadLetterReason) -> None:
        """Take a message that will not be handled; a question among them ends here.

        The failure of a task is logged, as its owner will not see to it, unless it was an expected one.
        """
        self.counts[reason] += 1
        if isinstance(message, Ask):
            message.fail(reason)
        elif isinstance(message, TaskEnded):
            message.task.forget()
            if isinstance(message.outcome, Failed) and not isinstance(
                message.outcome.exception, self._expected
            ):
                logger.error(
                    "a task of %s raised, unheard", recipient.name, exc_info=message.outcome.exception
                )
        # A tap that itself tells a dead address would go on for ever: such letters are only counted.
        if self._taps and not self._tapping:
            self._tapping = True
            letter = DeadLetter(recipient, message, reason)
            for callback in list(self._taps.values()):
                try:
                    callback(letter)
                except KeyboardInterrupt as error:  # it ends the system instead of the teller
                    self._surface(error)
                except BaseException:
                    logger.exception("a tap of the dead letters raised on %r", letter)
            self._tapping = False
