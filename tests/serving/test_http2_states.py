"""What a client can do at the wrong time, or in the wrong way, and what comes of it (RFC 9113): without I/O.

Each case is what is said, after the preface, on a connection with stream 1 idle; and the code with which a stream is reset, or the
connection ended, or neither.
"""

from contextlib import suppress

import hpack
import pytest
from h2.errors import ErrorCodes
from h2.frame_buffer import FrameBuffer
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from mcpbus.serving import Counters
from mcpbus.serving.http2.errors import ConnectionFault
from mcpbus.serving.http2.field_encoder import encode_head
from mcpbus.serving.http2.frames import PREFACE
from mcpbus.serving.http2.heads import Heads
from mcpbus.serving.http2.protocol import Protocol
from mcpbus.serving.http2.token_bucket import TokenBucket

HEAD = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "test")]
BLOCK = hpack.Encoder().encode([(name, value, True) for name, value in HEAD])
OPEN = HeadersFrame(1, data=BLOCK, flags=["END_HEADERS"])
CLOSED = HeadersFrame(1, data=BLOCK, flags=["END_HEADERS", "END_STREAM"])
END = DataFrame(1, flags=["END_STREAM"])
RESET = RstStreamFrame(1, error_code=8)


def raw(kind, flags, stream_id, payload=b"", size=None):
    length = len(payload) if size is None else size
    return length.to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


def headers(stream_id, *fields, flags=("END_HEADERS", "END_STREAM"), head=HEAD):
    block = hpack.Encoder().encode([(name, value, True) for name, value in [*head, *fields]])
    return HeadersFrame(stream_id, data=block, flags=list(flags))


class Server:
    """The server's side, and what it has said."""

    def __init__(self):
        self.protocol = Protocol(Heads(32 * 1024), TokenBucket(lambda: 0.0), Counters())
        self.frames = []
        self.events = []
        self._buffer = FrameBuffer()
        self._buffer.max_frame_size = 2**20
        self.hear(PREFACE, SettingsFrame(0))
        self.frames.clear()

    def hear(self, *said):
        data = b"".join(each if isinstance(each, bytes) else each.serialize() for each in said)
        self.protocol.receive(data)
        with suppress(ConnectionFault):
            while (event := self.protocol.next_event()) is not None:
                self.events.append(event)
        self._buffer.add_data(self.protocol.data_to_send())
        self.frames += list(self._buffer)

    def answer(self, stream_id, *, last=True):
        self.protocol.say_head(stream_id, encode_head(200, ()), last=last)

    def codes(self, kind):
        return [ErrorCodes(frame.error_code) for frame in self.frames if isinstance(frame, kind)]


NOTHING = {
    "a ping": [PingFrame(0, opaque_data=b"abcdefgh")],
    "an acknowledgement of a ping that was not sent": [PingFrame(0, flags=["ACK"], opaque_data=b"abcdefgh")],
    "a frame of no known type": [raw(0xF0, 0xFF, 7, b"x")],
    "a frame with flags that mean nothing": [raw(6, 0xFE, 0, b"abcdefgh")],
    "a frame whose reserved bit is set": [raw(6, 0, 2**31, b"abcdefgh")],
    "a setting of no known name": [raw(4, 0, 0, b"\x00\xff\0\0\0\1")],
    "a priority of a stream that is idle": [PriorityFrame(7, depends_on=0)],
    "a priority of a stream that depends on itself": [PriorityFrame(7, depends_on=7)],
    "a head with a priority": [HeadersFrame(1, data=BLOCK, flags=["END_HEADERS", "PRIORITY"], depends_on=0)],
    "a head that depends on itself": [
        HeadersFrame(1, data=BLOCK, flags=["END_HEADERS", "PRIORITY"], depends_on=1)
    ],
    "a head with a priority and padding": [
        HeadersFrame(1, data=BLOCK, flags=["END_HEADERS", "PRIORITY", "PADDED"], pad_length=9)
    ],
    "a head in two parts": [
        HeadersFrame(1, data=BLOCK[:3]),
        ContinuationFrame(1, data=BLOCK[3:], flags=["END_HEADERS"]),
    ],
    "a body with padding": [OPEN, DataFrame(1, data=b"x", flags=["PADDED", "END_STREAM"], pad_length=9)],
    "trailers": [OPEN, headers(1, ("x-checksum", "1"), head=[])],
    "a reset": [OPEN, RESET],
    "a reset of what was reset": [OPEN, RESET, RESET],
    "a window of what was reset": [OPEN, RESET, WindowUpdateFrame(1, window_increment=1)],
    "a window of a stream that the client has ended": [CLOSED, WindowUpdateFrame(1, window_increment=1)],
    "the largest window": [WindowUpdateFrame(0, window_increment=2**31 - 1 - 65_535)],
    "streams that leave some out": [CLOSED, headers(9), headers(11)],
    "a goodbye": [GoAwayFrame(0)],
    "a goodbye that says why": [GoAwayFrame(0, error_code=2, additional_data=b"why")],
}

OF_THE_STREAM = {
    "data after the end": ([CLOSED, DataFrame(1, data=b"x")], ErrorCodes.STREAM_CLOSED),
    "a head after the end": ([CLOSED, headers(1)], ErrorCodes.STREAM_CLOSED),
    "data after a reset": ([OPEN, RESET, DataFrame(1, data=b"x")], ErrorCodes.STREAM_CLOSED),
    "a head after a reset": ([OPEN, RESET, headers(1)], ErrorCodes.STREAM_CLOSED),
    "a window that is too large": (
        [OPEN, WindowUpdateFrame(1, window_increment=2**31 - 1)],
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
    "two heads": ([OPEN, headers(1, flags=["END_HEADERS"])], ErrorCodes.PROTOCOL_ERROR),
    "a status in a request": ([headers(1, (":status", "200"))], ErrorCodes.PROTOCOL_ERROR),
    "an early status in a request": ([headers(1, (":status", "100"))], ErrorCodes.PROTOCOL_ERROR),
    "no method": ([headers(1, head=HEAD[1:])], ErrorCodes.PROTOCOL_ERROR),
    "no scheme": ([headers(1, head=[HEAD[0], *HEAD[2:]])], ErrorCodes.PROTOCOL_ERROR),
    "an empty path": ([headers(1, head=[*HEAD[:2], (":path", ""), HEAD[3]])], ErrorCodes.PROTOCOL_ERROR),
    "no fields at all": ([headers(1, head=[])], ErrorCodes.PROTOCOL_ERROR),
    "a pseudo-header field after others": (
        [headers(1, ("x-a", "b"), (":path", "/"), head=[*HEAD[:2], HEAD[3]])],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "a transfer coding": ([headers(1, ("transfer-encoding", "chunked"))], ErrorCodes.PROTOCOL_ERROR),
    "an upgrade": ([headers(1, ("upgrade", "h2c"))], ErrorCodes.PROTOCOL_ERROR),
    "a colon in a name": ([headers(1, ("x:a", "b"))], ErrorCodes.PROTOCOL_ERROR),
    "capitals in trailers": ([OPEN, headers(1, ("X-A", "b"), head=[])], ErrorCodes.PROTOCOL_ERROR),
}

OF_THE_CONNECTION = {
    "data for a stream that is idle": ([DataFrame(1, data=b"x")], ErrorCodes.PROTOCOL_ERROR),
    "data for no stream": ([raw(0, 0, 0, b"x")], ErrorCodes.PROTOCOL_ERROR),
    "a head for no stream": ([raw(1, 5, 0, BLOCK)], ErrorCodes.PROTOCOL_ERROR),
    "a head for a stream of the server's": ([headers(2)], ErrorCodes.PROTOCOL_ERROR),
    "a stream below one that was opened": ([headers(5), headers(3)], ErrorCodes.PROTOCOL_ERROR),
    "a reset of a stream that is idle": ([RESET], ErrorCodes.PROTOCOL_ERROR),
    "a reset of no stream": ([raw(3, 0, 0, bytes(4))], ErrorCodes.PROTOCOL_ERROR),
    "a window of a stream that is idle": (
        [WindowUpdateFrame(1, window_increment=1)],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "a window that opens by nothing": ([raw(8, 0, 0, bytes(4))], ErrorCodes.PROTOCOL_ERROR),
    "a window of the connection that is too large": (
        [WindowUpdateFrame(0, window_increment=2**31 - 1)],
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
    "a window that is not whole": ([raw(8, 0, 0, bytes(3))], ErrorCodes.FRAME_SIZE_ERROR),
    "a ping for a stream": ([raw(6, 0, 1, bytes(8))], ErrorCodes.PROTOCOL_ERROR),
    "a ping that is not whole": ([raw(6, 0, 0, bytes(7))], ErrorCodes.FRAME_SIZE_ERROR),
    "settings for a stream": ([raw(4, 0, 1)], ErrorCodes.PROTOCOL_ERROR),
    "settings that are not whole": ([raw(4, 0, 0, bytes(5))], ErrorCodes.FRAME_SIZE_ERROR),
    "an acknowledgement with settings": ([raw(4, 1, 0, bytes(6))], ErrorCodes.FRAME_SIZE_ERROR),
    "a push that is neither on nor off": ([SettingsFrame(0, settings={2: 2})], ErrorCodes.PROTOCOL_ERROR),
    "a first window that is too large": (
        [SettingsFrame(0, settings={4: 2**31})],
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
    "a frame size that is too small": ([SettingsFrame(0, settings={5: 16_383})], ErrorCodes.PROTOCOL_ERROR),
    "a frame size that is too large": ([SettingsFrame(0, settings={5: 2**24})], ErrorCodes.PROTOCOL_ERROR),
    "a first window that overflows one": (
        [
            OPEN,
            WindowUpdateFrame(1, window_increment=2**31 - 1 - 65_535),
            SettingsFrame(0, settings={4: 65_536}),
        ],
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
    "a push": ([OPEN, PushPromiseFrame(1, promised_stream_id=2, data=b"")], ErrorCodes.PROTOCOL_ERROR),
    "a priority of no stream": ([raw(2, 0, 0, bytes(5))], ErrorCodes.PROTOCOL_ERROR),
    "a goodbye for a stream": ([raw(7, 0, 1, bytes(8))], ErrorCodes.PROTOCOL_ERROR),
    "a frame that is said to be too long": ([raw(0, 0, 1, size=16_385)], ErrorCodes.FRAME_SIZE_ERROR),
    "more padding than there is": ([OPEN, raw(0, 8, 1, b"\x05abc")], ErrorCodes.PROTOCOL_ERROR),
    "a head with more padding than there is": ([raw(1, 0x0D, 1, b"\xff" + BLOCK)], ErrorCodes.PROTOCOL_ERROR),
    "a head that is too short for its priority": ([raw(1, 0x25, 1, b"abc")], ErrorCodes.FRAME_SIZE_ERROR),
    "a continuation of nothing": ([ContinuationFrame(1, data=BLOCK)], ErrorCodes.PROTOCOL_ERROR),
    "a continuation of another stream": (
        [HeadersFrame(1, data=BLOCK[:3]), ContinuationFrame(3, data=BLOCK[3:])],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "a head in a head": ([HeadersFrame(1, data=BLOCK[:3]), headers(3)], ErrorCodes.PROTOCOL_ERROR),
    "an unknown frame in a head": (
        [HeadersFrame(1, data=BLOCK[:3]), raw(0xF0, 0, 0, b"x")],
        ErrorCodes.PROTOCOL_ERROR,
    ),
    "a table that is larger than was allowed": (
        [HeadersFrame(1, data=b"\x3f\xe2\x1f" + BLOCK, flags=["END_HEADERS"])],
        ErrorCodes.COMPRESSION_ERROR,
    ),
    "a field that no table has": (
        [HeadersFrame(1, data=b"\xff\x00", flags=["END_HEADERS"])],
        ErrorCodes.COMPRESSION_ERROR,
    ),
    "more data than the connection's window": (
        [OPEN, headers(3, flags=["END_HEADERS"]), *[DataFrame(n, data=bytes(16_384)) for n in (1, 1, 1, 1)]],
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize("said", NOTHING.values(), ids=NOTHING.keys())
def test_what_is_in_order_breaks_nothing(said):
    server = Server()
    server.hear(*said)
    assert server.codes(RstStreamFrame) == server.codes(GoAwayFrame) == []
    if not any(isinstance(frame, GoAwayFrame) for frame in said):
        server.hear(headers(21))
        assert server.events[-1].stream_id == 21


@pytest.mark.parametrize(("said", "code"), OF_THE_STREAM.values(), ids=OF_THE_STREAM.keys())
def test_what_is_wrong_with_one_request_resets_its_stream(said, code):
    server = Server()
    server.hear(*said)
    assert server.codes(RstStreamFrame)[0] == code
    assert not server.codes(GoAwayFrame)
    server.hear(headers(3))
    assert server.events[-1].stream_id == 3


@pytest.mark.parametrize(("said", "code"), OF_THE_CONNECTION.values(), ids=OF_THE_CONNECTION.keys())
def test_what_is_wrong_with_the_connection_ends_it(said, code):
    server = Server()
    server.hear(*said)
    assert server.codes(GoAwayFrame) == [code]
    assert server.protocol.closed
    events = list(server.events)
    server.hear(headers(21))
    assert server.events == events


def test_a_request_after_the_announcement_of_the_end_is_refused_and_one_before_goes_on():
    server = Server()
    server.hear(OPEN)
    server.protocol.announce_end()
    server.protocol.announce_end()
    server.hear(headers(3), END)
    (goodbye,) = [frame for frame in server.frames if isinstance(frame, GoAwayFrame)]
    assert (goodbye.last_stream_id, goodbye.error_code) == (1, ErrorCodes.NO_ERROR)
    assert server.codes(RstStreamFrame) == [ErrorCodes.REFUSED_STREAM]
    assert server.events[-1].ended
    server.answer(1)
    server.hear()
    assert [frame.stream_id for frame in server.frames if isinstance(frame, HeadersFrame)] == [1]


def test_what_comes_for_a_stream_that_was_answered_and_reset_opens_the_windows_again():
    """Its client may still be sending a body that nobody wants; the connection's window is everybody's."""
    server = Server()
    server.hear(OPEN)
    server.answer(1)
    server.protocol.reset(1, ErrorCodes.NO_ERROR)
    for _ in range(10):
        server.hear(*[DataFrame(1, data=bytes(16_000))] * 3)
    opened = [frame.window_increment for frame in server.frames if isinstance(frame, WindowUpdateFrame)]
    assert sum(opened) > 10 * 3 * 16_000 - 65_535
    assert not server.codes(GoAwayFrame)
