"""Changes that are said while there is no link, or that are lost with one: they are made anew, so that no client misses any."""

from unittest.mock import Mock

import pytest
import trio
from several import open_buses, quiet
from test_forwarding import make

from mcpbus.cluster import link_pool, node
from mcpbus.cluster.change_fates import _Question
from mcpbus.cluster.link_pool import _Dial
from mcpbus.cluster.messages import Fates, FrameKind, encode
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
    dial = of.links._dials[to.home] = _Dial()
    of.start(of.links._run_dialled, to.home, dial)
    await dial.done.wait()
    assert len(of.links.by_home[to.home]) == 2


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


@pytest.mark.parametrize("speaks", [0, 1], ids=["the one that dials", "the one that is dialled"])
async def test_none_is_missed_that_is_said_before_the_link_is_there_at_both_ends(
    speaks, autojump_clock, monkeypatch
):
    directory, greeted = MemoryDirectory(), trio.Event()
    async with open_buses(make, directory=directory) as (buses, probes):
        speaker, hearer = buses[speaks], buses[1 - speaks]
        stream = await listen(probes[1 - speaks])
        greet = link_pool.greet

        async def greet_later(stream, incoming, keys, home, dialled):
            there = await greet(stream, incoming, keys, home, dialled)
            if home == speaker.node.home:
                await greeted.wait()
            return there

        monkeypatch.setattr(link_pool, "greet", greet_later)
        await directory.cut()
        await quiet(buses)
        buses[0].node.start(buses[0].node._try_to_reach, buses[1].node.home)
        await quiet(buses)
        assert hearer.node.link(speaker.node.home) is not None
        speaker.resource_updated(URI)
        await quiet(buses)
        assert told(stream) == []
        greeted.set()
        await quiet(buses)
        assert told(stream) == [LIST, UPDATED]


@pytest.mark.parametrize("answered", [True, False])
async def test_a_question_for_fates_leaves_its_channel_whether_it_is_answered_or_not(
    answered, autojump_clock
):
    link = Mock(closed=False)
    link.open.return_value = 7
    question = _Question(link, 1)
    if answered:
        question.take(FrameKind.FATES, encode(Fates([], known=True)))
    with trio.move_on_after(1):
        assert await question.answered() == Fates([], known=True)
    link.leave.assert_called_once_with(7)
    assert link.send.called is not answered
