"""The heads of all requests of one server, of which what comes again and again is read once.

Requests that ask for the same differ in much that nobody looks at before they are served: what proxies add, credentials, the name
of a session, the length of a body. So a head is cut in two. The lines by which it is judged are few, and read as a whole head; of
the others it is enough to know that each is well-formed, and what they say is looked up once somebody asks.
"""

import functools
import re
from collections.abc import Sequence
from typing import Final

from mcpbus.protocol.bounded_cache import LONGEST_REMEMBERED
from mcpbus.protocol.recurring_cache import LONGEST_RECALLED, MOST_RECALLED, RecurringCache
from mcpbus.serving.head_limits import (
    LOOKED_AT,
    MOST_ALIKE,
    MOST_FIELDS,
)
from mcpbus.serving.http1.head import SHORT_BYTES, RequestHead, read_head
from mcpbus.serving.request_error import RequestError


def _any_of(*names: bytes) -> bytes:
    """Return a pattern for names in upper or lower case; most lines are told from them by their first letter."""
    return b"|".join(b"[%b%b](?i:%b)" % (name[:1], name[:1].upper(), re.escape(name[1:])) for name in names)


# A line that says how long the body is, and any other that nobody looks at. What is not exactly so stays where it is.
_APART: Final = re.compile(
    rb"\r\n(?:" + _any_of(b"content-length") + rb":[\t ]*+([0-9]{1,18})"
    rb"|(?!(?:" + _any_of(*sorted(LOOKED_AT)) + rb"):)"
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]++):[\t ]*+([\t -~\x80-\xff]*+))(?=\r\n)"
)


class Heads:
    """Reads heads, and remembers those that come again and are not long.

    They are compared by all of their bytes, or by all of their lines that are looked at, so one that is remembered is read as it
    would be anew.

    Args:
        longest: How many bytes a head may be.

    Attributes:
        longest: The same.
        known: Those that are remembered, by their bytes.
    """

    __slots__ = ("_recall_plain", "_short", "known", "longest")

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._short = min(longest, SHORT_BYTES)
        remembering = functools.lru_cache(maxsize=MOST_ALIKE)
        self._recall_plain = remembering(functools.partial(read_head, longest=longest))
        self.known = RecurringCache[bytes, RequestHead](MOST_RECALLED)

    def read(self, data: bytes) -> RequestHead:
        """Read a whole head, as `read_head`."""
        head = self.known.get(data)
        if head is None:
            head = self._read_like_others(data) or read_head(data, self.longest)
            if len(data) <= LONGEST_RECALLED:
                self.known.keep(data, head)
        return head

    def _read_like_others(self, data: bytes) -> RequestHead | None:
        """Read a head by what is known of others that are like it; None if it is to be looked at as a whole."""
        if len(data) > self._short and (len(data) > self.longest or data.count(b"\n") > MOST_FIELDS + 2):
            return None
        pieces: list[bytes] = _APART.split(data)
        plain = b"".join(pieces[::4])
        if len(plain) > LONGEST_REMEMBERED:
            return None
        try:
            known = self._recall_plain(plain)
        except RequestError:
            return None  # what is wrong with all of it may be something else
        if len(pieces) == 1:
            return known
        length, lengths = known.length, [*filter(None, pieces[1::4])]
        framed = bool(lengths) and (
            length != 0 or len(lengths) > 1 or known.judged.headers.raw(b"content-length") is not None
        )
        if framed or known.leaves:
            return None  # its body is measured twice, or what looks like a request of HTTP/2 may be none
        if lengths:
            length = int(lengths[0])
        head = known.judged.plus(functools.partial(_others, pieces))
        return RequestHead(head, length, data, known.modern, known.keeps, known.expects, plain=known)


def _others(pieces: list[bytes]) -> Sequence[tuple[bytes, bytes]]:
    """Return the fields of a head that are not looked at before one is asked for: their names in lower case."""
    return [
        (name.lower(), value) if name else (b"content-length", length)
        for length, name, value in zip(pieces[1::4], pieces[2::4], pieces[3::4], strict=True)
    ]
