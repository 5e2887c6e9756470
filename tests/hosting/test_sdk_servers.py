"""Servers of the official SDK, hosted on both loops, with clients of both eras: what their authors write reaches its client."""

import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import anyio
import pytest
import trio
from hosted_clients import hosted, said_in, server_of
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    ListToolsResult,
    SubscribeRequestParams,
    TextContent,
)

import mcpbus
from mcpbus import ProtocolError, Reason
from mcpbus.asyncio import to_asyncio
from mcpbus.hosting.detect import find, is_foreign
from mcpbus.testing import open_probe, wait_until_idle
from tests.hosting.fixtures import LEGACY, MODERN

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture
def notes():
    return server_of("notes")


async def test_lists_and_descriptions_are_the_servers_own(notes, loop, revision):
    async with hosted(notes, revision, loop) as client:
        described = await client.describe()
        assert (described.name, described.version, described.instructions) == (
            "notes",
            "1.2.3",
            "Keep notes.",
        )
        assert [tool["name"] for tool in await client.list_tools()][:2] == ["echo", "plain"]
        read = await client.request("resources/read", {"uri": "note://a"})
        assert read["contents"][0]["text"] == "the note a"
        prompt = await client.request("prompts/get", {"name": "summarize", "arguments": {"name": "a"}})
        assert prompt["messages"][0]["content"]["text"] == "Summarize a."


async def test_async_and_plain_functions_return_their_results(notes, loop, revision):
    async with hosted(notes, revision, loop) as client:
        assert (await said_in(client, "echo", text="a"))[0] == "a"
        assert (await said_in(client, "plain", text="a"))[0] == "A"
        assert (await said_in(client, "client"))[0] == f"mcpbus client True {revision}"


async def test_progress_and_log_lines_come_within_the_call_in_their_order(notes, loop, revision):
    async with hosted(notes, revision, loop) as client:
        text, said = await said_in(client, "work", steps=3)
        assert text == "done"
        assert [params.get("progress") for _, params in said] == [1, 2, 3, None]
        assert said[-1] == ("notifications/message", {"level": "info", "data": "worked"})


async def test_twenty_thousand_reports_arrive_in_order_or_make_room_for_newer_ones(notes, loop):
    async with hosted(notes, LEGACY, loop) as client:
        _, said = await said_in(client, "work", steps=20_000)
        reports = [params["progress"] for method, params in said if method == "notifications/progress"]
        assert reports == sorted(set(reports))
        assert reports[-1] == 20_000
        counts = client.bus.statistics()
        assert set(counts.discarded) <= {Reason.SUPERSEDED}
        assert len(reports) + counts.discarded.get(Reason.SUPERSEDED, 0) == 20_000


async def test_messages_without_a_related_request_go_with_the_request_that_runs(notes, loop, revision):
    async with hosted(notes, revision, loop) as client:
        text, said = await said_in(client, "stray")
        assert text == "1"
        assert said == [("notifications/message", {"level": "info", "data": "without a related id"})]
        assert client.person.asked == ["roots/list"]


async def test_an_elicitation_is_answered_in_the_call(notes, loop, revision):
    async with hosted(notes, revision, loop) as client:
        assert (await said_in(client, "ask"))[0] == "Ada"
        assert client.person.asked == ["elicitation/create"]
        assert len(client.bus.parked_calls) == 0


async def test_stray_messages_go_to_the_session_where_that_is_chosen(notes, loop):
    async with mcpbus.host(notes, loop=loop, stray="session").open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(capabilities={"roots": {}})
        stream = session.get()
        await wait_until_idle(bus)
        call = session.request("tools/call", {"name": "stray", "arguments": {}})
        line = await stream.message()
        question = await stream.message()
        assert (line["method"], question["method"]) == ("notifications/message", "roots/list")
        await session.answer(question["id"], {"roots": []}).ended()
        assert (await call.reply())["result"]["structuredContent"] == {"result": 0}


async def test_a_task_that_outlives_its_call_speaks_for_the_session(notes):
    async with mcpbus.host(notes).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        stream = session.get()
        await wait_until_idle(bus)
        await session.request("tools/call", {"name": "later", "arguments": {}}).reply()
        assert (await stream.message())["params"]["data"] == "later"


@pytest.mark.parametrize("kind", ["value", "exit", "cancel"])
async def test_a_tool_that_fails_harms_no_other_call(notes, revision, kind, caplog):
    async with hosted(notes, revision) as client:
        if kind == "value":
            assert (await client.call_tool("boom", {"kind": kind}))["isError"] is True
        else:
            with pytest.raises(ProtocolError) as failed:
                await client.call_tool("boom", {"kind": kind})
            assert failed.value.code == -32603
            assert "tools/call failed" in caplog.text
        assert (await said_in(client, "echo", text="still here"))[0] == "still here"


async def test_a_blocked_loop_of_asyncio_blocks_nothing_else():
    mcp, entered, released = MCPServer("blocked"), threading.Event(), threading.Event()

    @mcp.tool()
    async def block() -> str:
        entered.set()
        released.wait(10)
        return "free"

    async with mcpbus.host(mcp).open() as bus, open_probe(bus.asgi()) as probe:
        call = probe.request("tools/call", {"name": "block", "arguments": {}})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.reply)
            await trio.to_thread.run_sync(entered.wait)
            assert (await probe.send("GET", target="/health").ended()).status == 200
            released.set()


async def test_a_call_that_its_client_cancels_is_cancelled_in_the_server(loop):
    mcp, begun, ended = MCPServer("slow"), threading.Event(), threading.Event()

    @mcp.tool()
    async def sleep() -> str:
        begun.set()
        try:
            await anyio.sleep(60)
        finally:
            ended.set()
        return "never"

    async with mcpbus.host(mcp, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        call = session.request("tools/call", {"name": "sleep", "arguments": {}}, id="a")
        assert await trio.to_thread.run_sync(begun.wait, 10)
        await session.notify("notifications/cancelled", {"requestId": "a"}).ended()
        assert await trio.to_thread.run_sync(ended.wait, 10)
        await call.ended()


async def test_the_lifespan_is_entered_and_left_once_in_one_task(loop):
    seen = []

    @asynccontextmanager
    async def lifespan(_server):
        seen.append(anyio.get_current_task().id)
        async with anyio.create_task_group():
            yield {"database": "open"}
        seen.append(anyio.get_current_task().id)

    mcp = MCPServer("s", lifespan=lifespan)

    @mcp.tool()
    async def database(ctx: Context) -> str:
        return ctx.request_context.lifespan_context["database"]

    async with hosted(mcp, MODERN, loop) as client:
        for _ in range(2):
            assert (await said_in(client, "database"))[0] == "open"
    assert len(seen) == 2
    assert seen[0] == seen[1]


@pytest.mark.parametrize("place", ["before", "during", "after"])
async def test_a_lifespan_that_fails_ends_the_server_with_its_own_error(loop, place):
    @asynccontextmanager
    async def lifespan(_server):
        if place == "before":
            raise ValueError("no database")
        if place == "during":
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail)
                yield
        yield
        raise ValueError("no database")

    async def fail():
        raise ValueError("no database")

    with pytest.RaisesGroup(ValueError, flatten_subgroups=True, allow_unwrapped=True):
        async with mcpbus.host(MCPServer("s", lifespan=lifespan), loop=loop).open():
            if place == "during":
                await trio.sleep(10)


async def test_a_lowlevel_server_with_methods_of_its_own(loop, revision):
    async def call_tool(ctx, params: CallToolRequestParams) -> CallToolResult:
        if params.name == "refuse":
            raise MCPError(-30001, "not today", {"why": "rain"})
        return CallToolResult(content=[TextContent(text=params.name)])

    async def list_tools(ctx, params) -> ListToolsResult:
        return ListToolsResult(tools=[])

    async def echo(ctx, params):
        return {"echo": ctx.params["x"]}

    server = Server("lowlevel", on_call_tool=call_tool, on_list_tools=list_tools)
    server.add_request_handler("acme/echo", SubscribeRequestParams.__base__, echo)
    async with hosted(server, revision, loop) as client:
        assert (await said_in(client, "any"))[0] == "any"
        assert (await client.request("acme/echo", {"x": 5}))["echo"] == 5
        with pytest.raises(ProtocolError, match="not today") as refused:
            await client.call_tool("refuse")
        assert (refused.value.code, refused.value.data) == (-30001, {"why": "rain"})
        with pytest.raises(ProtocolError) as unknown:
            await client.request("prompts/list", {})
        assert unknown.value.code == -32601


async def test_updates_reach_clients_that_subscribed_if_the_server_has_subscriptions(loop):
    async def subscribe(ctx, params) -> EmptyResult:
        return EmptyResult()

    async def call_tool(ctx, params) -> CallToolResult:
        await ctx.session.send_resource_updated("note://a")
        return CallToolResult(content=[])

    server = Server("s", on_call_tool=call_tool, on_subscribe_resource=subscribe)
    async with mcpbus.host(server, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        stream = session.get()
        await wait_until_idle(bus)
        await session.request("tools/call", {"name": "update"}).reply()
        await session.request("resources/subscribe", {"uri": "note://a"}).reply()
        await session.request("tools/call", {"name": "update"}).reply()
        assert (await stream.message())["params"] == {"uri": "note://a"}
        await wait_until_idle(bus)
        assert bus.statistics().discarded == {Reason.NOT_SUBSCRIBED: 1}


async def test_changes_that_a_server_publishes_reach_its_listens(loop):
    mcp = MCPServer("s")

    @mcp.tool()
    async def change(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        return "changed"

    async with mcpbus.host(mcp, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        listen = probe.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await listen.message()
        await probe.request("tools/call", {"name": "change", "arguments": {}}).reply()
        assert (await listen.message())["method"] == "notifications/tools/list_changed"
        mcp._lowlevel_server.get_request_handler("subscriptions/listen").handler.close()
        assert "result" in await listen.message(), "the server ends all listens"


async def test_lists_that_change_within_a_request_of_2026_07_28_are_discarded_with_a_receipt(loop):
    async def call_tool(ctx, params) -> CallToolResult:
        await ctx.session.send_tool_list_changed()
        return CallToolResult(content=[])

    async with hosted(Server("s", on_call_tool=call_tool), MODERN, loop) as client:
        await client.call_tool("any")
        assert client.bus.statistics().discarded == {Reason.NOT_IN_REVISION: 1}


async def test_a_session_keeps_nothing_once_it_has_ended(notes, loop):
    async with mcpbus.host(notes, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        closed = threading.Event()
        bus.sessions[session.id].backend_state.connection.exit_stack.callback(closed.set)
        await session.request("tools/call", {"name": "echo", "arguments": {"text": "a"}}).reply()
        await session.delete().ended()
        assert await trio.to_thread.run_sync(closed.wait, 10)
        assert bus.statistics().sessions == 0


async def test_stateless_serving_needs_no_session(notes, loop):
    def post(method, params):
        return probe.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).reply()

    info = {"name": "c", "version": "1"}
    async with (
        mcpbus.host(notes, loop=loop).open() as bus,
        open_probe(bus.asgi(sessions="stateless")) as probe,
    ):
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        assert (await post("initialize", hello))["result"]["serverInfo"]["name"] == "notes"
        called = await post("tools/call", {"name": "echo", "arguments": {"text": "a"}})
        assert called["result"]["structuredContent"] == {"result": "a"}


async def test_after_its_response_a_request_carries_nothing_more(loop):
    kept = []

    async def call_tool(ctx, params) -> CallToolResult:
        kept.append(ctx.session)
        return CallToolResult(content=[])

    async with hosted(Server("s", on_call_tool=call_tool), MODERN, loop) as client:
        await client.call_tool("any")

        async def speak():
            await kept[0].send_progress_notification("x", 1.0, related_request_id="y")
            with pytest.raises(MCPError):
                await kept[0].elicit_form(
                    "Who?", {"type": "object", "properties": {}}, related_request_id="y"
                )

        if loop == "trio":
            await speak()
        else:
            await to_asyncio(speak)
        await wait_until_idle(client.bus)
        assert sum(client.bus.statistics().discarded.values()) == 1


def test_what_is_a_server_of_another_sdk_is_told_from_all_else(notes):
    assert find(notes).name == "notes"
    assert find(notes).family == "MCPServer of the official SDK"
    assert find(Server("s")).family == "low-level Server of the official SDK"
    assert not any(map(is_foreign, (mcpbus.Server("s"), object(), Server, "text", None)))
    with pytest.raises(TypeError, match=r"host\(\) takes a server of another SDK"):
        mcpbus.host(mcpbus.Server("s"))
    with pytest.raises(ValueError, match=r"loop is one of 'asyncio', 'trio', not 'uvloop'"):
        mcpbus.host(notes, loop="uvloop")
    with pytest.raises(ValueError, match=r"stray is one of 'adopt', 'session', not 'drop'"):
        mcpbus.host(notes, stray="drop")


def test_a_program_that_mcpbus_imports_imports_no_sdk():
    program = (
        "import sys, mcpbus, mcpbus.server, mcpbus.bus, mcpbus.hosted\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'mcp', 'fastmcp', 'starlette', 'asyncio'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
