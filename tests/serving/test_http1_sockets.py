"""The lane on real sockets: who gets which protocol, and clients that do not read."""

import errno
import gc
import socket
import ssl
import struct

import h2.events
import pytest
import trio
import trio.testing
from lanes import Client, Endpoint, get, post
from peers import Http2, receive_all, respond, serving
from test_tls import CERTIFICATE, FILES
from test_tls import connect as connect_securely

from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.serving import ServerCounters, reactor
from mcpbus.serving.http1.connection import Http1Connection
from mcpbus.serving.reactor import Reactor


@pytest.fixture(autouse=True, params=[True, False], ids=["epoll", "tasks"])
def epoll(request, monkeypatch):
    """Whether the system has epoll; otherwise each connection is waited for by a task."""
    if request.param and not reactor.AVAILABLE:
        pytest.skip("this system has no epoll")
    monkeypatch.setattr(reactor, "AVAILABLE", request.param)
    return request.param


class App(Endpoint):
    """An endpoint with something beside it, which is served through ASGI."""

    def respond_big(self, body):
        return HttpResponse(200, [], bytes(5_000_000))

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


async def test_what_is_beside_the_endpoint_is_served_through_asgi_on_the_same_connection():
    async with serving(App()) as served:
        client = Client(await served.connect())
        await client.say(post(b"x") + get("/elsewhere"))
        assert (await client.answer())[2] == b"x"
        assert (await client.answer())[2] == b"/elsewhere by HTTP/1.1"


async def test_what_is_beside_the_endpoint_is_served_through_asgi_over_http2_too():
    async with serving(App()) as served:
        peer = await Http2(await served.connect()).start()
        for path, body in (("/", b"root"), ("/elsewhere", b"/elsewhere by HTTP/2"), ("/", b"root")):
            stream_id = await peer.request(path=path)
            await peer.until_stream(stream_id, h2.events.StreamEnded)
            assert peer.bodies[stream_id] == body


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
        assert peer.bodies[stream_id] == b"root"
    assert len(app.heads) == 3


@pytest.mark.parametrize("files", [{}, FILES], ids=["cleartext", "TLS"])
async def test_a_client_that_accepts_nothing_is_cut_off(files, caplog):
    app, counters = App(), ServerCounters()
    async with serving(app, counters=counters, write_deadline=0.2, **files) as served:
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
    async with serving(App(), write_deadline=3600, drain_timeout=0.1) as served:
        stream = await served.connect(receive_buffer=4096)
        await stream.send_all(get("/flood"))
        await stream.receive_some()
        served.shutdown.set()
        with trio.fail_after(30):
            await served.ended.wait()


async def test_a_shutdown_closes_idle_connections_soon_and_lets_requests_end():
    app, counters = App(), ServerCounters()
    async with serving(app, counters=counters, drain_timeout=3600) as served:
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
    app, counters = App(), ServerCounters()
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


# -- connections without a task ----------------------------------------------------------------------------------------


def connections():
    gc.collect()
    return sum(isinstance(kept, Http1Connection) for kept in gc.get_objects())


async def test_of_a_connection_that_stalled_while_it_was_watched_nothing_is_left(caplog):
    counters, before = ServerCounters(), connections()
    async with serving(App(), counters=counters, write_deadline=0.2) as served:
        stalling = await served.connect(receive_buffer=4096)
        await stalling.send_all(get("/big"))
        while counters.open or not counters.accepted:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()  # a task that waited for it has heard of its end
        assert connections() == before
        client = Client(await served.connect())  # which may well get the same file descriptor
        await client.say(post(b"x"))
        assert (await client.answer())[2] == b"x"
    assert (counters.stalled, counters.failed) == (1, 0)


async def test_a_slow_client_that_says_no_more_gets_all_its_answers():
    async with serving(App()) as served:
        client = Client(await served.connect(receive_buffer=4096))
        await client.say(post(b"1") + get("/big") + post(b"2") + get("/big") + post(b"3"))
        await client.stream.send_eof()
        assert [len((await client.answer())[2]) for _ in range(5)] == [1, 5_000_000, 1, 5_000_000, 1]
        await client.ended()


async def test_many_requests_in_one_go_are_answered_in_order_while_others_are_served():
    async with serving(App()) as served:
        eager, other = Client(await served.connect()), Client(await served.connect())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(eager.say, b"".join([post(b"%d" % n) for n in range(5000)]))
            for n in range(100):
                await other.say(post(b"other"))
                assert (await other.answer())[2] == b"other"
                assert (await eager.answer())[2] == b"%d" % n
            for n in range(100, 5000):
                assert (await eager.answer())[2] == b"%d" % n


async def test_a_connection_that_the_kernel_does_not_wait_for_is_closed_and_no_other(monkeypatch, caplog):
    def refuse(*_):
        monkeypatch.undo()
        raise OSError(errno.ENOSPC, "No space left on device")

    counters = ServerCounters()
    async with serving(App(), counters=counters) as served:
        monkeypatch.setattr(Reactor, "watch", refuse)
        assert await receive_all(await served.connect()) == b""
        client = Client(await served.connect())
        await client.say(post(b"x"))
        assert (await client.answer())[2] == b"x"
        assert (counters.accepted, counters.open) == (2, 1)
    assert "cannot be waited for" in caplog.text


@pytest.mark.parametrize("end", ["aclose", "reset"])
async def test_connections_come_and_go_with_the_same_descriptors(end):
    app, counters = App(), ServerCounters()
    async with serving(app, counters=counters) as served:
        for n in range(30):
            staying, leaving = Client(await served.connect()), Client(await served.connect())
            await leaving.say(post(b"left")[: n * 2] if n % 2 else get("/wait"))
            await staying.say(post(b"%d" % n))
            if end == "reset":
                leaving.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await leaving.leave()
            assert (await staying.answer())[2] == b"%d" % n
            await staying.leave()
        while counters.open:
            await trio.lowlevel.checkpoint()
    assert (counters.accepted, counters.failed) == (60, 0)
    assert b"left" not in app.bodies


async def test_a_handshake_that_ends_during_a_shutdown_is_followed_by_the_end(caplog):
    class Draining(App):
        draining, drained = trio.Event(), trio.Event()

        async def drain(self, seconds):
            self.draining.set()
            await self.drained.wait()

    app, counters = Draining(), ServerCounters()
    async with serving(app, counters=counters, drain_timeout=3600, **FILES) as served:
        below = await served.connect()
        await trio.testing.wait_all_tasks_blocked(0.01)
        served.shutdown.set()
        await app.draining.wait()
        context = ssl.create_default_context(cafile=CERTIFICATE)
        stream = trio.SSLStream(below, context, server_hostname="localhost", https_compatible=True)
        await stream.send_all(get("/"))
        assert await receive_all(stream) == b""
        app.drained.set()
        await served.ended.wait()
    assert (counters.open, counters.failed, app.heads) == (0, 0, [])
    assert not caplog.records
