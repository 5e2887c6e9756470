"""Whatever one principal's tasks take, another's find room."""

import pytest
import trio
from task_stage import DECLARED, SlowTaskStore, begin, look, tasking, text

from mcpbus import ProtocolError
from mcpbus.core.admission import QuotaExceeded, ServerOverloaded
from mcpbus.tasks import MemoryTaskStore
from mcpbus.testing import wait_until_idle


def connect(stage, who):
    return stage.bus.connect(capabilities=DECLARED, principal=who)


async def kinds(client, count):
    """How so many calls of a tool that ends at once were answered."""
    return [(await client.call_tool("typed", {"number": 3}))["resultType"] for _ in range(count)]


async def test_one_principals_tasks_that_run_leave_a_tenth_to_others(autojump_clock):
    async with (
        tasking(limits={"max_running_tasks": 20}) as stage,
        connect(stage, "bob") as bob,
        connect(stage, "alice") as alice,
    ):
        for _ in range(18):
            await begin(bob)
        assert await kinds(bob, 1) == ["complete"]
        with pytest.raises(ProtocolError, match="at most 20 run at once"):
            await bob.call_tool("must")
        await begin(alice)
        assert stage.bus.statistics().limits_reached == {"max_running_tasks": 2}


async def test_one_principals_results_make_room_for_the_tasks_of_others(autojump_clock):
    store = MemoryTaskStore()
    async with (
        tasking(limits={"max_tasks": 9}, store=store) as stage,
        connect(stage, "bob") as bob,
        connect(stage, "alice") as alice,
    ):
        running = await begin(bob)
        first = await begin(bob, "typed", number=3)
        assert await kinds(bob, 8) == ["task"] * 7 + ["complete"]
        kept = await begin(alice, "typed", number=4)
        await wait_until_idle(stage.bus)
        with pytest.raises(ProtocolError):
            await look(bob, first)
        assert (await look(bob, running))["status"] == "working"
        assert (await kinds(alice, 5)) == ["task"] * 3 + ["complete"] * 2
        assert text((await look(alice, kept))["result"]) == "4"
        await wait_until_idle(stage.bus)
        assert len(store) == len(stage.bus.tasks) == 9


async def test_one_principals_results_leave_room_in_bytes_to_others(autojump_clock):
    async with (
        tasking(limits={"task_bytes": 10_000}) as stage,
        connect(stage, "bob") as bob,
        connect(stage, "alice") as alice,
    ):

        @stage.server.tool(task="optional")
        async def much() -> str:
            return "x" * 3_000

        async def ask(client, count):
            return [(await client.call_tool("much"))["resultType"] for _ in range(count)]

        def is_past_its_share(owner):
            with pytest.raises(ServerOverloaded) as refused:
                stage.bus.tasks._make_room(owner)
            return isinstance(refused.value, QuotaExceeded)

        assert await ask(bob, 5) == ["task"] * 4 + ["complete"]
        assert not is_past_its_share("bob"), "there is nobody else"
        # Bob has 12,000 bytes, and gives of them for as long as Alice has less than he.
        assert await ask(alice, 5) == ["task"] * 2 + ["complete"] * 3
        await wait_until_idle(stage.bus)
        assert not is_past_its_share("alice"), "both have as much"
        assert sorted(stage.bus.tasks._sizes) == ["alice", "bob"]
        kept = [task.record.size for task in stage.bus.tasks._tasks.values()]
        assert stage.bus.tasks._size == sum(stage.bus.tasks._sizes.values()) == sum(kept)


async def test_tasks_that_begin_at_once_take_the_room_that_there_is_and_no_more(autojump_clock):
    limits = {"max_tasks": 3}
    async with tasking(limits=limits, store=SlowTaskStore()) as stage, connect(stage, "bob") as bob:
        found = []

        async def one():
            found.extend(await kinds(bob, 1))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one)
        assert sorted(found) == ["complete"] * 2 + ["task"] * 3


async def test_a_result_that_makes_room_while_it_is_being_stored_is_in_no_store_in_the_end(autojump_clock):
    store = SlowTaskStore()
    async with (
        tasking(limits={"max_tasks": 3}, store=store) as stage,
        connect(stage, "bob") as bob,
        connect(stage, "alice") as alice,
    ):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(kinds, bob, 1)
        assert await kinds(alice, 1) == ["task"]
        await trio.sleep(60)
        await wait_until_idle(stage.bus)
        assert len(store) == len(stage.bus.tasks) == 3


async def test_nobody_is_remembered_for_tasks_that_are_gone(autojump_clock):
    async with tasking(limits={"task_ttl": 60.0}) as stage, connect(stage, "bob") as bob:
        await kinds(bob, 3)
        tasks = stage.bus.tasks
        assert (len(tasks._kept), tasks._kept.owners, list(tasks._sizes)) == (3, 1, ["bob"])
        await trio.sleep(61)
        assert (len(tasks._kept), tasks._kept.owners, tasks._sizes, tasks._size) == (0, 0, {}, 0)
