"""Mcp-Param headers against the tools of a bus: who is judged by them, and who is not."""

from typing import Annotated

import msgspec
import pytest

from mcpbus import Server
from mcpbus.testing import open_bus, open_probe

Region = Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]


def make_server(**options):
    server = Server("s", **options)

    @server.tool
    async def query(region: Region, limit: int = 1) -> str:
        return region

    return server


def call(probe, headers=(), *, name="query", **arguments):
    return probe.request("tools/call", {"name": name, "arguments": arguments}, headers=dict(headers)).ended()


async def test_a_header_that_repeats_its_argument_is_accepted(autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi()) as probe:
        answer = await call(probe, {"Mcp-Param-Region": "us"}, region="us")
        assert (answer.status, answer.messages[0]["result"]["content"][0]["text"]) == (200, "us")


@pytest.mark.parametrize("headers", [{}, {"Mcp-Param-Region": "eu"}])
async def test_one_that_does_not_is_refused_before_anything_runs(headers, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi()) as probe:
        before = bus.statistics()
        answer = await call(probe, headers, region="us")
        assert (answer.status, answer.messages[0]["error"]["code"]) == (400, -32020)
        assert bus.statistics() == before


async def test_a_tool_that_its_caller_does_not_see_is_unknown_and_not_mismatched(autojump_clock):
    server = make_server(visible=lambda principal, tool: False)
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        hidden = await call(probe, {"Mcp-Param-Region": "eu"}, region="us")
        absent = await call(probe, {"Mcp-Param-Region": "eu"}, name="nope", region="us")
        for answer in (hidden, absent):
            assert (answer.status, answer.messages[0]["error"]["code"]) == (400, -32602)
        assert hidden.body.replace(b"query", b"") == absent.body.replace(b"nope", b"").replace(
            b'"id":2', b'"id":1'
        )


async def test_a_tool_that_was_replaced_is_judged_by_what_it_is_now(autojump_clock):
    server = make_server()
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        server.remove_tool("query")

        async def query(region: str) -> str:
            return region

        server.add_tool(query)
        assert (await call(probe, region="us")).status == 200


async def test_arguments_are_judged_after_the_headers(autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi()) as probe:
        answer = await call(probe, {"Mcp-Param-Region": "us"}, region="us", limit="many")
        assert answer.messages[0]["result"]["isError"] is True


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
async def test_a_legacy_session_knows_no_such_headers(revision, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(revision)
        reply = await session.request("tools/call", {"name": "query", "arguments": {"region": "us"}}).reply()
        assert reply["result"]["content"][0]["text"] == "us"


async def test_a_channel_without_headers_needs_none():
    async with open_bus(make_server()) as bus, bus.connect() as client:
        assert (await client.call_tool("query", {"region": "us"}))["content"][0]["text"] == "us"
