"""What becomes of what is said on a stream while its client is away, between the outbox and the event store."""

import pytest
import trio
import trio.testing
from staging import Stage

from mcpbus import STORED, Fate, Limits, Reason, Server
from mcpbus.core.sessions.messages import OpenGet
from mcpbus.protocol.routes import StreamKind
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import open_bus, open_probe


def make_server():
    server = Server("keeping")
    Stage.furnish(server)
    return server


class Slow(MemoryEventStore):
    """Takes two seconds to keep anything."""

    async def append(self, *args, **named):
        await trio.sleep(2)
        await super().append(*args, **named)


async def lost_get(session):
    """Open a GET stream, and lose it."""
    get = await session.get().begun()
    await trio.testing.wait_all_tasks_blocked()
    get.disconnect()
    await trio.testing.wait_all_tasks_blocked()
    return get


@pytest.mark.parametrize("taken_over", [True, False])
async def test_what_a_slow_store_still_keeps_of_a_stream_that_ends_is_stored_and_replayed(
    *, taken_over, autojump_clock
):
    limits = Limits(abandoned_timeout=10, store_deadline=5)
    async with (
        open_bus(make_server(), limits=limits, event_store=Slow()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        get = await lost_get(session)
        await trio.sleep(0 if taken_over else 9)
        kept = bus.tools_changed()
        if taken_over:
            await trio.testing.wait_all_tasks_blocked()
            await session.get().begun()
        await trio.sleep(5)
        assert kept.fates == {STORED: 1}
        resumed = session.get(get.event_ids[-1])
        assert (await resumed.message())["method"] == "notifications/tools/list_changed"
        assert resumed.event_ids[0] == f"{get.event_ids[-1].partition('.')[0]}.1"
        assert bus.ledger.balance() == 0


@pytest.mark.parametrize("taken_over", [True, False])
async def test_what_no_longer_waits_when_the_store_is_to_keep_it_ends_nothing(
    *, taken_over, autojump_clock, caplog
):
    async with (
        open_bus(make_server(), event_store=MemoryEventStore()) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        await session.request("resources/subscribe", {"uri": "res://a"}).ended()
        await lost_get(session)
        inside = bus.sessions[session.id]
        [update] = bus.resource_updated("res://a")
        # In the same turn in which this has woken who is to keep it, it is taken away.
        if taken_over:
            inside.address.tell(OpenGet(bus.open_stream(StreamKind.STANDALONE, inside)))
        else:
            inside.unsubscribe("res://a")
        await trio.testing.wait_all_tasks_blocked()
        assert caplog.text == ""
        assert update.fate is (None if taken_over else Fate.discarded(Reason.NOT_SUBSCRIBED))
