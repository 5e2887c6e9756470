"""The faults of a value, in sentences for the author of the value: the place, the rule, and the value that arrived."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

_MOST_SHOWN: Final = 5
_LONGEST_SHOWN: Final = 80
"""In characters of JSON."""
_PREFIXES: Final = ("Value error, ", "Assertion failed, ")
"""pydantic puts them before the texts of validators."""
_TOO_MANY: Final = "too many values are wrong to list them"


class Fault(NamedTuple):
    """One fault of a value.

    Attributes:
        path: Keys and positions, from the outermost.
        kind: pydantic's name of the rule.
        message: pydantic's description of the rule.
        value: The value at that place, decoded.
    """

    path: tuple[str | int, ...]
    kind: str
    message: str
    value: Any


class InvalidValueError(ValueError):
    """A value that its type does not admit. Its text may go to the client.

    Attributes:
        faults: The faults; empty if they are too many to list.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults

    def __str__(self) -> str:
        return self.describe()

    def describe(self, noun: str = "", known: Mapping[str, Any] | None = None) -> str:
        """Describe the faults, each place in a sentence.

        Args:
            noun: The word for a member of the outermost object, such as ``argument``.
            known: The schemas of these members.
        """
        word = f"{noun} " if noun else ""
        places: dict[tuple[str | int, ...], list[Fault]] = {}
        for fault in self.faults:
            places.setdefault(fault.path, []).append(fault)
        sentences = [_sentence(faults, word, known) for faults in list(places.values())[:_MOST_SHOWN]]
        if len(places) > _MOST_SHOWN:
            sentences.append("and more")
        return "; ".join(sentences) or _TOO_MANY


def _sentence(faults: Sequence[Fault], word: str, known: Mapping[str, Any] | None) -> str:
    fault = faults[0]
    place = ".".join(map(str, fault.path))
    outermost = known if len(fault.path) == 1 else None
    if fault.kind == "missing":
        kind = "" if outermost is None else _kind(outermost.get(place, {}))
        return f"missing required {word}`{place}`{kind}"
    if fault.kind == "extra_forbidden":
        names = "" if outermost is None else ", ".join(f"`{name}`" for name in outermost) or "none"
        return f"unknown {word}`{place}`" + (f"; expected {names}" if names else "")
    messages = " or: ".join(dict.fromkeys(map(_message, faults)))
    start = f"{word}`{place}`: " if place else ""
    return f"{start}{messages}, got {_shown(fault.value)}"


def _message(fault: Fault) -> str:
    message = fault.message
    for prefix in _PREFIXES:
        message = message.removeprefix(prefix)
    return message


def _shown(value: Any) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the expected type in a word or two, in parentheses; nothing where one word would not do."""
    if "enum" in schema:
        return " (one of " + ", ".join(map(str, schema["enum"])) + ")"
    kind = schema.get("type") or schema.get("$ref", "").rpartition("/")[2]
    return f" ({kind})" if isinstance(kind, str) and kind else ""
