"""Tools of well-known public servers register, are listed with all their rules, and run over a client."""

import base64
import json

import jsonschema_rs
import pytest
from known_tools import make_server

from mcpbus.testing import open_client

SERVER = make_server()
IMAGE = {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"}
AT = "2026-11-28T10:00:00+01:00"

# The tool, arguments that it takes, and the structured content or the text of its result.
CALLS = [
    ("edit_file", {"path": "notes.txt", "edits": [{"oldText": "two", "newText": "2"}], "dryRun": True}, "--- \n+++ \n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"),
    ("edit_file", {"path": "notes.txt", "edits": '[{"oldText": "one\\n", "newText": ""}]', "dryRun": "true"}, "--- \n+++ \n@@ -1,3 +1,2 @@\n-one\n two\n three\n"),
    ("create_entities", {"entities": [{"name": "Ann", "entityType": "person", "observations": ["likes tea"]}]}, [{"name": "Ann", "entityType": "person", "observations": ["likes tea"]}]),
    ("sequentialthinking", {"thought": "a", "nextThoughtNeeded": True, "thoughtNumber": 3, "totalThoughts": 2}, {"thoughtNumber": 3, "totalThoughts": 3, "nextThoughtNeeded": True, "revises": None}),
    ("sequentialthinking", {"thought": "5", "nextThoughtNeeded": "false", "thoughtNumber": "1", "totalThoughts": "2", "revisesThought": 1}, {"thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": False, "revises": 1}),
    ("read_query", {"query": "select name from cities where people > ?", "parameters": [500000]}, [{"name": "Oslo"}]),
    ("read_query", {"query": "select people from cities where name = :name", "parameters": {"name": "Bergen"}}, [{"people": 286930}]),
    ("fetch", {"url": "https://a.example/b", "max_length": 6, "start_index": 7}, "a.example: line 2"),
    ("render", {"content": [{"type": "text", "text": "hi"}, IMAGE, {"type": "resource_link", "uri": "file:///a"}]}, ["hi", "image/png, 4 bytes", "file:///a"]),
    ("summarize", {"history": [{"role": "user", "content": "hi", "at": AT}, {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}], "since": "2026-11-28"}, {"user": 1, "assistant": 0}),
    ("issue_write", {"method": "create", "title": " a fault ", "labels": ["b", "a", "a"]}, {"title": "a fault", "labels": ["a", "b"], "priority": "normal", "status": {"state": "open"}, "assignee": None}),
    ("issue_write", {"method": "create", "title": "a", "status": {"state": "closed", "reason": "duplicate", "duplicate_of": 3}}, {"title": "a", "labels": [], "priority": "normal", "status": {"state": "closed", "reason": "duplicate", "duplicate_of": 3}, "assignee": None}),
    ("browser_click", {"element": "Save", "ref": "e12", "modifiers": ["Shift"], "position": [1, 2.5]}, "click Shift+left on e12 (Save) at (1.0, 2.5)"),
]  # fmt: skip

# The tool, arguments that it does not take, and a part of the error.
REFUSED = [
    ("edit_file", {"path": "notes.txt", "edits": [{"oldText": "", "newText": "2"}]}, "oldText"),
    ("edit_file", {"path": "notes.txt", "edits": []}, "edits"),
    ("create_entities", {"entities": [{"name": "Ann", "entityType": "person"}]}, "observations"),
    ("sequentialthinking", {"thought": "a", "nextThoughtNeeded": True, "thoughtNumber": 0, "totalThoughts": 2}, "thoughtNumber"),
    ("read_query", {"query": "drop table cities"}, "only SELECT statements"),
    ("read_query", {"query": "select 1", "parameters": [[1]]}, "parameters"),
    ("fetch", {"url": "file:///etc/passwd"}, "url"),
    ("fetch", {"url": "https://a.example", "max_length": 1_000_000}, "max_length"),
    ("render", {"content": [{"type": "video"}]}, "video"),
    ("render", {"content": [{**IMAGE, "mimeType": "text/plain"}]}, "mimeType"),
    ("summarize", {"history": [{"role": "user", "content": "hi", "at": "2026-11-28T10:00:00"}]}, "at"),
    ("summarize", {"history": [{"role": "owner", "content": "hi"}]}, "role"),
    ("issue_write", {"method": "create", "title": "  "}, "title"),
    ("issue_write", {"method": "create", "title": "a", "priority": "top"}, "priority"),
    ("issue_write", {"method": "create", "title": "a", "status": {"state": "closed", "reason": "duplicate"}}, "duplicate_of"),
    ("issue_write", {"method": "create", "title": "a", "assignee": "nobody"}, "assignee"),
    ("browser_click", {"element": "Save", "ref": "12"}, "ref"),
    ("browser_click", {"element": "Save", "ref": "e1", "modifiers": ["Hyper"]}, "modifiers"),
]  # fmt: skip

# The tool, the path of a keyword in its input schema, and its content.
RULES = [
    ("edit_file", "properties.edits.items.properties.oldText.minLength", 1),
    ("edit_file", "properties.edits.minItems", 1),
    ("edit_file", "properties.dryRun.description", "Preview changes as a diff"),
    (
        "create_entities",
        "properties.entities.items.properties.observations.description",
        "Texts about the entity",
    ),
    ("create_entities", "properties.entities.items.required", ["name", "entityType", "observations"]),
    ("sequentialthinking", "properties.thoughtNumber.minimum", 1),
    ("sequentialthinking", "properties.branchId.description", "The name of the branch"),
    ("read_query", "properties.query.description", "SELECT statement to execute"),
    ("fetch", "properties.url.format", "uri"),
    ("fetch", "properties.max_length.exclusiveMaximum", 1_000_000),
    ("render", "properties.content.items.oneOf.1.properties.mimeType.pattern", "^image/"),
    ("summarize", "properties.history.items.properties.role.enum", ["user", "assistant"]),
    ("summarize", "properties.history.items.properties.at.description", "The time at which it was sent"),
    (
        "issue_write",
        "properties.priority",
        {"type": "string", "enum": ["urgent", "high", "normal", "low"], "default": "normal"},
    ),
    ("issue_write", "properties.status.default", {"state": "open"}),
    ("browser_click", "properties.ref.pattern", r"^e\d+$"),
    ("browser_click", "required", ["element", "ref"]),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CALLS)
async def test_a_known_tool_takes(name, arguments, expected, autojump_clock):
    async with open_client(SERVER) as client:
        result = await client.call_tool(name, arguments)
        assert not result.get("isError"), result["content"]
        tool = next(tool for tool in await client.list_tools() if tool["name"] == name)
        if isinstance(expected, str):
            assert result["content"][0]["text"] == expected
        else:
            assert result["structuredContent"] == expected
            jsonschema_rs.validator_for(tool["outputSchema"]).validate(result["structuredContent"])


@pytest.mark.parametrize(("name", "arguments", "part"), REFUSED)
async def test_a_known_tool_refuses(name, arguments, part, autojump_clock):
    async with open_client(SERVER) as client:
        result = await client.call_tool(name, arguments)
        assert result["isError"]
        assert part in result["content"][0]["text"]


@pytest.mark.parametrize(("name", "path", "expected"), RULES)
async def test_a_known_tool_is_listed_with_its_rules(name, path, expected, autojump_clock):
    async with open_client(SERVER) as client:
        schema = next(tool for tool in await client.list_tools() if tool["name"] == name)["inputSchema"]
    assert at(schema, schema, path.split(".")) == expected


def at(schema, root, path):
    """Return the content at a path of keywords, through references and unions with null."""
    if "$ref" in schema if isinstance(schema, dict) else False:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**at(root, root, schema["$ref"].removeprefix("#/").split("/")), **rest}
    if not path:
        return schema
    first, *rest = path
    if isinstance(schema, list):
        return at(schema[int(first)], root, rest)
    if first not in schema and "anyOf" in schema:
        schema = schema["anyOf"][0]
        return at(schema, root, path)
    assert first in schema, f"{first} is missing in {json.dumps(schema)}"
    return at(schema[first], root, rest)
