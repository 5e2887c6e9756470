"""Tools that close the streams of their client: it reconnects, as on the SDK's own transport with an event store."""

import threading

import anyio
import pytest
from mcp.server.mcpserver import Context, MCPServer

import mcpbus
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import open_probe, wait_until_idle

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture
def closing():
    mcp = MCPServer("closing")
    mcp.released = threading.Event()

    @mcp.tool()
    async def poll(ctx: Context) -> str:
        await ctx.session.send_log_message("info", "before", related_request_id=ctx.request_id)
        await ctx.close_sse_stream()
        await anyio.to_thread.run_sync(mcp.released.wait, 10)
        await ctx.session.send_log_message("info", "after", related_request_id=ctx.request_id)
        return "done"

    @mcp.tool()
    async def hang_up(ctx: Context) -> bool:
        await ctx.close_standalone_sse_stream()
        return ctx.request_context.close_standalone_sse_stream is not None

    @mcp.tool()
    async def later(ctx: Context) -> str:
        await ctx.session.send_tool_list_changed()
        return "done"

    return mcp


def call(session, tool):
    return session.request("tools/call", {"name": tool, "arguments": {}}, id=7)


def said(recording):
    return [message.get("params", {}).get("data", message.get("id")) for message in recording.messages]


async def test_a_tool_closes_the_stream_of_its_request_and_the_rest_is_fetched(closing, loop):
    async with (
        mcpbus.host(closing, loop=loop).open(event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = await call(session, "poll").ended()
        assert said(post) == ["before"]
        closing.released.set()
        assert said(await session.get(post.event_ids[-1]).ended()) == ["after", 7]


async def test_a_tool_closes_the_get_stream_and_the_rest_is_fetched(closing, loop):
    async with (
        mcpbus.host(closing, loop=loop).open(event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        get = await session.get().begun()
        await wait_until_idle(bus)
        assert (await call(session, "hang_up").reply())["result"]["structuredContent"] == {"result": True}
        await get.ended()
        await call(session, "later").reply()
        resumed = await session.get(get.event_ids[-1]).begun()
        assert (await resumed.message())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize(("revision", "store"), [("2025-11-25", None), ("2025-06-18", MemoryEventStore)])
async def test_streams_that_could_not_be_resumed_stay_open(closing, revision, store, loop):
    event_store = None if store is None else store()
    async with (
        mcpbus.host(closing, loop=loop).open(event_store=event_store) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize(revision)
        closing.released.set()
        assert said(await call(session, "poll").ended()) == ["before", "after", 7]
        assert (await call(session, "hang_up").reply())["result"]["structuredContent"] == {"result": False}
