"""How the head of a request is cut in two: into the lines that are looked at, and the others."""

import re
from typing import Final

from mcpbus.serving.head_limits import LOOKED_AT, MOST_DIGITS

LENGTH: Final = b"content-length"

BLANKS: Final = rb"[\t ]*+"
DIGITS: Final = rb"[0-9]{1,%d}" % MOST_DIGITS
NAME: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
VALUE: Final = rb"[\t -~\x80-\xff]*+"
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


def fields_apart(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a head that are not looked at before one is asked for: their names in lower case."""
    pieces: list[bytes] = _APART.split(data)
    return [
        (name.lower(), value) if name else (LENGTH, digits)
        for digits, name, value in zip(pieces[1::4], pieces[2::4], pieces[3::4], strict=True)
    ]
