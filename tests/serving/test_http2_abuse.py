"""What is cheap to send and not to take ends an HTTP/2 connection with ENHANCE_YOUR_CALM, before it has cost much."""

from contextlib import suppress

import h2.events
import pytest
import trio
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.frame_buffer import FrameBuffer
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from peers import Http2, get, head_of, respond, serving

from mcpbus.serving import ServerCounters
from mcpbus.serving.http2.streams import BURST, RATE

MANY = 2 * BURST + 500  # with the time that the test takes, more than even a patient server bears


class Waiting:
    """An application that waits until its client leaves; /big says more than any window holds."""

    def __init__(self):
        self.calls = 0

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        self.calls += 1
        if scope["path"] == "/":
            await respond(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/big":
            await send({"type": "http.response.body", "body": bytes(10**6), "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass


class Unknown:
    """A frame of a type that nobody has defined."""

    def serialize(self):
        return b"\0\0\1\xf0\0\0\0\0\0x"


WHOLE = ["END_HEADERS", "END_STREAM"]


def head(peer, stream_id, *fields, path="/wait", flags=("END_HEADERS", "END_STREAM")):
    block = peer.connection.encoder.encode([*head_of("POST", path), *fields])
    return HeadersFrame(stream_id, data=block, flags=flags)


def ids(number):
    return range(1, 2 * number, 2)


def with_stream(peer, *frames, path="/wait"):
    """A request that goes on, and then these."""
    return [head(peer, 1, path=path, flags=["END_HEADERS"]), *frames]


def each(peer, frame_of, **options):
    """Many requests, each with a frame after it."""
    for n in ids(MANY):
        yield head(peer, n, flags=["END_HEADERS"], **options)
        yield frame_of(n)


FLOODS = {
    "requests that are reset": lambda peer: each(peer, RstStreamFrame),
    "requests that have the server reset them": lambda peer: each(
        peer, lambda n: WindowUpdateFrame(n, window_increment=2**31 - 1)
    ),
    "malformed requests": lambda peer: [head(peer, n, ("connection", "close")) for n in ids(MANY)],
    "requests that must be refused": lambda peer: [head(peer, n) for n in ids(MANY)],
    "requests with a :path outside ASCII": lambda peer: [head(peer, n, path="/é") for n in ids(MANY)],
    "pings": lambda _: [PingFrame(0, opaque_data=b"abcdefgh")] * MANY,
    "settings": lambda _: [SettingsFrame(0, settings={1: n % 2 * 4096}) for n in range(MANY)],
    "acknowledgements": lambda _: [SettingsFrame(0, flags=["ACK"])] * MANY,
    "priorities": lambda _: [PriorityFrame(n, depends_on=0, stream_weight=1) for n in ids(MANY)],
    "windows of the connection": lambda _: [WindowUpdateFrame(0, window_increment=1)] * MANY,
    "windows of streams that are not": lambda peer: with_stream(
        peer, RstStreamFrame(1), *[WindowUpdateFrame(1, window_increment=1)] * MANY
    ),
    "data of nothing": lambda peer: with_stream(peer, *[DataFrame(1)] * MANY),
    "data after a reset": lambda peer: with_stream(peer, RstStreamFrame(1), *[DataFrame(1)] * MANY),
    "frames of no known type": lambda _: [Unknown()] * MANY,
    "continuations of nothing": lambda _: [
        HeadersFrame(1, data=b""),
        *[ContinuationFrame(1, data=b"")] * MANY,
    ],
    "a header block without end": lambda _: [
        HeadersFrame(1, data=bytes(16_000)),
        *[ContinuationFrame(1, data=bytes(16_000))] * 6,
    ],
    "references of one byte": lambda _: [
        HeadersFrame(1, data=b"\x40\x01a\x00" + b"\xbe" * 1900, flags=WHOLE)
    ],
    "a block of more than 256 fields": lambda peer: [head(peer, 1, *[("a", "")] * 260)],
    "heads of many fields": lambda peer: [head(peer, n, *[("a", "")] * 120, path="/") for n in ids(MANY)],
    "heads of too many fields": lambda peer: [head(peer, n, *[("a", "")] * 200) for n in ids(MANY)],
    "trailers of many fields": lambda peer: with_stream(
        peer, *[HeadersFrame(1, data=b"\x40\x01a\x00" + b"\xbe" * 200, flags=WHOLE)] * MANY
    ),
    "a header list that unpacks to more than 64 KiB": lambda peer: [
        head(peer, 1, *[("x-long", "x" * 3000)] * 40)
    ],
}


async def flood(peer, frames):
    """Say them as fast as the server takes them, and return the code that it ends the connection with."""
    with suppress(trio.BrokenResourceError):  # it may end while we still speak
        await peer.send_frames(*frames)
    return await end_of(peer)


async def end_of(peer):
    buffer = FrameBuffer()
    buffer.max_frame_size = 2**20
    while data := await peer.stream.receive_some():
        buffer.add_data(data)
        for frame in buffer:
            if isinstance(frame, GoAwayFrame):
                return frame.error_code
    return None


@pytest.mark.parametrize("frames", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_ends_its_connection_before_it_costs_much(frames, caplog):
    app, counters = Waiting(), ServerCounters()
    async with serving(app, counters=counters) as served:
        bystander = await Http2(await served.connect()).start()
        quiet = await bystander.request(path="/wait")
        await bystander.until_stream(quiet, h2.events.ResponseReceived)

        peer = await Http2(await served.connect(), lenient=True).start()
        code = await flood(peer, frames(peer))
        assert code == ErrorCodes.ENHANCE_YOUR_CALM
        assert app.calls < 500

        other = await bystander.request(path="/")
        await bystander.until_stream(other, h2.events.StreamEnded)
        assert b"ok" in await get(await served.connect())
        assert (counters.abusive, counters.failed) == (1, 0)
    assert "was ended for abuse" in caplog.text


async def test_resets_one_by_one_end_it_too():
    """So that the application has begun each time."""
    app, counters = Waiting(), ServerCounters()
    async with serving(app, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        ended, begun = False, trio.current_time()
        while not ended:
            ended = True
            with suppress(trio.BrokenResourceError, ProtocolError, AssertionError):
                stream_id = await peer.request(path="/wait")
                await peer.until_stream(stream_id, h2.events.ResponseReceived)
                peer.connection.reset_stream(stream_id)
                await peer.flush()
                ended = False
        await trio.testing.wait_all_tasks_blocked()
        # The budget grows while the test runs, which takes long on a busy machine.
        assert app.calls < (2 * BURST + RATE * (trio.current_time() - begun)) / 3
        assert counters.abusive == 1


async def test_requests_that_are_refused_because_an_application_does_not_leave_end_it_too():
    never = trio.Event()

    async def stays(scope, receive, send):
        assert scope["type"] == "http"
        await never.wait()

    counters = ServerCounters()
    async with serving(stays, counters=counters) as served:
        peer = await Http2(await served.connect(), lenient=True).start()
        left = [frame for n in ids(200) for frame in (head(peer, n), RstStreamFrame(n))]
        assert await flood(peer, [*left, *[head(peer, n) for n in ids(MANY)[200:]]]) == (
            ErrorCodes.ENHANCE_YOUR_CALM
        )
        assert counters.abusive == 1
        assert counters.refused > 0


async def test_a_window_that_is_opened_byte_by_byte_is_abuse():
    app, counters = Waiting(), ServerCounters()
    async with serving(app, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        await peer.send_frames(SettingsFrame(0, settings={4: 0}))  # the windows of new streams
        await peer.request(path="/big")
        code = await flood(peer, [WindowUpdateFrame(1, window_increment=1)] * MANY)
        assert code == ErrorCodes.ENHANCE_YOUR_CALM


async def test_a_client_that_takes_what_it_is_sent_may_say_so_as_often_as_it_likes():
    """Two windows and a ping for each frame, as some clients do."""
    pieces = BURST

    async def talks(scope, receive, send):
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(pieces):
            await send({"type": "http.response.body", "body": bytes(100), "more_body": True})
        await send({"type": "http.response.body"})

    counters = ServerCounters()
    async with serving(talks, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        peer.acknowledges = False
        stream_id = await peer.request()
        while not any(isinstance(event, h2.events.StreamEnded) for event in peer.events[stream_id]):
            for event in await peer.step():
                if isinstance(event, h2.events.DataReceived) and event.data:
                    peer.connection.increment_flow_control_window(len(event.data))
                    with suppress(ProtocolError):  # its end has come with it
                        peer.connection.increment_flow_control_window(len(event.data), stream_id)
                    peer.connection.ping(b"abcdefgh")
            await peer.flush()
        assert len(peer.bodies[stream_id]) == 100 * pieces
        assert counters.abusive == 0


async def test_priorities_mean_nothing():
    """They are deprecated (RFC 9113, section 5.3.1), and hypercorn's tree of them breaks when it is full."""
    counters = ServerCounters()
    async with serving(Waiting(), counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        for stream_id in range(1001, 1601, 2):
            peer.connection.prioritize(stream_id, depends_on=stream_id + 2)
        stream_id = peer.connection.get_next_available_stream_id()
        peer.connection.send_headers(
            stream_id, head_of(), end_stream=True, priority_weight=7, priority_depends_on=999
        )
        await peer.flush()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert (counters.failed, counters.abusive) == (0, 0)
