"""Frames: what is written is read, however it is cut, and what is no frame is refused before it is kept."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.cluster import messages as frames
from mcpbus.cluster.messages import FrameError, FrameKind, FrameReader, encode_frames

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(FrameKind).map(int),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=40) | st.just(b"x" * 200),
    ),
    max_size=8,
)


@pytest.fixture(autouse=True)
def short_frames(monkeypatch):
    monkeypatch.setattr(frames, "PIECE_BYTES", 16)


def read_all(data, cuts, limit=1000):
    reader, messages, at = FrameReader(limit), [], 0
    for cut in [*sorted(cuts), len(data)]:
        messages += reader.read(data[at:cut])
        at = max(at, cut)
    return messages


@given(messages=MESSAGES, cuts=st.lists(st.integers(0, 2000), max_size=10))
def test_what_is_written_is_read(messages, cuts):
    data = b"".join(encode_frames(*message) for message in messages)
    assert read_all(data, [cut for cut in cuts if cut <= len(data)]) == messages


@given(first=st.binary(min_size=17, max_size=99), second=st.binary(min_size=17, max_size=99))
def test_long_messages_of_two_channels_may_come_in_turns(first, second):
    def pieces(channel, payload):
        data = encode_frames(FrameKind.DATA, channel, payload)
        ends = [*range(25, len(data), 25), len(data)]
        return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    ones, twos = pieces(1, first), pieces(2, second)
    mixed = []
    while ones or twos:
        mixed += ones[:1] + twos[:1]
        ones, twos = ones[1:], twos[1:]
    found = read_all(b"".join(mixed), [])
    assert sorted(found) == [(FrameKind.DATA, 1, first), (FrameKind.DATA, 2, second)]


@given(data=st.binary(max_size=200))
def test_what_comes_is_bounded_whatever_it_is(data):
    reader = FrameReader(50)
    try:
        for _ in reader.read(data):
            pass
    except FrameError:
        return
    assert len(reader._unread) <= 9 + 16
    assert reader._held <= 50


def head(length, kind, channel=0):
    return struct.pack(">IBI", length, kind, channel)


@pytest.mark.parametrize(
    "data",
    [
        head(17, FrameKind.DATA),
        head(2**32 - 1, FrameKind.DATA),
        head(0, FrameKind.DATA | 0x80),
        (head(16, FrameKind.DATA | 0x80) + b"x" * 16) * 4,
        b"".join(head(16, FrameKind.DATA | 0x80, n) + b"x" * 16 for n in range(4)),
    ],
)
def test_what_is_too_long_or_endless_is_refused(data):
    with pytest.raises(FrameError):
        read_all(data, [], limit=50)


def test_what_was_read_makes_room():
    data = encode_frames(FrameKind.DATA, 1, b"x" * 40) * 10
    assert len(read_all(data, [], limit=50)) == 10
