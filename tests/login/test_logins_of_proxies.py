"""A proxy for a server behind a login: it begins, waits, goes on, and opens no page twice."""

import itertools

import pytest
import trio
from internet import answer
from login_world import META, call

from mcpbus import ProtocolError, Proxy
from mcpbus.client import FileTokenStorage, LoginError, MemoryTokenStorage
from mcpbus.client.oauth.login import decode_login
from mcpbus.client.oauth.login_commands import log_in, log_out
from mcpbus.gateway import gateway
from mcpbus.testing import open_client
from mcpbus.upstream.target import UpstreamError


async def names(client):
    return [tool["name"] for tool in await client.list_tools()]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_proxy_logs_in_once_for_all_its_clients(revision, world, autojump_clock):
    proxy = Proxy(world.url, login=world.auth())
    async with proxy.open() as bus:
        for _ in range(3):
            async with bus.connect(revision=revision) as client:
                assert await names(client) == ["read", "write"]
                assert await call(client) == "read"
    assert world.pages == 1


async def test_a_call_steps_up(world, autojump_clock):
    async with open_client(Proxy(world.url, login=world.auth())) as client:
        assert await call(client, "write") == "written"
    assert world.pages == 2


async def test_a_person_who_takes_long_keeps_no_client_waiting(world, autojump_clock):
    world.absent = 200
    async with open_client(Proxy(world.url, login=world.auth())) as client:
        assert 30 <= trio.current_time() < 60
        assert await names(client) == []
        async with client.listen(tools=True) as changes:
            method, _ = await anext(changes)
        assert method == "notifications/tools/list_changed"
        assert trio.current_time() < 220
        assert await names(client) == ["read", "write"]
        assert await call(client) == "read"
    assert world.pages == 1


async def test_a_person_who_does_not_come_is_shown_one_page(world, autojump_clock, caplog):
    world.absent = 1e9
    store = MemoryTokenStorage()
    async with open_client(Proxy(world.url, login=world.auth(store=store, timeout=300))) as client:
        await trio.sleep(10_000)
        assert world.pages == 1
        assert f"`mcpbus login {world.url}`" in caplog.text
        # Whoever logs in elsewhere has logged in this one.
        world.absent = 0
        await log_in(world.url, world.auth(store=store))
        await trio.sleep(120)
        assert await call(client) == "read"
    assert world.pages == 2


async def test_where_nobody_is_it_says_what_to_do_and_does_not_begin(world, autojump_clock):
    with pytest.raises(UpstreamError, match=f"`mcpbus login {world.url}`"):
        async with open_client(Proxy(world.url, login=world.auth(open_page=None))):
            pass


async def test_a_call_for_which_somebody_has_to_log_in_is_told_so(world, autojump_clock, caplog):
    async def nobody(page):
        await trio.sleep_forever()

    pages = []

    async def show(page):
        pages.append(page)
        return await (world.person(page) if len(pages) == 1 else nobody(page))

    async with open_client(Proxy(world.url, login=world.auth(open_page=show, timeout=60))) as client:
        assert await call(client) == "read"
        world.issuer.take_back()
        with pytest.raises(ProtocolError, match="wants somebody to log in, and the log says how") as raised:
            await call(client)
        assert "id.example" not in raised.value.message
    assert "nobody has logged in at https://id.example" in caplog.text
    assert len(pages) == 2


async def test_a_token_is_renewed_for_a_proxy_that_nobody_looks_at(world, autojump_clock):
    async with open_client(Proxy(world.url, login=world.auth())) as client:
        await trio.sleep(100 * world.issuer.life)
        assert await call(client) == "read"
    assert world.pages == 1


async def test_a_gateway_uses_what_was_logged_in_to(world, autojump_clock, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    desk = gateway({"mcpServers": {"vault": {"url": world.url}}})
    async with open_client(desk) as client:
        await trio.sleep(10)
        assert await names(client) == []
        assert world.pages == 0
        assert f"`mcpbus login {world.url}`" in caplog.text
        await log_in(world.url, world.auth(store=FileTokenStorage()))
        await trio.sleep(120)
        assert await call(client, "vault_read") == "read"
    assert world.pages == 1


def test_a_login_is_for_a_url():
    with pytest.raises(TypeError, match="Proxy: login is nothing for a command"):
        Proxy(["python"], login=object())
    with pytest.raises(TypeError, match=r"OAuth\(\.\.\.\) or ClientCredentials"):
        Proxy("https://mcp.example/mcp", login="token")


async def test_a_server_that_names_no_issuer_yet_is_tried_again_and_shown_no_page_in_vain(
    world, autojump_clock
):
    del world.document["authorization_servers"]
    proxy = Proxy(world.url, login=world.auth(), optional=True)
    async with open_client(proxy) as client:
        await trio.sleep(100)
        world.document["authorization_servers"] = [world.issuer.name]
        await trio.sleep(100)
        assert [visit.path for visit in world.net.visits].count(META) > 2
        assert await call(client) == "read"
    assert world.pages == 1


def refuse_all(world):
    world._guard = lambda _: answer(401, www_authenticate='Bearer scope="read"')


def want_what_is_not_granted(world):
    world.needs[""] = ["read", "write"]
    world.issuer.grants = ["read"]


def want_something_new_each_time(world):
    numbers = itertools.count()

    def guard(request):
        token = request.headers.get("authorization")
        if token is None:
            return answer(401, www_authenticate="Bearer")
        scope = f"scope-{next(numbers)}"
        return answer(403, www_authenticate=f'Bearer error="insufficient_scope", scope="{scope}"')

    world._guard = guard


def let_nobody_come_back_for_more(world):
    world.needs[""] = ["read", "write"]
    world.issuer.grants = ["read"]
    person = world.person

    async def once(page):
        if world.pages:
            world.absent = 1e9
        return await person(page)

    world.person = once
    guard = world._guard
    world._guard = lambda request: (
        guard(request)
        if request.headers.get("authorization")
        else answer(401, www_authenticate='Bearer scope="read"')
    )


@pytest.mark.parametrize(
    ("wrong", "most"),
    [
        (refuse_all, 1),
        (want_what_is_not_granted, 2),
        (want_something_new_each_time, 5),
        (let_nobody_come_back_for_more, 2),
    ],
)
async def test_a_server_that_is_never_content_has_no_page_shown_again_and_again(
    wrong, most, world, autojump_clock
):
    wrong(world)
    async with open_client(Proxy(world.url, login=world.auth(timeout=60), optional=True)):
        await trio.sleep(2_000)
        assert world.pages <= most


async def test_two_accounts_at_one_url_never_share_a_login(
    world, autojump_clock, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    world.net.hosts["id.example"].life = 1e9
    asked = []
    guard = world._guard

    def note(request):
        if b"tools/call" in request.content:
            asked.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        return guard(request)

    world._guard = note
    tokens = {}
    for account in ("work", None, "home"):
        store = FileTokenStorage(account=account)
        await log_in(world.url, world.auth(store=store))
        tokens[account] = decode_login(await store.load(world.url), world.url).tokens.access
    assert len({*tokens.values()}) == 3
    site = {"url": world.url}
    servers = {"a": {**site, "login": "work"}, "b": {**site, "login": "home"}, "c": site}
    async with open_client(gateway(servers)) as client:
        for name in ("a", "b", "c"):
            assert await call(client, f"{name}_read") == "read"
    assert asked == [tokens["work"], tokens["home"], tokens[None]]
    # A logout is of one account.
    await log_out(world.url, FileTokenStorage(account="work"))
    async with open_client(gateway(servers)) as client:
        await trio.sleep(10)
        assert await names(client) == ["b_read", "b_write", "c_read", "c_write"]
    assert f"`mcpbus login {world.url} --as work` does, in a terminal" in caplog.text


async def test_two_entries_at_one_url_without_a_name_ask_for_a_login_each(
    world, autojump_clock, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    await log_in(world.url, world.auth(store=FileTokenStorage()))
    servers = {"my work": {"url": world.url}, "home": {"url": f"{world.url}/"}}
    async with open_client(gateway(servers)) as client:
        await trio.sleep(10)
        assert await names(client) == []
        assert f"`mcpbus login {world.url} --as 'my work'`" in caplog.text
        await log_in(world.url, world.auth(store=FileTokenStorage(account="my work")))
        await trio.sleep(120)
        assert await names(client) == ["my_work_read", "my_work_write"]


async def test_a_login_of_a_name_that_cannot_be_read_is_removed_by_that_name(world, autojump_clock, tmp_path):
    store = FileTokenStorage(tmp_path, account="work")
    await store.save(world.url, b"{}")
    with pytest.raises(LoginError, match=f"mcpbus logout {world.url} --as work removes it"):
        async with world.connect(world.auth(store=store)):
            pass
