"""What may come between a renewal and its end, and takes nobody's login away."""

import pytest
import trio
from internet import answer
from login_world import call

from mcpbus.client import LoginError, LoginNeededError, MemoryTokenStorage
from mcpbus.client.oauth.login_commands import log_in


def tokens_of(world):
    return {token for _, _, token in world.calls}


async def expired(world):
    await trio.sleep(world.issuer.life + 1)


async def test_who_leaves_in_the_middle_of_one_loses_no_login(world, autojump_clock):
    """The issuer has spent the last refresh token by then."""
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    await expired(world)

    async def late(request):
        response = await world.issuer(request)
        await trio.sleep(1)
        return response

    world.net.hosts["id.example"] = late
    with trio.move_on_after(0.5):
        async with world.connect(world.auth(store=store)):
            pass
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        assert await call(client) == "read"
    assert world.pages == 1


async def test_nor_does_who_leaves_while_it_is_stored(world, autojump_clock):
    class Slow(MemoryTokenStorage):
        async def save(self, server, login):
            await trio.sleep(1)
            await super().save(server, login)

    store = Slow()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    await expired(world)
    with trio.move_on_after(0.5):
        async with world.connect(world.auth(store=store)):
            pass
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        assert await call(client) == "read"
    assert world.pages == 1


async def test_who_leaves_waits_for_one_no_longer_than_for_its_issuer(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    await expired(world)
    world.net.slow["id.example"] = 1e6
    begun = trio.current_time()
    with trio.move_on_after(0.5):
        async with world.connect(world.auth(store=store)):
            pass
    assert trio.current_time() - begun <= 11


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_login_by_hand_meanwhile_is_the_one_that_counts(refuses, world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
        await expired(world)
        world.net.slow["id.example"] = 5
        if refuses:
            world.issuer.take_back()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, client)
            await trio.sleep(1)
            world.net.slow.clear()
            await log_in(world.url, world.auth(store=store))
            [by_hand] = [token for token, granted in world.issuer.tokens.items() if granted.family != 1][-1:]
        assert await call(client) == "read"
    assert by_hand in (await store.load(world.url)).decode()
    assert world.pages == 2


@pytest.mark.parametrize(
    "instead",
    [
        lambda _: answer(404, json={"error": "not_found"}),
        lambda _: answer(403, body=b"<html>who are you?</html>"),
        lambda _: answer(302, location="https://portal.example"),
        lambda _: answer(400, json={"error": "invalid_request"}),
    ],
    ids=["moved", "firewall", "portal", "request"],
)
async def test_an_issuer_that_is_at_fault_takes_no_login_away(instead, world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    await expired(world)
    world.issuer.instead["/token"] = instead
    with pytest.raises(LoginNeededError, match="nobody is here"):
        async with world.connect(world.auth(store=store, open_page=None)):
            pass
    world.issuer.instead.clear()
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        assert await call(client) == "read"
    assert world.pages == 1


async def test_nor_is_it_asked_again_and_again(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        await trio.sleep(world.issuer.life - 20)
        world.issuer.instead["/token"] = lambda _: answer(404)
        before = len(world.net.visits)
        for _ in range(10):
            assert await call(client) == "read"
        assert sum(visit.path == "/token" for visit in world.net.visits[before:]) == 1


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client", "unauthorized_client"])
async def test_what_the_issuer_says_is_no_good_is_used_no_more(error, world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    await expired(world)
    world.issuer.instead["/token"] = lambda _: answer(400, json={"error": error})
    for _ in range(3):
        with pytest.raises(LoginError):
            async with world.connect(world.auth(store=store, open_page=None)):
                pass
    assert sum(b"grant_type=refresh_token" in visit.body for visit in world.net.visits) == 1
