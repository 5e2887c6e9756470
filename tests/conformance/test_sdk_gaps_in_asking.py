"""What the official Python SDK's own manifest of requirements lists as not met where a server asks, met here.

Each test names the manifest's entry.
"""

import msgspec
import pytest

from mcpbus import Context, ProtocolError, Server
from mcpbus.asking import InputTimeoutError, InputUnavailableError, InvalidInputError
from mcpbus.protocol.meta import CLIENT_CAPABILITIES
from mcpbus.testing import wait_until_idle
from tests.conformance.sessions import initialize, opened, post

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"


class Form(msgspec.Struct):
    name: str


ASKING = [
    # what is asked, and a client that declares almost enough
    (lambda ctx: ctx.elicit("?", Form), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    (lambda ctx: ctx.elicit_url("?", "https://a.example"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
    (
        lambda ctx: ctx.elicit_url("?", "https://a.example"),
        {"elicitation": {"form": {}}},
        {"elicitation": {"url": {}}},
    ),
    (
        lambda ctx: ctx.sample("?", include_context="allServers"),
        {"sampling": {"tools": {}}},
        {"sampling": {"context": {}}},
    ),
    (lambda ctx: ctx.sample("?", tools=[]), {"sampling": {"context": {}}}, {"sampling": {"tools": {}}}),
    (lambda ctx: ctx.list_roots(), {"sampling": {}}, {"roots": {}}),
]


def asking_server(ask, errors):
    server = Server("s")

    @server.tool
    async def tool(ctx: Context) -> str:
        try:
            answer = await ask(ctx)
        except ProtocolError as error:
            errors.append(error)
            raise
        return repr(answer)

    return server


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
@pytest.mark.parametrize(("ask", "declared", "missing"), ASKING)
async def test_a_client_is_not_asked_what_it_did_not_declare(
    ask, declared, missing, revision, autojump_clock
):
    """elicitation:capability:server-respects-mode, sampling:context:server-gated-by-capability."""
    errors = []
    async with opened(asking_server(ask, errors)) as (_, probe):
        if revision == MODERN:
            call = probe.request("tools/call", {"name": "tool", "_meta": {CLIENT_CAPABILITIES: declared}})
        else:
            session = await initialize(probe, revision, declared)
            call = post(probe, session, "tools/call", {"name": "tool"})
        reply = await call.reply()
        # Nothing but the reply: no question was sent.
        assert len(call.messages) == 1
    [error] = errors
    assert isinstance(error, InputUnavailableError)
    assert error.data == {"requiredCapabilities": missing}
    assert reply["error"]["code"] == (-32021 if revision == MODERN else -32603)


def test_a_form_has_no_more_than_forms_may_have():
    """elicitation:form:schema:restricted-subset."""
    context = object.__new__(Context)
    nested = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
    for schema in (nested, {"type": "object", "properties": {"a": {"$ref": "#"}}}, {"type": "string"}):
        with pytest.raises(TypeError):
            context.elicit("?", schema).send(None)


@pytest.mark.parametrize("content", [{}, {"name": 5}, None])
async def test_an_answer_that_is_not_what_the_form_asks_for_is_not_accepted(content, autojump_clock):
    """elicitation:form:response-validation."""
    errors = []
    server = asking_server(lambda ctx: ctx.elicit("?", Form), errors)
    async with opened(server) as (_, probe):
        session = await initialize(probe, "2025-11-25", {"elicitation": {}})
        call = post(probe, session, "tools/call", {"name": "tool"})
        question = await call.message()
        answer = {"action": "accept"} if content is None else {"action": "accept", "content": content}
        await probe.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}, session).ended()
        reply = await call.reply()
    assert [type(error) for error in errors] == [InvalidInputError]
    assert reply["error"]["code"] == -32603


@pytest.mark.parametrize("revision", LEGACY)
async def test_nothing_is_asked_of_a_client_before_it_is_initialized(revision, autojump_clock):
    """lifecycle:pre-initialization-ordering; over HTTP a call may overtake the notification, so it waits for it."""
    errors = []
    server = asking_server(lambda ctx: ctx.list_roots(), errors)
    async with opened(server) as (bus, probe):
        session = await initialize(probe, revision, {"roots": {}}, initialized=False)
        call = post(probe, session, "tools/call", {"name": "tool"})
        await wait_until_idle(bus)
        assert call.messages == []
        await probe.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session).ended()
        question = await call.message()
        assert question["method"] == "roots/list"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}
        await probe.post(answer, session).ended()
        assert (await call.reply())["result"]["content"] == [{"type": "text", "text": "[]"}]


async def test_a_question_waits_for_initialized_no_longer_than_it_may(autojump_clock):
    """lifecycle:pre-initialization-ordering."""
    errors = []
    server = asking_server(lambda ctx: ctx.list_roots(timeout=2), errors)
    async with opened(server) as (_, probe):
        session = await initialize(probe, "2025-11-25", {"roots": {}}, initialized=False)
        call = post(probe, session, "tools/call", {"name": "tool"})
        assert (await call.reply())["error"]["code"] == -32603
        assert [type(error) for error in errors] == [InputTimeoutError]
        assert len(call.messages) == 1


async def test_a_question_that_waits_for_initialized_ends_with_its_session(autojump_clock):
    """lifecycle:pre-initialization-ordering."""
    server = asking_server(lambda ctx: ctx.list_roots(), [])
    async with opened(server) as (bus, probe):
        session = await initialize(probe, "2025-11-25", {"roots": {}}, initialized=False)
        call = post(probe, session, "tools/call", {"name": "tool"})
        await wait_until_idle(bus)
        await probe.send("DELETE", headers=session).ended()
        answer = await call.ended()
        # Its client has left, and would take an error for that of another session.
        assert (answer.status, answer.body) == (200, b"")
        assert bus.statistics().requests == 0
