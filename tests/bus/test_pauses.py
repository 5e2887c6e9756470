"""Saying something is a cancel point always, and a schedule point only when others have waited for long enough."""

from collections import Counter
from itertools import pairwise

import pytest
import trio
from staging import methods, staged, tool

from mcpbus import Context, Limits, Server
from mcpbus.core.receipt import FateKind
from mcpbus.testing import open_bus


class Steps(trio.abc.Instrument):
    """How often the scheduler has come round to each task."""

    def __init__(self):
        self.of = Counter()

    def before_task_step(self, task):
        self.of[task] += 1


async def said_between_steps(say, clock=lambda: 0.0, limits=None):
    """Run a handler that says what `say` says, 200 times over, and return how much of it each time in a row."""
    server, steps, passed = Server("s"), Steps(), [0]

    @server.tool
    async def talk(ctx: Context) -> str:
        task = trio.lowlevel.current_task()
        for number in range(200):
            passed.append(number + 1)
            step = steps.of[task]
            await say(ctx, number)
            if steps.of[task] == step:
                passed.pop()
        return "done"

    async with open_bus(server, limits=limits) as bus, bus.connect(revision="2025-11-25") as client:
        bus.clock = clock
        trio.lowlevel.add_instrument(steps)
        await client.call_tool("talk")
        trio.lowlevel.remove_instrument(steps)
    return [now - before for before, now in pairwise(passed)]


SAYINGS = {
    "progress": lambda ctx, number: ctx.progress(number),
    "log": lambda ctx, number: ctx.log("info", number),
    "debug": lambda ctx, number: ctx.debug(number),
    "error": lambda ctx, number: ctx.error(number),
    "notify": lambda ctx, number: ctx.notify("notifications/x", {"n": number}),
}


@pytest.mark.parametrize("say", SAYINGS.values(), ids=SAYINGS)
async def test_the_64th_thing_in_a_row_lets_others_run(autojump_clock, say):
    assert await said_between_steps(say) == [64, 64, 64]


async def test_a_millisecond_lets_others_run(autojump_clock):
    now = 0.0

    def clock():
        return now

    async def work(ctx, number):
        nonlocal now
        now += 0.001 if number % 10 == 9 else 0.0
        await ctx.info(number)

    assert await said_between_steps(work, clock) == [10] * 20


async def test_nothing_more_is_done_to_let_others_run_where_the_handler_has_waited(autojump_clock):
    server, steps, rows = Server("s"), Steps(), []

    @server.tool
    async def talk(ctx: Context) -> str:
        task = trio.lowlevel.current_task()
        for number in range(5):
            await trio.sleep(0.001)
            begun = steps.of[task]
            rows.append([])
            for part in range(3):
                now[0] += 0.001
                await ctx.progress(3 * number + part)
                rows[-1].append(steps.of[task] - begun)
        return "done"

    async with open_bus(server) as bus, bus.connect(revision="2025-11-25") as client:
        now = [0.0]
        bus.clock = lambda: now[0]
        trio.lowlevel.add_instrument(steps)
        await client.call_tool("talk")
        trio.lowlevel.remove_instrument(steps)
    assert rows == [[0, 1, 2]] * 5


async def test_an_outbox_that_is_half_full_lets_others_run(autojump_clock):
    row = await said_between_steps(SAYINGS["log"], limits=Limits(outbox_items=8))
    assert max(row) == 4


async def test_whoever_is_cancelled_learns_it_from_the_next_thing_that_is_said(autojump_clock):
    async with staged() as stage:
        recording = stage.probe.request("tools/call", tool(), log_level="debug")
        call = await stage.call()
        with trio.CancelScope() as scope:
            scope.cancel()
            await call.ctx.info("said")
        assert scope.cancelled_caught
        call.finish()
        await recording.ended()
        assert methods(recording)[0] == "notifications/message"


@pytest.mark.parametrize("outbox_items", [16, 64, 1024])
async def test_many_handlers_on_one_channel_lose_nothing_to_a_client_that_reads(autojump_clock, outbox_items):
    """However little may wait: each of them says much before it ever waits for anything."""
    server, receipts = Server("s"), []

    @server.tool
    async def talk(ctx: Context) -> str:
        receipts.extend([await ctx.notify("notifications/x", {"pad": "x" * 100}) for _ in range(60)])
        return "done"

    limits = Limits(outbox_items=outbox_items)
    async with open_bus(server, limits=limits) as bus, bus.connect() as client:
        async with trio.open_nursery() as nursery:
            for _ in range(min(40, outbox_items // 4)):
                nursery.start_soon(client.call_tool, "talk")
        assert {receipt.fate.kind for receipt in receipts} == {FateKind.DELIVERED}
