"""Resources, templates, prompts and completions."""

import enum
import math
from typing import Annotated, Any

import msgspec
import pytest

from mcpbus import Server
from mcpbus.features.completion import Completion
from mcpbus.features.content import Audio, File, Image, PromptMessage, PromptResult, ToolResult
from mcpbus.features.errors import RegistrationError, ResourceNotFoundError
from mcpbus.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, ProtocolError
from mcpbus.protocol.messages import EmbeddedResource, ResourceLink, TextContent, TextResourceContents

RESOURCE = {"uri": "x://a"}


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("t", {"text": "t", "mimeType": "text/plain"}),
        (b"\0\1", {"blob": "AAE=", "mimeType": "application/octet-stream"}),
        (bytearray(b"\0\1"), {"blob": "AAE=", "mimeType": "application/octet-stream"}),
        (memoryview(b"\0\1"), {"blob": "AAE=", "mimeType": "application/octet-stream"}),
        ({"a": 1}, {"text": '{"a":1}', "mimeType": "application/json"}),
        ([1], {"text": "[1]", "mimeType": "application/json"}),
        (File(b"\0\1", mime_type="image/png"), {"blob": "AAE=", "mimeType": "image/png"}),
        (File("t", uri="x://b"), {"uri": "x://b", "text": "t", "mimeType": "text/plain"}),
    ],
)
async def test_a_value_is_read_as_text_or_blob_with_the_mime_type_of_its_kind(
    server, client, value, contents
):
    @server.resource("x://a")
    async def read() -> Any:
        return value

    result = await client.run("resources/read", **RESOURCE)
    assert result["contents"] == [{"uri": "x://a", **contents}]


async def test_the_registered_mime_type_wins_over_the_kind_of_value(server, client):
    @server.resource("x://a", mime_type="text/markdown")
    async def read() -> str:
        return "# A"

    assert (await client.run("resources/read", **RESOURCE))["contents"][0]["mimeType"] == "text/markdown"
    assert client.ask("resources/list")["resources"] == [
        {"uri": "x://a", "name": "read", "mimeType": "text/markdown"}
    ]


@pytest.mark.parametrize(
    ("returns", "listed"),
    [
        (str | None, "text/plain"),
        (Annotated[str, "a text"], "text/plain"),
        (list[int] | dict[str, int], "application/json"),
        (list[Annotated[int, msgspec.Meta(extra={"has": "no hash"})]], "application/json"),
        (str | bytes, None),
        (str | dict[str, int], None),
        (str | File, None),
    ],
)
async def test_of_several_kinds_each_value_says_its_own(server, client, returns, listed):
    async def read():
        return "t"

    read.__annotations__["return"] = returns
    server.resource("x://a")(read)
    assert client.ask("resources/list")["resources"][0].get("mimeType") == listed
    contents = (await client.run("resources/read", **RESOURCE))["contents"]
    assert contents[0]["mimeType"] == (listed or "text/plain")


@pytest.mark.parametrize(
    ("revision", "code"),
    [
        ("2024-11-05", RESOURCE_NOT_FOUND),
        ("2025-03-26", RESOURCE_NOT_FOUND),
        ("2025-06-18", RESOURCE_NOT_FOUND),
        ("2025-11-25", RESOURCE_NOT_FOUND),
        ("2026-07-28", INVALID_PARAMS),
    ],
)
@pytest.mark.parametrize("uri", ["x://unknown", "users://ten/profile", "users://99/profile"])
async def test_a_resource_that_is_not_there(server, connect, revision, code, uri):  # J-13
    @server.resource("users://{id}/profile")
    async def profile(id: int) -> dict:  # noqa: A002
        raise ResourceNotFoundError

    with pytest.raises(ProtocolError) as refused:
        await connect(server, revision).run("resources/read", uri=uri)
    assert refused.value.code == code
    assert refused.value.data == {"uri": uri}


async def test_what_its_author_says_of_a_resource_that_is_not_there_is_told(server, client):
    @server.resource("users://{id}")
    async def user(id: str) -> str:  # noqa: A002
        raise ResourceNotFoundError(f"{id} has left")

    with pytest.raises(ProtocolError) as refused:
        await client.run("resources/read", uri="users://ada")
    assert refused.value.message == "Resource not found: 'users://ada': ada has left"


async def test_variables_are_converted_and_optional_ones_left_to_their_defaults(server, client):
    @server.resource("x://{n}{?deep,limit}")
    async def read(n: int, deep: bool = False, limit: int = 5) -> list:
        return [n, deep, limit]

    for uri, read_back in [("x://1", "[1,false,5]"), ("x://2?limit=7&deep=true", "[2,true,7]")]:
        assert (await client.run("resources/read", uri=uri))["contents"][0]["text"] == read_back


async def test_a_fixed_uri_comes_before_a_template_and_the_first_template_before_the_second(
    server, client
):
    for uri in ("x://{+a}", "x://{a}/end"):
        server.add_resource(uri, _reader(uri))
    server.add_resource("x://fixed", lambda: "fixed")
    texts = [
        (await client.run("resources/read", uri=uri))["contents"][0]["text"]
        for uri in ("x://fixed", "x://b/end")
    ]
    assert texts == ["fixed", "x://{+a}"]


@pytest.mark.parametrize(
    "uri",
    [
        "docs:////etc/hostname",
        "docs:///%2Fetc/hostname",
        "docs:///a/../../etc/hostname",
        "docs:?name=/etc/x",
    ],
)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_no_uri_reads_a_file_outside_of_the_directory_of_its_template(
    server, connect, tmp_path, uri, revision
):
    server.add_resource("docs:///{+path}", lambda path: (tmp_path / path).read_text())
    server.add_resource("docs:{?name}", lambda name="a": (tmp_path / name).read_text())
    (tmp_path / "a").write_text("the only one")
    client = connect(server, revision)
    server.runner.inline = True
    assert (await client.run("resources/read", uri="docs:///a"))["contents"][0]["text"] == "the only one"
    with pytest.raises(ProtocolError, match="not found") as refused:
        await client.run("resources/read", uri=uri)
    assert refused.value.data == {"uri": uri}


async def test_a_resource_that_opens_no_files_may_be_given_any_value(server, client):
    server.add_resource("page:///{+path}", lambda path: f"the page {path}", unsafe_paths=True)
    result = await client.run("resources/read", uri="page:////etc/../hostname")
    assert result["contents"][0]["text"] == "the page /etc/../hostname"


def _reader(text):
    def read(a: str) -> str:
        return text

    return read


def opaque(a: pytest.Session) -> str: ...


def test_a_prompt_whose_argument_no_text_can_become_is_refused(server):
    with pytest.raises(RegistrationError, match="prompt 'opaque', parameter 'a': its type has no JSON form"):
        server.add_prompt(opaque)


@pytest.mark.parametrize(
    ("uri", "function", "options", "message"),
    [
        ("x://a", lambda a: "", {}, "a fixed URI has no variables"),
        ("x://{a}", lambda: "", {}, "takes no .a., which the URI has"),
        ("x://{a}", lambda a, b=1: "", {}, "has no .b., which the function takes"),
        ("x://{?a}", lambda a: "", {}, "give it a default"),
        ("x://{a}", lambda a: "", {"size": 3}, "a template has no size"),
        ("x://a", lambda: "", {"unsafe_paths": True}, "a fixed URI has no variables for which unsafe_paths"),
        ("a", lambda: "", {}, "absolute URI"),
        ("x://{a}", opaque, {}, "parameter 'a': its type has no JSON form"),
    ],
)
def test_a_resource_that_cannot_be_is_refused(server, uri, function, options, message):
    with pytest.raises(RegistrationError, match=message):
        server.add_resource(uri, function, **options)


@pytest.mark.parametrize("value", [None, object()])
async def test_a_resource_that_breaks_its_promise_tells_nothing(server, client, caplog, value):
    server.add_resource("x://a", lambda: value)
    with pytest.raises(ProtocolError) as refused:
        await client.run("resources/read", **RESOURCE)
    assert (refused.value.code, refused.value.message) == (INTERNAL_ERROR, "Internal error")
    assert "resources/read x://a failed" in caplog.text


async def test_a_prompt_result_says_everything(server, connect):
    @server.prompt(description="For any trip.")
    async def pack(city: str = "") -> PromptResult:
        if not city:
            return PromptResult("Pack.")
        return PromptResult(f"Pack for {city}.", description=f"For {city}.", meta={"k": 1})

    client = connect(server, "2025-11-25")
    said = {"role": "user", "content": {"type": "text", "text": "Pack."}}
    assert await client.run("prompts/get", name="pack") == {
        "description": "For any trip.",
        "messages": [said],
    }
    said["content"]["text"] = "Pack for Oslo."
    assert await client.run("prompts/get", name="pack", arguments={"city": "Oslo"}) == {
        "description": "For Oslo.",
        "messages": [said],
        "_meta": {"k": 1},
    }


@pytest.mark.parametrize(
    "value", [TextContent("t"), Image(b"\0"), ToolResult("t"), PromptMessage("user", "t")], ids=repr
)
async def test_a_resource_that_returns_what_tools_and_prompts_do_is_told_what_is_right(
    server, client, caplog, value
):
    server.add_resource("x://a", lambda: value)
    with pytest.raises(ProtocolError, match="Internal error"):
        await client.run("resources/read", **RESOURCE)
    assert "return text, bytes, data or a File" in caplog.text


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ({"role": "assistant", "content": "t"}, "write PromptMessage('assistant', ...)"),
        ([{"role": "user", "content": {"type": "text", "text": "t"}}], "write PromptMessage('user', ...)"),
        (ToolResult("t"), "this is no content"),
    ],
)
async def test_a_prompt_that_returns_what_is_no_message_is_told_what_is_right(
    server, client, caplog, value, right
):
    server.add_prompt(lambda: value, name="p")
    with pytest.raises(ProtocolError, match="Internal error"):
        await client.run("prompts/get", name="p")
    assert right in caplog.text


async def test_caching_hints_are_the_resources_own(server, client):
    server.add_resource("x://a", lambda: "a", ttl=1.5, cache_scope="public")
    result = await client.run("resources/read", **RESOURCE)
    assert (result["ttlMs"], result["cacheScope"]) == (1500, "public")


class Language(enum.Enum):
    PY = "py"


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("hi", [("user", {"type": "text", "text": "hi"})]),
        (PromptMessage("assistant", TextContent("a")), [("assistant", {"type": "text", "text": "a"})]),
        (
            ["hi", PromptMessage("assistant", TextContent("a"))],
            [("user", {"type": "text", "text": "hi"}), ("assistant", {"type": "text", "text": "a"})],
        ),
        (Image(b"\0\1"), [("user", {"type": "image", "data": "AAE=", "mimeType": "image/png"})]),
        (PromptMessage("user", "one"), [("user", {"type": "text", "text": "one"})]),
        (PromptMessage("assistant", {"n": 1}), [("assistant", {"type": "text", "text": '{"n":1}'})]),
        (
            PromptMessage("user", Image(b"\0\1")),
            [("user", {"type": "image", "data": "AAE=", "mimeType": "image/png"})],
        ),
        (
            [PromptMessage("user", Audio(b"\0\1")), PromptMessage("user", [File("t", uri="x://b")])],
            [
                ("user", {"type": "audio", "data": "AAE=", "mimeType": "audio/wav"}),
                (
                    "user",
                    {
                        "type": "resource",
                        "resource": {"uri": "x://b", "text": "t", "mimeType": "text/plain"},
                    },
                ),
            ],
        ),
        (
            PromptMessage("user", ResourceLink("x://b", "b")),
            [("user", {"type": "resource_link", "uri": "x://b", "name": "b"})],
        ),
        ({"n": 1}, [("user", {"type": "text", "text": '{"n":1}'})]),
        ([], []),
    ],
)
async def test_what_a_prompt_says(server, client, value, messages):  # O-3
    server.add_prompt(lambda: value, name="p", description="d")
    result = await client.run("prompts/get", name="p")
    assert result["messages"] == [{"role": role, "content": content} for role, content in messages]
    assert result["description"] == "d"


@pytest.mark.parametrize(
    ("role", "content", "error", "message"),
    [
        ("system", "hi", ValueError, "'user' or 'assistant', not 'system'"),
        ("hi", "user", ValueError, "'user' or 'assistant', not 'hi'"),
        ("user", None, TypeError, "one piece of content, not None"),
        ("user", ["look:", Image(b"")], TypeError, "return a list of messages, one for each piece"),
        ("user", object(), TypeError, "of type object has no JSON form"),
        ("user", File("t"), ValueError, "needs a uri"),
        ("user", TextContent(5), TypeError, "no TextContent of the protocol: Expected `str`, got `int`"),
        ("user", EmbeddedResource("x"), TypeError, "a File with a uri is embedded by itself"),
        ("user", EmbeddedResource(TextResourceContents(1, "t")), TypeError, r"Expected `str`.*`\$.uri`"),
    ],
)
def test_a_message_of_a_prompt_that_no_client_would_take_is_refused_where_it_is_made(
    role, content, error, message
):
    with pytest.raises(error, match=message):
        PromptMessage(role, content)


async def test_the_arguments_of_a_prompt_are_strings_that_become_what_it_takes(server, client):
    @server.prompt
    async def review(
        code: Annotated[str, "The code"], language: Language = Language.PY, depth: int = 1
    ) -> str:
        """Review code."""
        return f"{code} {language} {depth}"

    (listed,) = client.ask("prompts/list")["prompts"]
    assert listed == {
        "name": "review",
        "description": "Review code.",
        "arguments": [
            {"name": "code", "description": "The code", "required": True},
            {"name": "language"},
            {"name": "depth"},
        ],
    }
    result = await client.run("prompts/get", name="review", arguments={"code": "x", "depth": "3"})
    assert result["messages"][0]["content"]["text"] == "x Language.PY 3"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"name": "nope"}, "unknown prompt 'nope'"),
        ({"name": "p"}, "missing required argument `a`"),
        ({"name": "p", "arguments": {"a": "x"}}, 'argument `a`: Input should be a valid integer, got "x"'),
        ({"name": "p", "arguments": {"a": "1", "c": ""}}, "unknown argument `c`; expected `a`"),
        ({"name": "p", "arguments": {"a": 1}}, "Expected `str`"),
        ({"arguments": {}}, "missing required field `name`"),
    ],
)
async def test_a_prompt_that_cannot_be_had(server, client, params, message):
    def p(a: int) -> str: ...

    server.add_prompt(p)
    with pytest.raises(ProtocolError, match=message) as refused:
        await client.run("prompts/get", **params)
    assert refused.value.code == INVALID_PARAMS


def ask(ref: str, argument: str, value: str = "", **chosen: str) -> dict[str, Any]:
    kind = {"type": "ref/resource", "uri": ref} if "://" in ref else {"type": "ref/prompt", "name": ref}
    return {"ref": kind, "argument": {"name": argument, "value": value}, "context": {"arguments": chosen}}


@pytest.fixture
def completing(server):
    server.add_prompt(_prompt, name="p")
    server.add_resource("x://{a}", lambda a: a)
    return server


def _prompt(a: str, b: str = "") -> str: ...


@pytest.mark.parametrize(
    ("given", "completion"),
    [
        (["a", "b"], {"values": ["a", "b"], "hasMore": False}),
        ([], {"values": [], "hasMore": False}),
        (map(str, range(150)), {"values": [*map(str, range(100))], "hasMore": True, "total": 150}),
        (Completion(["a"], total=9), {"values": ["a"], "hasMore": True, "total": 9}),
        (Completion(["a"], has_more=True), {"values": ["a"], "hasMore": True}),
        (
            Completion(map(str, range(150)), total=500),
            {"values": [*map(str, range(100))], "hasMore": True, "total": 500},
        ),
    ],
)
async def test_at_most_a_hundred_values(completing, client, given, completion):
    completing.completion("p", "a")(lambda value: given)
    assert (await client.run("completion/complete", **ask("p", "a")))["completion"] == completion


async def test_a_completion_sees_what_was_typed_and_what_was_chosen(completing, client):
    @completing.completion("p", "b")
    async def complete(value: str, chosen: dict[str, str]) -> list[str]:
        return [value, chosen["a"]]

    result = await client.run("completion/complete", **ask("p", "b", "typed", a="chosen"))
    assert result["completion"]["values"] == ["typed", "chosen"]


async def test_an_argument_without_a_completion_has_no_proposals(completing, client):
    completing.completion("x://{a}", "a")(lambda value: ["y"])
    assert (await client.run("completion/complete", **ask("x://{a}", "a")))["completion"]["values"] == ["y"]
    assert (await client.run("completion/complete", **ask("p", "a")))["completion"]["values"] == []


@pytest.mark.parametrize(
    ("ref", "argument", "message"),
    [
        ("q", "a", "unknown prompt"),
        ("x://{b}", "b", "unknown prompt or resource template"),
        ("p", "c", "no argument 'c'"),
    ],
)
async def test_a_completion_of_nothing(completing, client, ref, argument, message):
    completing.completion("p", "a")(lambda value: [])
    with pytest.raises(ProtocolError, match=message) as refused:
        await client.run("completion/complete", **ask(ref, argument))
    assert refused.value.code == INVALID_PARAMS


@pytest.mark.parametrize("value", ["abc", [1], None, 3])
async def test_a_completion_is_a_list_of_strings(completing, client, value):
    completing.completion("p", "a")(lambda typed: value)
    with pytest.raises(ProtocolError) as refused:
        await client.run("completion/complete", **ask("p", "a"))
    assert refused.value.code == INTERNAL_ERROR


@pytest.mark.parametrize(
    ("ref", "argument", "function", "message"),
    [
        ("q", "a", lambda v: [], "register the prompt or template 'q' before it"),
        ("p", "c", lambda v: [], "'p' has a, b"),
        ("p", "a", lambda: ["a"], "takes what was typed"),
        ("p", "a", lambda a, b, c: [], "takes what was typed"),
    ],
)
def test_a_completion_that_cannot_be_is_refused(completing, ref, argument, function, message):
    with pytest.raises(RegistrationError, match=message):
        completing.completion(ref, argument)(function)


def test_completions_go_with_what_they_complete(completing):
    completing.completion("p", "a")(lambda v: [])
    with pytest.raises(RegistrationError, match="is registered already"):
        completing.completion("p", "a")(lambda v: [])
    completing.remove_prompt("p")
    completing.add_prompt(_prompt, name="p")
    completing.completion("p", "a")(lambda v: [])


@pytest.mark.parametrize("ttl", [-1, -0.001, math.inf, math.nan, 1e300])
def test_seconds_that_clients_cannot_be_told_are_refused(ttl):  # K-1
    with pytest.raises(ValueError, match="list_ttl is a number of seconds, at least 0"):
        Server("s", list_ttl=ttl)
    with pytest.raises(RegistrationError, match="resource 'x://a': ttl is a number of seconds, at least 0"):
        Server("s").resource("x://a", ttl=ttl)(lambda: "a")
