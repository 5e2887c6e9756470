"""What a client does in each scenario of the official conformance suite: by its public names, as any program would."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mcpbus.client import connect_http

Scenario = Callable[[str], Awaitable[None]]

REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION")


def context() -> dict[str, Any]:
    """What a scenario says beside the address of its server."""
    found: dict[str, Any] = msgspec.json.decode(os.environ["MCP_CONFORMANCE_CONTEXT"])
    return found


async def accept(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer a form with what it is filled in with, or else with a confirmation."""
    fields = params["requestedSchema"]["properties"]
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {"action": "accept", "content": content or {"confirmed": True}}


async def call_first_tool(url: str) -> None:
    """List the tools, and call the first of them."""
    async with connect_http(url, revision=REVISION) as client:
        for tool in (await client.list_tools())[:1]:
            await client.call_tool(tool["name"], {"a": 2, "b": 3})


async def list_tools(url: str) -> None:
    """List the tools."""
    async with connect_http(url, revision=REVISION) as client:
        await client.list_tools()


async def find_revision(url: str) -> None:
    """Find out which revision to speak, and list the tools."""
    async with connect_http(url) as client:
        await client.list_tools()


async def answer(url: str) -> None:
    """Call each tool, and answer what it asks."""
    capabilities: dict[str, Any] = {"elicitation": {}}
    async with connect_http(url, revision=REVISION, capabilities=capabilities, on_question=accept) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"])


async def use_everything(url: str) -> None:
    """Call each tool, read each resource, and get each prompt."""
    async with connect_http(url, revision=REVISION) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"])
        for resource in await client.list_resources():
            await client.read_resource(resource["uri"])
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt["name"])


async def call_as_told(url: str) -> None:
    """List the tools, and call those that the scenario names."""
    async with connect_http(url, revision=REVISION) as client:
        await client.list_tools()
        for call in context()["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def call_each_tool(url: str) -> None:
    """Call each tool that may be."""
    async with connect_http(url, revision=REVISION) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"], dict.fromkeys(tool["inputSchema"]["properties"], "x"))


async def echo_schema(url: str) -> None:
    """Give back the schema of a tool as it came."""
    async with connect_http(url, revision=REVISION) as client:
        schemas = {tool["name"]: tool["inputSchema"] for tool in await client.list_tools()}
        await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


SCENARIOS: dict[str, Scenario] = {
    "initialize": list_tools,
    "tools_call": call_first_tool,
    "elicitation-sep1034-client-defaults": answer,
    "sse-retry": call_first_tool,
    "request-metadata": find_revision,
    "sep-2322-client-request-state": answer,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_each_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
}
"""What to do in each scenario."""
