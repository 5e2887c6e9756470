"""A shutdown drains first (hypercorn 0.18 cancels streaming applications without a word)."""

from contextlib import AsyncExitStack

import h2.events
import pytest
import trio
import trio.testing
from houses import call, make_server
from peers import Http2, receive_all, receive_until, serving
from test_tls import FILES
from test_tls import connect as connect_securely

from mcpbus.serving import run


class Streams:
    """An application that streams until it is drained."""

    def __init__(self):
        self.drained = trio.Event()
        self.seconds = None

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        await self.drained.wait()
        await send({"type": "http.response.body", "body": b"last", "more_body": False})

    async def drain(self, seconds):
        self.seconds = seconds
        self.drained.set()


async def test_a_stream_says_its_last_words():
    app = Streams()
    async with serving(app, drain_timeout=10) as served:
        stream = await served.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        await receive_until(stream, b"first ")
        served.shutdown.set()
        assert b"last" in await receive_all(stream)
        await served.ended.wait()
    assert app.seconds == 10


async def test_no_connection_is_accepted_while_draining():
    draining, finish = trio.Event(), trio.Event()

    class Slow(Streams):
        async def drain(self, seconds):
            draining.set()
            await finish.wait()

    async with serving(Slow()) as served:
        served.shutdown.set()
        await draining.wait()
        with pytest.raises(OSError, match="refused"):
            await served.connect()
        finish.set()
        await served.ended.wait()


@pytest.mark.parametrize("files", [{}, FILES], ids=["cleartext", "TLS"])
async def test_a_request_that_a_client_was_about_to_send_is_still_served(files, monkeypatch):
    monkeypatch.setattr(run, "_LINGER_SECONDS", 600)
    drained = []

    class Quick(Streams):
        async def __call__(self, scope, receive, send):
            headers = [(b"content-length", b"2")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"ok", "more_body": False})

        async def drain(self, seconds):
            drained.append(seconds)

    async with serving(Quick(), drain_timeout=3600, **files) as served:
        stream = await (connect_securely(served, "http/1.1") if files else served.connect())
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        assert b"connection" not in await receive_until(stream, b"ok")
        served.shutdown.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        answer = await receive_all(stream)
        assert b"connection: close" in answer
        assert answer.endswith(b"ok")
        await served.ended.wait()
    assert len(drained) == 1
    assert 3000 <= drained[0] < 3600


@pytest.mark.parametrize("opens", ["the program", "the lifespan"])
async def test_a_kept_connection_hears_at_once_that_the_server_ends(opens, monkeypatch):
    """While calls on other kept connections are served as ever."""
    monkeypatch.setattr(run, "_LINGER_SECONDS", 600)
    get = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    server = make_server()
    async with AsyncExitStack() as stack:
        if opens == "the program":
            app = (await stack.enter_async_context(server.open())).asgi()
        else:
            app = server.asgi()
        served = await stack.enter_async_context(serving(app, drain_timeout=3600))
        probe, client = await served.connect(), await served.connect()
        for stream in (probe, client):
            await stream.send_all(get)
            assert b" 200 " in await receive_until(stream, b'{"status":"ok"}')
        served.shutdown.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        await probe.send_all(get)
        answer = await receive_all(probe)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert {b"retry-after: 1", b"connection: close"} < set(answer.lower().split(b"\r\n"))
        assert answer.endswith(b'{"status":"draining"}')
        await client.send_all(call("echo", text="still here"))
        assert b"still here" in await receive_all(client)
        await served.ended.wait()


@pytest.mark.parametrize("failure", [None, RuntimeError("nobody to tell"), SystemExit(3)], ids=repr)
async def test_what_an_application_announces_and_cannot_is_no_reason_not_to_drain_it(failure, caplog):
    class Announcing(Streams):
        def announce_drain(self):
            assert not self.drained.is_set()
            if failure is not None:
                raise failure

    app = Announcing()
    async with serving(app, drain_timeout=3600) as served:
        served.shutdown.set()
        await served.ended.wait()
    assert app.drained.is_set()
    assert ("the application's announce_drain raised" in caplog.text) is (failure is not None)


async def test_an_idle_connection_is_closed_soon():
    async with serving(Streams(), drain_timeout=3600) as served:
        stream = await served.connect()
        served.shutdown.set()
        assert await receive_all(stream) == b""
        await served.ended.wait()


@pytest.mark.parametrize(
    "drain", [None, "stuck", RuntimeError("no drain today"), SystemExit("no drain today")], ids=repr
)
async def test_what_does_not_end_is_cancelled_at_the_deadline(drain, caplog):
    cancelled = trio.Event()

    class Endless:
        async def __call__(self, scope, receive, send):
            assert scope["type"] == "http"
            await send({"type": "http.response.start", "status": 200, "headers": []})
            try:
                await trio.sleep_forever()
            finally:
                cancelled.set()

    class Drained(Endless):
        async def drain(self, seconds):
            if drain != "stuck":
                raise drain
            await trio.sleep_forever()

    async with serving(Drained() if drain else Endless(), drain_timeout=0.1) as served:
        stream = await served.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        await receive_until(stream, b"200")
        served.shutdown.set()
        with trio.fail_after(30):
            await served.ended.wait()
        assert cancelled.is_set()
    assert ("no drain today" in caplog.text) == isinstance(drain, BaseException)


class Ending:
    """What is open until the last words of the application have been written, which takes a moment once it has said them."""

    def __init__(self):
        self.is_drained, self.all_closed = False, trio.Event()

    def retire(self, seconds):
        return 0.0

    async def drain(self, seconds):
        with trio.move_on_after(seconds):
            await trio.sleep_forever()
        await trio.sleep(MOMENT)
        self.is_drained = True

    async def wait_closed(self):
        await trio.sleep(MOMENT)
        self.all_closed.set()


MOMENT = run._LAST_WORDS_SECONDS / 2


async def test_last_words_have_their_time_though_the_process_was_stopped_past_all_deadlines(autojump_clock):
    ending = Ending()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run._drain, ending, ending, 5)
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(60)
    assert ending.is_drained
    assert ending.all_closed.is_set()


async def test_who_never_ends_is_cancelled_after_the_time_for_last_words(autojump_clock):
    class Stuck(Ending):
        async def drain(self, seconds):
            await trio.sleep_forever()

        async def wait_closed(self):
            await trio.sleep_forever()

    await run._drain(Stuck(), Stuck(), 5)
    assert trio.current_time() == 5 + 2 * run._LAST_WORDS_SECONDS


async def test_a_request_refused_while_draining_leaves_its_neighbours_alone():
    app, draining = Streams(), trio.Event()

    async def drain(seconds):
        draining.set()
        await app.drained.wait()

    app.drain = drain
    async with serving(app) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request()
        await peer.until_stream(stream_id, h2.events.DataReceived)
        served.shutdown.set()
        await draining.wait()
        late = peer.connection.get_next_available_stream_id()
        head = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "test")]
        peer.connection.send_headers(late, head)
        peer.connection.send_data(late, b"in the same packet", end_stream=True)
        await peer.flush()
        await peer.until_stream(late, h2.events.StreamReset)
        app.drained.set()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.bodies[stream_id] == b"first last"


async def test_a_quiet_stream_outlives_idle_connections():
    speak = trio.Event()

    async def quiet(scope, receive, send):
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forbid_disconnect, receive)
            await speak.wait()
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"at last"})

    async def forbid_disconnect(receive):
        while True:
            assert (await receive())["type"] == "http.request"

    async with serving(quiet, keep_alive_timeout=0.1) as served:
        stream = await served.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        await receive_until(stream, b"200")
        idle = await served.connect()
        assert await receive_all(idle) == b""  # later than the stream, and closed for being idle
        speak.set()
        await receive_until(stream, b"at last")
