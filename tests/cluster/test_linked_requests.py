"""A request that came over a link, as long as nobody has to say anything in a task: its handler says a few things, or waits first."""

import math

import pytest
import trio
from several import at, open_buses, quiet
from test_forwarding import text

from mcpbus import Context, Limits, Server
from mcpbus.cluster.link import KeepAliveQueue
from mcpbus.cluster.messages import FrameKind
from mcpbus.core import fairness
from mcpbus.core.request_actor import RequestActor
from mcpbus.protocol.routes import Reason
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import MemoryDirectory, open_probe

KEEP_ALIVE = 15.0


class World:
    """Two processes, and a session of the first one at the second.

    Attributes:
        kinds: The kinds of message with which the first answers the second.
        ended: How handlers ended.
    """

    def __init__(self, buses, session, directory, monkeypatch, ended):
        self.buses, self.session, self.directory, self.ended = buses, session, directory, ended
        self.kinds = []
        self.link = buses[0].node.link(buses[1].node.home)
        send = self.link.send
        monkeypatch.setattr(
            self.link, "send", lambda kind, *rest: self.kinds.append(FrameKind(kind)) or send(kind, *rest)
        )

    def call(self, name, **arguments):
        return self.session.request("tools/call", {"name": name, "arguments": arguments}, progress_token="t")

    def said(self):
        """What was said over the link, without what says only that it is there."""
        return [kind for kind in self.kinds if kind is not FrameKind.PING]

    def channels(self):
        return [dict(link._channels) for bus in self.buses for [link] in bus.node.links.by_home.values()]

    def fates(self):
        ledger = self.buses[0].ledger
        return ledger.delivered, ledger.stored, ledger.discarded[Reason.LOST]

    async def settled(self):
        await quiet(self.buses)
        assert not any(self.channels())
        assert not self.link.quiet._due
        assert not any(self.buses[0].ledger.pending.values())


def make(ended):
    server = Server("linked")

    @server.tool
    async def burst(count: int, ctx: Context) -> str:
        for number in range(count):
            await ctx.progress(number)
        return "said"

    @server.tool
    async def wait(seconds: float) -> str:
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            ended.append("cancelled")
            raise
        ended.append("done")
        return "waited"

    @server.tool
    async def burst_and_wait(ctx: Context) -> str:
        await ctx.progress(1)
        await trio.sleep(5)
        return "waited"

    @server.tool
    async def wait_and_say(ctx: Context) -> str:
        await trio.sleep(5)
        await ctx.progress(1)
        return "said"

    return server


@pytest.fixture
def store():
    """The class of the event store, if there is one."""
    return


@pytest.fixture(params=["http1", "http2"])
async def world(request, store, monkeypatch, autojump_clock):
    """See `World`."""
    monkeypatch.setattr(fairness, "_LONG_SECONDS", math.inf)  # the machine may be busy
    directory, ended = MemoryDirectory(), []
    limits = Limits(keep_alive=KEEP_ALIVE)
    stores = () if store is None else [store()]
    async with open_buses(lambda: make(ended), directory=directory, limits=limits, stores=stores) as (
        buses,
        probes,
    ):
        _, there = [bus.asgi() for bus in buses]  # they all make the same endpoints
        async with open_probe(there, shell=request.param) as probe:
            made = World(buses, at(await probes[0].initialize(), probe), directory, monkeypatch, ended)
            await made.call("burst", count=0).reply()  # how long it takes is known from now on
            await quiet(buses)
            made.kinds.clear()
            yield made
            probe.disconnect()


async def messages(answer):
    """Return what an answer says, whatever its form."""
    ended = await answer.ended()
    return ended.status, ended.messages


async def test_what_is_said_at_once_goes_over_as_one_message_with_the_reply(world, autojump_clock):
    before = world.fates()
    status, (*said, reply) = await messages(world.call("burst", count=9))
    assert status == 200
    assert [each["params"]["progress"] for each in said] == [*range(9)]
    assert text(reply) == "said"
    assert world.said() == [FrameKind.ANSWER]
    await world.settled()
    assert world.fates() == (before[0] + 10, *before[1:])


async def test_what_is_said_in_a_long_turn_does_not_wait_for_its_end(world, monkeypatch, autojump_clock):
    monkeypatch.setattr(fairness, "_LONG_SECONDS", -1)
    await world.call("burst", count=0).reply()
    world.kinds.clear()
    _, said = await messages(world.call("burst", count=2))
    assert len(said) == 3
    assert world.said()[0] is FrameKind.START


async def test_what_is_said_before_a_handler_waits_goes_out_then(world, autojump_clock):
    began = trio.current_time()
    answer = world.call("burst_and_wait")
    assert (await answer.message())["params"]["progress"] == 1
    assert trio.current_time() == pytest.approx(began, abs=0.5)
    assert text(await answer.reply()) == "waited"
    await world.settled()


async def test_what_a_burst_says_to_a_client_that_has_gone_is_lost(world, monkeypatch, autojump_clock):
    back = world.buses[1].node.link(world.buses[0].node.home)
    send, before = back.send_with_next, world.fates()
    monkeypatch.setattr(back, "send_with_next", lambda _kind, number: send(FrameKind.GONE, number))
    await messages(world.call("burst", count=3))
    await world.settled()
    assert world.fates() == (*before[:2], before[2] + 4)


class SlowStore(MemoryEventStore):
    """One that takes its time."""

    async def append(self, *args, **options):
        await trio.sleep(0.5)
        await super().append(*args, **options)


@pytest.mark.parametrize("store", [SlowStore])
async def test_a_burst_that_is_kept_goes_over_once_it_is(world, autojump_clock):
    began = trio.current_time()
    _, (*said, reply) = await messages(world.call("burst", count=3))
    assert (len(said), text(reply)) == (3, "said")
    assert trio.current_time() >= began + 0.5
    assert world.said() == [FrameKind.ANSWER]
    await world.settled()


@pytest.mark.parametrize("store", [SlowStore])
async def test_a_burst_that_is_kept_is_stored_where_its_client_leaves_meanwhile(world, autojump_clock):
    before = world.fates()
    answer = world.call("burst", count=3)
    await quiet(world.buses)
    answer.disconnect()
    await trio.sleep(1)
    await world.settled()
    assert world.fates() == (before[0], before[1] + 4, before[2])


async def test_nobody_has_a_stream_while_a_handler_waits(world, autojump_clock):
    answer = world.call("wait", seconds=5)
    await quiet(world.buses)
    assert world.said() == []
    status, [reply] = await messages(answer)
    assert (status, text(reply)) == (200, "waited")
    assert world.said() == [FrameKind.ANSWER]
    await world.settled()


async def test_what_is_said_after_a_handler_has_waited_comes_on_a_stream(world, autojump_clock):
    _, (said, reply) = await messages(world.call("wait_and_say"))
    assert said["params"]["progress"] == 1
    assert text(reply) == "said"
    await world.settled()


async def test_a_client_that_waits_for_long_is_told_that_it_is_not_forgotten(world, autojump_clock):
    first, short = world.call("wait", seconds=40), world.call("wait", seconds=1)
    assert text(await short.reply()) == "waited"
    await trio.sleep(KEEP_ALIVE / 2)
    later = world.call("wait", seconds=40)
    for answer in (first, later):
        begun = trio.current_time()
        await answer.begun()
        assert trio.current_time() - begun <= KEEP_ALIVE + 1
    assert trio.current_time() < 2 * KEEP_ALIVE
    assert [text(await answer.reply()) for answer in (first, later)] == ["waited", "waited"]
    await world.settled()


@pytest.mark.parametrize("what", ["begin", "client_gone"])
async def test_who_cannot_be_kept_alive_or_left_takes_nobody_else_down(
    what, world, monkeypatch, caplog, autojump_clock
):
    def no_memory(*_):
        raise MemoryError

    first, other = world.call("wait", seconds=40), world.call("wait", seconds=20)
    await quiet(world.buses)
    with monkeypatch.context() as patch:
        if what == "begin":
            await trio.sleep(KEEP_ALIVE / 2)
            later = world.call("wait", seconds=10)
            await quiet(world.buses)
            patch.setattr(RequestActor, what, no_memory)
            for answer in (first, other):
                assert (await answer.reply())["error"]["code"] == -32603
        else:
            later = world.call("wait", seconds=10)
            await quiet(world.buses)
            patch.setattr(RequestActor, what, no_memory)
            first.disconnect()
            await quiet(world.buses)
    assert text(await later.reply()) == "waited"
    assert "the application raised" in caplog.text
    assert not world.link.closed


async def test_a_handler_whose_client_has_gone_has_its_end(world, autojump_clock):
    held = world.call("wait", seconds=5)
    await quiet(world.buses)
    held.disconnect()
    await quiet(world.buses)
    assert not any(world.channels())
    await trio.sleep(10)
    assert world.ended == ["done"]  # of a session, whose client may come back
    await world.settled()


async def test_nothing_is_left_of_who_waited_when_a_link_is_lost(world, autojump_clock):
    held = world.call("wait", seconds=5)
    await quiet(world.buses)
    await world.directory.cut()
    assert "is not known" in (await held.reply())["error"]["message"]
    await trio.sleep(10)
    await quiet(world.buses)
    assert world.ended == ["done"]
    assert not world.link.quiet._due
    assert not world.link._channels


async def test_what_a_lost_link_has_brought_is_not_begun_when_a_handler_has_ended(
    world, monkeypatch, autojump_clock
):
    opened = []
    world.call("wait", seconds=5)
    await quiet(world.buses)
    await world.directory.cut()
    await quiet(world.buses)
    monkeypatch.setattr(world.buses[0].node, "opened", lambda *message: opened.append(message))
    number = 2 + world.link._parity + 1
    world.link._incoming.ready.append((FrameKind.OPEN, number, b""))  # more than it took in its last turn
    await trio.sleep(10)
    assert world.ended == ["done"]
    assert not opened


async def test_something_else_is_written_by_who_waits_in_the_next_turn(world, autojump_clock):
    found = []

    class Writer:
        def write_now(self):
            found.append("written")

        def lose(self):
            raise AssertionError

    held = world.call("wait", seconds=1)
    await quiet(world.buses)
    [request] = [
        each for [each] in map(dict.values, filter(None, world.channels())) if hasattr(each, "flush_last")
    ]
    request.flush_last(Writer())
    assert not found
    await quiet(world.buses)
    assert found == ["written"]
    await held.reply()


async def test_who_is_answered_because_of_one_before_it_is_not_kept_alive(autojump_clock):
    quiet_ones, kept = KeepAliveQueue(), []

    class First:
        def keep_alive(self):
            kept.append("first")
            quiet_ones.remove(second)

    class Second:
        def keep_alive(self):
            kept.append("second")

    second = Second()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(quiet_ones.run)
        quiet_ones.add(First(), 1)
        quiet_ones.add(second, 1)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert kept == ["first"]
