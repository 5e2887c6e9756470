"""The server's side of one HTTP/2 connection without I/O: bytes in, events out; answers in, bytes out (RFC 9113).

h2 keeps the states of streams and the windows, and decides what is a fault of the connection. What differs from it:

- a malformed request resets its own stream (section 8.1.1): fields that may not be, a body that is not as long as was said,
  trailers that do not end the request;
- a stream beyond the limit that was announced is refused, which makes it safe to repeat (sections 5.1.2, 8.7);
- what asks for nothing spends the client's `TokenBucket`, and ends the connection with ENHANCE_YOUR_CALM when that is used up;
- the end of the connection can be announced before it comes (section 6.8).
"""

from typing import Final

import h2.events
import msgspec
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from mcpbus.serving.counters import Counters
from mcpbus.serving.http2.events import (
    BodyReceived,
    ClientLeaves,
    Event,
    RequestBegun,
    StreamGone,
    WindowOpened,
)
from mcpbus.serving.http2.fields import FieldDecoder, FieldEncoder, encode_fields
from mcpbus.serving.http2.frames import (
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RESET_COST,
    RST_STREAM,
    Frame,
    Frames,
    ending,
)
from mcpbus.serving.http2.head import Heads, Malformed, check_trailers
from mcpbus.serving.http2.incoming import Incoming
from mcpbus.serving.http2.token_bucket import TokenBucket

MOST_STREAMS: Final = 100
"""Requests at once, of one connection."""
_UNLIMITED: Final = 2**31 - 1
_WINDOW_STEP: Final = 16 * 1024
"""How much is taken before the connection's window is opened again by as much."""
LONGEST_FRAME: Final = 16 * 1024
"""Of a response; longer ones, which a client may allow, would keep others waiting."""
_WORTH: Final = 3
"""From the client's bucket, for each frame that it takes: that it may answer with a ping and two windows."""
_CONFIGURATION: Final = H2Configuration(
    client_side=False,
    header_encoding=None,
    # What fields may be is judged in `head`, and in `fields`.
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


class _Connection(H2Connection):
    MAX_CLOSED_STREAMS = 1024  # 65,536 in h2, for each connection


class _Stream(msgspec.Struct):
    """What of a stream h2 does not tell.

    Attributes:
        expected: How long its body is to be, if that was said.
        received: How much of it has come.
        heard: Whether the client has ended its half.
        said: Whether we have ended ours.
    """

    expected: int | None
    received: int = 0
    heard: bool = False
    said: bool = False


class Protocol:
    """The server's side of one connection.

    Args:
        heads: Reads heads.
        longest_head: How many bytes a head may be.
        bucket: What the client may send that asks for nothing.
        counters: Where refused and malformed requests are counted.

    Attributes:
        leaving: Whether its end was announced: no more requests are begun.
        closed: Whether it has ended: nothing more can be said.
    """

    __slots__ = (
        "_bucket",
        "_counters",
        "_decoder",
        "_frames",
        "_h2",
        "_heads",
        "_incoming",
        "_said",
        "_streams",
        "_unopened",
        "closed",
        "leaving",
    )

    def __init__(self, heads: Heads, longest_head: int, bucket: TokenBucket, counters: Counters) -> None:
        self._heads = heads
        self._bucket = bucket
        self._counters = counters
        self._frames = Frames(bucket, 2 * longest_head)
        self._decoder = FieldDecoder(
            2 * longest_head
        )  # a little too much is answered, and far too much is not read
        self._streams: dict[int, _Stream] = {}
        self._unopened = 0
        self._said = b""
        self.leaving = False
        self.closed = False
        connection = self._h2 = _Connection(_CONFIGURATION)
        settings = {
            SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
            SettingCodes.MAX_HEADER_LIST_SIZE: longest_head,
            SettingCodes.ENABLE_PUSH: 0,
        }
        connection.local_settings = Settings(client=False, initial_values=settings)
        connection.decoder = self._decoder
        connection.encoder = FieldEncoder()
        connection.initiate_connection()
        connection.receive_data(PREFACE)  # it is read by `Frames`
        connection.incoming_buffer = self._incoming = Incoming()
        # The limit is ours to enforce: to h2 it would be a fault of the connection.
        settings[SettingCodes.MAX_CONCURRENT_STREAMS] = _UNLIMITED
        connection.local_settings = Settings(client=False, initial_values=settings)

    # -- what comes ------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many of the client's bytes are there that were not read yet."""
        return self._frames.waiting

    @property
    def in_head(self) -> bool:
        """Whether the rest of something is missing that is not a part of a body."""
        return self._frames.in_head

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
            ProtocolError: It has broken the connection, which has been ended; what is still to be said tells it why.
        """
        try:
            while not self.closed:
                frame = self._frames.next()
                if frame is None:
                    return None
                event = self._take(frame)
                if event is not None:
                    return event
        except ProtocolError as fault:
            self.end(fault.error_code)
            raise
        return None

    def _take(self, frame: Frame) -> Event | None:
        if frame.kind == GOAWAY:  # h2 would say nothing more
            return ClientLeaves()
        if frame.kind == RST_STREAM and frame.stream_id > self._h2.highest_inbound_stream_id:
            raise ProtocolError("a stream was reset that is not there")
        stream = self._streams.get(frame.stream_id)
        goes_on = stream is not None and frame.kind == HEADERS and not frame.flags & END_STREAM
        try:
            # Trailers that are not the end are read as if they were, so that this is not the connection's fault.
            events = self._h2.receive_data(self._incoming.give(ending(frame) if goes_on else frame))
        except ProtocolError:
            self.closed = True  # h2 has said so
            raise
        if goes_on:
            return self._blame(frame.stream_id)
        return self._tell(frame, events[0], stream) if events else None

    def _tell(self, frame: Frame, event: h2.events.Event, stream: _Stream | None) -> Event | None:
        told: Event | None = None
        match event:
            case h2.events.DataReceived():
                told = self._take_body(frame, event, stream)
            case h2.events.RequestReceived():
                told = self._begin(event)
            case h2.events.TrailersReceived():
                told = self._take_trailers(event, stream)
            case h2.events.StreamReset(stream_id=stream_id, remote_reset=by_client):
                if not by_client:
                    self._bucket.spend(RESET_COST)
                told = StreamGone(stream_id) if self._streams.pop(stream_id, None) else None
            case h2.events.WindowUpdated(stream_id=stream_id):
                told = WindowOpened(stream_id)
            case h2.events.RemoteSettingsChanged(changed_settings=changed):
                told = WindowOpened(0) if SettingCodes.INITIAL_WINDOW_SIZE in changed else None
        return told

    def _begin(self, event: h2.events.RequestReceived) -> Event | None:
        stream_id, ended = event.stream_id, event.stream_ended is not None
        assert stream_id is not None  # noqa: S101 - a request has one
        self._streams[stream_id] = stream = _Stream(None, heard=ended)
        if self.leaving or len(self._streams) > MOST_STREAMS:
            self.refuse(stream_id)
            return None
        try:
            head = self._heads.read(self._decoder.fields)
        except Malformed:
            return self._blame(stream_id, begun=False)
        stream.expected = head.length
        if ended and head.length:
            return self._blame(stream_id, begun=False)
        return RequestBegun(stream_id, head, ended)

    def _take_body(self, frame: Frame, event: h2.events.DataReceived, stream: _Stream | None) -> Event | None:
        self._opened(event.flow_controlled_length or 0)
        if stream is None:
            return None
        data, ended = event.data or b"", bool(frame.flags & END_STREAM)
        stream.received += len(data)
        stream.heard = ended
        if stream.expected is not None and (
            stream.received > stream.expected or (ended and stream.received < stream.expected)
        ):
            return self._blame(frame.stream_id)
        padding = (event.flow_controlled_length or 0) - len(data)
        if padding:
            self.open_window(frame.stream_id, padding)
        return BodyReceived(frame.stream_id, data, ended)

    def _take_trailers(self, event: h2.events.TrailersReceived, stream: _Stream | None) -> Event | None:
        stream_id = event.stream_id
        if stream is None or stream_id is None:
            return None
        stream.heard = True
        try:
            check_trailers(self._decoder.fields)
        except Malformed:
            return self._blame(stream_id)
        if stream.expected is not None and stream.received < stream.expected:
            return self._blame(stream_id)
        return BodyReceived(stream_id, b"", ended=True)

    def _opened(self, size: int) -> None:
        """Open the connection's window again: what is read of a stream fills that stream's window alone."""
        self._unopened += size
        if self._unopened >= _WINDOW_STEP:
            self._h2.increment_flow_control_window(self._unopened)
            self._unopened = 0

    # -- what is said ----------------------------------------------------------------------------

    def is_open(self, stream_id: int) -> bool:
        """Whether something can still be said in a stream."""
        stream = self._streams.get(stream_id)
        return stream is not None and not stream.said and not self.closed

    def hears(self, stream_id: int) -> bool:
        """Whether the client may still send something in a stream."""
        stream = self._streams.get(stream_id)
        return stream is not None and not stream.heard and not self.closed

    def room(self, stream_id: int) -> int:
        """How many bytes the next frame of a stream may have."""
        connection = self._h2
        return max(
            0,
            min(
                connection.local_flow_control_window(stream_id),
                connection.max_outbound_frame_size,
                LONGEST_FRAME,
            ),
        )

    def say_head(self, stream_id: int, fields: list[tuple[bytes, bytes]], *, last: bool) -> None:
        """Say the head of an answer, an early one or the one that counts.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """
        self._h2.send_headers(stream_id, [fields[0], (b"", encode_fields(tuple(fields)))], end_stream=last)
        if last:
            self._end(stream_id)

    def say(self, stream_id: int, data: bytes | memoryview, *, last: bool) -> None:
        """Say a part of the body, for which there is room."""
        self._h2.send_data(stream_id, data, end_stream=last)
        if last:
            self._end(stream_id)

    def earn(self) -> None:
        """Note that the client has taken something that it had asked for."""
        self._bucket.earn(_WORTH)

    def open_window(self, stream_id: int, size: int) -> None:
        """Let the client send as much more of a body."""
        if size and self.hears(stream_id):
            self._h2.increment_flow_control_window(size, stream_id)

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Reset a stream, unless both sides have ended it."""
        if self._streams.pop(stream_id, None) is not None and not self.closed:
            self._h2.reset_stream(stream_id, error_code=code)

    def refuse(self, stream_id: int) -> None:
        """Refuse a request that nothing was done for; its client may repeat it elsewhere or later.

        Raises:
            DenialOfServiceError: It was told so too often.
        """
        self._counters.refused += 1
        self._bucket.spend(1)
        self.reset(stream_id, ErrorCodes.REFUSED_STREAM)

    def announce_end(self) -> None:
        """Tell the client that requests are not begun any more; those that are under way go on."""
        if not self.leaving and not self.closed:
            self.leaving = True
            # h2 would end the connection with it.
            frame = GoAwayFrame(0, last_stream_id=self._h2.highest_inbound_stream_id)
            self._said = self.data_to_send() + frame.serialize()

    def end(self, code: ErrorCodes | int = ErrorCodes.NO_ERROR) -> None:
        """End the connection, and say so, unless that was done."""
        if not self.closed:
            self.closed = True
            self._h2.close_connection(code)

    def data_to_send(self) -> bytes:
        """Take what is to be sent."""
        data = self._h2.data_to_send()
        if self._said:
            data, self._said = self._said + data, b""
        return data

    def _end(self, stream_id: int) -> None:
        stream = self._streams[stream_id]
        stream.said = True
        if stream.heard:
            del self._streams[stream_id]

    def _blame(self, stream_id: int, *, begun: bool = True) -> Event | None:
        """Reset a malformed request.

        Raises:
            DenialOfServiceError: There were too many of them.
        """
        self._counters.malformed += 1
        self._bucket.spend(RESET_COST)
        self.reset(stream_id, ErrorCodes.PROTOCOL_ERROR)
        return StreamGone(stream_id) if begun else None
