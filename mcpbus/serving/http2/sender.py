"""What a server says on one HTTP/2 connection without I/O: answers in, bytes out (RFC 9113)."""

from typing import Final

from mcpbus.serving.counters import ServerCounters
from mcpbus.serving.http2.errors import ErrorCode
from mcpbus.serving.http2.frames import (
    ENABLE_CONNECT_PROTOCOL,
    ENABLE_PUSH,
    MAX_CONCURRENT_STREAMS,
    MAX_HEADER_LIST_SIZE,
    Http2FrameWriter,
    encode_settings,
)
from mcpbus.serving.http2.streams import Http2Streams, TokenBucket

MOST_STREAMS: Final = 100
"""Requests at once, of one connection."""
_WORTH: Final = 3
"""To the client's bucket, for each frame that it has room for: that it may answer with a ping and two windows."""


class Http2Sender:
    """The half of one connection that is ours.

    Args:
        longest: How many bytes the head of a request may be.
        bucket: What the client may send that asks for nothing.
        counters: Where refused requests are counted.

    Attributes:
        leaving: Whether its end was announced: no more requests are begun.
        closed: Whether it has ended: nothing more can be said.
    """

    __slots__ = ("_bucket", "_counters", "_last_served", "_streams", "_writer", "closed", "leaving")

    def __init__(self, longest: int, bucket: TokenBucket, counters: ServerCounters) -> None:
        self._bucket = bucket
        self._counters = counters
        self._streams = Http2Streams()
        self._last_served: int | None = None  # once that was said: it may not grow again (section 6.8)
        self.leaving = False
        self.closed = False
        settings = {
            ENABLE_PUSH: 0,
            MAX_CONCURRENT_STREAMS: MOST_STREAMS,
            MAX_HEADER_LIST_SIZE: longest,
            ENABLE_CONNECT_PROTOCOL: 1,
        }
        self._writer = Http2FrameWriter(encode_settings(settings))

    def is_open(self, stream_id: int) -> bool:
        """Whether something can still be said in a stream."""
        stream = self._streams.live.get(stream_id)
        return stream is not None and not stream.said and not self.closed

    def hears(self, stream_id: int) -> bool:
        """Whether the client may still send something in a stream."""
        stream = self._streams.live.get(stream_id)
        return stream is not None and not stream.heard and not self.closed

    def has_sent(self, stream_id: int) -> bool:
        """Whether something of a stream's body has come."""
        stream = self._streams.live.get(stream_id)
        return stream is not None and stream.received > 0

    def room(self, stream_id: int) -> int:
        """How many bytes the next frame of a stream may have."""
        return self._streams.room(self._streams.live[stream_id])

    def say_head(self, stream_id: int, block: bytes, *, last: bool) -> None:
        """Say the head of an answer, an early one or the one that counts."""
        streams = self._streams
        self._writer.say_head(stream_id, block, last=last)
        streams.say(stream_id, streams.live[stream_id], 0, last=last)

    def say(self, stream_id: int, data: bytes | memoryview, *, last: bool) -> None:
        """Say a part of the body, for which there is room."""
        streams = self._streams
        self._writer.say_data(stream_id, data, last=last)
        streams.say(stream_id, streams.live[stream_id], len(data), last=last)

    def say_answer(self, stream_id: int, block: bytes, body: bytes) -> bool:
        """Say a whole answer, if there is room for all of it in a frame; returns whether it is said."""
        streams, size = self._streams, len(body)
        stream = streams.live.get(stream_id)
        if stream is None or stream.said or self.closed or size > streams.room(stream):
            return False
        self._writer.say_head(stream_id, block, last=not size)
        if size:
            self._writer.say_data(stream_id, body, last=True)
        streams.say(stream_id, stream, size, last=True)
        self._bucket.earn(_WORTH)
        return True

    def say_piece(self, stream_id: int, data: bytes) -> bool:
        """Say a piece of an answer that has begun, if there is room for all of it in a frame; returns whether it is said."""
        streams = self._streams
        stream = streams.live.get(stream_id)
        if stream is None or stream.said or self.closed or len(data) > streams.room(stream):
            return False
        self._writer.say_data(stream_id, data, last=False)
        streams.say(stream_id, stream, len(data), last=False)
        self._bucket.earn(_WORTH)
        return True

    def earn(self) -> None:
        """Note that the client had room for something that it has asked for."""
        self._bucket.earn(_WORTH)

    def open_window(self, stream_id: int, size: int) -> None:
        """Let the client send as much more of a body."""
        if size and self.hears(stream_id):
            self._streams.live[stream_id].unread += size
            self._writer.open_window(stream_id, size)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """Reset a stream, unless both sides have ended it."""
        if stream_id in self._streams.live and not self.closed:
            self._say_reset(stream_id, code)

    def refuse(self, stream_id: int) -> None:
        """Refuse a request that nothing was done for; its client may repeat it elsewhere or later.

        Raises:
            Abuse: It was told so too often.
        """
        self._counters.refused += 1
        self._bucket.spend(1)
        self.reset(stream_id, ErrorCode.REFUSED_STREAM)

    def announce_end(self) -> None:
        """Tell the client that requests are not begun any more; those that are under way go on."""
        if not self.leaving and not self.closed:
            self.leaving = True
            self._last_served = self._streams.highest
            self._writer.say_goodbye(self._last_served, ErrorCode.NO_ERROR)

    def end(self, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """End the connection, and say so, unless that was done."""
        if not self.closed:
            self.closed = True
            served = self._streams.highest if self._last_served is None else self._last_served
            self._writer.say_goodbye(served, code)

    @property
    def says(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._writer.waiting)

    def data_to_send(self) -> bytes:
        """Take what is to be sent."""
        return self._writer.take()

    def _say_reset(self, stream_id: int, code: ErrorCode) -> bool:
        self._writer.reset(stream_id, code)
        return self._streams.reset(stream_id, by_us=True)
