"""The listed schema and the validation of values agree: a value is accepted if and only if the schema allows it.

`jsonschema_rs` reads the schema. Arguments are read strictly: otherwise a server also accepts values that a model has
written as text, which a schema does not allow. Four differences between JSON Schema and validation are intended:

- A whole number with a fraction of zero, such as 5.0, is an integer for JSON Schema. Generated floats have fractions.
- A ``format`` may describe more than a validator checks, and the other way around. Generated annotations have none.
- Code of an author (a validator) has no keyword. Generated annotations have none.
- The same item twice in a set is dropped. Generated annotations have no sets.
"""

import json
from pathlib import Path

import jsonschema_rs
import pytest
import trio
from all_rows import ROWS, SERVED
from annotation_kinds import JSON, KINDS, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st
from intended_differences import BEYOND_THE_SCHEMA, NOT_READ_FROM_TEXT, TEXT_IS_READ_OTHERWISE
from schema_walk import resolved
from served import arguments_as_text, served, served_strictly
from type_rows import Row, tool_of

from mcpbus import Server
from mcpbus.testing import open_client

pytestmark = pytest.mark.filterwarnings("ignore:The `PaymentCardNumber` class is deprecated")


@settings(max_examples=100)
@given(st.data())
def test_a_value_is_accepted_if_the_listed_schema_allows_it_and_only_then(data):
    kind = data.draw(KINDS)
    fitting = data.draw(st.lists(kind.values, min_size=1, max_size=4))
    values = [
        *fitting,
        *(data.draw(spoiled(value)) for value in fitting),
        *data.draw(st.lists(JSON, max_size=3)),
    ]
    trio.run(compare, kind.annotation, values)


async def compare(annotation, values):
    server = Server("x", strict_arguments=True)
    server.tool(tool_of(Row("x", annotation, [], [])))
    async with open_client(server) as client:
        [tool] = await client.list_tools()
        judge = jsonschema_rs.validator_for(tool["inputSchema"])
        for value in values:
            result = await client.call_tool("tool", {"v": value})
            said = result["content"][0]["text"]
            assert judge.is_valid({"v": value}) is not result.get("isError", False), (
                value,
                said,
                tool["inputSchema"],
            )


@pytest.mark.parametrize("name", SERVED)
def test_a_row_takes_what_its_schema_allows_strictly_or_as_text(name, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent.parent.parent)
    strict, usual = served_strictly(name), served(name)
    judge = jsonschema_rs.validator_for(strict.schema)
    accepted = [json.loads(text) for text, answer in strict.answers.items() if answer is not None]
    beyond = [arguments for arguments in accepted if not judge.is_valid(arguments)]
    assert bool(beyond) is (name in BEYOND_THE_SCHEMA), beyond
    allowed = [{"v": value} for value in ROWS[name].valid if judge.is_valid({"v": value})]
    assert [arguments for arguments in allowed if strict.answers[json.dumps(arguments)] is None] == []
    if name in {*BEYOND_THE_SCHEMA, *TEXT_IS_READ_OTHERWISE} or allows_text(
        strict.schema["properties"]["v"], strict.schema
    ):
        return
    for arguments in arguments_as_text(ROWS[name]):
        value = {"v": json.loads(arguments["v"])}
        if value in allowed:
            expected = None if name in NOT_READ_FROM_TEXT else usual.answers[json.dumps(value)]
            assert usual.answers[json.dumps(arguments)] == expected, arguments


def allows_text(schema, root):
    """Return whether a schema allows some text."""
    schema = resolved(schema, root)
    alternatives = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if alternatives:
        return any(allows_text(each, root) for each in alternatives)
    return schema.get("type", "string") == "string" or "string" in schema["type"]
