"""More HTTP/2 streams than may be are refused, which harms nothing (hypercorn 0.18 ends the connection)."""

import h2.events
import trio
from h2.errors import ErrorCodes
from peers import Http2, serving

from mcpbus.serving import ServerCounters

LIMIT = 100  # hypercorn's, which is announced


class Gate:
    """An application that answers when it is let, and a client's disconnect notwithstanding if it is told so."""

    def __init__(self, *, stubborn=False):
        self.open = trio.Event()
        self.stubborn = stubborn
        self.called = 0

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        self.called += 1
        if self.stubborn:
            await self.open.wait()
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._leave, receive, nursery.cancel_scope)
                await self.open.wait()
                nursery.cancel_scope.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def _leave(self, receive, waiting):
        while (await receive())["type"] != "http.disconnect":
            pass
        waiting.cancel()


async def open_streams(peer, number, *, careful=True):
    """Begin that many requests in one write; a careless client does not look at the limit."""
    if not careful:
        peer.connection.remote_settings.update({3: 10**6})
        peer.connection.remote_settings.acknowledge()
    ids = []
    for _ in range(number):
        ids.append(peer.connection.get_next_available_stream_id())
        head = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "test")]
        peer.connection.send_headers(ids[-1], head, end_stream=True)
    await peer.flush()
    return ids


async def test_as_many_streams_as_may_be_are_all_served_again_and_again():
    app, counters = Gate(), ServerCounters()
    app.open.set()
    async with serving(app, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        assert peer.connection.remote_settings.max_concurrent_streams == LIMIT
        for _ in range(5):
            for stream_id in await open_streams(peer, LIMIT):
                await peer.until_stream(stream_id, h2.events.StreamEnded)
                # Its place is free as soon as its end has been seen.
        assert app.called == 5 * LIMIT
        assert counters.refused == 0


async def test_streams_beyond_the_limit_are_refused_and_those_within_are_served():
    app, counters = Gate(), ServerCounters()
    async with serving(app, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        ids = await open_streams(peer, LIMIT + 20, careful=False)
        for refused in ids[LIMIT:]:
            reset = await peer.until_stream(refused, h2.events.StreamReset)
            assert reset.error_code == ErrorCodes.REFUSED_STREAM
        assert app.called == LIMIT
        assert counters.refused == 20
        app.open.set()
        for stream_id in ids[:LIMIT]:
            await peer.until_stream(stream_id, h2.events.StreamEnded)
            assert peer.bodies[stream_id] == b"ok"
        again = await peer.request()
        await peer.until_stream(again, h2.events.StreamEnded)
        assert (counters.failed, counters.abusive, counters.refused) == (0, 0, 20)


async def test_a_place_is_free_again_when_its_stream_is_reset():
    app, counters = Gate(), ServerCounters()
    async with serving(app, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        ids = await open_streams(peer, LIMIT)
        peer.connection.reset_stream(ids[0])
        await peer.flush()
        app.open.set()
        again = await peer.request()
        await peer.until_stream(again, h2.events.StreamEnded)
        assert counters.refused == 0


async def test_an_application_that_does_not_leave_counts_on():
    """Otherwise a client could have any number of them by resetting its streams."""
    app, counters = Gate(stubborn=True), ServerCounters()
    async with serving(app, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        for _ in range(2):
            for stream_id in await open_streams(peer, LIMIT):
                peer.connection.reset_stream(stream_id)
            await trio.testing.wait_all_tasks_blocked()  # the streams are all begun before they are reset
            await peer.flush()
        late = await peer.request()
        reset = await peer.until_stream(late, h2.events.StreamReset)
        assert reset.error_code == ErrorCodes.REFUSED_STREAM
        assert app.called == 2 * LIMIT
        app.open.set()
        while app.called == 2 * LIMIT:
            await peer.request()
            await trio.testing.wait_all_tasks_blocked()


async def test_a_request_during_the_drain_is_refused_so_that_it_can_be_repeated_elsewhere():
    draining = trio.Event()

    class Draining(Gate):
        async def drain(self, seconds):
            draining.set()
            await trio.sleep_forever()

    app, counters = Draining(), ServerCounters()
    async with serving(app, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        (first,) = await open_streams(peer, 1)
        served.shutdown.set()
        await draining.wait()
        late = await peer.request()
        reset = await peer.until_stream(late, h2.events.StreamReset)
        assert reset.error_code == ErrorCodes.REFUSED_STREAM
        app.open.set()
        await peer.until_stream(first, h2.events.StreamEnded)
        assert counters.refused == 1
