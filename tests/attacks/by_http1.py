"""Attacks by what HTTP/1.1 allows, and by what it forbids."""

from contextlib import suppress
from functools import partial

import trio

from tests.attacks.attacker import Attacker, encoded, flooding, memory, message, modern, post, request

MANY = 1_500
"""Connections of one attack; their descriptors are those of two processes."""
GET = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n"


async def idle(attacker: Attacker, *, data: bytes = b"") -> None:
    """Open many connections, send little on each, and wait."""
    for _ in range(MANY // 100):
        with suppress(OSError):
            await attacker.each(100, data)
        await trio.sleep(0.05)
    await trio.sleep(2)


async def drip(attacker: Attacker) -> None:
    """Send many bodies byte by byte."""
    head = post(b"", length=4_000_000)

    async def slowly() -> None:
        stream = await attacker.connect()
        await stream.send_all(head)
        while True:
            await stream.send_all(b" ")
            await trio.sleep(0.05)

    await attacker.repeat(300, slowly)


async def get_streams(attacker: Attacker) -> None:
    """Sessions that open a GET stream each, which nobody reads."""
    for _ in range(300):
        found = await attacker.session()
        await attacker.each(1, GET + f"mcp-session-id: {found['mcp-session-id']}\r\n\r\n".encode())


async def superseded(attacker: Attacker) -> None:
    """One session that opens its GET stream again and again."""
    found = await attacker.session()
    data = GET + f"mcp-session-id: {found['mcp-session-id']}\r\n\r\n".encode()
    await attacker.flood(data, tasks=20, wait=0.05)


async def reconnecting(attacker: Attacker) -> None:
    """Clients that connect and reset at once, as fast as they can."""
    await attacker.flood(request("echo", {"text": "x"})[:-10], tasks=40, wait=0.001)


async def slow_reads(attacker: Attacker) -> None:
    """Read long answers a kilobyte at a time."""
    body, headers = modern("tools/call", {"name": "long"}, name="long")
    data = post(encoded(body), headers)

    async def slowly() -> None:
        stream = await attacker.connect()
        await stream.send_all(data)
        while await stream.receive_some(1024):  # noqa: ASYNC110 - it reads slowly
            await trio.sleep(0.02)

    await attacker.repeat(200, slowly)


def chunks(size: int, number: int) -> bytes:
    """A body of many chunks, whose extensions are longer than they."""
    head = post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    return head + (b"%x;%s\r\n%s\r\n" % (size, b"x" * 100, b" " * size)) * number


ATTACKS = {
    "1,500 idle connections": idle,
    "1,500 heads without end": partial(idle, data=GET),
    "1,500 bodies without end": partial(idle, data=post(b"{", length=4_000_000)),
    "bodies that come byte by byte": drip,
    "bodies of 4 MB without their last byte": memory.bodies,
    "bodies of 15 KB without their last byte": memory.short_bodies,
    "heads of many fields": flooding(GET + b"a: b\r\n" * 5000 + b"\r\n"),
    "bodies of one-byte chunks": flooding(chunks(1, 30_000)),
    "pipelined requests": flooding(post(encoded(message("ping", id=1))) * 2000),
    "300 GET streams that nobody reads": get_streams,
    "a GET stream that is superseded without end": superseded,
    "connections that are cut at once": reconnecting,
    "long answers that are read slowly": slow_reads,
    "long answers that nobody reads": partial(memory.calls_over_http, tool="long"),
    "long answers over HTTP+SSE that nobody reads": partial(memory.calls_over_http_sse, tool="long"),
}
