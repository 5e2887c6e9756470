"""The key that replicas have in common which were given none, in a Redis that loses all it knew."""

import pytest
import trio
from lua_redis import LuaRedis
from troubled_network import Directory, Network

from mcpbus.cluster.tcp import HostPort

LEASE = 5.0
PLACE = HostPort("127.0.0.1", 1)


async def begin(network, redis, number):
    """Have a replica begin; returns its directory."""
    directory = Directory(network, redis, number, LEASE)
    await directory.common_key()
    await directory._renew(f"home{number}", PLACE)
    return directory


def lose_all(redis):
    redis.restore({}, {})


async def test_who_begins_before_anybody_has_put_it_back_waits_for_it(autojump_clock, nursery, caplog):
    network, redis = Network(), LuaRedis()
    old = await begin(network, redis, 0)
    nursery.start_soon(old._keep_renewing, "home0", PLACE)
    await trio.sleep(LEASE * 0.35)  # it has just renewed
    lose_all(redis)
    begun = trio.current_time()
    assert (await begin(network, redis, 1))._key == old._key
    assert trio.current_time() - begun == pytest.approx(LEASE * 0.25, abs=0.1)  # until that renews its lease
    assert caplog.text == ""
    nursery.cancel_scope.cancel()


async def test_who_begins_where_it_is_there_does_not_wait(autojump_clock):
    network, redis = Network(), LuaRedis()
    await begin(network, redis, 0)
    begun = trio.current_time()
    await begin(network, redis, 1)
    assert trio.current_time() - begun == pytest.approx(0, abs=0.1)


async def test_who_comes_too_late_to_put_it_back_says_so(autojump_clock, caplog):
    network, redis = Network(), LuaRedis()
    old = await begin(network, redis, 0)
    lose_all(redis)
    new = await begin(network, redis, 1)
    assert caplog.text == ""
    await old._renew("home0", PLACE)
    assert new._key != old._key
    assert "have another one: they know no session of this one" in caplog.text
