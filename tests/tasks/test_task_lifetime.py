"""How long tasks live, how many there may be, and what is left of them in the end: nothing."""

import gc
import json

import pytest
import trio
from task_stage import DECLARED, FORM, SlowTaskStore, accept, begin, look, look_until_over, tasking, text

from mcpbus import Context, ProtocolError
from mcpbus.asking import InputUnavailableError
from mcpbus.core.call import CallActor
from mcpbus.core.hub import hub_of
from mcpbus.core.receipt import Fate
from mcpbus.protocol.routes import Reason
from mcpbus.tasks import MemoryTaskStore, TaskSupport
from mcpbus.testing import wait_until_idle
from mcpbus.transports.duplex import DuplexChannel
from tests.at_home import SHOWN_ONCE_KEPT

CLAIM = {"protocolVersion": "2026-07-28", "clientCapabilities": DECLARED}


async def gone(client, task):
    with pytest.raises(ProtocolError) as refused:
        await look(client, task)
    return refused.value.code == -32602


async def test_a_result_is_kept_for_the_time_to_live_and_then_forgotten(autojump_clock):
    store = MemoryTaskStore()
    async with tasking(limits={"task_ttl": 60.0}, store=store) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            task = await begin(client, "typed", number=3)
            await trio.sleep(59)
            assert text((await look(client, task))["result"]) == "3"
            assert len(store) == 1
            await trio.sleep(2)
            assert await gone(client, task)
            assert len(store) == 0
        await stage.assert_nothing_is_left()


async def test_the_result_of_a_long_task_is_kept_as_long_and_the_client_is_told(autojump_clock, monkeypatch):
    """ttlMs counts from the creation and may change (SEP-2663, "Tasks")."""
    limits = {"task_ttl": 60.0}
    async with tasking(limits=limits) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        offset = trio.current_time()
        monkeypatch.setattr("time.time", lambda: 1_000_000 + trio.current_time() - offset)
        task = await begin(client)
        job = await stage.job()
        await trio.sleep(50)
        job.finish()
        await wait_until_idle(stage.bus)
        seen = await look(client, task)
        assert (seen["createdAt"], seen["lastUpdatedAt"]) == (
            "1970-01-12T13:46:40.000Z",
            "1970-01-12T13:47:30.000Z",
        )
        assert seen["ttlMs"] == pytest.approx(110_000, abs=5)
        await trio.sleep(59)
        assert (await look(client, task))["status"] == "completed"
        await trio.sleep(2)
        assert await gone(client, task)


async def test_a_call_that_is_cancelled_before_it_becomes_a_task_is_not_said_to_have_failed(
    autojump_clock, caplog
):
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in CLAIM.items()}
    call = {"method": "tools/call", "id": 1, "params": {"name": "hold", "arguments": {}, "_meta": meta}}
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    async with tasking() as stage:
        with DuplexChannel(stage.bus, None) as channel:
            # Both in one turn: the handler's task has not begun to run.
            for message in (call, cancel):
                await channel.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())
            await wait_until_idle(stage.bus)
        await stage.assert_nothing_is_left()
        assert (stage.jobs, caplog.text) == ([], "")


async def test_a_task_that_does_not_end_in_time_fails_and_says_so(autojump_clock):
    async with tasking(limits={"task_ttl": 60.0}) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            tasks = [await begin(client, name) for name in ("hold", "ask", "stubborn", "ask_apart")]
            hold, stubborn = stage.jobs
            await trio.sleep(61)
            late = {"inputResponses": {"a": accept("Ann")}}
            await client.request("tasks/update", tasks[3] | late)
            for task in tasks:
                seen = await look(client, task)
                assert (seen["status"], seen["error"]["code"]) == ("failed", -32603)
                assert "60 s" in seen["statusMessage"]
                assert "inputRequests" not in seen
            assert (hold.outcome, stage.bus.tasks.running) == ("cancelled", 1)
            stubborn.finish("too late")
            await wait_until_idle(stage.bus)
            assert (await look(client, tasks[2]))["status"] == "failed"
            assert stage.bus.tasks.running == 0
            await trio.sleep(60)
            assert [await gone(client, task) for task in tasks] == [True] * 4
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("limits", [{"max_running_tasks": 2}, {"max_tasks": 2}])
async def test_where_there_is_no_room_an_optional_tool_does_without_and_a_required_one_is_refused(
    limits, autojump_clock
):
    async with tasking(limits=limits) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        tasks = [await begin(client), await begin(client)]
        result = await client.call_tool("typed", {"number": 3})
        assert (result["resultType"], text(result)) == ("complete", "3")
        with pytest.raises(ProtocolError, match="Too many tasks") as refused:
            await client.call_tool("must")
        assert refused.value.code == -32603
        for task in tasks:
            await client.request("tasks/cancel", task)
            await look_until_over(client, task)
        # What has ended makes room for what runs, but not for what is kept.
        result = await client.call_tool("typed", {"number": 3})
        assert result["resultType"] == ("task" if "max_running_tasks" in limits else "complete")


async def test_so_many_bytes_of_results_are_kept_and_no_more(autojump_clock):
    async with tasking(limits={"task_bytes": 5_000, "task_ttl": 60.0}) as stage:

        @stage.server.tool(task="optional")
        async def much() -> str:
            return "x" * 3_000

        async with stage.bus.connect(capabilities=DECLARED) as client:
            kinds = [(await client.call_tool("much"))["resultType"] for _ in range(3)]
            assert kinds == ["task", "task", "complete"]
            await trio.sleep(61)
            assert (await client.call_tool("much"))["resultType"] == "task"


async def test_many_that_begin_at_once_are_no_more_than_may_be(autojump_clock):
    async with tasking(limits={"max_running_tasks": 3}, store=SlowTaskStore()) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client, trio.open_nursery() as nursery:
            kinds = []

            async def call():
                kinds.append((await client.call_tool("hold"))["resultType"])

            for _ in range(8):
                nursery.start_soon(call)
            await trio.sleep(6)
            assert (kinds, stage.bus.tasks.running) == (["task"] * 3, 3)
            for job in stage.jobs:
                job.finish()
        assert sorted(kinds) == ["complete"] * 5 + ["task"] * 3


async def test_a_client_that_leaves_before_it_has_the_handle_leaves_no_task(autojump_clock):
    store = SlowTaskStore()
    async with tasking(store=store) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            with trio.move_on_after(1):
                await client.call_tool("hold")
            await trio.sleep(10)
            assert (len(store), stage.jobs) == (0, [])
        await stage.assert_nothing_is_left()


async def test_a_client_that_leaves_afterwards_leaves_its_task_running(autojump_clock):
    async with tasking() as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            task = await begin(client)
        job = await stage.job()
        assert job.outcome == "running"
        job.finish("for whoever comes back")
        async with stage.bus.connect(capabilities=DECLARED) as client:
            assert text((await look_until_over(client, task))["result"]) == "for whoever comes back"


async def test_a_notification_cancels_no_task(autojump_clock):
    """C-9: only tasks/cancel does."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        job = await stage.job()
        await client.notify("notifications/cancelled", {"requestId": job.ctx.request_id})
        await wait_until_idle(stage.bus)
        assert (job.outcome, (await look(client, task))["status"]) == ("running", "working")
        job.finish()


# -- the end of the bus ------------------------------------------------------------------------------------------------


async def kept(store):
    """What a store has at the end, by status."""
    found = {}
    for record in await store.load():
        found.setdefault(record.status.value, []).append(record.message)
    return found


async def test_a_drain_lets_tasks_end_and_fails_the_rest_with_the_reason(autojump_clock):
    store = MemoryTaskStore()
    async with tasking(store=store) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            await begin(client, "ask")
            await begin(client)
            quick = await stage.job()
            await begin(client)
            slow = await stage.job()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.bus.drain, 5.0)
            await trio.sleep(1)
            assert await kept(store) == {"failed": ["The server is shutting down"], "working": [None, None]}
            assert len(stage.bus.tasks) == 3, "whose client may still look at it"
            quick.finish()
        assert trio.current_time() - began == pytest.approx(5.0, abs=0.01)
        assert (quick.outcome, slow.outcome) == ("returned", "cancelled")
        assert await kept(store) == {"completed": [None], "failed": ["The server is shutting down"] * 2}
        await stage.assert_nothing_is_left()
        assert stage.bus.statistics().actors == 0


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_task_that_asks_while_it_drains_is_not_waited_for(stubborn, autojump_clock):
    """Nobody could answer it any more."""
    store = MemoryTaskStore()
    async with tasking(store=store) as stage:

        @stage.server.tool(task="optional")
        async def thoughtful(ctx: Context) -> str:
            await trio.sleep(1)
            with trio.CancelScope(shield=stubborn):
                return str(await ctx.elicit("Sure?", bool))

        async with stage.bus.connect(capabilities=DECLARED) as client:
            await begin(client, "thoughtful")
        began = trio.current_time()
        await stage.bus.drain(60.0)
        assert trio.current_time() - began == pytest.approx(1.0, abs=0.01)
        assert await kept(store) == {"failed": ["The server is shutting down"]}
        await stage.assert_nothing_is_left()


async def test_a_drain_without_tasks_that_run_takes_no_time(autojump_clock):
    async with tasking() as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            await look_until_over(client, await begin(client, "typed", number=3))
        began = trio.current_time()
        await stage.bus.drain(5.0)
        assert trio.current_time() == began
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("required", [False, True])
async def test_while_it_drains_no_task_begins(required, autojump_clock):
    """A request that is under way then ends within the request, or not at all."""
    async with tasking() as stage:

        @stage.server.tool(task=TaskSupport(required=required, deferred=True))
        async def slowly(ctx: Context) -> str:
            await trio.sleep(1)
            return f"a task: {await ctx.begin_task()}"

        ends = []

        async def call(client):
            try:
                ends.append(text(await client.call_tool("slowly")))
            except ProtocolError as error:
                ends.append(error.message)

        async with stage.bus.connect(capabilities=DECLARED) as client, trio.open_nursery() as nursery:
            nursery.start_soon(call, client)
            await wait_until_idle(stage.bus)
            await stage.bus.drain(5.0)
            await wait_until_idle(stage.bus)
            assert ends == ["The server is shutting down" if required else "a task: False"]


async def test_a_stubborn_handler_does_not_hold_the_drain(autojump_clock):
    store = MemoryTaskStore()
    async with tasking(store=store) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            await begin(client, "stubborn")
            job = await stage.job()
        began = trio.current_time()
        await stage.bus.drain(2.0)
        assert trio.current_time() - began == pytest.approx(2.0, abs=0.01)
        assert await kept(store) == {"failed": ["The server is shutting down"]}
        job.finish()


@pytest.mark.failing
async def test_a_store_that_hangs_does_not_hold_the_drain(autojump_clock):
    class Hanging(MemoryTaskStore):
        async def put(self, record, payload):
            if record.status.final:
                await trio.sleep_forever()
            await super().put(record, payload)

    async with tasking(store=Hanging()) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            await begin(client)
        began = trio.current_time()
        await stage.bus.drain(2.0)
        assert trio.current_time() - began == pytest.approx(2.25, abs=0.01)


# -- failures of the bus's own parts -----------------------------------------------------------------------------------


class Down(MemoryTaskStore):
    """Fails, or hangs, for as long as it is told to."""

    def __init__(self, how="fails"):
        super().__init__()
        self.how = how

    async def put(self, record, payload):
        await trio.lowlevel.checkpoint()
        if self.how == "fails":
            raise OSError("disk full")
        if self.how == "hangs":
            await trio.sleep_forever()
        await super().put(record, payload)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_where_the_store_is_down_calls_run_within_their_requests(how, autojump_clock, caplog):
    opened = tasking(store=Down(how), limits={"store_deadline": 1})
    async with opened as stage, stage.bus.connect(capabilities=DECLARED) as client:
        start = trio.current_time()
        for number in range(5):
            result = await client.call_tool("typed", {"number": number})
            assert (result["resultType"], text(result)) == ("complete", str(number))
        assert trio.current_time() - start <= 1
        assert len(stage.bus.tasks) == 0
    assert len(caplog.records) == 1


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_where_the_store_is_down_a_call_that_requires_a_task_is_refused(how, autojump_clock):
    opened = tasking(store=Down(how), limits={"store_deadline": 1})
    async with opened as stage, stage.bus.connect(capabilities=DECLARED) as client:
        with pytest.raises(ProtocolError) as refused:
            await client.call_tool("must")
        assert (refused.value.code, stage.jobs, len(stage.bus.tasks)) == (-32603, [], 0)
        assert "try again later" in refused.value.message


@SHOWN_ONCE_KEPT
async def test_what_ends_while_the_store_is_down_is_stored_later(autojump_clock, caplog):
    store = Down("works")
    opened = tasking(store=store, limits={"store_deadline": 1, "store_pause": 30})
    async with opened as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        store.how = "hangs"
        stage.jobs[-1].finish("done")
        await trio.sleep(20)
        assert text((await look(client, task))["result"]) == "done"
        assert await store.payload(task["taskId"]) is None
        store.how = "works"
        await trio.sleep(30)
        assert await store.payload(task["taskId"]) is not None
        assert text((await look(client, task))["result"]) == "done"
    assert len(caplog.records) == 1


@pytest.mark.failing
async def test_a_store_that_hangs_at_a_shutdown_is_not_waited_for(autojump_clock):
    store = Down("works")
    start = trio.current_time()
    opened = tasking(store=store, limits={"store_deadline": 1}, drain_timeout=0.5)
    async with opened as stage, stage.bus.connect(capabilities=DECLARED) as client:
        await begin(client)
        store.how = "hangs"
    assert trio.current_time() - start <= 2


@SHOWN_ONCE_KEPT
async def test_a_result_that_cannot_be_stored_is_kept_all_the_same(autojump_clock, caplog):
    class Broken(MemoryTaskStore):
        async def put(self, record, payload):
            if payload is not None:
                raise OSError("disk full")
            await super().put(record, payload)

    async with tasking(store=Broken()) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        seen = await look_until_over(client, await begin(client, "typed", number=3))
        assert text(seen["result"]) == "3"
    assert "disk full" in caplog.text


async def test_a_result_that_the_store_cannot_give_back_is_an_error(autojump_clock, caplog):
    class Forgetful(MemoryTaskStore):
        async def payload(self, task_id):
            await trio.lowlevel.checkpoint()

    async with tasking(store=Forgetful()) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "typed", number=3)
        await wait_until_idle(stage.bus)
        with pytest.raises(ProtocolError) as refused:
            await look(client, task)
        assert refused.value.code == -32603
    assert "lost" in caplog.text


async def test_a_result_that_is_forgotten_while_it_is_fetched_is_unknown(autojump_clock):
    opened = tasking(limits={"task_ttl": 60.0}, store=SlowTaskStore())
    async with opened as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "typed", number=3)
        await trio.sleep(58)
        assert await gone(client, task)


@pytest.mark.failing
async def test_a_task_actor_that_crashes_fails_its_task(autojump_clock, caplog, monkeypatch):
    def boom(*_):
        raise ZeroDivisionError("boom")

    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        outcomes = []

        @stage.server.tool(task="required")
        async def asks(ctx: Context) -> str:
            try:
                await ctx.elicit("Who?", FORM, key="who")
            except trio.Cancelled:
                outcomes.append("cancelled")
                raise
            return "answered"

        task = await begin(client, "asks")
        hold = await begin(client)
        job = await stage.job()
        monkeypatch.setattr("mcpbus.features.input_requests.requests.Elicit.read", boom)
        with pytest.raises(ProtocolError) as refused:
            await client.request("tasks/update", task | {"inputResponses": {"who": accept("Ann")}})
        assert refused.value.code == -32603
        seen = await look(client, task)
        assert (seen["status"], seen["error"]["message"]) == ("failed", "Internal error")
        assert outcomes == ["cancelled"]
        assert (await look(client, hold))["status"] == "working"
        assert stage.bus.tasks.running == 1
        job.finish()
        assert (await look_until_over(client, hold))["status"] == "completed"
    assert "boom" in caplog.text


@pytest.mark.failing
async def test_a_task_actor_that_crashes_while_its_result_is_stored_loses_none(autojump_clock, caplog):
    store = SlowTaskStore()
    async with tasking(store=store) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        stage.jobs[-1].finish("done")
        await wait_until_idle(stage.bus)
        stage.bus.tasks._tasks[task["taskId"]].address.tell("what no actor understands")
        await trio.sleep(4)
        assert ((await look(client, task))["status"], (await store.load())[0].status) == (
            "working",
            "working",
        )
        await trio.sleep(2)
        assert text((await look(client, task))["result"]) == "done"
        assert (await store.load())[0].status == "completed"
    assert "is stopped" in caplog.text


async def test_what_a_handler_says_whose_task_is_forgotten_is_discarded(autojump_clock):
    async with (
        tasking(limits={"task_ttl": 60.0}) as stage,
        stage.bus.connect(capabilities=DECLARED) as client,
    ):
        task = await begin(client, "stubborn")
        job = await stage.job()
        assert (await job.ctx.info("in time")).fate == Fate.discarded(Reason.IN_TASK)
        await trio.sleep(121)
        assert await gone(client, task)
        assert (await job.ctx.info("too late")).fate == Fate.discarded(Reason.FINISHED)
        await job.ctx.set_task_message("too late")
        with trio.fail_after(5), pytest.raises(InputUnavailableError):
            await job.ctx.elicit("Who?", FORM)
        job.finish()


async def test_times_are_told_and_kept_to_the_millisecond(autojump_clock):
    async with tasking() as stage:

        @stage.server.tool(task=TaskSupport(ttl=10_000.0, poll_interval=50.0))
        async def patient() -> None:
            await trio.sleep_forever()

        async with stage.bus.connect(capabilities=DECLARED) as client:
            handle = await client.call_tool("patient", {})
            assert (handle["ttlMs"], handle["pollIntervalMs"]) == (10_000_000, 50_000)
            await trio.sleep(9_999)
            assert (await look(client, {"taskId": handle["taskId"]}))["status"] == "working"


@pytest.mark.parametrize("end", ["by itself", "cancelled", "overdue"])
async def test_what_a_task_was_given_is_not_kept_with_its_result(end, autojump_clock):
    async with tasking(limits={"task_ttl": 100}) as stage, stage.bus.connect(capabilities=DECLARED) as client:

        @stage.server.tool(task="optional")
        async def carry(ctx: Context) -> str:
            if end != "by itself":
                await ctx.elicit("Go on?", bool, key="on")
            return "carried"

        task = await begin(client, "carry")
        if end == "cancelled":
            await client.request("tasks/cancel", task)
        seen = await look_until_over(client, task)
        assert seen["status"] == {"by itself": "completed", "cancelled": "cancelled"}.get(end, "failed")
        await trio.sleep(1)
        gc.collect()
        # A call has what its request said.
        assert not [
            it for it in gc.get_objects() if isinstance(it, CallActor) and it.bus is hub_of(stage.bus)
        ]
        await client.request("tasks/update", task | {"inputResponses": {"on": {"action": "decline"}}})


async def test_a_task_that_keeps_too_much_is_reported_failed_and_why(autojump_clock):
    async with (
        tasking(limits={"memory_bytes": 100_000}) as stage,
        stage.bus.connect(capabilities=DECLARED) as client,
    ):

        @stage.server.tool(task="optional")
        async def carry(load: str) -> str:
            await trio.sleep(60)
            return "carried"

        tasks = [await begin(client, "carry", load="x" * size) for size in (60_000, 50_000)]
        ended = [await look_until_over(client, task) for task in tasks]
        assert [seen["status"] for seen in ended] == ["failed", "completed"]
        assert "keeps too much in memory" in ended[0]["error"]["message"]
