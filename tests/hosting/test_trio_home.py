"""Servers that use asyncio, hosted on trio by mistake: an error names the cause and the cure."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from hosted_clients import hosted
from mcp.server.mcpserver import MCPServer

import mcpbus
from tests.hosting.fixtures import MODERN

HINT = 's runs on trio, and its code uses asyncio: host it with loop="asyncio"'


async def sleep_not() -> str:
    await asyncio.sleep(0)
    return "done"


async def use_the_loop() -> str:
    asyncio.get_running_loop()
    return "done"


async def fail() -> str:
    raise ValueError("asyncio has nothing to do with it")


@pytest.mark.parametrize("tool", [sleep_not, use_the_loop])
async def test_a_tool_that_uses_asyncio_is_named_once_with_the_cure(tool, caplog):
    mcp = MCPServer("s")
    mcp.add_tool(tool)
    mcp.add_tool(fail)
    async with hosted(mcp, MODERN, "trio") as client:
        assert (await client.call_tool("fail"))["isError"] is True
        assert HINT not in caplog.messages
        for _ in range(2):
            assert (await client.call_tool(tool.__name__))["isError"] is True
    assert caplog.messages.count(HINT) == 1
    async with hosted(mcp, MODERN, "asyncio") as client:
        assert (await client.call_tool(tool.__name__))["structuredContent"] == {"result": "done"}


async def test_a_lifespan_that_uses_asyncio_fails_with_the_cure():
    @asynccontextmanager
    async def lifespan(_server):
        asyncio.get_running_loop()
        yield {}

    with pytest.raises(RuntimeError, match=r's does not open on trio, .*: host it with loop="asyncio"'):
        async with mcpbus.host(MCPServer("s", lifespan=lifespan), loop="trio").open():
            pass
