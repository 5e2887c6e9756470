"""Changes that are said while there is no link, or that are lost with one: they are made anew, so that no client misses any."""

import pytest
import trio
from several import open_buses, quiet
from test_forwarding import make

from mcpbus.cluster import node
from mcpbus.cluster.node import _Dial
from mcpbus.testing import MemoryDirectory, open_bus, open_probe

URI = "res://one"
UPDATED = "notifications/resources/updated"
LIST = "notifications/tools/list_changed"


async def listen(probe):
    """Open a listen for one list and one resource."""
    wanted = {"toolsListChanged": True, "resourceSubscriptions": [URI]}
    stream = probe.request("subscriptions/listen", {"notifications": wanted})
    await stream.message()
    return stream


def told(stream):
    """What was told so far but for the acknowledgement."""
    return [message["method"] for message in stream.messages[1:]]


async def link_once_more(of, to):
    """Have a process open a second link to another one, as where both dial at once."""
    dial = of._dials[to.home] = _Dial()
    of.start(of._run_dialled, to.home, dial)
    await dial.done.wait()
    assert len(of._links[to.home]) == 2


async def test_one_that_joins_and_cannot_be_reached_hears_of_them_later(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 1, directory=directory) as ((old,), (_, *_)):
        directory.unreachable |= {old.node.home}
        cluster = directory.cluster()
        directory.unreachable |= {cluster.home}
        async with open_bus(make(), cluster=cluster) as new, open_probe(new.asgi()) as probe:
            stream = await listen(probe)
            old.resource_updated(URI)
            await quiet([old, new])
            assert told(stream) == []
            directory.unreachable.clear()
            await trio.sleep(2 * node.LOOK_SECONDS)
            assert told(stream) == [LIST, UPDATED]


async def test_one_that_joins_makes_nothing_anew(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 1, directory=directory) as (_, (probe,)):
        stream = await listen(probe)
        async with open_bus(make(), cluster=directory.cluster()) as new:
            await trio.sleep(2 * node.LOOK_SECONDS)
            assert told(stream) == []
            new.resource_updated(URI)
            await quiet([new])
        assert told(stream) == [UPDATED]


async def test_of_two_links_either_may_have_been_used(autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        stream = await listen(probes[0])
        here, there = (bus.node for bus in buses)
        await link_once_more(here, there)
        await quiet(buses)
        first = there.link(here.home)
        monkeypatch.setattr(first, "send", lambda *_: None)  # it is lost on its way
        buses[1].resource_updated(URI)
        await quiet(buses)
        assert told(stream) == []
        first.close()
        await quiet(buses)
        assert set(told(stream)) == {LIST, UPDATED}


@pytest.mark.parametrize("turns", range(16))
async def test_none_is_missed_at_whatever_moment_it_is_said(turns, autojump_clock, monkeypatch):
    directory, events = MemoryDirectory(), []
    async with open_buses(make, directory=directory) as (buses, probes):
        await listen(probes[0])
        tell_here = buses[0].tell_here

        def note(change):
            events.append(change.uri)
            return tell_here(change)

        monkeypatch.setattr(buses[0], "tell_here", note)
        await directory.cut()
        await quiet(buses)
        buses[1].node.start(buses[1].node._try_to_reach, buses[0].node.home)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        events.append("said")
        buses[1].resource_updated(URI)
        await quiet(buses)
        assert URI in events[events.index("said") :]
