"""What another server describes in its lists, as features of this one."""

import msgspec
import pytest

from mcpbus.features.errors import RegistrationError
from mcpbus.features.upstream_features import (
    ForeignTemplate,
    foreign_prompt,
    foreign_resource,
    foreign_template,
    foreign_tool,
    unlisted_resources,
)
from mcpbus.protocol.revisions import REVISIONS

OLDEST, NEWEST = REVISIONS["2024-11-05"], REVISIONS["2026-07-28"]
TOOL = {
    "name": "a/b c",
    "title": "A",
    "description": "Does.",
    "inputSchema": {
        "type": "object",
        "properties": {"x": {"type": "string", "x-mcp-header": "X"}},
        "$comment": "as it is",
    },
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True, "acme": 1},
    "icons": [{"src": "https://a/b.png"}],
    "_meta": {"ui": {"resourceUri": "ui://a"}},
    "acme": "unknown members are left out",
}


async def relay(*_args, **_kwargs):
    """Nobody calls it here."""


def shown(made, revision):
    return msgspec.json.decode(msgspec.json.encode(made.describe(revision)))


def test_a_tool_is_shown_as_it_is_described_as_far_as_a_revision_has_that():
    made = foreign_tool(TOOL, relay, scopes=("a:b",), timeout=5)
    described = {name: value for name, value in TOOL.items() if name != "acme"}
    assert shown(made, NEWEST) == {**described, "annotations": {"readOnlyHint": True}}
    assert shown(made, OLDEST) == {name: TOOL[name] for name in ("name", "description", "inputSchema")}
    assert (made.scopes, made.function.timeout, made.replay, made.task) == (("a:b",), 5, False, None)
    assert [parameter.header for parameter in made.mirrored] == ["Mcp-Param-X"]


def test_arguments_are_handed_on_whatever_the_schema_says():
    made = foreign_tool(TOOL, relay)
    assert made.arguments.decode(b'{"y":[1,null]}') == {"arguments": {"y": [1, None]}}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": 5}, "tool 5: Expected `str`, got `int` - at `$.name`"),
        ({"inputSchema": None}, "its input schema is no object"),
        ({"inputSchema": [1]}, "its input schema is no object"),
        ({"outputSchema": True}, "its output schema is no object"),
        ({"description": ["x"]}, "Expected `str | null`, got `array`"),
        ({"icons": [{}]}, "missing required field `src`"),
        (
            {"inputSchema": {"type": "object", "properties": {"x": {"type": "object", "x-mcp-header": "X"}}}},
            "which is not a string, integer or boolean",
        ),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_what_is_wrong(changes, fault):
    with pytest.raises(RegistrationError) as raised:
        foreign_tool({**TOOL, **changes}, relay)
    assert fault in str(raised.value)


def test_a_tool_without_a_schema_is_refused():
    with pytest.raises(RegistrationError, match="missing required field `inputSchema`"):
        foreign_tool({"name": "a"}, relay)


def test_a_schema_of_a_result_that_is_no_object_is_wrapped_where_only_objects_go():
    made = foreign_tool({**TOOL, "outputSchema": {"type": "integer"}}, relay)
    assert shown(made, NEWEST)["outputSchema"] == {"type": "integer"}
    assert shown(made, REVISIONS["2025-11-25"])["outputSchema"]["properties"] == {
        "result": {"type": "integer"}
    }


def test_a_prompt_takes_what_it_is_given():
    described = {
        "name": "pack",
        "arguments": [{"name": "city", "required": True, "description": "Where"}, {"name": "ctx"}],
    }
    made = foreign_prompt(described, relay)
    assert shown(made, NEWEST) == described
    assert made.bind({"city": "Oslo", "other": "x"}) == {"arguments": {"city": "Oslo", "other": "x"}}
    assert made.bind({}) == {"arguments": {}}


def test_a_resource_is_shown_as_it_is_described():
    described = {
        "uri": "memo:1",
        "name": "one",
        "mimeType": "text/plain",
        "size": 3,
        "annotations": {"priority": 0.5},
    }
    assert shown(foreign_resource(described, relay), NEWEST) == described


@pytest.mark.parametrize(
    ("template", "uri", "variables", "matches"),
    [
        ("data://{city}/now", "data://Oslo/now", ["city"], True),
        ("data://{city}/now", "data://Oslo/then", ["city"], False),
        ("file:///{+path}", "file:///../../etc/passwd", ["path"], True),
        ("db://{table}{?a,b}", "db://x?a=1", ["table", "a", "b"], True),
        # These cannot be inverted: their URIs are found by asking.
        ("x://{a}{b}", "x://12", ["a", "b"], False),
        ("x://{a:3}", "x://123", ["a"], False),
        ("x://{list*}", "x://1,2", ["list"], False),
    ],
)
def test_a_template_is_given_the_whole_uri_and_knows_its_variables(template, uri, variables, matches):
    made = foreign_template({"uriTemplate": template, "name": "n"}, relay)
    assert made.template.match(uri) == ({"uri": uri} if matches else None)
    assert [parameter.name for parameter in made.function.signature.parameters] == variables
    assert shown(made, NEWEST) == {"uriTemplate": template, "name": "n"}


def test_a_template_that_has_moved_gives_the_uri_that_its_own_server_knows():
    template = ForeignTemplate.read("data://{city}/now")
    once = template.moved("data://sky/{city}/now", "a server")
    twice = once.moved("data://desk/sky/{city}/now", "another")
    assert once.match("data://sky/Oslo/now") == {"uri": "data://Oslo/now"}
    assert twice.match("data://desk/sky/Oslo/now") == {"uri": "data://Oslo/now"}
    assert twice.match("data://sky/Oslo/now") is None
    assert once.match("data://Oslo/now") is None


def test_what_is_in_no_list_may_have_any_uri():
    assert unlisted_resources(relay).template.match("ui://x") == {"uri": "ui://x"}


def test_no_contents_are_none():
    made = foreign_resource({"uri": "a://b", "name": "b"}, relay)
    from mcpbus.protocol.messages import Implementation
    from mcpbus.protocol.results import tail_for

    tail = tail_for(Implementation("n", "1"), OLDEST)
    assert msgspec.json.decode(made.encode_result([], "a://b", OLDEST, tail)) == {"contents": []}
