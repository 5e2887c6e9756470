"""A long call is read in one go, with its arguments; whatever it says, it is answered as if it had been read in parts."""

import json
import math
from typing import Annotated

import pydantic
import pytest
import trio
from msgspec import Meta

from mcpbus import Server, Session
from mcpbus.protocol.http import validation
from mcpbus.testing import open_bus, open_probe

LONG = "prose " * 2_000
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "echo",
}


class Strict(pydantic.RootModel[str]):
    """Text that its author's code looks at, which fails."""

    @pydantic.field_validator("root")
    @classmethod
    def look(cls, text):
        raise RuntimeError("the author's code failed")


def serving():
    server = Server("s")

    @server.tool
    async def strict(text: Strict) -> str:
        return text.root

    @server.tool(visible=lambda _: False)
    async def hidden(text: Strict) -> str:
        return text.root

    @server.tool
    async def echo(text: str, times: int = 1) -> str:
        return text * times

    @server.tool
    async def shout(text: str) -> str:
        return text.upper()

    @server.tool
    async def count(words: list[str]) -> int:
        return len(words)

    @server.tool
    async def where(
        text: str, region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]
    ) -> str:
        return region

    @server.tool(input_schema={"type": "object", "properties": {"text": {"type": "string"}}})
    async def loose(given: dict) -> str:
        return given["text"]

    return server


def message(*, tool="echo", method="tools/call", meta=META, params=None, **members):
    arguments = members.pop("arguments", {"text": LONG})
    inner = {"name": tool, "arguments": arguments, "_meta": meta, **(params or {})}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": inner, **members}


def text(sent):
    return json.dumps(sent).encode()


DEEP = 400_000  # a thousand is too much until 3.12; since 3.14 what the stack holds is not
PLAIN = text(message())
WHERE = text(message(tool="where", arguments={"text": LONG, "region": "us"}))
CASES = {
    "as it should be": (PLAIN, {}),
    "with all arguments": (text(message(arguments={"text": LONG, "times": 2})), {}),
    "a whole number with a fraction": (text(message(arguments={"text": LONG, "times": 2.0})), {}),
    "more than ASCII": (json.dumps(message(arguments={"text": LONG + "ø"}), ensure_ascii=False).encode(), {}),
    "of a wrong type": (text(message(arguments={"text": LONG, "times": "two"})), {}),
    "one too many": (text(message(arguments={"text": LONG, "often": 2})), {}),
    "one missing": (text(message(arguments={"times": 2}, params={"padding": LONG})), {}),
    "no arguments": (text(message(arguments=None, params={"padding": LONG})), {}),
    "arguments that are a list": (text(message(arguments=[LONG])), {}),
    "arguments twice": (PLAIN.replace(b'"arguments"', b'"arguments":{"text":1},"arguments"'), {}),
    "another name in the head": (PLAIN, {"mcp-name": "shout"}),
    "another name in the body": (text(message(tool="shout")), {}),
    "no name in the body": (text(message(tool=None)), {}),
    "a name that nobody has": (text(message(tool="nobody")), {"mcp-name": "nobody"}),
    "no name in the head": (PLAIN, {"mcp-name": ""}),
    "another method in the head": (PLAIN, {"mcp-method": "tools/list"}),
    "another method in the body": (text(message(method="prompts/get")), {}),
    "another version in the head": (PLAIN, {"mcp-protocol-version": "2025-11-25"}),
    "no claim": (text(message(meta={})), {}),
    "half a claim": (text(message(meta=dict(list(META.items())[:1]))), {}),
    "a result beside it": (text(message(result={})), {}),
    "another JSON-RPC": (text(message(jsonrpc="1.0")), {}),
    "no id": (text({name: value for name, value in message().items() if name != "id"}), {}),
    "an id that is none": (text(message(id=1.5)), {}),
    "an array": (text([message()]), {}),
    "half of it": (PLAIN[:-20], {}),
    "no UTF-8": (PLAIN.replace(b"prose", b"\xff", 1), {}),
    "no UTF-8 beside it": (text(message(params={"x": "padding"})).replace(b"padding", b"\xff"), {}),
    "too deep": (text(message(params={"x": 0})).replace(b'"x": 0', b'"x": ' + b"[" * DEEP + b"]" * DEEP), {}),
    "a state that nobody has sealed": (text(message(params={"requestState": "Zm9yZ2Vk"})), {}),
    "answers that are no UTF-8": (
        text(message(params={"inputResponses": {"a": "padding"}})).replace(b"padding", b"\xff"),
        {},
    ),
    "arguments that are not flat": (
        text(message(tool="count", arguments={"words": [LONG]})),
        {"mcp-name": "count"},
    ),
    "what its head repeats": (WHERE, {"mcp-name": "where", "mcp-param-region": "us"}),
    "what its head says otherwise": (WHERE, {"mcp-name": "where", "mcp-param-region": "eu"}),
    "a model that fails": (text(message(tool="strict")), {"mcp-name": "strict"}),
    "a model of a tool that nobody sees": (text(message(tool="hidden")), {"mcp-name": "hidden"}),
    "a schema by hand": (text(message(tool="loose")), {"mcp-name": "loose"}),
    "a schema by hand, and a fault": (
        text(message(tool="loose", arguments={"text": [LONG]})),
        {"mcp-name": "loose"},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_is_said_of_a_long_body_does_not_depend_on_how_it_is_read(
    case, monkeypatch, autojump_clock
):
    body, headers = CASES[case]
    assert len(body) > validation._LONG
    answers = []
    async with open_bus(serving()) as bus, open_probe(bus.asgi(), headers=HEADERS) as probe:
        for long in (validation._LONG, math.inf):
            monkeypatch.setattr(validation, "_LONG", long)
            answer = await probe.send("POST", body, headers).ended()
            answers.append((answer.status, answer.body))
    assert answers[0] == answers[1]
    if case in {"as it should be", "with all arguments", "a whole number with a fraction", "more than ASCII"}:
        assert LONG in answers[0][1].decode()


LEGACY = {name: case for name, case in CASES.items() if not case[1]} | {
    "no _meta": (text(message(meta=None)), {}),
    "_meta that is no UTF-8": (text(message(meta={"a": "padding"})).replace(b"padding", b"\xff"), {}),
    "a member that nobody knows": (text(message(params={"x": "padding"})), {}),
    "a task": (text(message(params={"task": {"ttl": 1}})), {}),
    "the name at the end": (
        text(message(params={"arguments": {"text": LONG}})).replace(b'"name": "echo", ', b"")[:-2]
        + b', "name": "echo"}}',
        {},
    ),
    "another name at the end": (PLAIN[:-2] + b', "name": "shout"}}', {}),
    "a prompt of that name": (text(message(method="prompts/get", arguments={"text": LONG})), {}),
}


SERVED = {
    "as it should be",
    "with all arguments",
    "a whole number with a fraction",
    "more than ASCII",
    "arguments twice",
    "no claim",
    "no _meta",
    "a member that nobody knows",
    "a task",
    "the name at the end",
    "a state that nobody has sealed",
}


@pytest.mark.parametrize("case", LEGACY)
async def test_what_is_said_of_a_long_body_in_a_session_does_not_depend_on_it_either(
    case, monkeypatch, autojump_clock
):
    body = LEGACY[case][0].replace(text(META), b"{}")
    server, answers = serving(), []

    @server.prompt
    def echo(text: str) -> str:
        return f"a prompt of {len(text)}"

    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        headers = {
            "accept": HEADERS["accept"],
            "content-type": "application/json",
            "mcp-session-id": session.id,
        }
        for long in (validation._LONG, math.inf):
            monkeypatch.setattr(validation, "_LONG", long)
            answer = await probe.send("POST", body, headers).ended()
            answers.append((answer.status, answer.body))
    assert answers[0] == answers[1]
    assert (LONG in str(answers[0])) == (case in SERVED)


@pytest.mark.parametrize("padding", ["prose", "pros\u00e9"])
@pytest.mark.parametrize("era", ["a session", "modern"])
async def test_it_is_not_looked_through_to_see_where_its_arguments_end(
    era, padding, monkeypatch, autojump_clock
):
    server = serving()

    def fail(_):
        raise AssertionError("they are read already")

    monkeypatch.setattr("mcpbus.features.arguments._decode_members", fail)
    said = padding * 2_000
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        if era == "modern":
            answer = await probe.send("POST", text(message(arguments={"text": said})), HEADERS).ended()
        else:
            session = await probe.initialize()
            answer = await session.request(
                "tools/call", {"name": "echo", "arguments": {"text": said}}
            ).ended()
    assert answer.messages[-1]["result"]["content"] == [{"type": "text", "text": said}]


async def test_a_tool_of_a_session_is_not_read_as_the_one_of_the_server_that_it_hides(autojump_clock):
    def own(text: str) -> str:
        return text.upper()

    server = serving()

    @server.on_session
    async def begin(session: Session) -> None:
        session.add_tool(own, name="echo")

    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        answers = [
            await session.request("tools/call", {"name": "echo", "arguments": arguments}).ended()
            for arguments in ({"text": LONG}, {"text": LONG, "times": 2})
        ]
    content, *_ = answers[0].messages[-1]["result"]["content"]
    assert content["text"] == LONG.upper()
    assert "unknown argument `times`" in str(answers[1].messages)


async def test_what_does_not_grow_is_counted_as_its_text(autojump_clock):
    server, held = Server("s"), []

    @server.tool
    async def wait(text: str) -> str:
        await trio.lowlevel.checkpoint()
        held.append(bus.statistics().held_bytes)
        return ""

    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        body = text(message(tool="wait", arguments={"text": "{}[],:" * 1_000}, meta={}))
        headers = {
            "accept": HEADERS["accept"],
            "content-type": "application/json",
            "mcp-session-id": session.id,
        }
        before = bus.statistics().held_bytes
        await probe.send("POST", body, headers).ended()
    assert held == [before + len(body)]


async def test_a_tool_of_a_session_is_not_read_as_its_later_namesake_of_the_server(autojump_clock):
    server = serving()

    def own(text: str) -> str:
        return text.upper()

    def later(text: str, times: int = 1) -> str:
        return text * times

    @server.on_session
    async def begin(session: Session) -> None:
        session.add_tool(own, name="late")

    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(headers={"mcp-method": "tools/call", "mcp-name": "late"})
        server.add_tool(later, name="late")
        answer = await session.request("tools/call", {"name": "late", "arguments": {"text": LONG}}).ended()
    assert answer.messages[-1]["result"]["content"] == [{"type": "text", "text": LONG.upper()}]
