"""What a hosted server of the official SDK tells a session, and hears of it: levels, `initialized`, time limits and progress of its client."""

import threading

import pytest
import trio
import trio.lowlevel
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    EmptyResult,
    ListRootsRequest,
    ListRootsResult,
    NotificationParams,
    SetLevelRequestParams,
    TextContent,
)

import mcpbus
from mcpbus import Limits
from mcpbus.testing import open_probe
from tests.hosting.fixtures import LEGACY

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

CALL = {"name": "any", "arguments": {}}


def speaking():
    """A server with a handler for levels, whose tool sends a line of each of two levels."""

    async def call_tool(ctx, params) -> CallToolResult:
        for level in ("debug", "error"):
            await ctx.session.send_log_message(level, level, related_request_id=ctx.request_id)
        return CallToolResult(content=[])

    async def set_level(ctx, params: SetLevelRequestParams) -> EmptyResult:
        return EmptyResult()

    server = Server("speaking", on_call_tool=call_tool)
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)
    return server


@pytest.mark.parametrize(
    ("limits", "level", "lines"),
    [
        (None, None, ["debug", "error"]),
        (None, "error", ["error"]),
        (Limits(log_level="error"), None, ["error"]),
        (Limits(log_level="error"), "debug", ["debug", "error"]),
    ],
)
async def test_all_levels_are_sent_unless_the_client_or_the_operator_sets_one(loop, limits, level, lines):
    opened = mcpbus.host(speaking(), loop=loop).open(limits=limits)
    async with opened as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        if level is not None:
            await session.request("logging/setLevel", {"level": level}).reply()
        called = await session.request("tools/call", CALL).ended()
        assert [each["params"]["data"] for each in called.messages if "method" in each] == lines


async def test_a_handler_hears_that_a_session_is_initialized(loop):
    heard = threading.Event()

    async def initialized(ctx, params) -> None:
        heard.set()

    server = speaking()
    server.add_notification_handler("notifications/initialized", NotificationParams, initialized)
    async with mcpbus.host(server, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        await probe.initialize(initialized=False)
        assert not heard.is_set()
        await probe.initialize()
        assert await trio.to_thread.run_sync(heard.wait, 10)


def asking(progress):
    """A server whose tool asks for roots, for a tenth of a second, and takes the progress of the client."""

    async def note(value, total, message) -> None:
        progress.append(value)

    async def call_tool(ctx, params) -> CallToolResult:
        try:
            roots = await ctx.session.send_request(
                ListRootsRequest(),
                ListRootsResult,
                request_read_timeout_seconds=0.1 if params.name == "briefly" else 10,
                progress_callback=note,
            )
        except MCPError as error:
            return CallToolResult(content=[TextContent(text=f"error {error.code}")])
        return CallToolResult(content=[TextContent(text=f"{len(roots.roots)} roots")])

    return Server("asking", on_call_tool=call_tool)


async def test_an_input_request_has_the_time_limit_of_the_server(loop):
    async with mcpbus.host(asking([]), loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(capabilities={"roots": {}})
        call = session.request("tools/call", {**CALL, "name": "briefly"})
        question = await call.message()
        assert question["method"] == "roots/list"
        withdrawn = await call.message()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (
            "notifications/cancelled",
            question["id"],
        )
        assert (await call.reply())["result"]["content"][0]["text"] == "error -32001"


async def test_a_server_gets_the_progress_of_its_client_with_an_input_request(loop):
    progress = []
    async with mcpbus.host(asking(progress), loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(capabilities={"roots": {}})
        call = session.request("tools/call", CALL)
        question = await call.message()
        token = question["params"]["_meta"]["progressToken"]
        report = {"progressToken": token, "progress": 1}
        await session.notify("notifications/progress", report).ended()
        with trio.fail_after(10):
            while not progress:
                await trio.lowlevel.checkpoint()
        await session.answer(question["id"], {"roots": []}).ended()
        assert (await call.reply())["result"]["content"][0]["text"] == "0 roots"
    assert progress == [1]


async def test_a_tool_sees_the_whole_url_of_its_request(loop, revision):
    mcp = MCPServer("urls")

    @mcp.tool()
    async def url(ctx: Context) -> str:
        request = ctx.request_context.request
        return f"{request.url.path} {request.query_params['n']}"

    call = {"name": "url", "arguments": {}}
    async with (
        mcpbus.host(mcp, loop=loop).open() as bus,
        open_probe(bus.asgi(), path="/mcp?n=1") as probe,
    ):
        caller = await probe.initialize() if revision == LEGACY else probe
        reply = await caller.request("tools/call", call).reply()
        assert reply["result"]["structuredContent"] == {"result": "/mcp 1"}
