"""What `mcpbus` exports: all that an author's annotations need, and one class of one name."""

import mcpbus
from mcpbus.testing import open_client


def test_what_is_exported_is_there():
    assert len(set(mcpbus.__all__)) == len(mcpbus.__all__)
    assert all(hasattr(mcpbus, name) for name in mcpbus.__all__)


async def test_what_an_author_meets_is_of_the_exported_types(autojump_clock):
    met = {}

    async def middleware(invocation: mcpbus.Invocation, call_next: mcpbus.CallNext) -> object:
        met["invocation"] = invocation
        return await call_next(invocation)

    async def who(ctx: mcpbus.Context) -> str:
        met["info"] = ctx.client
        return "somebody"

    wrapped: list[mcpbus.Middleware] = [middleware]
    server = mcpbus.Server("s", middleware=wrapped)
    made = server.add_tool(mcpbus.tool(who, title="Who"))
    async with open_client(server) as client:
        await client.call_tool("who")
    assert type(made) is mcpbus.Tool
    assert type(client) is mcpbus.Client
    assert type(met["info"]) is mcpbus.ClientInfo
    assert type(met["invocation"]) is mcpbus.Invocation
