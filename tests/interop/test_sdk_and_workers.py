"""The official SDK's client and three workers, each request on a connection of its own; the one that has its session is killed."""

import os
import signal
from contextlib import suppress

import httpx2
import trio
from mcp import MCPError, types
from mcp.client.streamable_http import streamable_http_client
from sdk_client import DEADLINE, TOLERATED, connected

from tests.at_home import OWN_PROCESSES
from tests.interop.running_workers import workers

pytestmark = [TOLERATED, OWN_PROCESSES]

ABLE = types.ClientCapabilities(
    elicitation=types.ElicitationCapability(form=types.FormElicitationCapability())
)
ADA = types.ElicitResult(action="accept", content={"name": "Ada"})


async def answer(_context, _params):
    await trio.lowlevel.checkpoint()
    return ADA


async def say(link, tool, **arguments):
    result = await link.call(tool, **arguments)
    assert not result.is_error, result
    return result.content[0].text


async def say_when_it_can(link, tool):
    """Call a tool that changes nothing, again if the process that ran it was just being killed."""
    while True:
        with suppress(MCPError):
            return await say(link, tool)


def changes(link):
    return sum(isinstance(said, types.ToolListChangedNotification) for said in link.heard.messages)


async def test_a_session_outlives_the_worker_that_has_it(monkeypatch):
    monkeypatch.setattr("mcp.client.streamable_http.DEFAULT_RECONNECTION_DELAY_MS", 20)
    one_each = httpx2.Limits(max_keepalive_connections=0)
    with trio.fail_after(DEADLINE):
        async with workers(3) as url, httpx2.AsyncClient(limits=one_each, timeout=DEADLINE) as http:
            streams = streamable_http_client(url, http_client=http)
            async with connected(
                "http", streams, "2025-11-25", capabilities=ABLE, elicitation_callback=answer
            ) as link:
                owners = {int(await say(link, "where")) for _ in range(8)}
                assert len(owners) == 1, "wherever a call comes, it is served where its session is"
                assert await say(link, "ask_person") == 'accepted {"name":"Ada","age":30,"size":"small"}'
                await link.call("grow", name="grown_before")
                await link.heard.until(lambda _: changes(link) == 1)
                (owner,) = owners
                os.kill(owner, signal.SIGKILL)
                assert int(await say_when_it_can(link, "where")) != owner
                await link.heard.until(lambda _: changes(link) >= 2)  # of all that may have changed
                assert await say(link, "ask_person") == 'accepted {"name":"Ada","age":30,"size":"small"}'
