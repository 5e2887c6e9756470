"""Questions that a handler or a program asks together, and waits for: how many one asker may have, and for how long."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import msgspec
import trio
from mcpbus_actors import Address

from mcpbus.core.bus_services import BusServices
from mcpbus.features.input_requests.errors import InputRequestError, cannot_ask, timed_out, undeclared
from mcpbus.features.input_requests.requests import InputRequest, OnProgress
from mcpbus.features.schemas import python_types
from mcpbus.protocol.errors import quoted
from mcpbus.protocol.messages import ProgressParams
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.protocol.validators import check_numbers, check_text

LONGEST_KEY: Final = 1024
"""How many characters the key of a question may have."""

_FEW: Final = 16


class InputRound:
    """Questions by key, and their answers as they come.

    Args:
        questions: The questions.
        revision: Under which they are asked. They are encoded now, in the stack of whoever asks: what is not
            JSON raises there.
        on_progress: Told by whoever waits how far the client is.

    Attributes:
        questions: The questions.
        params: Their encoded parameters, by key.
        on_progress: As given.
        via: The request on whose stream they are sent, if they belong to its session and outlive it; else None.

    Raises:
        TypeError: A question holds what is not JSON.
        ValueError: A key is too long.
    """

    __slots__ = (
        "_answers",
        "_error",
        "_news",
        "_reported",
        "_settled",
        "on_progress",
        "params",
        "questions",
        "via",
    )

    def __init__(
        self,
        questions: Mapping[str, InputRequest],
        revision: Revision,
        on_progress: OnProgress | None = None,
    ) -> None:
        for key in questions:
            check_text("what is asked", key=key)
            if len(key) > LONGEST_KEY:
                raise ValueError(f"the key {quoted(key)} has more than {LONGEST_KEY} characters")
        self.questions = questions
        self.params = {
            key: msgspec.Raw(python_types.encode(question.params(revision)))
            for key, question in questions.items()
        }
        self._answers: dict[str, Any] = {}
        self.on_progress = on_progress
        self.via: Address[object] | None = None
        self._error: InputRequestError | None = None
        self._reported: ProgressParams | None = None
        self._settled = False
        self._news = trio.Event()
        if not questions:
            self._settle()

    @property
    def settled(self) -> bool:
        """Whether nobody waits for an answer any more."""
        return self._settled

    @property
    def unanswered(self) -> list[str]:
        """The keys of the questions that have no answer yet; none once it has failed."""
        return [] if self._settled else [key for key in self.questions if key not in self._answers]

    def answer(self, key: str, answer: Any) -> None:
        """Take a client's answer, decoded JSON.

        Raises:
            InvalidInputError: It is not of the form that the question asks for, and stays open.
        """
        self._answers[key] = self.questions[key].read(answer)
        if len(self._answers) == len(self.questions):
            self._settle()

    def fail(self, error: InputRequestError) -> None:
        """End the waiting with an error. Harmless once it has ended."""
        if not self._settled:
            self._error = error
            self._settle()

    def report(self, said: ProgressParams) -> None:
        """Take how far the client is."""
        self._reported = said
        self._news.set()

    def _settle(self) -> None:
        self._settled = True
        self._news.set()

    async def wait(self) -> dict[str, Any]:
        """Wait for all answers, telling how far the client is meanwhile, and return them by key.

        Raises:
            InputRequestError: See `fail`.
            Exception: What `on_progress` raises.
        """
        while True:
            await self._news.wait()
            said, self._reported = self._reported, None
            if said is not None and self.on_progress is not None:
                self.on_progress(said.progress, said.total, said.message)
            if self._settled:
                break
            self._news = trio.Event()
        if self._error is not None:
            raise self._error
        return {key: self._answers[key] for key in self.questions}


class InputRounds:
    """Those of one call, in their order.

    Ones that are settled are dropped now and then: with each new one, that would take a time that grows with the square of their number.
    """

    __slots__ = ("_all", "_most")

    def __init__(self) -> None:
        self._all: dict[InputRound, None] = {}
        self._most = _FEW

    def __bool__(self) -> bool:
        """Whether any waits for answers."""
        return any(not ask.settled for ask in self._all)

    def __iter__(self) -> Iterator[InputRound]:
        """Those that wait, as it is now."""
        return iter([ask for ask in self._all if not ask.settled])

    def add(self, ask: InputRound) -> None:
        """Add one."""
        if len(self._all) >= self._most:
            self._all = dict.fromkeys(self)
            self._most = 2 * len(self._all) + _FEW
        self._all[ask] = None

    def discard(self, ask: InputRound) -> None:
        """Take one out, if it is there."""
        self._all.pop(ask, None)


class InputNeeded(msgspec.Struct, frozen=True):
    """What a handler wants to ask before it is run again.

    Attributes:
        ask: The questions.
        state: What it wants to know then, encoded.
    """

    ask: InputRound
    state: bytes


class InputWithdrawn(msgspec.Struct, frozen=True):
    """Told when whoever asked no longer waits for it."""

    ask: InputRound


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
