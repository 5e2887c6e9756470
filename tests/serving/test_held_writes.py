"""What an application says in one go is one write; what it says alone is not kept waiting."""

import h2.events
import pytest
import trio
from peers import Http2, get, receive_until, respond, serving

from mcpbus.serving.deadlines import DeadlineStream


@pytest.fixture
def writes(monkeypatch):
    """How many bytes each write on the server's side had."""
    sizes = []
    send_now = DeadlineStream.send_now

    def count(self, data):
        sizes.append(len(data))
        return send_now(self, data)

    monkeypatch.setattr(DeadlineStream, "send_now", count)
    return sizes


async def short(scope, receive, send):
    assert scope["type"] == "http"
    await respond(send)


async def test_a_short_answer_over_http1_is_one_write(writes):
    async with serving(short) as served:
        stream = await served.connect()
        for _ in range(10):
            assert b"ok" in await get(stream)
    assert len(writes) == 10


async def test_a_short_answer_over_http2_is_one_write(writes):
    async with serving(short) as served:
        peer = await Http2(await served.connect()).start()
        await peer.until_stream(await peer.request(), h2.events.StreamEnded)  # settings have their own
        before = len(writes)
        for _ in range(10):
            await peer.until_stream(await peer.request(), h2.events.StreamEnded)
        assert len(writes) - before == 10


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
async def test_a_head_alone_is_written_at_once(protocol):
    go_on = trio.Event()

    async def slow(scope, receive, send):
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"at last"})

    async with serving(slow) as served:
        stream = await served.connect()
        if protocol == "HTTP/1.1":
            await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
            await receive_until(stream, b"\r\n\r\n")
            go_on.set()
            await receive_until(stream, b"at last")
        else:
            peer = await Http2(stream).start()
            stream_id = await peer.request()
            await peer.until_stream(stream_id, h2.events.ResponseReceived)
            go_on.set()
            await peer.until_stream(stream_id, h2.events.StreamEnded)


async def test_a_task_that_is_cancelled_while_another_writes_leaves_nothing_out():
    """What one stream of HTTP/2 has said is part of a connection that the others go on with."""
    length = 4 * 1024 * 1024

    async def app(scope, receive, send):
        assert scope["type"] == "http"
        if scope["path"] == "/cancelled":
            with trio.move_on_after(0.01):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": bytes(10_000), "more_body": True})
            await send({"type": "http.response.body"})
        else:
            await respond(send, bytes(length))

    async with serving(app) as served:
        stream = await served.connect(receive_buffer=4096)
        peer = Http2(stream)
        peer.connection.initiate_connection()
        peer.connection.update_settings({4: 2**30})  # INITIAL_WINDOW_SIZE
        peer.connection.increment_flow_control_window(2**30)
        large = await peer.request(path="/large")
        others = [await peer.request(path="/cancelled") for _ in range(5)]
        await trio.sleep(0.05)  # the socket is full, and the cancelled ones have been
        for stream_id in (large, *others):
            await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert len(peer.bodies[large]) == length
