"""The server's side of one HTTP/2 connection without I/O: bytes in, events out; see `saying` for what it says (RFC 9113).

Where the standard leaves a choice:

- a malformed request resets its own stream (section 8.1.1), and so does what comes on a stream that its client has ended or reset;
- what comes on a stream that we have reset is left unread, but for what both sides count: fields, and the connection's window;
- a stream beyond the limit that was announced is refused, which makes it safe to repeat (sections 5.1.2, 8.7);
- frames that ask for nothing, and fields beyond those of most requests, spend the client's `TokenBucket`, and end the connection with
  ENHANCE_YOUR_CALM when that is used up;
- the end of the connection can be announced before it comes (section 6.8);
- priorities (section 5.3.2), and frames and settings that nobody has defined, mean nothing.
"""

from typing import Final

from mcpbus.serving.counters import ServerCounters
from mcpbus.serving.http2.errors import AbuseFault, ConnectionFault, ErrorCode
from mcpbus.serving.http2.events import (
    BodyReceived,
    ClientLeaves,
    Event,
    RequestBegun,
    StreamGone,
    WindowOpened,
)
from mcpbus.serving.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LARGEST_WINDOW,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Http2FrameReader,
    read_first_window,
    without_padding,
)
from mcpbus.serving.http2.head import Malformed, check_trailers
from mcpbus.serving.http2.head_cache import HeadReader, Http2HeadCache
from mcpbus.serving.http2.sender import MOST_STREAMS, Http2Sender
from mcpbus.serving.http2.streams import TokenBucket, code_of_window

RESET_COST: Final = 3
"""From the client's bucket, for each stream that is reset, whoever does it."""
_WINDOW_STEP: Final = 16 * 1024
"""How much is taken before the connection's window is opened again by as much."""
_MOST_FRAGMENTS: Final = 16
_SMALL_BYTES: Final = 16
_SMALL_COST: Final = 0.25
_SIZES: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_GOAWAY_BYTES: Final = 8
_OF_A_STREAM: Final = {PRIORITY: True, RST_STREAM: True, SETTINGS: False, PING: False, GOAWAY: False}


class Protocol(Http2Sender):
    """The server's side of one connection.

    Args:
        heads: Reads heads.
        bucket: What the client may send that asks for nothing.
        counters: Where refused and malformed requests are counted.

    Attributes:
        price: What the client was charged for fields since this was last set.
    """

    __slots__ = (
        "_awaited",
        "_block",
        "_block_of",
        "_fragments",
        "_frames",
        "_heads",
        "_longest_block",
        "_unopened",
        "price",
    )

    def __init__(self, heads: Http2HeadCache, bucket: TokenBucket, counters: ServerCounters) -> None:
        super().__init__(heads.longest, bucket, counters)
        self._heads = HeadReader(heads)
        self._frames = Http2FrameReader()
        self._awaited: int | None = SETTINGS  # the only frame that may come now
        self._block = b""  # of fields, which has begun to come
        self._block_of = (0, 0)  # the stream, and the flags of the frame with which it began
        self._fragments = 0
        self._longest_block = 2 * heads.longest
        self._unopened = 0
        self.price = 0.0

    # -- what comes ------------------------------------------------------------------------------

    @property
    def in_head(self) -> bool:
        """Whether the rest of something is missing that is not a part of a body."""
        frames = self._frames
        return self._awaited == CONTINUATION or (frames.waiting > 0 and frames.body_of is None)

    @property
    def has_more(self) -> bool:
        """Whether something has come that no event was made of yet."""
        return self._frames.waiting > 0

    @property
    def body_of(self) -> int | None:
        """The stream of whose body something has come that is not enough to be told yet."""
        return self._frames.body_of

    def receive(self, data: bytes) -> None:
        """Take what the client has sent."""
        self._frames.add(data)

    def next_event(self) -> Event | None:
        """Tell what the client has done next; None if more has to come.

        Raises:
            ConnectionFault: It has broken the connection, which has been ended; what is still to be said tells it why.
        """
        try:
            while not self.closed:
                frame = self._frames.next()
                if frame is None:
                    return None
                kind, flags, stream_id, payload = frame
                if self._awaited is not None:
                    _check_order(kind, self._awaited)
                if kind == DATA:
                    event = self._take_data(flags, stream_id, payload)
                elif kind == HEADERS:
                    event = self._take_headers(flags, stream_id, payload)
                else:
                    self._bucket.spend(RESET_COST if kind == RST_STREAM else 1)
                    event = self._take_rare(kind, flags, stream_id, payload)
                if event is not None:
                    return event
        except ConnectionFault as fault:
            self.end(fault.code)
            raise
        return None

    def _take_data(self, flags: int, stream_id: int, payload: bytes) -> Event | None:
        size = len(payload)
        self._count(size)
        data = without_padding(flags & PADDED, payload) if flags & PADDED else payload
        ended = bool(flags & END_STREAM)
        if not ended and len(data) < _SMALL_BYTES:
            self._bucket.spend(_SMALL_COST if data else 1)
        stream = self._streams.live.get(stream_id)
        if stream is None or stream.heard:
            return self._take_late(stream_id)
        if size > stream.unread:
            raise ConnectionFault("more of a body than its window lets in", ErrorCode.FLOW_CONTROL_ERROR)
        stream.unread -= size
        stream.received += len(data)
        expected = stream.expected
        if expected is not None and (stream.received > expected or (ended and stream.received < expected)):
            return self._blame(stream_id)
        if size > len(data):
            self.open_window(stream_id, size - len(data))
        if ended:
            self._streams.hear_end(stream_id, stream)
        return BodyReceived(stream_id, data, ended)

    def _count(self, size: int) -> None:
        """Open the connection's window again by what was taken: what is read of a stream fills that stream's window alone."""
        self._unopened += size
        if self._unopened >= _WINDOW_STEP:
            self._writer.open_window(0, self._unopened)
            self._unopened = 0

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> Event | None:
        if flags & (PADDED | WITH_PRIORITY):
            payload = without_padding(flags, payload)
        if flags & END_HEADERS:
            return self._take_block(flags, stream_id, payload)
        self._awaited = CONTINUATION
        self._block, self._block_of, self._fragments = payload, (stream_id, flags), 1
        return None

    def _take_continuation(self, flags: int, stream_id: int, payload: bytes) -> Event | None:
        begun, first_flags = self._block_of
        if self._awaited is None or stream_id != begun:
            raise ConnectionFault("a continuation of nothing, or of something else")
        self._fragments += 1
        self._block += payload
        if self._fragments > _MOST_FRAGMENTS or len(self._block) > self._longest_block:
            raise AbuseFault("it sent a header block that does not end")
        if not flags & END_HEADERS:
            return None
        block, self._block, self._awaited = self._block, b"", None
        return self._take_block(first_flags, stream_id, block)

    def _take_block(self, flags: int, stream_id: int, block: bytes) -> Event | None:
        """Take the fields of a head, or of trailers."""
        ended = bool(flags & END_STREAM)
        if stream_id > self._streams.highest:
            return self._begin(stream_id, block, ended)
        stream = self._streams.live.get(stream_id)
        if stream is None and not self._streams.was_reset(stream_id):
            raise ConnectionFault("a stream is opened below another one")
        self._bucket.spend(1)
        fields = self._heads.decode(block)
        self._charge()
        if stream is None or stream.heard:
            return self._take_late(stream_id)
        try:
            check_trailers(fields)
        except Malformed:
            return self._blame(stream_id)
        if not ended or (stream.expected is not None and stream.received < stream.expected):
            return self._blame(stream_id)
        self._streams.hear_end(stream_id, stream)
        return BodyReceived(stream_id, b"", ended=True)

    def _begin(self, stream_id: int, block: bytes, ended: bool) -> Event | None:
        stream = self._streams.open(stream_id)
        try:
            head = self._heads.read(block)
        except Malformed:
            self._charge()
            return self._blame(stream_id)
        self._charge()
        if self.leaving or len(self._streams.live) > MOST_STREAMS:
            self.refuse(stream_id)
            return None
        stream.expected = head.length
        body = b"" if ended else self._frames.next_body(stream_id)
        if body is None:
            return RequestBegun(stream_id, head, ended=False)
        stream.heard = True
        stream.received = size = len(body)
        self._count(size)
        if head.length is not None and head.length != size:
            return self._blame(stream_id)
        return RequestBegun(stream_id, head, True, body)

    def _charge(self) -> None:
        """Charge the client for the fields of the last block.

        Raises:
            AbuseFault: There were too many of them.
        """
        cost = self._heads.cost
        if cost:
            self.price += cost
            self._bucket.spend(cost)

    def _take_late(self, stream_id: int) -> Event | None:
        """Take what comes on a stream that its client has ended, or that was reset."""
        self._streams.check_opened(stream_id)
        if self._streams.was_reset_by_us(stream_id):
            return None  # the client did not know that yet
        return self._fail(stream_id, ErrorCode.STREAM_CLOSED)

    def _take_rare(self, kind: int, flags: int, stream_id: int, payload: bytes) -> Event | None:
        """Take what is neither the beginning of a head nor a part of a body."""
        if kind == CONTINUATION:
            return self._take_continuation(flags, stream_id, payload)
        of_a_stream = bool(stream_id)
        if kind == PUSH_PROMISE or _OF_A_STREAM.get(kind, of_a_stream) != of_a_stream:
            raise ConnectionFault("a frame that no client may send, or not here")
        size = len(payload)
        if size != _SIZES.get(kind, size) or (kind == GOAWAY and size < _GOAWAY_BYTES):
            raise ConnectionFault("a frame that is not as long as it must be", ErrorCode.FRAME_SIZE_ERROR)
        if kind == WINDOW_UPDATE:
            return self._take_window(stream_id, int.from_bytes(payload, "big") & LARGEST_WINDOW)
        if kind == RST_STREAM:
            return self._take_reset(stream_id)
        if kind == SETTINGS:
            return self._take_settings(flags, payload)
        if kind == PING and not flags & ACK:
            self._writer.acknowledge_ping(payload)
        return ClientLeaves() if kind == GOAWAY else None

    def _take_window(self, stream_id: int, size: int) -> Event | None:
        if not stream_id:
            self._streams.widen(size)
            return WindowOpened(0)
        self._streams.check_opened(stream_id)
        stream = self._streams.live.get(stream_id)
        if stream is None:
            return None
        stream.window += size
        if not size or stream.window > LARGEST_WINDOW:
            return self._fail(stream_id, code_of_window(size))
        return WindowOpened(stream_id)

    def _take_reset(self, stream_id: int) -> Event | None:
        self._streams.check_opened(stream_id)
        return StreamGone(stream_id) if self._streams.reset(stream_id, by_us=False) else None

    def _take_settings(self, flags: int, payload: bytes) -> Event | None:
        self._awaited = None
        if flags & ACK:
            if payload:
                raise ConnectionFault("an acknowledgement with settings", ErrorCode.FRAME_SIZE_ERROR)
            return None
        window = read_first_window(payload)
        self._writer.acknowledge_settings()
        if window is None or not self._streams.change_first_window(window):
            return None
        return WindowOpened(0)

    def _blame(self, stream_id: int) -> Event | None:
        """Reset a malformed request.

        Raises:
            AbuseFault: There were too many of them.
        """
        self._counters.malformed += 1
        return self._fail(stream_id, ErrorCode.PROTOCOL_ERROR)

    def _fail(self, stream_id: int, code: ErrorCode) -> Event | None:
        """Reset a stream for its client's fault.

        Raises:
            AbuseFault: There were too many of them.
        """
        self._bucket.spend(RESET_COST)
        return StreamGone(stream_id) if self._say_reset(stream_id, code) else None


def _check_order(kind: int, awaited: int) -> None:
    if kind != awaited:
        raise ConnectionFault("a frame before the first settings, or within a header block")
