"""Attacks by the frames of WebSocket."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import trio

from tests.attacks.attacker import Attacker, flooding, memory

UPGRADE = (
    b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: mcp\r\n%s\r\n"
)
DEFLATE = b"sec-websocket-extensions: permessage-deflate\r\n"


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, length: int | None = None) -> bytes:
    """A frame of a client, whose mask changes nothing."""
    first = bytes([0x80 * final | opcode])
    return first + b"\xff" + (len(payload) if length is None else length).to_bytes(8) + bytes(4) + payload


def sending(*frames: bytes, fields: bytes = b"", wait: float = 0.5) -> Callable[[Attacker], Awaitable[None]]:
    """An attack on new connections again and again."""
    return flooding(UPGRADE % fields, *frames, wait=wait)


async def endless(attacker: Attacker) -> None:
    """Fragments of messages that never end, on many connections."""
    for _ in range(100):
        await attacker.each(
            1, UPGRADE % b"", frame(1, b" ", final=False), *[frame(0, b" " * 8000, final=False)] * 500
        )
    await trio.sleep(3)


async def idle(attacker: Attacker) -> None:
    """Connections that say nothing."""
    for _ in range(15):
        with suppress(OSError):
            await attacker.each(100, UPGRADE % b"")
        await trio.sleep(0.05)
    await trio.sleep(2)


ATTACKS = {
    "fragments of one byte": sending(frame(1, b" ", final=False), frame(0, b" ", final=False) * 50_000),
    "empty fragments": sending(frame(1, final=False), frame(0, final=False) * 50_000),
    "fragmented messages without end": endless,
    "a frame that announces 4 GB": sending(frame(1, b"x" * 100_000, length=2**32), wait=2),
    "pings": sending(frame(9, b"x" * 100) * 20_000),
    "small messages that are not JSON": sending(frame(1, b"{") * 20_000),
    "compressed frames, which were not agreed on": sending(frame(0x41, b"x" * 1000) * 100, fields=DEFLATE),
    "1,500 connections that say nothing": idle,
    "long answers that nobody reads": partial(memory.calls_over_a_websocket, tool="long"),
}
