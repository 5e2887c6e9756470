"""The official SDK's client and the bus that serves it, seen from both ends."""

from contextlib import AsyncExitStack

import pytest
import trio
from mcp import Client, MCPError, types
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged
from sdk_client import DEADLINE, LEGACY, MODERN, TOLERATED, served, stdio_program, to_url

from mcpbus import DELIVERED, Reason

pytestmark = TOLERATED


async def quiet(bus, actors=0, requests=0):
    """Wait until so many actors and requests are left, and return what the bus then counts."""
    while (counted := bus.statistics()).actors > actors or counted.requests > requests:
        await trio.lowlevel.checkpoint()
    return counted


@pytest.mark.parametrize(("mode", "revision"), [("auto", MODERN), ("legacy", LEGACY[-1]), (MODERN, MODERN)])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_the_high_level_client_in_each_of_its_modes(mode, revision, transport):
    async with served() as server:
        async with Client(server.url if transport == "http" else stdio_program(), mode=mode) as client:
            assert client.protocol_version == revision
            assert (await client.call_tool("add", {"a": 1})).content[0].text == "2"
            # A client that was told the revision asks nobody, and knows nothing of the server.
            assert (client.server_info is None) == (mode == MODERN)
        assert (await quiet(server.bus)).sessions == 0


async def test_the_client_relists_and_resends_a_call_whose_mirrored_header_it_missed():
    async with served() as server, Client(server.url) as client:
        assert (await client.call_tool("mirror", {"region": "north"})).content[0].text == "north"


async def test_one_change_reaches_clients_of_all_revisions_once_each():
    async with (
        served() as server,
        to_url(server.url, MODERN) as modern,
        modern.listen(tools_list_changed=True) as changes,
        AsyncExitStack() as stack,
    ):
        links = [await stack.enter_async_context(to_url(server.url, revision)) for revision in LEGACY]
        assert await server.bus.tools_changed().settled(DEADLINE) == {DELIVERED: 5}
        assert await anext(changes) == ToolsListChanged()
        for link in links:
            await link.heard.of(types.ToolListChangedNotification)
            assert len(link.heard.messages) == 1


@pytest.mark.parametrize("revision", LEGACY)
async def test_what_no_request_caused_reaches_a_legacy_client_on_its_get_stream(revision):
    async with served() as server, to_url(server.url, revision) as link:
        await server.bus.tools_changed().settled()  # held until the client's GET stream is there
        (session,) = server.bus.sessions.values()
        assert session.revision.name == revision
        assert await session.log("error", "disk full", logger="disk").settled() == DELIVERED
        said = (await link.heard.of(types.LoggingMessageNotification)).params
        assert (said.level, said.logger, said.data) == ("error", "disk", "disk full")


class Hanging:
    """A call that hangs until its client goes."""

    def __init__(self):
        self.running = trio.Event()

    async def progress(self, *_):
        self.running.set()
        await trio.lowlevel.checkpoint()

    async def run(self, link):
        with pytest.raises((MCPError, trio.Cancelled)) as ended:
            await link.call("hang", progress=self.progress, name="left")
        if ended.type is trio.Cancelled:
            raise ended.value


@pytest.mark.parametrize("revision", [LEGACY[-1], MODERN])
async def test_nothing_is_left_of_a_client_that_left_in_order(revision):
    async with served() as server:
        async with trio.open_nursery() as nursery, to_url(server.url, revision) as link:
            call = Hanging()
            nursery.start_soon(call.run, link)
            await call.running.wait()
        left = await quiet(server.bus)
        assert (left.sessions, left.requests) == (0, 0)
        assert left.emitted == left.delivered + sum(left.discarded.values())


@pytest.mark.parametrize(("revision", "left"), [(LEGACY[-1], (1, 1)), (MODERN, (0, 0))])
async def test_a_client_that_is_cancelled_leaves_without_a_word(revision, left):
    """The SDK's DELETE is not shielded from the cancellation that ends the client. So a legacy session stays until it
    was idle for too long, with its request: a lost connection is no cancellation. In the modern era it is one.
    """
    async with served() as server:
        async with trio.open_nursery() as nursery:
            call = Hanging()

            async def client():
                async with to_url(server.url, revision) as link:
                    await call.run(link)

            nursery.start_soon(client)
            await call.running.wait()
            nursery.cancel_scope.cancel()
        # What stays are the session, the request and its call; the streams go.
        counted = await quiet(server.bus, actors=3 if any(left) else 0, requests=left[1])
        assert (counted.sessions, counted.requests) == left


async def test_a_drain_ends_a_listen_with_its_result():
    """For the client that is the graceful end: its iteration ends, and it does not report a loss."""
    async with (
        served() as server,
        to_url(server.url, MODERN) as link,
        link.listen(tools_list_changed=True) as changes,
    ):
        server.bus.tools_changed()
        await server.bus.drain(0)
        assert [change async for change in changes] == [ToolsListChanged()]


async def test_a_listen_that_breaks_off_is_reported_as_lost():
    async with (
        served() as server,
        to_url(server.url, MODERN) as link,
        link.listen(resource_subscriptions=["a://b"]) as changes,
    ):
        server.bus.resource_updated("a://b/c")
        assert await anext(changes) == ResourceUpdated(uri="a://b/c")
        server.stop()
        with pytest.raises(SubscriptionLost):
            await anext(changes)


async def test_a_session_that_the_server_closed_is_reported_by_the_next_request():
    async with served() as server, to_url(server.url, LEGACY[-1]) as link:
        (session,) = server.bus.sessions.values()
        session.close()
        with pytest.raises(MCPError, match="Session not found"):
            await link.call("add", a=1)


async def test_a_call_in_flight_is_answered_when_the_server_closes_the_session():
    async with served() as server, to_url(server.url, LEGACY[-1]) as link:
        (session,) = server.bus.sessions.values()

        async def progress(*_):
            session.close()
            await trio.lowlevel.checkpoint()

        with pytest.raises(MCPError, match="closed by the server") as caught:
            await link.call("hang", progress=progress, name="closed")
        assert caught.value.code == types.INTERNAL_ERROR


@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
async def test_stateless_serving(revision):
    """No session, no GET stream; the client asks for one all the same, is refused with 405, and gives up."""
    seen = []

    async def progress(*said):
        seen.append(said[0])
        await trio.lowlevel.checkpoint()

    async with served(sessions="stateless") as server, to_url(server.url, revision) as link:
        assert (link.session.server_capabilities.logging is None) == (revision != MODERN)
        assert (await link.call("blocking", progress=progress)).content[0].text == "from a thread"
        assert seen == [1, 2]
        assert server.bus.statistics().sessions == 0


@pytest.mark.parametrize("revision", [LEGACY[0], LEGACY[-1], MODERN])
async def test_json_answers_leave_progress_out_and_say_so(revision):
    async def progress(*_):
        raise AssertionError("there is no stream for progress")

    async with served(response="json") as server, to_url(server.url, revision) as link:
        assert (await link.call("blocking", progress=progress)).content[0].text == "from a thread"
        assert server.bus.statistics().discarded == {Reason.NO_STREAM: 2}
