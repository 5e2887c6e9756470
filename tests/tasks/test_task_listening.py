"""notifications/tasks: to the listens that name a task, and to nobody else (TX-12, S-18, P-7)."""

import pytest
import trio
from task_stage import DECLARED, SlowTaskStore, accept, begin, look, tasking

from mcpbus import ProtocolError
from mcpbus.tasks import MemoryTaskStore
from mcpbus.testing import open_probe, wait_until_idle

STAMP = "io.modelcontextprotocol/subscriptionId"


async def told(listen):
    """The next thing that a listen is told, without its stamp."""
    with trio.fail_after(5):
        method, params = await listen.__anext__()
    assert method == "notifications/tasks"
    assert params.pop("_meta").keys() == {STAMP}
    return params


def plain(seen):
    """What tasks/get says, without what only a result has."""
    return {key: value for key, value in seen.items() if key not in {"_meta", "resultType"}}


async def test_a_listen_is_told_each_change_as_tasks_get_would_tell_it(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "ask")
        await wait_until_idle(stage.bus)
        async with client.listen(task_ids=[task["taskId"]]) as listen:
            assert listen.acknowledged["notifications"] == {"taskIds": [task["taskId"]]}
            first = await told(listen)
            assert first == plain(await look(client, task))
            assert first["status"] == "input_required"
            await client.request("tasks/update", task | {"inputResponses": {"who": accept("Ann")}})
            assert (await told(listen))["status"] == "working"
            last = await told(listen)
            assert last == plain(await look(client, task))
            assert (last["status"], last["result"]["content"][0]["text"]) == ("completed", "Hello, Ann")


async def test_a_listen_hears_before_it_ends_what_a_shutdown_fails_however_slow_the_store_is(autojump_clock):
    async with tasking(store=SlowTaskStore()) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "ask")
        await wait_until_idle(stage.bus)
        async with client.listen(task_ids=[task["taskId"]]) as listen:
            assert (await told(listen))["status"] == "input_required"
            await stage.bus.drain(0.1)
            assert (await told(listen))["status"] == "failed"


class UncancellableTaskStore(MemoryTaskStore):
    """Takes five seconds to give back what came of a task, as one in a thread may, whatever happens meanwhile."""

    async def payload(self, task_id):
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return b"{}"


async def test_a_listen_that_a_slow_store_answers_too_late_hears_nothing(autojump_clock, caplog):
    limits = {"task_ttl": 60.0}
    async with (
        tasking(limits=limits, store=UncancellableTaskStore()) as stage,
        stage.bus.connect(capabilities=DECLARED) as client,
    ):
        task = await begin(client, "typed", number=3)
        await trio.sleep(58)
        async with client.listen(task_ids=[task["taskId"]]) as listen:
            with pytest.raises(trio.TooSlowError), trio.fail_after(30):
                await listen.__anext__()
        assert (len(stage.bus.tasks), caplog.text) == (0, "")


async def test_a_listen_that_comes_after_the_end_is_told_of_it(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "typed", number=3)
        await wait_until_idle(stage.bus)
        async with client.listen(task_ids=[task["taskId"]]) as listen:
            assert await told(listen) == plain(await look(client, task))


async def test_what_people_are_told_is_told_to_listens_too(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        job = await stage.job()
        async with client.listen(task_ids=[task["taskId"]]) as listen:
            await told(listen)
            await job.ctx.set_task_message("half")
            assert (await told(listen))["statusMessage"] == "half"
            await client.request("tasks/cancel", task)
            assert (await told(listen))["status"] == "cancelled"


async def test_a_listen_is_told_of_the_tasks_that_it_named_alone(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        mine, other = await begin(client), await begin(client)
        await wait_until_idle(stage.bus)
        async with (
            client.listen(task_ids=[mine["taskId"], mine["taskId"], "nobody"]) as listen,
            client.listen(tools=True) as deaf,
        ):
            assert listen.acknowledged["notifications"] == {"taskIds": [mine["taskId"]]}
            await told(listen)
            stage.jobs[1].finish()
            stage.jobs[0].finish()
            seen = await told(listen)
            assert (seen["taskId"], seen["status"]) == (mine["taskId"], "completed")
            await wait_until_idle(stage.bus)
            stage.server.add_tool(lambda: "x", name="x")
            assert (await deaf.__anext__())[0] == "notifications/tools/list_changed"
        assert other["taskId"] != mine["taskId"]


async def test_each_listen_has_its_own_copy_until_it_ends(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        job = await stage.job()
        async with client.listen(task_ids=[task["taskId"]]) as one:
            async with client.listen(task_ids=[task["taskId"]]) as two:
                assert await told(one) == await told(two)
            await wait_until_idle(stage.bus)
            emitted = stage.bus.statistics().emitted
            job.finish()
            assert (await told(one))["status"] == "completed"
            assert stage.bus.statistics().emitted == emitted + 1
        await wait_until_idle(stage.bus)
        assert len(stage.bus.topics) == 0


async def test_without_the_extension_nobody_listens_to_tasks(autojump_clock):
    """S-18; an empty list asks for nothing."""
    async with tasking() as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            task = await begin(client, "typed", number=3)
        async with stage.bus.connect() as client:
            with pytest.raises(ProtocolError) as refused:
                async with client.listen(task_ids=[task["taskId"]]):
                    pass
            assert refused.value.code == -32021
            assert (
                refused.value.data["requiredCapabilities"]["extensions"].keys()
                == DECLARED["extensions"].keys()
            )
            async with client.listen(tools=True):
                pass


async def test_somebody_elses_task_is_left_out_of_the_acknowledgement(autojump_clock):
    async with tasking() as stage, stage.bus.connect(principal="ann", capabilities=DECLARED) as ann:
        task = await begin(ann)
        async with (
            stage.bus.connect(principal="bo", capabilities=DECLARED) as bo,
            bo.listen(task_ids=[task["taskId"]], tools=True) as listen,
        ):
            assert listen.acknowledged["notifications"] == {"toolsListChanged": True}
            (await stage.job()).finish()
            await wait_until_idle(stage.bus)
            stage.server.add_tool(lambda: "x", name="x")
            assert (await listen.__anext__())[0] == "notifications/tools/list_changed"


async def test_over_http_the_notification_is_on_the_listen_alone(autojump_clock):
    async with tasking() as stage, open_probe(stage.bus.asgi()) as probe:

        def post(method, params, **more):
            return probe.request(method, params, capabilities=DECLARED, **more)

        call = post("tools/call", {"name": "hold", "arguments": {}}, progress_token=1, log_level="debug")
        handle = (await call.reply())["result"]
        assert call.headers["content-type"] == "application/json"
        listen = post("subscriptions/listen", {"notifications": {"taskIds": [handle["taskId"]]}}, id="l")
        assert (await listen.message())["method"] == "notifications/subscriptions/acknowledged"
        assert (await listen.message())["params"]["status"] == "working"
        job = await stage.job()
        await job.ctx.progress(1)
        await job.ctx.info("said to nobody")
        job.finish()
        seen = await listen.message()
        assert (seen["method"], seen["params"]["status"]) == ("notifications/tasks", "completed")
        assert seen["params"]["_meta"] == {STAMP: "l"}
        polled = await post("tasks/get", {"taskId": handle["taskId"]}).reply()
        assert polled["result"]["status"] == "completed"
        assert len(call.messages) == 1


async def test_a_listen_that_reads_too_slowly_has_the_newest_state(autojump_clock):
    async with tasking(limits={"outbox_items": 4}) as stage, open_probe(stage.bus.asgi()) as probe:
        params = {"name": "hold", "arguments": {}}
        call = probe.request("tools/call", params, capabilities=DECLARED)
        task_id = (await call.reply())["result"]["taskId"]
        wanted = {"notifications": {"taskIds": [task_id]}}
        listen = probe.request("subscriptions/listen", wanted, capabilities=DECLARED)
        await listen.message()
        await listen.message()
        listen.stall()
        job = await stage.job()
        for number in range(20):
            await job.ctx.set_task_message(f"{number}")
        job.finish()
        await wait_until_idle(stage.bus)
        listen.resume()
        await wait_until_idle(stage.bus)
        states = [message["params"] for message in listen.messages[2:]]
        assert len(states) <= 6
        assert states[-1]["status"] == "completed"
        assert stage.bus.statistics().discarded
        assert stage.bus.ledger.balance() == 0


class LostTaskStore(MemoryTaskStore):
    """Cannot give back what came of a task."""

    async def payload(self, task_id):
        raise OSError("no disk")


async def test_a_listen_hears_nothing_where_the_store_has_lost_the_result_and_the_task_is_kept(
    autojump_clock, caplog
):
    async with (
        tasking(store=LostTaskStore()) as stage,
        stage.bus.connect(capabilities=DECLARED) as client,
    ):
        task = await begin(client, "typed", number=3)
        await wait_until_idle(stage.bus)
        async with client.listen(task_ids=[task["taskId"]]) as listen:
            with pytest.raises(trio.TooSlowError), trio.fail_after(30):
                await listen.__anext__()
        assert len(stage.bus.tasks) == 1
        assert [record.getMessage() for record in caplog.records if record.name == "mcpbus.actors"] == []
