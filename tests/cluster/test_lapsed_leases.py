"""A process that may have been taken for ended, though it lives: to clients whom another one may be speaking to it says nothing."""

import time

import pytest
import trio
from lua_redis import LuaRedis
from several import at, open_buses, quiet
from test_adoption import only
from test_forwarding import CHANGED, call, make, text
from test_held import held, said, say
from troubled_network import Connection, Directory, Network

from mcpbus.core.lease import Lease, _suspended
from mcpbus.core.receipt import DELIVERED, MOVED, Fate
from mcpbus.protocol.routes import Reason
from mcpbus.tasks import RedisTaskStore
from mcpbus.testing import MemoryDirectory


@pytest.mark.parametrize("way", [0, 1], ids=["here", "over a link"])
async def test_what_is_said_meanwhile_is_sent_in_order_once_the_lease_lasts_again(way, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        stream = await at(await probes[0].initialize(), probes[way]).get().begun()
        receipts = say(buses[0], 1)
        await quiet(buses)
        directory.lapse(buses[0].node.home)
        receipts += say(buses[0], 2)
        await trio.sleep(5)
        receipts += [*say(buses[0], 3), *buses[0].tools_changed(), *buses[0].tools_changed()]
        await trio.sleep(5)
        assert said(stream) == [1]
        directory.renew(buses[0].node.home)
        receipts += say(buses[0], 4)
        assert said(stream) == [1]
        await trio.sleep(2)
        receipts += say(buses[0], 5)
        await quiet(buses)
        assert said(stream) == [1, 2, 3, 4, 5]
        assert [message["method"] for message in stream.messages].count(CHANGED) == 1
        fates = [str(receipt.fate) for receipt in receipts]
        assert (fates.count("delivered"), fates.count(str(Fate.discarded(Reason.SUPERSEDED)))) == (6, 1)
        assert held(directory) == 0


async def test_what_answers_a_request_does_not_wait(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        directory.lapse(buses[0].node.home)
        counting = call(session, "count", token="t")
        assert text(await counting.reply()) == "counted"
        assert len(counting.messages) == 4


async def test_a_get_stream_that_is_opened_meanwhile_waits_as_well(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        say(buses[0], 1)
        directory.lapse(buses[0].node.home)
        stream = await session.get().begun()
        say(buses[0], 2)
        await trio.sleep(5)
        assert said(stream) == []
        directory.renew(buses[0].node.home)
        await trio.sleep(2)
        assert said(stream) == [1, 2]


@pytest.mark.parametrize("before", [True, False], ids=["before", "afterwards"])
async def test_where_another_process_has_the_session_that_one_speaks_to_its_client(before, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        stream = await session.get().begun()
        directory.lapse(buses[0].node.home)
        await directory.cut()
        receipts = say(buses[0], 1) if before else []
        await quiet(buses)
        other = await at(session, probes[1]).get().begun()
        receipts += [] if before else say(buses[0], 1)
        say(buses[1], 2)
        await trio.sleep(5)
        directory.renew(buses[0].node.home)
        await trio.sleep(2)
        assert not buses[0].sessions
        assert [receipt.fate for receipt in receipts] == [MOVED if before else DELIVERED]
        assert (await stream.ended()).complete
        # What was kept until then is said by who has the session now, and what was said later is passed on to that.
        assert (said(stream), said(other)) == ([], [1, 2] if before else [2, 1])
        assert only(buses[1]).listening


@pytest.mark.parametrize("returns", [False, True], ids=["it reads on", "it comes back"])
async def test_what_a_client_has_not_taken_yet_waits_as_well(returns, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        stream = await session.get().begun()
        await quiet(buses)
        stream.stall()
        say(buses[0], 1)
        await quiet(buses)
        say(buses[0], 2, 3)
        await quiet(buses)
        directory.lapse(buses[0].node.home)
        say(buses[0], 4)
        await quiet(buses)
        if returns:
            stream.disconnect()
            stream = await session.get().begun()
        else:
            stream.resume()
        say(buses[0], 5)
        await trio.sleep(3)
        before = [] if returns else [1]
        assert said(stream) == before
        directory.renew(buses[0].node.home)
        await trio.sleep(2)
        assert said(stream) == [*before, 2, 3, 4, 5]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="such a machine does not tell")
def test_for_how_long_a_machine_was_suspended_is_what_one_of_its_clocks_has_counted_more(monkeypatch):
    clocks = {time.CLOCK_BOOTTIME: 5000.123, time.CLOCK_MONOTONIC: 4000.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert _suspended() == 1000.12


@pytest.mark.parametrize("forgets", [True, False], ids=["Redis has forgotten it", "Redis was suspended too"])
async def test_the_lease_of_a_machine_that_was_suspended_has_lapsed_when_it_goes_on(
    forgets, autojump_clock, nursery, monkeypatch
):
    """Trio's clock has stood still then, and that of Redis has gone on."""
    suspended, lease = [7.0], Lease()
    monkeypatch.setattr("mcpbus.core.lease._suspended", lambda: suspended[-1])
    network, redis = Network(), LuaRedis()
    monkeypatch.setattr("mcpbus.cluster.redis_directory.tcp", network)
    directory = Directory(network, redis, 0, 4.0)
    await nursery.start(directory.listen, "home", None, lease)
    await trio.sleep(60)
    assert lease.is_valid
    suspended.append(7.0 + 3600.0)
    assert not lease.is_valid
    if forgets:
        redis.restore({}, {})
    await trio.sleep(2)
    assert not lease.is_valid
    await directory.maintain([], 60)
    assert lease.is_valid
    nursery.cancel_scope.cancel()


# -- that of tasks ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def told():
    """Redis with a lease of six seconds, by which a bus has its tasks; the network; and each time when that was told to have lapsed."""
    network, redis, times = Network(), LuaRedis(), []
    store = RedisTaskStore("redis://nowhere", namespace="n", lease=6.0)
    store._redis = Connection(network, redis, 0)
    store.on_lapse("one", lambda: times.append(trio.current_time()))
    await store.take_up("one")
    yield network, redis, times
    await store.leave("one")
    assert redis.call("EXISTS", "{mcpbus:n}:b:one") == 0
    await trio.sleep(60)
    assert redis.call("EXISTS", "{mcpbus:n}:b:one") == 0


async def test_a_lease_of_tasks_that_lasts_is_told_of_never(told, autojump_clock):
    network, _, times = told
    for mode in ("up", "slow", "lossy", "deaf", "up"):
        network.mode = mode
        await trio.sleep(20)
    assert times == []


@pytest.mark.parametrize("mode", ["up", "slow", "lossy", "down", "deaf"])
@pytest.mark.parametrize("after", [0.0, 1.9, *(2.0 + number / 4000 for number in range(12))])
async def test_a_lease_of_tasks_that_has_lapsed_is_told_of_once_it_lasts_again(
    told, mode, after, autojump_clock
):
    network, redis, times = told
    redis.call("DEL", "{mcpbus:n}:b:one")
    await trio.sleep(after)
    network.mode = mode  # at each moment of a renewal
    await trio.sleep(2.5)
    network.mode = "up"
    await trio.sleep(4.5)
    assert len(times) == 1
    assert redis.call("EXISTS", "{mcpbus:n}:b:one") == 1
    await trio.sleep(60)
    assert len(times) == 1


async def test_a_lease_of_tasks_lapses_where_redis_is_away_for_long(told, autojump_clock):
    network, redis, times = told
    network.mode = "down"
    await trio.sleep(9)
    assert (redis.call("EXISTS", "{mcpbus:n}:b:one"), times) == (0, [])
    network.mode = "up"
    await trio.sleep(3)
    assert (redis.call("EXISTS", "{mcpbus:n}:b:one"), len(times)) == (1, 1)
