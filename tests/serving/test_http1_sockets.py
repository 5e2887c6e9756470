"""The lane on real sockets, behind the guard: who gets which protocol, and clients that do not read."""

import h2.events
import pytest
import trio
from lanes import Client, Endpoint, get, post
from peers import Http2, receive_all, respond, serving
from test_tls import FILES
from test_tls import connect as connect_securely

from mcpbus.serving import Counters


class App(Endpoint):
    """An endpoint with something beside it, which is served through ASGI."""

    def __init__(self):
        super().__init__()
        self.flooded = trio.Event()

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        await respond(send, f"{scope['path']} by HTTP/{scope['http_version']}".encode())

    async def flood(self, http):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, http, nursery.cancel_scope)
            await http.start_stream([])
            while True:
                await http.write(bytes(1024 * 1024), more=True)


async def test_http1_is_the_lanes():
    app = App()
    async with serving(app) as served:
        client = Client(await served.connect())
        await client.say(post(b"x") + post(b"y"))
        assert [(await client.answer())[2] for _ in range(2)] == [b"x", b"y"]
    assert len(app.heads) == 2


async def test_the_lane_can_be_switched_off():
    async with serving(App(), http1="hypercorn") as served:
        client = Client(await served.connect())
        await client.say(get("/"))
        assert (await client.answer())[2] == b"/ by HTTP/1.1"


async def test_what_is_beside_the_endpoint_is_served_through_asgi_on_the_same_connection():
    async with serving(App()) as served:
        client = Client(await served.connect())
        await client.say(post(b"x") + get("/elsewhere"))
        assert (await client.answer())[2] == b"x"
        assert (await client.answer())[2] == b"/elsewhere by HTTP/1.1"


async def test_http2_with_prior_knowledge_goes_to_hypercorn():
    async with serving(App()) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.bodies[stream_id] == b"/ by HTTP/2"


async def test_over_tls_the_client_chooses():
    app = App()
    async with serving(app, **FILES) as served:
        client = Client(await connect_securely(served, "http/1.1"))
        for body in (b"one", b"x" * 900):
            await client.say(post(body))
            assert (await client.answer())[2] == body
        peer = await Http2(await connect_securely(served, "h2", "http/1.1")).start()
        stream_id = await peer.request()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.bodies[stream_id] == b"/ by HTTP/2"
    assert len(app.heads) == 2


@pytest.mark.parametrize("files", [{}, FILES], ids=["cleartext", "TLS"])
async def test_a_client_that_accepts_nothing_is_cut_off(files, caplog):
    app, counters = App(), Counters()
    async with serving(app, counters=counters, write_deadline_seconds=0.2, **files) as served:
        stream = await (
            connect_securely(served, "http/1.1") if files else served.connect(receive_buffer=4096)
        )
        await stream.send_all(get("/flood"))
        await app.left.wait()
        served.shutdown.set()
        await served.ended.wait()
    assert (counters.stalled, counters.failed, counters.open) == (1, 0, 0)
    assert "accepted nothing for 0.2 s" in caplog.text


async def test_a_client_that_accepts_nothing_does_not_delay_the_shutdown():
    async with serving(App(), write_deadline_seconds=3600, drain_seconds=0.1) as served:
        stream = await served.connect(receive_buffer=4096)
        await stream.send_all(get("/flood"))
        await stream.receive_some()
        served.shutdown.set()
        with trio.fail_after(1.1):
            await served.ended.wait()


async def test_a_shutdown_closes_idle_connections_at_once_and_lets_requests_end():
    app, counters = App(), Counters()
    async with serving(app, counters=counters, drain_seconds=3600) as served:
        idle, busy = await served.connect(), Client(await served.connect())
        await busy.say(get("/wait"))
        await app.waiting.wait()
        served.shutdown.set()
        assert await receive_all(idle) == b""
        app.go_on.set()
        status, fields, body = await busy.answer()
        assert (status, fields["connection"], body) == (200, "close", b"waited")
        await served.ended.wait()
    assert (counters.accepted, counters.open, counters.failed) == (2, 0, 0)


async def test_a_refused_client_reads_why_although_it_still_sends():
    async with serving(App()) as served:
        client = Client(await served.connect())
        await client.say(b"GET / HTTP/1.1\nhost: x\n\n" + b"x" * 1_000_000)
        assert (await client.answer())[0] == 400


async def test_a_client_that_resets_is_no_failure(caplog):
    app, counters = App(), Counters()
    async with serving(app, counters=counters) as served:
        client = Client(await served.connect())
        await client.say(get("/wait"))
        await app.waiting.wait()
        client.stream.socket.close()
        other = Client(await served.connect())
        await other.say(post(b"x"))
        assert (await other.answer())[0] == 200
        await app.left.wait()
    assert counters.failed == 0
    assert not caplog.records
