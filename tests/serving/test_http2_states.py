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

from mcpbus.serving import ServerCounters
from mcpbus.serving.http2.errors import ConnectionFault, ErrorCode
from mcpbus.serving.http2.frames import PREFACE
from mcpbus.serving.http2.head_cache import Http2HeadCache
from mcpbus.serving.http2.hpack_encoder import encode_head
from mcpbus.serving.http2.protocol import Protocol
from mcpbus.serving.http2.streams import Http2Streams, TokenBucket

HEAD = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "test")]
BLOCK = hpack.Encoder().encode([(name, value, True) for name, value in HEAD])
ADDING, REFERRING = map(hpack.Encoder().encode, [HEAD, HEAD])
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

    def __init__(self, *, greets=True):
        self.protocol = Protocol(Http2HeadCache(32 * 1024), TokenBucket(lambda: 0.0), ServerCounters())
        self.frames = []
        self.events = []
        self._buffer = FrameBuffer()
        self._buffer.max_frame_size = 2**20
        self.hear(PREFACE, *([SettingsFrame(0)] if greets else []))
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
    "a window that opens by nothing": ([OPEN, raw(8, 0, 1, bytes(4))], ErrorCodes.PROTOCOL_ERROR),
    "data of a stream that was passed over": (
        [headers(9), DataFrame(5, data=b"x")],
        ErrorCodes.STREAM_CLOSED,
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
    "a window of the connection that opens by nothing": ([raw(8, 0, 0, bytes(4))], ErrorCodes.PROTOCOL_ERROR),
    "a window of a stream of the server's": ([raw(8, 0, 2, bytes(3) + b"\1")], ErrorCodes.PROTOCOL_ERROR),
    "a reset that is not whole": ([OPEN, raw(3, 0, 1, bytes(3))], ErrorCodes.FRAME_SIZE_ERROR),
    "a priority that is not whole": ([raw(2, 0, 1, bytes(4))], ErrorCodes.FRAME_SIZE_ERROR),
    "a goodbye that is not whole": ([raw(7, 0, 0, bytes(7))], ErrorCodes.FRAME_SIZE_ERROR),
    "padding of which the length is missing": ([OPEN, raw(0, 8, 1)], ErrorCodes.FRAME_SIZE_ERROR),
    "a continuation of a head that has come whole": (
        [OPEN, ContinuationFrame(1, data=BLOCK, flags=["END_HEADERS"])],
        ErrorCodes.PROTOCOL_ERROR,
    ),
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
    "a table that is resized after a field": (
        [HeadersFrame(1, data=BLOCK + b"\x20\x01a\x01b", flags=["END_HEADERS"])],
        ErrorCodes.COMPRESSION_ERROR,
    ),
    "a field of a table that was emptied, in a head that came before": (
        [
            HeadersFrame(1, data=ADDING, flags=["END_HEADERS"]),
            *[HeadersFrame(n, data=REFERRING, flags=["END_HEADERS"]) for n in (3, 5)],
            HeadersFrame(7, data=b"\x20" + BLOCK, flags=["END_HEADERS"]),
            HeadersFrame(9, data=REFERRING, flags=["END_HEADERS"]),
        ],
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
    server.hear(headers(21))
    assert server.events[-1].stream_id == 21


@pytest.mark.parametrize(("said", "code"), OF_THE_CONNECTION.values(), ids=OF_THE_CONNECTION.keys())
def test_what_is_wrong_with_the_connection_ends_it(said, code):
    server = Server()
    server.hear(*said)
    assert server.codes(GoAwayFrame) == [code]
    assert server.protocol.closed
    events = list(server.events)
    server.hear(headers(21))
    assert server.events == events


def test_a_ping_is_answered_with_what_it_says():
    server = Server()
    server.hear(PingFrame(0, opaque_data=b"abcdefgh"))
    (pong,) = server.frames
    assert isinstance(pong, PingFrame)
    assert (pong.flags, pong.opaque_data) == ({"ACK"}, b"abcdefgh")


def test_all_answers_together_have_no_more_room_than_the_connection():
    server = Server()
    server.hear(OPEN, WindowUpdateFrame(1, window_increment=2**20), headers(3))
    server.answer(1, last=False)
    for _ in range(3):
        server.protocol.say(1, bytes(16_384), last=False)
    assert [server.protocol.room(stream_id) for stream_id in (1, 3)] == [65_535 - 3 * 16_384] * 2


@pytest.mark.parametrize("answered_first", [True, False])
def test_a_stream_is_gone_when_both_halves_have_ended(answered_first):
    streams = Http2Streams()
    stream = streams.open(1)
    if not answered_first:
        streams.hear_end(1, stream)
    streams.say(1, stream, 10, last=True)
    if answered_first:
        streams.hear_end(1, stream)
    assert streams.live == {}


def test_the_last_streams_that_were_reset_are_known():
    streams = Http2Streams()
    for number in range(257):
        streams.open(2 * number + 1)
        streams.reset(2 * number + 1, by_us=True)
    assert [streams.was_reset(stream_id) for stream_id in (1, 3, 513)] == [False, True, True]


def test_settings_come_first():
    server = Server(greets=False)
    server.hear(OPEN)
    assert server.codes(GoAwayFrame) == [ErrorCodes.PROTOCOL_ERROR]
    assert server.events == []


def test_what_was_under_way_when_we_reset_a_stream_breaks_nothing_and_keeps_the_table():
    """Its client did not know. The fields that come late are counted, and what they add is referred to later."""
    server = Server()
    server.hear(OPEN)
    server.protocol.reset(1, ErrorCode.CANCEL)
    added = hpack.Encoder()
    late = HeadersFrame(1, data=added.encode([("x-late", "1")]), flags=["END_HEADERS", "END_STREAM"])
    window, repeated = WindowUpdateFrame(1, window_increment=1), added.encode([*HEAD, ("x-late", "1")])
    server.hear(DataFrame(1, data=b"x"), window, late, RESET)
    server.hear(HeadersFrame(3, data=repeated, flags=["END_HEADERS", "END_STREAM"]))
    assert server.codes(RstStreamFrame) == [ErrorCodes.CANCEL]
    assert server.events[-1].head.judged.headers["x-late"] == "1"


@pytest.mark.parametrize("size", [16_383, 16_384, 16_385, 40_000])
def test_a_long_head_is_continued(size):
    server = Server()
    server.hear(CLOSED)
    block = encode_head(200, [(b"x-long", b"\xff" * size)])
    server.protocol.say_head(1, block, last=True)
    server.hear()
    first, *rest = [frame for frame in server.frames if frame.stream_id]
    assert isinstance(first, HeadersFrame)
    assert "END_STREAM" in first.flags
    assert all(isinstance(frame, ContinuationFrame) for frame in rest)
    assert [("END_HEADERS" in frame.flags) for frame in (first, *rest)] == [*[False] * len(rest), True]
    assert b"".join(frame.data for frame in (first, *rest)) == b"\x20" + block


def test_an_answer_that_the_windows_have_no_room_for_is_not_said_at_once():
    server = Server()
    server.hear(SettingsFrame(0, settings={4: 10}), CLOSED, headers(3))
    head = encode_head(200, ())
    assert not server.protocol.say_answer(1, head, bytes(11))
    assert server.protocol.say_answer(1, head, bytes(10))
    assert not server.protocol.say_answer(1, head, bytes(10))  # it has ended
    server.hear(WindowUpdateFrame(3, window_increment=2**20), headers(5))
    server.protocol.say_head(3, head, last=False)
    server.protocol.say(3, bytes(16_384), last=False)
    assert not server.protocol.say_answer(5, head, bytes(11))
    assert server.protocol.room(3) == 16_384


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


def test_no_goodbye_promises_more_than_the_one_before_it():
    server = Server()
    server.hear(OPEN)
    server.protocol.announce_end()
    server.hear(headers(3))
    server.protocol.end()
    server.hear()
    goodbyes = [frame for frame in server.frames if isinstance(frame, GoAwayFrame)]
    assert [frame.last_stream_id for frame in goodbyes] == [1, 1]


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
