"""The questions of one asker that wait for their answers: how many they may be, and for how long."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import msgspec
import trio

from mcpbus.core.pending_questions import InputRound, InputWithdrawn
from mcpbus.core.services import BusServices
from mcpbus.features.input_requests.errors import cannot_ask, timed_out, undeclared
from mcpbus.features.input_requests.requests import InputRequest, OnProgress
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.protocol.validators import check_numbers

MOST_ANSWERS: Final = 1_000
"""How many answers one request may bring, and so how many questions may be open of one call, or of a session outside any."""


class InputRequestQuota(msgspec.Struct, gc=False):
    """Counts the questions of one call, or of a session outside any, that somebody waits for the answers to.

    Attributes:
        count: How many they are; never more than `MOST_ANSWERS`.
    """

    count: int = 0

    def prepare(
        self,
        questions: Mapping[str, InputRequest],
        capabilities: Mapping[str, Any],
        revision: Revision,
        on_progress: OnProgress | None = None,
    ) -> InputRound:
        """Make questions ready to be asked, beside those that are open, a client that declared these capabilities.

        Raises:
            InputUnavailableError: They are too many, the revision does not have one of them, or the client did not declare that it can
                be asked.
            TypeError: One of them holds what is not JSON.
        """
        if self.count + len(questions) > MOST_ANSWERS:
            raise cannot_ask(f"at most {MOST_ANSWERS} questions may wait for their answers at once")
        required: dict[str, Any] = {}
        for question in questions.values():
            if (foreign := question.foreign(revision)) is not None:
                raise cannot_ask(f"revision {revision.name} has no {foreign}")
            for name, needed in question.lacks(capabilities, revision).items():
                required[name] = required.get(name, {}) | needed
        if required:
            raise undeclared(required, revision)
        return InputRound(questions, revision, on_progress)

    @contextmanager
    def waiting(self, ask: InputRound, tell: Callable[[InputWithdrawn], object]) -> Iterator[None]:
        """Count what has been prepared, in whose block it is asked and waited for. What is still open at its end is withdrawn."""
        self.count += len(ask.questions)
        try:
            yield
        finally:
            self.count -= len(ask.questions)
            if ask.unanswered:
                tell(InputWithdrawn(ask))


def answered_within(
    services: BusServices, owner: Hashable, timeout: float | None, era: Era
) -> AbstractContextManager[None]:
    """Bound how long a client has for its answers: so many seconds, and at most as many as the bus allows.

    A modern one comes back with them when it likes, and a call that is parked has a bound of its own.

    Raises:
        InputTimeoutError: They are over.
        TypeError: `timeout` is no number.
    """
    if timeout is not None:
        check_numbers("what is asked", timeout=timeout)
    return nullcontext() if era is Era.MODERN else _at_most(services, owner, timeout)


@contextmanager
def _at_most(services: BusServices, owner: Hashable, timeout: float | None) -> Iterator[None]:
    ceiling = services.limits.input_timeout
    seconds = ceiling if timeout is None else min(timeout, ceiling)
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        if seconds == ceiling:
            services.limit_monitor.note("input_timeout", owner, "a question was withdrawn")
        raise timed_out(seconds) from None
