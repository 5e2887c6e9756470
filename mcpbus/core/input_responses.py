"""What a handler was answered, over all of its runs."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mcpbus.core.input_requests import InputRequestQuota, InputRound
from mcpbus.features.input_requests.errors import InvalidInputError
from mcpbus.features.schemas import python_types
from mcpbus.protocol.request_state import RoundState

_TRAVELLING_BYTES = 1024 * 1024
"""Of answers in a state. It has to fit into the body of a retry, beside the new answers."""


class InputResponses(msgspec.Struct):
    """The answers of one call, and what its runs leave to each other.

    Attributes:
        given: Answers that came, decoded JSON by key, whether or not they were asked for yet.
        used: Answers that the handler has got, encoded, by key.
        state: What an earlier run of the handler left with `InputRequired`.
        open: The questions that somebody waits for the answers to.
    """

    given: dict[str, Any] = msgspec.field(default_factory=dict)
    used: dict[str, bytes] = msgspec.field(default_factory=dict)
    state: Any = None
    open: InputRequestQuota = msgspec.field(default_factory=InputRequestQuota)
    _keys: dict[str, int] = msgspec.field(default_factory=dict)

    @classmethod
    def brought(cls, state: RoundState | None, responses: Mapping[str, Any]) -> "InputResponses":
        """What a client has brought to a call that is run anew: what earlier rounds were answered, and its new answers."""
        answers = cls()
        if state is not None:
            answers.given = {
                key: msgspec.json.decode(answer) for key, answer in (state.answers or {}).items()
            }
            answers.state = None if state.author is None else msgspec.json.decode(state.author)
        answers.given |= responses
        return answers

    def unique(self, key: str) -> str:
        """Return a key that was not used in this run: the second ``name`` is ``name-2``.

        It depends on nothing but the order of the questions, so that a run from the top makes the same keys.
        """
        unique = key
        while unique in self._keys:
            self._keys[key] += 1
            unique = f"{key}-{self._keys[key]}"
        self._keys[unique] = 1
        return unique

    def begin_again(self, state: Any) -> None:
        """Prepare for another run of the handler, which is to find this state."""
        self._keys.clear()
        self.state = state

    def fill(self, ask: InputRound) -> None:
        """Answer questions with what has come; one whose answer cannot be used stays open."""
        for key in ask.unanswered:
            if key in self.given:
                answer = self.given.pop(key)
                try:
                    ask.answer(key, answer)
                except InvalidInputError:
                    continue
                self.used[key] = python_types.encode(answer)

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what came to questions that are to be asked again."""
        for key in keys:
            self.given.pop(key, None)

    def give_back(self) -> None:
        """Have the next run find all that this one got, as if its client had brought it back."""
        self.given |= {key: msgspec.json.decode(answer) for key, answer in self.used.items()}

    def all(self) -> dict[str, bytes]:
        """All answers, encoded: a run from the top asks for what it wants again."""
        return self.used | {key: python_types.encode(answer) for key, answer in self.given.items()}

    def portable(self) -> dict[str, bytes] | None:
        """The answers that a run from the top would want again; None if they are too many to travel."""
        return None if sum(map(len, self.used.values())) > _TRAVELLING_BYTES else self.used
