"""Cuts heads in two that have the same fields in the same order, by one regular expression that was compiled for them."""

import re
from collections.abc import Iterable

from mcpbus.serving.head_limits import LOOKED_AT
from mcpbus.serving.http1.head_cut import BLANKS, DIGITS, LENGTH, VALUE

# What is looked at may be anything here, up to the end of its line: it is read later.
_UNREAD = rb"[^\r]*+"


class HeadTemplate:
    """What is common to all heads whose fields have these names, as they are spelled, in this order.

    Args:
        names: The names: each is one, not all are looked at, and the length of the body is there once at most.

    Attributes:
        match: Matches such a head if each line that is not looked at is well-formed.
        plain: The groups of a match that together are what `HeadCut.plain` is.
        digits: The group that says how long the body is; 0 if none does.
    """

    __slots__ = ("digits", "match", "plain")

    def __init__(self, names: Iterable[bytes]) -> None:
        pattern, grouped = b"(" + _UNREAD, True
        for name in names:
            lower = name.lower()
            looked_at = lower in LOOKED_AT and lower != LENGTH
            if looked_at is not grouped:
                pattern += b"(" if looked_at else b")"
                grouped = looked_at
            if lower == LENGTH:
                value = BLANKS + b"(?P<digits>" + DIGITS + b")"
            else:
                value = _UNREAD if looked_at else VALUE
            pattern += rb"\r\n" + re.escape(name) + b":" + value
        compiled = re.compile(pattern + (b"" if grouped else b"(") + rb"\r\n\r\n)")
        self.match = compiled.fullmatch
        self.digits = compiled.groupindex.get("digits", 0)
        self.plain = tuple(group for group in range(1, compiled.groups + 1) if group != self.digits)
