"""Servers of version 1 of the official SDK, of FastMCP 2 or 3 and of fastapi_mcp, hosted: each of them in both eras."""

import logging
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import fastmcp
import pytest
import trio

import mcpbus
from mcpbus import ProtocolError
from mcpbus.hosting.detect import find
from mcpbus.testing import open_probe
from tests.hosting.fixtures import LEGACY, MODERN

sys.path.insert(0, str(Path(__file__).parent))

import old

pytestmark = pytest.mark.filterwarnings("ignore")


async def answer(method, _params):
    if method == "roots/list":
        return {"roots": [{"uri": "file:///home"}]}
    return {"action": "accept", "content": {"name": "Ada"}}


@asynccontextmanager
async def hosted(server, revision, loop):
    capabilities = {"elicitation": {}, "roots": {}}
    async with (
        mcpbus.host(server, loop=loop).open() as bus,
        bus.connect(revision=revision, capabilities=capabilities, on_input_request=answer) as client,
    ):
        client.bus = bus
        yield client


async def text(client, tool, said=None, **arguments):
    result = await client.call_tool(
        tool,
        arguments,
        on_notification=None if said is None else lambda *each: said.append(each),
        log_level="debug",
    )
    return result["content"][0]["text"]


def test_each_kind_is_found():
    families = [find(server).family for server in (old.official, old.third, old.from_api)]
    assert families == ["FastMCP of the official SDK", "FastMCP", "fastapi_mcp"]


async def test_lists_calls_and_descriptions(revision, loop):
    async with hosted(old.official, revision, loop) as client:
        described = await client.describe()
        assert (described.name, described.instructions) == ("official", "An old one.")
        assert client.revision.name == revision
        assert "add" in {tool["name"] for tool in await client.list_tools()}
        assert await text(client, "add", a=1, b=2) == "3"
        with pytest.raises(ProtocolError):
            await client.request("resources/read", {"uri": "nothing://here"})


async def test_stray_messages_progress_and_elicitations_come_within_the_call(revision, loop):
    async with hosted(old.official, revision, loop) as client:
        said = []
        assert await text(client, "stray", said) == "1 roots"
        assert said == [("notifications/message", {"level": "info", "data": "without a related id"})]
        said.clear()
        assert await text(client, "work", said) == "done"
        assert [params["progress"] for _, params in said] == [1, 2, 3]
        assert await text(client, "ask") == "Ada"
        assert len(client.bus.parked_calls) == 0


async def test_fastmcp(revision, loop):
    if loop == "trio" and fastmcp.__version__.startswith("2."):
        with pytest.raises(RuntimeError, match=r'its code uses asyncio .*: host it with loop="asyncio"'):
            async with hosted(old.third, revision, loop):
                pass
        return
    async with hosted(old.third, revision, loop) as client:
        assert await text(client, "plus", a=1, b=2) == "3"
        assert await text(client, "ask_third") == "Ada"


async def test_fastapi_mcp_sends_its_lines_while_the_tool_runs(revision):
    said = []
    async with hosted(old.from_api, revision, "asyncio") as client:

        def note(_method, params):
            said.append((params["data"], trio.current_time()))

        await client.call_tool("sum", {"a": 1, "b": 2}, on_notification=note, log_level="debug")
        ended = trio.current_time()
    assert [data for data, _ in said] == ["line 0", "line 1", "line 2"]
    assert ended - said[0][1] > 0.2, "the first line came long before the result"


async def test_a_tool_sees_the_request(revision, loop):
    async with mcpbus.host(old.official, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        headers = {"x-trace": "t1"}
        caller = probe if revision == MODERN else await probe.initialize(headers=headers)
        given = {"headers": headers} if revision == MODERN else {}
        reply = await caller.request("tools/call", {"name": "header", "arguments": {}}, **given).reply()
        assert reply["result"]["content"][0]["text"] == "t1"


async def test_a_cancelled_call_is_cancelled_in_the_server(loop):
    old.cancelled.clear()
    async with mcpbus.host(old.official, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        call = session.request("tools/call", {"name": "sleep", "arguments": {}}, id="a")
        with trio.move_on_after(0.5):
            await call.ended()
        await session.notify("notifications/cancelled", {"requestId": "a"}).ended()
        with trio.fail_after(10):
            while not old.cancelled:
                await trio.lowlevel.checkpoint()


async def test_a_server_that_exits_harms_no_other_client(caplog):
    async with mcpbus.host(old.official).open() as bus, open_probe(bus.asgi()) as probe:
        victim, other = await probe.initialize(), await probe.initialize()
        with caplog.at_level(logging.CRITICAL):
            reply = await victim.request("tools/call", {"name": "boom", "arguments": {}}).reply()
        assert reply["error"]["code"] == -32603
        add = {"name": "add", "arguments": {"a": 1, "b": 2}}
        reply = await other.request("tools/call", add).reply()
        assert reply["result"]["content"][0]["text"] == "3"


async def test_pipes_are_lent_again_and_closed_with_the_server(loop):
    async with hosted(old.official, MODERN, loop) as client:
        for _ in range(5):
            await text(client, "add", a=1, b=2)
        assert len(client.bus.backend._idle) == 1
        assert len(client.bus.backend._open) == 1
        backend = client.bus.backend
    assert not backend._open


async def test_the_pipe_of_a_session_ends_with_it(loop):
    async with mcpbus.host(old.official, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        assert len(bus.backend._open) == 1
        await session.delete().ended()
        with trio.fail_after(10):
            while bus.backend._open:
                await trio.lowlevel.checkpoint()


async def idle(bus):
    """Look for idle pipes twice, as after five minutes."""
    for _ in range(2):
        await bus.backend._home.run(bus.backend._sweep)


async def test_an_idle_session_begins_again_with_what_its_client_has_told(loop):
    async with mcpbus.host(old.lowlevel, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        stream = session.get()
        await session.request("resources/subscribe", {"uri": "note://a"}).reply()
        await session.request("logging/setLevel", {"level": "error"}).reply()
        await session.request("tools/list").reply()
        old.told.clear()
        await idle(bus)
        assert not bus.backend._open
        line = partial(old.kept[-1].send_log_message, "error", "from a session that was kept")
        await bus.backend._home.run(line)
        assert (await stream.message())["params"]["data"] == "from a session that was kept"
        assert (await session.request("tools/list").reply())["result"] == {"tools": []}
        assert old.told == ["note://a", "error"]
        assert len(bus.backend._open) == 1


async def test_a_session_stays_open_whose_server_may_store_state_in_it():
    assert find(old.official).has_like_sessions
    assert find(old.third).has_like_sessions
    async with mcpbus.host(old.with_lifespan).open() as bus, open_probe(bus.asgi()) as probe:
        await probe.initialize()
        await idle(bus)
        assert len(bus.backend._open) == 1
    async with hosted(old.official, LEGACY, "asyncio") as client:  # a connection that is the session
        await idle(client.bus)
        assert len(client.bus.backend._open) == 1


@pytest.mark.parametrize("used", [False, True])
async def test_a_pipe_is_idle_after_150_to_300_seconds(autojump_clock, used):
    async with mcpbus.host(old.official, loop="trio").open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        add = {"name": "add", "arguments": {"a": 1, "b": 2}}
        [pipe] = bus.backend._open
        for _ in range(4):
            await trio.sleep(76)
            if used:
                await session.request("tools/call", add).reply()
        assert (pipe in bus.backend._open) is used
        assert (await session.request("tools/call", add).reply())["result"]["content"][0]["text"] == "3"
        assert len(bus.backend._open) == 1


async def test_a_session_whose_server_exited_begins_again(caplog):
    async with mcpbus.host(old.official).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        for tool in ("boom", "add"):
            call = {"name": tool, "arguments": {"a": 1, "b": 2}}
            reply = await session.request("tools/call", call).reply()
        assert reply["result"]["content"][0]["text"] == "3"


async def test_header_fields_that_repeat_arguments_are_compared_with_the_last_list(loop):
    async with mcpbus.host(old.official, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        await probe.request("tools/list").reply()
        call = {"name": "region", "arguments": {"name": "north"}}
        refused = await probe.request("tools/call", call, headers={"mcp-param-region": "south"}).ended()
        assert (refused.status, refused.messages[0]["error"]["code"]) == (400, -32020)
        reply = await probe.request("tools/call", call, headers={"mcp-param-region": "north"}).reply()
        assert reply["result"]["content"][0]["text"] == "north"


async def test_a_tool_that_uses_asyncio_on_trio_is_named_with_the_cure(caplog):
    async with hosted(old.official, MODERN, "trio") as client:
        assert "no running event loop" in await text(client, "of_asyncio")
    assert 'official runs on trio, and its code uses asyncio: host it with loop="asyncio"' in caplog.messages
