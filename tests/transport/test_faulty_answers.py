"""Clients' answers to questions that cannot be read: whoever asked is told what is wrong, over whatever they come."""

import json

import pytest
from channels import call, request, sse, ws

from mcpbus import Context, ProtocolError, Server
from mcpbus.testing import open_bus, open_probe

FAULTS = {
    "a text for an error": ('"error":"no"', "Expected `object`, got `str` - at `$.error`"),
    "another code": ('"error":{"code":"E1","message":"no"}', "got `str` - at `$.error.code`"),
    "null beside a result": ('"result":{"roots":[]},"error":null', "got `null` - at `$.error`"),
    "both": ('"result":{"roots":[]},"error":{"code":1,"message":""}', "exactly one of result and error"),
    "half of a character": ('"result":{"roots":"\\ud83d"}', "half of a surrogate pair"),
    "nested": (f'"result":{"[" * 20_000}{"]" * 20_000}', "nested more than 200 levels deep"),
}
faulty = pytest.mark.parametrize(("said", "told"), FAULTS.values(), ids=FAULTS)


def make_server():
    server = Server("asking", version="1")

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.list_roots()
        except ProtocolError as error:
            return str(error)
        return "answered"

    return server


def answering(question, said):
    return f'{{"jsonrpc":"2.0","id":{json.dumps(question["id"])},{said}}}'


def is_told(message, told):
    """Whether it is the reply of the call that asked, which says what was wrong with its answer."""
    text = message["result"]["content"][0]["text"]
    return text.startswith("The client's answer cannot be used: ") and told in text


def posted(probe, session, body):
    """POST what the client of a session has written itself."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    return probe.send("POST", body.encode(), {**headers, "mcp-session-id": session.id})


@faulty
async def test_on_a_connection_nothing_else_is_said(said, told, autojump_clock):
    """An error by this id might end a request of the client's own that has the same."""
    async with open_bus(make_server()) as bus, ws(bus.asgi(), "2025-11-25") as client:
        for _ in range(2):
            question = await client.ask(call(1, "ask"))
            client.tell(text=answering(question, said))
            assert is_told(await client.message(), told)
            client.tell(text=answering(question, said))  # nobody waits for it any more
            assert (await client.ask(request(2, "ping")))["result"] == {}


@faulty
async def test_over_http_sse_the_post_is_refused(said, told, autojump_clock):
    async with (
        open_bus(make_server()) as bus,
        open_probe(bus.asgi()) as probe,
        sse(probe, "2025-11-25") as client,
    ):
        question = await client.ask(call(1, "ask"))
        answer = await client.post(answering(question, said).encode()).ended()
        is_refused(answer, told)
        assert is_told(await client.stream.message(), told)


@faulty
async def test_over_http_the_post_is_refused(said, told, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25", capabilities={"roots": {}})
        asking = session.request("tools/call", {"name": "ask", "arguments": {}})
        question = await asking.message()
        for _ in range(2):
            is_refused(await posted(probe, session, answering(question, said)).ended(), told)
            assert is_told((await asking.ended()).messages[-1], told)


def is_refused(answer, told):
    """Rule W-7: by a status, and without an id."""
    (refusal,) = answer.messages
    assert (answer.status, refusal.keys(), refusal["error"]["code"]) == (400, {"jsonrpc", "error"}, -32600)
    assert told in refusal["error"]["message"]


async def test_where_no_session_can_be_waiting_for_it_it_is_refused_as_well(autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi(sessions="stateless")) as probe:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        is_refused(await probe.send("POST", b'{"jsonrpc":"2.0","id":1,"error":"no"}', headers).ended(), "str")


@pytest.mark.parametrize("beside", [[], [request(7, "ping")]])
async def test_in_a_batch(beside, autojump_clock):
    """What else is in it is answered as if that were not there; by itself it is refused."""
    said, told = FAULTS["a text for an error"]
    async with open_bus(make_server()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-03-26", capabilities={"roots": {}})
        asking = session.request("tools/call", {"name": "ask", "arguments": {}})
        question = await asking.message()
        body = f"[{','.join([answering(question, said), *map(json.dumps, beside)])}]"
        answer = await posted(probe, session, body).ended()
        if beside:
            assert (answer.status, answer.messages) == (200, [{"jsonrpc": "2.0", "id": 7, "result": {}}])
        else:
            is_refused(answer, told)
        assert is_told((await asking.ended()).messages[-1], told)


async def test_in_a_batch_on_a_connection(autojump_clock):
    said, told = FAULTS["both"]
    async with open_bus(make_server()) as bus, ws(bus.asgi(), "2025-03-26") as client:
        question = await client.ask(call(1, "ask"))
        client.tell(text=f"[{answering(question, said)},{json.dumps(request(2, 'ping'))}]")
        first, second = await client.message(), await client.message()
        assert {first["id"], second["id"]} == {1, 2}
        assert is_told(first if first["id"] == 1 else second, told)
