"""What a token has to allow for one thing and not for another."""

from typing import Any

import pytest
from channels import call, request, sse, ws
from guarded import METADATA, challenge_of, guarded, make_server

from mcpbus import Context, RegistrationError, Server, SyncContext
from mcpbus.auth import Principal
from mcpbus.features.tool import tool
from mcpbus.protocol.errors import INVALID_REQUEST, ProtocolError
from mcpbus.protocol.scopes import Scopes
from mcpbus.tasks import TASKS
from mcpbus.testing import InMemoryIssuer, open_bus, open_client, open_probe

ASKED = {
    "tool": ("tools/call", {"name": "write", "arguments": {}}, "files:read files:write"),
    "tool that needs more": (
        "tools/call",
        {"name": "delete", "arguments": {}},
        "files:read files:write files:delete",
    ),
    "prompt": ("prompts/get", {"name": "letter", "arguments": {"to": "ada"}}, "files:read prompts"),
    "resource": ("resources/read", {"uri": "file://secret"}, "files:read secrets"),
    "template": ("resources/read", {"uri": "file://home/ada"}, "files:read home"),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "to", "value": ""}},
        "files:read prompts",
    ),
    "completion of a template": (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "file://home/{name}"},
            "argument": {"name": "name", "value": ""},
        },
        "files:read home",
    ),
    "request of an extension": ("com.example/audit", {}, "files:read audit"),
}
LEGACY = {**ASKED, "subscription": ("resources/subscribe", {"uri": "file://secret"}, "files:read secrets")}
MODERN = {
    **ASKED,
    "listen": (
        "subscriptions/listen",
        {"notifications": {"resourceSubscriptions": ["file://secret", "file://home/a", "file://none"]}},
        "files:read secrets home",
    ),
}
UNSCOPED = {
    "a tool": ("tools/call", {"name": "whoami", "arguments": {}}),
    "a tool that is not there": ("tools/call", {"name": "none", "arguments": {}}),
    "a resource that is not there": ("resources/read", {"uri": "file://none"}),
    "a list": ("tools/list", {}),
    "what is malformed": ("completion/complete", {"ref": 7}),
    "a name that is none": ("tools/call", {"name": 7}),
    "nothing": ("prompts/get", {}),
}


async def sender(it, era, token):
    """What sends requests of an era with a token, and the same with another one."""
    if era == "modern":
        return lambda method, params, token: it.probe.request(method, params, headers=token)
    session = await it.probe.initialize(headers=token)
    of_session = {"mcp-session-id": session.id, "mcp-protocol-version": "2025-11-25"}
    return lambda method, params, token: it.probe.post(request(7, method, params), {**of_session, **token})


@pytest.mark.parametrize(
    ("era", "asked"),
    [
        pytest.param(era, asked, id=f"{era} {what}")
        for era, table in (("legacy", LEGACY), ("modern", MODERN))
        for what, asked in table.items()
    ],
)
async def test_what_a_token_does_not_allow_is_refused_before_anything_begins(era, asked, autojump_clock):
    method, params, needed = asked
    async with guarded() as it:
        poor = it.issuer.bearer("ada", ["files:read"])
        send = await sender(it, era, poor)
        await it.quiet()
        before = it.bus.system.statistics().spawned
        answer = await send(method, params, poor).ended()
        assert answer.status == 403
        assert challenge_of(answer) == {
            "scheme": "Bearer",
            "error": "insufficient_scope",
            "error_description": "the token does not allow this",
            "scope": needed,
            "resource_metadata": METADATA,
        }
        assert it.bus.system.statistics().spawned == before
        # All of it at once: with what was asked for, the client is let in, with anything less it is asked for the same.
        for scope in needed.split():
            less = [other for other in needed.split() if other != scope]
            again = await send(method, params, it.issuer.bearer("ada", less)).ended()
            assert (again.status, challenge_of(again)["scope"]) == (403, needed)
        rich = send(method, params, it.issuer.bearer("ada", needed.split()))
        assert (await rich.begun()).status == 200


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("what", UNSCOPED)
async def test_what_needs_no_scopes_is_left_to_who_serves_it(era, what, autojump_clock):
    method, params = UNSCOPED[what]
    async with guarded() as it:
        token = it.issuer.bearer("ada", ["files:read"])
        send = await sender(it, era, token)
        assert (await send(method, params, token).ended()).status in {200, 400, 404}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_broader_scope_counts_for_the_narrower_ones(era, autojump_clock):  # A-10
    async with guarded() as it:
        token = it.issuer.bearer("ada", ["files:admin"])
        send = await sender(it, era, token)
        assert (await send(*ASKED["tool"][:2], token).ended()).status == 200
        assert (await send(*ASKED["tool that needs more"][:2], token).ended()).status == 403


async def test_a_task_is_its_principals_with_whatever_token(autojump_clock):
    """Its call needed the scopes; another principal's token is good for nothing, however much it allows."""
    server = make_server()

    @server.tool(task="required", scopes=["files:write"])
    async def archive() -> str:
        return "archived"

    tasks = {"extensions": {TASKS: {}}}
    async with guarded(server=server) as it:
        rich, poor = (it.issuer.bearer("ada", ["files:read", *more]) for more in (["files:write"], []))

        def ask(method, params, token):
            return it.probe.request(method, params, capabilities=tasks, headers=token)

        called = {"name": "archive", "arguments": {}}
        assert (await ask("tools/call", called, poor).ended()).status == 403
        which = {"taskId": (await ask("tools/call", called, rich).reply())["result"]["taskId"]}
        await it.quiet()
        for token in (rich, poor):
            seen = (await ask("tasks/get", which, token).reply())["result"]
            assert (seen["status"], seen["result"]["content"][0]["text"]) == ("completed", "archived")
        other = it.issuer.bearer("bob", ["files:read", "files:write"])
        assert (await ask("tasks/get", which, other).reply())["error"]["code"] == -32602


def test_scopes_may_stand_for_each_other_in_a_circle():
    scopes = Scopes({"a": ["b"], "b": ["c"], "c": ["a", "d"]})
    for granted in "abc":
        assert not scopes.missing(["a", "b", "c", "d"], frozenset(granted))
    assert scopes.missing(["a"], frozenset("d"))
    assert not scopes.missing([], frozenset())


async def test_the_headers_of_a_call_that_says_another_name_open_nothing(autojump_clock):
    async with guarded() as it:
        token = it.issuer.bearer("ada", ["files:read"])
        params = {"name": "write", "arguments": {}}
        answer = await it.probe.request("tools/call", params, headers={**token, "mcp-name": "whoami"}).ended()
        assert (answer.status, answer.messages[0]["error"]["code"]) == (400, -32020)


BATCH = [
    call(1, "whoami"),
    call(2, "write"),
    request(3, "resources/read", {"uri": "file://secret"}),
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
]


@pytest.mark.parametrize("way", ["endpoint", "sse"])
async def test_a_batch_that_needs_more_is_refused_whole(way, autojump_clock):
    async with guarded() as it:
        poor = it.issuer.bearer("ada", ["files:read"])
        rich = it.issuer.bearer("ada", ["files:read", "files:write", "secrets"])
        if way == "endpoint":
            session = await it.probe.initialize("2025-03-26", headers=poor)
            of_session = {"mcp-session-id": session.id}
            refused = await it.probe.post(BATCH, {**of_session, **poor}).ended()
            served = await it.probe.post(BATCH, {**of_session, **rich}).ended()
            assert {message["id"] for message in served.messages} == {1, 2, 3}
        else:
            async with sse(it.probe, "2025-03-26", **poor) as client:
                refused = await client.post(BATCH).ended()
                assert len(client.stream.messages) == 1
                assert (await client.post(BATCH, **rich).ended()).status == 202
                assert {(await client.stream.message())["id"] for _ in range(3)} == {1, 2, 3}
        assert (refused.status, challenge_of(refused)["scope"]) == (403, "files:read files:write secrets")


async def test_over_a_websocket_each_of_a_batch_is_answered_by_itself(autojump_clock):
    async with guarded() as it:
        poor = it.issuer.bearer("ada", ["files:read"])
        async with ws(it.app, "2025-03-26", **poor) as client:
            client.say(BATCH)
            replies = {reply["id"]: reply for reply in [await client.message() for _ in range(3)]}
            needed = {key: reply.get("error", {}).get("data") for key, reply in replies.items()}
            assert needed == {
                1: None,
                2: {"requiredScopes": ["files:read", "files:write"]},
                3: {"requiredScopes": ["files:read", "secrets"]},
            }


async def test_over_http_sse_each_request_has_the_scopes_of_its_own_token(autojump_clock):
    async with guarded() as it:
        poor, rich = (it.issuer.bearer("ada", scopes) for scopes in (["files:read"], ["files:admin"]))
        async with sse(it.probe, "2024-11-05", **poor) as client:
            refused = await client.post(call(1, "write")).ended()
            assert (refused.status, challenge_of(refused)["scope"]) == (403, "files:read files:write")
            assert (await client.post(call(2, "write"), **rich).ended()).status == 202
            assert (await client.stream.message())["id"] == 2
            assert (await client.post(call(3, "write")).ended()).status == 403
            modern = call(4, "write", modern=True)
            assert (await client.post(modern).ended()).status == 403


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_over_a_websocket_it_is_the_answer(era, autojump_clock):
    async with guarded() as it:
        token = it.issuer.bearer("ada", ["files:read"])
        async with ws(it.app, "2025-11-25" if era == "legacy" else None, **token) as client:
            reply = await client.ask(call(1, "write", modern=era == "modern"))
            assert reply["error"]["data"] == {"requiredScopes": ["files:read", "files:write"]}
            assert reply["error"]["code"] == INVALID_REQUEST
            reply = await client.ask(call(2, "whoami", modern=era == "modern"))
            assert reply["result"]["structuredContent"]["subject"] == "ada"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_in_process_a_principal_has_its_scopes_and_nobody_may_do_all(revision, autojump_clock):
    server = make_server(auth=InMemoryIssuer().protect(scopes=["files:read"]))
    ada = Principal("https://a", "ada", "app", ["files:read"])
    async with open_client(server, revision=revision, principal=ada) as client:
        assert (await client.call_tool("whoami"))["structuredContent"]["subject"] == "ada"
        with pytest.raises(ProtocolError, match="it needs files:read files:write"):
            await client.call_tool("write")
    async with open_client(server, revision=revision) as client:
        assert (await client.call_tool("write"))["content"][0]["text"] == "wrote "
    async with open_client(server, revision=revision, principal="ada") as client:
        with pytest.raises(ProtocolError, match="it needs files:read"):
            await client.call_tool("whoami")


async def test_what_is_hidden_is_not_there_and_what_is_not_allowed_is(autojump_clock):
    def visible(principal, item):
        return item.name != "delete" or "files:delete" in principal.scopes

    async with guarded(server=make_server(visible=visible)) as it:
        everything = ["files:read", "files:write", "files:delete"]
        for scopes, tools, said in (
            (["files:read"], ["write", "whoami"], "unknown tool"),
            (
                ["files:read", "files:delete"],
                ["write", "whoami", "delete"],
                "files:read files:write files:delete",
            ),
            (everything, ["write", "whoami", "delete"], "deleted"),
        ):
            token = it.issuer.bearer("ada", scopes)
            listed = (await it.probe.request("tools/list", headers=token).reply())["result"]
            assert ([each["name"] for each in listed["tools"]], listed["cacheScope"]) == (tools, "private")
            answer = await it.probe.request("tools/call", {"name": "delete"}, headers=token).ended()
            assert said in (challenge_of(answer)["scope"] if answer.status == 403 else answer.body.decode())


async def test_a_handler_may_say_what_its_principals_are(autojump_clock):
    server = Server("files")

    @server.tool
    async def whose(ctx: Context[Any, Principal]) -> str:
        return ctx.principal.subject

    @server.tool
    def whose_is_it(ctx: SyncContext[Any, Principal]) -> str:
        return ctx.principal.subject

    async with open_client(server, principal=Principal("https://a", "ada", "app")) as client:
        for name in ("whose", "whose_is_it"):
            assert (await client.call_tool(name))["content"][0]["text"] == "ada"


async def test_a_tool_of_a_session_has_scopes_too(autojump_clock):
    async with guarded() as it:
        token = it.issuer.bearer("ada", ["files:read"])
        session = await it.probe.initialize(headers=token)
        it.bus.sessions[session.id].add_tool(tool(lambda: "own", name="own", scopes=["own"]))
        answer = await session.request("tools/call", {"name": "own", "arguments": {}}).ended()
        assert (answer.status, challenge_of(answer)["scope"]) == (403, "files:read own")


@pytest.mark.parametrize("scopes", ["files:read", ["a b"], [7], 7])
def test_scopes_that_are_none_cannot_be_registered(scopes):
    server = Server("files")
    for register in (server.tool, server.prompt, lambda **o: server.resource("a://b", **o)):
        with pytest.raises(RegistrationError, match="scope"):
            register(name="a", scopes=scopes)(lambda: "")


async def test_scopes_that_nobody_would_ask_for_are_refused_and_so_is_serving_them(autojump_clock):
    open_to_all = "give the server auth=ResourceServer"
    for register in (
        lambda server: server.add_tool(lambda: "", name="a", scopes=["a"]),
        lambda server: server.add_prompt(lambda: "", name="a", scopes=["a"]),
        lambda server: server.add_resource("a://b", lambda: "", name="a", scopes=["a"]),
    ):
        server = Server("files")
        async with open_bus(server) as bus:
            bus.asgi()
            with pytest.raises(RegistrationError, match=open_to_all):
                register(server)
        server = Server("files")
        register(server)
        async with open_bus(server) as bus:
            with pytest.raises(RegistrationError, match=open_to_all):
                bus.asgi()
    async with open_bus(Server("files")) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        with pytest.raises(RegistrationError, match=open_to_all):
            bus.sessions[session.id].add_tool(tool(lambda: "", name="a", scopes=["a"]))


async def test_with_an_authenticate_of_ones_own_scopes_are_refused_as_well():
    async def authenticate(head):
        return "ada"

    server = make_server(authenticate=authenticate)
    async with server.open() as bus:
        with pytest.raises(RegistrationError, match="give the server auth=ResourceServer"):
            bus.asgi()


async def test_in_process_and_over_stdio_scopes_need_no_issuer(autojump_clock):
    async with open_client(make_server()) as client:
        assert (await client.call_tool("write"))["content"][0]["text"] == "wrote "
