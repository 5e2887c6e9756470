"""What a handler sees of the head that its request came with."""

import pytest
from staging import staged

from mcpbus import Context, SyncContext

OWN = {"X-Tenant": "acme", "authorization": "Bearer secret", "accept-language": "nb"}


def furnish(server):
    """Add tools that keep what they see, and return where."""
    seen = []

    @server.tool
    async def look(ctx: Context) -> None:
        seen.append(ctx.headers)

    @server.tool
    def glance(ctx: SyncContext) -> None:
        seen.append(ctx.headers)

    return seen


def call(name):
    params = {"name": name, "arguments": {}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.mark.parametrize("name", ["look", "glance"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_handler_sees_the_header_of_its_own_request(era, name, autojump_clock):
    async with staged() as stage:
        seen = furnish(stage.server)
        if era == "modern":
            post = stage.probe.request("tools/call", call(name)["params"], headers=OWN)
        else:
            session = await stage.probe.initialize(headers={"x-tenant": "the first"})
            post = stage.probe.post(call(name), {"mcp-session-id": session.id, **OWN})
        await post.reply()
        (headers,) = seen
        assert (headers["X-TENANT"], headers.get("accept-language")) == ("acme", "nb")
        assert headers.get("x-other") is None


async def test_it_does_not_see_what_proves_who_its_client_is(autojump_clock):
    async with staged() as stage:
        seen = furnish(stage.server)
        await stage.probe.request("tools/call", call("look")["params"], headers=OWN).reply()
        assert "authorization" not in seen[0]
        assert "secret" not in str(dict(seen[0]))


@pytest.mark.parametrize("way", ["in process", "a shared channel", "a batch"])
async def test_there_is_none_where_the_request_came_otherwise(way, autojump_clock):
    async with staged() as stage:
        seen = furnish(stage.server)
        if way == "in process":
            async with stage.bus.connect() as client:
                await client.call_tool("look")
        elif way == "a shared channel":
            async with stage.wire("2025-11-25") as wire:
                await wire.say("tools/call", call("look")["params"], 1)
                await stage.quiet()
        else:
            session = await stage.probe.initialize("2025-03-26")
            await stage.probe.post([call("look")], {"mcp-session-id": session.id, **OWN}).ended()
        assert [dict(headers) for headers in seen] == [{}]
