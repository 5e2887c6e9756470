"""A stream whose store promises to keep what is said has no task that waits for it, and means the same."""

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from promising import PromisingStore
from trio.testing import wait_all_tasks_blocked

from mcpbus import DELIVERED, STORED, Context, Limits, Server
from mcpbus.testing import open_bus, open_probe
from tests.at_home import A_MOMENT_LATER


@attrs.frozen
class Stage:
    """A server with one tool, which says what it is told to; and a call of it that has begun."""

    bus: Any
    store: PromisingStore
    session: Any
    call: Any
    notes: list[Any]
    say: Callable[[int], Awaitable[None]]

    @property
    def fates(self):
        return [receipt.fate for receipt in self.notes]

    def events(self):
        """How many messages have come, of whatever kind."""
        return self.call.body.count(b'"jsonrpc"')


@asynccontextmanager
async def staged(**limits):
    server, store, notes = Server("promising"), PromisingStore(), []
    send, receive = trio.open_memory_channel(10)

    @server.tool
    async def echo(ctx: Context) -> str:
        progress = 0
        async for count in receive:
            for _ in range(count):
                progress += 1
                notes.append(await ctx.progress(progress))
        return "done"

    async def say(count):
        if count:
            await send.send(count)
        else:
            send.close()
        await wait_all_tasks_blocked()

    async with (
        open_bus(server, limits=Limits(**limits), event_store=store, drain_timeout=0) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        session = await probe.initialize("2025-11-25")
        call = session.request("tools/call", {"name": "echo"}, progress_token=1)
        await wait_all_tasks_blocked()
        yield Stage(bus, store, session, call, notes, say)


async def test_what_is_said_goes_out_in_order_once_the_store_has_it(autojump_clock):
    async with staged() as stage:
        await stage.say(2)
        assert (stage.events(), stage.fates) == (0, [None, None])
        await stage.say(1)
        await stage.say(0)
        stage.store.keep()
        await wait_all_tasks_blocked()
        assert 0 < stage.events() < 4  # the rest is being kept
        while stage.store.asked:
            stage.store.keep()
            await wait_all_tasks_blocked()
        await stage.call.ended()
        assert [message.get("params", {}).get("progress") for message in stage.call.messages] == [
            1,
            2,
            3,
            None,
        ]
        assert [int(event_id.rpartition(".")[2]) for event_id in stage.call.event_ids] == [0, 1, 2, 3, 4]
        assert stage.fates == [DELIVERED] * 3
        assert stage.bus.ledger.balance() == 0


async def test_what_is_being_kept_for_a_client_that_leaves_is_stored_once_it_is_kept(autojump_clock):
    async with staged() as stage:
        await stage.say(1)
        stage.store.keep()
        await wait_all_tasks_blocked()
        _, first = stage.call.event_ids
        await stage.say(1)
        stage.call.disconnect()
        await wait_all_tasks_blocked()
        assert stage.fates == [DELIVERED, None]
        stage.store.keep()
        await wait_all_tasks_blocked()
        assert stage.fates == [DELIVERED, STORED]
        again = stage.session.get(first)
        assert (await again.message())["params"]["progress"] == 2


async def test_who_comes_back_while_something_is_being_kept_has_it_from_the_store(autojump_clock):
    async with staged() as stage:
        await stage.say(1)
        stage.store.keep()
        await stage.say(1)
        again = stage.session.get(stage.call.event_ids[-1])
        await wait_all_tasks_blocked()
        assert stage.fates == [DELIVERED, None]
        stage.store.keep()
        assert (await again.message())["params"]["progress"] == 2
        assert stage.fates == [DELIVERED, STORED]


@pytest.mark.parametrize("fails", [True, False])
async def test_where_the_store_fails_or_is_too_slow_it_goes_out_all_the_same(fails, autojump_clock):
    async with staged(store_deadline=1) as stage:
        await stage.say(1)
        start = trio.current_time()
        if fails:
            stage.store.keep(OSError("disk full"))
        assert (await stage.call.message())["params"]["progress"] == 1
        assert trio.current_time() - start == (0 if fails else 1)
        assert len(stage.call.event_ids) == 1  # where it begins
        await stage.say(1)
        assert stage.fates == [DELIVERED] * 2
        stage.store.keep()  # which nobody waits for any more
        stage.call.disconnect()
        await wait_all_tasks_blocked()
        assert (await stage.session.get(stage.call.event_ids[0]).ended()).status == 400


async def test_a_stream_with_a_gap_is_not_taken_over_from_a_connection_that_looks_alive(autojump_clock):
    """Some hosts report late that a connection was lost."""
    async with staged() as stage:
        await stage.say(1)
        stage.store.keep(OSError("disk full"))
        await wait_all_tasks_blocked()
        assert (await stage.session.get(stage.call.event_ids[-1]).ended()).status == 400
        await stage.say(1)
        said = [(await stage.call.message())["params"]["progress"] for _ in range(2)]
        assert (said, stage.fates) == ([1, 2], [DELIVERED] * 2)


async def test_a_stream_whose_store_fails_while_it_is_taken_over_is_not_gone_on_from(autojump_clock):
    async with staged() as stage:
        await stage.say(1)
        stage.store.keep()
        await stage.say(1)
        again = stage.session.get(stage.call.event_ids[-1])
        await wait_all_tasks_blocked()
        stage.store.keep(OSError("disk full"))
        assert (await again.ended()).status == 400


async def test_nothing_is_said_to_keep_a_connection_alive_while_the_store_is_waited_for(autojump_clock):
    async with staged(keep_alive=0.4, store_deadline=1) as stage:
        await trio.sleep(0.3)
        await stage.say(1)
        before = stage.call.body
        await trio.sleep(0.5)
        assert stage.call.body == before
        stage.store.keep()
        await wait_all_tasks_blocked()
        assert stage.call.body.count(b"id: ") == 2
        await trio.sleep(0.5)
        assert stage.call.body.endswith(b":\n\n")


@A_MOMENT_LATER
@pytest.mark.parametrize("by_a_task", [True, False])
async def test_a_bus_that_ends_hears_first_what_is_kept(by_a_task, autojump_clock):
    async with trio.open_nursery() as nursery:
        async with staged(store_deadline=60) as stage:
            store = stage.store
            if by_a_task:
                get = stage.session.get()
                await wait_all_tasks_blocked()
                get.disconnect()
                await wait_all_tasks_blocked()
                stage.notes.append(stage.bus.sessions[stage.session.id].notify("notifications/x"))
            else:
                await stage.say(1)
                stage.call.disconnect()
            await wait_all_tasks_blocked()
            assert len(store.asked) == 1

            async def keep():
                await trio.sleep(30)
                store.keep()

            nursery.start_soon(keep)
        assert stage.fates == [STORED]


async def test_a_drain_waits_for_a_reply_that_is_being_kept(autojump_clock):
    async with staged() as stage, trio.open_nursery() as nursery:
        await stage.say(1)
        stage.store.keep()
        await wait_all_tasks_blocked()
        await stage.say(0)
        assert stage.bus.statistics().requests == 0
        drained = trio.Event()

        async def drain():
            await stage.bus.drain(0)
            drained.set()

        nursery.start_soon(drain)
        await trio.sleep(0.1)
        assert not drained.is_set()
        stage.store.keep()
        await drained.wait()
        assert b"done" in stage.call.body


async def test_a_bus_that_is_cut_short_waits_for_its_store_without_doing_anything(autojump_clock):
    handled = []

    async def keep_later(stage):
        counts = []
        for _ in range(2):
            for _ in range(50):
                await trio.lowlevel.checkpoint()
            counts.append(stage.bus.system.statistics().handled)
        handled.append(counts[1] - counts[0])
        stage.store.keep()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as cut:
            async with staged(store_deadline=60) as stage:
                await stage.say(1)
                get = stage.session.get()
                await wait_all_tasks_blocked()
                get.disconnect()  # what is said on that stream is kept by a task from now on
                await wait_all_tasks_blocked()

                nursery.start_soon(keep_later, stage)
                cut.cancel()
                await trio.lowlevel.checkpoint()
    assert stage.fates == [STORED]
    assert handled == [0]
