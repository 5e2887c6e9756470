"""What an answer looks like in HTTP/1.1: its head, and its body in one piece or in chunks (RFC 9112)."""

import functools
import re
import time
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from mcpbus.serving.head_limits import TEXT, TOKEN
from mcpbus.serving.response_writer import WITHOUT_BODY

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
END: Final = b"0\r\n\r\n"
"""The end of a body in chunks."""
CHUNKED: Final = b"transfer-encoding: chunked\r\n"
CLOSE: Final = b"connection: close\r\n"
KEEP: Final = b"connection: keep-alive\r\n"
"""What a client of HTTP/1.0 is told that asked for it."""

_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}
_NAME: Final = re.compile(rb"[%b]+" % TOKEN)
_VALUE: Final = re.compile(rb"[%b]*" % TEXT)


def encode_head(status: int, fields: Sequence[tuple[bytes, bytes]], framing: bytes) -> bytes:
    """The head of an answer.

    Args:
        status: The HTTP status.
        fields: Its header fields.
        framing: More of them, as lines: what is said of the body's length and of the connection.

    Raises:
        ValueError: A field cannot be said in HTTP; a line break in it would begin another one.
    """
    return b"%b%b%b\r\n" % (_encode_fields(status, tuple(fields)), framing, _date(int(time.time())))


def encode_answer(
    status: int,
    fields: Sequence[tuple[bytes, bytes]],
    body: bytes,
    framing: bytes = b"",
    *,
    bodiless: bool = False,
) -> bytes:
    """A whole answer.

    Args:
        status: The HTTP status.
        fields: Its header fields; its length is added where it is not among them.
        body: The body.
        framing: Lines that say what becomes of the connection.
        bodiless: Whether it answers HEAD, and so has all of that but the body.
    """
    lines, measures = _whole_head(status, tuple(fields), framing, int(time.time()))
    head = b"%bcontent-length: %d\r\n\r\n" % (lines, len(body)) if measures else lines
    return head if bodiless else head + body


def encode_chunk(data: bytes) -> bytes:
    """A piece of a body in chunks; nothing for no data, since an empty chunk would end it."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


# The same few heads come with nearly every answer.
@functools.lru_cache(maxsize=1024)
def _encode_fields(status: int, fields: tuple[tuple[bytes, bytes], ...]) -> bytes:
    for field in fields:
        if not _NAME.fullmatch(field[0]) or not _VALUE.fullmatch(field[1]):
            raise ValueError(f"this cannot be a header field: {field[0]!r}: {field[1]!r}")
    lines = [b"%b: %b\r\n" % field for field in fields]
    return b"".join([_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, *lines])


@functools.lru_cache(maxsize=64)
def _whole_head(
    status: int, fields: tuple[tuple[bytes, bytes], ...], framing: bytes, now: int
) -> tuple[bytes, bool]:
    """The head of a whole answer in this second; without its last lines, if it is still to say how long its body is."""
    lines = b"%b%b%b" % (_encode_fields(status, fields), framing, _date(now))
    if status in WITHOUT_BODY or any(name.lower() == b"content-length" for name, _ in fields):
        return lines + b"\r\n", False
    return lines, True


@functools.lru_cache(maxsize=2)
def _date(now: int) -> bytes:
    return b"date: %b\r\n" % formatdate(now, usegmt=True).encode()
