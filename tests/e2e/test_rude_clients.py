"""Clients that break off, hang up, or trickle: what they leave behind is nothing, and nobody else notices."""

import pytest
import trio
from wire import LEGACY, MODERN, call, message, modernized, serving

from mcpbus import Context, Limits, Server
from tests.at_home import ACTORS


def make_server():
    server = Server("rude")
    server.running, server.cancelled, server.release = trio.Event(), trio.Event(), trio.Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)
        server.running.set()
        try:
            await server.release.wait()
        except trio.Cancelled:
            server.cancelled.set()
            raise
        return "released"

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def start_waiting(served, peer, era):
    """Begin a call that has said something, so that its answer is a stream; returns the session's headers."""
    if era == MODERN:
        await peer.send(*modernized(call("wait", id=1, token="t")))
        session = {}
    else:
        session = await (await served.peer()).open_session()
        await peer.send(call("wait", id=1, token="t"), session)
    await peer.head()
    assert (await peer.said())["params"]["progress"] == 1
    return session


# A client that has closed its connection looks the same as one that has only ended its own half; so the end of what it
# sends is the end of it.
BREAKS = ["reset", "half-close"]


async def break_off(peer, how):
    if how == "reset":
        peer.reset()
    else:
        await peer.stream.send_eof()


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
@pytest.mark.parametrize("how", BREAKS)
async def test_a_client_that_has_sent_much_ahead_is_missed_all_the_same(how, accept):
    """While its call runs, the lane reads no more than 64 KiB of what comes after it, and knows all the same when its client has left."""
    server = make_server()
    async with serving(server) as served:
        peer = await served.peer()
        body, headers = modernized(call("wait", id=1, token="t"))
        await peer.stream.send_all(peer.request(body, headers | {"accept": accept}))
        await server.running.wait()
        ping, headers = modernized(message("tools/list", id=2))
        ahead = (await served.peer()).request(ping, headers)
        await peer.stream.send_all(ahead * (100_000 // len(ahead)))
        await break_off(peer, how)
        await server.cancelled.wait()
        left = await served.quiet()
        assert left.requests == 0


@pytest.mark.parametrize("how", BREAKS)
async def test_a_modern_request_is_cancelled_when_its_client_breaks_off(how):
    server = make_server()
    async with serving(server) as served:
        peer = await served.peer()
        await start_waiting(served, peer, MODERN)
        await break_off(peer, how)
        await server.cancelled.wait()
        assert (await served.quiet()).requests == 0


@pytest.mark.parametrize("how", BREAKS)
async def test_a_modern_request_that_has_said_nothing_is_cancelled_too(how):
    server, started, cancelled = make_server(), trio.Event(), trio.Event()

    @server.tool
    async def brood() -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with serving(server) as served:
        peer = await served.peer()
        await peer.send(*modernized(call("brood", id=1)))
        await started.wait()
        await break_off(peer, how)
        await cancelled.wait()
        assert (await served.quiet()).requests == 0


@ACTORS
@pytest.mark.parametrize("how", BREAKS)
async def test_a_legacy_request_runs_on_when_its_client_breaks_off(how):
    server = make_server()
    async with serving(server) as served:
        peer, other = await served.peer(), await served.peer()
        session = await start_waiting(served, peer, LEGACY)
        await break_off(peer, how)
        await served.quiet(3)  # the session, the request and its call; the stream has gone
        assert not server.cancelled.is_set()
        assert (await other.exchange(message("ping", id=2), session)).status == 200
        server.release.set()
        assert (await served.quiet(1)).requests == 0
        assert not server.cancelled.is_set()


async def test_what_an_abandoned_legacy_request_may_cost_is_bounded():
    server = make_server()
    async with serving(server, limits=Limits(abandoned_timeout=0.1)) as served:
        peer = await served.peer()
        await start_waiting(served, peer, LEGACY)
        peer.reset()
        await server.cancelled.wait()
        assert (await served.quiet(1)).requests == 0


@pytest.mark.parametrize("how", BREAKS)
async def test_a_get_stream_that_breaks_off_leaves_the_session(how):
    async with serving(make_server()) as served:
        peer, gone = await served.peer(), await served.peer()
        session = await peer.open_session()
        await gone.send(None, session, verb="GET")
        await gone.head()
        await gone.next()
        await break_off(gone, how)
        await served.quiet(1)
        # What is said meanwhile is held for the next one.
        receipts = served.bus.tools_changed()
        assert not any(receipt.fate for receipt in receipts)
        again = await served.peer()
        await again.send(None, session, verb="GET")
        await again.head()
        assert (await again.said())["method"] == "notifications/tools/list_changed"


async def test_a_request_that_comes_byte_by_byte():
    async with serving(make_server()) as served:
        peer, other = await served.peer(), await served.peer()
        data = peer.request(*modernized(call("echo", {"text": "slowly"}, id=1)))
        for n in range(len(data)):
            await peer.stream.send_all(data[n : n + 1])
            if n % 50 == 0:
                assert (await other.modern(call("echo", {"text": "hi"}, id=1))).status == 200
        assert (await peer.response()).json["result"]["content"][0]["text"] == "slowly"


@pytest.mark.parametrize("part", [10, -10])
@pytest.mark.parametrize("how", BREAKS)
async def test_a_request_that_breaks_off_allocates_nothing(part, how):
    """In its head, or in its body."""
    async with serving(make_server()) as served:
        peer = await served.peer()
        data = peer.request(*modernized(call("wait", id=1)))
        await peer.stream.send_all(data[:part])
        await break_off(peer, how)
        other = await served.peer()
        assert (await other.modern(call("echo", {"text": "hi"}, id=1))).status == 200
        assert (await served.quiet()).emitted == 1  # the reply to the other one


async def test_requests_sent_in_one_go_are_answered_in_order():
    async with serving(make_server()) as served:
        peer = await served.peer()
        session = await peer.open_session()
        one = peer.request(call("echo", {"text": "one"}, id=1), session)
        twice = one + one.replace(b'"one"', b'"two"')
        await peer.stream.send_all(twice)
        assert (await peer.response()).json["result"]["content"][0]["text"] == "one"
        peer.next_response()
        assert (await peer.response()).json["result"]["content"][0]["text"] == "two"


async def test_the_newer_get_stream_takes_over():
    async with serving(make_server()) as served:
        peer, old, new = [await served.peer() for _ in range(3)]
        session = await peer.open_session()
        for stream in (old, new):
            await stream.send(None, session, verb="GET")
            await stream.head()
            await stream.next()
        assert await old.said() is None  # it has come to its end
        served.bus.tools_changed()
        assert (await new.said())["method"] == "notifications/tools/list_changed"


async def test_delete_ends_what_the_session_has_open():
    server = make_server()
    async with serving(server) as served:
        peer, other, get = [await served.peer() for _ in range(3)]
        session = await start_waiting(served, peer, LEGACY)
        await get.send(None, session, verb="GET")
        await get.head()
        assert (await other.exchange(None, session, verb="DELETE")).status == 204
        assert await get.said() is None
        assert await peer.said() is None  # silently: the client asked for it
        await server.cancelled.wait()
        assert (await other.exchange(message("ping", id=1), session)).status == 404
        assert (await served.quiet()).sessions == 0
