"""WebSocket frames after a valid upgrade: messages of both eras, with frames among them that RFC 6455 does not allow.

A fault of the client's ends its connection, and nothing else: the next client is served, and nothing is left.
"""

import json
import re
import zlib
from typing import Any

import attrs
import trio
from hypothesis import strategies as st

from tests.fuzz.fuzz_guard import Guarded, Peer, open_guarded
from tests.fuzz.fuzz_messages import CLAIM, HELLO, NOTIFICATIONS, REQUESTS, changed, changes, encoded
from tests.fuzz.fuzz_target import Drawn
from tests.fuzz.fuzz_virtual import assert_balanced, play

UPGRADE = (
    b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: mcp\r\n"
)
DEFLATE = b"sec-websocket-extensions: permessage-deflate\r\n"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN, COMPRESSED = 0x80, 0x40
MASK = b"\1\2\3\4"


@attrs.frozen
class Frame:
    """A frame, as it is said to be.

    Attributes:
        first: Its first byte: FIN, the reserved bits, the opcode.
        payload: What it carries.
        masked: Whether it is, as it must be.
        length: What it says of its length, unless the truth.
    """

    first: int
    payload: bytes
    masked: bool = True
    length: int | None = None

    def __bytes__(self) -> bytes:
        size = len(self.payload) if self.length is None else self.length
        bit = 0x80 if self.masked else 0
        if size < 126:
            head = bytes([self.first, bit | size])
        elif size < 2**16:
            head = bytes([self.first, bit | 126]) + size.to_bytes(2, "big")
        else:
            head = bytes([self.first, bit | 127]) + size.to_bytes(8, "big")
        if not self.masked:
            return head + self.payload
        return head + MASK + bytes(byte ^ MASK[n % 4] for n, byte in enumerate(self.payload))


@attrs.frozen
class Said:
    """A message: which, under which id, what is wrong with it, and of how many frames it is made, and whether compressed."""

    index: int
    id: int
    modern: bool
    wrong: list[Any]
    frames: int
    compressed: bool

    def message(self) -> dict[str, Any]:
        if self.index < len(NOTIFICATIONS):
            method, params = NOTIFICATIONS[self.index]
            return changed({"jsonrpc": "2.0", "method": method, "params": params}, self.wrong)
        method, params = REQUESTS[self.index % len(REQUESTS)]
        meta = {"_meta": {**CLAIM, "progressToken": self.id}} if self.modern else {}
        return changed(
            {"jsonrpc": "2.0", "id": self.id, "method": method, "params": {**params, **meta}}, self.wrong
        )

    def __bytes__(self) -> bytes:
        data = encoded(self.message())
        if self.compressed:
            # Each message by itself, which any window allows.
            packer = zlib.compressobj(wbits=-15)
            data = (packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)).removesuffix(b"\0\0\xff\xff")
        size = max(1, len(data) // self.frames)
        pieces = [data[n : n + size] for n in range(0, len(data), size)]
        frames = [
            Frame((TEXT | (COMPRESSED if self.compressed else 0)) if n == 0 else CONTINUATION, piece)
            for n, piece in enumerate(pieces)
        ]
        frames[-1] = attrs.evolve(frames[-1], first=frames[-1].first | FIN)
        return b"".join(map(bytes, frames))


@attrs.frozen
class Case:
    """What one client says.

    Attributes:
        deflates: Whether it offers to compress.
        parts: Messages and frames.
        pieces: The sizes of the pieces in which it says them, over and over.
        leaves: Whether it leaves as soon as it has said them.
    """

    deflates: bool
    parts: list[Any]
    pieces: list[int]
    leaves: bool


_said = st.builds(
    Said,
    st.integers(0, 60),
    st.integers(1, 30),
    st.booleans(),
    st.lists(changes, max_size=2),
    st.sampled_from([1, 1, 2, 7]),
    st.booleans(),
)
_payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"", b"{}", b"\x03\xe8", b"\x03\xe8\xff", b"\x03", b"\0\0", b"\xed\xa0\x80", b"x" * 125, b"x" * 300]
    ),
)
_frames = st.builds(
    Frame,
    st.sampled_from([*range(16), *(FIN | op for op in range(16)), 0xC1, 0xA1, 0x91, 0xFF, 0xC2, 0xC9]),
    _payloads,
    st.sampled_from([True, True, True, False]),
    st.sampled_from([None, None, None, 0, 125, 126, 2**16, 2**40, 2**63, 2**64 - 1]),
)
_cases = st.builds(
    Case,
    st.booleans(),
    st.lists(st.one_of(_said, _said, _frames), min_size=1, max_size=12),
    st.lists(st.sampled_from([1, 9, 100, 10**6]), min_size=1, max_size=3),
    st.booleans(),
)


def check(case: Case) -> None:
    play(_converse, case)


async def _converse(case: Case) -> None:
    async with open_guarded() as guarded:
        peer = await _connect(guarded, deflates=case.deflates)
        await peer.say(
            b"".join(map(bytes, [Frame(FIN | TEXT, encoded(_HELLO)), Frame(FIN | TEXT, encoded(_READY))]))
        )
        rest, turn = b"".join(map(bytes, case.parts)), 0
        while rest:
            size = max(case.pieces[turn % len(case.pieces)], len(rest) // 50)
            await peer.say(rest[:size])
            rest, turn = rest[size:], turn + 1
            await trio.testing.wait_all_tasks_blocked()
            assert_balanced(guarded.bus)
        if not case.leaves:
            await trio.sleep(20)  # it answers no pings, for which it would be taken for dead
            if all(isinstance(p, Said) and not p.wrong and not p.compressed for p in case.parts):
                _judge(peer, case)
        peer.leave()
        await _ask_again(guarded)


_HELLO = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
_READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def _connect(guarded: Guarded, *, deflates: bool) -> Peer:
    peer = guarded.connect()
    await peer.say(UPGRADE + (DEFLATE if deflates else b"") + b"\r\n")
    await trio.sleep(1)
    head, end, peer.heard = peer.heard.partition(b"\r\n\r\n")
    assert end, head
    assert re.match(rb"HTTP/1\.1 101 ", head), head
    return peer


def texts(data: bytes) -> list[bytes]:
    """The payloads of the text frames that the server has sent, compressed or not.

    Raises:
        AssertionError: What it has sent is not frames, or a frame that a server may not send.
    """
    found, rest = [], data
    while rest:
        first, size, at = rest[0], rest[1], 2
        assert size < 128, "a server masks nothing"
        if size >= 126:
            at = 4 if size == 126 else 10
            size = int.from_bytes(rest[2:at], "big")
        assert len(rest) >= at + size, "a frame is not whole"
        if first & 15 in {TEXT, CONTINUATION}:
            found.append(rest[at : at + size])
        rest = rest[at + size :]
    return found


def _judge(peer: Peer, case: Case) -> None:
    """With nothing wrong, the connection stays, and no id has more answers than requests."""
    assert not peer.over
    if case.deflates:
        return
    heard = [json.loads(text) for text in texts(peer.heard)]
    for message in heard:
        if "method" not in message and message.get("id"):
            sent = [part.id for part in case.parts if part.index >= len(NOTIFICATIONS)]
            assert sum(m.get("id") == message["id"] and "method" not in m for m in heard) <= sent.count(
                message["id"]
            )


async def _ask_again(guarded: Guarded) -> None:
    """The next client is served."""
    other = await _connect(guarded, deflates=False)
    await other.say(bytes(Frame(FIN | TEXT, encoded(_HELLO))))
    await trio.sleep(1)
    assert json.loads(texts(other.heard)[0])["id"] == 0
    other.leave()


WEBSOCKET = Drawn("websocket", _cases, check, 100)
