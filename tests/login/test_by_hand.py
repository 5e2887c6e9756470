"""To log in before anything is asked, and to log out."""

import pytest
import trio
from internet import answer
from login_world import META, call

from mcpbus.client import FileTokenStorage, LoginError, LoginRefusedError, MemoryTokenStorage, StatusError
from mcpbus.client.oauth.login_commands import LoggedOut, log_in, log_out

ISSUER = "https://id.example"


@pytest.fixture
def store():
    return MemoryTokenStorage()


async def test_who_logs_in_is_logged_in(world, store, autojump_clock):
    assert await log_in(world.url, world.auth(store=store)) == ISSUER
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        assert await call(client) == "read"
    assert world.pages == 1


async def test_who_logs_in_again_does_so_and_what_was_said_is_kept(world, store, autojump_clock):
    await log_in(
        world.url, world.auth(store=store, client_id="known", client_secret="s3cret", scopes=["more"])
    )
    await log_in(world.url, world.auth(store=store))
    assert [(asked["client_id"], asked["scope"]) for asked in world.issuer.asked] == [
        ("known", "more read"),
        ("known", "more read"),
    ]


async def test_a_login_that_fails_takes_the_last_one_away_from_nobody(world, store, autojump_clock):
    await log_in(world.url, world.auth(store=store))

    async def decline(page):
        return world.issuer.authorize(page, code=None, error="access_denied")

    with pytest.raises(LoginRefusedError):
        await log_in(world.url, world.auth(store=store, open_page=decline))
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        assert await call(client) == "read"


async def test_what_cannot_be_read_of_the_last_login_is_replaced(world, store, autojump_clock):
    await store.save(world.url, b"{}")
    assert await log_in(world.url, world.auth(store=store)) == ISSUER


async def test_a_server_that_asks_for_tokens_later_is_logged_in_to_first(world, store, autojump_clock):
    world.document["scopes_supported"] = ["read", "write"]
    guard = world._guard
    world._guard = lambda request: guard(request) if b"tools/call" in request.content else None
    await log_in(world.url, world.auth(store=store))
    assert world.issuer.asked[0]["scope"] == "read write"
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        assert await call(client, "write") == "written"


async def test_a_server_that_asks_for_none_has_none(world, store, autojump_clock):
    world._guard, world.document = lambda request: None, None
    with pytest.raises(LoginError, match="asks for no login"):
        await log_in(world.url, world.auth(store=store))
    world.document = {"resource": world.url, "authorization_servers": []}
    with pytest.raises(LoginError, match="does not say who issues tokens"):
        await log_in(world.url, world.auth(store=store))


async def test_a_server_that_fails_once_one_is_logged_in_does_so_when_it_is_used(
    world, store, autojump_clock
):
    guard = world._guard
    world._guard = lambda request: guard(request) or answer(500)
    assert await log_in(world.url, world.auth(store=store)) == ISSUER
    world._guard = lambda request: answer(500)
    with pytest.raises(StatusError, match="500"):
        await log_in(world.url, world.auth(store=store))


async def test_who_logs_out_is_logged_out_everywhere(world, store, autojump_clock):
    auth = world.auth(store=store)
    await log_in(world.url, auth)
    assert await log_out(world.url, store) == LoggedOut(ISSUER, revoked=True)
    assert world.issuer.tokens == world.issuer.refreshing == {}
    revoked = [visit.form["token_type_hint"] for visit in world.net.visits if visit.path == "/revoke"]
    assert revoked == ["refresh_token", "access_token"]
    assert await store.load(world.url) is None
    assert await log_out(world.url, store) == LoggedOut()


async def test_a_logout_that_is_cut_off_forgets_the_login_all_the_same(world, tmp_path, autojump_clock):
    """Ctrl-C while the issuer does not answer. Only a store that waits before it writes shows the difference."""
    store = FileTokenStorage(tmp_path / "logins")
    await log_in(world.url, world.auth(store=store))
    world.net.slow["id.example"] = 8
    with trio.move_on_after(1) as scope:
        await log_out(world.url, store)
    assert scope.cancelled_caught
    assert await store.load(world.url) is None


@pytest.mark.parametrize("status", [200, 201, 204])
async def test_each_status_of_success_takes_a_login_back(status, world, store, autojump_clock):
    await log_in(world.url, world.auth(store=store))
    world.issuer.instead["/revoke"] = lambda request: answer(status)
    assert await log_out(world.url, store) == LoggedOut(ISSUER, revoked=True)


@pytest.mark.parametrize("how", ["no endpoint", "it refuses", "it is down", "no tokens"])
async def test_a_login_is_forgotten_even_if_its_issuer_takes_nothing_back(how, world, store, autojump_clock):
    if how == "no endpoint":
        world.issuer.metadata["revocation_endpoint"] = None
    await log_in(world.url, world.auth(store=store))
    if how == "it refuses":
        world.issuer.instead["/revoke"] = lambda request: answer(503)
    elif how == "it is down":
        world.net.down.add("id.example")
    assert await log_out(world.url, store) == LoggedOut(ISSUER, revoked=how == "no tokens")
    assert await store.load(world.url) is None


async def test_what_cannot_be_read_is_forgotten(world, store, autojump_clock):
    await store.save(world.url, b"{}")
    assert (await log_out(world.url, store)).revoked is False
    assert await store.load(world.url) is None


async def test_the_metadata_of_a_server_that_has_gone_wrong_is_told(world, store, autojump_clock):
    world._guard = lambda request: None
    world.instead[META] = lambda request: answer(503)
    with pytest.raises(LoginError, match="503"):
        await log_in(world.url, world.auth(store=store))
