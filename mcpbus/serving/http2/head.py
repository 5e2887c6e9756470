"""The head of one HTTP/2 request, judged by the syntax of its fields and by their meaning (RFC 9113, sections 8.2 and 8.3)."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from mcpbus.protocol.http.headers import Headers, group_fields
from mcpbus.protocol.http.messages import RequestHead, plain_path
from mcpbus.serving.head_cache import RememberedHead
from mcpbus.serving.head_limits import LONGEST_LINE, LOWER_TOKEN, MOST_DIGITS, TEXT, TOKEN
from mcpbus.serving.http2.hpack_decoder import Fields
from mcpbus.serving.request_error import RequestError

NAME: Final = re.compile(rb"[%b]+" % LOWER_TOKEN)
VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[%b]*[!-~\x80-\xff])?)?" % TEXT)


_COOKIE: Final = b"cookie"
_METHOD: Final = re.compile(rb"[%b]+" % TOKEN)
_TARGET: Final = re.compile(rb"(?:/[!\"$-~]*|\*)")
_PSEUDO: Final = frozenset({b":method", b":scheme", b":authority", b":path", b":protocol"})
_OF_THE_CONNECTION: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)


class Malformed(Exception):  # noqa: N818 - the standard's word
    """The request is malformed: its stream is reset (section 8.1.1)."""


class Http2RequestHead(RememberedHead, eq=False, kw_only=True):
    """The head of a request over HTTP/2; Host is among its fields, whichever way that was said.

    Attributes:
        target: Its target as it came.
        fault: What is to be answered instead of serving it.
    """

    target: bytes
    fault: RequestError | None = None


def check_trailers(fields: Fields) -> None:
    """Judge what comes after a body; nothing is done about it.

    Raises:
        Malformed: It cannot be.
    """
    for name, value in fields:
        check_field(name, value)


def read_head(fields: Fields) -> Http2RequestHead:
    """Read a head.

    Raises:
        Malformed: It is none.
    """
    pseudo, plain = _split(fields)
    method, scheme, target = pseudo.get(b":method"), pseudo.get(b":scheme"), pseudo.get(b":path")
    if method is None or not _METHOD.fullmatch(method):
        raise Malformed("its method is none")
    protocol = pseudo.get(b":protocol")
    if protocol is not None and method != b"CONNECT":
        raise Malformed("only CONNECT has a protocol")
    if method == b"CONNECT" and protocol is None:
        if scheme is not None or target is not None or not pseudo.get(b":authority"):
            raise Malformed("CONNECT has an authority, and nothing else")
        scheme, target = b"http", b"*"
    if not scheme or target is None or not _TARGET.fullmatch(target):
        raise Malformed("it has no target, or none in ASCII")
    found = group_fields(plain)
    cookies = found.get(_COOKIE)
    if isinstance(cookies, tuple):
        found[_COOKIE] = join_cookies(cookies)
    fault = _find_fault(method, scheme, target, protocol) or _settle_host(found, pseudo.get(b":authority"))
    expectation = found.get(b"expect")
    met = isinstance(expectation, bytes) and expectation.lower() == b"100-continue"
    if fault is None and expectation is not None and not met:
        fault = RequestError(417, "the only expectation that can be met is 100-continue")
    path, _, query = target.decode().partition("?")
    head = RequestHead(method.decode(), plain_path(unquote(path)), Headers.of(found), query)
    length = read_length(found.get(b"content-length"))
    return Http2RequestHead(
        judged=head,
        length=length,
        expects=expectation is not None,
        leaves=protocol is not None,
        target=target,
        fault=fault,
    )


def read_refused(fields: Fields, fault: RequestError) -> Http2RequestHead:
    """Read what the answer to a head needs that is refused for its size: the method alone.

    Raises:
        Malformed: It has none.
    """
    method = target = b""
    for name, value in fields:
        if name[:1] != b":":
            break
        if name == b":method":
            method = value
        elif name == b":path":
            target = value
    if not _METHOD.fullmatch(method):
        raise Malformed("its method is none")
    judged = RequestHead(method.decode(), "*", Headers(()))
    return Http2RequestHead(judged=judged, length=None, target=target, fault=fault)


def _split(fields: Fields) -> tuple[dict[bytes, bytes], list[tuple[bytes, bytes]]]:
    """The parts of a request line, and the fields that have no colon at their beginning."""
    pseudo: dict[bytes, bytes] = {}
    plain: list[tuple[bytes, bytes]] = []
    for name, value in fields:
        if name[:1] != b":":
            check_field(name, value)
            plain.append((name, value))
        elif plain or name not in _PSEUDO or name in pseudo or not VALUE.fullmatch(value):
            raise Malformed("a field with a colon is unknown, or twice there, or comes late")
        else:
            pseudo[name] = value
    return pseudo, plain


def check_field(name: bytes, value: bytes) -> None:
    """Judge a field that is no part of the request line.

    Raises:
        Malformed: It cannot be.
    """
    if not NAME.fullmatch(name):
        raise Malformed("the name of a field is none")
    if not VALUE.fullmatch(value):
        raise Malformed("the value of a field is none")
    if name in _OF_THE_CONNECTION or (name == b"te" and value.lower() != b"trailers"):
        raise Malformed("a field that is about the connection")


def join_cookies(cookies: Iterable[bytes]) -> bytes:
    """Join a cookie that was cut into several fields for its compression alone (RFC 9113, section 8.2.3)."""
    return b"; ".join(cookies)


def _settle_host(
    found: dict[bytes, bytes | tuple[bytes, ...]], authority: bytes | None
) -> RequestError | None:
    """Have Host say for whom the request is, whichever way that was said."""
    host = found.get(b"host")
    if authority is None:
        return None if isinstance(host, bytes) else RequestError(400, "a request names its host once")
    if host is not None and (isinstance(host, tuple) or host.lower() != authority.lower()):
        return RequestError(400, "the authority is another one than the field Host")
    found[b"host"] = authority
    return None


def _find_fault(method: bytes, scheme: bytes, target: bytes, protocol: bytes | None) -> RequestError | None:
    """Find what makes a request, which is well-formed, one that is not for this server."""
    if method == b"CONNECT" and protocol != b"websocket":
        return RequestError(501, "nothing is tunnelled here but WebSocket")
    if len(target) > LONGEST_LINE:
        return RequestError(414, f"the target is longer than {LONGEST_LINE} bytes")
    if scheme not in {b"http", b"https"} or (target == b"*" and method != b"OPTIONS"):
        return RequestError(400, "the target is neither a path nor an http address")
    return None


def read_length(value: bytes | tuple[bytes, ...] | None) -> int | None:
    """How long the body is, if that is said.

    Raises:
        Malformed: It is no number.
    """
    if value is None:
        return None
    if not isinstance(value, bytes) or not value.isdigit() or len(value) > MOST_DIGITS:
        raise Malformed("content-length is not one number of bytes")
    return int(value)
