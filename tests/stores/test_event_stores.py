"""What every event store promises, over each of them."""

import random
import secrets

import pytest
import trio

from mcpbus.core.stores.redis.connection import RedisConnection
from mcpbus.stores import MemoryEventStore, RedisEventStore, Replay, SqliteEventStore, parse_event_id
from tests.engines import BINARIES

pytestmark = pytest.mark.usefixtures("patient_redis")


@pytest.fixture(params=["memory", "sqlite", *BINARIES])
def make_store(request, tmp_path, engines):
    opened = []

    def make(**bounds):
        if request.param == "memory":
            return MemoryEventStore(**bounds)
        if request.param == "sqlite":
            store = SqliteEventStore(tmp_path / f"events-{len(opened)}.db", **bounds)
        else:
            store = RedisEventStore(engines(request.param).url, namespace=secrets.token_hex(4), **bounds)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


EVENTS = [b"one", b"two", b"three"]


@pytest.mark.parametrize("after", [0, 1, 2, 3])
async def test_a_replay_is_what_followed_that_event_and_nothing_else(make_store, after):
    store = make_store()
    await store.append("s", "a", 1, EVENTS[:2], final=False)
    await store.append("s", "b", 1, [b"another stream"], final=False)
    await store.append("t", "a", 1, [b"another session"], final=False)
    await store.append("s", "a", 3, EVENTS[2:], final=True)
    assert await store.replay("s", "a", after) == Replay(EVENTS[after:], finished=True)


async def test_a_stream_that_goes_on_is_not_finished(make_store):
    store = make_store()
    await store.append("s", "a", 1, EVENTS, final=False)
    assert await store.replay("s", "a", 3) == Replay([], finished=False)


@pytest.mark.parametrize(("session", "stream", "after"), [("s", "x", 0), ("x", "a", 0), ("s", "a", 4)])
async def test_what_is_not_known_is_not_replayed(make_store, session, stream, after):
    store = make_store()
    await store.append("s", "a", 1, EVENTS, final=False)
    assert await store.replay(session, stream, after) is None


@pytest.mark.parametrize("bounds", [{"max_items": 2}, {"max_bytes": 8}])
async def test_the_oldest_go_first_and_a_replay_never_skips_them(make_store, bounds):
    store = make_store(**bounds)
    await store.append("s", "a", 1, EVENTS, final=False)
    assert await store.replay("s", "a", 0) is None
    assert (await store.replay("s", "a", 2)).events == [b"three"]


async def test_of_what_was_appended_at_once_only_the_oldest_go(make_store):
    store = make_store(max_items=4)
    await store.append("s", "a", 1, [*EVENTS, b"four"], final=True)
    await store.append("t", "b", 1, EVENTS[:2], final=False)
    assert await store.replay("s", "a", 1) is None
    assert await store.replay("s", "a", 2) == Replay([b"three", b"four"], finished=True)
    await store.append("t", "b", 3, EVENTS[2:], final=False)
    assert await store.replay("s", "a", 2) is None
    assert await store.replay("s", "a", 3) == Replay([b"four"], finished=True)
    assert (await store.replay("t", "b", 0)).events == EVENTS


async def test_one_event_after_the_other_goes_where_there_are_too_many_bytes(make_store):
    store = make_store(max_bytes=10)
    for number, length in enumerate((6, 4, 6, 3, 11, 2), 1):
        await store.append("s", "a", number, [b"x" * length], final=False)
    assert await store.replay("s", "a", 4) is None
    assert (await store.replay("s", "a", 5)).events == [b"xx"]


@pytest.mark.parametrize("seed", range(4))
async def test_sqlite_keeps_what_memory_keeps(seed):
    rng = random.Random(seed)
    bounds = {"max_items": rng.randint(3, 20), "max_bytes": rng.randint(40, 100)}
    memory, sqlite = MemoryEventStore(**bounds), SqliteEventStore(":memory:", **bounds)
    last = dict.fromkeys("abc", 0)
    for _ in range(60):
        stream = rng.choice("abc")
        events = [b"x" * rng.randint(0, 50) for _ in range(rng.randint(1, 4))]
        for store in (memory, sqlite):
            await store.append("s", stream, last[stream] + 1, events, final=False)
        last[stream] += len(events)
        # Where nothing follows, it makes no difference whether the stream is known.
        for after in range(last[stream]):
            assert await sqlite.replay("s", stream, after) == await memory.replay("s", stream, after)
        assert (sqlite._items, sqlite._bytes) == (len(memory), memory._bytes)
    sqlite.close()


async def test_one_sessions_events_make_room_for_anothers(make_store):
    store = make_store(max_items=2)
    await store.append("s", "a", 1, [b"old"], final=True)
    await store.append("t", "b", 1, [b"new", b"newer"], final=False)
    assert await store.replay("s", "a", 0) is None
    assert (await store.replay("t", "b", 0)).events == [b"new", b"newer"]


async def test_a_session_that_is_forgotten_leaves_nothing(make_store):
    store = make_store(max_items=3)
    await store.append("s", "a", 1, [b"one"], final=False)
    await store.append("s", "b", 1, [b"two"], final=True)
    await store.append("t", "c", 1, [b"three"], final=False)
    await store.forget("s")
    await store.forget("nobody")
    assert await store.replay("s", "a", 0) is None
    # Its room is free again.
    await store.append("t", "c", 2, [b"four", b"five"], final=False)
    assert (await store.replay("t", "c", 0)).events == [b"three", b"four", b"five"]


async def test_memory_forgets_by_age(autojump_clock):
    store = MemoryEventStore(max_age=60)
    await store.append("s", "a", 1, [b"one"], final=False)
    await trio.sleep(59)
    assert (await store.replay("s", "a", 0)).events == [b"one"]
    await trio.sleep(2)
    assert await store.replay("s", "a", 0) is None
    assert len(store) == 0


async def test_nothing_is_kept_of_a_stream_whose_events_are_gone(make_store):
    """Streams that end without a reply never say so to the store."""
    store = make_store(max_items=1)
    await store.append("s", "ended", 1, [b"one"], final=False)
    await store.append("s", "live", 1, [b"one"], final=False)
    assert await store.replay("s", "ended", 0) is None
    assert await store.replay("s", "ended", 1) is None
    if isinstance(store, MemoryEventStore):
        assert [list(streams) for streams in store._sessions.values()] == [["live"]]
    # One that goes on after that is known again, from there.
    await store.append("s", "ended", 2, [b"two"], final=True)
    assert await store.replay("s", "ended", 0) is None
    assert await store.replay("s", "ended", 2) == Replay([], finished=True)
    assert await store.replay("s", "live", 1) is None


async def test_of_events_that_come_at_once_the_oldest_goes_first(make_store):
    store = make_store(max_items=1)
    for number in range(20):
        first = store.append(f"s{number}", "z", 1, [b"older"], final=False)
        second = store.append(f"s{number}", "a", 1, [b"newer"], final=False)
        await first
        await second
        assert (await store.replay(f"s{number}", "a", 0)).events == [b"newer"]
        assert await store.replay(f"s{number}", "z", 0) is None


async def test_sqlite_forgets_by_age(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("mcpbus.core.stores.sqlite.stores.time.time", lambda: now)
    store = SqliteEventStore(tmp_path / "events.db", max_age=60)
    await store.append("s", "a", 1, [b"one"], final=False)
    now += 61
    assert await store.replay("s", "a", 0) is None
    store.close()


async def test_an_append_drops_from_sqlite_what_is_too_old_and_nothing_else(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("mcpbus.core.stores.sqlite.stores.time.time", lambda: now)
    store = SqliteEventStore(tmp_path / "events.db", max_age=60)
    for number in (1, 2, 3):
        await store.append("s", "a", number, [b"%d" % number], final=False)
        now += 40
    left = store._connection.execute("SELECT first FROM batches ORDER BY position").fetchall()
    assert left == [(2,), (3,)]
    store.close()


async def test_a_replay_from_sqlite_skips_nothing_where_the_clock_was_set_back(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("mcpbus.core.stores.sqlite.stores.time.time", lambda: now)
    store = SqliteEventStore(tmp_path / "events.db", max_age=60)
    for number, now in ((1, 1000.0), (2, 900.0), (3, 1000.0)):  # noqa: B007 - the clock
        await store.append("s", "a", number, [b"%d" % number], final=False)
    assert await store.replay("s", "a", 0) is None
    assert await store.replay("s", "a", 2) == Replay([b"3"], finished=False)
    store.close()


async def test_sqlite_outlives_its_opening(tmp_path):
    path = tmp_path / "events.db"
    store = SqliteEventStore(path, max_items=3)
    await store.append("s", "a", 1, [b"one", b"two"], final=False)
    store.close()
    store = SqliteEventStore(path, max_items=3)
    assert (await store.replay("s", "a", 1)).events == [b"two"]
    await store.append("s", "a", 3, [b"three", b"four"], final=True)  # its bounds count what was there
    assert await store.replay("s", "a", 0) is None
    assert await store.replay("s", "a", 2) == Replay([b"three", b"four"], finished=True)
    store.close()


async def test_redis_forgets_by_age(engines):
    store = RedisEventStore(engines("valkey").url, namespace="by age", max_age=0.001)
    await store.append("s", "a", 1, [b"one"], final=False)
    with trio.fail_after(60):
        while await store.replay("s", "a", 0) is not None:
            pass
    store.close()


async def test_redis_keeps_nothing_for_ever(engines):
    store = RedisEventStore(engines("valkey").url, namespace="for ever", max_age=60)
    redis = RedisConnection(engines("valkey").url)
    await store.append("s", "a", 1, [b"one"], final=False)
    keys = await redis.call("KEYS", "{mcpbus:for ever}*")
    assert len(keys) == 4
    for key in keys:
        assert 0 < await redis.call("PTTL", key) <= 60_000
    await store.forget("s")
    assert [key for key in await redis.call("KEYS", "{mcpbus:for ever}*") if not key.endswith(b"sizes")] == []
    redis.close()
    store.close()


async def test_events_that_redis_is_told_twice_are_kept_once(engines):
    store = RedisEventStore(engines("valkey").url, namespace="twice", max_items=3)
    for _ in range(2):  # as where the connection is lost before the answer
        await store.append("s", "a", 1, EVENTS, final=True)
    assert await store.replay("s", "a", 0) == Replay(EVENTS, finished=True)
    store.close()


async def test_events_in_redis_are_those_of_all_who_share_it(engines):
    one, other, stranger = (
        RedisEventStore(engines("valkey").url, namespace=name, max_items=3)
        for name in ("shared", "shared", "strange")
    )
    await one.append("s", "a", 1, EVENTS[:2], final=False)
    await other.append("s", "a", 3, EVENTS[2:], final=True)
    assert await one.replay("s", "a", 0) == Replay(EVENTS, finished=True)
    assert await stranger.replay("s", "a", 0) is None
    await other.append("t", "b", 1, [b"four"], final=True)
    assert await one.replay("s", "a", 0) is None
    for store in (one, other, stranger):
        store.close()


async def test_a_stream_in_redis_goes_from_its_beginning_also_where_the_clock_is_set_back(engines):
    store = RedisEventStore(engines("valkey").url, namespace="clock", max_items=2)
    redis = RedisConnection(engines("valkey").url)
    await store.append("s", "a", 1, [b"one"], final=False)
    [(member, score)] = await redis.call("ZRANGE", "{mcpbus:clock}:ages", 0, -1, "WITHSCORES")
    await redis.call("ZADD", "{mcpbus:clock}:ages", float(score) + 60_000, member)
    await store.append("s", "a", 2, [b"two", b"three"], final=False)
    assert await store.replay("s", "a", 0) is None
    assert (await store.replay("s", "a", 1)).events == [b"two", b"three"]
    redis.close()
    store.close()


@pytest.mark.parametrize(
    ("event_id", "named"),
    [("abc.7", ("abc", 7)), ("a-b_c.0", ("a-b_c", 0))]
    + [
        (text, None)
        for text in ("", "abc", ".1", "abc.", "abc.-1", "abc.1.2", "a b.1", "abc.1 ", "ä.1", "x" * 129 + ".1")
    ],
)
def test_an_event_id_names_its_stream_and_its_number(event_id, named):
    assert parse_event_id(event_id) == named
