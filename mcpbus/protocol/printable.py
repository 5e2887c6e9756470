"""Text of other programs, made safe for a terminal and for the log.

All such text passes through `printable`: results, errors and descriptions of servers on the command line, and clients' text,
authors' exceptions and upstream servers' errors in the log. It replaces the characters with which text can steer a terminal, hide
a part of itself, or begin a line that looks like a new entry of the log.

They are the Unicode categories Cc, Cf, Cs, Zl and Zp: C0 and C1 controls, bidirectional and other format characters, halves of
surrogate pairs, and the two separators that some programs take for line ends. The joiners of emoji and of Persian are format
characters too, and no terminal shows the difference between them and the dangerous ones.
"""

import re
from typing import Final

_FORMAT: Final = (
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)
"""Cf, Zl and Zp of Unicode 16: a table, because Python's own grows with its version, and takes 0.1 s to search."""

_UNSAFE: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_FORMAT}]")
_UNSAFE_WITHIN_LINES: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_FORMAT}]")
_NEW_LINE: Final = re.compile(r"\n(?=\S)")


def printable(text: object, *, lines: bool = True, longest: int | None = None) -> str:
    """Return text in which the replacement character U+FFFD stands for each character that is not safe to show.

    Args:
        text: The text, or an object with one.
        lines: Whether line ends and tabs are kept.
        longest: The number of characters after which the text is cut off, if any.
    """
    whole = str(text)
    if longest is not None and len(whole) > longest:
        whole = f"{whole[:longest]}..."
    if whole.isprintable():
        return whole
    unsafe = _UNSAFE_WITHIN_LINES if lines else _UNSAFE
    return unsafe.sub("\N{REPLACEMENT CHARACTER}", whole)


def escaped(text: str) -> str:
    r"""Return text on one line in which each character that is not safe to show is an escape, such as ``\x1b``."""
    return text if text.isprintable() else _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def quoted(text: object, longest: int) -> str:
    r"""Return text as it is if all of it is safe on one line, and short; otherwise as a literal in quotes, such as ``'a\x1b[2J'``.

    For the few words that a log line repeats of a request: the literal shows which characters there were.

    Args:
        text: The text, or an object with one.
        longest: The number of characters after which the text is cut off.
    """
    whole = str(text)
    return whole if whole == printable(whole, lines=False, longest=longest) else ascii(whole[:longest])


def as_entry(text: object) -> str:
    """Return text as one entry of a log: the lines after its first one are indented, so that none can look like another entry."""
    return _NEW_LINE.sub("\n  ", printable(text))
