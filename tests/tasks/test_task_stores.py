"""Task stores, and what a restart leaves of tasks. Real time: worker threads and a jumping clock do not go together."""

import copy
import secrets
import sqlite3
import time

import msgspec
import pytest
import trio
from task_stage import DECLARED, begin, look, tasking, text

from mcpbus import ProtocolError
from mcpbus.core.stores.redis import tasks as redis_tasks
from mcpbus.core.stores.redis.connection import RedisConnection
from mcpbus.protocol.principals import BoundPrincipal
from mcpbus.tasks import (
    MemoryTaskStore,
    RedisTaskStore,
    SqliteTaskStore,
    TaskClaimedError,
    TaskRecord,
    TaskStatus,
)
from mcpbus.testing import wait_until_idle
from tests.engines import BINARIES

NOW = 1_800_000_000.0

pytestmark = pytest.mark.usefixtures("patient_redis")


@pytest.fixture(params=["memory", "sqlite", *BINARIES])
def store(request, tmp_path, engines):
    if request.param == "memory":
        yield MemoryTaskStore()
        return
    if request.param == "sqlite":
        made = SqliteTaskStore(tmp_path / "tasks.db")
    else:
        made = RedisTaskStore(engines(request.param).url, namespace=secrets.token_hex(4))
    yield made
    made.close()


def record(task_id="t", status=TaskStatus.WORKING, **changes):
    made = TaskRecord(task_id, b"owner", status, None, NOW, NOW, 60_000, 1000)
    return msgspec.structs.replace(made, **changes)


async def test_a_store_gives_back_what_it_was_given(store):
    completed = record(status=TaskStatus.COMPLETED, message="well done", updated=NOW + 1.5, size=2)
    await store.put(record(), None)
    assert await store.payload("t") is None
    await store.put(completed, b"{}")
    await store.put(record("u", created=NOW + 1), None)
    assert await store.load() == [completed, record("u", created=NOW + 1)]
    assert await store.payload("t") == b"{}"
    assert await store.payload("nobody") is None


async def test_a_store_forgets_what_it_is_told_to(store):
    await store.put(record(), None)
    await store.put(record("u"), None)
    await store.delete("t")
    await store.delete("t")
    assert await store.load() == [record("u")]


async def test_a_task_is_given_to_one_bus_only(store):
    await store.put(record(bus="one"), None)
    assert await store.claim("nobody", "one", "two") is None
    assert [(await store.claim("t", "one", bus)).bus for bus in ("two", "three", "two")] == ["two"] * 3
    with pytest.raises(TaskClaimedError):
        await store.put(record(bus="one", status=TaskStatus.COMPLETED), b"{}")
    failed = record(bus="two", status=TaskStatus.FAILED)
    await store.put(failed, b"[]")
    assert (await store.load(), await store.payload("t")) == ([failed], b"[]")


async def test_a_file_is_as_it_was_left(tmp_path):
    store = SqliteTaskStore(tmp_path / "tasks.db")
    await store.put(record(status=TaskStatus.FAILED), b'{"code":1}')
    store.close()
    store = SqliteTaskStore(tmp_path / "tasks.db")
    assert await store.load() == [record(status=TaskStatus.FAILED)]
    assert await store.payload("t") == b'{"code":1}'
    store.close()


async def test_a_file_belongs_to_one_store_at_a_time(tmp_path):
    store = SqliteTaskStore(tmp_path / "tasks.db")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        SqliteTaskStore(tmp_path / "tasks.db")
    store.close()
    SqliteTaskStore(tmp_path / "tasks.db").close()


# -- Redis -------------------------------------------------------------------------------------------------------------


async def test_tasks_in_redis_are_left_by_a_bus_that_is_not_heard_of_any_more(engines):
    one, two = (RedisTaskStore(engines("valkey").url, namespace="leases", lease=60) for _ in range(2))
    redis = RedisConnection(engines("valkey").url)
    await one.take_up("one")
    await one.put(record(bus="one"), None)
    assert await two.take_up("two") == []
    one.close()  # as when its process ends; nobody waits for a minute here
    assert 0 < await redis.call("PTTL", "{mcpbus:leases}:b:one") <= 60_000
    await redis.call("DEL", "{mcpbus:leases}:b:one")
    assert await two.take_up("three") == [record(bus="three")]
    redis.close()
    two.close()


async def test_a_lease_in_redis_is_renewed_until_its_bus_leaves(engines, monkeypatch):
    monkeypatch.setattr(redis_tasks, "_RENEWALS", 1200)  # soon, of one that does not lapse meanwhile
    store = RedisTaskStore(engines("valkey").url, namespace="renewed", lease=60)
    redis = RedisConnection(engines("valkey").url)
    lease = "{mcpbus:renewed}:b:one"
    await store.take_up("one")
    assert await redis.call("PEXPIRE", lease, 30_000)
    with trio.fail_after(60):
        while await redis.call("PTTL", lease) <= 30_000:
            pass
    await store.leave("one")
    assert await redis.call("EXISTS", lease) == 0
    redis.close()
    store.close()


async def test_who_has_lost_its_lease_in_redis_lets_go_of_what_another_bus_has_taken(
    shared_engine, monkeypatch
):
    monkeypatch.setattr(redis_tasks, "_RENEWALS", 1200)  # soon, of one that does not lapse meanwhile
    url, namespace = shared_engine.url, secrets.token_hex(4)
    stores = [RedisTaskStore(url, namespace=namespace, lease=60) for _ in range(2)]
    redis = RedisConnection(url)
    async with tasking(store=stores[0]) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        name = stage.bus.tasks.name
        # As if it had stood still for so long that somebody opened meanwhile, who has taken up and reported what it had.
        await stores[1].put(record(task["taskId"], TaskStatus.FAILED, bus=name), b"{}")
        await stores[1].claim(task["taskId"], name, "two")
        await redis.call("DEL", f"{{mcpbus:{namespace}}}:b:{name}")
        with trio.fail_after(60):
            while stage.jobs[0].outcome == "running":  # noqa: ASYNC110 - a handler tells nobody
                await trio.sleep(0.01)
        assert stage.jobs[0].outcome == "cancelled"
        assert await redis.call("EXISTS", f"{{mcpbus:{namespace}}}:b:{name}") == 1
    for store in (*stores, redis):
        store.close()


async def test_redis_keeps_no_task_for_ever(engines):
    store = RedisTaskStore(engines("valkey").url, namespace="for ever")
    redis = RedisConnection(engines("valkey").url)
    now = time.time()
    await store.put(record(created=now), None)
    keys = await redis.call("KEYS", "{mcpbus:for ever}:t*")
    assert [0 < await redis.call("PTTL", key) <= 180_000 for key in keys] == [True] * 2
    await store.put(record("gone", created=now - 300, status=TaskStatus.FAILED), b"{}")
    assert [kept.id for kept in await store.load()] == ["t"]
    await store.put(record("u", created=now + 86_400), None)  # its clock was fast
    assert 0 < await redis.call("PTTL", "{mcpbus:for ever}:t:u") <= 180_000
    assert await redis.call("ZCARD", "{mcpbus:for ever}:tasks") == 2
    for task in "tu":
        await store.delete(task)
    assert await redis.call("KEYS", "{mcpbus:for ever}:t*") == []
    redis.close()
    store.close()


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_task_in_redis_goes_by_the_clock_of_redis(engines, hours, monkeypatch):
    """A process whose clock is slow still has what came of its tasks, and one whose clock is fast takes none of others'."""
    store = RedisTaskStore(engines("valkey").url, namespace=f"clocks {hours}")
    redis = RedisConnection(engines("valkey").url)
    now = time.time()
    await store.put(record("other", created=now), None)
    elsewhere = now + hours * 3600
    with monkeypatch.context() as patch:
        patch.setattr(redis_tasks.time, "time", lambda: elsewhere)
        await store.put(record(created=elsewhere, status=TaskStatus.COMPLETED, size=2), b"{}")
    assert await store.payload("t") == b"{}"
    assert 0 < await redis.call("PTTL", f"{{mcpbus:clocks {hours}}}:t:t") <= 120_000
    assert {kept.id for kept in await store.load()} == {"t", "other"}
    for task in ("t", "other"):
        await store.delete(task)
    redis.close()
    store.close()


# -- a restart ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite", *BINARIES])
def reopen(request, tmp_path, engines):
    """A store that can be opened again, as after a restart; memory stands for any store that outlives the bus."""
    opened = []
    memory, namespace = MemoryTaskStore(), secrets.token_hex(4)

    def open_again():
        if request.param == "memory":
            return memory
        if opened:
            opened[-1].close()
        if request.param == "sqlite":
            opened.append(SqliteTaskStore(tmp_path / "tasks.db"))
        else:
            opened.append(RedisTaskStore(engines(request.param).url, namespace=namespace))
        return opened[-1]

    yield open_again
    if opened:
        opened[-1].close()


class CrashError(Exception):
    """The process ends without a word."""


async def leave_three(store, tasks):
    async with tasking(store=store) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            for name, arguments in (("typed", {"number": 3}), ("hold", {}), ("ask", {})):
                tasks.append(await begin(client, name, **arguments))
            await have_ended(store, any)
        raise CrashError


async def crashed(store):
    """Open a bus, leave one task that has ended and two that have not, and crash."""
    tasks = []
    with pytest.raises(CrashError):
        await leave_three(store, tasks)
    return tasks


async def have_ended(store, how_many):
    with trio.fail_after(60):
        while not how_many(kept.status.final for kept in await store.load()):  # noqa: ASYNC110 - a store tells nobody
            await trio.sleep(0.01)


async def test_what_had_ended_is_there_and_what_had_not_has_failed(reopen, caplog):
    tasks = await crashed(reopen())
    assert caplog.records == [], "a handler that waited for an answer was cancelled like any other"
    async with tasking(store=reopen()) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        seen = [await look(client, task) for task in tasks]
        assert [task["status"] for task in seen] == ["completed", "failed", "failed"]
        assert text(seen[0]["result"]) == "3"
        for failed in seen[1:]:
            assert failed["error"] == {
                "code": -32603,
                "message": "The server stopped while the task was running",
            }
            assert failed["statusMessage"] == failed["error"]["message"]
        assert stage.bus.tasks.running == 0
        await client.request("tasks/cancel", tasks[1])
        await client.request("tasks/update", tasks[2] | {"inputResponses": {"who": 3}})
        async with client.listen(task_ids=[tasks[0]["taskId"]]) as listen:
            assert (await listen.__anext__())[1]["result"] == seen[0]["result"]
    # And so it stays, also in the store.
    async with tasking(store=reopen()) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        assert [(await look(client, task))["status"] for task in tasks] == ["completed", "failed", "failed"]


async def test_what_a_drain_failed_stays_failed_for_that_reason(reopen):
    opened = tasking(store=reopen(), drain_timeout=0.01)
    async with opened as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
    async with tasking(store=reopen()) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        seen = await look(client, task)
        assert (seen["status"], seen["statusMessage"]) == ("failed", "The server is shutting down")


async def test_a_result_keeps_the_time_that_it_had(autojump_clock):
    now = time.time()
    store = MemoryTaskStore()
    owner = BoundPrincipal(None).digest
    for task_id, age in (("old", 61), ("older", 59), ("new", 30)):
        kept = record(task_id, TaskStatus.COMPLETED, owner=owner, created=now - age, size=2)
        await store.put(kept, b"{}")
    async with tasking(store=store) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        await trio.sleep(0.1)
        assert {kept.id for kept in await store.load()} == {"older", "new"}
        await trio.sleep(2)
        assert [kept.id for kept in await store.load()] == ["new"]
        assert (await look(client, {"taskId": "new"}))["result"] == {}
        await trio.sleep(30)
        assert await store.load() == []
        await wait_until_idle(stage.bus)
        assert len(stage.bus.tasks) == 0


async def test_a_result_is_kept_no_longer_than_its_time_where_the_clock_was_set_back(autojump_clock):
    store, now = MemoryTaskStore(), time.time()
    kept = record(
        "fast", TaskStatus.COMPLETED, owner=BoundPrincipal(None).digest, created=now + 86_400, size=2
    )
    await store.put(kept, b"{}")
    async with tasking(store=store) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        await trio.sleep(59)
        assert (await look(client, {"taskId": "fast"}))["result"] == {}
        await trio.sleep(2)
        assert await store.load() == []
        await wait_until_idle(stage.bus)
        assert len(stage.bus.tasks) == 0


async def test_what_is_kept_counts_after_a_restart_too(autojump_clock):
    store = MemoryTaskStore()
    kept = record("big", TaskStatus.COMPLETED, created=time.time(), size=5_000)
    await store.put(kept, b"x" * 5_000)
    opened = tasking(store=store, limits={"task_bytes": 5_000})
    async with opened as stage, stage.bus.connect(capabilities=DECLARED) as client:
        # It is somebody else's, who has more than this client would have, and makes room.
        assert (await client.call_tool("typed", {"number": 3}))["resultType"] == "task"
        assert stage.bus.statistics().limits_reached == {"task_bytes": 1}
        await wait_until_idle(stage.bus)
        assert [kept.id for kept in await store.load()] == [*stage.bus.tasks._tasks]
        assert "big" not in stage.bus.tasks._tasks


async def test_a_bus_that_opens_leaves_to_another_what_that_has(store):
    """Two replicas of one process share a store; whoever opens later has nothing to report of what runs in the other."""
    async with tasking(store=store) as one, one.bus.connect(capabilities=DECLARED) as client:
        running, done = await begin(client), await begin(client, "typed", number=3)
        await have_ended(store, any)
        async with tasking(store=store) as other, other.bus.connect(capabilities=DECLARED) as stranger:
            assert len(other.bus.tasks) == 0
            for task in (running, done):
                await refused(stranger, "tasks/get", task)
        assert (await look(client, running))["status"] == "working"
        one.jobs[-1].finish("well")
        await have_ended(store, all)
        assert {kept.status for kept in await store.load()} == {TaskStatus.COMPLETED}
        assert text((await look(client, running))["result"]) == "well"
    # What a bus leaves is for whoever opens next, and for one of them alone.
    async with tasking(store=store) as one, one.bus.connect(capabilities=DECLARED) as client:
        async with tasking(store=store) as other:
            assert (len(one.bus.tasks), len(other.bus.tasks)) == (2, 0)
        assert text((await look(client, running))["result"]) == "well"


# -- whose they are ----------------------------------------------------------------------------------------------------


class Person(msgspec.Struct, frozen=True):
    name: str
    roles: frozenset[str] = frozenset()


class Cross:
    """A principal that cannot be compared."""

    def __eq__(self, other):
        raise ValueError

    __hash__ = None


class Opaque:
    """A principal without content that could be written down; each is its own."""


async def refused(client, method, params):
    with pytest.raises(ProtocolError) as error:
        await client.request(method, params)
    return error.value.code, error.value.message


@pytest.mark.parametrize(
    ("owner", "same", "others"),
    [
        ("ann", "ann", ["bo", None, b"ann", Person("ann"), Cross()]),
        (
            Person("ann", frozenset("ab")),
            Person("ann", frozenset("ba")),
            [Person("bo"), "ann", None, {"name": "ann", "roles": ["a", "b"]}],
        ),
        (None, None, ["ann", "null", 0]),
    ],
    ids=["text", "struct", "nobody"],
)
async def test_a_task_is_its_owners_alone_also_after_a_restart(owner, same, others, autojump_clock):
    """TX-16. To others it is as unknown as one that never was."""
    store = MemoryTaskStore()
    async with tasking(store=store) as stage:
        async with stage.bus.connect(capabilities=DECLARED, principal=owner) as client:
            task = await begin(client, "typed", number=3)
            await wait_until_idle(stage.bus)
        await check(stage, task, same, others)
    async with tasking(store=store) as stage:
        await check(stage, task, same, others)


async def check(stage, task, same, others):
    async with stage.bus.connect(capabilities=DECLARED, principal=same) as client:
        assert text((await look(client, task))["result"]) == "3"
        unknown = await refused(client, "tasks/get", {"taskId": "nobody"})
    for other in others:
        async with stage.bus.connect(capabilities=DECLARED, principal=other) as client:
            for method, more in (
                ("tasks/get", {}),
                ("tasks/update", {"inputResponses": {}}),
                ("tasks/cancel", {}),
            ):
                assert await refused(client, method, task | more) == unknown


async def test_an_owner_whose_content_cannot_be_written_down_has_nothing_after_a_restart(autojump_clock):
    store, owner = MemoryTaskStore(), Opaque()
    async with tasking(store=store) as stage:
        async with stage.bus.connect(capabilities=DECLARED, principal=owner) as client:
            task = await begin(client, "typed", number=3)
            assert (await look(client, task))["status"]
        async with stage.bus.connect(capabilities=DECLARED, principal=Opaque()) as client:
            await refused(client, "tasks/get", task)
    # A restart leaves no object as it was.
    again, restored = tasking(store=store), copy.copy(owner)
    async with again as stage, stage.bus.connect(capabilities=DECLARED, principal=restored) as client:
        await refused(client, "tasks/get", task)
