"""Attacks by the frames of HTTP/2."""

from collections.abc import Iterable
from functools import partial

import trio
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.attacks.attacker import Attacker, encoded, flooding, memory, modern

MANY = 2_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WHOLE = ["END_HEADERS", "END_STREAM"]
HEAD = [(":method", "POST"), (":path", "/mcp"), (":scheme", "http"), (":authority", "localhost")]
IDS = range(1, 2 * MANY, 2)
REFERENCES = b"\x40\x01a\x00"
"""A field ``a: `` that enters the table; further ones are references of one byte."""


def connection(*frames: Frame) -> bytes:
    """The bytes of a connection."""
    return PREFACE + SettingsFrame(0).serialize() + b"".join(frame.serialize() for frame in frames)


def head(stream: int, fields: Iterable[tuple[str, str]] = (), flags: Iterable[str] = WHOLE) -> Frame:
    """A head whose fields are all new to the table."""
    return HeadersFrame(stream, data=_encoder().encode([*HEAD, *fields]), flags=list(flags))


def _encoder() -> Encoder:
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder


def resets() -> bytes:
    frames = (
        frame for n in IDS for frame in (head(n, flags=["END_HEADERS"]), RstStreamFrame(n, error_code=8))
    )
    return connection(*frames)


def small_calls() -> bytes:
    """A hundred calls that all begin in one round."""
    body, headers = modern("tools/call", {"name": "echo", "arguments": {"text": "x"}}, name="echo")
    client = memory.Http2Client()
    for _ in range(100):
        client.send_data(client.begin(headers), encoded(body), end_stream=True)
    return client.data_to_send()


def called_and_reset() -> bytes:
    """Calls that have begun, and are reset."""
    body, headers = modern("tools/call", {"name": "wait", "arguments": {"data": "x"}}, name="wait")
    client = memory.Http2Client()
    for _ in range(200):
        stream = client.begin(headers)
        client.send_data(stream, encoded(body), end_stream=True)
        client.reset_stream(stream, 8)
    return client.data_to_send()


async def slow_reads(attacker: Attacker) -> None:
    """Open the windows of long answers byte by byte."""
    body, headers = modern("tools/call", {"name": "long"}, name="long")
    client = memory.Http2Client()
    for _ in range(100):
        client.send_data(client.begin(headers), encoded(body), end_stream=True)
    opened = client.data_to_send()
    window = (
        WindowUpdateFrame(0, window_increment=1).serialize()
        + WindowUpdateFrame(1, window_increment=1).serialize()
    )

    async def slowly() -> None:
        stream = await attacker.connect()
        await stream.send_all(opened)
        while await stream.receive_some(1024):
            await stream.send_all(window)
            await trio.sleep(0.01)

    await attacker.repeat(20, slowly)


def referring(fields: int, heads: int) -> bytes:
    """Heads of references of one byte."""
    blocks = [HeadersFrame(n, data=REFERENCES + b"\xbe" * fields, flags=WHOLE) for n in IDS[:heads]]
    return connection(*blocks)


ATTACKS = {
    "heads of 1,900 one-byte references": flooding(referring(1900, 60)),
    "heads of 200 one-byte references": flooding(referring(200, 1000)),
    "heads of 120 fields": flooding(connection(*(head(n, [("a", "")] * 120) for n in IDS[:500]))),
    "heads that unpack to 64 KB": flooding(
        connection(HeadersFrame(1, data=b"\x40\x01a\x7f\xb9\x16" + b"x" * 3000 + b"\xbe" * 60, flags=WHOLE))
    ),
    "heads that are rejected": flooding(connection(*(head(n, [("connection", "close")]) for n in IDS))),
    "heads without end": flooding(
        connection(HeadersFrame(1, data=bytes(16_000)), *[ContinuationFrame(1, data=bytes(16_000))] * 30)
    ),
    "empty continuations": flooding(connection(HeadersFrame(1), *[ContinuationFrame(1)] * 20_000)),
    "streams that are reset at once": flooding(resets(), tasks=20),
    "calls that are reset at once": flooding(called_and_reset(), tasks=20, wait=0.1),
    "100 small calls in each packet": flooding(small_calls(), tasks=20, wait=0.1),
    "pings": flooding(connection(*[PingFrame(0, opaque_data=b"abcdefgh")] * 20_000)),
    "settings": flooding(connection(*[SettingsFrame(0, settings={1: n % 2 * 4096}) for n in range(20_000)])),
    "priorities": flooding(connection(*[PriorityFrame(n, depends_on=0, stream_weight=1) for n in IDS] * 5)),
    "empty data": flooding(connection(head(1, flags=["END_HEADERS"]), *[DataFrame(1)] * 20_000)),
    "windows that open byte by byte": flooding(
        connection(head(1, flags=["END_HEADERS"]), *[WindowUpdateFrame(1, window_increment=1)] * 20_000)
    ),
    "long answers whose windows open byte by byte": slow_reads,
    "long answers whose windows stay shut": partial(memory.calls_over_http2, tool="long"),
    "200 bodies without their last byte": memory.bodies_over_http2,
}
