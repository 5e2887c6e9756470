"""What became of a change in all processes, for who asks; and the books of all of them together."""

import random

import pytest
import trio
import trio.testing
from several import at, kill, open_buses, quiet
from test_forwarding import make
from test_missed_changes import listen

from mcpbus import DELIVERED, Fate
from mcpbus.cluster import change_fates, session_sender
from mcpbus.cluster.messages import Fates, FrameKind, encode
from mcpbus.core.receipt import LOST
from mcpbus.protocol.routes import Reason
from mcpbus.testing import MemoryDirectory

URI = "res://one"
UNREACHABLE, EXPIRED = Fate.discarded(Reason.UNREACHABLE), Fate.discarded(Reason.EXPIRED)


async def subscribe(probe):
    session = await probe.initialize()
    await session.request("resources/subscribe", {"uri": URI}).ended()
    return session


async def ask_soon(nursery, broadcast, got):
    """Have somebody ask for all fates, and note them in `got`."""

    async def ask():
        got.append(await broadcast.settled(everywhere=True))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert got == []


@pytest.mark.parametrize("teller", ["bus", "server"])
async def test_those_of_all_processes_are_counted(teller, autojump_clock):
    async with open_buses(make, 3) as (buses, probes):
        for probe in probes:
            await listen(probe)
        broadcast = getattr(buses[0], teller, buses[0]).resource_updated(URI)
        assert await broadcast.settled(everywhere=True) == {DELIVERED: 3}
        assert await broadcast.settled() == {DELIVERED: 1}
        assert await buses[1].tools_changed().settled(everywhere=True) == {DELIVERED: 3}


async def test_one_that_is_alone_counts_its_own(autojump_clock):
    async with open_buses(make, 1) as ((bus,), (probe,)):
        await listen(probe)
        assert await bus.resource_updated(URI).settled(everywhere=True) == {DELIVERED: 1}


async def test_what_waits_elsewhere_is_waited_for_until_it_has_its_end(autojump_clock):
    async with open_buses(make) as (buses, probes):
        await subscribe(probes[1])
        broadcast = buses[0].resource_updated(URI)
        with pytest.raises(trio.TooSlowError):
            await broadcast.settled(10, everywhere=True)
        assert await broadcast.settled(everywhere=True) == {EXPIRED: 1}


@pytest.mark.parametrize("gone", ["the one that asks", "the link"])
async def test_where_nobody_asks_any_more_nothing_waits(gone, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        await subscribe(probes[1])
        broadcast = buses[0].resource_updated(URI)
        await quiet(buses)
        there = buses[1].node

        def waiting():
            return [task for task in there._work.child_tasks if change_fates.__name__ in task.name]

        async with trio.open_nursery() as nursery:
            await ask_soon(nursery, broadcast, [])
            await quiet(buses)
            assert len(waiting()) == 1
            if gone == "the link":
                directory.unreachable |= {bus.node.home for bus in buses}
                await directory.cut()
                await quiet(buses)
                assert not waiting()
            nursery.cancel_scope.cancel()
        await quiet(buses)
        assert not waiting()
        assert not any(link._channels for links in there.links.by_home.values() for link in links)


async def test_it_is_asked_again_where_the_link_is_lost(autojump_clock):
    directory, got = MemoryDirectory(), []
    async with open_buses(make, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        await subscribe(probes[1])
        await ask_soon(nursery, buses[0].resource_updated(URI), got)
        await directory.cut()
        await trio.sleep(2)
        # All changes were told anew, once there was a link again.
        assert got == [{Fate.discarded(Reason.SUPERSEDED): 1}]


@pytest.mark.parametrize(("late", "fates"), [(0.5, {DELIVERED: 1}), (5, {UNREACHABLE: 1})])
async def test_what_was_told_over_a_lost_link_may_come_after_the_question(
    late, fates, autojump_clock, monkeypatch
):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        await listen(probes[1])
        there, changed = buses[1].node, buses[1].node.changed

        async def take_late(link, payload):
            await trio.sleep(late)
            changed(link, payload)

        monkeypatch.setattr(there, "changed", lambda *said: nursery.start_soon(take_late, *said))
        broadcast = buses[0].resource_updated(URI)
        await trio.testing.wait_all_tasks_blocked()
        await directory.cut()
        assert await broadcast.settled(everywhere=True) == fates


async def test_a_process_that_dies_meanwhile_counts_as_one(autojump_clock):
    directory, got = MemoryDirectory(), []
    async with open_buses(make, 3, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        await listen(probes[1])
        await subscribe(probes[2])
        await ask_soon(nursery, buses[0].resource_updated(URI), got)
        await kill(buses[2], directory)
        await trio.sleep(6)
        assert got == [{DELIVERED: 1, UNREACHABLE: 1}]


async def test_so_does_one_that_could_not_be_told(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        await listen(probes[1])
        directory.unreachable |= {bus.node.home for bus in buses}
        await directory.cut()
        await quiet(buses)
        broadcast = buses[0].resource_updated(URI)
        directory.unreachable.clear()
        await trio.sleep(2)
        assert await broadcast.settled(everywhere=True) == {UNREACHABLE: 1}


async def test_and_one_that_has_forgotten_it(autojump_clock, monkeypatch):
    monkeypatch.setattr(change_fates, "_MOST_KEPT", 4)
    async with open_buses(make) as (buses, probes):
        await listen(probes[1])
        broadcasts = [buses[0].resource_updated(URI) for _ in range(3)]
        await quiet(buses)
        settled = [await broadcast.settled(everywhere=True) for broadcast in broadcasts]
        assert settled[0] == {UNREACHABLE: 1}
        assert settled[-1] == {DELIVERED: 1}
        assert len(buses[1].node._told_changes._kept) == 2


async def test_fates_that_only_newer_processes_have_are_counted_together(autojump_clock, monkeypatch):
    fates = [("newer", None, 2), ("discarded", "newer", 3), ("discarded", Reason.LOST.value, 1)]
    async with open_buses(make) as (buses, _):
        said = encode(Fates(fates, known=True))
        answer = lambda link, channel, _: link.send(FrameKind.FATES, channel, said)  # noqa: E731
        monkeypatch.setattr(buses[1].node, "asked", answer)
        assert await buses[0].resource_updated(URI).settled(everywhere=True) == {LOST: 6}


async def test_one_that_cannot_be_reached_any_more_is_given_up_in_time(autojump_clock):
    directory, got = MemoryDirectory(), []
    async with open_buses(make, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        await subscribe(probes[1])
        await ask_soon(nursery, buses[0].resource_updated(URI), got)
        directory.unreachable |= {bus.node.home for bus in buses}
        await directory.cut()
        await trio.sleep(6)
        assert got == [{UNREACHABLE: 1}]


@pytest.mark.parametrize("seed", range(2))
async def test_the_books_of_all_balance_together(seed, autojump_clock, monkeypatch):
    chance, directory, told = random.Random(seed), MemoryDirectory(), []
    describe = session_sender.encode_fate
    monkeypatch.setattr(session_sender, "encode_fate", lambda fate: told.append(fate) or describe(fate))
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        sessions = [await subscribe(probe) for probe in probes for _ in range(2)]
        for _ in range(40):
            bus, probe = chance.choice(buses), chance.choice(probes)
            session = at(chance.choice(sessions), probe)
            match chance.randrange(4):
                case 0:
                    bus.resource_updated(URI)
                case 1:
                    found = await bus.find_session(session.id, None)
                    found.notify("notifications/said")
                case 2:
                    stream = session.get()
                    if chance.random() < 0.5:
                        await stream.begun()
                        stream.disconnect()
                case 3:
                    await quiet(buses)
        for session in sessions:  # each has a stream at last, on which it hears of what waits
            await session.get().begun()
        await trio.sleep(400)
        books = [bus.statistics() for bus in buses]
        assert all(each.pending == {} for each in books)
        emitted = sum(each.emitted for each in books)
        adopted = sum(each.adopted for each in books)
        settled = sum(each.delivered + each.stored + each.refused + each.moved for each in books)
        discarded = sum(sum(each.discarded.values()) for each in books)
        # What is said to a session elsewhere is in two books, and counts twice on both sides.
        assert adopted == len(told) > 0
        assert emitted + adopted == settled + discarded
