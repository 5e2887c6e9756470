"""The official SDK's client leaves while a call of its own is pending."""

import pytest
import trio
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from sdk_client import DEADLINE, LEGACY, TOLERATED, handshake, served

from mcpbus import Server

pytestmark = TOLERATED


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_client_leaves_with_a_call_pending_and_nobody_fails(revision, caplog):
    server, running, ended, faults = Server("waiting"), trio.Event(), trio.Event(), []

    @server.tool
    async def wait() -> str:
        running.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async def call(session):
        with pytest.raises(MCPError) as caught:
            await session.call_tool("wait")
        faults.append(str(caught.value))

    with trio.fail_after(DEADLINE):
        async with served(server) as place, trio.open_nursery() as nursery:
            async with streamable_http_client(place.url) as streams, ClientSession(*streams) as session:
                await handshake(session, revision)
                nursery.start_soon(call, session)
                await running.wait()
            await ended.wait()
    assert faults == ["Connection closed"], "its own, of its leaving: nothing that the server said"
    assert caplog.records == []
