"""What a client nests deeper than anything that works on values would bear is refused, over whatever it comes."""

import json
import logging
from typing import Any

import msgspec
import pydantic
import pytest
from channels import CLAIM, INITIALIZED, initialize, notification, request, sse, ws

from mcpbus import Context, ProtocolError, Server
from mcpbus.protocol.nesting import MOST_NESTED
from mcpbus.testing import open_bus, open_client, open_probe

RECURSIVE = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/list"}},
    "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}},
}


class Model(pydantic.BaseModel):
    x: Any


def make_server(told):
    server = Server("deep", version="1")

    @server.tool
    async def echo(x: Any) -> Any:
        return x

    @server.tool
    async def model(x: Any) -> Model:
        return Model(x=x)

    @server.tool(input_schema=RECURSIVE)
    async def written(arguments: dict[str, Any]) -> str:
        return "written"

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.list_roots()
        except ProtocolError as error:
            return str(error)
        return "answered"

    @server.on_notification("notifications/odd")
    async def odd(notice) -> None:
        told.append(notice.params)

    return server


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


FINE = nested(MOST_NESTED - 2)
DEEP = nested(MOST_NESTED - 1)
FAR = nested(700)
BEYOND = "[" * 20_000 + "]" * 20_000
"""More than is read on any interpreter."""


def call(tool, value, **more):
    return request(1, "tools/call", {"name": tool, "arguments": {"x": value}}, **more)


def is_refused(answer):
    assert answer["id"] == 1
    assert answer["error"] == {
        "code": -32602,
        "message": "Invalid params: arrays and objects are nested more than 200 levels deep - at `params`",
    }


@pytest.fixture(autouse=True)
def _nothing_is_logged(caplog):
    caplog.set_level(logging.WARNING)
    yield
    assert caplog.messages == []


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("tool", ["echo", "model", "written"])
async def test_arguments_over_http(tool, modern, autojump_clock):
    async with open_bus(make_server([])) as bus, open_probe(bus.asgi()) as probe:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if modern:
            headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
        else:
            session = await probe.initialize("2025-11-25")
            headers |= {"mcp-session-id": session.id}
        for value in (FINE, DEEP, FAR):
            body = json.dumps(call(tool, value, modern=modern)).encode()
            answer = await probe.send("POST", body, headers).ended()
            if value is FINE:
                assert answer.status == 200
                assert not answer.messages[0]["result"].get("isError")
            else:
                assert answer.status == 400
                is_refused(answer.messages[0])


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("connect", [ws, sse])
async def test_arguments_over_a_channel(connect, modern, autojump_clock):
    async with (
        open_bus(make_server([])) as bus,
        open_probe(bus.asgi()) as probe,
        connect(bus.asgi() if connect is ws else probe, "2025-11-25") as client,
    ):
        assert "result" in await client.ask(call("echo", FINE, modern=modern))
        is_refused(await client.ask(call("echo", DEEP, modern=modern)))
        is_refused(await client.ask(call("echo", FAR, modern=modern)))
        assert (await client.ask(request(2, "ping")))["result"] == {}


async def test_arguments_in_the_same_process(autojump_clock):
    async with open_client(make_server([])) as client:
        echoed = await client.call_tool("echo", {"x": FINE})
        assert json.loads(echoed["content"][0]["text"]) == FINE
        with pytest.raises(ProtocolError, match="nested more than 200 levels"):
            await client.call_tool("echo", {"x": DEEP})


async def test_what_a_client_says_of_itself(autojump_clock):
    async with open_bus(make_server([])) as bus, ws(bus.asgi()) as client:
        hello = initialize("2025-11-25", 1)
        hello["params"]["capabilities"] = {"x": DEEP}
        is_refused(await client.ask(hello))
        modern = call("echo", 1, modern=True)
        modern["params"]["_meta"] = CLAIM | {"x": DEEP}
        is_refused(await client.ask(modern))


@pytest.mark.parametrize(
    "answer", [{"result": {"roots": FAR}}, {"error": {"code": 1, "message": "no", "data": FAR}}]
)
async def test_an_answer_to_a_question(answer, autojump_clock):
    async with open_bus(make_server([])) as bus, ws(bus.asgi(), "2025-11-25") as client:
        question = await client.ask(request(1, "tools/call", {"name": "ask", "arguments": {}}))
        said = await client.ask({"jsonrpc": "2.0", "id": question["id"], **answer})
        assert "nested more than 200 levels" in said["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    "answer", ['"result":{"roots":1e999}', '"error":{"code":1,"message":"no","data":1e999}']
)
async def test_an_answer_with_a_number_beyond_any_float(answer, autojump_clock):
    """It is JSON, so that it is found only by those who look at it."""
    async with open_bus(make_server([])) as bus, ws(bus.asgi(), "2025-11-25") as client:
        question = await client.ask(request(1, "tools/call", {"name": "ask", "arguments": {}}))
        client.tell(text=f'{{"jsonrpc":"2.0","id":{json.dumps(question["id"])},{answer}}}')
        assert "Number out of range" in (await client.message())["result"]["content"][0]["text"]


@pytest.mark.parametrize("after", [False, True])
async def test_what_cannot_even_be_read_is_refused_by_its_id_too(after, autojump_clock):
    async with open_bus(make_server([])) as bus, ws(bus.asgi(), "2025-11-25") as client:
        members = [
            '"params":{"name":"echo","arguments":{"x":[' + BEYOND + "]}}",
            '"id":1,"method":"tools/call"',
        ]
        client.tell(text=f'{{"jsonrpc":"2.0",{",".join(members if after else members[::-1])}}}')
        is_refused(await client.message())
        for said in (f'"result":{BEYOND}', f'"error":{{"code":1,"message":"no","data":{BEYOND}}}'):
            question = await client.ask(request(1, "tools/call", {"name": "ask", "arguments": {}}))
            client.tell(text=f'{{"jsonrpc":"2.0","id":{json.dumps(question["id"])},{said}}}')
            assert "nested more than 200 levels" in (await client.message())["result"]["content"][0]["text"]
        assert (await client.ask(request(2, "ping")))["result"] == {}


async def test_a_notification_is_not_given_to_anybody(autojump_clock):
    told = []
    async with open_bus(make_server(told)) as bus, ws(bus.asgi(), "2025-11-25") as client:
        for value in (nested(MOST_NESTED), FAR, FINE):
            client.say(notification("notifications/odd", {"x": value}))
        assert (await client.ask(request(2, "ping")))["result"] == {}
    assert told == [{"x": FINE}]


async def test_an_array_that_cannot_be_split(autojump_clock):
    """Where that is depends on the stack, so each depth about there is tried."""
    async with open_bus(make_server([])) as bus, ws(bus.asgi()) as client:
        await client.ask(initialize("2025-03-26"))
        client.say(INITIALIZED)
        for levels in range(900, 1000):
            client.tell(text="[" + "[" * levels + "]" * levels + "]")
            assert (await client.message())["error"]["code"] in {-32600, -32700}
        assert (await client.ask(request(2, "ping")))["result"] == {}


def test_nothing_here_is_deeper_than_the_parser_admits():
    assert msgspec.json.decode(json.dumps(FAR)) == FAR
