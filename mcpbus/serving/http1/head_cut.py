"""How the head of a request is cut in two: into the lines that are looked at, and the others."""

import functools
import re
from collections.abc import Callable
from typing import Final

import msgspec

from mcpbus.protocol.http.mirrored_fields import Values
from mcpbus.serving.field_characters import TEXT, TOKEN
from mcpbus.serving.head_limits import LOOKED_AT, MOST_DIGITS

LENGTH: Final = b"content-length"

BLANKS: Final = rb"[\t ]*+"
DIGITS: Final = rb"[0-9]{1,%d}" % MOST_DIGITS
NAME: Final = rb"[%b]++" % TOKEN
VALUE: Final = rb"[%b]*+" % TEXT
"""What a field may be, as regular expressions: blanks before its value, how long a body is, a name, a value."""


def _any_of(*names: bytes) -> bytes:
    """Return a pattern for names in upper or lower case; most lines are told from them by their first letter."""
    return b"|".join(b"[%b%b](?i:%b)" % (name[:1], name[:1].upper(), re.escape(name[1:])) for name in names)


# A line that says how long the body is, and any other that nobody looks at. What is not exactly so stays where it is.
_APART: Final = re.compile(
    rb"\r\n(?:%b:%b(%b)|(?!(?:%b):)(%b):%b(%b))(?=\r\n)"
    % (_any_of(LENGTH), BLANKS, DIGITS, _any_of(*sorted(LOOKED_AT)), NAME, BLANKS, VALUE)
)


class HeadCut:
    """A head that was cut in two.

    Args:
        data: The whole head.

    Attributes:
        plain: Its lines that are looked at: a head, too.
        digits: What each of the others says that says how long the body is.
        names: The names of those that say something else, as they are spelled.
    """

    __slots__ = ("digits", "names", "plain")

    def __init__(self, data: bytes) -> None:
        pieces: list[bytes] = _APART.split(data)
        self.plain = b"".join(pieces[::4])
        self.digits = [digits for digits in pieces[1::4] if digits]
        self.names = [name for name in pieces[2::4] if name]


class FieldsApart(msgspec.Struct, frozen=True, gc=False):
    """The fields of a head that are not looked at before one is asked for; see `mcpbus.protocol.http.headers.LateFields`.

    Args:
        data: The whole head, each line of which is well-formed.
    """

    _data: bytes

    def find(self, name: bytes) -> Values | None:
        """See `LateFields.find`."""
        values = _find_lines(name)(self._data)
        if len(values) > 1:
            return tuple(values)
        return values[0] if values else None

    def all(self) -> list[tuple[bytes, bytes]]:
        """See `LateFields.all`."""
        pieces: list[bytes] = _APART.split(self._data)
        return [
            (name.lower(), value) if name else (LENGTH, digits)
            for digits, name, value in zip(pieces[1::4], pieces[2::4], pieces[3::4], strict=True)
        ]


@functools.lru_cache(maxsize=64)
def _find_lines(name: bytes) -> Callable[[bytes], list[bytes]]:
    """Return what finds the values of a field; those who serve requests ask for the same few for ever."""
    return re.compile(rb"\r\n(?i:%b):%b(%b)" % (re.escape(name), BLANKS, VALUE)).findall
