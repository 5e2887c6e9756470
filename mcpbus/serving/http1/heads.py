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
from mcpbus.serving.head_limits import LONGEST_RECALLED, LOOKED_AT, MOST_ALIKE, MOST_FIELDS, MOST_RECALLED
from mcpbus.serving.http1.head import SHORT_BYTES, RequestHead, read_head
from mcpbus.serving.request_error import RequestError


def _any_of(*names: bytes) -> bytes:
    """Return a pattern for names in upper or lower case; most lines are told from them by their first letter."""
    return b"|".join(b"[%b%b](?i:%b)" % (name[:1], name[:1].upper(), re.escape(name[1:])) for name in names)


_LENGTH: Final = _any_of(b"content-length") + rb":[\t ]*+([0-9]{1,18})"
# A line that says how long the body is, and any other that nobody looks at. What is not exactly so stays where it is.
_APART: Final = re.compile(
    rb"\r\n(?:" + _LENGTH + rb"|(?!(?:" + _any_of(*sorted(LOOKED_AT)) + rb"):)"
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]++):[\t ]*+([\t -~\x80-\xff]*+))(?=\r\n)"
)
_LENGTHS: Final = re.compile(rb"\r\n" + _LENGTH + rb"(?=\r\n)")


class Heads:
    """Reads heads, and remembers those that came last and are not long.

    They are compared by all of their bytes, or by all of their lines that are looked at, so one that is remembered is read as it
    would be anew.

    Args:
        longest: How many bytes a head may be.

    Attributes:
        longest: The same.
        recall: Reads one that is not long, as `read`.
    """

    __slots__ = ("_recall_plain", "_short", "longest", "recall")

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._short = min(longest, SHORT_BYTES)
        remembering = functools.lru_cache(maxsize=MOST_ALIKE)
        self._recall_plain = remembering(functools.partial(read_head, longest=longest))
        self.recall = functools.lru_cache(maxsize=MOST_RECALLED)(self._read)

    def read(self, data: bytes) -> RequestHead:
        """Read a whole head, as `read_head`."""
        return self._read(data) if len(data) > LONGEST_RECALLED else self.recall(data)

    def _read(self, data: bytes) -> RequestHead:
        return self._read_like_others(data) or read_head(data, self.longest)

    def _read_like_others(self, data: bytes) -> RequestHead | None:
        """Read a head by what is known of others that are like it; None if it is to be looked at as a whole."""
        if len(data) > self._short and (len(data) > self.longest or data.count(b"\n") > MOST_FIELDS + 2):
            return None
        plain = _APART.sub(b"", data)
        if len(plain) > LONGEST_REMEMBERED:
            return None
        try:
            known = self._recall_plain(plain)
        except RequestError:
            return None  # what is wrong with all of it may be something else
        if len(plain) == len(data):
            return known
        judged, length, framed = known.judged, known.length, False
        lengths = _LENGTHS.findall(data)
        if lengths:
            length = int(lengths[0])
            framed = (
                known.length != 0 or len(lengths) > 1 or judged.headers.raw(b"content-length") is not None
            )
        if (
            framed or known.leaves
        ):  # its body is measured twice, or what looks like a request of HTTP/2 may be none
            return None
        head = judged.plus(functools.partial(_others, data))
        return RequestHead(head, length, data, known.modern, known.keeps, known.expects, plain=known)


def _others(data: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Return the fields of a head that are not looked at before one is asked for: their names in lower case."""
    return [
        (name.lower(), value) if name else (b"content-length", length)
        for length, name, value in _APART.findall(data)
    ]
