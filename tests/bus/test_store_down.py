"""An event store that hangs, fails or is locked costs live streams nothing, and sessions that end cost it little."""

import sqlite3
from contextlib import asynccontextmanager

import trio
import trio.testing

from mcpbus import Context, Limits, Server
from mcpbus.stores import MemoryEventStore, SqliteEventStore
from mcpbus.testing import open_bus, open_probe, wait_until_idle

LIMITS = Limits(store_deadline=1, store_pause=30)


def make_server():
    server = Server("stored")

    @server.tool
    async def count(ctx: Context, steps: int = 4) -> str:
        for step in range(1, steps + 1):
            await ctx.progress(step)
            await trio.sleep(1)
        return "done"

    @server.tool
    async def poll(ctx: Context) -> str:
        await ctx.close_stream(retry=0.5)
        await trio.sleep(2)
        return "late"

    return server


class Hung(MemoryEventStore):
    """Hangs on demand, and then keeps what it was given, like a thread that nobody waits for any more."""

    def __init__(self):
        super().__init__()
        self.hangs = False
        self.begun = 0
        self._late = []

    async def append(self, *args, **named):
        self.begun += 1
        if self.hangs:
            self._late.append((args, named))
            await trio.sleep_forever()
        await super().append(*args, **named)

    async def release(self):
        self.hangs = False
        for args, named in self._late:
            await super().append(*args, **named)


def call(session, name="count", **arguments):
    return session.request("tools/call", {"name": name, "arguments": arguments}, progress_token="p")


def said(recording):
    return [m["params"]["progress"] if "method" in m else "reply" for m in recording.messages]


async def test_a_store_that_hangs_costs_all_streams_together_its_deadline_once(autojump_clock, caplog):
    store = Hung()
    async with (
        open_bus(make_server(), limits=LIMITS, event_store=store) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        sessions = [await probe.initialize() for _ in range(20)]
        store.hangs = True
        start = trio.current_time()
        for expected in (5.0, 9.0):
            calls = [call(session) for session in sessions]
            for one in calls:
                assert said(await one.ended()) == [1, 2, 3, 4, "reply"]
            assert trio.current_time() - start <= expected
        assert store.begun == 20
        assert len(caplog.records) == 1
        assert bus.statistics().limits_reached == {"store_deadline": 1}
        assert bus.ledger.balance() == 0


async def test_nothing_is_replayed_of_a_stream_with_a_gap_whatever_the_store_keeps_later(autojump_clock):
    store = Hung()
    async with (
        open_bus(make_server(), limits=LIMITS, event_store=store) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = call(session, steps=6)
        await trio.sleep(1.5)
        store.hangs = True
        await trio.sleep(2.2)
        assert said(post) == [1, 2, 3, 4], "live writing goes on"
        assert len(post.event_ids) == 3, "of which the client is told no more ids"
        await store.release()
        post.disconnect()
        await trio.sleep(30)
        again = await session.get(post.event_ids[-1]).ended()
        assert (again.status, again.messages[0]["error"]["code"]) == (400, -32600)
        await wait_until_idle(bus)
        assert bus.ledger.balance() == 0


async def test_a_stream_with_a_gap_keeps_nothing_more_when_the_store_is_back(autojump_clock):
    store = Hung()
    async with (
        open_bus(make_server(), limits=LIMITS, event_store=store) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = call(session, steps=40)
        await trio.sleep(1.5)
        store.hangs = True
        await trio.sleep(2)
        store.hangs = False
        await post.ended()
        assert said(post) == [*range(1, 41), "reply"]
        assert (len(post.event_ids), store.begun) == (3, 3)


async def test_while_the_store_is_down_nobody_is_told_to_come_back_and_later_they_are(autojump_clock):
    store = Hung()
    async with (
        open_bus(make_server(), limits=LIMITS, event_store=store) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        store.hangs = True
        await call(session).ended()
        polled = await call(session, "poll").ended()
        assert (said(polled), polled.event_ids) == (["reply"], [])
        await store.release()
        await trio.sleep(30)
        post = await call(session).ended()
        assert len(post.event_ids) == 6
        assert said(await session.get(post.event_ids[2]).ended()) == [3, 4, "reply"]


async def test_a_locked_file_holds_up_no_live_stream(tmp_path):
    store = SqliteEventStore(tmp_path / "events.db")
    other = sqlite3.connect(tmp_path / "events.db", isolation_level=None)
    async with open_bus(make_server(), event_store=store) as bus, open_probe(bus.asgi()) as probe:
        sessions = [await probe.initialize() for _ in range(10)]
        other.execute("BEGIN EXCLUSIVE")
        with trio.fail_after(10):
            for one in [call(session, steps=1) for session in sessions]:
                assert said(await one.ended()) == [1, "reply"]
        other.execute("ROLLBACK")
    other.close()
    store.close()


# -- the end of sessions -------------------------------------------------------------------------


class Forgetful(MemoryEventStore):
    """Has one thing to do at a time, as a file has; to forget takes it a second, and fails on demand."""

    def __init__(self):
        super().__init__()
        self.turn = trio.CapacityLimiter(1)
        self.forgotten = []
        self.fails = False

    async def append(self, *args, **named):
        async with self.turn:
            await super().append(*args, **named)

    async def forget(self, session):
        async with self.turn:
            await trio.sleep(1)
            if self.fails:
                raise OSError("disk full")
            self.forgotten.append(session)
            await super().forget(session)


@asynccontextmanager
async def forgetful():
    store = Forgetful()
    limits = Limits(store_deadline=5, store_pause=30)
    async with (
        open_bus(make_server(), limits=limits, event_store=store) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        yield store, bus, probe


async def test_a_session_that_stored_nothing_costs_the_store_nothing(autojump_clock):
    async with forgetful() as (store, bus, probe):
        for _ in range(100):
            session = await probe.initialize()
            await session.request("ping").ended()
            get = await session.get().begun()
            await session.delete().ended()
            await get.ended()
        await wait_until_idle(bus)
        assert (store.forgotten, bus.statistics().actors) == ([], 0)


async def test_whoever_says_something_waits_for_one_session_to_be_forgotten_at_most(autojump_clock):
    async with forgetful() as (store, bus, probe):
        session, ended = await probe.initialize(), [await probe.initialize() for _ in range(20)]
        for one in [call(other, steps=1) for other in ended]:
            await one.ended()
        for other in ended:
            await other.delete().ended()
        start = trio.current_time()
        assert said(await call(session, steps=1).ended()) == [1, "reply"]
        assert trio.current_time() - start <= 1 + 2, (
            "what the call itself takes, and one turn for each thing that it says"
        )
        await trio.sleep(60)
        assert store.forgotten == [other.id for other in ended]
        assert len(bus.sessions) == 1


async def test_what_could_not_be_forgotten_is_tried_again(autojump_clock, caplog):
    async with forgetful() as (store, bus, probe):
        ended = [await probe.initialize() for _ in range(2)]
        store.fails = True
        for other in ended:
            await call(other, steps=1).ended()
            await other.delete().ended()
        await trio.sleep(20)
        store.fails = False
        assert len(store) > 0
        await trio.sleep(60)
        assert sorted(store.forgotten) == sorted(other.id for other in ended)
        assert (len(store), len(caplog.records)) == (0, 1)
        await wait_until_idle(bus)
        assert bus.statistics().actors == 0


async def test_nothing_is_stored_of_a_session_that_has_ended(autojump_clock):
    async with forgetful() as (store, bus, probe):
        session = await probe.initialize()
        post = call(session)
        await post.message()
        post.disconnect()
        await wait_until_idle(bus)
        bus.sessions[session.id].close()
        await trio.sleep(60)
        assert (len(store), store.forgotten) == (0, [session.id])
        await wait_until_idle(bus)
        assert bus.ledger.balance() == 0
