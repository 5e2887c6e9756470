"""Tokens that are asked about, tokens that are written down, and verifiers of one's own."""

import gc
import json
import re
import tracemalloc
from collections import Counter
from contextlib import nullcontext
from hashlib import sha256

import pytest
import trio
from bad_tokens import CLAIMED
from guarded import RESOURCE, bearing, challenge_of, guarded

from mcpbus import Server
from mcpbus.auth import (
    AnyTokenVerifier,
    IntrospectionVerifier,
    InvalidTokenError,
    JwtVerifier,
    Principal,
    ResourceServer,
    StaticTokenVerifier,
    VerifiedToken,
    VerifierUnavailableError,
)
from mcpbus.auth.introspection import IssuerQueue
from mcpbus.auth.resource_server import MOST_BYTES, MOST_TOKENS, VerifiedTokenCache
from mcpbus.auth.verifiers import brought_by
from mcpbus.protocol.http.bearer import NewToken
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.testing import InMemoryIssuer, open_bus

GOOD = ["files:read"]


def introspecting(issuer, **options):
    return IntrospectionVerifier(issuer.url, client_id="files", client_secret="secret", web=issuer, **options)


def questions(issuer):
    """How often it was asked about a token."""
    return issuer.asked.count(issuer.introspection_endpoint)


async def test_an_issuer_is_asked_about_a_token_once_a_minute(autojump_clock):
    async with guarded(verifier=introspecting) as it:
        token = it.issuer.token("ada", GOOD)
        for _ in range(10):
            assert (await it.send("modern", bearing(token))).status == 200
        assert questions(it.issuer) == 1
        it.issuer.revoke(token)
        await trio.sleep(59)
        assert (await it.send("modern", bearing(token))).status == 200
        await trio.sleep(2)
        answer = await it.send("modern", bearing(token))
        assert (answer.status, challenge_of(answer)["error_description"]) == (
            401,
            "the token is no good: it is not active",
        )


async def test_a_clock_that_is_set_back_does_not_have_an_answer_believed_for_longer(autojump_clock):
    async with guarded(verifier=introspecting) as it:
        token, auth = it.issuer.token("ada", GOOD), it.bus.server.auth
        fast, auth.clock = 1800.0, lambda: it.issuer.now() + fast
        assert (await it.send("modern", bearing(token))).status == 200
        it.issuer.revoke(token)
        fast = 0.0
        await trio.sleep(61)
        assert (await it.send("modern", bearing(token))).status == 401


async def test_it_is_asked_once_for_all_requests_that_bring_the_same_new_token(autojump_clock):
    async with guarded(verifier=introspecting) as it:
        it.issuer.delay = 3
        good, bad = it.issuer.bearer("ada", GOOD), bearing("made-up")
        statuses = []

        async def send(headers):
            statuses.append((await it.send("modern", headers)).status)

        async with trio.open_nursery() as nursery:
            for headers in [good, bad] * 50:
                nursery.start_soon(send, headers)
        assert sorted(statuses) == [200] * 50 + [401] * 50
        assert questions(it.issuer) == 2


async def test_who_asks_first_may_leave_and_the_others_get_the_answer(autojump_clock):
    issuer = InMemoryIssuer()
    verifier, token, issuer.delay = introspecting(issuer), issuer.token("ada"), 3
    found = []

    async def wait():
        found.append(await verifier.verify(token, RESOURCE, issuer.now()))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            nursery.start_soon(wait)
            await verifier.verify(token, RESOURCE, issuer.now())
    assert (len(found), questions(issuer)) == (1, 1)
    await verifier.verify(token, RESOURCE, issuer.now())
    assert questions(issuer) == 2


async def test_what_nobody_waits_for_any_more_is_not_asked(autojump_clock):
    """Whoever makes tokens up and leaves keeps nobody waiting, and nothing in memory."""
    issuer = InMemoryIssuer()
    verifier, issuer.delay = introspecting(issuer), 3

    async def leave(number):
        with trio.move_on_after(1):
            await verifier.verify(f"made-up-{number}", RESOURCE, issuer.now())

    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(leave, number)
    left = trio.current_time()
    await trio.testing.wait_all_tasks_blocked()
    assert (verifier._asking, verifier._line.served) == ({}, 0)
    await verifier.verify(issuer.token("ada"), RESOURCE, issuer.now())
    assert trio.current_time() - left == pytest.approx(6)  # with that for where to ask


async def test_nobody_waits_for_ever_behind_those_who_ask_too_much(autojump_clock):
    issuer = InMemoryIssuer()
    verifier = introspecting(issuer)
    await verifier.verify(issuer.token("ada"), RESOURCE, issuer.now())
    issuer.delay = 7
    outcomes = []

    async def ask(number):
        with pytest.raises((InvalidTokenError, VerifierUnavailableError)) as raised:
            await verifier.verify(f"made-up-{number}", RESOURCE, issuer.now())
        outcomes.append((raised.type, round(trio.current_time() - begun)))

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(ask, number)
    assert Counter(outcomes) == {
        (InvalidTokenError, 7): 32,
        (InvalidTokenError, 14): 32,
        (VerifierUnavailableError, 10): 36,
    }
    assert verifier._asking == {}


async def test_who_makes_tokens_up_delays_nobody_who_comes_from_elsewhere(autojump_clock):
    issuer = InMemoryIssuer()
    auth, found = issuer.protect(), {}
    auth.verifier, issuer.delay = introspecting(issuer, address=issuer.introspection_endpoint), 1

    async def bring(token, address):
        peer = Peer.at(address)
        principal = await auth.find(NewToken(token, token.encode()), peer)
        if isinstance(principal, Principal):
            found[address] = trio.current_time() - begun

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(bring, f"made-up-{number}", "203.0.113.7")
        await trio.testing.wait_all_tasks_blocked()
        for address in ("198.51.100.1", "198.51.100.2", "203.0.113.7"):
            nursery.start_soon(bring, issuer.token(address), address)
    assert found == {"198.51.100.1": 2, "198.51.100.2": 2}


@pytest.mark.parametrize("_", range(20))  # who is first in a turn of the scheduler is a matter of chance
async def test_who_leaves_while_a_place_becomes_free_does_not_take_it_along(_, autojump_clock):
    line, done = IssuerQueue(1), []

    async def go(name, seconds=1):
        async with line.turn(Peer(name)):
            await trio.sleep(seconds)
        done.append(name)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(go, "first")
            await trio.testing.wait_all_tasks_blocked()
            async with trio.open_nursery() as leaving:
                for name in "aabbc":
                    leaving.start_soon(go, name, 2)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(go, "c")
                leaving.cancel_scope.deadline = trio.current_time() + 1
    assert done == ["first", "c"]
    assert (line.served, line._waiting) == (0, {})


async def test_of_those_who_wait_one_of_each_peer_has_its_turn_after_the_other(autojump_clock):
    line, done = IssuerQueue(1), []

    async def go(name):
        async with line.turn(Peer(name[0])):
            await trio.sleep(1)
        done.append(name)

    async with trio.open_nursery() as nursery:
        for name in ("first", "a1", "a2", "a3", "b1", "b2", "c1"):
            nursery.start_soon(go, name)
            await trio.testing.wait_all_tasks_blocked()
    assert done == ["first", "a1", "b1", "c1", "a2", "b2", "a3"]


async def test_of_who_leaves_the_line_nothing_is_kept(autojump_clock):
    line = IssuerQueue(1)
    async with line.turn(None):
        for number in range(3):
            with trio.move_on_after(1):
                async with line.turn(Peer(f"{number}")):
                    raise AssertionError("there is no place")
        assert line._waiting == {}


class Noting:
    """Finds no token good, and notes from where they come."""

    local = False
    issuers = ("https://id.example.com",)

    def __init__(self):
        self.peers = []

    async def verify(self, _token, _resource, _now):
        self.peers.append(brought_by.get())
        await trio.lowlevel.checkpoint()
        raise InvalidTokenError("no")


@pytest.mark.parametrize("shell", ["asgi", "http1", "http2"])
@pytest.mark.parametrize("trusted", [["127.0.0.1", "unix"], []])
async def test_a_token_comes_from_where_a_known_proxy_has_it_from(trusted, shell, autojump_clock):
    noting = Noting()
    async with guarded(verifier=lambda _: noting, http={"trusted_proxies": trusted}, shell=shell) as it:
        for way in ("modern", "legacy", "get", "delete", "sse", "websocket"):
            headers = {**bearing(way), "x-forwarded-for": "192.0.2.1"}
            assert (await it.send(way, headers)).status == 401
        await it.bus.server.auth.find(NewToken("x", b"x"), Peer.at("192.0.2.1"))
        assert (noting.peers.pop(), brought_by.get()) == (Peer.at("192.0.2.1"), None)
    assert [peer == Peer.at("192.0.2.1") for peer in noting.peers] == [bool(trusted)] * 6


async def test_a_failure_that_nobody_foresaw_is_told_to_all_who_asked(autojump_clock):
    class Broken:
        async def request(self, *_):
            raise ZeroDivisionError

    verifier = introspecting(InMemoryIssuer())
    verifier.web = Broken()
    for _ in range(2):
        with pytest.raises(VerifierUnavailableError, match="ZeroDivisionError"):
            await verifier.verify("abc", RESOURCE, 0.0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"aud": "https://other.example"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"iss": "https://evil.example"}, "somebody else"),
        ({"nbf": 1_900_000_000}, "not valid yet"),
        ({"sub": None, "client_id": None}, "whose it is"),
    ],
)
async def test_what_is_said_of_a_token_is_checked_as_if_it_said_so_itself(options, why, autojump_clock):
    async with guarded(verifier=introspecting) as it:
        answer = await it.send("modern", it.issuer.bearer("ada", GOOD, **options))
        assert answer.status == 401
        assert why in challenge_of(answer)["error_description"]


@pytest.mark.parametrize(("claims", "why"), CLAIMED.values(), ids=CLAIMED)
async def test_a_token_that_is_not_for_each_bearer_is_refused_by_what_its_issuer_states(
    claims, why, autojump_clock
):
    issuer = InMemoryIssuer()
    with pytest.raises(InvalidTokenError, match=re.escape(why)):
        await introspecting(issuer).verify(issuer.token("ada", **claims), RESOURCE, issuer.now())


@pytest.mark.parametrize("options", [{"iss": None}, {"iat": None}, {"aud": [RESOURCE]}])
async def test_what_an_issuer_need_not_say_may_be_missing(options, autojump_clock):
    async with guarded(verifier=introspecting) as it:
        assert (await it.send("modern", it.issuer.bearer("ada", GOOD, **options))).status == 200


async def test_an_answer_is_not_believed_beyond_the_tokens_end(autojump_clock):
    async with guarded(verifier=introspecting) as it:
        token = it.issuer.bearer("ada", GOOD, lifetime=10)
        assert (await it.send("modern", token)).status == 200
        await trio.sleep(45)
        assert (await it.send("modern", token)).status == 401


async def test_a_token_whose_end_is_not_said_is_asked_about_again(autojump_clock):
    issuer = InMemoryIssuer()
    issuer.answers[issuer.introspection_endpoint] = (
        200,
        b'{"active":true,"sub":"ada","aud":"http://localhost/mcp","scope":"files:read"}',
    )
    found = await introspecting(issuer).verify("opaque", RESOURCE, 1000.0)
    assert found.until == 1060.0
    assert (found.principal.expires, found.principal.client) == (None, "ada")


@pytest.mark.parametrize("answer", [(401, b"{}"), (404, b""), (500, b""), (200, b"yes"), (200, b"[]")])
async def test_while_it_cannot_be_asked_a_token_may_be_good(answer, autojump_clock):
    async with guarded(verifier=introspecting) as it:
        it.issuer.answers[it.issuer.introspection_endpoint] = answer
        assert (await it.send("modern", it.issuer.bearer("ada", GOOD))).status == 503


@pytest.mark.parametrize("active", [False, "false", "true", 1, None, [True], {"a": 1}])
async def test_only_what_is_active_is_good(active, autojump_clock):
    """All else is in order, so that the token is refused for that alone."""
    issuer = InMemoryIssuer()
    claims = {"active": active, "sub": "ada", "aud": RESOURCE, "scope": "files:read"}
    for active_now, refused in ((True, False), (active, True)):
        answer = json.dumps({**claims, "active": active_now}).encode()
        issuer.answers[issuer.introspection_endpoint] = 200, answer
        with pytest.raises(InvalidTokenError, match="it is not active") if refused else nullcontext():
            await introspecting(issuer).verify("opaque", RESOURCE, issuer.now())


async def test_where_to_ask_may_be_said(autojump_clock):
    issuer = InMemoryIssuer()
    verifier = introspecting(issuer, address=issuer.introspection_endpoint)
    await verifier.verify(issuer.token("ada"), RESOURCE, issuer.now())
    assert issuer.asked == [issuer.introspection_endpoint]
    with pytest.raises(ValueError, match="address is"):
        introspecting(issuer, address="http://elsewhere.example")
    with pytest.raises(ValueError, match="issuer is"):
        introspecting(InMemoryIssuer("http://elsewhere.example"), address=issuer.introspection_endpoint)


async def test_where_to_ask_is_found_out_once_and_what_is_said_is_the_principals(autojump_clock):
    issuer = InMemoryIssuer()
    verifier = introspecting(issuer)
    for subject in ("ada", "bob"):
        found = await verifier.verify(issuer.token(subject, lifetime=100), RESOURCE, issuer.now())
        assert (found.principal.subject, found.principal.expires) == (subject, int(issuer.now() + 100))
    [_, *questions] = issuer.asked
    assert questions == [issuer.introspection_endpoint] * 2


@pytest.mark.parametrize(("lifetime", "believed"), [(100, 60), (60, 60), (20, 20), (0, 0), (-20, -20)])
async def test_what_an_issuer_says_of_a_token_is_believed_until_it_expires(
    lifetime, believed, autojump_clock
):
    issuer = InMemoryIssuer(clock=lambda: 1000.0)
    document = b'{"active":true,"sub":"ada","aud":"%b","exp":%d}' % (RESOURCE.encode(), 1000 + lifetime)
    issuer.answers[issuer.introspection_endpoint] = 200, document
    found = await introspecting(issuer).verify("opaque", RESOURCE, 1000.0)
    assert found.until == 1000 + believed


async def test_signed_tokens_and_others_are_taken_beside_each_other(autojump_clock):
    opaque = InMemoryIssuer("https://opaque.test")
    document = b'{"active":true,"sub":"bob","aud":"http://localhost/mcp","scope":"files:read"}'
    opaque.answers[opaque.introspection_endpoint] = 200, document

    def verifier(issuer):
        return AnyTokenVerifier(JwtVerifier(issuer.url, web=issuer), introspecting(opaque))

    async with guarded(verifier=verifier) as it:
        assert (await it.send("modern", it.issuer.bearer("ada", GOOD))).status == 200
        assert questions(opaque) == 0
        assert (await it.send("modern", bearing("opaque"))).status == 200
        assert questions(opaque) == 1


@pytest.mark.parametrize("first", [True, False], ids=["down first", "down last"])
async def test_an_issuer_that_is_down_is_in_the_way_of_no_other_issuers_token(first, autojump_clock):
    """It is asked about each token that comes to it, since nothing in one tells whose it is."""
    opaque = InMemoryIssuer("https://opaque.test")
    opaque.answers[opaque.introspection_endpoint] = 503, b""

    def verifier(issuer):
        both = introspecting(opaque), JwtVerifier(issuer.url, web=issuer)
        return AnyTokenVerifier(*(both if first else reversed(both)))

    async with guarded(verifier=verifier) as it:
        assert (await it.send("modern", it.issuer.bearer("ada", GOOD))).status == 200
        assert questions(opaque) == first
        assert (await it.send("modern", bearing("opaque"))).status == 503
        assert questions(opaque) == 1 + first


# -- written down ---------------------------------------------------------------------------------


def static(_):
    return StaticTokenVerifier(
        {"reads": "files:read", "none": "", "ada": Principal("http://here", "ada", "app", GOOD)}
    )


async def test_tokens_that_are_written_down(autojump_clock):
    async with guarded(verifier=static) as it:
        for token, status in (("reads", 200), ("ada", 200), ("none", 403), ("read", 401), ("Reads", 401)):
            assert (await it.send("modern", bearing(token))).status == status
        assert "reads" not in repr(it.bus.server.auth)


@pytest.mark.parametrize(
    "way", [lambda t: t, lambda t: AnyTokenVerifier(JwtVerifier("https://id.example.com"), t)]
)
def test_tokens_that_are_written_down_protect_nothing_but_this_machine(way):
    tokens = way(StaticTokenVerifier({"a": "b"}))
    for url in ("https://mcp.example.com/mcp", "https://10.0.0.1/mcp"):
        with pytest.raises(ValueError, match="is for development, on this machine alone"):
            ResourceServer(url, tokens)
    for url in ("http://localhost:8000/mcp", "http://127.0.0.1/mcp", "https://[::1]/mcp"):
        assert ResourceServer(url, tokens).resource == url


async def test_who_comes_from_elsewhere_is_refused_such_a_token(autojump_clock):
    async with guarded(verifier=static) as it:
        head = RequestHead("POST", "/mcp", Headers([(b"authorization", b"Bearer reads")]))
        auth = it.bus.server.auth
        found = await auth.find(auth.recall(head, Peer.at("127.0.0.1")), Peer.at("127.0.0.1"))
        assert found == auth.recall(head, Peer.at("127.0.0.1"))
        assert found.scopes == {"files:read"}
        refused = auth.recall(head, Peer.at("203.0.113.7"))
        assert isinstance(refused, HttpResponse)
        assert refused.status == 403


# -- one's own ------------------------------------------------------------------------------------


class Own:
    issuers = ("https://own.example",)
    local = False

    def __init__(self, outcome):
        self.outcome = outcome
        self.asked = 0

    async def verify(self, token, resource, now):
        self.asked += 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


async def test_a_verifier_of_ones_own_says_how_long_it_is_to_be_believed(autojump_clock):
    issuer = InMemoryIssuer()
    own = Own(VerifiedToken(Principal("https://own.example", "ada", "app", GOOD), issuer.now() + 10))
    async with guarded(verifier=lambda _: own) as it:
        for seconds, asked in ((0, 1), (9, 1), (2, 2), (0, 3)):
            await trio.sleep(seconds)
            assert (await it.send("modern", bearing("abc"))).status == 200
            assert own.asked == asked


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (InvalidTokenError('it\r\nis \u20ac "odd" \\'), 401),
        (VerifierUnavailableError("down", 30), 503),
    ],
)
async def test_what_a_verifier_of_ones_own_raises(outcome, status, autojump_clock, caplog):
    async with guarded(verifier=lambda _: Own(outcome)) as it:
        answer = await it.send("modern", bearing("abc"))
        assert answer.status == status
        if status == 401:
            said = "the token is no good: it??is ? ?odd? ?"
            assert challenge_of(answer)["error_description"] == said
        else:
            assert answer.headers.get("retry-after") == ("30" if status == 503 else None)


# -- construction ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "resource"),
    [
        ("HTTPS://MCP.Example.com/MCP/", "https://mcp.example.com/MCP"),
        ("https://mcp.example.com", "https://mcp.example.com"),
        ("https://mcp.example.com:8443/", "https://mcp.example.com:8443"),
    ],
)
def test_the_canonical_uri(url, resource):
    found = ResourceServer(url, JwtVerifier("https://id.example.com"))
    assert found.resource == resource
    assert found.metadata_url == found.resource.replace(
        ".com", ".com/.well-known/oauth-protected-resource", 1
    ).replace("/.well-known/oauth-protected-resource:8443", ":8443/.well-known/oauth-protected-resource")


@pytest.mark.parametrize(
    "url",
    [
        "http://mcp.example.com/mcp",
        "mcp.example.com",
        "https://mcp.example.com/mcp#here",
        "https://mcp.example.com/mcp#",
        "https://mcp.example.com/mcp?a=b",
        "https://user@mcp.example.com/mcp",
        "https://mcp.example.com:port/mcp",
        "https://mcp.example.com/a b",
        "https://mcp.example.com/\n",
        "https:///mcp",
    ],
)
def test_what_is_no_canonical_uri(url):
    with pytest.raises(ValueError, match="resource is"):
        ResourceServer(url, JwtVerifier("https://id.example.com"))


@pytest.mark.parametrize(
    "scopes", ["files:read", ["a b"], ['a"'], ["a\\"], [""], [7], ["offline_access"], ["\xe4"], 7]
)
def test_what_is_no_scope(scopes):
    issuer = JwtVerifier("https://id.example.com")
    with pytest.raises(ValueError, match=r"scope|offline_access"):
        ResourceServer("https://mcp.example.com/mcp", issuer, scopes=scopes)
    with pytest.raises(ValueError, match=r"scope|offline_access"):
        ResourceServer("https://mcp.example.com/mcp", issuer, implies={"a": scopes})


def test_there_is_one_way_to_tell_who_somebody_is():
    async def authenticate(head):
        return "ada"

    auth = InMemoryIssuer().protect()
    with pytest.raises(TypeError, match="give one of them"):
        Server("both", auth=auth, authenticate=authenticate)
    with pytest.raises(TypeError, match=r"auth is a mcpbus\.auth\.ResourceServer"):
        Server("wrong", auth=authenticate)


def test_several_are_at_least_one():
    with pytest.raises(ValueError, match="no verifier"):
        AnyTokenVerifier()
    with pytest.raises(ValueError, match="no token"):
        StaticTokenVerifier({})


# -- what is remembered ---------------------------------------------------------------------------


def some(until=100.0, claims=None):
    return VerifiedToken(Principal("https://a", "ada", "app", claims=claims or {}), until)


def keep(known, credentials, verified, since=0.0):
    known.keep(sha256(credentials).digest(), verified, since)


def knows(known, credentials, now=0.0):
    return isinstance(known.find(credentials, now), VerifiedToken)


def test_what_was_not_asked_for_longest_is_forgotten_first():
    known = VerifiedTokenCache()
    for number in range(MOST_TOKENS):
        keep(known, b"%d" % number, some())
    assert knows(known, b"0")
    keep(known, b"one more", some())
    assert len(known) == MOST_TOKENS
    assert knows(known, b"0")
    assert not knows(known, b"1")


def test_what_is_remembered_is_believed_until_then_and_not_at_that_moment():
    known, token = VerifiedTokenCache(), b"Bearer x"
    keep(known, token, some(100.0))
    # The second time it is the very same object, which is found without a digest.
    assert [knows(known, token, now) for now in (99.9, 99.9, 100.0)] == [True, True, False]
    keep(known, token, some(100.0))
    assert not knows(known, bytes(bytearray(token)), 100.0)


def test_what_is_remembered_is_not_believed_by_a_clock_that_was_set_back():
    known, token = VerifiedTokenCache(), b"Bearer x"
    for since in (5000.0, 0.0):
        keep(known, token, some(since + 60), since)
        assert [knows(known, token, since + passed) for passed in (0, 59, 59)] == [True] * 3
        assert not knows(known, token, since - 1)
        assert not knows(known, token, since + 1)  # which may be long after that
    assert len(known) == 0


def test_nor_are_others_of_whom_nobody_asked_while_it_was_set_back():
    known, asked, others, earlier = VerifiedTokenCache(), b"Bearer a", (b"Bearer b", b"Bearer c"), b"Bearer d"
    keep(known, earlier, some(9000), 100)
    for token in (asked, *others):
        keep(known, token, some(5060), 5000)
        assert knows(known, token, 5001)
    assert not knows(known, asked, 4000)
    assert not any(knows(known, token, 5001) for token in others)
    assert knows(known, earlier, 5001)
    assert len(known) == 1


def test_of_those_who_come_again_and_again_some_are_at_hand():
    known, token = VerifiedTokenCache(), b"Bearer x"
    keep(known, token, some())
    copies = [bytes(bytearray(token)) for _ in range(2000)]
    for copy in copies:
        assert knows(known, copy)
        assert 0 < len(known._recent) <= 1024
    assert len(known) == 1


@pytest.mark.parametrize(
    "claims",
    [
        lambda n: {},
        lambda n: {
            "iss": "https://id.example.com",
            "sub": f"user {n}",
            "exp": 1_800_000_000 + n,
            "scope": "a b",
        },
        lambda n: {"groups": [f"/staff/{n}/{each}" for each in range(100)]},
        lambda n: {f"client {each}": {"roles": [f"role {n}"]} for each in range(100)},
        lambda n: {"picture": f"{n:10000}"},
    ],
)
def test_what_is_known_of_tokens_takes_no_more_memory_than_there_is_for_it(claims):
    known, most = VerifiedTokenCache(), 4 * 1024 * 1024
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(10_000):
            if known._size > most:
                break
            verified = VerifiedToken(Principal("https://a", f"{number}", "app", claims=claims(number)), 100.0)
            keep(known, b"%d" % number, verified)
        assert known._size / 2 < tracemalloc.get_traced_memory()[0] < known._size * 1.25
    finally:
        tracemalloc.stop()


def test_who_has_much_to_claim_leaves_room_for_fewer():
    known, much = VerifiedTokenCache(), {"about": "x" * (MOST_BYTES // 3)}
    for token in (b"1", b"2", b"3"):
        keep(known, token, some(claims=much))
    assert [knows(known, token) for token in (b"1", b"2", b"3")] == [False, True, True]
    keep(known, b"4", some(claims={"about": "x" * MOST_BYTES}))
    assert (len(known), known._size) == (0, 0)


def test_claims_that_fill_the_memory_exactly_are_kept():
    known = VerifiedTokenCache()
    keep(known, b"1", some(claims={"about": ""}))
    keep(known, b"1", some(claims={"about": "x" * (MOST_BYTES - known._size)}))
    assert known._size == MOST_BYTES
    assert knows(known, b"1")


def test_what_was_kept_twice_counts_once():
    known = VerifiedTokenCache()
    for _ in range(100):
        keep(known, b"x", some(claims={"about": "x" * (MOST_BYTES // 4)}))
    keep(known, b"y", some(claims={"about": "y" * (MOST_BYTES // 4)}))
    assert len(known) == 2
    assert not knows(known, b"x", 100.0)
    assert len(known) == 1


def test_of_what_is_believed_no_more_nothing_is_left():
    known = VerifiedTokenCache()
    for number in range(1000):
        keep(known, b"%d" % number, some(60.0))
    keep(known, b"lasts", some(100.0))
    keep(known, b"new", some(200.0), 60.0)
    assert [knows(known, token, 60.0) for token in (b"0", b"lasts", b"new")] == [False, True, True]
    assert len(known) == 2


async def test_the_token_itself_is_kept_nowhere(autojump_clock):
    async with guarded() as it:
        token = it.issuer.token("ada", GOOD)
        head = RequestHead("POST", "/mcp", Headers([(b"authorization", f"Bearer {token}".encode())]))
        new = it.bus.server.auth.recall(head, Peer.at("127.0.0.1"))
        assert (new.token, repr(new)) == (token, "<NewToken>")
        assert (await it.send("modern", bearing(token))).status == 200
        for known in gc.get_objects():
            if isinstance(known, VerifiedTokenCache):
                assert all(token.encode() not in key for key in known._known)


async def test_an_issuer_stands_in_for_the_one_that_a_server_names(autojump_clock):
    auth = ResourceServer(
        "https://mcp.example.com/mcp", AnyTokenVerifier(JwtVerifier("https://id.example.com"))
    )
    server = Server("files", auth=auth)
    issuer = InMemoryIssuer("https://id.example.com")
    web = auth.verifier.verifiers[0].web
    with issuer.standing_in(server):
        async with open_bus(server):
            found = await auth.verifier.verify(issuer.token(), auth.resource, auth.clock())
            assert found.principal.subject == "alice"
    assert auth.verifier.verifiers[0].web is web
    with (
        pytest.raises(ValueError, match="takes no tokens of"),
        InMemoryIssuer("https://other.test").standing_in(server),
    ):
        pass
    with pytest.raises(ValueError, match="takes no tokens of"), issuer.standing_in(Server("open")):
        pass
