"""Extensions with the official SDK's client: what it declares, what it asks, and an app that it could show."""

from typing import Any, Literal

import pytest
from mcp import Client, MCPError, types
from mcp.client import advertise
from sdk_client import LEGACY, MODERN, TOLERATED, served

from mcpbus import Context, Server

pytestmark = TOLERATED

STAMPS, UI = "com.example/stamps", "io.modelcontextprotocol/ui"
PAGE = "ui://clock/app.html"
APP = "text/html;profile=mcp-app"


class StampParams(types.RequestParams):
    text: str


class StampRequest(types.Request[StampParams, Literal["com.example/stamps/add"]]):
    method: Literal["com.example/stamps/add"] = "com.example/stamps/add"
    params: StampParams


class StampResult(types.Result):
    stamped: str


def make_server() -> Server:
    server = Server("clock", extensions={STAMPS: {"ink": "blue"}, UI: {}})

    @server.on_request("com.example/stamps/add", extension=STAMPS)
    async def add(text: str) -> dict[str, str]:
        return {"stamped": f"[{text}]"}

    @server.tool(meta={"ui": {"resourceUri": PAGE}})
    async def time(ctx: Context) -> str:
        settings = ctx.client.extension(UI)
        return "shown" if settings is not None and APP in settings.get("mimeTypes", ()) else "12:00"

    @server.resource(PAGE, mime_type=APP, meta={"ui": {"prefersBorder": True}})
    def page() -> str:
        return "<!doctype html><title>clock</title>"

    return server


async def stamp(client: Client) -> StampResult:
    request = StampRequest(params=StampParams(text="Bergen"))
    return await client.session.send_request(request, StampResult)


@pytest.mark.parametrize(("mode", "revision"), [("auto", MODERN), ("legacy", LEGACY[-1])])
async def test_a_request_of_an_extension_is_for_those_who_declare_it(mode: Any, revision: str):
    async with served(make_server()) as server:
        async with Client(server.url, mode=mode, extensions=[advertise(STAMPS)]) as client:
            assert client.protocol_version == revision
            assert (await stamp(client)).stamped == "[Bergen]"
        async with Client(server.url, mode=mode) as client:
            with pytest.raises(MCPError) as refused:
                await stamp(client)
            assert refused.value.error.code == -32021


async def test_the_settings_of_extensions_are_read():
    async with served(make_server()) as server, Client(server.url) as client:
        assert client.server_capabilities.extensions == {STAMPS: {"ink": "blue"}, UI: {}}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_app_is_found_read_and_known_to_its_tool(mode: Any):
    """B-7."""
    async with served(make_server()) as server:
        declared = advertise(UI, {"mimeTypes": [APP]})
        async with Client(server.url, mode=mode, extensions=[declared]) as client:
            (tool,) = (await client.list_tools()).tools
            uri = tool.meta["ui"]["resourceUri"]
            (content,) = (await client.read_resource(uri)).contents
            assert (content.mime_type, content.text) == (APP, "<!doctype html><title>clock</title>")
            assert (await client.call_tool("time")).content[0].text == "shown"
        async with Client(server.url, mode=mode) as client:
            assert (await client.call_tool("time")).content[0].text == "12:00"
