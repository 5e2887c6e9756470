"""How a handler asks: the methods that `Context` and `SyncContext` have for it."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mcpbus.features.input_requests.requests import (
    Elicit,
    ElicitUrl,
    InputRequest,
    ListRoots,
    OnProgress,
    Sample,
    check_questions,
)
from mcpbus.features.input_requests.results import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Root,
    SamplingResult,
)
from mcpbus.protocol.keywords import explained

T = TypeVar("T")


class InputRequests:
    """Asks the client and waits, in both eras in one straight line of code.

    On a legacy stream a question goes out at once. In revision 2026-07-28 the request is answered
    ``input_required``, and the handler goes on from the very line when the client comes back. If the server has
    lost the waiting handler meanwhile, one that may be replayed is run again from the top, and each question
    that was answered before has its answer at once; so what it does before a question must bear repeating.

    Each question has a key, which is made from its kind and its place in the order of the questions unless it is
    given. Give one where the order may differ from run to run.

    A legacy client may report how far it is with a question: `on_progress`, a plain function, is called with the progress,
    the total and the message, the last two of which may be None. It runs in trio's thread, where the question is asked.
    Of reports that come faster than that goes on it gets the newest. In revision 2026-07-28 there are none.

    What all of them raise:
        InputUnavailableError: The client did not declare that it can be asked this, or no stream can carry the question.
        InputTimeoutError: A legacy client did not answer within `timeout` seconds.
        InvalidInputError: A legacy client's answer is not of the right form; a modern one is asked again.
        InputRefusedError: A legacy client answered with an error.
    """

    __slots__ = ()

    @abstractmethod
    async def _ask(
        self,
        questions: Mapping[Any, InputRequest],
        timeout: float | None,  # noqa: ASYNC109
        on_progress: OnProgress | None = None,
    ) -> list[Any]:
        """Ask what is asked together; None is the key of a question that has none."""

    @explained
    async def elicit(
        self,
        message: str,
        schema: type[T] | Mapping[str, Any],
        *,
        key: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a bound of the question
        on_progress: OnProgress | None = None,
    ) -> AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation:
        """Ask the user to fill in a form.

        Args:
            message: What the user is told.
            schema: A type whose fields are the form's: strings, numbers, booleans, and choices. A dataclass,
                TypedDict, Struct, attrs class or pydantic model; a single such type; or a flat JSON Schema.
            key: Names the question.
            timeout: Seconds to wait at most, in the legacy eras; the bus has a ceiling.
            on_progress: See above.

        Raises:
            TypeError: `schema` is no form.
        """
        return (await self._ask({key: Elicit(message, schema)}, timeout, on_progress))[0]  # type: ignore[no-any-return]

    @explained
    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        on_progress: OnProgress | None = None,
    ) -> AcceptedElicitation[None] | DeclinedElicitation | CancelledElicitation:
        """Ask the user to open a page, for what must not pass through the client: credentials, payments.

        Acceptance is consent to open it; whether the user did what the page is for, the server finds out itself.

        Args:
            message: What the user is told.
            url: The page.
            elicitation_id: What `Session.elicitation_complete` will name, in revision 2025-11-25. It must not be
                guessable; one is made if it is left out.
            key: Names the question.
            timeout: Seconds to wait at most, in the legacy eras.
            on_progress: See above.

        Raises:
            ValueError: `url` is no absolute URL.
        """
        question = (
            ElicitUrl(message, url) if elicitation_id is None else ElicitUrl(message, url, elicitation_id)
        )
        return (await self._ask({key: question}, timeout, on_progress))[0]  # type: ignore[no-any-return]

    @explained
    async def sample(
        self,
        messages: str | Sequence[Any],
        *,
        key: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> SamplingResult:
        """Ask the client's model to write something.

        Args:
            messages: A text or `Image` of the user; or, in order, texts and images of the user, what the model
                answered before, and messages, ``{"role": ..., "content": ...}`` or a `PromptMessage`.
            key: Names the question.
            timeout: Seconds to wait at most, in the legacy eras.
            on_progress: See above.
            **options: The other fields of `Sample`, such as `max_tokens`, `system_prompt` and `tools`.

        Raises:
            TypeError: Something in it has no JSON form.
            ValueError: The messages are no conversation, or a tool is not described as in tools/list.
        """
        return (await self._ask({key: Sample(messages, **options)}, timeout, on_progress))[0]  # type: ignore[no-any-return]

    @explained
    async def list_roots(
        self,
        *,
        key: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        on_progress: OnProgress | None = None,
    ) -> list[Root]:
        """Ask which folders and files the client lets the server work in."""
        return (await self._ask({key: ListRoots()}, timeout, on_progress))[0]  # type: ignore[no-any-return]

    @explained
    async def ask_all(
        self,
        questions: Mapping[str, InputRequest],
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Any]:
        """Ask several things at once, in one round trip, and return the answers by key.

        Args:
            questions: `Elicit`, `ElicitUrl`, `Sample` and `ListRoots`, by key.
            timeout: Seconds to wait for all of them at most, in the legacy eras.

        Raises:
            TypeError: `questions` does not map keys to questions.
        """
        check_questions(questions)
        answers = await self._ask(dict(questions), timeout)
        return dict(zip(questions, answers, strict=True))
