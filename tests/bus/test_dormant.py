"""Requests that are dormant: they have an actor and a stream as soon as somebody needs them, and otherwise not at all."""

import gc
import weakref
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from mcpbus_actors import TaskEnded
from staging import staged

from mcpbus import Context, Elicit, InputRequired, ProtocolError, ResourceNotFoundError, ToolError
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.message_builder import DRAWN_UP
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbound import OutboundNotification
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.receipt import DELIVERED
from mcpbus.core.request_actor import RequestActor
from mcpbus.protocol.routes import Reason
from mcpbus.stores import MemoryEventStore
from tests.at_home import ONE_PIECE


@asynccontextmanager
async def failing(failure, *, waits):
    """A stage, a function that raises this, and weak references to all that the function held."""

    class Held:
        pass

    async with staged() as stage:
        held = []

        async def fails() -> str:
            mine = Held()
            held.append(weakref.ref(mine))
            if waits:
                await trio.sleep(1)
            raise failure()

        yield stage, fails, held


ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


async def call(stage, era, name, **options):
    params = {"name": name, "arguments": {}}
    if era == "legacy":
        return (await stage.probe.initialize(**options)).request("tools/call", params)
    return stage.probe.request("tools/call", params, **options)


@pytest.mark.dormancy
@pytest.mark.eagerness
@ERAS
async def test_a_handler_that_does_not_wait_has_no_actor(era, autojump_clock):
    async with staged() as stage:
        seen = []

        @stage.server.tool
        async def short(ctx: Context) -> str:
            statistics = ctx.bus.statistics()
            seen.append((statistics.requests, ctx.bus.system.statistics().spawned))
            return "done"

        posts = [await call(stage, era, "short") for _ in range(2)]
        for post in posts:
            assert (await post.reply())["result"]["content"][0]["text"] == "done"
        before = seen[0][1]
        again = await call(stage, "modern", "short")
        await again.ended()
        assert [requests for requests, _ in seen] == [1, 1, 1]
        assert seen[-1][1] == stage.bus.system.statistics().spawned
        assert before <= seen[-1][1]
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


@pytest.mark.dormancy
@ONE_PIECE
@ERAS
async def test_a_handler_that_waits_and_says_nothing_has_neither_actor_nor_stream(
    era, pytestconfig, autojump_clock
):
    async with staged() as stage:
        seen = []

        @stage.server.tool
        async def waits(ctx: Context) -> str:
            before = ctx.bus.system.statistics().spawned
            await trio.sleep(1)
            seen.append((ctx.bus.system.statistics().spawned - before, ctx._call.stream))
            return "done"

        post = await call(stage, era, "waits")
        assert (await post.reply())["result"]["content"][0]["text"] == "done"
        ((spawned, stream),) = seen
        assert spawned == 0
        # A task of the connection's own, as under ASGI, writes what comes on a stream.
        assert (stream is None) == (pytestconfig.getoption("--shell") != "asgi")
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


@pytest.mark.dormancy
@pytest.mark.eagerness
@ERAS
async def test_a_handler_that_speaks_before_it_waits_and_after_it_has_no_actor(era, autojump_clock):
    async with staged() as stage:
        spawned = []

        @stage.server.tool
        async def speaks(ctx: Context) -> str:
            for number in range(3):
                spawned.append(ctx.bus.system.statistics().spawned)
                await ctx.info(str(number))
                await trio.sleep(1)
            return "done"

        level = {} if era == "legacy" else {"log_level": "debug"}
        post = await (await call(stage, era, "speaks", **level)).ended()
        assert [message["params"]["data"] for message in post.messages[:-1]] == ["0", "1", "2"]
        assert post.messages[-1]["result"]["content"][0]["text"] == "done"
        assert len(set(spawned)) == 1
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


@ERAS
async def test_what_a_handler_raises_that_has_waited_is_answered(era, autojump_clock):
    async with staged() as stage:

        @stage.server.tool
        async def refuses() -> str:
            await trio.lowlevel.checkpoint()
            raise ProtocolError(-32000, "not today")

        answer = await (await call(stage, era, "refuses")).reply()
        assert answer["error"] == {"code": -32000, "message": "not today"}
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("primed", ["2025-06-18", "2025-11-25"])
async def test_a_quiet_answer_that_is_kept_begins_in_time(primed, autojump_clock):
    async with staged(event_store=MemoryEventStore(), limits={"keep_alive": 15}) as stage:
        session = await stage.probe.initialize(primed)
        begun = trio.current_time()
        post = session.request("tools/call", {"name": "hold"})
        await post.begun()
        assert 15 <= trio.current_time() - begun < 16.1
        (await stage.call()).finish()
        await post.ended()
        assert post.messages[-1]["result"]


async def test_a_client_of_a_kept_answer_that_leaves_before_it_begins_has_nothing_to_come_back_to(
    autojump_clock,
):
    async with staged(event_store=MemoryEventStore(), limits={"abandoned_timeout": 60}) as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", {"name": "hold"})
        held = await stage.call()
        post.disconnect()
        await trio.sleep(59)
        assert held.outcome == "running"
        await trio.sleep(2)
        assert held.outcome == "cancelled"


@ERAS
async def test_what_a_handler_that_does_not_wait_raises_is_answered(era, autojump_clock):
    async with staged() as stage:

        @stage.server.tool
        async def fails() -> str:
            raise ToolError("not today")

        answer = await (await call(stage, era, "fails")).reply()
        assert answer["result"]["isError"]
        assert answer["result"]["content"][0]["text"] == "not today"
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


async def test_a_session_that_its_own_handler_closes_finds_the_request(autojump_clock):
    async with staged() as stage:

        @stage.server.tool
        async def closes(ctx: Context) -> str:
            ctx.session.close()
            return "too late"

        unheard = []
        stage.bus.dead_letters(unheard.append)
        post = await call(stage, "legacy", "closes")
        answer = await post.reply()
        assert answer["error"]["code"] == -32603
        assert len(unheard) <= 1, "that its handler has ended is told once"
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


@ERAS
async def test_a_handler_that_speaks_before_it_waits_is_heard_at_once(era, autojump_clock):
    async with staged() as stage:
        spoken, go = [], trio.Event()

        @stage.server.tool
        async def speaks(ctx: Context) -> str:
            spoken.append(await ctx.info("hello"))
            await go.wait()
            return "done"

        level = {} if era == "legacy" else {"log_level": "debug"}
        post = await call(stage, era, "speaks", **level)
        assert (await post.message())["params"]["data"] == "hello"
        await stage.quiet()
        assert spoken[0].fate == DELIVERED
        go.set()
        await post.ended()
        assert post.messages[-1]["result"]["content"][0]["text"] == "done"
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


@pytest.mark.dormancy
@pytest.mark.eagerness
@ERAS
async def test_what_the_client_does_not_want_is_discarded_without_an_actor(era, autojump_clock):
    async with staged() as stage:
        receipts, actors = [], []

        @stage.server.tool
        async def speaks(ctx: Context) -> str:
            before = stage.bus.system.statistics().spawned
            receipts.extend([await ctx.debug("too fine"), await ctx.progress(1)])
            actors.append(stage.bus.system.statistics().spawned - before)
            return "done"

        level = {} if era == "legacy" else {"log_level": "info"}
        post = await call(stage, era, "speaks", **level)
        await post.ended()
        assert [message["result"]["content"][0]["text"] for message in post.messages] == ["done"]
        assert [receipt.fate.reason for receipt in receipts] == [Reason.FILTERED, Reason.NO_TOKEN]
        assert actors == [0]
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


async def test_the_level_that_a_session_set_counts_from_then_on(autojump_clock):
    async with staged() as stage:
        receipts = []

        @stage.server.tool
        async def speaks(ctx: Context) -> str:
            receipts.extend([await ctx.info("fine"), await ctx.warning("grave")])
            return "done"

        session = await stage.probe.initialize()
        for level, heard in [("warning", ["grave"]), ("debug", ["fine", "grave"]), ("error", [])]:
            await session.request("logging/setLevel", {"level": level}).reply()
            post = await session.request("tools/call", {"name": "speaks"}).ended()
            assert [message["params"]["data"] for message in post.messages[:-1]] == heard
        reasons = [receipt.fate.reason for receipt in receipts]
        assert reasons == [Reason.FILTERED, None, None, None, Reason.FILTERED, Reason.FILTERED]
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


@ERAS
async def test_progress_that_does_not_increase_is_not_sent(era, autojump_clock):
    async with staged() as stage:
        receipts = []

        @stage.server.tool
        async def works(ctx: Context) -> str:
            receipts.extend([await ctx.progress(value) for value in (0, 0, 2, 1, 3)])
            return "done"

        params = {"name": "works", "_meta": {"progressToken": "t"}}
        if era == "legacy":
            post = (await stage.probe.initialize()).request("tools/call", params)
        else:
            post = stage.probe.request("tools/call", params)
        await post.ended()
        await stage.quiet()
        assert [message["params"]["progress"] for message in post.messages[:-1]] == [0, 2, 3]
        stale = Reason.NOT_INCREASING
        assert [receipt.fate.reason for receipt in receipts] == [None, stale, None, stale, None]
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


@pytest.mark.failing
@ERAS
@pytest.mark.parametrize(
    ("actor", "message"),
    [(RequestActor, OutboundNotification), (RequestActor, TaskEnded), (MessageStream, OutboundMessage)],
)
async def test_a_defect_of_the_bus_is_no_fault_of_the_handler_that_speaks_and_ends_its_request(
    actor, message, era, monkeypatch, autojump_clock
):
    def boom(*_):
        raise LookupError("boom")

    async with staged() as stage:

        @stage.server.tool
        async def speaks(ctx: Context) -> str:
            if message is not OutboundNotification:
                # What is said without waiting needs no stream, and its end no turn.
                await trio.lowlevel.checkpoint()
            # What is short is written without the stream.
            await ctx.info("hello" if message is not OutboundMessage else "." * SHORT_BYTES)
            return "done"

        level = {} if era == "legacy" else {"log_level": "debug"}
        with monkeypatch.context() as patch:
            session = await stage.probe.initialize() if era == "legacy" else stage.probe
            patch.setitem(DRAWN_UP if message in DRAWN_UP else actor.HANDLERS, message, boom)
            post = session.request("tools/call", {"name": "speaks", "arguments": {}}, **level)
            await post.ended()
            await stage.quiet()
        assert post.messages[-1]["error"]["code"] == -32603
        assert stage.books()[0] == {}
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


async def test_a_handler_that_wants_to_be_run_again_is_answered_with_its_questions(autojump_clock):
    async with staged() as stage:

        @stage.server.tool
        async def wants() -> str:
            return InputRequired({"name": Elicit("Who?", str)})

        post = await call(stage, "modern", "wants", capabilities={"elicitation": {}})
        assert (await post.reply())["result"]["resultType"] == "input_required"
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


async def test_a_parked_call_does_not_keep_its_connection(autojump_clock):
    async with staged() as stage:

        @stage.server.tool
        async def asks(ctx: Context) -> str:
            return repr(await ctx.elicit("Who?", str))

        first = await call(stage, "modern", "asks", capabilities={"elicitation": {}})
        assert (await first.reply())["result"]["resultType"] == "input_required"
        await first.ended()
        second = stage.probe.request("tools/call", {"name": "quick", "arguments": {}})
        assert (await second.reply())["result"]["content"]
        assert len(stage.bus.parked_calls) == 1


@ERAS
@pytest.mark.parametrize("name", ["quick", "hold"])
async def test_a_whole_answer_says_how_long_it_is(name, era, autojump_clock):
    async with staged() as stage:
        post = await call(stage, era, name)
        if name == "hold":
            (await stage.call()).finish()
        await post.ended()
        assert post.headers["content-length"] == str(len(post.body))
        assert "transfer-encoding" not in post.headers
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


def grouped():
    return ExceptionGroup("of a nursery", [ProtocolError(-32000, "not today")])


FAILURES = [partial(ToolError, "not today"), partial(ProtocolError, -32000, "not today"), grouped]


@ERAS
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("waits", [False, True])
async def test_what_a_tool_that_failed_held_is_not_left_to_the_garbage_collector(
    era, failure, waits, autojump_clock
):
    async with failing(failure, waits=waits) as (stage, fails, held):
        stage.server.tool(fails, name="fails")
        gc.disable()
        try:
            await (await call(stage, era, "fails")).reply()
            await stage.quiet()
            assert [mine() for mine in held] == [None]
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("method", "params", "failure"),
    [
        *(("prompts/get", {"name": "fails"}, failure) for failure in FAILURES[1:]),
        *(
            ("resources/read", {"uri": "res://fails"}, failure)
            for failure in [*FAILURES[1:], ResourceNotFoundError]
        ),
    ],
)
async def test_what_a_prompt_or_a_resource_that_failed_held_is_not_left_to_the_garbage_collector(
    method, params, failure, autojump_clock
):
    async with failing(failure, waits=True) as (stage, fails, held):
        stage.server.prompt(fails, name="fails")
        stage.server.resource("res://fails")(fails)
        gc.disable()
        try:
            assert "error" in await stage.probe.request(method, params).reply()
            await stage.quiet()
            assert [mine() for mine in held] == [None]
        finally:
            gc.enable()


async def test_a_refusal_for_a_client_that_has_left_is_not_logged_and_not_left_to_the_garbage_collector(
    autojump_clock, caplog
):
    class Held:
        pass

    async with staged() as stage:
        held = []

        @stage.server.tool
        async def refuses() -> str:
            mine = Held()
            held.append(weakref.ref(mine))
            try:
                await trio.sleep_forever()
            finally:
                raise ProtocolError(-32000, "the other server has gone")

        post = await call(stage, "modern", "refuses")
        await stage.quiet()
        gc.disable()
        try:
            post.disconnect()
            await stage.quiet()
            assert [mine() for mine in held] == [None]
        finally:
            gc.enable()
    assert caplog.records == []


@ERAS
async def test_a_shutdown_waits_a_moment_for_a_reply_that_its_client_has_not_read(era, autojump_clock):
    async with staged() as stage, trio.open_nursery() as nursery:

        @stage.server.tool
        async def speaks(ctx: Context) -> str:
            await ctx.info("hello")
            await trio.sleep(1)
            return "done"

        level = {} if era == "legacy" else {"log_level": "debug"}
        post = await call(stage, era, "speaks", **level)
        await post.message()
        post.stall()
        await trio.sleep(2)
        nursery.start_soon(stage.bus.drain, 5)
        await trio.sleep(0.1)
        assert nursery.child_tasks
        post.resume()
        await stage.quiet()
        assert not nursery.child_tasks
        assert post.messages[-1]["result"]["content"][0]["text"] == "done"


@pytest.mark.dormancy
async def test_a_call_that_is_run_again_from_the_top_has_no_actor_either(autojump_clock):
    async with staged() as stage:
        spawned = []

        @stage.server.tool
        async def wants(ctx: Context) -> str:
            if ctx.round_state is None:
                return InputRequired({"name": Elicit("Who?", str)}, state="begun")
            await trio.sleep(1)
            spawned.append(stage.bus.system.statistics().actors)
            return "done"

        declared = {"elicitation": {}}
        first = await (await call(stage, "modern", "wants", capabilities=declared)).reply()
        params = {"name": "wants", "arguments": {}, "requestState": first["result"]["requestState"]}
        again = stage.probe.request("tools/call", params, capabilities=declared)
        assert (await again.reply())["result"]["content"][0]["text"] == "done"
        assert spawned == [2], "the request and its stream"
