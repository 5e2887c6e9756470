"""What the official Python SDK's own manifest of requirements lists as not met by its servers, met here.

Each test names the manifest's entry. Those where a server asks its client are in the file beside this one.
"""

import logging
from contextlib import asynccontextmanager

import httpx
import pytest
import trio

from mcpbus import Context, File, ProtocolError, RegistrationError, Server, ToolResult
from mcpbus.core.receipt import Fate
from mcpbus.protocol.messages import Annotations, ResourceLink
from mcpbus.protocol.routes import Reason
from mcpbus.testing import open_bus, open_client, open_probe
from tests.conformance.sessions import initialize, opened, post

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
ALL = [*LEGACY, MODERN]
SECRET = "the password is swordfish"

each_revision = pytest.mark.parametrize("revision", ALL)
each_legacy = pytest.mark.parametrize("revision", LEGACY)


def noted(notes):
    return lambda method, params: notes.append((method.rpartition("/")[2], params))


# -- errors ------------------------------------------------------------------------------------------------------------


@each_revision
async def test_an_internal_error_has_its_code_and_not_its_text(revision, caplog):
    """protocol:error:internal-error."""
    server = Server("s")

    @server.tool
    async def tool() -> str:
        raise RuntimeError(SECRET)

    @server.resource("a://b")
    async def resource() -> str:
        raise RuntimeError(SECRET)

    @server.prompt
    async def prompt() -> str:
        raise RuntimeError(SECRET)

    caplog.set_level(logging.CRITICAL, "mcpbus")
    async with open_client(server, revision=revision) as client:
        result = await client.call_tool("tool")
        assert result["isError"] is True
        assert SECRET not in str(result)
        for asking in (client.read_resource("a://b"), client.get_prompt("prompt")):
            with pytest.raises(ProtocolError) as refused:
                await asking
            assert (refused.value.code, refused.value.message, refused.value.data) == (
                -32603,
                "Internal error",
                None,
            )


@each_revision
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "nope"}),
        ("prompts/get", {"name": "nope"}),
        ("prompts/get", {"name": "review"}),
        ("prompts/get", {"name": "review", "arguments": {"tone": "kind"}}),
        ("prompts/get", {"name": "review", "arguments": {"code": "x", "size": "y"}}),
    ],
)
async def test_what_is_unknown_or_missing_is_a_protocol_error(revision, method, params):
    """mcpserver:tool:unknown-name, mcpserver:prompt:unknown-name, prompts:get:missing-required-args."""
    server = Server("s", capabilities=("tools", "prompts"))

    @server.prompt
    async def review(code: str, tone: str = "kind") -> str:
        raise NotImplementedError

    async with open_client(server, revision=revision) as client:
        with pytest.raises(ProtocolError) as refused:
            await client.request(method, params)
        assert refused.value.code == -32602


def test_a_name_is_given_once():
    """mcpserver:tool:duplicate-name, mcpserver:resource:duplicate-name, mcpserver:prompt:duplicate-name."""
    server = Server("s")

    def function() -> str:
        raise NotImplementedError

    def reader(name: str) -> str:
        raise NotImplementedError

    for register in (
        lambda: server.add_tool(function),
        lambda: server.add_resource("a://b", function),
        lambda: server.add_resource("a://{name}", reader),
        lambda: server.add_prompt(function),
    ):
        register()
        with pytest.raises(RegistrationError):
            register()


# -- progress and logs -------------------------------------------------------------------------------------------------


@each_revision
async def test_progress_that_does_not_increase_is_not_sent(revision):
    """protocol:progress:monotonic."""
    server, receipts, notes = Server("s"), [], []

    @server.tool
    async def tool(ctx: Context) -> None:
        receipts.extend([await ctx.progress(done, 10) for done in (1, 1, 0.5, 2, -1, 2.5)])

    async with open_client(server, revision=revision) as client:
        await client.call_tool("tool", on_notification=noted(notes))
        assert [params["progress"] for _, params in notes] == [1, 2, 2.5]
        stale = Fate.discarded(Reason.NOT_INCREASING)
        assert [receipt.fate == stale for receipt in receipts] == [False, True, True, False, True, False]


@each_revision
async def test_progress_after_the_reply_is_not_sent(revision):
    """protocol:progress:stops-after-completion."""
    server, contexts, notes = Server("s"), [], []

    @server.tool
    async def tool(ctx: Context) -> None:
        contexts.append(ctx)

    async with open_client(server, revision=revision) as client:
        await client.call_tool("tool", on_notification=noted(notes))
        receipt = await contexts[0].progress(1)
        await client.list_tools()
        assert receipt.fate == Fate.discarded(Reason.FINISHED)
        assert (notes, list(client.notifications)) == ([], [])


@each_legacy
async def test_log_lines_below_the_level_of_the_session_are_not_sent(revision):
    """logging:capability:declared, logging:message:filtered."""
    server, notes, other = Server("s"), [], []

    @server.tool
    async def tool(ctx: Context) -> None:
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"):
            await ctx.log(level, level)

    async with open_bus(server) as bus, bus.connect(revision=revision) as one, bus.connect() as two:
        assert one.initialize_result["capabilities"]["logging"] == {}
        await one.request("logging/setLevel", {"level": "critical"})
        await one.call_tool("tool", on_notification=noted(notes))
        assert [params["level"] for _, params in notes] == ["critical", "alert", "emergency"]
        # One client's level is no other's.
        await two.call_tool("tool", on_notification=noted(other), log_level="emergency")
        assert [params["level"] for _, params in other] == ["emergency"]


async def test_log_lines_that_nobody_asked_for_are_not_sent():
    """logging:message:filtered, as revision 2026-07-28 has it."""
    server, notes = Server("s"), []

    @server.tool
    async def tool(ctx: Context) -> None:
        await ctx.log("emergency", "!")

    async with open_client(server) as client:
        await client.call_tool("tool", on_notification=noted(notes))
        assert notes == []


# -- content -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", MODERN])
async def test_the_time_of_the_last_change_survives(revision):
    """resources:annotations."""
    changed = "2026-01-12T15:00:58Z"
    annotations = Annotations(last_modified=changed)
    server = Server("s")

    @server.resource("a://b", annotations=annotations)
    async def resource() -> str:
        raise NotImplementedError

    @server.resource("a://{name}/c", annotations=annotations)
    async def template(name: str) -> str:
        raise NotImplementedError

    @server.tool
    async def tool() -> ToolResult:
        link = ResourceLink("a://b", "b", annotations=annotations)
        return ToolResult([link, File("text", "a://c", annotations=annotations)])

    async with open_client(server, revision=revision) as client:
        [listed] = await client.list_resources()
        [template] = (await client.request("resources/templates/list"))["resourceTemplates"]
        blocks = (await client.call_tool("tool"))["content"]
        for described in (listed, template, *blocks):
            assert described["annotations"]["lastModified"] == changed


# -- sessions ----------------------------------------------------------------------------------------------------------


@each_revision
async def test_what_is_registered_later_is_announced(revision):
    """mcpserver:register:post-connect."""
    server = Server("s", capabilities=("tools", "prompts", "resources"))
    changes = (
        ("tools", lambda: server.add_tool(lambda: "a", name="a")),
        ("prompts", lambda: server.add_prompt(lambda: "a", name="a")),
        ("resources", lambda: server.add_resource("a://a", lambda: "a")),
        ("resources", lambda: server.add_resource("a://{b}", lambda b: b)),
        ("tools", lambda: server.remove_tool("a")),
        ("prompts", lambda: server.remove_prompt("a")),
        ("resources", lambda: server.remove_resource("a://a")),
    )
    async with open_client(server, revision=revision) as client:
        if revision == MODERN:
            async with client.listen(tools=True, prompts=True, resources=True) as listen:
                for kind, change in changes:
                    change()
                    assert (await anext(listen))[0] == f"notifications/{kind}/list_changed"
        else:
            for kind, change in changes:
                change()
                assert (await client.next_notification())[0] == f"notifications/{kind}/list_changed"


@each_legacy
async def test_a_session_is_initialized_once(revision, autojump_clock):
    """hosting:session:reinitialize."""
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "c", "version": "1"},
    }
    async with opened(Server("s")) as (bus, probe):
        session = await initialize(probe, revision, {"sampling": {}})
        again = await post(probe, session, "initialize", params).ended()
        assert (again.status, again.messages[0]["error"]["code"]) == (400, -32600)
        # It goes on as the one that it was, and is no second one.
        [kept] = bus.sessions.values()
        assert (kept.revision.name, kept.client_capabilities) == (revision, {"sampling": {}})
        async with bus.connect(revision=revision) as client:
            with pytest.raises(ProtocolError) as refused:
                await client.request("initialize", params)
            assert refused.value.code == -32600
            await client.request("ping")


# -- HTTP --------------------------------------------------------------------------------------------------------------


async def test_an_event_id_that_names_nothing_is_refused(autojump_clock):
    """hosting:resume:bad-event-id."""
    async with opened(Server("s")) as (_, probe):
        session = await initialize(probe, "2025-11-25", {})
        get = await probe.send(
            "GET", headers={"accept": "text/event-stream", "last-event-id": "nope", **session}
        ).ended()
        assert get.status == 400
        assert get.headers["content-type"] == "application/json"


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("stated", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_that_is_not_said_to_be_json_is_refused(stated, modern, autojump_clock):
    """hosting:http:content-type-415."""
    async with opened(Server("s")) as (_, probe):
        if modern:
            answer = await probe.request("tools/list", headers={"content-type": stated}).ended()
        else:
            session = await initialize(probe, "2025-11-25", {})
            answer = await post(probe, {**session, "content-type": stated}, "tools/list", {}).ended()
        assert answer.status == 415


@asynccontextmanager
async def mounted(server):
    """The bus's application, as another application would mount it."""
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:

        async def get(headers):
            return (await probe.send("GET", headers=headers).ended()).status

        yield get


@asynccontextmanager
async def in_a_lifespan(server):
    """The server's application, as an ASGI server runs it."""
    app = server.asgi()
    messages, asked = trio.open_memory_channel(1)
    started, stopped = trio.Event(), trio.Event()

    async def said(message):
        {"lifespan.startup.complete": started, "lifespan.shutdown.complete": stopped}[message["type"]].set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, {"type": "lifespan"}, asked.receive, said)
        await messages.send({"type": "lifespan.startup"})
        await started.wait()
        async with open_probe(app) as probe:

            async def get(headers):
                return (await probe.send("GET", headers=headers).ended()).status

            yield get
        await messages.send({"type": "lifespan.shutdown"})
        await stopped.wait()


def served(bind):
    @asynccontextmanager
    async def on_a_socket(server):
        async with trio.open_nursery() as nursery:
            [url] = await nursery.start(lambda task_status: server.serve(bind=bind, task_status=task_status))
            async with httpx.AsyncClient() as client:

                async def get(headers):
                    return (
                        await client.get(url.replace("0.0.0.0", "127.0.0.1"), headers=headers)
                    ).status_code

                yield get
            nursery.cancel_scope.cancel()

    return on_a_socket


@pytest.mark.parametrize("start", [mounted, in_a_lifespan, served("127.0.0.1:0"), served("0.0.0.0:0")])
async def test_hosts_and_origins_are_judged_however_it_was_started(start):
    """hosting:http:dns-rebinding."""
    async with start(Server("s")) as get:
        assert await get({"host": "evil.example"}) == 403
        assert await get({"host": "localhost", "origin": "https://evil.example"}) == 403
        # From here on it is only that no session was named.
        assert await get({"host": "localhost", "origin": "http://127.0.0.1:5173"}) == 400
