"""Writes the fields of responses, compressed by HPACK (RFC 7541), each for itself: there is no table of them, whatever room the client has.

They are few and short, so little is lost; nothing that one client asks for says anything about what another was told; and the same
bytes say the same to all of them, so most heads are made once.
"""

import functools
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Final

import hpack

from mcpbus.serving.http2.head import NAME, VALUE
from mcpbus.serving.response_writer import WITHOUT_BODY

EMPTY_TABLE: Final = b"\x20"
"""That the table of what was said before has no room (RFC 7541, section 6.3). To be said once, before the first field."""

_LENGTH: Final = b"\x0f\x0d"
"""A literal that is not indexed, named by the entry 28 of the static table, which is `content-length`."""


def encode_head(status: int, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The head of an answer, and what time it is.

    Raises:
        ValueError: A field cannot be said in HTTP.
    """
    return _encode_head(status, tuple(fields), int(time.time()))[0]


def encode_whole_head(status: int, fields: Sequence[tuple[bytes, bytes]], size: int) -> bytes:
    """The same of one that is there as a whole: how long its body is, is added if the fields do not say it.

    Raises:
        ValueError: A field cannot be said in HTTP.
    """
    block, measured = _encode_head(status, tuple(fields), int(time.time()))
    if measured:
        return block
    length = b"%d" % size
    return b"%b%b%c%b" % (block, _LENGTH, len(length), length)


def encode_early_head(status: int) -> bytes:
    """That of what is said before the answer."""
    return _encode_status(status)


# The same few heads come with nearly every answer.
@functools.lru_cache(maxsize=64)
def _encode_head(status: int, fields: tuple[tuple[bytes, bytes], ...], now: int) -> tuple[bytes, bool]:
    """A head in this second, and whether it says how long its body is, or that has none."""
    said = [*fields, (b"date", formatdate(now, usegmt=True).encode())]
    measured = status in WITHOUT_BODY or any(name.lower() == b"content-length" for name, _ in fields)
    return _encode_status(status) + b"".join([_encode(name, value) for name, value in said]), measured


@functools.lru_cache(maxsize=64)
def _encode_status(status: int) -> bytes:
    return _pack(b":status", b"%d" % status)


@functools.lru_cache(maxsize=1024)
def _encode(name: bytes, value: bytes) -> bytes:
    name = name.lower()
    if not NAME.fullmatch(name) or not VALUE.fullmatch(value):
        raise ValueError(f"this cannot be a header field: {name!r}: {value!r}")
    return _pack(name, value)


def _pack(name: bytes, value: bytes) -> bytes:
    plain = hpack.Encoder().encode([(name, value)])
    if len(plain) == 1:
        return plain  # it is in everybody's table
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value)])
