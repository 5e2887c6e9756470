"""Tokens of issuers that others wrote: a login from end to end, opaque tokens, and tokens that claim what they should not."""

import json
import time

import pytest
import trio
from signing_in import TOLERATED, Browser, Storage, make_server, said, signed_in, take_port

from mcpbus.auth import IntrospectionVerifier, JwtVerifier, ResourceServer
from mcpbus.auth.issuer_http import HttpxIssuerHttp
from mcpbus.testing import open_bus, open_probe

pytestmark = pytest.mark.xdist_group("issuers")  # they are started once
RESOURCE = "http://localhost/mcp"
LOGIN = ("program", "secret")
READ = ["files:read"]
WEB = HttpxIssuerHttp()


async def ask(url, form, auth=None):
    """Ask an issuer for something, and return its answer."""
    status, body = await WEB.request("POST", url, form, auth)
    assert status == 200, body
    return body


async def answers_to(server, *tokens):
    """What a server answers those who call it with these tokens."""
    call = {"name": "read", "arguments": {}}
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        return [
            await probe.request("tools/call", call, headers={"authorization": f"Bearer {token}"}).ended()
            for token in tokens
        ]


@TOLERATED
async def test_the_official_client_logs_in_steps_up_and_refreshes_at_oidc_provider(issuers):
    (url, bind), browser, storage = take_port(), Browser(), Storage()
    auth = ResourceServer(f"{url}/mcp", JwtVerifier(issuers["oidc"], web=WEB), scopes=READ)
    with trio.fail_after(120):
        async with make_server(auth).open() as bus, trio.open_nursery() as nursery:
            [url] = await nursery.start(lambda task_status: bus.serve(bind=bind, task_status=task_status))
            async with signed_in(url, browser, storage) as session:
                assert await said(session, "read") == "ada"
                assert [visit.params["scope"] for visit in browser.visited] == ["files:read"]

                assert await said(session, "write") == "written"
                assert set(browser.visited[1].params["scope"].split()) == {"files:read", "files:write"}

                first = storage.tokens.access_token
                await trio.sleep(storage.tokens.expires_in + 0.1)
                assert await said(session, "write") == "written"
                assert storage.tokens.access_token != first
                assert len(browser.visited) == 2
            nursery.cancel_scope.cancel()
        auth.clock = lambda: time.time() + 60
        [late] = await answers_to(make_server(auth), storage.tokens.access_token)
        assert (late.status, "it has expired" in late.headers["www-authenticate"]) == (401, True)


async def test_oidc_provider_is_asked_about_opaque_tokens(issuers):
    issuer = issuers["oidc"]
    form = {"grant_type": "client_credentials", "resource": RESOURCE, "scope": "files:read"}
    token = json.loads(await ask(f"{issuer}/token", form, LOGIN))["access_token"]
    assert "." not in token
    verifier = IntrospectionVerifier(issuer, client_id=LOGIN[0], client_secret=LOGIN[1], web=WEB)
    auth = ResourceServer(RESOURCE, verifier, scopes=READ)
    server = make_server(auth)
    [found] = await answers_to(server, token)
    assert found.messages[-1]["result"]["content"][0]["text"] == "program"
    await ask(f"{issuer}/token/revocation", {"token": token}, LOGIN)
    [again] = await answers_to(server, token)
    assert again.status == 200
    auth.clock = lambda: time.time() + 61
    [refused] = await answers_to(server, token)
    assert (refused.status, "it is not active" in refused.headers["www-authenticate"]) == (401, True)


GOOD = [
    {},
    {"payload": {"aud": ["https://other.example", RESOURCE]}},
    {"payload": {"scope": None, "scp": READ}},
    {"header": {"kid": None}},
]
FORGED = {
    "it was issued by somebody else": {"payload": {"iss": "https://evil.example"}},
    "it was issued for another audience": {"payload": {"aud": "https://other.example"}},
    "it never expires": {"payload": {"exp": None}},
    "it has expired": {"payload": {"exp": 1_000_000_000}},
    "it is not valid yet": {"payload": {"nbf": 4_000_000_000}},
    "it does not say whose it is": {"payload": {"sub": 7}},
    "it is signed with a key that the issuer does not have": {"header": {"kid": "another"}},
    "it has critical extensions, of which none is known here": {"header": {"crit": ["b64"], "b64": True}},
}


async def forged(issuer, forge):
    """A token that claims what one says."""
    form = {"grant_type": "client_credentials", "scope": "files:read", "forge": json.dumps(forge)}
    return json.loads(await ask(f"{issuer}/token", form, LOGIN))["access_token"]


def guarded(issuer, *scopes):
    return make_server(ResourceServer(RESOURCE, JwtVerifier(issuer, web=WEB), scopes=scopes))


async def test_good_tokens_of_the_mock_server_are_good(issuers):
    tokens = [await forged(issuers["mock"], forge) for forge in GOOD]
    answers = await answers_to(guarded(issuers["mock"], *READ), *tokens)
    assert [answer.status for answer in answers] == [200] * len(GOOD)


async def test_forged_tokens_of_the_mock_server_are_refused(issuers):
    tokens = [await forged(issuers["mock"], forge) for forge in FORGED.values()]
    answers = await answers_to(guarded(issuers["mock"], *READ), *tokens)
    for why, answer in zip(FORGED, answers, strict=True):
        said = answer.headers["www-authenticate"]
        assert (answer.status, f"the token is no good: {why}" in said) == (401, True), (why, said)
        assert "evil" not in f"{answer.headers}{answer.body}"


async def test_a_token_of_the_mock_server_that_allows_too_little_is_asked_for_more(issuers):
    server = guarded(issuers["mock"], *READ, "files:write")
    [refused] = await answers_to(server, await forged(issuers["mock"], {}))
    said = refused.headers["www-authenticate"]
    assert (refused.status, 'scope="files:read files:write"' in said) == (403, True)
