"""Tasks in a store that processes share, without serving as one: one that was taken for ended, and lives, finds out what became of its own."""

from contextlib import asynccontextmanager

import trio
from task_stage import DECLARED, begin, look, tasking
from test_task_listening import told

from mcpbus.tasks import LeasedTaskStore, MemoryTaskStore
from mcpbus.testing import settle


class Leased(MemoryTaskStore):
    """Whose leases lapse, and last again, when a test says so."""

    def __init__(self):
        super().__init__()
        self._told = {}

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


@asynccontextmanager
async def taken_for_ended(store, *names):
    """A bus whose lease has lapsed while it ran tasks of these names, and another one that has opened since; with a client of each."""
    assert isinstance(store, LeasedTaskStore)
    async with tasking(store=store) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        tasks = [await begin(client, name) for name in names]
        await settle(stage.bus)
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
    assert caplog.text.count("was reported failed by another process") == 2
