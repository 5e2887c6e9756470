"""HTTP/2 streams end when they should, and a connection outlives many of them."""

import h2.errors
import h2.events
import pytest
import trio
import trio.testing
from peers import Http2, head_of, hello, receive_all, respond, serving
from wires import Unwatched

from mcpbus.serving import ServerCounters, acceptor
from mcpbus.serving.http2 import connection
from mcpbus.serving.http2.connection import Http2Connection
from mcpbus.serving.readiness import Readiness


async def test_a_response_that_is_cut_short_resets_its_stream():
    async def halfway(scope, receive, send):
        if scope["path"] == "/whole":
            await respond(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError

    async with serving(halfway) as served:
        peer = await Http2(await served.connect()).start()
        cut = await peer.request()
        reset = await peer.until_stream(cut, h2.events.StreamReset)
        assert reset.error_code == h2.errors.ErrorCodes.INTERNAL_ERROR
        whole = await peer.request(path="/whole")
        await peer.until_stream(whole, h2.events.StreamEnded)


def start(*fields, status=200):
    return {"type": "http.response.start", "status": status, "headers": fields}


def body(data, *, more=False):
    return {"type": "http.response.body", "body": data, "more_body": more}


WRONG_LENGTHS = {
    "too short": [start((b"content-length", b"3")), body(b"no")],
    "too long": [start((b"Content-Length", b"1")), body(b"no")],
    "too short in pieces": [start((b"content-length", b"9")), body(b"no", more=True), body(b"")],
    "two heads": [start(), start(), body(b"")],
}


@pytest.mark.parametrize("said", WRONG_LENGTHS.values(), ids=WRONG_LENGTHS.keys())
async def test_an_application_is_held_to_what_it_says_of_its_answer(said, autojump_clock):
    async def app(scope, receive, send):
        for message in said:
            await send(message)

    async with serving(app) as served:
        peer = await Http2(await served.connect()).start()
        reset = await peer.until_stream(await peer.request(), h2.events.StreamReset)
        assert reset.error_code == h2.errors.ErrorCodes.INTERNAL_ERROR


@pytest.mark.parametrize("fields", [[b"x"], [b"+2"], [b"2", b"2"]])
async def test_a_length_that_is_none_is_not_said(fields, autojump_clock):
    async def app(scope, receive, send):
        await send(start(*[(b"content-length", value) for value in fields]))

    async with serving(app) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.status(stream_id) == "500"


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_an_answer_without_a_body_has_none_whatever_is_said(method, status, autojump_clock):
    async def app(scope, receive, send):
        await send(start(status=status))
        await send(body(b"no"))

    async with serving(app) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request(method)
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert (peer.status(stream_id), peer.bodies[stream_id]) == (str(status), b"")


@pytest.mark.parametrize("size", [0, 5, 16_384, 20_000])
async def test_an_application_has_a_body_that_comes_with_its_head(size, autojump_clock):
    async def app(scope, receive, send):
        said = b""
        while (message := await receive())["more_body"]:
            said += message["body"]
        await respond(send, said + message["body"])

    async with serving(app) as served:
        peer = await Http2(await served.connect()).start()
        stream_id, sent = peer.connection.get_next_available_stream_id(), b"x" * size
        peer.connection.send_headers(stream_id, head_of("POST", "/"))
        for at in range(0, size, 16_384):
            peer.connection.send_data(stream_id, sent[at : at + 16_384])
        peer.connection.end_stream(stream_id)
        peer.connection.send_headers(stream_id + 2, head_of("POST", "/"))
        peer.connection.send_data(stream_id + 2, sent[:16_384], end_stream=True)
        await peer.flush()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        await peer.until_stream(stream_id + 2, h2.events.StreamEnded)
        assert (peer.bodies[stream_id], peer.bodies[stream_id + 2]) == (sent, sent[:16_384])


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_waits_to_be_told_is_told_to_go_on_or_refused_at_once(reads):
    async def app(scope, receive, send):
        assert scope["type"] == "http"
        body = (await receive())["body"] if reads else b"no"
        await respond(send, body)

    async with serving(app, unread_body_timeout=60) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request(headers=head_of("POST", "/", ("expect", "100-continue")), end=False)
        if reads:
            await peer.until_stream(stream_id, h2.events.InformationalResponseReceived)
            await peer.send_data(stream_id, b"yes", end=True)
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.bodies[stream_id] == (b"yes" if reads else b"no")


async def test_the_end_of_the_connection_wakes_a_blocked_send():
    woken = trio.Event()

    async def floods(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(10**6), "more_body": True})
        woken.set()

    async with serving(floods) as served:
        stream = await served.connect()
        peer = await Http2(stream).start()
        peer.acknowledges = False
        stream_id = await peer.request()
        while len(peer.bodies[stream_id]) < 65_535:
            await peer.step()
        await stream.aclose()
        await woken.wait()


async def test_a_reset_by_the_client_tells_the_application():
    told = trio.Event()

    async def waits(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        assert (await receive())["type"] == "http.disconnect"
        told.set()

    async with serving(waits, keep_alive_timeout=0.05) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request()
        await peer.until_stream(stream_id, h2.events.ResponseReceived)
        peer.connection.reset_stream(stream_id)
        await peer.flush()
        await told.wait()
        await peer.until(lambda event: isinstance(event, h2.events.ConnectionTerminated))  # idle again
        await receive_all(peer.stream)  # and closed


async def test_a_connection_never_goes_dead():
    """Not past hypercorn's 1,000 requests; not after as many streams that said nothing and were reset; not while quiet."""
    speak = trio.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/":
            await respond(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await speak.wait()
            await send({"type": "http.response.body", "body": b"still there"})
        while (await receive())["type"] != "http.disconnect":
            pass

    counters = ServerCounters()
    async with serving(app, counters=counters, keep_alive_timeout=3600) as served:
        peer = await Http2(await served.connect()).start()
        quiet = await peer.request(path="/stream")
        await peer.until_stream(quiet, h2.events.ResponseReceived)
        for _ in range(22):
            many = [await peer.request() for _ in range(48)]
            reset = [await peer.request(path="/reset") for _ in range(48)]
            for stream_id in many:
                await peer.until_stream(stream_id, h2.events.StreamEnded)
                del peer.events[stream_id]
            for stream_id in reset:
                await peer.until_stream(stream_id, h2.events.ResponseReceived)
                peer.connection.reset_stream(stream_id)
                del peer.events[stream_id]
            await peer.flush()
        speak.set()
        await peer.until_stream(quiet, h2.events.StreamEnded)
        assert peer.bodies[quiet] == b"still there"
        assert (counters.accepted, counters.failed, counters.abusive, counters.refused) == (1, 0, 0, 0)


async def test_send_waits_for_a_window():
    sent = 0

    async def floods(scope, receive, send):
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while scope["path"] == "/flood":
            sent += 1
            await send({"type": "http.response.body", "body": bytes(10_000), "more_body": True})
        await send({"type": "http.response.body"})

    async with serving(floods, write_deadline=3600, drain_timeout=0) as served:
        peer = await Http2(await served.connect()).start()
        peer.acknowledges = False
        flood = await peer.request(path="/flood")
        while len(peer.bodies[flood]) < 65_535:
            await peer.step()
        for _ in range(10):  # other streams go on, and the flood has every chance to
            other = await peer.request()
            await peer.until_stream(other, h2.events.StreamEnded)
        assert sent <= (65_535 + 32 * 1024) // 10_000 + 2


async def test_a_stream_without_a_window_is_reset_after_the_write_deadline(caplog):
    told = trio.Event()

    async def floods(scope, receive, send):
        if scope["path"] == "/flood":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(10**6), "more_body": True})
            assert (await receive())["type"] == "http.request"
            assert (await receive())["type"] == "http.disconnect"
            told.set()
        else:
            await respond(send)

    async with serving(floods, write_deadline=0.1) as served:
        peer = await Http2(await served.connect()).start()
        peer.acknowledges = False
        stream_id = await peer.request(path="/flood")
        reset = await peer.until_stream(stream_id, h2.events.StreamReset)
        assert reset.error_code == h2.errors.ErrorCodes.CANCEL
        await told.wait()
        other = await peer.request(method="HEAD")  # the connection's window is used up
        await peer.until_stream(other, h2.events.StreamEnded)
        second = await peer.request(path="/flood")
        await peer.until_stream(second, h2.events.StreamReset)
    consequence = "a stream whose client accepted nothing for 0.1 s was reset"
    assert caplog.messages == [f"write_deadline was reached by 127.0.0.1: {consequence}"]


async def test_a_shutdown_lets_a_response_end():
    asked = trio.Event()

    class Slow:
        def __init__(self):
            self.go = trio.Event()

        async def __call__(self, scope, receive, send):
            assert scope["type"] == "http"
            asked.set()
            await self.go.wait()
            await respond(send, b"all of it")

        async def drain(self, seconds):
            self.go.set()

    async with serving(Slow()) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request()
        await asked.wait()
        served.shutdown.set()
        await peer.until_stream(stream_id, h2.events.StreamEnded)  # hypercorn's GOAWAY comes before it
        assert peer.bodies[stream_id] == b"all of it"


@pytest.mark.parametrize(("readiness", "tasks"), [(Readiness, 1), (Unwatched, 2)], ids=["turns", "tasks"])
async def test_a_quiet_connection_has_a_task_that_reads_only_where_it_cannot_be_polled(
    readiness, tasks, monkeypatch
):
    kept = []

    class Kept(Http2Connection):
        def __init__(self, *args):
            super().__init__(*args)
            kept.append(self)

    monkeypatch.setattr(acceptor, "Http2Connection", Kept)
    monkeypatch.setattr(connection, "Readiness", readiness)
    async with serving(hello) as served:
        peer = await Http2(await served.connect()).start()
        for _ in range(2):
            stream_id = await peer.request()
            await peer.until_stream(stream_id, h2.events.StreamEnded)
            assert peer.bodies[stream_id] == b"ok"
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(kept[0]._nursery.child_tasks) == tasks  # one of them writes
