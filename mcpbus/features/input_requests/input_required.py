"""The explicit form of asking: a handler that returns what it needs, and is run again with the answers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from mcpbus.features.input_requests.requests import InputRequest, check_questions
from mcpbus.protocol.keywords import Explained


class InputRequired(msgspec.Struct, metaclass=Explained, frozen=True):
    """Return it from a tool, prompt or resource to ask the client, and to be called anew with the answers.

    In the next run each question, asked again with the same key, has its answer at once, and ``ctx.round_state``
    is `state`. Most handlers are simpler with ``await ctx.elicit(...)``, which goes on from the very line.

    Attributes:
        questions: What to ask, by key.
        state: What the next run should know: any value that is JSON. The client carries it, sealed: it can
            neither read nor change it.

    Raises:
        ValueError: Neither questions nor state were given.
        TypeError: `questions` does not map keys to questions.
    """

    questions: Mapping[str, InputRequest] = {}
    state: Any = None

    def __post_init__(self) -> None:
        """Refuse to ask for nothing, or for what cannot be asked."""
        check_questions(self.questions)
        if not self.questions and self.state is None:
            raise ValueError("InputRequired needs questions, or a state to come back with")
