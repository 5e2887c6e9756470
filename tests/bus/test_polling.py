"""A legacy client that is told to come back, and does so before there is anything to come back for."""

import math

import pytest
import trio

from mcpbus import Context, Server
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import open_probe, wait_until_idle


async def test_a_client_that_comes_back_before_the_first_event_waits_for_it(autojump_clock):
    server, release = Server("s"), trio.Event()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.close_stream(retry=0.5)
        await release.wait()
        await ctx.info("going on")
        return "done"

    async with server.open(event_store=MemoryEventStore()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25")
        post = await session.request("tools/call", {"name": "tool"}, id=7).ended()
        [primed] = post.event_ids
        assert (post.messages, b"retry: 500" in post.body) == ([], True)
        headers = {"accept": "text/event-stream", "mcp-session-id": session.id, "last-event-id": primed}
        get = await probe.send("GET", headers=headers).begun()
        assert get.status == 200
        await wait_until_idle(bus)
        assert get.messages == []
        release.set()
        await get.ended()
        assert [message.get("method", message.get("id")) for message in get.messages] == [
            "notifications/message",
            7,
        ]
        assert bus.statistics().requests == 0


async def test_an_event_that_is_still_to_come_cannot_be_gone_on_from(autojump_clock):
    server = Server("s")

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.close_stream()
        await trio.sleep(5)
        return "done"

    async with server.open(event_store=MemoryEventStore()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25")
        post = await session.request("tools/call", {"name": "tool"}, id=7).ended()
        [primed] = post.event_ids
        headers = {"accept": "text/event-stream", "mcp-session-id": session.id}
        later = primed.replace(".0", ".1")
        assert (await probe.send("GET", headers={**headers, "last-event-id": later}).ended()).status == 400
        # Whoever guessed wrong has taken nothing from whoever knows.
        get = await probe.send("GET", headers={**headers, "last-event-id": primed}).ended()
        assert [message["id"] for message in get.messages] == [7]


async def test_a_client_that_takes_no_events_is_not_told_to_come_back(autojump_clock):
    server = Server("s")

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.close_stream(retry=0.5)
        await trio.sleep(5)
        return "done"

    async with (
        server.open(event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi(response="json")) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = await session.request("tools/call", {"name": "tool"}, id=7).ended()
        assert (post.status, post.headers["content-type"]) == (200, "application/json")
        assert [message["id"] for message in post.messages] == [7]


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18"])
@pytest.mark.parametrize("retry", [-1, -0.001, math.inf, math.nan, 2.0**53, "1", True])
async def test_a_client_is_not_told_to_come_back_after_what_is_no_time(retry, revision, autojump_clock):
    server, refused = Server("s"), []

    @server.tool
    async def tool(ctx: Context) -> str:
        try:
            await ctx.close_stream(retry)
        except (TypeError, ValueError) as error:
            refused.append(str(error))
        return "done"

    async with server.open(event_store=MemoryEventStore()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(revision)
        reply = await session.request("tools/call", {"name": "tool"}).reply()
        assert reply["result"]["content"] == [{"type": "text", "text": "done"}]
    assert [text.partition(" a number")[0] for text in refused] == ["close_stream(): retry is"]
