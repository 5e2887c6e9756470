"""What is held for a client until its GET stream opens: another process sends it if the one that made it ends, and none does twice."""

import pytest
import trio
from several import at, kill, open_buses, quiet
from test_adoption import only
from test_forwarding import make

from mcpbus import Limits
from mcpbus.core.receipt import Fate, Location
from mcpbus.core.sessions.messages import SessionTakenOver, SessionYielded
from mcpbus.protocol.routes import Reason
from mcpbus.testing import MemoryDirectory

SAID = "notifications/said"


def say(bus, *numbers):
    return [only(bus).notify(SAID, {"number": number}) for number in numbers]


def said(stream):
    """The numbers that a client was told."""
    return [message["params"]["number"] for message in stream.messages if message["method"] == SAID]


def held(directory):
    """How much is kept for all clients."""
    return sum(len(kept.held) for kept in directory._kept.values())


async def test_what_an_ended_process_held_is_sent_by_the_next_one(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        receipts = say(buses[0], 1, 2)
        assert [receipt.location for receipt in receipts] == [Location.HELD] * 2
        await quiet(buses)
        assert [receipt.location for receipt in receipts] == [Location.REPLICATED] * 2
        await kill(buses[0], directory)
        assert (await at(session, probes[1]).request("ping").ended()).status == 200
        assert buses[1].ledger.pending[Location.REPLICATED] == buses[1].ledger.adopted == 2
        say(buses[1], 3)
        await quiet(buses)
        await kill(buses[1], directory)
        stream = await at(session, probes[2]).get().begun()
        await quiet(buses)
        assert said(stream) == [1, 2, 3]
        assert (held(directory), buses[2].ledger.adopted) == (0, 3)


async def test_what_was_sent_is_not_sent_again(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        receipts = say(buses[0], 1)
        await quiet(buses)
        first = await session.get().begun()
        await quiet(buses)
        assert (said(first), str(receipts[0].fate), held(directory)) == ([1], "delivered", 0)
        say(buses[0], 2)
        await kill(buses[0], directory)
        stream = await at(session, probes[1]).get().begun()
        await quiet(buses)
        assert (said(first), said(stream)) == ([1, 2], [])


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
async def test_it_leaves_the_directory_before_it_is_sent(done, autojump_clock, monkeypatch):
    directory, take = MemoryDirectory(), MemoryDirectory.pop_held

    async def fail(ownership, names):
        if done:
            await take(directory, ownership, names)
        raise OSError("the connection was lost")

    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        say(buses[0], 1)
        await quiet(buses)
        monkeypatch.setattr(directory, "pop_held", fail)
        stream = await session.get().begun()
        say(buses[0], 2)
        await trio.sleep(5)
        assert said(stream) == []
        monkeypatch.undo()
        await trio.sleep(1)
        assert (said(stream), held(directory)) == ([1, 2], 0)


async def test_the_directory_is_told_of_many_in_parts(autojump_clock, monkeypatch):
    directory, take, taken = MemoryDirectory(), MemoryDirectory.pop_held, []

    async def note(ownership, names):
        taken.append(len(names))
        await take(directory, ownership, names)

    limits = Limits(held_items=2000, outbox_items=2000)
    async with open_buses(make, directory=directory, limits=limits) as (buses, probes):
        session = await probes[0].initialize()
        say(buses[0], *range(1100))
        await quiet(buses)
        assert held(directory) == 1100
        monkeypatch.setattr(directory, "pop_held", note)
        stream = await session.get().begun()
        await quiet(buses)
        assert (said(stream), held(directory)) == ([*range(1100)], 0)
        assert taken == [500, 500, 100]


async def test_who_unsubscribes_while_it_leaves_the_directory_is_sent_no_update(autojump_clock, monkeypatch):
    directory, take, go_on = MemoryDirectory(), MemoryDirectory.pop_held, trio.Event()

    async def wait(ownership, names):
        await go_on.wait()
        await take(directory, ownership, names)

    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await session.request("resources/subscribe", {"uri": "res://one"}).ended()
        say(buses[0], 1)
        await quiet(buses)
        monkeypatch.setattr(directory, "pop_held", wait)
        stream = await session.get().begun()
        (update,) = buses[0].resource_updated("res://one")
        await session.request("resources/unsubscribe", {"uri": "res://one"}).ended()
        assert update.fate is None
        go_on.set()
        await trio.sleep(2)
        assert (said(stream), update.fate) == ([1], Fate.discarded(Reason.NOT_SUBSCRIBED))


async def test_also_where_it_was_not_said_that_it_is_there(autojump_clock, monkeypatch):
    directory, hold = MemoryDirectory(), MemoryDirectory.append_held

    async def fail(ownership, *written):
        await hold(directory, ownership, *written)
        raise OSError("the connection was lost")

    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        monkeypatch.setattr(directory, "append_held", fail)
        (receipt,) = say(buses[0], 1)
        await quiet(buses)
        assert (receipt.location, held(directory)) == (Location.HELD, 1)
        monkeypatch.undo()
        stream = await session.get().begun()
        await trio.sleep(2)
        assert (said(stream), held(directory)) == ([1], 0)


async def test_where_the_directory_is_away_it_is_held_here(autojump_clock, monkeypatch):
    directory = MemoryDirectory()

    async def fail(*_):
        raise OSError("away")

    async with open_buses(make, directory=directory) as (buses, probes):
        await probes[0].initialize()
        monkeypatch.setattr(directory, "append_held", fail)
        receipts = say(buses[0], 1, 2)
        await trio.sleep(5)
        assert {receipt.location for receipt in receipts} == {Location.HELD}
        monkeypatch.undo()
        await trio.sleep(2)
        assert {receipt.location for receipt in receipts} == {Location.REPLICATED}


async def test_where_it_cannot_be_written_for_a_reason_that_was_not_foreseen_all_else_goes_on(
    autojump_clock, monkeypatch, caplog
):
    directory = MemoryDirectory()

    async def fail(*_):
        raise LookupError("unforeseen")

    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        monkeypatch.setattr(directory, "append_held", fail)
        (receipt,) = say(buses[0], 1)
        await quiet(buses)
        assert [str(record.exc_info[1]) for record in caplog.records] == ["unforeseen"]
        assert (await session.request("ping").ended()).status == 200
        monkeypatch.undo()
        say(buses[0], 2)
        await quiet(buses)
        assert (receipt.location, held(directory)) == (Location.REPLICATED, 2)


async def test_no_more_is_kept_than_is_held(autojump_clock):
    directory = MemoryDirectory()
    limits = Limits(held_items=2, held_timeout=60)
    async with open_buses(make, directory=directory, limits=limits) as (buses, probes):
        await probes[0].initialize()
        receipts = say(buses[0], 1, 2)
        await quiet(buses)
        receipts += say(buses[0], 3)
        buses[0].tools_changed()  # which the next owner tells in any case
        await quiet(buses)
        assert {receipt.fate for receipt in receipts[:2]} == {Fate.discarded(Reason.OVERFLOW)}
        assert held(directory) == 1
        await trio.sleep(61)
        assert (receipts[2].fate, held(directory)) == (Fate.discarded(Reason.EXPIRED), 0)


async def test_what_nobody_came_for_in_time_is_discarded_and_that_is_told(autojump_clock):
    directory = MemoryDirectory()
    limits = Limits(held_timeout=60)
    async with open_buses(make, directory=directory, limits=limits) as (buses, probes):
        session = await probes[0].initialize()
        say(buses[0], 1)
        await trio.sleep(30)
        say(buses[0], 2)
        await quiet(buses)
        await kill(buses[0], directory)
        await trio.sleep(31)
        stream = await at(session, probes[1]).get().begun()
        await quiet(buses)
        assert said(stream) == [2]
        assert buses[1].statistics().discarded == {Reason.EXPIRED: 1}
        assert held(directory) == 0


async def test_what_is_held_still_has_its_own_time(autojump_clock):
    directory = MemoryDirectory()
    limits = Limits(held_timeout=60)
    async with open_buses(make, directory=directory, limits=limits) as (buses, probes):
        session = await probes[0].initialize()
        say(buses[0], 1)
        await trio.sleep(30)
        await kill(buses[0], directory)
        assert (await at(session, probes[1]).request("ping").ended()).status == 200
        await quiet(buses)
        await trio.sleep(29)
        assert held(directory) == 1
        await trio.sleep(2)
        assert held(directory) == 0


@pytest.mark.parametrize("told", [SessionYielded(), SessionYielded(print), SessionTakenOver(print)])
async def test_what_has_expired_is_left_to_nobody_though_its_timer_is_late(told, autojump_clock, capsys):
    """As where something blocks the loop: who goes on with its session does not find it any more."""
    async with open_buses(make) as (buses, probes):
        await probes[0].initialize()
        (receipt,) = say(buses[0], 1)
        await quiet(buses)
        assert receipt.location is Location.REPLICATED
        autojump_clock.jump(buses[0].limits.held_timeout)
        only(buses[0]).address.tell(told)
        assert receipt.fate == Fate.discarded(Reason.EXPIRED)
    assert capsys.readouterr().out == ""
