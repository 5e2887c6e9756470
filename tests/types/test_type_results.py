"""Return annotations: the listed output schema and the structured content, beside those of both peers."""

import jsonschema_rs
import pytest
import trio
from intended_differences import explained
from schema_walk import missing_keywords
from served import recorded
from type_results import RESULTS, tool_with

from mcpbus import Server
from mcpbus.testing import open_client

PEERS = ("sdk", "fastmcp")
RECORD = recorded("peers.json")["results"]


def call(name):
    """Return the output schema and the structured content of a row's function."""

    async def main():
        server = Server("x")
        server.tool(tool_with(RESULTS[name]))
        async with open_client(server) as client:
            [tool] = await client.list_tools()
            result = await client.call_tool("tool", {})
            assert not result.get("isError"), result["content"]
            return tool.get("outputSchema"), result.get("structuredContent")

    return trio.run(main)


def test_the_record_is_of_this_table_of_results():
    """If this fails, run ``python3 tests/types/record_peers.py``."""
    assert list(RECORD) == list(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_has_the_structured_content_that_its_schema_allows(name):
    schema, structured = call(name)
    assert structured == RESULTS[name].structured
    if schema is not None:
        jsonschema_rs.validator_for(schema, validate_formats=True).validate(structured)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_listed_with_every_keyword_of_a_peer_that_returns_the_same(name):
    schema, structured = call(name)
    for peer in PEERS:
        theirs = RECORD[name][peer]
        if (
            schema
            and theirs.get("listed")
            and unwrapped(theirs["listed"], theirs["structured"]) == structured
        ):
            listed = theirs["listed"]
            if listed.get("properties", {}).keys() == {"result"}:
                listed = {**listed["properties"]["result"], "$defs": listed.get("$defs", {})}
            found = missing_keywords(listed, schema)
            assert [line for line in found if not explained(f"results: {name}", line)] == []


def unwrapped(schema, structured):
    """Return the value that a peer returns inside an object with the only field ``result``."""
    return structured["result"] if schema.get("properties", {}).keys() == {"result"} else structured
