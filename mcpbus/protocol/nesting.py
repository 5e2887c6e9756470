"""How deep values may lie within each other in what a client sends.

What reads JSON admits about a thousand levels on Python 3.11, and more on newer ones; where it stops depends on the stack below it. What
works on values stops far earlier: pydantic and the JSON Schema validator at 255. So there is a bound that is the same everywhere, and
below all of these.
"""

import re
from itertools import accumulate, islice
from typing import Final

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_params

MOST_NESTED: Final = 200
"""How many arrays and objects may lie within each other in the params of a message, or in an answer."""

SHORTEST_NESTED: Final = 2 * (MOST_NESTED + 1)
"""How many bytes a text has at least in which there are more."""

TOO_DEEP: Final = f"arrays and objects are nested more than {MOST_NESTED} levels deep"

_OPENING: Final = re.compile(rb"[\[{]")
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
_OTHERS: Final = bytes(set(range(256)) - set(b'[{]}"'))


def may_nest_deeply(text: bytes) -> bool:
    """Whether there are so many brackets in a text that values may be nested too deeply; quick."""
    return text.count(b"[") + text.count(b"{") > MOST_NESTED


def nests_too_deeply(value: bytes | msgspec.Raw) -> bool:
    """Whether values are nested too deeply in JSON."""
    if len(value) < SHORTEST_NESTED:
        return False
    text = bytes(value)
    return may_nest_deeply(text) and _depth(text) > MOST_NESTED


def _depth(text: bytes) -> int:
    """Return how deep values are nested in JSON. What is wide goes first, a level at a time, without a look at each part."""
    brackets = text.replace(rb"\\", b"").replace(rb"\"", b"").translate(_ALIKE, _OTHERS)
    # Texts without brackets go; of others that meet, what is between is one text then.
    brackets = b"".join(brackets.replace(b'""', b"").split(b'"')[::2])
    levels, length = 0, 0
    while brackets and (levels == 0 or len(brackets) < length / 2):
        levels, length = levels + 1, len(brackets)
        brackets = brackets.replace(b"[]", b"")
    steps = memoryview(brackets.translate(_STEPS)).cast("b")
    return levels + max(accumulate(steps), default=0)


def strip_nested(text: bytes) -> bytes | None:
    """Return what is outside of all that is nested in an object, with an empty one in its place; None if that has no end."""
    _, start = (match.start() for match in islice(_OPENING.finditer(text), 2))
    last = text.rfind(b"}")
    end = max(text.rfind(b"}", 0, last), text.rfind(b"]", 0, last))
    if end < start or _OPENING.search(text, end):
        return None
    return text[:start] + b"{}" + text[end + 1 :]


def check_nesting(params: bytes | msgspec.Raw) -> None:
    """Refuse params in which values are nested too deeply.

    Raises:
        ProtocolError: -32602.
    """
    if nests_too_deeply(params):
        raise too_deep()


def too_deep() -> ProtocolError:
    """Return what to answer to params in which values are nested too deeply."""
    return invalid_params(f"{TOO_DEEP} - at `params`")
