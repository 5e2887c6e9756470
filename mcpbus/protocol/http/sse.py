"""Server-sent events: what one event looks like on the wire (WHATWG HTML, section 9.2)."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

CONTENT_TYPE: Final = b"text/event-stream"

EVENT_STREAM: Final = (b"content-type", CONTENT_TYPE)
HEADERS: Final = (
    EVENT_STREAM,
    (b"cache-control", b"no-cache, no-transform"),
    # Asks nginx and its kin not to hold events back (rule X-11).
    (b"x-accel-buffering", b"no"),
)
"""The header fields of an answer that is a stream."""

COMMENT: Final = b":\n\n"
"""A line that every client skips: it keeps a quiet connection alive (rule X-12)."""

# As numbers: to look for `b"\n" in data` raises an exception inside, and takes ten times as long.
_LF: Final = 10
_CR: Final = 13

_MESSAGE: Final = b"event: message\n"


def encode_event(
    data: bytes,
    *,
    id: str | None = None,  # noqa: A002 - the format's word
    event: str | None = None,
    retry: int | None = None,
) -> bytes:
    """One event.

    Args:
        data: UTF-8. Line breaks in it are kept: each line goes into a field of its own. Empty data with an id primes
            a stream: the client learns the id and delivers nothing (rule W-12).
        id: what a client sends as Last-Event-ID to go on from here.
        event: the event's type; a client takes `message` if there is none.
        retry: milliseconds that the client waits before it connects again.

    Raises:
        ValueError: if `id` or `event` holds a line break or NUL, or `retry` is negative.
    """
    head = b""
    if retry is not None:
        if retry < 0:
            raise ValueError(f"retry is in milliseconds and not negative, got {retry}")
        head = b"retry: %d\n" % retry
    if id is not None:
        head += b"id: %b\n" % _field("id", id)
    if event is not None:
        head += b"event: %b\n" % _field("event", event)
    if _LF in data or _CR in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"%bdata: %b\n\n" % (head, data)


def encode_events(data: Sequence[bytes]) -> bytes:
    """Several events, each as `encode_event` makes it of its data alone."""
    if _are_lines(data):
        return b"data: %b\n\n" % b"\n\ndata: ".join(data)
    return b"".join([encode_event(one) for one in data])


def encode_message(data: bytes) -> bytes:
    """One event that says its type, `message`, as HTTP+SSE has it; otherwise as `encode_event` makes it of its data alone."""
    return _MESSAGE + encode_event(data)


def encode_messages(data: Sequence[bytes]) -> bytes:
    """Several events, each as `encode_message` makes it."""
    if _are_lines(data):
        return b"event: message\ndata: %b\n\n" % b"\n\nevent: message\ndata: ".join(data)
    return b"".join([encode_message(one) for one in data])


def encode_numbered(data: Sequence[bytes], stream: str, first: int) -> bytes:
    """Several events in a row of a stream whose events are numbered, each with the stream's name and its number as its id.

    Args:
        data: What they say, as for `encode_event`.
        stream: The name.
        first: The number of the first one.
    """
    if _are_lines(data):
        between = b"\n\nid: %b." % _field("id", stream)
        return b"%b%b\n\n" % (
            between[2:],
            between.join([b"%d\ndata: %b" % numbered for numbered in enumerate(data, first)]),
        )
    return b"".join([encode_event(one, id=f"{stream}.{number}") for number, one in enumerate(data, first)])


def _are_lines(data: Sequence[bytes]) -> bool:
    """Tell whether there is something, each of it one line."""
    text = b"".join(data)
    return bool(data) and _LF not in text and _CR not in text


def _field(name: str, value: str) -> bytes:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError(f"the {name} of an event is one line without NUL, got {value!r}")
    return value.encode()


@attrs.frozen
class SseEvent:
    """An event as it arrived.

    Attributes:
        data: Its data; empty where it only primes the stream, or says how long to wait (rule W-13a).
        id: What to come back with as Last-Event-ID; None if it does not say.
        type: Its type.
        retry: Milliseconds to wait before coming back; None if it does not say.
    """

    data: str
    id: str | None = None
    type: str = "message"
    retry: int | None = None


_LINE_END: Final = re.compile(rb"\r\n?|\n")
_TELLING: Final = {b"data", b"id", b"retry"}
_FIELDS: Final = {*_TELLING, b"event"}
_LONGEST_FIELD: Final = max(map(len, _FIELDS))


class EventDecoder:
    """Reads a stream of events, however it is cut (WHATWG HTML, section 9.2.6).

    A line is read as soon as it ends. Of an event that has not ended only its data and its last id are held, so comments and
    unknown fields take no memory, however many follow each other without an empty line.

    Args:
        most: Bytes that an event may have: its data, and the line that has not ended.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._line = bytearray()
        # The data of the event, with a line feed behind each of its lines; and its other fields.
        self._data = bytearray()
        self._fields: dict[bytes, bytes] = {}
        self._after_cr = False

    @property
    def held(self) -> int:
        """The bytes that are held of an event that has not ended."""
        return len(self._data) + len(self._line)

    def drop(self) -> None:
        """Hold nothing any more. For a reader that reads no further."""
        self._data, self._line = bytearray(), bytearray()

    def feed(self, data: bytes) -> Iterator[SseEvent]:
        """Take the next bytes, and yield each event that they complete.

        Raises:
            ValueError: An event is too long.
        """
        if not data:
            return
        if self._after_cr:
            # The line feed after a carriage return that ended the last piece.
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        *lines, rest = _LINE_END.split(data)
        for line in lines:
            if self._line:
                self._line += line
                begun, self._line = self._line, bytearray()
                self._read(begun)
            elif line:
                self._read(line)
            elif self._fields.keys() & _TELLING:
                yield self._complete()
            else:
                self._fields.clear()
        self._line += rest
        self._check()

    def _read(self, line: bytes | bytearray) -> None:
        end = line.find(b":")
        name = bytes(line if end < 0 else line[:end]) if end <= _LONGEST_FIELD else b""
        if name not in _FIELDS:
            return
        value = b"" if end < 0 else line[end + 2 if line.startswith(b" ", end + 1) else end + 1 :]
        if name == b"data":
            self._data += value
            self._data += b"\n"
            self._check()
            value = b""
        self._fields[name] = bytes(value)

    def _check(self) -> None:
        if self.held > self._most:
            raise ValueError(f"an event of more than {self._most:,} bytes")

    def _complete(self) -> SseEvent:
        fields, data = self._fields, self._data
        self._fields, self._data = {}, bytearray()
        retry = fields.get(b"retry", b"")
        if data:
            del data[-1]
        return SseEvent(
            data.decode(errors="replace"),
            fields[b"id"].decode(errors="replace") if b"id" in fields else None,
            fields.get(b"event", b"").decode(errors="replace") or "message",
            int(retry) if retry.isdigit() and len(retry) < 10 else None,
        )
