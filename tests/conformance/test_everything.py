"""What the conformance suite takes for granted about the server under test, without the suite."""

import re

import pytest

from mcpbus.testing import open_client
from tests.conformance.everything import make_server

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_first_tool_takes_no_arguments_and_succeeds(revision):
    """The suite's checks of headers call the first of the list, whatever it is."""
    async with open_client(make_server(), revision=revision) as client:
        first, *_ = await client.list_tools()
        result = await client.call_tool(first["name"])
        assert (first["name"], result.get("isError")) == ("test_simple_text", None)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_all_that_is_listed_is_described(revision):
    async with open_client(make_server(), revision=revision) as client:
        listed = [*await client.list_tools(), *await client.list_resources(), *await client.list_prompts()]
        assert len(listed) > 30
        assert [item["name"] for item in listed if not item.get("description")] == []
        assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", tool["name"]) for tool in await client.list_tools())


async def test_what_comes_and_goes_leaves_the_rest_in_order():
    async with open_client(make_server()) as client:
        tools, prompts = await client.list_tools(), await client.list_prompts()
        for trigger in ("test_trigger_tool_change", "test_trigger_prompt_change"):
            await client.call_tool(trigger)
        assert [tool["name"] for tool in (await client.list_tools())[len(tools) :]] == ["dummy_tool"]
        assert [prompt["name"] for prompt in (await client.list_prompts())[len(prompts) :]] == [
            "dummy_prompt"
        ]
        for trigger in ("test_trigger_tool_change", "test_trigger_prompt_change"):
            await client.call_tool(trigger)
        assert (await client.list_tools(), await client.list_prompts()) == (tools, prompts)
