"""What no message and no line of the log has: the query of a server's URL, in which there may be a key, and what was issued or shown."""

import logging
from contextlib import asynccontextmanager

import httpx2
import pytest
import trio
from internet import answer
from login_world import META, call, now, open_world

from mcpbus.client import ClientCredentials, ClientError, FileTokenStorage, MemoryTokenStorage, connect_http
from mcpbus.client.oauth.login_commands import log_in

KEY = "k3y"
URL = f"https://mcp.example/mcp?key={KEY}"


@asynccontextmanager
async def open_with_key(url=URL):
    async with open_world(url=url) as world:
        world.document["resource"] = url.partition("?")[0]
        yield world


def named_elsewhere(world):
    world.document["resource"] = f"https://bank.example/mcp?key={KEY}"


def without_issuers(world):
    world.document["authorization_servers"] = []


def without_resource(world):
    del world.document["resource"]


def without_metadata(world):
    world.document = None


def without_any(world):
    world.document = None
    world.issuer.instead["/register"] = lambda _: answer(400, json={"error": "no"})


def unavailable(world):
    world.challenges = False
    world.instead[META] = lambda _: answer(503)


def busy(world):
    world.challenges = False
    world.instead[META] = lambda _: answer(429)


def down(world):
    world.challenges = False
    world.net.down.add("id.example")


def absent(world):
    world.absent = 1e6


def refusing(world):
    world.issuer.instead["/token"] = lambda _: answer(400, json={"error": "invalid_grant"})


def mistaken(world):
    world.issuer.instead["/token"] = lambda _: answer(json={"access_token": "x", "token_type": "Bearer"})


def stingy(world):
    world.issuer.grants = ["read"]
    world.needs[""] = ["read", "write"]


async def fails(world, auth, caplog, url=URL):
    caplog.set_level(logging.DEBUG, "mcpbus")
    with pytest.raises(ClientError) as raised:
        async with connect_http(url, auth=auth) as client:
            await call(client)
    assert KEY not in f"{caplog.text} {raised.value} {raised.value!r}"
    assert "example" in str(raised.value)  # it says where
    return str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        named_elsewhere,
        without_issuers,
        without_resource,
        without_metadata,
        without_any,
        unavailable,
        busy,
        down,
        absent,
        refusing,
        mistaken,
        stingy,
    ],
)
async def test_a_query_is_in_no_message(wrong, autojump_clock, caplog):
    async with open_with_key() as world:
        wrong(world)
        await fails(world, world.auth(), caplog)


async def test_nor_where_nobody_is_there(autojump_clock, caplog):
    async with open_with_key() as world:
        told = await fails(world, world.auth(open_page=None), caplog)
        assert "`mcpbus login https://mcp.example/mcp?...`" in told


async def test_nor_where_a_store_is_at_fault(autojump_clock, caplog):
    class Broken(MemoryTokenStorage):
        async def save(self, server, login):
            raise OSError(server)

    async with open_with_key() as world:
        await fails(world, world.auth(store=Broken()), caplog)
        store = MemoryTokenStorage()
        await store.save(URL, b"{}")
        assert "mcpbus logout" in await fails(world, world.auth(store=store), caplog)


async def test_nor_where_another_program_is_waited_for(autojump_clock, caplog, tmp_path):
    async with open_with_key() as world:
        one, other = FileTokenStorage(tmp_path), FileTokenStorage(tmp_path)
        async with one.lock(URL):
            with trio.move_on_after(10):
                async with world.connect(world.auth(store=other)):
                    pass
    assert "is waited for" in caplog.text
    assert KEY not in caplog.text


async def test_nor_of_what_is_renewed_or_not(autojump_clock, caplog):
    async with open_with_key() as world:
        caplog.set_level(logging.DEBUG, "mcpbus")
        async with world.connect() as client:
            await call(client)
            world.issuer.instead["/token"] = lambda _: answer(503)
            await trio.sleep(world.issuer.life - 10)
            await call(client)
            world.issuer.instead["/token"] = lambda _: answer(400, json={"error": "invalid_grant"})
            await trio.sleep(world.issuer.life)
            with pytest.raises(ClientError) as raised:
                await call(client)
    assert [each for each in ("logged in", "renewed yet", "is not renewed") if each not in caplog.text] == []
    assert KEY not in f"{caplog.text} {raised.value}"


async def test_nor_where_no_login_is_asked_for_or_none_would_be_safe(autojump_clock, caplog):
    async with open_with_key() as world:
        world.document = None
        world._guard = lambda _: None
        with pytest.raises(ClientError, match=r"mcp\?\.\.\. asks for no login"):
            await log_in(URL, world.auth())
    async with open_with_key("http://mcp.example/mcp?key=k3y") as world:
        program = ClientCredentials(client_id="known", client_secret="s3cret", clock=now)
        assert "must be https" in await fails(world, program, caplog, "http://mcp.example/mcp?key=k3y")


async def test_nor_is_what_an_issuer_or_a_server_says_of_a_secret(autojump_clock, caplog):
    """Some quote what they refuse."""
    quoted = []

    def quote(request):
        said = dict(httpx2.QueryParams(request.content.decode()))
        quoted.extend(said.get(name) for name in ("code", "code_verifier", "refresh_token", "client_secret"))
        return answer(400, json={"error": "invalid_grant", "error_description": f"{said} is no good"})

    async with open_world() as world:
        caplog.set_level(logging.DEBUG, "mcpbus")
        auth = world.auth(client_id="known", client_secret="s3cret")
        world.issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        said = []
        async with world.connect(auth) as client:
            await call(client)
            world.issuer.instead["/token"] = quote
            world.issuer.tokens.clear()
            with pytest.raises(ClientError) as raised:
                await call(client)
            said.append(str(raised.value))
        quoted = [each for each in quoted if each]
        assert len(quoted) == 5

        def guard(request):
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            quoted.append(token)
            return answer(
                401, www_authenticate=f'Bearer error="invalid_token", error_description="no {token}"'
            )

        world.issuer.instead.clear()
        world._guard = guard
        with pytest.raises(ClientError, match=r"just issued for it: no \.\.\.") as raised:
            async with world.connect(auth):
                pass
        said.append(str(raised.value))
    told = f"{caplog.text} {said}"
    assert [each for each in quoted if each and each in told] == []
    assert "is no good" in told


@pytest.mark.parametrize("metadata", [True, False], ids=["an issuer", "a guess"])
async def test_nor_is_a_query_in_the_page_to_log_in_at(metadata, autojump_clock):
    async with open_world(url=URL, issuer="https://mcp.example") as world:
        world.document = None
        issues = ["/register", "/token", *(["/.well-known/oauth-authorization-server"] if metadata else [])]

        async def both(request):
            return await (world.issuer if request.url.path in issues else world._serve)(request)

        world._guard = lambda request: None if request.headers.get("authorization") else answer(401)
        world.net.hosts["mcp.example"] = both
        async with world.connect() as client:
            assert await call(client) == "read"
    assert [asked["resource"] for asked in world.issuer.asked] == ["https://mcp.example/mcp"]
    assert KEY not in "".join(visit.body.decode() for visit in world.net.visits if visit.path in issues)
