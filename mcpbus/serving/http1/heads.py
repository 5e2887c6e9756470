"""The heads of all requests of one server, of which what comes again and again is read once.

Requests that ask for the same differ in much that nobody looks at before they are served: what proxies add, credentials, the name
of a session, the length of a body. So a head is cut in two. The lines by which it is judged are few, and read as a whole head; of
the others it is enough to know that each is well-formed, and what they say is looked up once somebody asks.
"""

import functools

from mcpbus.protocol.bounded_cache import LONGEST_REMEMBERED
from mcpbus.protocol.recurring_cache import LONGEST_RECALLED, MOST_RECALLED, RecurringCache
from mcpbus.serving.head_limits import MOST_ALIKE, MOST_FIELDS
from mcpbus.serving.http1.head import SHORT_BYTES, Http1RequestHead, read_head
from mcpbus.serving.http1.head_cut import LENGTH, FieldsApart, HeadCut
from mcpbus.serving.http1.head_templates import HeadTemplates
from mcpbus.serving.request_error import RequestError


class Http1HeadCache:
    """Reads heads, and remembers those that come again and are not long.

    They are compared by all of their bytes, or by all of their lines that are looked at, so one that is remembered is read as it
    would be anew.

    Args:
        longest: How many bytes a head may be.

    Attributes:
        longest: The same.
        known: Those that are remembered, by their bytes.
    """

    __slots__ = ("_recall_plain", "_templates", "known", "longest")

    def __init__(self, longest: int) -> None:
        self.longest = longest
        remembering = functools.lru_cache(maxsize=MOST_ALIKE)
        self._recall_plain = remembering(functools.partial(read_head, longest=longest))
        self._templates = HeadTemplates()
        self.known = RecurringCache[bytes, Http1RequestHead](MOST_RECALLED)

    def read(self, data: bytes) -> Http1RequestHead:
        """Read a whole head, as `read_head`."""
        head = self.known.get(data)
        return self.read_anew(data) if head is None else head

    def read_anew(self, data: bytes) -> Http1RequestHead:
        """Read a whole head that is not remembered."""
        head = self._read_like_others(data) or read_head(data, self.longest)
        if len(data) <= LONGEST_RECALLED:
            self.known.keep(data, head)
        return head

    def _read_like_others(self, data: bytes) -> Http1RequestHead | None:
        """Read a head by what is known of others that are like it; None if it is to be looked at as a whole."""
        if len(data) > self.longest:
            return None
        in_two = self._templates.cut(data)
        if in_two is not None:
            return self._read_in_two(data, *in_two)
        if len(data) > SHORT_BYTES and data.count(b"\n") > MOST_FIELDS + 2:
            return None
        cut = HeadCut(data)
        if len(cut.digits) > 1:
            return None  # its body is measured twice
        head = self._read_in_two(data, cut.plain, cut.digits[0] if cut.digits else None)
        if head is not None and head.plain is not None and head.plain.judged.headers.raw(LENGTH) is None:
            self._templates.learn(data, cut)
        return head

    def _read_in_two(self, data: bytes, plain: bytes, digits: bytes | None) -> Http1RequestHead | None:
        """Read a head of which these are the lines that are looked at, and how long another one says that the body is."""
        if len(plain) > LONGEST_REMEMBERED:
            return None
        try:
            known = self._recall_plain(plain)
        except RequestError:
            return None  # what is wrong with all of it may be something else
        if len(plain) == len(data):
            return known
        if known.leaves:
            return None  # what looks like a request of HTTP/2 may be none
        length = known.length
        if digits is not None:
            if length != 0 or known.judged.headers.raw(LENGTH) is not None:
                return None  # its body is measured twice
            length = int(digits)
        judged = known.judged.plus(FieldsApart(data))
        return Http1RequestHead(
            judged=judged,
            length=length,
            raw=data,
            modern=known.modern,
            keeps=known.keeps,
            expects=known.expects,
            plain=known,
        )
