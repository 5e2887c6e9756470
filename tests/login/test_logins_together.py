"""Many who need the same login at once: requests, connections, and programs."""

import pytest
import trio
from login_world import call

from mcpbus.client import FileTokenStorage, LoginError, LoginRefusedError, MemoryTokenStorage
from mcpbus.client.oauth.login_commands import log_in


async def test_a_hundred_requests_that_are_refused_at_once_log_in_once(world, autojump_clock):
    async with world.connect() as client, trio.open_nursery() as nursery:
        world.issuer.take_back()
        world.pages = 0
        said = []

        async def ask():
            said.append(await call(client))

        world.absent = 30
        for _ in range(100):
            nursery.start_soon(ask)
    assert said == ["read"] * 100
    assert world.pages == 1


async def test_connections_that_share_a_store_log_in_once(world, autojump_clock):
    store, said = MemoryTokenStorage(), []
    world.absent = 30

    async def ask():
        async with world.connect(world.auth(store=store)) as client:
            said.append(await call(client))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask)
    assert said == ["read"] * 10
    assert world.pages == 1


async def test_a_token_is_renewed_once_for_all_and_no_refresh_token_is_used_twice(world, autojump_clock):
    """Issuers take everything back when one is."""
    store, said = MemoryTokenStorage(), []
    async with trio.open_nursery() as nursery:

        async def ask(task_status):
            async with world.connect(world.auth(store=store)) as client:
                await call(client)
                task_status.started()
                await trio.sleep_until(2 * world.issuer.life)
                async with trio.open_nursery() as calls:
                    for _ in range(10):
                        calls.start_soon(call, client)
                said.append(await call(client))

        for _ in range(5):
            await nursery.start(ask)
        world.net.slow["id.example"] = 3
    assert said == ["read"] * 5
    assert world.pages == 1
    assert not [token for token in world.issuer.spent if token in world.issuer.refreshing]
    grants = [visit.form["grant_type"] for visit in world.net.visits if visit.path == "/token"]
    assert grants == ["authorization_code", "refresh_token"]


async def test_who_began_the_login_may_leave_and_the_others_get_it(world, autojump_clock):
    world.absent = 60
    async with world.connect() as client:
        world.issuer.take_back()
        world.pages, said = 0, []
        async with trio.open_nursery() as nursery:
            first = trio.CancelScope()

            async def begin():
                with first:
                    await call(client)

            async def join():
                await trio.sleep(10)
                said.append(await call(client))

            nursery.start_soon(begin)
            nursery.start_soon(join)
            await trio.sleep(30)
            first.cancel()
    assert said == ["read"]
    assert world.pages == 1


async def test_a_login_goes_on_when_nobody_waits_for_it_any_more(world, autojump_clock):
    """A desktop client gives a call up after a minute, and the person is still typing."""
    world.absent = 120
    async with world.connect() as client:
        world.issuer.take_back()
        world.pages = 0
        with trio.move_on_after(60):
            await call(client)
        await trio.sleep(100)
        assert await call(client) == "read"
    assert world.pages == 1


async def test_a_login_ends_with_its_connection(world, autojump_clock):
    world.absent = 1e6
    with trio.move_on_after(60):
        async with world.connect(world.auth(timeout=1e9)):
            pass
    assert trio.current_time() < 100


async def test_a_login_that_fails_fails_for_all_who_wait_and_each_has_an_error_of_its_own(
    world, autojump_clock
):
    async def decline(page):
        world.pages += 1
        await trio.sleep(30)
        return world.issuer.authorize(page, code=None, error="access_denied")

    failures = []
    agree = trio.Event()

    async def show(page):
        return await (decline(page) if agree.is_set() else world.person(page))

    async with world.connect(world.auth(open_page=show)) as client:
        world.issuer.take_back()
        agree.set()
        world.pages = 0

        async def ask():
            try:
                await call(client)
            except LoginRefusedError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
    assert len({id(error) for error in failures}) == 10
    assert {str(error) for error in failures} == {str(failures[0])}
    assert world.pages == 1


async def test_a_refresh_in_flight_is_waited_for_by_who_comes_meanwhile(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        await trio.sleep(2 * world.issuer.life)
        world.net.slow["id.example"] = 5
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def first():
                with scope:
                    await call(client)

            nursery.start_soon(first)
            await trio.sleep(1)
            nursery.start_soon(call, client)
            await trio.sleep(1)
            scope.cancel()
    grants = [visit.form["grant_type"] for visit in world.net.visits if visit.path == "/token"]
    assert grants == ["authorization_code", "refresh_token"]
    assert world.pages == 1


async def test_an_issuer_that_does_not_answer_holds_nobody_up_for_long(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        await trio.sleep(world.issuer.life - 25)
        world.net.slow["id.example"] = 1e6
        begun = trio.current_time()
        assert await call(client) == "read"
        assert trio.current_time() - begun == pytest.approx(10)
        # And is left alone for a while.
        assert await call(client) == "read"
        assert trio.current_time() - begun == pytest.approx(10)


async def test_programs_that_share_a_folder_use_what_one_of_them_has_got(world, tmp_path, autojump_clock):
    world.absent, said = 3, []

    async def ask():
        async with world.connect(world.auth(store=FileTokenStorage(tmp_path))) as client:
            said.append(await call(client))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert said == ["read"] * 3
    assert world.pages == 1


async def test_a_login_elsewhere_is_found_by_who_holds_an_older_token(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
        world.issuer.take_back()
        async with world.connect(world.auth(store=store)) as other:
            await call(other)
        assert await call(client) == "read"
    assert world.pages == 2


async def test_a_login_that_is_forgotten_elsewhere_is_not_brought_back(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
        await store.save(world.url, None)
        world.issuer.tokens.clear()
        with pytest.raises(LoginError):
            async with world.connect(world.auth(store=store, open_page=None)):
                pass
        assert await call(client) == "read"
    assert world.pages == 2


async def test_who_waits_for_a_person_goes_on_when_somebody_logs_in_by_hand(world, autojump_clock):
    store = MemoryTokenStorage()

    async def nobody(page):
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:

        async def wait():
            async with world.connect(world.auth(store=store, open_page=nobody)) as client:
                assert await call(client) == "read"

        nursery.start_soon(wait)
        await trio.sleep(30)
        await log_in(world.url, world.auth(store=store))
        begun = trio.current_time()
    assert trio.current_time() - begun <= 1
    assert world.pages == 1
