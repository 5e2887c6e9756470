"""Our client at servers of ours, logged in to by issuers that others wrote: from end to end, over sockets."""

from contextlib import asynccontextmanager

import attrs
import httpx2
import pytest
import trio
from signing_in import make_server, take_port

from mcpbus import Proxy
from mcpbus.auth import IntrospectionVerifier, JwtVerifier, ResourceServer
from mcpbus.auth.issuer_http import HttpxIssuerHttp
from mcpbus.client import (
    ClientCredentials,
    LoginError,
    LoginNeededError,
    LoginRefusedError,
    MemoryTokenStorage,
    OAuth,
    connect_http,
)
from mcpbus.client.oauth.login import decode_login
from mcpbus.client.oauth.login_commands import LoggedOut, log_in, log_out
from mcpbus.testing import open_client

pytestmark = [
    pytest.mark.xdist_group("issuers"),  # they are started once
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]
WEB = HttpxIssuerHttp()
SECONDS = 2
"""For how long signed tokens are good: see `issuers.mjs`."""


class Person:
    """Goes wherever the page leads, and agrees; what the issuer was asked for is noted."""

    def __init__(self):
        self.asked = []

    async def __call__(self, page):
        self.asked.append(httpx2.URL(page).params)
        async with httpx2.AsyncClient(follow_redirects=True, timeout=60) as browser:
            shown = await browser.get(page)
        assert "You are logged in" in shown.text


@asynccontextmanager
async def served(issuer, *, opaque=False):
    """Serve a server for which an issuer issues tokens; yields where it is."""
    url, bind = take_port()
    verifier = JwtVerifier(issuer, web=WEB)
    if opaque:
        verifier = IntrospectionVerifier(issuer, client_id="program", client_secret="secret", web=WEB)
    auth = ResourceServer(f"{url}/mcp", verifier, scopes=["files:read"])
    with trio.fail_after(120):
        async with make_server(auth).open() as bus, trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: bus.serve(bind=bind, task_status=task_status))
            yield f"{url}/mcp"
            nursery.cancel_scope.cancel()


async def call(client, tool):
    return (await client.call_tool(tool))["content"][0]["text"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_it_logs_in_steps_up_and_stays_logged_in_at_oidc_provider(revision, issuers):
    person, store = Person(), MemoryTokenStorage()
    async with served(issuers["oidc"]) as url:
        auth = OAuth(open_page=person, store=store)
        async with connect_http(url, auth=auth, revision=revision) as client:
            assert await call(client, "read") == "ada"
            assert await call(client, "write") == "written"
            assert [set(asked["scope"].split()) for asked in person.asked] == [
                {"files:read"},
                {"files:read", "files:write"},
            ]
            first = await store.load(url)
            for _ in range(2):
                await trio.sleep(SECONDS + 0.1)
                assert await call(client, "write") == "written"
        assert await store.load(url) != first
        async with connect_http(url, auth=attrs.evolve(auth, open_page=None)) as client:
            assert await call(client, "write") == "written"
    assert len(person.asked) == 2


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"client_id": "desk", "client_secret": "s3cret"},
        {"client_metadata_url": "https://app.example/client.json"},
    ],
    ids=["it registers", "it is known", "it has a document"],
)
async def test_oidc_provider_knows_it_in_each_way(known, issuers):
    person = Person()
    auth = OAuth(open_page=person, issuer=issuers["oidc"], **known)
    async with served(issuers["oidc"]) as url, connect_http(url, auth=auth) as client:
        assert await call(client, "read") == "ada"
        await trio.sleep(SECONDS + 0.1)
        assert await call(client, "read") == "ada"
    [asked] = person.asked
    if known:
        assert asked["client_id"] in known.values()


async def test_it_asks_for_what_outlives_the_person_where_the_issuer_has_that(issuers):
    person, store = Person(), MemoryTokenStorage()
    async with served(issuers["offline"]) as url:
        async with connect_http(url, auth=OAuth(open_page=person, store=store)) as client:
            assert await call(client, "read") == "ada"
            await trio.sleep(SECONDS + 0.1)
            assert await call(client, "read") == "ada"
        assert decode_login(await store.load(url), url).tokens.refresh
    [asked] = person.asked
    assert (set(asked["scope"].split()), asked["prompt"]) == ({"files:read", "offline_access"}, "consent")


async def test_a_login_that_oidc_provider_has_taken_back_is_followed_by_another_one(issuers):
    person, store = Person(), MemoryTokenStorage()
    async with served(issuers["oidc"]) as url:
        auth = OAuth(open_page=person, store=store)
        async with connect_http(url, auth=auth) as client:
            assert await call(client, "read") == "ada"
            kept = await store.load(url)
            assert await log_out(url, store) == LoggedOut(issuers["oidc"], revoked=True)
            # Another program has it yet, and does not know.
            await store.save(url, kept)
            await trio.sleep(SECONDS + 0.1)
            with pytest.raises(LoginNeededError):
                async with connect_http(url, auth=attrs.evolve(auth, open_page=None)) as other:
                    await call(other, "read")
            assert await call(client, "read") == "ada"
    assert len(person.asked) == 2


async def test_many_at_once_log_in_and_renew_once_at_oidc_provider(issuers):
    person, store, said = Person(), MemoryTokenStorage(), []

    async def use():
        async with connect_http(url, auth=OAuth(open_page=person, store=store)) as client:
            for _ in range(3):
                async with trio.open_nursery() as calls:
                    for _ in range(5):
                        calls.start_soon(call, client, "read")
                await trio.sleep(SECONDS + 0.1)
            said.append(await call(client, "read"))

    async with served(issuers["oidc"]) as url, trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(use)
    assert said == ["ada"] * 4
    # It takes all back where a refresh token comes twice, and somebody would have to log in again.
    assert len(person.asked) == 1


async def test_a_program_logs_in_for_itself_at_oidc_provider(issuers):
    async with served(issuers["oidc"], opaque=True) as url:
        auth = ClientCredentials(client_id="program", client_secret="secret", issuer=issuers["oidc"])
        async with connect_http(url, auth=auth) as client:
            assert await call(client, "read") == "program"
            assert await call(client, "write") == "written"
        wrong = ClientCredentials(client_id="program", client_secret="wrong", issuer=issuers["oidc"])
        with pytest.raises(LoginRefusedError, match="invalid_client") as raised:
            async with connect_http(url, auth=wrong):
                pass
        assert "wrong" not in str(raised.value)


async def test_a_client_that_the_issuer_does_not_know_is_told_by_its_page(issuers):
    async def fail(page):
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            assert (await browser.get(page)).status_code == 400

    async with served(issuers["oidc"]) as url:
        with pytest.raises(LoginNeededError, match="nobody has logged in"):
            async with connect_http(url, auth=OAuth(client_id="nobody", open_page=fail, timeout=1)):
                pass


async def test_a_proxy_logs_in_at_oidc_provider(issuers):
    login = OAuth(open_page=(person := Person()))
    async with served(issuers["oidc"]) as url, open_client(Proxy(url, login=login)) as client:
        assert await call(client, "read") == "ada"
        await trio.sleep(SECONDS + 0.1)
        assert await call(client, "write") == "written"
    assert len(person.asked) == 2


async def test_it_logs_in_at_the_mock_server_which_lets_no_client_register(issuers):
    person = Person()
    async with served(issuers["mock"]) as url:
        with pytest.raises(LoginNeededError, match="client_id"):
            await log_in(url, OAuth(open_page=person))
        store = MemoryTokenStorage()
        assert await log_in(url, OAuth(client_id="mine", open_page=person, store=store)) == issuers["mock"]
        async with connect_http(url, auth=OAuth(open_page=None, store=store)) as client:
            assert await call(client, "write") == "written"
        assert (await log_out(url, store)).revoked
    assert len(person.asked) == 1


async def test_a_token_of_another_issuer_is_no_good(issuers):
    """And is not sent there: the login is at the issuer that the server names."""
    person, store = Person(), MemoryTokenStorage()
    async with served(issuers["oidc"]) as url:
        with pytest.raises(LoginError, match="the only one to log in at"):
            async with connect_http(url, auth=OAuth(open_page=person, store=store, issuer=issuers["mock"])):
                pass
    assert person.asked == []
