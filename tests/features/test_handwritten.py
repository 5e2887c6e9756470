"""Schemas by hand: shown as they are, enforced, and closed."""

import msgspec
import pytest

from mcpbus.features.content import ToolResult
from mcpbus.features.errors import RegistrationError
from mcpbus.features.tool import tool

SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


async def echo(arguments: dict) -> dict:
    return arguments


async def test_every_keyword_reaches_the_list_and_binds_the_caller(server, client):
    server.add_tool(echo, input_schema=SCHEMA_2020_12)
    assert list(client.tool("echo")["inputSchema"].items()) == list(SCHEMA_2020_12.items())
    good = await client.call("echo", phone="1", contactMethod="phone", address={"city": "x"})
    assert good["structuredContent"] == {"phone": "1", "contactMethod": "phone", "address": {"city": "x"}}
    bad = await client.call("echo", email="a", address={"city": 1}, more=1)
    assert bad["isError"]
    told = bad["content"][0]["text"]
    assert "at `address.city`" in told
    assert "'more' was unexpected" in told


async def test_text_is_kept_byte_for_byte(server, connect):  # F-3
    text = '{"type":"object", "title":"\\u00e9", "properties":{"n":{"maximum":1.50e3}}}'
    server.add_tool(echo, input_schema=text)
    listed = connect(server, "2025-11-25").server.features.tools.get("echo").arguments.schema
    assert bytes(listed) == text.encode()


def test_only_insignificant_white_space_of_a_pretty_printed_text_is_taken_out():
    made = tool(
        echo, input_schema='{\n  "type": "object",\r\n  "title": "a  b\\n",\n  "minProperties": 1.0\n}'
    )
    assert bytes(made.arguments.schema) == b'{"type":"object","title":"a  b\\n","minProperties":1.0}'


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}},
            "nothing is fetched",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}, "nothing is fetched"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "none"),
        ({"type": "object", "$schema": "https://example.com/dialect"}, "meta-schema"),
        ({"type": "object", "required": "a"}, "cannot be used"),
        ({"type": "string"}, '"type": "object"'),
        (True, '"type": "object"'),
        ("{", "not JSON"),
        ("[]", "an object or a boolean"),
        ({"type": "object", "default": object()}, "what JSON cannot"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused(schema, message):  # F-2
    with pytest.raises(RegistrationError, match=message):
        tool(echo, input_schema=schema)


def test_no_reference_is_ever_fetched(monkeypatch):  # F-4
    import socket

    def connect(*args):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(RegistrationError):
        tool(echo, input_schema={"type": "object", "$ref": "http://127.0.0.1:1/schema.json"})


async def test_the_arguments_become_what_the_one_parameter_says(server, client):
    class Pair(msgspec.Struct):
        a: int
        b: int = 0

    async def add(pair: Pair) -> int:
        return pair.a + pair.b

    server.add_tool(add, input_schema={"type": "object"})
    assert await client.text("add", a=1, b=2) == "3"
    assert "Input should be a valid integer" in await client.text("add", a="1")


def test_such_a_function_takes_one_parameter():
    async def two(a: int, b: int) -> None: ...

    with pytest.raises(RegistrationError, match="it has a, b"):
        tool(two, input_schema={"type": "object"})


async def test_an_output_schema_by_hand_is_listed_and_enforced(server, client, caplog):
    async def count(n: int) -> dict:
        return {"n": n}

    server.add_tool(count, output_schema={"type": "object", "properties": {"n": {"maximum": 5}}})
    assert client.tool("count")["outputSchema"]["properties"] == {"n": {"maximum": 5}}
    assert (await client.call("count", n=5))["structuredContent"] == {"n": 5}
    bad = await client.call("count", n=6)
    assert bad["isError"]
    assert bad["content"] == [{"type": "text", "text": "Tool count failed"}]
    assert "does not match the output schema" in caplog.text


@pytest.mark.parametrize(
    ("revision", "shown"),
    [("2025-03-26", False), ("2025-06-18", False), ("2025-11-25", False), ("2026-07-28", True)],
)
async def test_an_output_schema_by_hand_that_is_no_object_is_left_out_where_only_objects_go(
    server, connect, revision, shown
):
    async def count() -> ToolResult:
        return ToolResult(structured=[1, 2])

    server.add_tool(
        count, output_schema={"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {}}}
    )
    client = connect(server, revision)
    assert ("outputSchema" in client.tool("count")) is shown
    result = await client.call("count")
    assert ("structuredContent" in result) is shown
    assert result["content"] == [{"type": "text", "text": "[1,2]"}]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"a": {"type": "string", "x-mcp-header": ""}}, "not a header token"),
        ({"a": {"type": "string", "x-mcp-header": "a b"}}, "not a header token"),
        ({"a": {"type": "number", "x-mcp-header": "A"}}, "not a string, integer or boolean"),
        ({"a": {"type": ["string", "null"], "x-mcp-header": "A"}}, "not a string, integer or boolean"),
        ({"a": {"x-mcp-header": "A"}}, "not a string, integer or boolean"),
        (
            {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
            "twice",
        ),
        ({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}, "from the root"),
        ({"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}, "from the root"),
    ],
)
def test_a_mirrored_parameter_that_clients_would_drop_the_tool_for_is_refused(
    properties, message
):  # X-40, X-41, X-42
    with pytest.raises(RegistrationError, match=message):
        tool(echo, input_schema={"type": "object", "properties": properties})


def test_mirrored_parameters_are_found_where_properties_lead():  # X-42
    region = {"type": "string", "x-mcp-header": "Region"}
    nested = {"type": "object", "properties": {"x-mcp-header": {"type": "integer", "x-mcp-header": "Deep"}}}
    made = tool(echo, input_schema={"type": "object", "properties": {"region": region, "at": nested}})
    assert [(found.path, found.header, found.kind) for found in made.mirrored] == [
        (("region",), "Mcp-Param-Region", "string"),
        (("at", "x-mcp-header"), "Mcp-Param-Deep", "integer"),
    ]
