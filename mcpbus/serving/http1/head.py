"""The head of one HTTP/1.1 request: read by llhttp, and by rules of our own where llhttp is lenient (RFC 9112).

Whoever reads a message in another way than the proxy before it can be made to see two where the proxy saw one. So what
is not exactly as the standard has it is refused, also where the standard would let us guess.
"""

import re
from typing import Final
from urllib.parse import unquote

import attrs
import httptools

from mcpbus.protocol.http.headers import Headers, group_fields
from mcpbus.protocol.http.messages import RequestHead, plain_path
from mcpbus.serving.head_cache import RememberedHead
from mcpbus.serving.head_limits import LONGEST_LINE, MOST_DIGITS, MOST_FIELDS, TOKEN
from mcpbus.serving.request_error import RequestError

SHORT_BYTES: Final = 4 * MOST_FIELDS
"""Bytes of a head that cannot have more fields than that."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\n"
"""What an HTTP/2 client with prior knowledge says first, as far as it looks like a request."""

# Lines of what may stand in them, which begin with neither a blank nor nothing, and an empty one.
_SOUND: Final = re.compile(rb"(?:[!-~\x80-\xff][\t -~\x80-\xff]*+\r\n)++\r\n")
_FAULT: Final = re.compile(
    rb"(?P<control>[\0-\x08\x0b\x0c\x0e-\x1f\x7f])|(?P<cr>\r(?!\n))|(?P<lf>(?<!\r)\n)|(?P<fold>\r\n[\t ])"
)
_FAULTS: Final = {
    "control": "a control character stands in the head",
    "cr": "a carriage return without a line feed stands in the head",
    "lf": "a line of the head ends in a line feed without a carriage return",
    "fold": "a header field is folded over several lines",
}
_LINE: Final = re.compile(rb"([%b]+) ([!-~]+) HTTP/(\d\.\d)" % TOKEN)
_ABSOLUTE: Final = re.compile(r"https?://([^/?]+)(.*)", re.IGNORECASE)


class Http1RequestHead(RememberedHead, eq=False, kw_only=True):
    """The head of a request over HTTP/1.1. A body whose length it does not say comes in chunks.

    Attributes:
        raw: The bytes of it.
        modern: Whether its version is 1.1; otherwise it is 1.0.
        keeps: Whether its client will send another one on this connection.
    """

    raw: bytes
    modern: bool
    keeps: bool


class _Fields:
    """The header fields that llhttp finds, with their names in lower case."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.found.append((name.lower(), value))


@attrs.frozen
class _RequestLine:
    """A request line; `authority` is that of a target in absolute form."""

    verb: str
    path: str
    query: str
    authority: bytes | None
    modern: bool


def find_fault(data: bytes, longest: int, start: int = 0) -> RequestError | None:
    """Find the first thing that no head may have, in what has come of one.

    Args:
        data: The bytes since its beginning; more may follow.
        longest: How long a whole one may be.
        start: How many of the bytes are known to be without fault.
    """
    found = _FAULT.search(data, max(start - 2, 0))
    if found is not None and found["cr"] is not None and found.end() == len(data):
        found = None  # its line feed may be on its way
    line = data.find(b"\r\n", 0, LONGEST_LINE + 2)
    limits = [(longest, RequestError(431, f"the head is longer than {longest} bytes", "max_head_bytes"))]
    if line < 0:
        limits.append(
            (LONGEST_LINE, RequestError(414, f"the request line is longer than {LONGEST_LINE} bytes"))
        )
    at, too_long = min(limits, key=lambda limit: limit[0])
    if found is not None and found.start() < at:
        assert found.lastgroup is not None  # noqa: S101 - every alternative has a name
        return RequestError(400, _FAULTS[found.lastgroup])
    return too_long if len(data) > at else None


def read_head(data: bytes, longest: int) -> Http1RequestHead:
    """Read a whole head.

    Args:
        data: Its bytes, to the end of the empty line.
        longest: How many they may be.

    Raises:
        RequestError: It is not as it must be.
    """
    if len(data) > min(LONGEST_LINE, longest) or not _SOUND.fullmatch(data):
        fault = find_fault(data, longest)
        if fault is not None:
            raise fault
        if data[0] in b" \t":
            raise RequestError(400, "the request line begins with a blank")
    if data == PREFACE:
        preface = RequestHead("PRI", "*", Headers(()))
        return Http1RequestHead(judged=preface, length=0, raw=data, modern=True, keeps=False, leaves=True)
    if len(data) > SHORT_BYTES and data.count(b"\n") > MOST_FIELDS + 2:
        raise RequestError(431, f"the head has more than {MOST_FIELDS} fields")
    line = _read_line(data[: data.index(b"\r\n")])
    fields = _read_fields(data)
    host = fields.get(b"host")
    if not isinstance(host, bytes) and (host is not None or line.modern):
        raise RequestError(400, "a request names its host once, in the field Host")
    if line.authority is not None and line.authority != (host or b"").lower():
        raise RequestError(400, "the target names another host than the field Host")
    head = RequestHead(line.verb, plain_path(line.path), Headers.of(fields), line.query)
    length = _read_length(fields, modern=line.modern)
    keeps, leaves = _read_connection(head, modern=line.modern)
    return Http1RequestHead(
        judged=head,
        length=length,
        raw=data,
        modern=line.modern,
        keeps=keeps,
        expects=_read_expectation(head) and line.modern,
        leaves=leaves,
    )


def target_of(head: Http1RequestHead) -> bytes:
    """What a request asks for, as it came, without the authority that one in absolute form has."""
    target = head.raw.split(b" ", 2)[1]
    absolute = _ABSOLUTE.fullmatch(target.decode())
    if absolute is None:
        return target
    rest = absolute[2].encode()
    return rest if rest.startswith(b"/") else b"/" + rest


def fields_of(head: Http1RequestHead) -> list[tuple[bytes, bytes]]:
    """The fields of a request one by one as they came, their names in lower case."""
    lines = head.raw[: -len(b"\r\n\r\n")].split(b"\r\n")[1:]
    parts = [line.partition(b":") for line in lines]
    return [(name.lower(), value.strip(b" \t")) for name, _, value in parts]


def _read_fields(data: bytes) -> dict[bytes, bytes | tuple[bytes, ...]]:
    """Have llhttp read a head."""
    fields = _Fields()
    # A new parser costs next to nothing, and has no state that one request could leave for the next.
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # what the client wants is judged by its fields
    except httptools.HttpParserInvalidMethodError:
        raise RequestError(501, "the method is unknown") from None
    except httptools.HttpParserError as error:
        raise RequestError(400, f"the head is malformed: {error}") from None
    return group_fields(fields.found)


def _read_line(data: bytes) -> _RequestLine:
    """Read a request line: a target in origin form, in absolute form, or `*` (RFC 9112, section 3)."""
    parts = _LINE.fullmatch(data)
    if parts is None:
        raise RequestError(400, "the request line is not a method, a target in ASCII and a version")
    verb, target, version = parts[1].decode(), parts[2].decode(), parts[3]
    if version not in {b"1.1", b"1.0"}:
        raise RequestError(505, f"HTTP/{version.decode()} is not served here; use HTTP/1.1")
    authority = None
    if not target.startswith("/"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is not None:
            authority = absolute[1].lower().encode()
            target = absolute[2] if absolute[2].startswith("/") else f"/{absolute[2]}"
        elif target != "*" or verb != "OPTIONS":
            raise RequestError(400, "the target is neither a path nor an http address")
    if "#" in target:
        raise RequestError(400, "the target has a fragment, which is not for the server")
    path, _, query = target.partition("?")
    return _RequestLine(verb, unquote(path), query, authority, version == b"1.1")


def _read_length(fields: dict[bytes, bytes | tuple[bytes, ...]], *, modern: bool) -> int | None:
    """How long the body is; None if it comes in chunks (RFC 9112, section 6.3)."""
    length = fields.get(b"content-length")
    coding = fields.get(b"transfer-encoding")
    if length is None and coding is None:
        return 0
    if coding is not None:
        if length is not None:
            raise RequestError(
                400, "the body's length is given twice, by Content-Length and by Transfer-Encoding"
            )
        if not modern or not isinstance(coding, bytes) or coding.strip(b" \t").lower() != b"chunked":
            raise RequestError(
                400, "the only Transfer-Encoding that is served is chunked, in HTTP/1.1 and given once"
            )
        return None
    # int() takes signs and underscores too, and is slow on what is absurdly long.
    digits = length.strip(b" \t") if isinstance(length, bytes) else b""
    if not digits.isdigit() or len(digits) > MOST_DIGITS:
        raise RequestError(400, "Content-Length is not one number of bytes")
    return int(digits)


def _read_connection(head: RequestHead, *, modern: bool) -> tuple[bool, bool]:
    """Whether the client will send another request on this connection, and whether it wants to leave HTTP/1.1."""
    options = head.headers.get(b"connection")
    if options is None:
        return modern, False
    tokens = {token.strip(" \t") for token in options.lower().split(",")}
    keeps = "close" not in tokens and (modern or "keep-alive" in tokens)
    if "upgrade" not in tokens or not modern or head.verb != "GET":
        return keeps, False
    wanted = (head.headers.get(b"upgrade") or "").lower().split(",")
    return keeps, any(token.strip(" \t") == "websocket" for token in wanted)


def _read_expectation(head: RequestHead) -> bool:
    """Whether the client waits for a `100 Continue`."""
    expectation = head.headers.get(b"expect")
    if expectation is not None and expectation.lower() != "100-continue":
        raise RequestError(417, "the only expectation that can be met is 100-continue")
    return expectation is not None
