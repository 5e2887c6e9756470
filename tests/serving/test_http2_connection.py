"""What the server's side of an HTTP/2 connection keeps, and what it says: joined with a client in memory, without I/O."""

import gc
import tracemalloc
from contextlib import suppress

import h2.connection
import h2.events
import hpack
import pytest
from h2.settings import SettingCodes
from hyperframe.frame import ContinuationFrame, DataFrame, ExtensionFrame, HeadersFrame, SettingsFrame
from hypothesis import example, given, settings
from hypothesis import strategies as st
from peers import head_of

from mcpbus.serving import ServerCounters
from mcpbus.serving.http2.errors import AbuseFault, ConnectionFault, ErrorCode
from mcpbus.serving.http2.events import BodyReceived, RequestBegun, StreamGone
from mcpbus.serving.http2.head import Malformed
from mcpbus.serving.http2.head_cache import HeadReader, Http2HeadCache
from mcpbus.serving.http2.hpack_decoder import FieldDecoder
from mcpbus.serving.http2.hpack_encoder import encode_head
from mcpbus.serving.http2.protocol import Protocol
from mcpbus.serving.http2.streams import BURST, RATE, TokenBucket

LONGEST_HEAD = 32 * 1024


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Joined:
    """A client and our side of one connection."""

    def __init__(self):
        self.clock = Clock()
        self.ours = Protocol(Http2HeadCache(LONGEST_HEAD), TokenBucket(self.clock), ServerCounters())
        self.client = h2.connection.H2Connection()
        self.client.initiate_connection()
        self.exchange()
        self.exchange()

    def exchange(self):
        events = self.hear(self.client.data_to_send())
        self.heard = self.client.receive_data(self.ours.data_to_send())
        return events

    def hear(self, data):
        self.ours.receive(data)
        events = []
        while (event := self.ours.next_event()) is not None:
            events.append(event)
        return events

    def say(self, *frames):
        return self.hear(b"".join(frame.serialize() for frame in frames))

    def request(self, *fields):
        stream_id = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, head_of("GET", "/", *fields), end_stream=True)
        (event,) = self.exchange()
        assert isinstance(event, RequestBegun)
        self.head = event.head
        return stream_id

    def answer(self, stream_id, *fields):
        self.ours.say_head(stream_id, encode_head(200, fields), last=True)
        events = self.client.receive_data(self.ours.data_to_send())
        (head,) = [event for event in events if isinstance(event, h2.events.ResponseReceived)]
        return head.headers


def test_no_table_of_our_fields_is_kept_whatever_the_client_would_like():
    joined = Joined()
    joined.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 2**30})
    joined.exchange()
    for n in range(100):
        joined.answer(joined.request(), (b"x-different", b"%d" % n * 20))
    assert joined.client.decoder.header_table_size == 0


@pytest.mark.parametrize("sizes", [[0], [100, 4096], [4096, 0, 100] * 10])
def test_a_client_may_change_the_size_of_its_table_as_it_likes(sizes):
    joined = Joined()
    for size in sizes:
        joined.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: size})
        joined.exchange()
    fields = (b"x-field", b"value"), (b"content-type", b"text/plain")
    assert joined.answer(joined.request(), *fields)[:-1] == [(b":status", b"200"), *fields]


@pytest.mark.parametrize(
    "field",
    [
        (b"x-a", b"b\r\nset-cookie: c"),
        (b"x-a", b" b"),
        (b"x a", b"b"),
        (b"", b"b"),
        (b"x-a", b"\0"),
        (b":status", b"200"),
    ],
)
def test_what_is_no_field_is_not_said(field):
    with pytest.raises(ValueError, match="cannot be a header field"):
        encode_head(200, (field,))


def test_a_block_that_came_before_is_read_as_it_would_be_anew():
    """Also where the client's table is another one by now."""
    clients, ours, plain = hpack.Encoder(), FieldDecoder(LONGEST_HEAD), hpack.Decoder()
    for n in range(400):
        fields = [(":path", f"/{n % 3}"), ("x-a", "a" * (n % 7 * 100)), ("authorization", f"{n % 5}", True)]
        if n % 50 == 0:
            clients.header_table_size = (4096, 200, 0, 4096)[n // 50 % 4]
        block = clients.encode(fields)
        assert list(ours.decode(block)[0]) == list(plain.decode(block, raw=True))


def test_blocks_that_came_before_are_remembered_and_not_many():
    reader = HeadReader(Http2HeadCache(LONGEST_HEAD))
    reader.read(b"\x82\x84\x86\x41\x01a")  # the last one is new to the table, and to be remembered by that
    block = b"\x82\x84\x86\xbe"
    first = reader.read(block)
    assert reader.read(block) is first
    reader.decode(b"\x41\x01b")
    assert reader.read(block).judged.headers["host"] == "b"
    for n in range(1000):
        reader.read(b"\x82\x84\x86\xbe\x00\x01x\x04%04d" % n)
    assert len(reader._known) <= 16


_NAMES = st.sampled_from([b"x-a", b"x-b", b"authorization", b"cookie", b"accept", b"mcp-name"])
_FIELDS = st.lists(st.tuples(_NAMES, st.sampled_from([b"", b"a", b"b", b"a" * 300])), max_size=4)
_FIRST = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"a")]


@st.composite
def blocks_of_one_client(draw):
    """Blocks as a client may write them: with fields that are added to the table or not, and references to what is there."""
    encoder = hpack.Encoder()
    blocks = []
    for fields in draw(st.lists(_FIELDS, min_size=1, max_size=8)):
        size = draw(st.sampled_from([None, None, None, 0, 100, 4096]))
        if size is not None:
            encoder.header_table_size = size
        never = draw(st.booleans())
        block = encoder.encode([*_FIRST, *((name, value, never) for name, value in fields)])
        # The same bytes again, which may mean something else by now.
        blocks += [block] + [draw(st.sampled_from([block, *blocks]))] * draw(st.integers(0, 2))
    return blocks


def meaning(fields):
    """What the fields of a head say, apart from those of its request line."""
    grouped = {}
    for name, value in fields:
        if name[:1] != b":":
            grouped.setdefault(bytes(name), []).append(bytes(value))
    return {name: b"; ".join(values) if name == b"cookie" else values for name, values in grouped.items()}


# A block of references, before and after its client has put another value at the place in the table.
_TOKEN = b"\x82\x86\x84\x41\x01a\x40\x0dauthorization"


@settings(max_examples=300)
@given(blocks_of_one_client())
@example(
    [_TOKEN + b"\x05alice", b"\x82\x86\x84\xbf\xbe", b"\x82\x86\x84\xbf\x7e\x03bob", b"\x82\x86\x84\xbf\xbe"]
)
@example([b"\x82\x86\x84\x01\x01a\x40\x03x-a\x05alice", b"\x82\x86\x84\x01\x01a\x7e\x03bob"] * 2)
@example(
    [b"\x82\x86\x84\x01\x01a\x40\x03x-a\x01%b" % n for n in (b"a", b"b")]
    + [b"\x82\x86\x84\x01\x01a\x7f\x00\x01c", b"\x82\x86\x84\x01\x01a\xbf"] * 2
)
def test_a_head_has_the_fields_that_hpack_reads_whatever_was_remembered(blocks):
    """A remembered block means the same only as long as the client's table does: its value may be another user's."""
    heads = Http2HeadCache(LONGEST_HEAD)
    reader, theirs = HeadReader(heads), hpack.Decoder()
    for block in blocks:
        try:
            expected = theirs.decode(block, raw=True)
        except (hpack.HPACKError, IndexError):
            with pytest.raises((ConnectionFault, Malformed)):
                reader.read(block)
            return
        try:
            head = reader.read(block)
        except Malformed:
            continue
        headers = head.judged.headers
        headers.raw(b"x-none")  # so that all fields are looked at
        for name, values in meaning(expected).items():
            wanted = values if isinstance(values, bytes) else values[0] if len(values) == 1 else tuple(values)
            assert headers.raw(name) == wanted


@pytest.mark.parametrize(
    ("fields", "costs"),
    [
        ([("x-a", "a")] * 20, False),
        ([("x-a", "a")] * 28, False),
        ([("x-a", "a")] * 60, True),
        ([("a", "b" * 3000)] * 2, False),
        ([("a", "b" * 3000)] * 9, True),
    ],
)
def test_a_head_like_most_has_no_price_and_one_of_many_references_has(fields, costs):
    reader, encoder = HeadReader(Http2HeadCache(LONGEST_HEAD)), hpack.Encoder()
    for number in range(3):
        reader.read(encoder.encode([*head_of("GET", f"/{number}"), *fields]))
        assert (reader.cost > 0) is costs


def test_the_same_head_is_remembered_from_its_second_time_on():
    joined = Joined()
    read = []
    for value in "bbbc":
        joined.answer(joined.request(("x-a", value)))
        read.append(joined.head)
    assert read[1] is read[2]
    assert read[0] is not read[1]
    assert read[3] is not read[2]


def test_streams_that_have_ended_are_forgotten():
    joined = Joined()
    for _ in range(3000):
        joined.answer(joined.request())
    assert not joined.ours._streams.live


def test_streams_that_were_reset_are_forgotten_when_there_are_many():
    joined = Joined()
    for _ in range(1500):
        joined.ours.reset(joined.request(), ErrorCode.CANCEL)
    assert not joined.ours._streams.live
    assert len(joined.ours._streams._reset) <= 256


def literal(name, value):
    """A field that does not refer to any table, nor is added to one."""
    return b"\0%c%b%c%b" % (len(name), name, len(value), value)


GET = b"\x82\x84\x86\x01\x01a"
IN_PAIRS = b"".join(b"\x40\x02%02d\x02%02d" % (n, n) for n in range(99))
A_COOKIE = b"\x60\x7f\xb9\x16" + b"c" * 3000
HOARDS = {
    "long blocks": (b"", lambda n: literal(b"x-%04d" % n, b"v" * 120) * 7),
    "one long field, again and again": (A_COOKIE, lambda n: b"\xbe" * 14 + literal(b"n", b"%04d" % n)),
    "a full table": (IN_PAIRS, lambda n: bytes(range(0xBE, 0xEB)) + literal(b"n", b"%04d" % n)),
}


@pytest.mark.parametrize(("first", "fields_of"), HOARDS.values(), ids=HOARDS.keys())
def test_what_one_connection_remembers_is_little_whatever_its_client_sends(first, fields_of):
    heads, client = Http2HeadCache(LONGEST_HEAD), h2.connection.H2Connection()
    client.initiate_connection()
    preface = client.data_to_send()
    tracemalloc.start()
    try:
        ours = Protocol(heads, TokenBucket(Clock()), ServerCounters())
        ours.receive(preface)
        for n in range(1024):  # as many as fill what has room for a power of two
            stream_id, block = 2 * n + 1, GET + (fields_of(n) if n else first)
            ours.receive(HeadersFrame(stream_id, data=block, flags=["END_HEADERS"]).serialize())
            begun = ours.next_event()
            assert begun.stream_id == stream_id
            with suppress(KeyError):
                begun.head.judged.headers["x-none"]  # so that all fields are looked at
            ours.reset(stream_id, ErrorCode.CANCEL)
            ours.data_to_send()
            ours.earn()
        begun = None
        heads._known = None  # what all connections share
        heads._alike.cache_clear()
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100 * 1024


@pytest.mark.parametrize(("size", "number"), [(0, 20), (16_000, 5)])
def test_a_header_block_without_end_is_not_kept(size, number):
    joined = Joined()
    with pytest.raises(AbuseFault, match="does not end"):
        joined.say(
            HeadersFrame(1, data=bytes(size)),
            *[ContinuationFrame(1, data=bytes(size)) for _ in range(number)],
        )


def test_a_frame_that_is_said_to_be_long_is_not_waited_for():
    joined = Joined()
    with pytest.raises(ConnectionFault, match="a frame of 16385 bytes"):
        joined.hear((16_385).to_bytes(3) + b"\0\0\0\0\0\1")


@pytest.mark.parametrize("size", [1, 3, 10, 10_000])
def test_bytes_come_as_they_come(size):
    joined = Joined()
    stream_id = joined.client.get_next_available_stream_id()
    joined.client.send_headers(stream_id, head_of("POST", "/", ("x-long", "x" * 20_000)))
    joined.client.send_data(stream_id, b"a body", end_stream=True)
    data, events = joined.client.data_to_send(), []
    for start in range(0, len(data), size):
        events += joined.hear(data[start : start + size])
    begun, *rest = events
    assert isinstance(begun, RequestBegun)
    assert len(begun.head.judged.headers["x-long"]) == 20_000
    if size == 10_000:  # the last piece has the end of the head in it
        assert (begun.body, begun.ended, rest) == (b"a body", True, [])
    else:
        assert (begun.body, begun.ended) == (b"", False)
        assert rest == [BodyReceived(stream_id, b"a body", ended=True)]


def a_post(stream_id, *fields):
    block = hpack.Encoder().encode(head_of("POST", "/", *fields))
    return HeadersFrame(stream_id, data=block, flags=["END_HEADERS"])


BESIDE_HEADS = {
    "whole": (DataFrame(3, data=b"body", flags=["END_STREAM"]), b"body", []),
    "empty": (DataFrame(3, flags=["END_STREAM"]), b"", []),
    "padded": (
        DataFrame(3, data=b"body", pad_length=5, flags=["END_STREAM", "PADDED"]),
        None,
        [BodyReceived(3, b"body", ended=True)],
    ),
    "a part": (DataFrame(3, data=bytes(20)), None, [BodyReceived(3, bytes(20), ended=False)]),
    "another's": (
        DataFrame(1, data=b"body", flags=["END_STREAM"]),
        None,
        [BodyReceived(1, b"body", ended=True)],
    ),
    "of a kind that nobody knows": (ExtensionFrame(0xFA, 3, flag_byte=1, body=b"body"), None, []),
}


@pytest.mark.parametrize(("frame", "body", "apart"), BESIDE_HEADS.values(), ids=BESIDE_HEADS.keys())
def test_a_body_that_comes_whole_with_its_head_is_told_with_it(frame, body, apart):
    joined = Joined()
    joined.say(a_post(1))
    begun, *rest = joined.say(a_post(3), frame)
    assert (begun.stream_id, begun.body, begun.ended) == (3, body or b"", body is not None)
    assert rest == apart


def test_a_body_of_which_the_end_is_missing_is_told_apart():
    joined = Joined()
    whole = DataFrame(1, data=b"body", flags=["END_STREAM"]).serialize()
    (begun,) = joined.hear(a_post(1).serialize() + whole[:-1])
    assert not begun.ended
    assert joined.hear(whole[-1:]) == [BodyReceived(1, b"body", ended=True)]


def test_a_body_that_is_too_long_for_a_frame_breaks_the_connection_with_its_head_too():
    joined = Joined()
    with pytest.raises(ConnectionFault, match="a frame of 16385 bytes"):
        joined.say(a_post(1), DataFrame(1, data=bytes(16_385), flags=["END_STREAM"]))


@pytest.mark.parametrize("length", ["3", "5"])
def test_no_request_begins_whose_body_is_not_as_long_as_was_said(length):
    joined = Joined()
    body = DataFrame(1, data=b"body", flags=["END_STREAM"])
    assert joined.say(a_post(1, ("content-length", length)), body) == [StreamGone(1)]


def test_bodies_that_come_with_their_heads_leave_room_for_others():
    joined = Joined()
    for _ in range(20):
        stream_id = joined.client.get_next_available_stream_id()
        joined.client.send_headers(stream_id, head_of("POST", "/"))
        joined.client.send_data(stream_id, bytes(10_000), end_stream=True)
        (begun,) = joined.exchange()
        assert begun.ended


def upload(size):
    """Upload more frames of one size than a client has tokens for small ones, and return how many bytes arrived."""
    joined, frame = Joined(), DataFrame(1, data=bytes(size))
    joined.say(a_post(1))
    arrived = 0
    for _ in range(4 * BURST + 1):
        (event,) = joined.say(frame)
        arrived += len(event.data)
        joined.ours.open_window(1, size)
    return arrived


def test_a_long_upload_in_frames_of_16_bytes_is_no_abuse():
    assert upload(16) == 16 * (4 * BURST + 1)


def test_a_long_upload_in_smaller_frames_is_abuse():
    with pytest.raises(AbuseFault, match="too many frames"):
        upload(15)


def test_what_is_announced():
    joined = Joined()
    settings = joined.client.remote_settings
    assert settings.max_concurrent_streams == 100
    assert settings.max_header_list_size == LONGEST_HEAD
    assert (settings.enable_push, settings.enable_connect_protocol) == (0, 1)
    assert settings.initial_window_size == 65_535


def test_settings_that_are_not_whole_break_the_connection():
    joined = Joined()
    with pytest.raises(ConnectionFault, match="not whole"):
        joined.hear((5).to_bytes(3) + b"\4\0\0\0\0\0" + bytes(5))
    joined = Joined()
    with pytest.raises(ConnectionFault, match="too large"):
        joined.say(SettingsFrame(0, settings={SettingCodes.INITIAL_WINDOW_SIZE: 2**31}))


def test_a_bucket_fills_again_with_time_and_with_what_is_taken():
    clock = Clock()
    bucket = TokenBucket(clock)
    bucket.spend(BURST)
    with pytest.raises(AbuseFault):
        bucket.spend(1)
    clock.now += 1
    bucket.spend(RATE - 1)
    bucket.earn(5)
    bucket.spend(5)
    with pytest.raises(AbuseFault):
        bucket.spend(1)


def test_a_bucket_has_a_bottom():
    bucket = TokenBucket(Clock())
    bucket.earn(10 * BURST)
    with pytest.raises(AbuseFault):
        bucket.spend(BURST + 1)
