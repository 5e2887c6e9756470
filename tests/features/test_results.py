"""What a function returns, as each revision takes it."""

import dataclasses
import datetime as dt
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from mcpbus.features.content import Audio, File, Image, ToolResult
from mcpbus.features.errors import RegistrationError
from mcpbus.features.tool import tool
from mcpbus.protocol.messages import (
    Annotations,
    Icon,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcpbus.protocol.revisions import LATEST
from mcpbus.server import Server

A, B, C, D, E = REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
OBJECTS_ONLY = {C, D}


@dataclasses.dataclass
class Day:
    n: int


class Week(pydantic.BaseModel):
    days: list[int]

    @pydantic.computed_field
    def total(self) -> int:
        return sum(self.days)


class Night(msgspec.Struct):
    stars: int


def returning(annotation: Any, value: Any) -> Any:
    async def function() -> None:
        return value

    function.__annotations__ = {"return": annotation}
    return tool(function, name="t")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("returns", "json", "is_object"),
    [
        ((Day, Day(1)), '{"n":1}', True),
        ((dict[str, int], {"a": 1}), '{"a":1}', True),
        ((Week, Week(days=[1, 2])), '{"days":[1,2],"total":3}', True),
        ((list[Day], [Day(1)]), '[{"n":1}]', False),
        ((int, 3), "3", False),
        ((bool, False), "false", False),
        ((Day | None, None), "null", False),
        ((dt.date, dt.date(2026, 7, 28)), '"2026-07-28"', False),
        ((Day | Night, Night(3)), '{"stars":3}', False),
    ],
)
async def test_data_is_structured_as_far_as_the_revision_takes_it(
    connect, revision, returns, json, is_object
):  # F-7, F-8, F-9
    server = Server("s")
    server.add_tool(returning(*returns))
    client = connect(server, revision)
    listed, result = client.tool("t"), await client.call("t")
    assert result["content"] == [{"type": "text", "text": json}]
    expected = msgspec.json.decode(json)
    if revision in {A, B}:
        assert "outputSchema" not in listed
        assert "structuredContent" not in result
    elif is_object:
        assert listed["outputSchema"]["type"] == "object"
        assert result["structuredContent"] == expected
    elif revision in OBJECTS_ONLY:
        assert listed["outputSchema"]["type"] == "object"
        assert listed["outputSchema"]["required"] == ["result"]
        assert result["structuredContent"] == {"result": expected}
    else:
        assert listed["outputSchema"].get("type") != "object"
        assert result["structuredContent"] == expected


async def test_every_structured_result_conforms_to_the_schema_that_is_listed(server, connect):
    import jsonschema_rs

    server.add_tool(returning(list[Day], [Day(1)]))
    for revision in (C, D, E):
        client = connect(server, revision)
        schema, result = client.tool("t")["outputSchema"], await client.call("t")
        jsonschema_rs.validate(schema, result["structuredContent"])


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "text"),
        (Any, {"a": 1}),
        (None, None),
        (str | None, None),
        (Image, Image(b"")),
        (list[Image], []),
        (str | Image, "a"),
        (list, [1]),
        (list[Any], [1]),
        (ToolResult, ToolResult("a")),
        (Annotated[str, "prose"], "a"),
        (TextContent, TextContent("a")),
    ],
)
async def test_prose_and_content_are_not_data(server, client, annotation, value):
    server.add_tool(returning(annotation, value))
    assert "outputSchema" not in client.tool("t")
    assert "structuredContent" not in await client.call("t")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "3"),
        (Day, {"n": "1"}),
        (list[Day], [{}]),
        (Annotated[int, msgspec.Meta(le=5)], 6),
        (Day | Night, {"stars": "many"}),
        (Week, {"days": ["many"]}),
        (Day, None),
        (int, object()),
        (Any, object()),
        (int, ToolResult("three")),
        (int, ToolResult(structured="three")),
        (Any, File("no uri")),
    ],
)
async def test_a_result_that_is_not_what_was_promised_is_the_servers_fault(
    server, client, caplog, annotation, value
):
    server.add_tool(returning(annotation, value))
    result = await client.call("t")
    assert result["isError"]
    assert result["content"] == [{"type": "text", "text": "Tool t failed"}]
    assert "structuredContent" not in result
    assert "Traceback" in caplog.text


async def test_a_number_that_json_does_not_have_is_named_and_not_the_null_it_would_become(
    server, client, caplog
):
    server.add_tool(returning(dict[str, float], {"mean": float("nan")}))
    assert (await client.call("t"))["isError"]
    assert "JSON has no number nan" in caplog.text
    assert "at `$.mean`" in caplog.text


def test_a_return_annotation_without_a_json_form_is_refused():
    with pytest.raises(RegistrationError, match="return annotation has no JSON form"):
        returning(pytest.Session, None)


PNG = {"type": "image", "data": "AAE=", "mimeType": "image/png"}
LINK = ResourceLink(uri="x://a", name="a", description="An a", icons=[Icon("data:,")], meta={"k": 1})


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, []),
        ("a", [{"type": "text", "text": "a"}]),
        ({"a": 1}, [{"type": "text", "text": '{"a":1}'}]),
        (["a", "b"], [{"type": "text", "text": '["a","b"]'}]),
        ([PurePosixPath("a/b")], [{"type": "text", "text": '["a/b"]'}]),
        (Image(b"\0\1"), [PNG]),
        (
            ["a", Image(b"\0\1"), {"n": 1}],
            [{"type": "text", "text": "a"}, PNG, {"type": "text", "text": '{"n":1}'}],
        ),
        ([["a"], Image(b"\0\1")], [{"type": "text", "text": '["a"]'}, PNG]),
        (
            File("t", "x://f"),
            [{"type": "resource", "resource": {"uri": "x://f", "text": "t", "mimeType": "text/plain"}}],
        ),
        (
            File(b"\0\1", "x://f", "a/b"),
            [{"type": "resource", "resource": {"uri": "x://f", "blob": "AAE=", "mimeType": "a/b"}}],
        ),
        (Audio(b"\0\1"), [{"type": "audio", "data": "AAE=", "mimeType": "audio/wav"}]),
    ],
)
async def test_values_become_blocks(server, client, value, content):
    server.add_tool(returning(Any, value))
    assert (await client.call("t"))["content"] == content


@pytest.mark.parametrize(
    ("value", "revision", "block"),
    [
        (
            Audio(b"\0\1"),
            A,
            {
                "type": "resource",
                "resource": {"uri": "urn:mcpbus:audio", "blob": "AAE=", "mimeType": "audio/wav"},
            },
        ),
        (
            Audio(b"\0\1", annotations=Annotations(priority=0.5, last_modified="2026-01-01T00:00:00Z")),
            A,
            {
                "type": "resource",
                "resource": {"uri": "urn:mcpbus:audio", "blob": "AAE=", "mimeType": "audio/wav"},
                "annotations": {"priority": 0.5},
            },
        ),
        (Audio(b"\0\1"), B, {"type": "audio", "data": "AAE=", "mimeType": "audio/wav"}),
        (LINK, A, {"type": "text", "text": "a: x://a (An a)"}),
        (LINK, B, {"type": "text", "text": "a: x://a (An a)"}),
        (
            LINK,
            C,
            {"type": "resource_link", "uri": "x://a", "name": "a", "description": "An a", "_meta": {"k": 1}},
        ),
        (
            LINK,
            D,
            {
                "type": "resource_link",
                "uri": "x://a",
                "name": "a",
                "description": "An a",
                "icons": [{"src": "data:,"}],
                "_meta": {"k": 1},
            },
        ),
        (
            TextContent("a", Annotations(priority=1.0, last_modified="2026-01-01T00:00:00Z"), {"k": 1}),
            B,
            {"type": "text", "text": "a", "annotations": {"priority": 1.0}},
        ),
        (
            File("t", "x://f", meta={"k": 1}),
            B,
            {"type": "resource", "resource": {"uri": "x://f", "text": "t", "mimeType": "text/plain"}},
        ),
    ],
)
async def test_a_block_is_what_the_revision_knows(server, connect, value, revision, block):
    server.add_tool(returning(Any, value))
    assert (await connect(server, revision).call("t"))["content"] == [block]


async def test_a_block_that_no_client_would_take_is_the_tools_failure(server, client, caplog):
    server.add_tool(returning(Any, [TextContent(5)]))
    assert (await client.call("t"))["isError"] is True
    assert "this is no TextContent of the protocol: Expected `str`, got `int` - at `$.text`" in caplog.text


@pytest.mark.parametrize("kind", [Image, Audio])
@pytest.mark.parametrize("data", ["a.png", Path("a.png"), None])
def test_an_image_is_its_bytes_and_not_where_they_are(kind, data):
    with pytest.raises(
        TypeError, match=rf"bytes themselves, not .*; such as {kind.__name__}\(path.read_bytes\(\)\)"
    ):
        kind(data)


def test_a_file_is_what_it_holds_and_not_where_it_is():
    with pytest.raises(TypeError, match=r"text or bytes, not .*'a.png'.*read_bytes"):
        File(Path("a.png"))


async def test_the_meta_of_a_tool_result_may_hold_models(server, connect):
    server.add_tool(returning(Any, ToolResult("a", meta={"week": Week(days=[1, 2])})))
    for revision in (D, E):
        result = await connect(server, revision).call("t")
        assert result["_meta"]["week"] == {"days": [1, 2], "total": 3}


async def test_a_tool_result_says_everything(server, connect):  # F-20
    server.add_tool(returning(Any, ToolResult(["a"], {"n": 1}, is_error=True, meta={"k": 1})))
    legacy, modern = await connect(server, D).call("t"), await connect(server, E).call("t")
    assert legacy == {
        "content": [{"type": "text", "text": '["a"]'}],
        "structuredContent": {"n": 1},
        "isError": True,
        "_meta": {"k": 1},
    }
    assert modern["_meta"] == {
        "io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1.0"},
        "k": 1,
    }
    assert modern["resultType"] == "complete"


@pytest.mark.parametrize("nothing", [[], ()])
async def test_a_tool_result_may_say_nothing(server, connect, nothing):
    server.add_tool(returning(Any, ToolResult(nothing, {"n": 1})))
    result = await connect(server, D).call("t")
    assert result == {"content": [], "structuredContent": {"n": 1}}


@pytest.mark.parametrize(("revision", "structured"), [(A, None), (C, None), (D, None), (E, [1])])
async def test_structure_without_a_schema_is_left_out_where_only_objects_go(
    server, connect, revision, structured
):  # F-9
    server.add_tool(returning(Any, ToolResult(structured=[1])))
    result = await connect(server, revision).call("t")
    assert result.get("structuredContent") == structured
    assert result["content"] == [{"type": "text", "text": "[1]"}]


@pytest.mark.parametrize(
    ("revision", "members"),
    [
        (A, set()),
        (B, {"annotations"}),
        (C, {"annotations", "title", "outputSchema", "_meta"}),
        (D, {"annotations", "title", "outputSchema", "_meta", "icons"}),
        (E, {"annotations", "title", "outputSchema", "_meta", "icons"}),
    ],
)
def test_a_list_shows_what_the_revision_knows(server, connect, revision, members):  # F-1, F-18, O-1, R-1
    async def function() -> Day: ...

    server.add_tool(
        function,
        name="t",
        title="T",
        description="d",
        annotations=ToolAnnotations(read_only_hint=True),
        icons=[Icon("data:,")],
        meta={"k": 1},
    )
    assert connect(server, revision).tool("t").keys() == {"name", "description", "inputSchema"} | members


async def test_contents_of_resources_may_be_blocks_too(server, client):
    contents = TextResourceContents("x://b", "b")

    @server.resource("x://a")
    async def read() -> Any:
        return [File("a"), contents]

    result = await client.run("resources/read", uri="x://a")
    assert [(part["uri"], part["text"]) for part in result["contents"]] == [("x://a", "a"), ("x://b", "b")]


@dataclasses.dataclass
class Tree:
    name: str
    children: "list[Tree]" = dataclasses.field(default_factory=list)


@pytest.mark.parametrize("revision", [D, E])
@pytest.mark.parametrize(("returns", "value"), [(Tree, Tree("a", [Tree("b")])), (list[Tree], [Tree("a")])])
async def test_a_recursive_schema_is_at_the_root_and_refers_to_itself(
    server, connect, revision, returns, value
):
    import jsonschema_rs

    server.add_tool(returning(returns, value))
    client = connect(server, revision)
    schema, result = client.tool("t")["outputSchema"], await client.call("t")
    assert "$ref" not in schema
    jsonschema_rs.validate(schema, result["structuredContent"])


async def test_a_failure_need_not_look_like_a_success(server, client):
    server.add_tool(returning(int, ToolResult("no", {"why": "no"}, is_error=True)))
    result = await client.call("t")
    assert (result["isError"], result["content"][0]["text"]) == (True, "no")
    assert result["structuredContent"] == {"why": "no"}


class Meeting(pydantic.BaseModel):
    begins: dt.datetime
    ends: list[pydantic.AwareDatetime] = []


def test_a_model_promises_no_offset_that_what_it_sends_may_lack():
    """RFC 3339, which `date-time` stands for, wants one; what is received without is taken."""

    async def meet(meeting: Meeting) -> Meeting: ...

    made = tool(meet)
    sent = msgspec.json.decode(made.output.schema(LATEST))["properties"]
    assert (sent["begins"]["type"], sent["begins"].get("format")) == ("string", None)
    assert sent["ends"]["items"]["format"] == "date-time"
    received = made.arguments.document["$defs"]["Meeting"]["properties"]
    assert received["begins"]["format"] == "date-time"


class OwnSchema(pydantic.BaseModel):
    begins: dt.datetime

    @classmethod
    def __get_pydantic_json_schema__(cls, schema, handler):
        return {**handler.resolve_ref_schema(handler(schema)), "title": "A moment"}


def test_a_model_may_change_its_schema():
    async def meet() -> OwnSchema: ...

    assert msgspec.json.decode(tool(meet).output.schema(LATEST))["title"] == "A moment"
