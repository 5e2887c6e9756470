"""Handlers that speak and do not wait: their requests have no actor until somebody could tell the difference."""

from contextlib import asynccontextmanager

import pytest
import trio
from houses import assert_nothing_is_left, call
from houses import open_house as open_any_house
from trio.testing import wait_all_tasks_blocked

from mcpbus import Context, Limits
from mcpbus.core.outbox import Outbox
from mcpbus.core.receipt import DELIVERED, Fate, Location
from mcpbus.protocol.routes import Reason
from mcpbus.serving import reactor
from mcpbus.serving.http1.connection import Http1Connection
from tests.at_home import ACTORS, ONE_PIECE

LOST, CANCELLED = Fate.discarded(Reason.LOST), Fate.discarded(Reason.CANCELLED)


@asynccontextmanager
async def open_house(**options):
    """One in which no handler takes long, however slow the machine is."""
    async with open_any_house(**options) as house:
        house.bus.clock = trio.current_time
        yield house


def add_chat(house, between=lambda _: None):
    """A tool that reports progress thrice, and what it noted: receipts, and how it ended."""
    notes = []

    @house.server.tool
    async def chat(ctx: Context) -> str:
        try:
            for number in (1, 2, 3):
                notes.append(await ctx.progress(number))
                between(number)
        except trio.Cancelled:
            notes.append("cancelled")
            raise
        return "said"

    return notes


@ACTORS
async def test_all_of_it_arrives_and_no_actor_was_there(autojump_clock):
    async with open_house() as house:
        notes = add_chat(house)
        client = await house.connect()
        for _ in range(2):
            await client.say(call("chat"))
            status, fields, body = await client.answer()
            assert (status, fields["content-type"]) == (200, "text/event-stream")
            assert [line[:9] for line in body.splitlines() if line] == [b'data: {"j'] * 4
            assert b'"said"' in body.splitlines()[-2]
        assert house.bus.system.statistics().spawned == 0
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 6
        assert_nothing_is_left(house.bus)


@ONE_PIECE
async def test_the_first_thing_is_written_before_the_handler_goes_on_and_the_rest_together(autojump_clock):
    async with open_house() as house:
        places = []
        notes = add_chat(house, lambda number: places.append(notes[-1].location))
        client = await house.connect()
        await client.say(call("chat"))
        await client.answer()
        assert places == [None, Location.OUTBOX, Location.OUTBOX]


@ONE_PIECE
async def test_what_is_said_in_a_turn_that_is_expected_to_be_brief_is_one_write(autojump_clock, monkeypatch):
    now, seconds, places = 0.0, 0.0, []
    monkeypatch.setattr(reactor, "perf_counter", lambda: now)

    def between(_number):
        nonlocal now
        places.append(notes[-1].location)
        now += seconds

    async def chat():
        places.clear()
        await client.say(call("chat"))
        await client.answer()
        return places

    at_once, together = [None, Location.OUTBOX, Location.OUTBOX], [Location.MAILBOX] * 3
    async with open_house() as house:
        notes = add_chat(house, between)
        client = await house.connect()
        assert await chat() == at_once  # nothing is known of it yet
        assert await chat() == together
        seconds = 0.0005
        assert await chat() == together
        seconds = 0.0
        for _ in range(4):
            assert await chat() == at_once
        assert await chat() == together


@ONE_PIECE
async def test_what_is_said_in_a_brief_turn_goes_out_with_the_answer_and_shares_its_fate(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr(reactor, "perf_counter", lambda: 0.0)
    async with open_house() as house:
        leaves = []
        client = await house.connect()
        notes = add_chat(house, lambda number: [leave() for leave in leaves if number == 2])
        for framing in ("transfer-encoding", "content-length"):  # at first nothing is known of it
            await client.say(call("chat"))
            _, fields, body = await client.answer()
            assert framing in fields
            assert body.count(b"data: ") == 4
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 6
        notes.clear()
        client.wire.room = 10
        await client.say(call("chat"))
        await wait_all_tasks_blocked()
        assert [receipt.location for receipt in notes] == [Location.WRITING] * 3
        client.wire.make_room()
        await client.answer()
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 3
        notes.clear()
        leaves.append(client.stream.receive_stream.close)
        await client.say(call("chat"))
        await client.over.wait()
        await wait_all_tasks_blocked()
        assert [receipt.fate for receipt in notes] == [LOST] * 3
        assert house.bus.ledger.discarded[Reason.LOST] == 4
        assert_nothing_is_left(house.bus)


async def test_what_was_said_in_a_row_is_written_when_the_handler_waits(autojump_clock):
    async with open_house() as house:
        notes = []

        @house.server.tool
        async def chat(ctx: Context) -> str:
            notes.extend([await ctx.progress(1), await ctx.progress(2)])
            await house.server.go_on.wait()
            notes.extend([await ctx.progress(2), await ctx.progress(3), await ctx.progress(4)])
            await trio.sleep(1)
            return "said"

        client = await house.connect()
        await client.say(call("chat"))
        await wait_all_tasks_blocked()
        assert [receipt.fate for receipt in notes] == [DELIVERED, DELIVERED]
        house.server.go_on.set()
        await wait_all_tasks_blocked()
        # It is one request all along, whose progress increases.
        refused = Fate.discarded(Reason.NOT_INCREASING)
        assert [receipt.fate for receipt in notes[2:]] == [refused, DELIVERED, DELIVERED]
        assert (await client.answer())[2].count(b"data: ") == 5
        await wait_all_tasks_blocked()
        assert_nothing_is_left(house.bus)


@ONE_PIECE
async def test_a_client_that_cannot_be_told_the_first_thing_has_cancelled(autojump_clock):
    async with open_house() as house:
        notes = add_chat(house)
        client = await house.connect()
        await client.say(call("chat"))
        client.stream.receive_stream.close()
        await client.over.wait()
        await wait_all_tasks_blocked()
        assert notes[-1] == "cancelled"
        assert all(receipt.fate == LOST for receipt in notes[:-1])
        assert_nothing_is_left(house.bus)


@ONE_PIECE
async def test_a_client_that_goes_away_meanwhile_loses_the_rest(autojump_clock):
    async with open_house() as house:
        client = await house.connect()
        notes = add_chat(house, lambda number: client.stream.receive_stream.close() if number == 2 else None)
        await client.say(call("chat"))
        await client.over.wait()
        await wait_all_tasks_blocked()
        assert [receipt.fate for receipt in notes] == [DELIVERED, LOST, LOST]
        assert_nothing_is_left(house.bus)


@pytest.mark.parametrize("room", [0, 10, 300])
async def test_a_client_that_takes_little_at_once_gets_all_of_it(room, autojump_clock):
    async with open_house() as house:
        notes = add_chat(house)
        client = await house.connect()
        client.wire.room = room
        await client.say(call("chat"))
        await wait_all_tasks_blocked()
        assert any(receipt.fate is None for receipt in notes)
        assert (house.bus.statistics().requests, len(house.bus._streams)) == (0, 1)
        client.wire.make_room()
        assert (await client.answer())[2].count(b"data: ") == 4
        await wait_all_tasks_blocked()
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 3
        assert_nothing_is_left(house.bus)


@ONE_PIECE
async def test_a_client_that_takes_little_and_goes_away_is_not_told_the_rest(autojump_clock):
    async with open_house() as house:
        notes = add_chat(house)
        client = await house.connect()
        client.wire.room = 10
        await client.say(call("chat"))
        await wait_all_tasks_blocked()
        await client.leave()
        await client.over.wait()
        await wait_all_tasks_blocked()
        assert [receipt.fate for receipt in notes] == [LOST, CANCELLED, CANCELLED]
        assert_nothing_is_left(house.bus)


def add_slow_chat(house, before=lambda _: None):
    """As `add_chat`, with a second before each report, and something that is done then; what it says first is not a report."""
    notes = []

    @house.server.tool
    async def chat(ctx: Context) -> str:
        await ctx.progress(0)
        try:
            for number in (1, 2, 3):
                await trio.sleep(1)
                before(number)
                notes.append(await ctx.progress(number, message="." * 500))
        except trio.Cancelled:
            notes.append("cancelled")
            raise
        return "said"

    return notes


@pytest.mark.dormancy
@ACTORS
async def test_what_is_said_now_and_then_is_written_at_once_without_an_outbox(autojump_clock, monkeypatch):
    queued, put = [], Outbox.put
    monkeypatch.setattr(Outbox, "put", lambda outbox, message: queued.append(message) or put(outbox, message))
    async with open_house() as house:
        fates = []
        notes = add_slow_chat(house, lambda _: fates.extend(receipt.fate for receipt in notes[-1:]))
        client = await house.connect()
        await client.say(call("chat"))
        assert (await client.answer())[2].count(b"data: ") == 5
        assert fates == [DELIVERED] * 2
        assert house.bus.ledger.delivered == 5
        assert not queued
        assert_nothing_is_left(house.bus)


@pytest.mark.parametrize("room", [0, 10, 700])
async def test_a_client_that_has_no_room_now_and_then_gets_all_of_it_in_order(room, autojump_clock):
    async with open_house() as house:
        client = await house.connect()

        def leave_room(number):
            if number == 2:
                client.wire.room = room
            elif number == 3 and room == 10:
                client.wire.room = 100_000  # of which nobody has heard yet who waits for it

        notes = add_slow_chat(house, leave_room)
        await client.say(call("chat"))
        await wait_all_tasks_blocked()
        await trio.sleep(4)
        assert [receipt.fate for receipt in notes] == [DELIVERED] * (2 if room == 700 else 1) + [None] * (
            1 if room == 700 else 2
        )
        client.wire.make_room()
        body = (await client.answer())[2]
        progress = [body.index(b'"progress":%d' % number) for number in (0, 1, 2, 3)]
        assert progress == sorted(progress)
        await wait_all_tasks_blocked()
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 3
        assert_nothing_is_left(house.bus)


@pytest.mark.parametrize("room", [0, 10])
async def test_what_comes_first_after_a_wait_comes_behind_its_head_however_little_room_there_is(
    room, autojump_clock
):
    async with open_house() as house:
        client = await house.connect()
        fates = []

        @house.server.tool
        async def chat(ctx: Context) -> str:
            await trio.sleep(1)
            client.wire.room = room
            fates.append((await ctx.progress(1)).fate)
            await trio.sleep(1)
            return "said"

        await client.say(call("chat"))
        await trio.sleep(1.5)
        assert (fates, house.bus.ledger.pending[Location.WRITING]) == ([None], 1)
        client.wire.make_room()
        status, fields, body = await client.answer()
        assert (status, fields["content-type"]) == (200, "text/event-stream")
        assert body.count(b"data: ") == 2
        await wait_all_tasks_blocked()
        assert house.bus.ledger.delivered == 2
        assert_nothing_is_left(house.bus)


def add_late_chat(house, before_reply):
    """A tool that says something, and a second later does something before its reply."""

    @house.server.tool
    async def chat(ctx: Context) -> str:
        await ctx.progress(1)
        await trio.sleep(1)
        before_reply()
        return "said"


@pytest.mark.parametrize("room", [0, 10])
async def test_a_reply_for_which_there_is_no_room_counts_once_all_of_it_is_written(room, autojump_clock):
    async with open_house() as house:
        client = await house.connect()

        def leave_room():
            client.wire.room = room

        add_late_chat(house, leave_room)
        ledger = house.bus.ledger
        for count in (1, 2):
            await client.say(call("chat"))
            await trio.sleep(1.5)
            assert (ledger.delivered, ledger.pending[Location.WRITING]) == (2 * count - 1, 1)
            client.wire.make_room()
            assert (await client.answer())[2].count(b"data: ") == 2
            await wait_all_tasks_blocked()
            assert ledger.delivered == 2 * count
            assert_nothing_is_left(house.bus)


@pytest.mark.parametrize("stalls", [True, False], ids=["stalls", "leaves"])
async def test_a_reply_that_its_client_does_not_take_is_lost(stalls, autojump_clock):
    async with open_house() as house:
        client = await house.connect()

        def turn_away():
            if stalls:
                client.wire.room = 10
            else:
                client.stream.receive_stream.close()

        add_late_chat(house, turn_away)
        await client.say(call("chat"))
        await client.over.wait()
        await wait_all_tasks_blocked()
        ledger = house.bus.ledger
        assert (ledger.delivered, ledger.discarded[Reason.LOST]) == (1, 1)
        assert_nothing_is_left(house.bus)


@pytest.mark.failing
async def test_a_reply_that_was_written_counts_once_whatever_becomes_of_its_connection(
    monkeypatch, autojump_clock
):
    def fail(*_):
        raise MemoryError

    async with open_house() as house:
        client = await house.connect()
        add_late_chat(house, lambda: monkeypatch.setattr(Http1Connection, "answered", fail))
        await client.say(call("chat"))
        await client.over.wait()
        await wait_all_tasks_blocked()
        assert (house.bus.ledger.emitted, house.bus.ledger.delivered) == (2, 2)
        assert_nothing_is_left(house.bus)


async def test_a_client_that_goes_away_now_and_then_is_lost_what_is_said(autojump_clock):
    async with open_house() as house:
        client = await house.connect()
        notes = add_slow_chat(
            house, lambda number: client.stream.receive_stream.close() if number == 2 else None
        )
        await client.say(call("chat"))
        await client.over.wait()
        await wait_all_tasks_blocked()
        assert (notes[0].fate, notes[1:]) == (DELIVERED, ["cancelled"])
        assert house.bus.ledger.discarded[Reason.LOST] == 1
        assert_nothing_is_left(house.bus)


async def test_what_is_more_than_an_outbox_may_hold_is_not_written_past_it(autojump_clock):
    async with open_house(limits=Limits(outbox_bytes=600)) as house:
        notes = add_slow_chat(house)
        client = await house.connect()
        await client.say(call("chat"))
        assert (await client.answer())[2].count(b"data: ") == 2
        assert [receipt.fate for receipt in notes] == [Fate.discarded(Reason.OVERFLOW)] * 3
        assert_nothing_is_left(house.bus)


async def test_what_is_long_does_not_overtake_what_waits(autojump_clock):
    async with open_house() as house:

        @house.server.tool
        async def chat(ctx: Context) -> str:
            for number in (1, 2, 3):
                await ctx.progress(number, message="." * 3000)
                autojump_clock.jump(0.002 if number == 2 else 0)
            return "said"

        client = await house.connect()
        await client.say(call("chat"))
        body = (await client.answer())[2]
        progress = [body.index(b'"progress":%d' % number) for number in (1, 2, 3)]
        assert progress == sorted(progress)


async def test_what_comes_first_on_a_stream_that_is_asked_for_comes_after_its_head(autojump_clock):
    async with open_house() as house:
        add_slow_chat(house)
        client = await house.connect()
        asked = call("chat").replace(
            b"accept: application/json, text/event-stream", b"accept: text/event-stream"
        )
        await client.say(asked)
        status, _, body = await client.answer()
        assert (status, body.count(b"data: ")) == (200, 5)


async def test_a_quiet_stream_is_kept_alive_since_the_last_thing_that_was_said(autojump_clock):
    async with open_house() as house:
        keep_alive = house.bus.limits.keep_alive

        @house.server.tool
        async def chat(ctx: Context) -> str:
            await ctx.progress(1)
            await trio.sleep(keep_alive * 0.75)
            await ctx.progress(2)
            await trio.sleep(keep_alive * 1.5)
            return "said"

        client = await house.connect()
        await client.say(call("chat"))
        lines = [line[:9] for line in (await client.answer())[2].splitlines() if line]
        assert lines == [b'data: {"j', b'data: {"j', b":", b'data: {"j']
