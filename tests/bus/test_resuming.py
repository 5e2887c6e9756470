"""How a legacy client comes back to a stream that it lost, over HTTP on virtual time."""

import hypothesis.strategies as st
import pytest
import trio
import trio.testing
from hypothesis import given, settings

from mcpbus import DELIVERED, STORED, Context, Limits, Reason, Server
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import open_bus, open_probe

STEPS = 5


def make_server():
    server = Server("resuming")
    server.receipts = []

    @server.tool
    async def count(ctx: Context, steps: int = STEPS) -> str:
        for step in range(1, steps + 1):
            server.receipts.append(await ctx.progress(step))
            await trio.sleep(1)
        return "done"

    @server.tool
    async def poll(ctx: Context) -> str:
        await ctx.close_stream(retry=0.5)
        await trio.sleep(2)
        return "late"

    return server


def call(session, name="count"):
    return session.request("tools/call", {"name": name, "arguments": {}}, id="call", progress_token="p")


def said(recording):
    """What a recording has got: the numbers of progress, and "done" for the reply."""
    return [
        message["params"]["progress"] if "method" in message else message["result"]["content"][0]["text"]
        for message in recording.messages
    ]


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_lost_stream_is_gone_on_from_after_any_event(revision, autojump_clock):  # W-24, W-25
    server = make_server()
    async with open_bus(server, event_store=MemoryEventStore()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(revision)
        post = call(session)
        await trio.sleep(1.5)
        post.disconnect()
        await trio.sleep(2)
        assert server.receipts[2].fate is STORED
        resumed = await session.get(post.event_ids[-1]).ended()
        assert said(post) == [1, 2]
        assert said(resumed) == [3, 4, 5, "done"]
        assert bus.statistics().requests == 0
        assert bus.ledger.balance() == 0
        # It has ended, and can still be read again from anywhere.
        ids = [event for event in post.event_ids if not event.endswith(".0")] + resumed.event_ids
        assert len(set(ids)) == len(ids) == STEPS + 1
        for position, event in enumerate(ids):
            again = await session.get(event).ended()
            assert said(again) == [1, 2, 3, 4, 5, "done"][position + 1 :]
            assert again.complete


@pytest.mark.parametrize(
    ("revision", "primes"), [("2025-03-26", False), ("2025-06-18", False), ("2025-11-25", True)]
)
async def test_only_2025_11_25_begins_a_stream_with_an_id(revision, primes, autojump_clock):  # W-12, W-13
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize(revision)
        get = await session.get().begun()
        await trio.testing.wait_all_tasks_blocked()
        assert bool(get.event_ids) is primes
        bus.tools_changed()
        await get.message()
        assert len(get.event_ids) == 1 + primes


async def test_modern_streams_have_no_ids(autojump_clock):
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        post = await probe.request(
            "tools/call", {"name": "count", "arguments": {}}, progress_token="p"
        ).ended()
        assert said(post)[-1] == "done"
        assert post.event_ids == []


async def test_without_a_store_what_a_lost_stream_was_to_carry_is_discarded(autojump_clock):
    server = make_server()
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25")
        post = call(session)
        await trio.sleep(1.5)
        assert post.event_ids == []
        post.disconnect()
        await trio.sleep(2)
        assert server.receipts[2].fate.reason is Reason.NO_STREAM
        assert (await session.get("x.1").ended()).status == 400


@pytest.mark.parametrize("stalled", [False, True])
async def test_a_resume_takes_over_from_a_connection_that_still_looks_alive(stalled, autojump_clock):  # W-27
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = call(session)
        await post.message()
        if stalled:
            post.stall()
            await trio.sleep(1.5)
        resumed = await session.get(post.event_ids[-1]).ended(timeout=30)
        assert said(resumed) == [2, 3, 4, 5, "done"]
        assert said(post) == [1]
        assert bus.ledger.balance() == 0


async def test_a_poll_closes_the_connection_and_the_rest_is_fetched(autojump_clock):  # W-11
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = await call(session, "poll").ended(timeout=1)
        assert b"retry: 500\n" in post.body
        assert post.messages == []
        resumed = await session.get(post.event_ids[-1]).ended()
        assert said(resumed) == ["late"]


@pytest.mark.parametrize("event_id", ["nonsense", "unknown.1", "{stream}.99", "{other}"])
async def test_what_cannot_be_gone_on_from_is_refused(event_id, autojump_clock):  # W-26
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session, stranger = await probe.initialize("2025-11-25"), await probe.initialize("2025-11-25")
        post, foreign = await call(session).ended(), await call(stranger).ended()
        stream = post.event_ids[0].partition(".")[0]
        named = event_id.format(stream=stream, other=foreign.event_ids[0])
        answer = await session.get(named).ended()
        assert (answer.status, answer.is_stream) == (400, False)


@pytest.mark.parametrize("said_before", [True, False])
@pytest.mark.parametrize("evicted", [True, False])
async def test_a_client_that_has_all_of_a_stream_that_ended_is_told_not_to_come_back(
    *, said_before, evicted, autojump_clock
):
    store = MemoryEventStore(max_age=10)
    async with open_bus(make_server(), event_store=store) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25")
        post = call(session, "count" if said_before else "poll")
        await trio.sleep(0.5)
        await session.notify("notifications/cancelled", {"requestId": "call"}).ended()
        await post.ended()
        assert len(post.event_ids) == 1 + said_before
        await trio.sleep(20 if evicted else 0)
        again = await session.get(post.event_ids[-1]).ended()
        assert (again.status, again.body) == (204, b"")
        # It did not become the session's GET stream, and may be said again.
        assert bus.statistics().actors == bus.statistics().sessions == 1
        assert (await session.get(post.event_ids[-1]).ended()).status == 204


async def test_so_is_one_that_has_the_reply_when_the_store_has_nothing_of_it_any_more(autojump_clock):
    store = MemoryEventStore(max_age=10)
    async with open_bus(make_server(), event_store=store) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25")
        post = await call(session).ended()
        await trio.sleep(20)
        again = await session.get(post.event_ids[-1]).ended()
        assert (again.status, again.body) == (204, b"")


@pytest.mark.parametrize("said_before", [True, False])
async def test_a_client_that_comes_back_to_a_get_stream_that_ended_gets_the_sessions_next_one(
    *, said_before, autojump_clock
):
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        get = await session.get().begun()
        await trio.testing.wait_all_tasks_blocked()
        if said_before:
            bus.tools_changed()
            await get.message()
        get.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        stored = bus.tools_changed()
        assert await stored.settled(timeout=1) == {STORED: 1}
        await trio.sleep(bus.limits.abandoned_timeout + 1)
        held = bus.prompts_changed()
        again = session.get(get.event_ids[-1])
        changed = [(await again.message())["method"] for _ in range(2)]
        assert changed == ["notifications/tools/list_changed", "notifications/prompts/list_changed"]
        bus.resources_changed()
        assert (await again.message())["method"] == "notifications/resources/list_changed"
        await trio.testing.wait_all_tasks_blocked()
        assert held.fates == {DELIVERED: 1}
        assert len(set(again.event_ids)) == 3
        # From whichever of its streams the last event was, it is gone on from.
        again.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        bus.tools_changed()
        last = session.get(again.event_ids[-1])
        assert (await last.message())["method"] == "notifications/tools/list_changed"


async def test_an_ended_get_stream_that_nothing_was_said_on_is_gone_on_from(autojump_clock, caplog):
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        get = await session.get().begun()
        await trio.testing.wait_all_tasks_blocked()
        get.disconnect()
        await trio.sleep(bus.limits.abandoned_timeout + 1)
        assert bus.statistics().limits_reached == {"abandoned_timeout": 1}
        assert caplog.messages == [], "such things end like this"
        again = await session.get(get.event_ids[-1]).begun()
        bus.tools_changed()
        assert (await again.message())["method"] == "notifications/tools/list_changed"


async def test_a_get_stream_is_resumed_with_what_changed_meanwhile(autojump_clock):
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        get = await session.get().begun()
        await trio.testing.wait_all_tasks_blocked()
        get.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        broadcast = bus.tools_changed()
        assert await broadcast.settled(timeout=1) == {STORED: 1}
        resumed = session.get(get.event_ids[-1])
        assert (await resumed.message())["method"].endswith("tools/list_changed")
        bus.prompts_changed()
        assert (await resumed.message())["method"].endswith("prompts/list_changed")


async def test_a_client_that_does_not_take_that_there_is_nothing_to_come_back_for_harms_nobody(
    autojump_clock,
):
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = await call(session).ended()
        again = session.get(post.event_ids[-1])
        again.stall()
        await trio.sleep(31)
        assert again.aborted
        assert (await session.get(post.event_ids[-1]).ended()).status == 204


async def test_a_client_that_has_missed_nothing_is_answered_at_once(autojump_clock):
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        lost = await session.get().begun()
        await trio.testing.wait_all_tasks_blocked()
        lost.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        resumed = await session.get(lost.event_ids[-1]).begun()
        assert (resumed.status, trio.current_time()) == (200, start)
        await trio.testing.wait_all_tasks_blocked()
        assert resumed.comments == 1


async def test_a_store_that_fails_ends_the_resumability_and_nothing_else(autojump_clock, caplog):
    class Broken(MemoryEventStore):
        async def append(self, *_args, **_named):
            await trio.lowlevel.checkpoint()
            raise OSError("disk full")

    server = make_server()
    async with open_bus(server, event_store=Broken()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25")
        post = await call(session).ended()
        assert said(post) == [1, 2, 3, 4, 5, "done"]
        assert len(caplog.records) == 1
        assert "the event store failed" in caplog.text
        assert (await session.get(post.event_ids[0]).ended()).status == 400


async def test_a_stream_that_nobody_comes_back_to_ends(autojump_clock):
    server = make_server()
    limits = Limits(abandoned_timeout=2)
    async with (
        open_bus(server, limits=limits, event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = session.request(
            "tools/call", {"name": "count", "arguments": {"steps": 100}}, progress_token="p"
        )
        await post.message()
        post.disconnect()
        await trio.sleep(10)
        assert bus.statistics().requests == 0
        assert bus.ledger.balance() == 0


@pytest.mark.parametrize("said_before", [True, False])
async def test_a_client_that_comes_back_too_late_is_not_told_that_it_has_all(*, said_before, autojump_clock):
    """Its request was given up without a reply, which it would wait for after a 204."""
    limits = Limits(abandoned_timeout=1)
    async with (
        open_bus(make_server(), limits=limits, event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        post = call(session) if said_before else await call(session, "poll").ended()
        await trio.sleep(0.5)
        post.disconnect()
        await trio.sleep(10)
        late = await session.get(post.event_ids[-1]).ended()
        if said_before:
            assert said(late) == [2]
        again = await session.get((late.event_ids or post.event_ids)[-1]).ended()
        assert again.status == 400


async def test_a_stream_that_its_client_has_come_back_to_is_not_given_up_later(autojump_clock):
    server = make_server()
    limits = Limits(abandoned_timeout=2)
    async with (
        open_bus(server, limits=limits, event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        post = call(session := await probe.initialize("2025-11-25"))
        await trio.sleep(1.5)
        post.disconnect()
        await trio.sleep(1)
        resumed = await session.get(post.event_ids[-1]).ended()
        assert said(resumed) == [3, 4, 5, "done"]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=6))
def test_drops_and_returns_lose_and_repeat_nothing(visits):
    """Invariant 4: what the client gets on all its connections together is the stream, whatever was dropped when."""

    async def main():
        async with (
            open_bus(make_server(), event_store=MemoryEventStore()) as bus,
            open_probe(bus.asgi()) as probe,
        ):
            session = await probe.initialize("2025-11-25")
            connection = call(session)
            got, ids = [], []
            await connection.message()
            for wait, drop in visits:
                await trio.sleep(wait / 2)
                if drop:
                    connection.disconnect()
                got += said(connection)
                ids += connection.event_ids
                connection = session.get(ids[-1])
            got += said(await connection.ended())
            ids += connection.event_ids
            numbered = [event for event in ids if not event.endswith(".0")]
            assert got == [1, 2, 3, 4, 5, "done"]
            assert len(set(numbered)) == len(numbered) == len(got)
            assert bus.ledger.balance() == 0

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
