"""Server-sent events, read back by the rules of the WHATWG parser."""

import re
import tracemalloc
from types import SimpleNamespace

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.protocol.http.sse import (
    COMMENT,
    EventDecoder,
    SseEvent,
    encode_event,
    encode_events,
    encode_message,
    encode_messages,
    encode_numbered,
)
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.responses import GET_FORMAT


def parse(stream: bytes) -> list[dict[str, str]]:
    """What an EventSource gets out of a stream (HTML, section 9.2.6), fields of undelivered events included."""
    events, fields = [], {}
    for line in re.split("\r\n|\r|\n", stream.decode()):
        if not line:
            if fields:
                events.append(fields)
            fields = {}
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and "data" in fields:
            fields["data"] += "\n" + value
        elif name:
            fields[name] = value
    return events


def test_an_event_is_its_data():
    assert encode_event(b'{"a":1}') == b'data: {"a":1}\n\n'


def test_an_event_has_each_field_that_it_is_given():
    stream = encode_event(b"x", id="7", event="endpoint", retry=500)
    assert parse(stream) == [{"retry": "500", "id": "7", "event": "endpoint", "data": "x"}]


def test_empty_data_with_an_id_primes_a_stream():  # W-12
    assert parse(encode_event(b"", id="s/0")) == [{"id": "s/0", "data": ""}]


def test_a_comment_delivers_nothing():
    assert parse(COMMENT) == []
    assert parse(encode_event(b"a") + COMMENT + encode_event(b"b")) == [{"data": "a"}, {"data": "b"}]


@given(st.lists(st.text(), min_size=1))
def test_data_comes_out_as_it_went_in_line_ends_aside(texts):
    stream = b"".join(encode_event(text.encode()) for text in texts)
    assert [event["data"] for event in parse(stream)] == [re.sub("\r\n|\r", "\n", text) for text in texts]


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b"])
def test_an_id_or_type_that_would_break_out_of_its_line_is_refused(text):
    with pytest.raises(ValueError, match="one line"):
        encode_event(b"x", id=text)
    with pytest.raises(ValueError, match="one line"):
        encode_event(b"x", event=text)


def test_a_delay_may_be_zero_but_not_negative():
    assert parse(encode_event(b"x", retry=0)) == [{"retry": "0", "data": "x"}]
    with pytest.raises(ValueError, match="milliseconds"):
        encode_event(b"x", retry=-1)


@pytest.mark.parametrize(
    "data", [[b"a"], [b"a", b"b"], [b"a\nb", b"c"], [b"a\rb"], [b"a\n\ndata: b", b"c"], [b"", b"x"]]
)
def test_several_events_are_what_each_is_alone(data):
    assert encode_events(data) == b"".join(encode_event(one) for one in data)
    named = [encode_event(one, event="message") for one in data]
    assert (encode_messages(data), [encode_message(one) for one in data]) == (b"".join(named), named)
    numbered = enumerate(data, 7)
    assert encode_numbered(data, "a", 7) == b"".join(encode_event(one, id=f"a.{n}") for n, one in numbered)


def decode(*pieces: bytes, most: int = 10_000) -> list[SseEvent]:
    decoder = EventDecoder(most)
    return [event for piece in pieces for event in decoder.feed(piece)]


def test_a_piece_may_end_between_the_carriage_returns_of_two_empty_lines_or_after_both():
    assert decode(b"data: a\r\r", b"data: b\r", b"\r") == [SseEvent("a"), SseEvent("b")]
    assert decode(b"data: a\r\n\r", b"\ndata: b\r", b"\n\r", b"\n") == [SseEvent("a"), SseEvent("b")]
    assert decode(b"data: a\r", b"", b"\ndata: b\r\n\r\n") == [SseEvent("a\nb")]


@given(
    st.lists(
        st.tuples(st.text(), st.none() | st.text("abc/0"), st.none() | st.integers(0, 9_999)), min_size=1
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.data(),
)
def test_events_are_read_back_however_the_stream_is_cut(events, line_end, data):
    stream = b"".join(
        encode_event(text.encode(), id=event_id, retry=retry) + COMMENT for text, event_id, retry in events
    ).replace(b"\n", line_end)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decode(*pieces) == [
        SseEvent(re.sub("\r\n|\r", "\n", text), event_id, retry=retry) for text, event_id, retry in events
    ]


def test_an_event_has_a_type_and_what_is_no_field_of_it_is_skipped():
    assert decode(
        b"event: endpoint\ndata:/post\nunknown: x\nretry: soon\n\n: only a comment\n\nevent: x\n\n"
    ) == [SseEvent("/post", type="endpoint")]


@pytest.mark.parametrize("stream", [b"data: 123456789", b"data: 1234\n" * 3, b"data\n" * 13, b":" * 13])
def test_an_event_that_is_too_long_is_refused(stream):
    with pytest.raises(ValueError, match="more than 12 bytes"):
        decode(*(bytes([byte]) for byte in stream), most=12)
    assert decode(b"data: 123456\n\n" * 9, most=12) == [SseEvent("123456")] * 9


@pytest.mark.parametrize("line", [b":\n", b": keep-alive\n", b"unknown: x\n", b"id: 7\n", b"event: x\n"])
def test_lines_without_data_take_no_memory_though_no_empty_line_follows(line):
    decoder = EventDecoder(1_000_000)
    tracemalloc.start()
    try:
        for _ in range(20):
            assert list(decoder.feed(line * 5_000)) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10_000


def test_data_in_many_lines_takes_no_more_memory_than_its_limit():
    decoder = EventDecoder(1_000_000)
    tracemalloc.start()
    try:
        for _ in range(50):
            assert list(decoder.feed(b"data:ab\n" * 5_000)) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_500_000


@pytest.mark.parametrize("address", [b"", b"/sse?session_id=x"])
@given(st.lists(st.binary(min_size=1).filter(lambda data: not {*b"\r\n"} & {*data}), min_size=1))
def test_each_message_of_a_piece_ends_where_its_event_does(address, texts):
    """Fates of a write of which the client accepted a part follow from these ends."""
    stream = SimpleNamespace(log=None, retry=None)
    opened = StreamedResponse(stream, None, attrs.evolve(GET_FORMAT, address=address), None)
    rendering, before = opened.render(started=True), COMMENT
    batch = [SimpleNamespace(data=text, final=False) for text in texts]
    piece, _ = rendering.piece(batch, before)
    ends = rendering.ends(batch, before)
    assert ends[-1] == len(piece)
    for text, end in zip(texts, ends, strict=True):
        assert piece[:end].endswith(text + b"\n\n")
