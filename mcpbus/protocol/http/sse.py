"""Server-sent events: what one event looks like on the wire (WHATWG HTML, section 9.2)."""

from collections.abc import Sequence
from typing import Final

CONTENT_TYPE: Final = b"text/event-stream"

HEADERS: Final = (
    (b"content-type", CONTENT_TYPE),
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
    text = b"\n\ndata: ".join(data)
    if text.count(b"\n") == 2 * len(data) - 2 and _CR not in text:
        return b"data: %b\n\n" % text
    return b"".join([encode_event(one) for one in data])


def _field(name: str, value: str) -> bytes:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError(f"the {name} of an event is one line without NUL, got {value!r}")
    return value.encode()
