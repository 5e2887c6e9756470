"""The heads of all requests of one server, of which those that recur are read once.

Requests for the same thing differ in fields that nothing looks at before they are served: fields of proxies, credentials, the id of a
session, the length of the body. So a head is cut in two. The lines by which it is judged are few, and read as a whole head. The others
have to be well-formed, and are looked up on demand.

A template, which is a regular expression, cuts heads with the same fields in the same order. That is far cheaper than a look at each line,
but its compilation takes as long as dozens of requests, and clients send what they like. So only frequent heads have one, and there are few.
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from mcpbus.protocol.bounded_cache import LONGEST_REMEMBERED
from mcpbus.protocol.http.mirrored_fields import Values
from mcpbus.protocol.recurring_cache import LONGEST_RECALLED, MOST_RECALLED, RecurringCache
from mcpbus.serving.head_limits import LOOKED_AT, MOST_ALIKE, MOST_DIGITS, MOST_FIELDS, TEXT, TOKEN
from mcpbus.serving.http1.head import SHORT_BYTES, Http1RequestHead, read_head
from mcpbus.serving.request_error import RequestError

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


OFTEN: Final = 256
"""How many heads that are alike come before there is a template for them."""

MOST_COUNTED: Final = 256
"""Of how many kinds of heads it is known how often they came."""

MOST_LINES: Final = 40
"""How many lines a head may have for which there is a template."""

LONGEST_NAMES: Final = 1024
"""How many bytes the names of its fields may be."""

MOST_AS_LONG: Final = 8
"""How many templates there are for heads of as many lines."""


class HeadTemplates:
    """Cuts heads by templates, and learns which ones there are to be.

    Of too many for heads of as many lines, the one is forgotten that was not used for longest.
    """

    __slots__ = ("_came", "_known", "_last")

    def __init__(self) -> None:
        self._known: dict[int, list[HeadTemplate]] = {}
        self._last: HeadTemplate | None = None
        self._came: dict[int, int] = {}

    def cut(self, data: bytes) -> tuple[bytes, bytes | None] | None:
        """Cut a whole head in two.

        Returns:
            Its lines that are looked at, see `HeadCut.plain`, and what says how long the body is, if anything does; None if there is no
            template for it.
        """
        template = self._last
        match = None if template is None else template.match(data)
        if template is None or match is None:
            known = self._known.get(_count_lines(data), [])
            for template in known:
                match = template.match(data)
                if match is not None:
                    break
            else:
                return None
            self._prefer(template, known)
        return b"".join(match.group(*template.plain)), match[template.digits] if template.digits else None

    def learn(self, data: bytes, cut: HeadCut) -> None:
        """Learn of a head for which there is no template.

        Args:
            data: The head, which is in order and says the length of its body once at most.
            cut: The same, cut; something is apart.
        """
        lines = _count_lines(data)
        if lines > MOST_LINES:
            return
        came = self._came
        # Two kinds of one hash are hardly ever there, and do no harm: one has a template a little sooner.
        kind = hash(tuple(cut.names))
        count = came.pop(kind, 0) + 1
        if count < OFTEN:
            if len(came) >= MOST_COUNTED:
                came.clear()
            came[kind] = count
            return
        names = [line.partition(b":")[0] for line in data.split(b"\r\n")[1:-2]]
        if sum(map(len, names)) <= LONGEST_NAMES:
            self._prefer(HeadTemplate(names), self._known.setdefault(lines, []))

    def _prefer(self, template: HeadTemplate, known: list[HeadTemplate]) -> None:
        """Try a template first from now on."""
        self._last = template
        if template in known:
            known.remove(template)
        known.insert(0, template)
        del known[MOST_AS_LONG:]


def _count_lines(data: bytes) -> int:
    return data.count(b"\r")


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
