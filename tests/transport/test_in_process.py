"""Calls in process: what is served at once, what waits, speaks, asks and raises, and what comes before what."""

import itertools
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from places import LEGACY, MODERN, REVISIONS, call, placed, text

from mcpbus import Context, Elicit, InputRequired, ProtocolError, Server, ToolError
from mcpbus.client.pending import PendingRequest
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.testing import wait_until_idle

CAN_BE_ASKED = {"elicitation": {}}


# -- what neither waits nor speaks ---------------------------------------------------------------


@pytest.mark.dormancy
@pytest.mark.eagerness
@REVISIONS
@pytest.mark.parametrize("name", ["cannot_wait", "does_not_wait"])
async def test_a_call_that_neither_waits_nor_speaks_has_no_actor(name, revision, autojump_clock):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        await call(client, name, "first")
        made, emitted = place.made, place.bus.statistics().emitted
        assert await call(client, name, "x") == "x"
        assert place.log == [f"{name} first", f"{name} x"]
        assert place.made == made
        now = place.bus.statistics()
        assert (now.requests, now.emitted - emitted, now.emitted - now.delivered) == (0, 1, 0)


@REVISIONS
async def test_a_handler_has_what_the_lifespan_yielded(revision, autojump_clock):
    @asynccontextmanager
    async def lifespan(_server):
        yield "what handlers share"

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return ctx.state

    async with server.open() as bus, bus.connect(revision=revision) as client:
        assert text(await client.call_tool("look")) == bus.state == "what handlers share"


@REVISIONS
async def test_lists_are_there_at_once_too(revision, autojump_clock):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        made = place.made
        assert [tool["name"] for tool in await client.list_tools()][:2] == ["cannot_wait", "does_not_wait"]
        assert place.made == made


@pytest.mark.dormancy
@pytest.mark.eagerness
@pytest.mark.parametrize("tasks", [1, 32])
@pytest.mark.parametrize("name", ["cannot_wait", "does_not_wait"])
async def test_calls_let_others_run_and_notice_that_they_are_cancelled(name, tasks, autojump_clock):
    async with placed() as place, place.bus.connect() as client, trio.open_nursery() as nursery:

        async def go_on():
            while len(place.log) < 10_000:
                await call(client, name)

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as callers:
                for _ in range(tasks):
                    callers.start_soon(go_on)
                for _ in range(20):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        # All of them together have 64 calls a turn, and each has one at least.
        assert 10 <= len(place.log) <= 22 * (64 + tasks)
        nursery.cancel_scope.cancel()


async def test_calls_that_take_long_let_others_run_the_sooner(autojump_clock):
    async with placed() as place, place.bus.connect() as client:
        now, runs = 0.0, []
        place.bus.clock = lambda: now

        @place.server.tool
        async def takes_long() -> str:
            nonlocal now
            now += 0.0004
            return ""

        async def count():
            while True:
                runs.append(now)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            for _ in range(100):
                await client.call_tool("takes_long")
            nursery.cancel_scope.cancel()
        # Two turns at most, if it is this task's lot to be last in one and first in the next.
        assert 0 < max(b - a for a, b in itertools.pairwise(runs)) < 0.003


@pytest.mark.parametrize("name", ["cannot_wait", "does_not_wait", "waits"])
async def test_a_call_in_a_cancelled_scope_is_never_made(name, autojump_clock):
    async with placed() as place, place.bus.connect() as client:
        emitted = place.bus.statistics().emitted
        with trio.CancelScope() as scope:
            scope.cancel()
            await call(client, name)
        assert scope.cancelled_caught
        await wait_until_idle(place.bus)
        assert (place.log, place.bus.statistics().emitted) == ([], emitted)


@REVISIONS
@pytest.mark.parametrize("name", ["does_not_wait", "waits"])
async def test_a_call_that_is_given_up_before_the_server_looks_at_it_is_never_made(
    name, revision, autojump_clock
):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        emitted = place.bus.statistics().emitted

        body = {"name": name, "arguments": {}, "_meta": client._meta(None, None)}
        pending = PendingRequest()
        client._send(JsonRpcRequest(99, "tools/call", msgspec.Raw(msgspec.json.encode(body))), pending)
        client._give_up(99, pending)
        await wait_until_idle(place.bus)
        assert (place.log, place.bus.statistics().emitted) == ([], emitted)


@pytest.mark.parametrize(("revision", "told"), [("2024-11-05", False), ("2025-03-26", True), (MODERN, True)])
async def test_progress_comes_with_a_message_where_the_revision_has_one(revision, told):  # P-3
    server, heard = Server("s"), []

    @server.tool
    async def speak(ctx: Context) -> None:
        await ctx.progress(1, message="begun")

    async with server.open() as bus, bus.connect(revision=revision) as client:
        await client.call_tool("speak", on_notification=lambda _, params: heard.append(params.get("message")))
    assert heard == ["begun" if told else None]


# -- what waits, speaks, asks, raises ------------------------------------------------------------


@REVISIONS
async def test_a_call_that_waits_lets_all_others_pass(revision, autojump_clock):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        answers = []

        async def wait(key):
            answers.append(await call(client, "waits", key))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(wait, str(number))
            await wait_until_idle(place.bus)
            assert place.bus.statistics().requests == 20
            assert await call(client, "does_not_wait", "x") == "x"
            assert await call(client, "cannot_wait", "y") == "y"
            assert answers == []
            place.go.set()
        assert sorted(answers, key=int) == [str(number) for number in range(20)]


@REVISIONS
async def test_what_a_call_says_comes_in_order_and_before_its_answer(revision, autojump_clock):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        heard = []
        assert (
            await call(client, "speaks", "x", on_notification=lambda _, p: heard.append(p["progress"])) == "x"
        )
        assert heard == [0, 1, 2]


async def test_what_was_said_to_the_session_before_an_answer_comes_before_it(autojump_clock):
    async with placed() as place, place.bus.connect(revision=LEGACY) as client:

        @place.server.tool
        async def adds(ctx: Context) -> str:
            ctx.bus.tools_changed()
            return "added"

        client.notifications.clear()
        for _ in range(20):
            assert text(await client.call_tool("adds")) == "added"
            assert client.notifications.pop()[0] == "notifications/tools/list_changed"


@REVISIONS
@pytest.mark.parametrize("waits", [True, False])
async def test_what_a_handler_raises_is_no_more_than_it_would_be_on_a_wire(
    waits, revision, autojump_clock, caplog
):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        raised = ProtocolError(-30000, "no", {"why": ["because"]})

        async def fail(kind):
            if waits:
                await trio.sleep(1)
            raise {"model": ToolError("not today"), "client": raised, "log": RuntimeError("secret")}[kind]

        place.server.add_tool(fail)
        assert text(await client.call_tool("fail", {"kind": "model"})) == "not today"
        assert "secret" not in str(await client.call_tool("fail", {"kind": "log"}))
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("fail", {"kind": "client"})
        error = caught.value
        assert error is not raised
        assert (error.code, error.message, error.data, error.__cause__) == (-30000, "no", raised.data, None)
        assert error.data is not raised.data
        assert await call(client, "cannot_wait", "on") == "on"


@pytest.mark.parametrize("method", ["nothing/like/that", "tools/call"])
@REVISIONS
async def test_what_is_refused_is_refused_as_on_a_wire(method, revision, autojump_clock):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.request(method, {"name": ["no name"]})
        assert caught.value.code == (-32602 if method == "tools/call" else -32601)


@pytest.mark.parametrize("name", ["cannot_wait", "does_not_wait"])
async def test_a_fault_of_the_bus_itself_is_raised_to_whoever_asked(name, autojump_clock, monkeypatch):
    def broken(*_, **__):
        raise LookupError("broken")

    async with placed() as place, place.bus.connect() as client:
        with monkeypatch.context() as patched:
            patched.setattr("mcpbus.dispatch.dispatcher.admit", broken)
            with trio.fail_after(1), pytest.raises(LookupError, match="broken"):
                await call(client, name)
        assert await call(client, name, "on") == "on"


class _Busy:
    """An actor with much to do, one message at a time."""

    def __init__(self, cell):
        self._cell = cell

    def handle(self, left):
        for _ in range(left):
            self._cell.address.tell(0)
        if not left:
            self._cell.stop()


@REVISIONS
async def test_a_reply_comes_after_what_was_said_however_busy_the_actors_are(revision, autojump_clock):
    async with placed() as place:

        @place.server.tool
        async def chat(ctx: Context) -> str:
            place.bus.system.spawn(_Busy, capacity=1000).tell(1000)
            await ctx.progress(1)
            return "said"

        async with place.bus.connect(revision=revision) as client:
            heard = []
            await client.call_tool("chat", on_notification=lambda *_: heard.append("progress"))
            assert heard == ["progress"]


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_question_is_answered_while_its_call_waits(revision, autojump_clock):
    async def answer(method, params):
        await trio.sleep(1)
        return {"action": "accept", "content": {"value": "Ada"}}

    async with placed() as place:

        @place.server.tool
        async def asks(ctx: Context) -> str:
            return (await ctx.elicit("Who?", str)).data

        options = {"capabilities": CAN_BE_ASKED, "on_input_request": answer}
        async with place.bus.connect(revision=revision, **options) as client:
            assert text(await client.call_tool("asks")) == "Ada"


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_function_without_an_await_may_still_want_answers(revision, autojump_clock):
    async def answer(method, params):
        return {"action": "accept", "content": {"value": "Ada"}}

    async with placed() as place:

        @place.server.tool
        async def wants(ctx: Context) -> str | InputRequired:
            return "again" if ctx.round_state else InputRequired({"name": Elicit("Who?", str)}, state="asked")

        options = {"capabilities": CAN_BE_ASKED, "on_input_request": answer}
        async with place.bus.connect(revision=revision, **options) as client:
            assert text(await client.call_tool("wants")) == "again"


async def test_a_parked_call_outlives_its_client_and_does_not_keep_it(autojump_clock):
    async with placed() as place:

        @place.server.tool
        async def asks(ctx: Context) -> str:
            return (await ctx.elicit("Who?", str)).data

        begun = trio.current_time()
        async with place.bus.connect(capabilities=CAN_BE_ASKED) as client:
            asked = await client.call_tool("asks")
            assert asked["resultType"] == "input_required"
            assert await call(client, "does_not_wait", "on") == "on"
        assert trio.current_time() == begun
        assert len(place.bus.parked_calls) == 1
        [key] = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": "Ada"}}}
        retry = {"name": "asks", "arguments": {}, "inputResponses": answers}
        async with place.bus.connect(capabilities=CAN_BE_ASKED) as other:
            result = await other.request("tools/call", retry | {"requestState": asked["requestState"]})
            assert text(result) == "Ada"


@REVISIONS
@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (lambda client: client.request(["ping"]), r"a method is a text, not \['ping'\]"),
        (lambda client: client.notify(["a"]), r"a method is a text, not \['a'\]"),
        (lambda client: client.notify(b"a", {}), "a method is a text, not b'a'"),
        (lambda client: client.notify("a", [1]), r"'a': params is a dict, not \[1\]"),
        (lambda client: client.request("tools/list", "x"), "'tools/list': params is a dict, not 'x'"),
        (
            lambda client: client.request("tools/list", {"_meta": 5}),
            r"params\['_meta'\] is a dict, not 5",
        ),
        (
            lambda client: client.request("tools/list", on_notification="x"),
            "on_notification is a function of a method and its params, not 'x'",
        ),
    ],
)
async def test_what_is_no_message_is_told_to_whoever_says_it_and_the_bus_goes_on(
    told, sentence, revision, autojump_clock
):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        with pytest.raises(TypeError, match=sentence):
            await told(client)
        assert await call(client, "cannot_wait", "x") == "x"
