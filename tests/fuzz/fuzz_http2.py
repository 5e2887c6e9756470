"""HTTP/2 frames after a valid preface: requests with frames among them that are wrong, out of place, or not there.

A fault of the client's ends its stream or its connection, and nothing else: the next client is served, and nothing is left.
"""

from typing import Any

import attrs
import hpack
import trio
from hypothesis import strategies as st

from tests.fuzz.fuzz_guard import open_guarded
from tests.fuzz.fuzz_messages import CLAIM, HELLO, MODERN, REQUESTS, encoded
from tests.fuzz.fuzz_target import Drawn
from tests.fuzz.fuzz_virtual import assert_balanced, play

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS_TYPE, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4


@attrs.frozen
class Frame:
    """A frame, as it is said to be."""

    type: int
    flags: int
    stream: int
    payload: bytes

    def __bytes__(self) -> bytes:
        size = len(self.payload).to_bytes(3, "big")
        return size + bytes([self.type, self.flags]) + self.stream.to_bytes(4, "big") + self.payload


@attrs.frozen
class Case:
    """What one client says.

    Attributes:
        parts: Frames, and the numbers of requests, each of which becomes frames of a stream of its own.
        changes: What is wrong with the frames: where, what, and how much.
        pieces: The sizes of the pieces in which it is said, over and over.
        leaves: Whether the client leaves as soon as it has said it.
    """

    parts: list[Any]
    changes: list[tuple[int, str, int]]
    pieces: list[int]
    leaves: bool


def requested(index: int, stream: int, encoder: hpack.Encoder) -> list[Frame]:
    """The frames of one request; every third is legacy, and every fifth goes somewhere else."""
    method, params = REQUESTS[index % len(REQUESTS)]
    fields = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/mcp")]
    if index % 5 == 4:
        fields = [(":method", "GET"), *fields[1:3], (":path", ["/mcp", "/health", "/sse", "/x"][index % 4])]
        block = encoder.encode([*fields, ("accept", "text/event-stream")])
        return [Frame(HEADERS, END_STREAM | END_HEADERS, stream, block)]
    fields += [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
    if index % 3 == 2:
        method, params = "initialize", HELLO
    else:
        params = {**params, "_meta": {**CLAIM, "progressToken": index}}
        fields += [("mcp-protocol-version", MODERN), ("mcp-method", method)]
        fields += [("mcp-name", name)] if (name := params.get("name", params.get("uri"))) else []
    body = encoded({"jsonrpc": "2.0", "id": index, "method": method, "params": params})
    half = len(body) // 2
    return [
        Frame(HEADERS, END_HEADERS, stream, encoder.encode(fields)),
        Frame(DATA, 0, stream, body[:half]),
        Frame(DATA, END_STREAM, stream, body[half:]),
    ]


_payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [bytes(4), bytes(5), bytes(6), bytes(8), b"\0\0\0\1", b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(3000)]
    ),
    st.sampled_from(
        [b"\0\4\0\0\0\0", b"\0\4\x7f\xff\xff\xff", b"\0\1\0\0\0\0", b"\0\5\0\0\x40\0", b"\0\x08\0\0\0\1"]
    ),
    st.sampled_from(
        [
            b"\x82",
            b"\x82\x86\x84",
            b"\x3f\xff\xff\xff\xff\x0f",
            b"\x40\x01A\x01b",
            b"\x7f\x80\x80\x80\x80\x80",
        ]
    ),
)
_frames = st.builds(
    Frame,
    st.integers(0, 11),
    st.sampled_from([0, 1, 4, 5, 8, 9, 0x20, 0x2D, 0xFF]),
    st.sampled_from([0, 1, 1, 3, 5, 7, 2, 99, 2**31 - 1]),
    _payloads,
)
_requests = st.integers(0, 300)
_parts = st.lists(st.one_of(_requests, _requests, _frames), min_size=1, max_size=12)
_changes = st.tuples(
    st.integers(0, 60),
    st.sampled_from(["drop", "repeat", "later", "flip", "flip", "cut", "type", "flags", "stream", "length"]),
    st.integers(0, 255),
)
_cases = st.builds(
    Case,
    _parts,
    st.lists(_changes, max_size=4),
    st.lists(st.sampled_from([1, 9, 100, 10**6]), min_size=1, max_size=3),
    st.booleans(),
)


def said(case: Case) -> bytes:
    """All that the client of a case says, after the preface."""
    encoder, frames, stream = hpack.Encoder(), [], 1
    for part in case.parts:
        if isinstance(part, Frame):
            frames.append(bytes(part))
        else:
            frames += map(bytes, requested(part, stream, encoder))
            stream += 2
    for place, how, what in case.changes:
        if not frames:
            break
        at = place % len(frames)
        frame = frames.pop(at)
        if how == "later":
            frames.append(frame)
        elif how != "drop":
            frames[at:at] = _changed(frame, how, what)
    return b"".join(frames)


def _changed(frame: bytes, how: str, what: int) -> list[bytes]:
    if how == "repeat":
        return [frame] * (2 + what % 20)
    if how == "cut":
        return [frame[: 1 + what % len(frame)]]
    at = {"length": 2, "type": 3, "flags": 4, "stream": 8, "flip": what % len(frame)}[how] % len(frame)
    return [frame[:at] + bytes([what]) + frame[at + 1 :]]


def check(case: Case) -> None:
    play(_converse, case)


async def _converse(case: Case) -> None:
    async with open_guarded() as guarded:
        peer = guarded.connect()
        await peer.say(PREFACE + SETTINGS)
        rest, turn = said(case), 0
        while rest:
            size = max(case.pieces[turn % len(case.pieces)], len(rest) // 50)
            await peer.say(rest[:size])
            rest, turn = rest[size:], turn + 1
            await trio.testing.wait_all_tasks_blocked()
            assert_balanced(guarded.bus)
        if not case.leaves:
            await trio.sleep(50)
            if not case.changes and not any(isinstance(part, Frame) for part in case.parts):
                _judge(peer.heard, len(case.parts))
        peer.leave()
        await _ask_again(guarded)


def frames_of(data: bytes) -> list[tuple[int, int, int]]:
    """The type, flags and stream of each frame that the server has sent.

    Raises:
        AssertionError: One is longer than a frame may be, or is not whole.
    """
    found, rest = [], data
    while rest:
        size, kind, flags = int.from_bytes(rest[:3], "big"), rest[3], rest[4]
        assert size <= 16_384
        assert len(rest) >= 9 + size, "a frame is not whole"
        found.append((kind, flags, int.from_bytes(rest[5:9], "big")))
        rest = rest[9 + size :]
    return found


def _judge(heard: bytes, requests: int) -> None:
    """With nothing wrong, each request has an answer, and the connection stays."""
    frames = frames_of(heard)
    assert GOAWAY not in [kind for kind, _, _ in frames], frames
    answered = {stream for kind, _, stream in frames if kind == HEADERS}
    assert answered == set(range(1, 2 * requests, 2)), frames


async def _ask_again(guarded: Any) -> None:
    """The next client is served."""
    other = guarded.connect()
    await other.say(PREFACE + SETTINGS)
    await other.say(b"".join(map(bytes, requested(1, 1, hpack.Encoder()))))
    await trio.sleep(1)
    assert HEADERS in [kind for kind, _, _ in frames_of(other.heard)], other.heard
    other.leave()


HTTP2 = Drawn("http2", _cases, check, 100)
