"""The body of one HTTP/1.1 request, cut out of its connection's bytes (RFC 9112, sections 6 and 7).

llhttp could do this too, but does not say where in what it was fed a body has ended; and what comes after may be another
request, whose head is to be looked at as a whole.
"""

import re
from enum import Enum, auto
from typing import Final, Protocol

from mcpbus.serving.head_limits import TEXT, TOKEN
from mcpbus.serving.request_error import RequestError

_LONGEST_LINE: Final = 512
"""Bytes of a line between chunks: a size and its extensions, or a trailer."""

_MOST_TRAILERS: Final = 32
_CRLF: Final = b"\r\n"
_CRLF_BYTES: Final = len(_CRLF)

MOST_FRAMING: Final = 1024 * 1024
"""Bytes of a body in chunks that are not the body: chunks of one byte would be five times as much, each looked at by itself."""

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[%b]*)?" % TEXT)
_CHUNK: Final = re.compile(_SIZE.pattern + _CRLF)
_TRAILER: Final = re.compile(rb"[%b]+:[%b]*" % (TOKEN, TEXT))


class Http1Body(Protocol):
    """What of a body is still to come."""

    left: int
    """Bytes that are known to be still to come; none is, once it has ended."""
    ended: bool

    def take(self, data: bytes, start: int) -> tuple[bytes, int]:
        """Take what belongs to the body from `data`, beginning at `start`.

        Returns:
            The piece, and where in `data` what was not taken begins. It can be taken when more has come.

        Raises:
            RequestError: That is no body.
        """


class Sized:
    """A body whose length its head says."""

    __slots__ = ("ended", "left")

    def __init__(self, length: int) -> None:
        self.left = length
        self.ended = not length

    def take(self, data: bytes, start: int) -> tuple[bytes, int]:
        """See `Http1Body`."""
        piece = data[start : start + self.left]
        self.left -= len(piece)
        self.ended = not self.left
        return piece, start + len(piece)


class _At(Enum):
    SIZE = auto()
    DATA = auto()
    AFTER_DATA = auto()
    TRAILER = auto()


class Chunked:
    """A body in chunks, each of which says its size; the last one has none, and trailers may follow, which are dropped."""

    __slots__ = ("_at", "_framing", "_trailers", "ended", "left")

    def __init__(self) -> None:
        self.left = 0
        self.ended = False
        self._framing = 0
        self._at = _At.SIZE
        self._trailers = 0

    def take(self, data: bytes, start: int) -> tuple[bytes, int]:
        """See `Http1Body`."""
        pieces: list[bytes] = []
        if self._at is _At.SIZE:
            start = self._take_whole_chunks(data, start, pieces)
        while not self.ended:
            if self._at is _At.DATA:
                piece = data[start : start + self.left]
                if not piece:
                    break
                pieces.append(piece)
                start += len(piece)
                self.left -= len(piece)
                if not self.left:
                    self._at = _At.AFTER_DATA
                continue
            line, after, whole = _next_line(data, start)
            if not whole:
                break
            self._framing += after - start
            start = after
            if self._framing > MOST_FRAMING:
                raise RequestError(
                    400, f"its chunks are too short: {MOST_FRAMING} bytes of it are not the body"
                )
            self._read(line)
        return b"".join(pieces), start

    def _take_whole_chunks(self, data: bytes, start: int, pieces: list[bytes]) -> int:
        """Take the chunks that are there from end to end, as nearly all are, and leave all else to be looked at closely."""
        framing = self._framing
        while (found := _CHUNK.match(data, start)) is not None:
            begin = found.end()
            end = begin + int(found[1], 16)
            framing += begin - start + _CRLF_BYTES
            short = begin - start <= _LONGEST_LINE and framing <= MOST_FRAMING
            if end == begin or not short or not data.startswith(_CRLF, end):
                break
            pieces.append(data[begin:end])
            start, self._framing = end + _CRLF_BYTES, framing
        return start

    def _read(self, line: bytes) -> None:
        if self._at is _At.AFTER_DATA:
            if line:
                raise RequestError(400, "a chunk is longer than its size")
            self._at = _At.SIZE
        elif self._at is _At.SIZE:
            size = _SIZE.fullmatch(line)
            if size is None:
                raise RequestError(400, "a chunk begins with something else than its size")
            self.left = int(size[1], 16)
            self._at = _At.DATA if self.left else _At.TRAILER
        elif not line:
            self.ended = True
        else:
            self._trailers += 1
            if self._trailers > _MOST_TRAILERS or not _TRAILER.fullmatch(line):
                raise RequestError(400, "the trailer of a chunked body is malformed or too long")


def _next_line(data: bytes, start: int) -> tuple[bytes, int, bool]:
    """The next line without its end, where the one after it begins, and whether it is whole."""
    end = data.find(b"\n", start, start + _LONGEST_LINE)
    if end < 0:
        if len(data) - start >= _LONGEST_LINE:
            raise RequestError(400, f"a line between chunks is longer than {_LONGEST_LINE} bytes")
        return b"", start, False
    if end == start or data[end - 1] != 13:
        raise RequestError(400, "a line between chunks ends in a line feed without a carriage return")
    return data[start : end - 1], end + 1, True
