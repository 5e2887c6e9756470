"""Tasks in a store that processes share, without serving as one: one that was taken for ended, and lives, finds out what became of its own."""

from contextlib import AsyncExitStack, asynccontextmanager, suppress

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from task_stage import DECLARED, begin, look, tasking
from test_task_lifetime import Down, gone
from test_task_listening import told
from trio.testing import MockClock

from mcpbus import ProtocolError
from mcpbus.core.tasks.messages import Expire
from mcpbus.tasks import LeasedTaskStore, TaskStatus
from mcpbus.testing import wait_until_idle


class Leased(Down):
    """Whose leases lapse, and last again, when a test says so."""

    def __init__(self):
        super().__init__("works")
        self._told = {}
        self.deleted, self.put_by = [], []

    async def put(self, record, payload):
        self.put_by.append(record.bus)
        await super().put(record, payload)

    async def delete(self, task_id):
        self.deleted.append(task_id)
        await super().delete(task_id)

    def on_lapse(self, bus, tell):
        self._told[bus] = tell

    async def leave(self, bus):
        del self._told[bus]
        await super().leave(bus)

    def lapse(self):
        self._open.clear()

    def renew(self):
        self._open.update(self._told)
        for tell in self._told.values():
            tell()


class Slow(Leased):
    """Takes a second to keep a task."""

    async def put(self, record, payload):
        await trio.sleep(1)
        await super().put(record, payload)


@asynccontextmanager
async def taken_for_ended(store, *names):
    """A bus whose lease has lapsed while it ran tasks of these names, and another one that has opened since; with a client of each."""
    assert isinstance(store, LeasedTaskStore)
    async with tasking(store=store) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        tasks = [await begin(client, name) for name in names]
        await wait_until_idle(stage.bus)
        store.lapse()
        async with tasking(store=store) as other, other.bus.connect(capabilities=DECLARED) as stranger:
            assert [(await look(stranger, task))["status"] for task in tasks] == ["failed"] * len(tasks)
            yield stage, client, stranger, tasks


async def test_what_others_have_reported_failed_is_left_once_the_store_tells(autojump_clock, caplog):
    store = Leased()
    async with taken_for_ended(store, "hold", "ask") as (stage, client, stranger, tasks):
        async with client.listen(task_ids=[tasks[0]["taskId"]]) as listen:
            assert (await told(listen))["status"] == "working"
            await trio.sleep(60)
            assert stage.jobs[0].outcome == "running"
            later = await begin(client)
            store.renew()
            failed = await told(listen)
        assert failed["error"] == (await look(stranger, tasks[0]))["error"]
        assert (stage.jobs[0].outcome, stage.bus.tasks.running) == ("cancelled", 1)
        assert (await look(client, later))["status"] == "working"
        for task in tasks:
            assert await look(client, task) == await look(stranger, task)
    assert caplog.text.count("was reported failed by another process") == 2


@pytest.mark.parametrize("renewed", [True, False])
async def test_what_ends_then_is_never_shown_to_have_ended_otherwise(renewed, autojump_clock, caplog):
    store, seen, heard = Leased(), [], []
    async with taken_for_ended(store, "hold") as (stage, client, stranger, tasks):
        async with client.listen(task_ids=[tasks[0]["taskId"]]) as listen:
            stage.jobs[0].finish("done")
            if renewed:
                store.renew()
            seen += [(await look(client, tasks[0]))["status"] for _ in range(50)]
            while "failed" not in heard:
                heard.append((await told(listen))["status"])
        assert (stage.jobs[0].outcome, stage.bus.tasks.running) == ("returned", 0)
        assert list(dict.fromkeys(seen)) == list(dict.fromkeys(heard)) == ["working", "failed"]
        assert await look(client, tasks[0]) == await look(stranger, tasks[0])
    assert caplog.text.count("its result is dropped") == 1


async def test_what_was_taken_is_forgotten_in_time_by_both_and_deleted_by_who_has_it(autojump_clock):
    store = Leased()
    async with taken_for_ended(store, "hold", "hold") as (stage, client, stranger, tasks):
        stage.jobs[0].finish("done")
        store.renew()
        await trio.sleep(3599)
        assert [(await look(who, task))["status"] for who in (client, stranger) for task in tasks] == [
            "failed"
        ] * 4
        await trio.sleep(3600)
        for who in (client, stranger):
            assert [await gone(who, task) for task in tasks] == [True] * 2
        assert sorted(store.deleted) == sorted(task["taskId"] for task in tasks)


@pytest.mark.parametrize("taken", [True, False])
async def test_an_end_is_shown_once_a_store_that_others_share_has_kept_it(taken, autojump_clock, caplog):
    """While it is down nobody can tell whether another process reports something else."""
    store = Leased()
    async with tasking(store=store) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        store.how = "fails"
        stage.jobs[-1].finish("done")
        await trio.sleep(20)
        assert (await look(client, task))["status"] == "working"
        if taken:
            await store.claim(task["taskId"], stage.bus.tasks.name, "another")
        store.how = "works"
        await trio.sleep(20)
        assert (await look(client, task))["status"] == ("working" if taken else "completed")
        if taken:
            (record,) = await store.load()
            assert (record.bus, record.status) == ("another", "working")
            stage.bus.tasks.end_all()
    assert ("its result is dropped" in caplog.text) == taken


async def test_what_another_process_has_reported_is_not_stored_again(autojump_clock):
    store = Leased()
    async with tasking(store=store) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        tasks = [await begin(client) for _ in range(2)]
        await wait_until_idle(stage.bus)
        store.how = "fails"
        for job in stage.jobs:
            job.finish("done")  # the second is to be stored again ten seconds after the first
            await trio.sleep(10)
        store.how = "works"
        for record in await store.load():
            taken = await store.claim(record.id, record.bus, "another")
            await store.put(msgspec.structs.replace(taken, status=TaskStatus.FAILED), b"{}")
        store.put_by.clear()
        await trio.sleep(60)
        assert [(await look(client, task))["status"] for task in tasks] == ["failed"] * 2
        assert store.put_by == [stage.bus.tasks.name]


async def test_what_is_forgotten_while_a_store_finds_that_another_process_has_it_is_gone(autojump_clock):
    store = Slow()
    async with tasking(store=store) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        stage.jobs[-1].finish("done")
        await store.claim(task["taskId"], stage.bus.tasks.name, "another")
        await wait_until_idle(stage.bus)
        stage.bus.tasks._tasks[task["taskId"]].address.tell(Expire())  # as where its room is needed
        await trio.sleep(6)
        assert await gone(client, task)
        assert (len(stage.bus.tasks), len(store), store.deleted) == (0, 1, [])


# -- whatever happens --------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "renew", "finish", "begin", "fails", "hangs", "works"]),
        st.sampled_from([0.0, 0.5, 2.0, 31.0]),
    ),
    min_size=2,
    max_size=12,
)


class Lives:
    """Buses that share a store, whatever happens to it; their clients note how they see each task: its id, status and what came of it."""

    def __init__(self, stack):
        self._stack = stack
        self._store = Slow()
        self._tasks = []
        self.seen = {}

    async def open(self):
        if self._store.how == "works":
            stage = await self._stack.enter_async_context(
                tasking(store=self._store, limits={"store_deadline": 2})
            )
            client = await self._stack.enter_async_context(stage.bus.connect(capabilities=DECLARED))
            self.seen[client] = stage, []

    async def begin(self):
        client = next(iter(self.seen))
        with suppress(ProtocolError):  # the store is down
            self._tasks.append(await begin(client, "must"))

    async def finish(self):
        for stage, _ in self.seen.values():
            for job in stage.jobs[-1:]:
                job.finish("done")

    async def take(self):
        """Have one more open that takes all others for ended."""
        self._store.lapse()
        await self.open()

    async def renew(self):
        self._store.renew()

    async def fails(self):
        self._store.how = "fails"

    async def hangs(self):
        self._store.how = "hangs"

    async def works(self):
        self._store.how = "works"

    async def look(self):
        for client, (_, views) in self.seen.items():
            for task in self._tasks:
                with suppress(ProtocolError):  # it is unknown there, or the store is down
                    view = await look(client, task)
                    views.append((task["taskId"], view["status"], view.get("result"), view.get("error")))


async def live_through(steps):
    async with AsyncExitStack() as stack:
        lives = Lives(stack)
        for step, seconds in [
            ("open", 0),
            ("begin", 1),
            *steps,
            ("works", 31),
            ("renew", 31),
            ("finish", 31),
        ]:
            await getattr(lives, step)()
            await trio.sleep(0.1)
            await lives.look()
            await trio.sleep(seconds)
            await lives.look()
    return [views for _, views in lives.seen.values()]


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(steps=STEPS)
def test_an_end_that_was_seen_stays_as_it_is_whatever_happens(steps):
    ends = {}
    for views in trio.run(live_through, steps, clock=MockClock(autojump_threshold=0)):
        ended = set()
        for task, *view in views:
            if view[0] == "working":
                assert task not in ended
            else:
                ended.add(task)
                assert ends.setdefault(task, view) == view
