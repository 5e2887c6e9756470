"""A request body that nobody reads harms nobody (hypercorn 0.18 wedges the whole HTTP/2 connection)."""

import h2.errors
import h2.events
import pytest
import trio
from peers import Http2, get, head_of, hello, receive_all, receive_until, respond, serving

from mcpbus import Limits, Server

MEGABYTE = bytes(1024 * 1024)


async def echo_length(receive, send):
    length, more = 0, True
    while more:
        message = await receive()
        length += len(message["body"])
        more = message["more_body"]
    await respond(send, b"%d" % length)


def post(length):
    return b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: %d\r\n\r\n" % length


async def test_an_unread_body_fills_only_its_own_window():
    release = trio.Event()

    async def unread(scope, receive, send):
        if scope["path"] == "/unread":
            await release.wait()
        await echo_length(receive, send)

    async with serving(unread) as served:
        peer = await Http2(await served.connect()).start()
        waiting = await peer.request("POST", "/unread", end=False)
        room = peer.connection.local_flow_control_window(waiting)
        await peer.send_data(waiting, bytes(room))

        other = await peer.request("POST", "/read", end=False)
        await peer.send_data(other, MEGABYTE, end=True)
        await peer.until_stream(other, h2.events.StreamEnded)
        assert peer.bodies[other] == b"%d" % len(MEGABYTE)
        assert peer.connection.remote_flow_control_window(waiting) > 0
        assert not [e for e in peer.events[waiting] if isinstance(e, h2.events.WindowUpdated)]

        release.set()
        await peer.send_data(waiting, b"the last of it", end=True)
        await peer.until_stream(waiting, h2.events.StreamEnded)
        assert peer.bodies[waiting] == b"%d" % (room + len(b"the last of it"))


async def test_a_padded_body_does_not_shrink_the_window():
    async def reads(scope, receive, send):
        await echo_length(receive, send)

    async with serving(reads) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request("POST", end=False)
        for _ in range(1000):  # 256 octets of padding each: four windows in all
            while peer.connection.local_flow_control_window(stream_id) < 300:
                await peer.step()
            peer.connection.send_data(stream_id, b"x", pad_length=255)
            await peer.flush()
        peer.connection.end_stream(stream_id)
        await peer.flush()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.bodies[stream_id] == b"1000"


@pytest.mark.parametrize("length", [1, 200_000, 4 * 1024 * 1024])
async def test_an_early_answer_reaches_a_client_that_uploads_first(length):
    async with serving(hello) as served:
        stream = await served.connect()
        await stream.send_all(post(length))
        await stream.send_all(bytes(length))
        assert b"ok" in await receive_until(stream, b"0\r\n\r\n")
        assert b"ok" in await get(stream)  # and the connection lives on


async def test_an_early_answer_comes_before_the_body():
    async with serving(hello) as served:
        stream = await served.connect()
        await stream.send_all(post(10))
        assert b"ok" in await receive_until(stream, b"0\r\n\r\n")
        await stream.send_all(bytes(10))
        assert b"ok" in await get(stream)


async def test_an_early_answer_on_http2_ends_after_the_body():
    async with serving(hello) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request("POST", end=False)
        await peer.until_stream(stream_id, h2.events.DataReceived)
        await peer.send_data(stream_id, MEGABYTE, end=True)
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert not [e for e in peer.events[stream_id] if isinstance(e, h2.events.StreamReset)]


async def test_a_body_beyond_the_cap_ends_an_http1_connection():
    async with serving(hello, unread_body_bytes=100_000) as served:
        stream = await served.connect()
        await stream.send_all(post(10**9))
        await receive_until(stream, b"ok\r\n")
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(MEGABYTE * 64)


async def test_a_body_beyond_the_cap_resets_its_http2_stream_only():
    async with serving(hello, unread_body_bytes=100_000) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request("POST", end=False)
        await peer.until_stream(stream_id, h2.events.DataReceived)
        while not any(isinstance(e, h2.events.StreamReset) for e in peer.events[stream_id]):
            room = peer.connection.local_flow_control_window(stream_id)
            if room:
                peer.connection.send_data(stream_id, bytes(min(room, 16_384)))
                await peer.flush()
            else:
                await peer.step()
        (reset,) = [e for e in peer.events[stream_id] if isinstance(e, h2.events.StreamReset)]
        assert reset.error_code == h2.errors.ErrorCodes.NO_ERROR  # RFC 9113, section 8.1
        assert [e for e in peer.events[stream_id] if isinstance(e, h2.events.StreamEnded)]

        again = await peer.request()
        await peer.until_stream(again, h2.events.StreamEnded)
        assert peer.bodies[again] == b"ok"


async def test_a_body_that_never_ends_is_not_waited_for():
    async with serving(hello, unread_body_timeout=0.05) as served:
        stream = await served.connect()
        await stream.send_all(post(10))
        assert b"ok" in await receive_all(stream)


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
async def test_a_body_that_never_comes_is_answered_408(protocol):
    server = Server("waits", version="1")
    fields = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
    async with (
        server.open(limits=Limits(body_timeout=0.1), drain_timeout=0) as bus,
        serving(bus.asgi(), unread_body_timeout=0.05) as served,
    ):
        stream = await served.connect()
        if protocol == "HTTP/1.1":
            head = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n"
            lines = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in fields)
            await stream.send_all(head + lines + b"\r\n{")
            assert (await receive_all(stream)).startswith(b"HTTP/1.1 408 ")
        else:
            peer = await Http2(stream).start()
            fields[:0] = [
                (":method", "POST"),
                (":path", "/mcp"),
                (":scheme", "http"),
                (":authority", "localhost"),
            ]
            stream_id = await peer.request(headers=fields, end=False)
            await peer.until_stream(stream_id, h2.events.StreamEnded)
            (response,) = [e for e in peer.events[stream_id] if isinstance(e, h2.events.ResponseReceived)]
            assert dict(response.headers)[":status"] == "408"
        assert bus.statistics().limits_reached == {"body_timeout": 1}


async def test_a_client_that_takes_an_http2_request_back_in_its_body_reaches_no_limit():
    server, fields = Server("left", version="1"), [("content-type", "application/json")]
    long = [*head_of("POST", "/mcp", *fields, ("accept", "application/json, text/event-stream"))]
    long[3] = (":authority", "localhost")
    async with server.open(drain_timeout=0) as bus, serving(bus.asgi()) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request(headers=long, end=False)
        await peer.send_data(stream_id, bytes(60_000))
        while not bus.statistics().held_bytes:  # until a task reads it
            await trio.lowlevel.checkpoint()
        peer.connection.reset_stream(stream_id)
        await peer.flush()
        while bus.statistics().held_bytes:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert bus.statistics().limits_reached == {}


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
async def test_a_large_body_arrives_whole_at_a_slow_reader(protocol):
    async def slow(scope, receive, send):
        await trio.testing.wait_all_tasks_blocked()
        await echo_length(receive, send)

    length = 8 * len(MEGABYTE)
    async with serving(slow) as served:
        stream = await served.connect()
        if protocol == "HTTP/1.1":
            await stream.send_all(post(length) + MEGABYTE * 8)
            body = await receive_until(stream, b"0\r\n\r\n")
        else:
            peer = await Http2(stream).start()
            stream_id = await peer.request("POST", end=False)
            await peer.send_data(stream_id, MEGABYTE * 8, end=True)
            await peer.until_stream(stream_id, h2.events.StreamEnded)
            body = peer.bodies[stream_id]
        assert b"%d" % length in body
