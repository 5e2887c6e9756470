"""What a watch shows of requests: which there are, whose, how old, and where they wait; and what became of them."""

import contextlib
import gc

import attrs
import msgspec
import pytest
import trio

from mcpbus import DELIVERED, Context, ProtocolError, Server, ToolError, ToolResult
from mcpbus.core.request_actor import RequestActor
from mcpbus.testing import open_bus
from mcpbus.watch import Watch

ELICITING = {"elicitation": {}}
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def _poll_shelf(gate):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.wait)
        nursery.start_soon(_look_again, gate)


async def _look_again(gate):
    await gate.wait()


def shop(gate):
    server = Server("shop")

    @server.tool
    async def reserve(city: str, ctx: Context) -> str:
        await ctx.info("one moment")
        await _poll_shelf(gate)
        return f"a room in {city}"

    @server.tool
    async def choose(ctx: Context) -> str:
        return str(await ctx.elicit("Which colour?", str))

    @server.tool
    async def fail() -> str:
        raise ToolError("no")

    @server.tool
    async def crash() -> str:
        raise LookupError("secret")

    @server.tool
    async def refuse() -> str:
        raise ProtocolError(-32002, "no")

    @server.tool
    async def add(a: int) -> int:
        return a + 1

    return server


async def _never(*_):
    await trio.sleep_forever()


def shown(bus, *fields, **which):
    return [tuple(getattr(each, field) for field in fields) for each in bus.watch.requests(**which)]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_hung_calls_have_names(revision, autojump_clock):
    gate = trio.Event()
    watch = Watch(name_principal=str.upper)
    async with (
        open_bus(shop(gate), watch=watch) as bus,
        trio.open_nursery() as nursery,
        bus.connect(revision=revision, principal="alice") as client,
    ):
        for _ in range(3):
            nursery.start_soon(client.call_tool, "reserve", {"city": "Lyon"})
        await trio.sleep(1)
        assert (
            shown(bus, "method", "name", "owner", "client", "state", "revision", "messages")
            == [("tools/call", "reserve", "ALICE", "mcpbus client 1", "waiting", revision, 1)] * 3
        )
        first, *_ = bus.watch.requests()
        assert first.where.startswith("test_watch_requests.py:")
        assert first.where.endswith("in _poll_shelf")
        own = [(frame.function, frame.depth) for frame in bus.watch.stack(first.number) if frame.own]
        assert own == [("reserve", 0), ("_poll_shelf", 0), ("_look_again", 1)]
        assert bus.watch.request(first.number).number == first.number
        assert bus.watch.request(1000) is None
        gate.set()
        await trio.sleep(1)
        assert bus.watch.requests() == []
        assert bus.watch.stack(first.number) == []
        assert shown(bus, "name", "outcome", "state", ended=True) == [("reserve", "ok", "ended")] * 3


async def test_nothing_of_arguments_results_or_whole_ids_is_shown(autojump_clock):
    gate = trio.Event()
    async with (
        open_bus(shop(gate), watch=Watch()) as bus,
        trio.open_nursery() as nursery,
        bus.connect(revision="2025-11-25", principal="alice-token") as client,
    ):
        [session_id] = bus.sessions
        nursery.start_soon(client.call_tool, "reserve", {"city": "Lyon"})
        await client.call_tool("crash")
        await trio.sleep(1)
        live = msgspec.json.encode(bus.watch.requests())
        gate.set()
        await trio.sleep(1)
        kept = msgspec.json.encode([bus.watch.requests(ended=True), bus.watch.tape()])
        for secret in (
            b"Lyon",
            b"room in",
            b"one moment",
            b"alice-token",
            b"secret",
            session_id.encode(),
        ):
            assert secret not in live + kept
        assert f'"session":"{session_id[:8]}"'.encode() in live


@pytest.mark.parametrize(
    ("tool", "outcome", "error"),
    [
        ("fail", "tool_error", "ToolError"),
        ("crash", "tool_error", "LookupError"),
        ("refuse", "error", "-32002"),
        ("nothing", "error", "-32602"),
        ("add", "tool_error", "InvalidArgumentsError"),
    ],
)
async def test_a_failure_has_its_class(tool, outcome, error, autojump_clock):
    async with open_bus(shop(trio.Event()), watch=Watch()) as bus, bus.connect() as client:
        with contextlib.suppress(ProtocolError):
            await client.call_tool(tool, {"a": "x"} if tool == "add" else {})
        name = "(unknown)" if tool == "nothing" else tool
        assert shown(bus, "name", "outcome", "error", ended=True) == [(name, outcome, error)]


async def test_a_question_of_a_legacy_request_is_shown(autojump_clock):
    async with open_bus(shop(trio.Event()), watch=Watch()) as bus, trio.open_nursery() as nursery:
        connecting = bus.connect(revision="2025-11-25", capabilities=ELICITING, on_input_request=_never)
        async with connecting as client:
            nursery.start_soon(client.call_tool, "choose")
            await trio.sleep(1)
            assert shown(bus, "name", "state", "question") == [("choose", "asking", "Which colour?")]
            nursery.cancel_scope.cancel()


async def test_a_suspended_call_is_shown_and_the_retry_that_resumes_it(autojump_clock):
    async def answer(*_):
        assert shown(bus, "name", "state", "question", "outcome") == [
            ("choose", "suspended", "Which colour?", "suspended")
        ]
        return {"action": "accept", "content": {"value": "blue"}}

    async with open_bus(shop(trio.Event()), watch=Watch()) as bus:
        async with bus.connect(capabilities=ELICITING, on_input_request=answer) as client:
            await client.call_tool("choose")
        assert bus.watch.requests() == []
        first, second = sorted(bus.watch.requests(ended=True), key=lambda each: each.number)
        assert (first.outcome, first.resumes, first.reply) == ("suspended", None, "delivered")
        assert (second.outcome, second.resumes, second.reply) == ("ok", first.number, "delivered")


async def test_a_request_that_ended_in_a_question_is_not_kept_alive(autojump_clock):
    async with (
        open_bus(shop(trio.Event()), watch=Watch()) as bus,
        trio.open_nursery() as nursery,
        bus.connect(capabilities=ELICITING, on_input_request=_never) as client,
    ):
        nursery.start_soon(client.call_tool, "choose")
        await trio.sleep(1)
        assert [each.state for each in bus.watch.requests()] == ["suspended"]
        gc.collect()
        assert [
            each for each in gc.get_objects() if isinstance(each, RequestActor) and each.system is bus.system
        ] == []
        nursery.cancel_scope.cancel()


async def test_an_ended_request_leaves_texts_alone(autojump_clock):
    async with open_bus(shop(trio.Event()), watch=Watch()) as bus, bus.connect(principal="alice") as client:
        await client.call_tool("add", {"a": 1})
        [life] = bus.watch.records.tallies
        assert life.context is None
        texts = attrs.astuple(life.facts)
        assert all(value is None or isinstance(value, str) for value in texts)
        assert (life.label, life.outcome, life.reply) == (("tools/call", "add"), "ok", DELIVERED)


async def test_the_newest_eight_of_each_outcome_are_kept(autojump_clock):
    async with open_bus(shop(trio.Event()), watch=Watch(calls=12)) as bus, bus.connect() as client:
        for _ in range(20):
            await client.call_tool("fail")
        await client.call_tool("add", {"a": 1})
        kept = shown(bus, "name", ended=True)
        assert kept == [("add",)] + [("fail",)] * 8
        for tool in ("crash", "add"):
            for _ in range(9):
                await client.call_tool(tool, {"a": 1} if tool == "add" else {})
        assert len(bus.watch.requests(ended=True)) == 12
        tally = bus.watch.records.tallies.by_label["tools/call", "fail"]
        assert (tally.calls, tally.failures, sum(tally.counts)) == (20, {"ToolError": 20}, 20)


@pytest.mark.unwatched
async def test_without_a_watch_it_is_said_how_to_have_one(autojump_clock):
    async with open_bus(Server("s")) as bus:
        with pytest.raises(RuntimeError, match=r"open the server with watch=mcpbus\.watch\.Watch\(\)"):
            _ = bus.watch


async def test_a_call_that_became_a_task_is_shown_with_its_stack(autojump_clock):
    server, gate = Server("tasks"), trio.Event()

    @server.tool(task="required")
    async def long() -> str:
        await gate.wait()
        return "done"

    async with open_bus(server, watch=Watch()) as bus, bus.connect(capabilities=TASKS) as client:
        await client.request("tools/call", {"name": "long", "arguments": {}})
        await trio.sleep(1)
        [view] = bus.watch.requests()
        assert (view.name, view.state, view.outcome) == ("long", "task", "task")
        assert view.where.endswith("in long")
        gate.set()
        await trio.sleep(1)
        assert bus.watch.requests() == []


async def test_a_result_that_says_that_it_failed_is_a_failure(autojump_clock):
    server = Server("s")

    @server.tool
    async def fail() -> ToolResult:
        return ToolResult("no", is_error=True)

    async with open_bus(server, watch=Watch()) as bus, bus.connect() as client:
        assert (await client.call_tool("fail"))["isError"]
        assert shown(bus, "name", "outcome", "error", ended=True) == [("fail", "tool_error", "isError")]


async def test_one_client_that_reaches_a_limit_often_leaves_the_others(autojump_clock):
    async with open_bus(Server("s"), watch=Watch()) as bus:
        bus.limit_monitor.note("max_sessions", "alice", "a new session was refused")
        for _ in range(1000):
            bus.limit_monitor.note("outbox_items", "bob", "something was discarded")
        first, second = bus.watch.records.limits
        assert (first.limit, first.times, second.limit, second.times) == (
            "max_sessions",
            1,
            "outbox_items",
            1000,
        )
        assert "alice" not in str(first)
