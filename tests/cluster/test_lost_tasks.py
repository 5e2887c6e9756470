"""Tasks of processes that have ended, in a store that all have in common: each is found from any process."""

from functools import partial

import pytest
import trio
from several import kill, open_buses, quiet
from test_forwarding import make, text

from mcpbus import Context
from mcpbus.tasks import TASKS, MemoryTaskStore
from mcpbus.testing import MemoryDirectory

DECLARED = {"extensions": {TASKS: {}}}
ASKED = {**DECLARED, "elicitation": {}}
LOST = "whether it had an effect is not known"


async def begin(probe):
    """Begin a task that takes ten seconds."""
    reply = await ask(probe, "tools/call", {"name": "work", "arguments": {}})
    return {"taskId": reply["result"]["taskId"]}


async def ask(probe, method, params):
    return await probe.request(method, params, capabilities=DECLARED).reply()


async def look(probe, task):
    return (await ask(probe, "tasks/get", task))["result"]


async def test_a_task_whose_process_has_ended_has_failed_wherever_it_is_asked_for(autojump_clock):
    directory, store = MemoryDirectory(), MemoryTaskStore()
    async with open_buses(make, 3, directory=directory, task_store=store) as (buses, probes):
        task = await begin(probes[0])
        await kill(buses[0], directory)
        seen = [await look(probe, task) for probe in probes[1:]]
        assert seen[0] == seen[1]
        assert (seen[0]["status"], seen[0]["error"]["code"]) == ("failed", -32603)
        assert LOST in seen[0]["statusMessage"]
        assert [len(bus.tasks) for bus in buses[1:]] == [1, 0]
        wanted = {"notifications": {"taskIds": [task["taskId"]]}}
        listen = probes[2].request("subscriptions/listen", wanted, capabilities=DECLARED)
        await listen.message()
        assert (await listen.message())["params"]["status"] == "failed"


async def test_who_asks_for_a_task_as_its_process_ends_hears_what_became_of_it(autojump_clock, monkeypatch):
    directory, store = MemoryDirectory(), MemoryTaskStore()
    async with open_buses(make, directory=directory, task_store=store) as (buses, probes):
        task = await begin(probes[0])
        (endpoint,) = buses[0].node._endpoints
        monkeypatch.setattr(endpoint, "respond_here", lambda *_, **__: None)  # it has stopped
        looking = probes[1].request("tasks/get", task, capabilities=DECLARED)
        await quiet(buses)
        await kill(buses[0], directory)
        assert (await looking.reply())["result"]["status"] == "failed"


async def test_who_takes_a_task_over_may_end_as_well(autojump_clock):
    directory, store = MemoryDirectory(), MemoryTaskStore()
    async with open_buses(make, 3, directory=directory, task_store=store) as (buses, probes):
        task = await begin(probes[0])
        await trio.sleep(11)
        for bus, probe in zip(buses, probes[1:], strict=False):
            await kill(bus, directory)
            assert text(await look(probe, task)) == "worked"


async def test_a_result_that_comes_too_late_changes_nothing_and_is_logged(autojump_clock, caplog):
    directory, store = MemoryDirectory(), MemoryTaskStore()
    async with open_buses(make, directory=directory, task_store=store) as (buses, probes):
        task = await begin(probes[0])
        await kill(buses[0], directory)
        before = await look(probes[1], task)
        await trio.sleep(11)
        await quiet(buses)
        assert await look(probes[1], task) == before
        assert [kept.status for kept in await store.load()] == ["failed"]
    assert "its result is dropped" in caplog.text


async def test_who_was_taken_for_ended_sends_its_clients_to_who_has_its_task(autojump_clock, caplog):
    async with open_buses(make, task_store=MemoryTaskStore()) as (buses, probes):
        task = await begin(probes[0])
        await buses[1].tasks.seek(task["taskId"], buses[0].node.home)
        await trio.sleep(11)
        seen = [await look(probe, task) for probe in probes]
        assert [each["status"] for each in seen] == ["failed"] * 2
        assert "its result is dropped" in caplog.text


async def test_a_store_that_is_down_is_said(autojump_clock, monkeypatch, caplog):
    directory, store = MemoryDirectory(), MemoryTaskStore()

    async def fail(*_):
        raise OSError("down")

    async with open_buses(make, directory=directory, task_store=store) as (buses, probes):
        task = await begin(probes[0])
        await kill(buses[0], directory)
        monkeypatch.setattr(store, "claim", fail)
        assert (await probes[1].request("tasks/get", task, capabilities=DECLARED).ended()).status == 503
    assert "the task store failed" in caplog.text


async def test_a_store_that_is_down_is_said_wherever_a_task_is_asked_for(autojump_clock, monkeypatch):
    store = MemoryTaskStore()

    async def fail(*_):
        raise OSError("down")

    async with open_buses(make, task_store=store) as (_, probes):
        task = await begin(probes[0])
        await trio.sleep(11)
        monkeypatch.setattr(store, "payload", fail)
        told = [await probe.request("tasks/get", task, capabilities=DECLARED).ended() for probe in probes]
        assert [each.status for each in told] == [503] * 2


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
async def test_a_task_that_no_store_has_is_unknown(method, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        task = await begin(probes[0])
        await kill(buses[0], directory)
        assert (await ask(probes[1], method, task))["error"]["code"] == -32602


def make_asking(outcomes):
    """Make a server with a tool that waits for an answer, and says when it is left."""
    server = make()

    @server.tool(task="optional")
    async def sure(ctx: Context) -> str:
        try:
            answer = await ctx.elicit("Sure?", bool, key="sure")
        finally:
            outcomes.append("left")
        return str(answer)

    return server


async def begin_asking(probe):
    called = probe.request("tools/call", {"name": "sure", "arguments": {}}, capabilities=ASKED)
    return {"taskId": (await called.reply())["result"]["taskId"]}


async def test_who_was_taken_for_ended_lets_go_of_what_others_have_reported_failed(autojump_clock, caplog):
    """Wherever its client asks for it then, the task has failed; its handler does not go on."""
    directory, store, outcomes = MemoryDirectory(), MemoryTaskStore(), []
    asking = partial(make_asking, outcomes)
    async with open_buses(asking, directory=directory, task_store=store) as (buses, probes):
        await probes[0].initialize()  # by whose session it is known that the lease lasts again
        task, kept = await begin_asking(probes[0]), await begin(probes[0])
        wanted = {"notifications": {"taskIds": [task["taskId"]]}}
        listen = probes[0].request("subscriptions/listen", wanted, capabilities=DECLARED)
        await listen.wait_for(lambda: len(listen.messages) == 2)
        directory.lapse(buses[0].node.home)
        await directory.cut()
        failed = await look(probes[1], task)
        assert (failed["status"], outcomes) == ("failed", [])
        directory.renew(buses[0].node.home)
        await trio.sleep(2)
        assert outcomes == ["left"]
        assert [await look(probe, task) for probe in probes] == [failed] * 2
        assert listen.messages[-1]["params"]["error"] == failed["error"]
        assert [bus.tasks.running for bus in buses] == [1, 0]
        await trio.sleep(10)
        assert [text(await look(probe, kept)) for probe in probes] == ["worked"] * 2
    assert "was reported failed by another process" in caplog.text


async def test_whose_a_task_is_is_asked_until_the_store_tells(autojump_clock, monkeypatch):
    directory, store, outcomes = MemoryDirectory(), MemoryTaskStore(), []

    async def fail(*_):
        raise OSError("down")

    asking = partial(make_asking, outcomes)
    async with open_buses(asking, directory=directory, task_store=store) as (buses, probes):
        await probes[0].initialize()  # by whose session it is known that the lease lasts again
        task = await begin_asking(probes[0])
        directory.lapse(buses[0].node.home)
        await store.claim(task["taskId"], buses[0].node.home, buses[1].node.home)
        directory.renew(buses[0].node.home)
        await trio.sleep(2)
        assert buses[0].lease.is_valid
        # Whoever claimed it has not reported it yet.
        assert ((await look(probes[0], task))["status"], outcomes) == ("input_required", [])
        assert await buses[1].tasks.seek(task["taskId"], "") is None
        with monkeypatch.context() as patch:
            patch.setattr(store, "claim", fail)
            await trio.sleep(3)
            assert outcomes == []
        await trio.sleep(31)
        assert outcomes == ["left"]
        assert [(await look(probe, task))["status"] for probe in probes] == ["failed"] * 2
