"""What a token does not allow is asked for when it is needed, and no more often than there is a point in it."""

from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from internet import answer
from login_world import call

from mcpbus.client import (
    InsufficientScopeError,
    LoginNeededError,
    LoginRefusedError,
    MemoryTokenStorage,
    StatusError,
)
from mcpbus.client.oauth.login_commands import log_in


async def test_more_is_asked_for_when_it_is_needed_and_nothing_is_lost(world, autojump_clock):
    async with world.connect() as client:
        assert await call(client, "read") == "read"
        assert await call(client, "write") == "written"
        assert await call(client, "read") == "read"
    assert [asked["scope"] for asked in world.issuer.asked] == ["read", "read write"]


async def test_a_challenge_that_names_what_is_missing_alone_loses_nothing(world, autojump_clock):
    guard = world._guard

    def guard_each(request):
        found = guard(request)
        if found is not None and found.status_code == 403:
            return answer(403, www_authenticate='Bearer error="insufficient_scope", scope="write"')
        return found

    world._guard = guard_each
    async with world.connect() as client:
        assert await call(client, "write") == "written"
        assert await call(client, "read") == "read"
    assert [asked["scope"] for asked in world.issuer.asked] == ["read", "read write"]


async def test_what_was_stepped_up_to_is_asked_for_at_the_next_login(world, autojump_clock):
    async with world.connect() as client:
        await call(client, "write")
        world.issuer.take_back()
        await call(client, "read")
    assert [asked["scope"] for asked in world.issuer.asked] == ["read", "read write", "read write"]


async def test_a_client_that_registered_with_less_registers_anew(world, autojump_clock):
    world.document["scopes_supported"] = ["read"]
    async with world.connect() as client:
        await call(client, "write")
    registered = [known["scope"] for known in world.issuer.clients.values() if "scope" in known]
    assert registered == ["read", "read write"]


async def test_a_client_that_registered_with_all_goes_on(world, autojump_clock):
    world.document["scopes_supported"] = ["read", "write"]
    async with world.connect() as client:
        await call(client, "write")
    registered = [known["scope"] for known in world.issuer.clients.values() if "scope" in known]
    assert registered == ["read write"]
    assert len({asked["redirect_uri"] for asked in world.issuer.asked}) == 1


async def test_what_the_person_does_not_grant_is_asked_for_once(world, autojump_clock):
    world.issuer.grants = {"read"}
    async with world.connect() as client:
        for _ in range(3):
            with pytest.raises(InsufficientScopeError, match=r"read write") as raised:
                await call(client, "write")
            assert raised.value.scopes == ("read", "write")
        assert await call(client, "read") == "read"
    assert world.pages == 2


async def test_a_server_that_is_never_content_is_given_up(world, autojump_clock):
    world.needs["write"] = ["write"]
    guard = world._guard

    def never(request):
        found = guard(request)
        if b'"write"' in request.content and (found is None or found.status_code == 403):
            return answer(403, www_authenticate='Bearer error="insufficient_scope", scope="write"')
        return found

    world._guard = never
    async with world.connect() as client:
        for _ in range(2):
            with pytest.raises(InsufficientScopeError, match="its issuer says that it does"):
                await call(client, "write")
    assert world.pages == 2


async def test_a_server_that_wants_something_new_each_time_is_given_up(world, autojump_clock):
    world.says = 0
    guard = world._guard

    def more(request):
        found = guard(request)
        if b'"write"' in request.content and (found is None or found.status_code == 403):
            world.says += 1
            return answer(403, www_authenticate=f'Bearer error="insufficient_scope", scope="s{world.says}"')
        return found

    world._guard = more
    async with world.connect() as client:
        with pytest.raises(Exception, match="refuses the token"):
            await call(client, "write")
    assert world.pages <= 6


async def test_who_names_nothing_is_asked_what_it_lists(world, autojump_clock):
    world.document["scopes_supported"] = ["read", "write"]
    guard = world._guard

    def nameless(request):
        found = guard(request)
        if found is not None and found.status_code == 403:
            return answer(403, www_authenticate='Bearer error="insufficient_scope"')
        return found

    world._guard = nameless
    async with world.connect() as client:
        assert await call(client, "write") == "written"
        world.needs["write"] = ["write", "secret"]
        with pytest.raises(InsufficientScopeError):
            await call(client, "write")
    assert world.pages == 2


async def test_a_403_that_is_about_something_else_is_told_as_it_is(world, autojump_clock):
    guard = world._guard
    world.needs["write"] = []
    world._guard = lambda request: guard(request) or (answer(403) if b'"write"' in request.content else None)
    async with world.connect() as client:
        with pytest.raises(StatusError, match="403"):
            await call(client, "write")
    assert world.pages == 1


async def test_an_issuer_that_does_not_say_what_it_grants_is_believed(world, autojump_clock):
    world.issuer.says_scope = False
    async with world.connect() as client:
        assert await call(client, "write") == "written"
        world.issuer.grants = {"read"}
        world.issuer.take_back()
        with pytest.raises(InsufficientScopeError):
            await call(client, "write")
    assert world.pages == 3


async def test_what_another_connection_has_stepped_up_to_is_used(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as one, world.connect(world.auth(store=store)) as other:
        await call(one, "read")
        await call(other, "write")
        await call(one, "write")
    assert world.pages == 2


async def test_what_nobody_was_there_for_is_asked_for_the_next_time(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        with pytest.raises(LoginNeededError, match=r"does not allow that \(read write\); .*mcpbus login"):
            await call(client, "write")
        assert await call(client, "read") == "read"
    await log_in(world.url, world.auth(store=store))
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        assert await call(client, "write") == "written"
    assert [asked["scope"] for asked in world.issuer.asked] == ["read", "read write"]


# -- an issuer that has forgotten the client -----------------------------------------------------------


async def forgotten_by(world, store):
    """Log in, and have the issuer forget the client; return what stays of the person's pages."""
    world.document["scopes_supported"] = [
        "read",
        "write",
    ]  # so that the client need not register for more scopes
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    [name] = [name for name in world.issuer.clients if name != "known"]
    del world.issuer.clients[name]
    return name


def clients_asked(world):
    return [asked["client_id"] for asked in world.issuer.asked]


@pytest.mark.parametrize("gives_up", ["after its time", "by a cancellation"])
async def test_a_page_that_led_nowhere_is_followed_by_one_of_a_client_that_registers_again(
    gives_up, world, autojump_clock
):
    store = MemoryTokenStorage()
    name = await forgotten_by(world, store)

    async def error_page(page):
        if world.issuer.clients.keys() & {*parse_qs(urlsplit(page).query)["client_id"]}:
            return world.issuer.authorize(page)
        return await trio.sleep_forever()

    # Each is a program of its own, as `mcpbus call` is.
    with trio.move_on_after(20 if gives_up == "by a cancellation" else 1000):
        async with world.connect(world.auth(store=store, open_page=error_page, timeout=300)) as client:
            with pytest.raises(LoginNeededError, match="within 300 s") as raised:
                await call(client, "write")
            assert raised.value.person_asked
            assert await call(client, "read") == "read"
    async with world.connect(world.auth(store=store, open_page=error_page, timeout=300)) as client:
        assert await call(client, "write") == "written"
    assert clients_asked(world)[0] == name
    assert name not in clients_asked(world)[1:]


@pytest.mark.parametrize("at", ["the page", "the token endpoint"])
@pytest.mark.parametrize("code", ["invalid_client", "unauthorized_client"])
async def test_an_issuer_that_reports_that_it_has_forgotten_the_client_gets_another_one_at_once(
    at, code, world, autojump_clock
):
    store = MemoryTokenStorage()
    name = await forgotten_by(world, store)
    if at == "the token endpoint" and code == "unauthorized_client":
        token = world.issuer._token
        world.issuer._token = lambda request, form: (
            answer(400, json={"error": code}) if form.get("client_id") == name else token(request, form)
        )

    async def person(page):
        forgotten = f"client_id={name}" in page
        back = {"code": None, "error": code} if forgotten and at == "the page" else {}
        return world.issuer.authorize(page, **back)

    async with world.connect(world.auth(store=store, open_page=person)) as client:
        assert await call(client, "write") == "written"
    assert clients_asked(world).count(name) == 2
    assert clients_asked(world)[-1] != name


async def test_a_person_who_declines_at_a_known_client_does_not_make_it_register_again(world, autojump_clock):
    store = MemoryTokenStorage()
    world.document["scopes_supported"] = ["read", "write"]
    async with world.connect(world.auth(store=store)) as client:
        await call(client)

    async def decline(page):
        return world.issuer.authorize(page, code=None, error="access_denied")

    async with world.connect(world.auth(store=store, open_page=decline)) as client:
        with pytest.raises(LoginRefusedError):
            await call(client, "write")
    async with world.connect(world.auth(store=store)) as client:
        assert await call(client, "write") == "written"
    assert len({*clients_asked(world)}) == 1


async def test_a_client_that_was_given_is_not_replaced_where_the_issuer_has_forgotten_it(
    world, autojump_clock
):
    given = {"client_id": "known", "client_secret": "s3cret", "store": MemoryTokenStorage()}
    async with world.connect(world.auth(**given)) as client:
        await call(client)
        del world.issuer.clients["known"]
        with pytest.raises(LoginRefusedError, match="invalid_client"):
            await call(client, "write")
    assert clients_asked(world) == ["known", "known"]


async def test_an_issuer_that_does_not_let_the_forgotten_client_register_is_asked_once(world, autojump_clock):
    store = MemoryTokenStorage()
    await forgotten_by(world, store)
    world.issuer.instead["/register"] = answer(403, json={"error": "access_denied"})
    async with world.connect(world.auth(store=store)) as client:
        with pytest.raises(LoginRefusedError, match="does not let this client register") as raised:
            await call(client, "write")
    assert raised.value.person_asked
