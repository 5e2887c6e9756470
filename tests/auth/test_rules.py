"""The rules for a resource server, each as a table of cases, on each way in: what a request brings, and how it is answered."""

import json

import pytest
import trio
from bad_tokens import BAD
from guarded import METADATA, RESOURCE, bearing
from ways_in import WAYS_IN, WebSocket, entered

from mcpbus.auth import IntrospectionVerifier
from mcpbus.testing import probe

# Each way in says itself through which shell it goes.
pytestmark = pytest.mark.skipif(probe.DEFAULT_SHELL == "asgi", reason="both shells were gone through already")

GOOD = ["files:read"]
PAGE = "https://page.example"
ASKED = {"resource_metadata": METADATA, "scope": "files:read", "scheme": "Bearer"}
PLACES = ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"]


def good(way, **options):
    return way.it.issuer.bearer("ada", GOOD, **options)


# -- what a case does ------------------------------------------------------------------------------


def token(subject="ada", scopes=GOOD, **options):
    """Send what comes first with a token of the issuer."""

    async def do(way):
        return (await way.first(way.it.issuer.bearer(subject, scopes, **options))).outcome

    return do


def made(make):
    """Send what comes first with a token that is made by hand."""

    async def do(way):
        return (await way.first(bearing(make(way.it.issuer)))).outcome

    return do


def brought(headers, query=""):
    """Send what comes first with some header fields."""

    async def do(way):
        return (await way.first(headers, query)).outcome

    return do


def challenged(make_headers):
    """Send what comes first, and return the whole challenge."""

    async def do(way):
        return (await way.first(make_headers(way))).challenge

    return do


def document(place, **headers):
    """Ask for the metadata."""

    async def do(way):
        answer = await way.it.probe.send("GET", headers=headers, target=place).ended()
        names = ("content-type", "access-control-allow-origin", "cache-control")
        return answer.status, *(answer.headers[name] for name in names), json.loads(answer.body)

    return do


def preflight(origin, place=None):
    """Ask as a browser does before a page's request, which goes where clients begin if no place is given."""

    async def do(way):
        asked = {"origin": origin, "access-control-request-method": "POST"}
        asked["access-control-request-headers"] = "authorization"
        answer = await way.it.probe.send("OPTIONS", headers=asked, target=place or way.place).ended()
        return answer.status, answer.headers["access-control-allow-origin"]

    return do


def called(tool, scopes=GOOD, **options):
    """Call a tool with a token, in a session where there is one; return the scopes that are missing, or the text."""

    async def do(way):
        async with way.client(way.it.issuer.bearer("ada", scopes, **options)) as ask:
            result = await ask("tools/call", {"name": tool, "arguments": {}})
            return result if isinstance(result, str) else result.get("structuredContent") or "done"

    return do


# -- the rules -------------------------------------------------------------------------------------


SAID = {
    "resource": RESOURCE,
    "authorization_servers": ["https://issuer.test"],
    "scopes_supported": GOOD,
    "bearer_methods_supported": ["header"],
}
FOUND = (200, "application/json", "*", "public, max-age=300", SAID)


async def where_the_challenge_leads(way):
    place = (await way.first({})).challenge["resource_metadata"].removeprefix("http://localhost")
    return (await document(place)(way))[-1]


async def while_nobody_can_be_asked(way):
    way.it.issuer.add_key()
    way.it.issuer.down = True
    await trio.sleep(31)
    answer = await way.first(good(way))
    way.it.issuer.down = False
    await trio.sleep(6)
    return answer.status, answer.headers["retry-after"], "www-authenticate" in answer.headers


async def what_is_echoed(way):
    """Return which of some words come back that a request has brought."""
    issuer, said = way.it.issuer, ""
    forged = issuer.token("marker-subject", ["marker-scope"], iss="https://marker.example")
    for headers in (
        bearing(forged),
        {"authorization": "Bearer marker ="},
        issuer.bearer("marker", ["marker"]),
    ):
        answer = await way.first(headers)
        said += f"{answer.headers}{answer.body}"
    return "marker" in said or forged.split(".")[1] in said


async def what_is_allocated(way):
    await way.it.quiet()
    before = way.it.bus.system.statistics().spawned
    for headers in ({}, bearing("x"), {"authorization": "Bearer"}, way.it.issuer.bearer("ada")):
        await way.first(headers)
    return way.it.bus.system.statistics().spawned - before


async def what_is_listed(way):
    async with way.client(good(way)) as ask:
        return [tool["name"] for tool in (await ask("tools/list", {}))["tools"]]


def in_a_session(headers):
    """Bring something else to a session of ada's."""

    async def do(way):
        async with way.client(good(way)) as ask:
            found = await ask("tools/call", {"name": "whoami", "arguments": {}}, headers(way.it.issuer))
            return found if isinstance(found, int) else found["structuredContent"]["subject"]

    return do


async def how_long_it_lasts(way):
    return await way.lasts(good(way, lifetime=100), [100 + 29, 100 + 31])


async def how_often_keys_are_fetched(way):
    for subject in ("ada", "bob"):
        await way.first(way.it.issuer.bearer(subject, GOOD))
    return way.it.issuer.asked


async def while_known_keys_serve(way):
    way.it.issuer.down, way.it.issuer.delay = True, 5.0
    before = trio.current_time()
    answer = await way.first(good(way))
    way.it.issuer.down, way.it.issuer.delay = False, 0.0
    return answer.status, trio.current_time() - before


async def how_often_it_is_asked_about_a_token(way):
    issuer = way.it.issuer
    brings = good(way)
    found = [(await way.first(brings)).status for _ in range(3)]
    issuer.revoke(brings["authorization"].removeprefix("Bearer "))
    await trio.sleep(61)
    found.append((await way.first(brings)).outcome)
    return found, issuer.asked.count(issuer.introspection_endpoint)


async def what_is_kept_to_itself(way):
    """Return whether a token, or what it says, is in a statistic or in what things say of themselves."""
    brings = way.it.issuer.bearer("ada", GOOD, email="marker@example.com")
    await way.first(brings)
    async with way.client(brings):
        bus = way.it.bus
        said = f"{bus.statistics()}{bus.server.auth!r}{bus.sessions!r}{bus.sessions.values()!r}"
    return brings["authorization"].split(".")[1] in said or "marker" in said


async def how_long_a_token_is_remembered(way):
    brings = good(way, lifetime=100)
    found = [(await way.first(brings)).status]
    # It is not verified again: that would find no key any more.
    way.it.issuer.keys.clear()
    await trio.sleep(128)
    found.append((await way.first(brings)).status)
    way.it.issuer.add_key()
    await trio.sleep(3)
    return [*found, (await way.first(brings)).outcome]


INVALID = (401, "invalid_token")
POOR = {**ASKED, "error": "insufficient_scope", "error_description": "the token does not allow this"}
UNREADABLE = (400, "invalid_request", "the Authorization header holds no token that can be read")
WHO = {"issuer": "https://issuer.test", "subject": "ada", "client": "test client"}
RULES = {
    "A1 where the metadata is": {place: (document(place), FOUND) for place in PLACES},
    "A2 anybody may read it": {
        "from a page": (document(PLACES[0], origin=PAGE), FOUND),
        "having asked before": (preflight(PAGE, PLACES[0]), (204, "*")),
    },
    "A3 what it says": {"all": (document(PLACES[0]), FOUND)},
    "A4 who the server is": {
        "upper case": (token(aud="HTTP://LOCALHOST/mcp"), 200),
        "a slash more": (token(aud=f"{RESOURCE}/"), 200),
        "another path": (token(aud=f"{RESOURCE}s"), (*INVALID, "it was issued for another audience")),
        "another host in the request": (challenged(lambda _: {"host": "localhost:9"}), ASKED),
    },
    "A5 the same on each way in": {
        "the challenge leads there": (where_the_challenge_leads, SAID),
        "a page asks first": (preflight("http://localhost:3000"), (204, "http://localhost:3000")),
    },
    "challenges": {
        "nothing": (challenged(lambda _: {}), ASKED),
        "another scheme": (challenged(lambda _: {"authorization": "Basic YTpi"}), ASKED),
        "nothing after Bearer": (brought({"authorization": "Bearer"}), UNREADABLE),
        "two tokens in one": (brought({"authorization": "Bearer a b"}), UNREADABLE),
        "two headers": (
            brought({"authorization": "Bearer a", "Authorization": "Bearer a"}),
            (400, "invalid_request", "there is more than one Authorization header"),
        ),
        "no token at all": (brought(bearing("abc")), (*INVALID, "it is not a signed token")),
        "too few scopes": (challenged(lambda way: way.it.issuer.bearer("ada", ["other"])), POOR),
        "nobody to ask": (while_nobody_can_be_asked, (503, "5", False)),
        "good": (token(), 200),
    },
    "A6 scopes": {
        "all at once": (called("delete"), "files:read files:write files:delete"),
        "one of two": (
            called("delete", ["files:read", "files:write"]),
            "files:read files:write files:delete",
        ),
        "enough": (called("delete", ["files:read", "files:write", "files:delete"]), "done"),
        "a broader one": (called("write", ["files:admin"]), "done"),
        "a broader one is not all": (
            called("delete", ["files:admin"]),
            "files:read files:write files:delete",
        ),
    },
    "A7 nothing is echoed": {"of tokens": (what_is_echoed, False), "or allocated": (what_is_allocated, 0)},
    "A8 the order": {
        "another origin": (brought({"origin": "https://evil.example"}), 403),
        "a bad token, and another origin": (brought({"origin": PAGE, **bearing("x")}), 403),
        "no token, and fields that are wrong": (brought({"mcp-session-id": "none", "accept": "a/b"}), 401),
    },
    "A9 what is not allowed is not hidden": {
        "listed": (what_is_listed, ["write", "whoami", "delete"]),
        "refused": (called("write"), "files:read files:write"),
    },
    "A10 the header alone": {
        "in the query": (brought({}, "?access_token=abc"), 401),
        "in a session, none": (in_a_session(lambda _: {"authorization": "x"}), 401),
        "in a session, another's": (in_a_session(lambda issuer: issuer.bearer("bob", GOOD)), 404),
        "in a session, another client's": (
            in_a_session(lambda issuer: issuer.bearer("ada", GOOD, client="x")),
            404,
        ),
        "until it expires": (how_long_it_lasts, [True, False]),
        "in a session, a newer one": (in_a_session(lambda issuer: issuer.bearer("ada", [*GOOD, "b"])), "ada"),
    },
    "A11 and A12 bad tokens": {name: (made(make), (*INVALID, why)) for name, (make, why) in BAD.items()},
    "A11 leeway": {
        "just expired": (token(lifetime=-25), 200),
        "valid in a moment": (token(nbf=1_800_000_025), 200),
        "one of several audiences": (token(aud=["https://other.example", RESOURCE]), 200),
    },
    "A13 keys": {
        "fetched once": (
            how_often_keys_are_fetched,
            ["https://issuer.test/.well-known/oauth-authorization-server", "https://issuer.test/keys"],
        ),
        "known ones serve at once": (while_known_keys_serve, (200, 0.0)),
        "an unknown one": (
            token(header={"kid": "other"}),
            (*INVALID, "it is signed with a key that the issuer does not have"),
        ),
    },
    "A14 introspection": {
        "once a minute": (
            how_often_it_is_asked_about_a_token,
            ([200, 200, 200, (*INVALID, "it is not active")], 2),
        ),
        "another audience": (
            token(aud="https://other.example"),
            (*INVALID, "it was issued for another audience"),
        ),
        "expired": (token(lifetime=-1), (*INVALID, "it is not active")),
    },
    "A15 who it is": {
        "all is said": (called("whoami"), WHO),
        "the client is azp": (called("whoami", client_id=None, azp="app"), {**WHO, "client": "app"}),
        "the client is the subject": (called("whoami", client_id=None), {**WHO, "client": "ada"}),
        "scopes as a list": (token(scopes=(), scope=None, scp=GOOD), 200),
        "scopes as text": (token(scopes=(), scope=None, scp="files:read other"), 200),
        "scope comes first": (
            token(scopes=["other"], scp=GOOD),
            (403, "insufficient_scope", POOR["error_description"]),
        ),
    },
    "A16 what is kept": {"nothing of tokens": (what_is_kept_to_itself, False)},
    "A17 what is remembered": {
        "until it expires": (how_long_a_token_is_remembered, [200, 200, (*INVALID, "it has expired")])
    },
}


def introspecting(issuer):
    return IntrospectionVerifier(issuer.url, client_id="files", client_secret="secret", web=issuer)


@pytest.mark.parametrize("name", WAYS_IN)
@pytest.mark.parametrize("rule", RULES)
async def test_each_rule_holds_on_each_way_in(rule, name, autojump_clock):
    verifier = introspecting if rule.startswith("A14") else None
    async with entered(name, verifier=verifier) as way:
        found, expected = {}, {}
        for case, (do, told) in RULES[rule].items():
            if case.startswith("in a session") and isinstance(way, WebSocket):
                continue  # What it brought to the upgrade is its token, for as long as it lasts.
            found[case], expected[case] = await do(way), told
    assert found == expected
