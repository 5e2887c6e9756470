"""Who is let in, and what the others are told: each case of the table, over each way in."""

import pytest
from guarded import METADATA, WAYS, bearing, challenge_of, guarded

from mcpbus.testing.recording import Recording, SentRequest

EACH_WAY = pytest.mark.parametrize("way", WAYS)
ASKING = {"scheme": "Bearer", "scope": "files:read", "resource_metadata": METADATA}


@EACH_WAY
@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Basic YWRhOmFkYQ=="}, {"authorization": ""}, {"authorization": "Bearerx y"}],
)
async def test_who_brings_no_token_is_told_where_to_get_one(way, headers, autojump_clock):
    async with guarded() as it:
        answer = await it.send(way, headers)
        assert (answer.status, challenge_of(answer)) == (401, ASKING)
        assert it.issuer.asked == []


@EACH_WAY
@pytest.mark.parametrize(
    "value", ["Bearer", "bearer ", "Bearer a b", "Bearer ,", "Bearer a=b", "BEARER \xe4"]
)
async def test_what_is_no_credentials_is_a_bad_request(way, value, autojump_clock):
    async with guarded() as it:
        answer = await it.send(way, {"authorization": value})
        said = challenge_of(answer)
        assert (answer.status, said.pop("error_description")) == (
            400,
            "the Authorization header holds no token that can be read",
        )
        assert said == {**ASKING, "error": "invalid_request"}


@EACH_WAY
async def test_who_brings_a_good_token_is_let_in(way, autojump_clock):
    async with guarded() as it:
        token = bearing(it.issuer.token("ada", ["files:read"]))
        session = (await it.probe.initialize(headers=token)).id
        if way == "sse post":
            await it.send("sse", token)
            await it.quiet()
            session = it.sse_session
        answer = await it.send(way, token, session=session)
        expected = {"websocket": 101, "delete": 204, "sse post": 202}
        assert answer.status == expected.get(way, 200)


@EACH_WAY
async def test_a_token_that_allows_too_little_is_answered_with_what_it_lacks(way, autojump_clock):
    async with guarded() as it:
        good, poor = (bearing(it.issuer.token("ada", scopes)) for scopes in (["files:read"], ["other"]))
        session = (await it.probe.initialize(headers=good)).id
        if way == "sse post":
            await it.send("sse", good)
            await it.quiet()
            session = it.sse_session
        answer = await it.send(way, poor, session=session)
        said = challenge_of(answer)
        assert (answer.status, said.pop("error_description")) == (403, "the token does not allow this")
        assert said == {**ASKING, "error": "insufficient_scope"}


@EACH_WAY
async def test_while_the_issuer_cannot_be_asked_a_token_may_be_good(way, autojump_clock):
    async with guarded() as it:
        it.issuer.down = True
        answer = await it.send(way, it.issuer.bearer("ada", ["files:read"]))
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize("way", ["modern", "legacy", "get", "sse"])
async def test_host_and_origin_come_first_and_the_body_comes_last(way, autojump_clock):
    async with guarded() as it:
        assert (await it.send(way, {"origin": "https://evil.example"})).status == 403
        assert (await it.send(way, {"content-type": "text/plain"})).status == 401
        poor = it.issuer.bearer("ada")
        for fault in ({"content-type": "text/plain"}, {"accept": "image/png"}, {"mcp-session-id": "unknown"}):
            answer = await it.send(way, {**poor, **fault}, session="unknown")
            assert (answer.status, challenge_of(answer)["error"]) == (403, "insufficient_scope")


async def test_a_token_in_the_query_is_ignored(autojump_clock):
    async with guarded() as it:
        token = it.issuer.token("ada", ["files:read"])
        answer = await it.probe.send("POST", b"{}", target=f"/mcp?access_token={token}").ended()
        assert (answer.status, "error" in challenge_of(answer)) == (401, False)


@EACH_WAY
async def test_nothing_is_allocated_for_who_is_not_let_in_and_nothing_is_echoed(way, autojump_clock, caplog):
    async with guarded() as it:
        await it.quiet()
        before = it.bus.system.statistics().spawned
        forged = it.issuer.sign(b'{"iss":"https://evil-marker.example"}')
        for headers in (
            {},
            bearing(forged),
            {"authorization": "Bearer evil marker"},
            it.issuer.bearer("marker"),
        ):
            answer = await it.send(way, headers)
            assert answer.status in {400, 401, 403}
            whole = f"{answer.headers}{answer.body}"
            assert "marker" not in whole
            assert headers.get("authorization", "evil marker") not in whole
        assert it.bus.system.statistics().spawned == before
        assert it.bus.statistics().emitted == 0
        assert "marker" not in caplog.text


@pytest.mark.parametrize("way", ["endpoint", "sse"])
async def test_two_authorization_headers_are_a_bad_request(way, autojump_clock):
    async with guarded() as it:
        good = it.issuer.bearer("ada", ["files:read"])["authorization"].encode()
        fields = [(b"host", b"localhost"), (b"authorization", good), (b"authorization", good)]
        fields += [(b"accept", b"text/event-stream"), (b"content-length", b"0")]
        answer = Recording()
        verb, path = ("POST", "/mcp") if way == "endpoint" else ("GET", "/sse")
        it.probe._carrier.send(SentRequest(verb, path, "", fields, b""), answer)
        await answer.ended()
        assert (answer.status, challenge_of(answer)["error"]) == (400, "invalid_request")


@pytest.mark.parametrize("way", ["modern", "legacy"])
async def test_a_browser_may_read_the_challenge_of_an_allowed_page(way, autojump_clock):
    async with guarded() as it:
        answer = await it.send(way, {"origin": "http://localhost:3000"})
        assert answer.status == 401
        assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
        assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("target", ["/mcp", "/sse"])
async def test_a_preflight_needs_no_token(target, autojump_clock):
    async with guarded() as it:
        asked = {
            "origin": "http://localhost:3000",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, mcp-protocol-version",
        }
        answer = await it.probe.send("OPTIONS", headers=asked, target=target).ended()
        assert answer.status == 204
        assert "authorization" in answer.headers["access-control-allow-headers"]
