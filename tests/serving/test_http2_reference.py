"""What a valid client says is understood as h2 and hpack understand it, and they understand what it is told."""

from contextlib import suppress

import h2.config
import h2.connection
import h2.errors
import h2.events
import hpack
import pytest
from h2.settings import SettingCodes
from hypothesis import example, given
from hypothesis import strategies as st
from peers import head_of

from mcpbus.serving import ServerCounters
from mcpbus.serving.http2.errors import ConnectionFault, ErrorCode
from mcpbus.serving.http2.events import BodyReceived, RequestBegun, StreamGone, WindowOpened
from mcpbus.serving.http2.head_cache import Http2HeadCache
from mcpbus.serving.http2.hpack_decoder import FieldDecoder
from mcpbus.serving.http2.hpack_encoder import encode_early_head, encode_head
from mcpbus.serving.http2.protocol import Protocol
from mcpbus.serving.http2.streams import TokenBucket

LONGEST = 4096


class Joined:
    """A client on h2, our side, and h2's side, which hears what ours hears."""

    def __init__(self):
        config = h2.config.H2Configuration(header_encoding=None)
        self.client = h2.connection.H2Connection(config)
        self.ours = Protocol(Http2HeadCache(LONGEST), TokenBucket(lambda: 0.0), ServerCounters())
        self.theirs = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        self.theirs.initiate_connection()
        self.ours_told, self.theirs_told, self.client_told = [], [], []
        self.speaking, self.unanswered = [], []
        self.client.initiate_connection()
        self.exchange()

    def exchange(self):
        for _ in range(2):  # what the client says may be an answer to what it hears
            said = self.client.data_to_send()
            self.ours.receive(said)
            while (event := self.ours.next_event()) is not None:
                self.ours_told += told_by_us(event)
            for event in self.theirs.receive_data(said):
                self.theirs_told += told_by_h2(event)
            self.theirs.data_to_send()
            self.client_told += self.client.receive_data(self.ours.data_to_send())

    # -- what may happen ---------------------------------------------------------------------------

    def open(self, number, ends):
        if len(self.speaking) + len(self.unanswered) > 30:
            return
        stream_id = self.client.get_next_available_stream_id()
        fields = head_of(
            "POST", f"/{number % 3}", ("x-number", str(number)), ("cookie", "a"), ("cookie", "b")
        )
        self.client.send_headers(stream_id, fields, end_stream=ends)
        self.unanswered.append(stream_id)
        if not ends:
            self.speaking.append(stream_id)

    def speak(self, number, ends):
        if self.speaking:
            stream_id = self.speaking[number % len(self.speaking)]
            padding = number % 7 * 10 or None
            self.client.send_data(stream_id, b"x" * (number % 50), end_stream=ends, pad_length=padding)
            self.stop(stream_id if ends else None)

    def trail(self, number, ends):
        if self.speaking:
            stream_id = self.speaking[number % len(self.speaking)]
            self.client.send_headers(stream_id, [("x-checksum", str(number))], end_stream=True)
            self.stop(stream_id)

    def leave(self, number, ends):
        open_now = sorted({*self.speaking, *self.unanswered})
        if open_now:
            stream_id = open_now[number % len(open_now)]
            self.client.reset_stream(stream_id)
            self.stop(stream_id)
            self.unanswered = [each for each in self.unanswered if each != stream_id]

    def change(self, number, ends):
        self.client.update_settings(
            {SettingCodes.INITIAL_WINDOW_SIZE: 60_000 + number, SettingCodes.HEADER_TABLE_SIZE: number * 10}
        )

    def ping(self, number, ends):
        self.client.ping(b"%08d" % number)

    def widen(self, number, ends):
        open_now = [0, *self.unanswered]
        stream_id = open_now[number % len(open_now)]
        self.client.increment_flow_control_window(1 + number, stream_id or None)

    def answer(self, number, ends):
        if self.unanswered:
            stream_id = self.unanswered.pop(number % len(self.unanswered))
            fields = [(b"x-number", b"%d" % number)]
            if ends:
                self.ours.say_head(stream_id, encode_early_head(100), last=False)
                self.theirs.send_headers(stream_id, [(b":status", b"100")])
            self.ours.say_head(stream_id, encode_head(200, fields), last=False)
            self.theirs.send_headers(stream_id, [(b":status", b"200"), *fields])
            self.ours.say(stream_id, b"y" * number, last=True)
            self.theirs.send_data(stream_id, b"y" * number, end_stream=True)

    def refuse(self, number, ends):
        if self.unanswered:
            stream_id = self.unanswered.pop(number % len(self.unanswered))
            self.stop(stream_id)
            self.ours.reset(stream_id, ErrorCode.CANCEL)
            self.theirs.reset_stream(stream_id, h2.errors.ErrorCodes.CANCEL)

    def stop(self, stream_id):
        self.speaking = [each for each in self.speaking if each != stream_id]


def told_by_us(event):
    match event:
        case RequestBegun(stream_id=stream_id, head=head, body=body, ended=ended):
            yield stream_id, (head.target, head.judged.headers["x-number"], head.judged.headers["cookie"])
            if body:
                yield stream_id, body
            if ended:
                yield stream_id, "end"
        case BodyReceived(stream_id=stream_id, data=data, ended=ended):
            if data:
                yield stream_id, data
            if ended:
                yield stream_id, "end"
        case StreamGone(stream_id=stream_id):
            yield stream_id, "gone"
        case WindowOpened(stream_id=stream_id) if stream_id:
            yield stream_id, "window"


def told_by_h2(event):
    match event:
        case h2.events.RequestReceived(stream_id=stream_id, headers=headers):
            fields = dict(headers)
            yield stream_id, (fields[b":path"], fields[b"x-number"].decode(), "a; b")
        case h2.events.DataReceived(stream_id=stream_id, data=data) if data:
            yield stream_id, data
        case h2.events.StreamEnded(stream_id=stream_id):
            yield stream_id, "end"
        case h2.events.StreamReset(stream_id=stream_id):
            yield stream_id, "gone"
        case h2.events.WindowUpdated(stream_id=stream_id) if stream_id:
            yield stream_id, "window"


OPERATIONS = [
    "open",
    "open",
    "open",
    "speak",
    "speak",
    "trail",
    "leave",
    "change",
    "ping",
    "widen",
    "answer",
    "refuse",
]
_conversations = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 300), st.booleans(), st.booleans()), max_size=60
)


@given(_conversations)
def test_a_conversation_is_understood_as_h2_understands_it(conversation):
    joined = Joined()
    for operation, number, ends, waits in conversation:
        of_the_server = operation in {"answer", "refuse"}
        if waits or of_the_server:
            joined.exchange()
        getattr(joined, operation)(number, ends)
        if of_the_server:
            joined.exchange()
    joined.exchange()
    assert joined.ours_told == joined.theirs_told
    answers = [event for event in joined.client_told if isinstance(event, h2.events.ResponseReceived)]
    ends = [event for event in joined.client_told if isinstance(event, h2.events.StreamEnded)]
    assert len(ends) >= len(answers)
    assert not joined.ours.closed


_names = st.sampled_from([":path", ":method", "accept", "x-a", "x-long-name", "authorization"])
_values = st.one_of(st.sampled_from(["/", "GET", "POST", "a", ""]), st.text("abc/é", max_size=60))
_heads = st.lists(st.tuples(_names, _values, st.booleans()), max_size=8)
_cuts = st.tuples(
    st.integers(0, 100),
    st.integers(0, 255),
    st.sampled_from(["keep", "keep", "keep", "change", "cut", "add"]),
)


@given(
    st.lists(st.tuples(_heads, _cuts, st.sampled_from([None, None, 0, 60, 4096]), st.booleans()), max_size=12)
)
def test_fields_are_read_as_hpack_reads_them(blocks):
    encoder, ours, theirs = hpack.Encoder(), FieldDecoder(LONGEST), hpack.Decoder(LONGEST)
    for fields, (at, what, how), size, huffman in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = damaged(encoder.encode(fields, huffman=huffman), at, what, how)
        try:
            expected = theirs.decode(block, raw=True)
        except (hpack.HPACKError, IndexError):
            with pytest.raises(ConnectionFault):
                ours.decode(block)
            return
        assert list(ours.decode(block)[0]) == list(expected)


def damaged(block, at, what, how):
    if how == "keep" or not block:
        return block
    at %= len(block)
    if how == "cut":
        return block[:at]
    return block[:at] + bytes([what]) + block[at + (how == "change") :]


@given(st.binary(max_size=40))
@example(b"\x80")
@example(b"\x20\x20\x20\x82")
@example(b"\x7f\xff\xff\xff\xff\x7f")
def test_what_are_no_fields_is_nothing_else_than_that(block):
    with suppress(ConnectionFault):
        FieldDecoder(LONGEST).decode(block)


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\x20\x20\x20\x82",
        b"\x82\x20",
        b"\x1f\xff\xff\xff\xff\xff\x00",
        b"\xbe",
        b"\x40",
        b"\x00\x01",
        b"\x00\x01x\x02a",
    ],
    ids=[
        "entry 0",
        "too many sizes",
        "a late size",
        "a long number",
        "no entry",
        "no name",
        "half a name",
        "half a value",
    ],
)
def test_a_block_that_cannot_be_read_breaks_the_connection(block):
    with pytest.raises(ConnectionFault) as raised:
        FieldDecoder(LONGEST).decode(block)
    assert raised.value.code == ErrorCode.COMPRESSION_ERROR
