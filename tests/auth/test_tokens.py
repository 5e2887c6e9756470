"""Which tokens are good, and what is said of the others."""

import base64
import itertools
import json
import re
from contextlib import nullcontext, suppress

import pytest
import trio
from bad_tokens import BAD, b64, made, nested
from guarded import RESOURCE, bearing, challenge_of, guarded
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from mcpbus.auth import AnyTokenVerifier, InvalidTokenError, JwtVerifier, Principal
from mcpbus.auth.jwt import check_claims, read_scopes
from mcpbus.protocol.bounded_cache import LONGEST_REMEMBERED, MOST_REMEMBERED
from mcpbus.protocol.http.bearer import LONGEST_TOKEN
from mcpbus.testing import InMemoryIssuer, probe

GOOD = ["files:read"]
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})


@pytest.mark.parametrize(("make", "why"), BAD.values(), ids=BAD)
async def test_a_bad_token_is_refused(make, why, autojump_clock):
    """What its client is told is among the rules, for each way in."""
    issuer = InMemoryIssuer()
    with pytest.raises(InvalidTokenError, match=re.escape(why)):
        await JwtVerifier(issuer.url, web=issuer).verify(make(issuer), RESOURCE, issuer.now())


@pytest.mark.parametrize(
    "typ", ["at+jwt", "application/at+jwt", "AT+JWT", "JWT", "jwt", "application/JWT", None]
)
@pytest.mark.parametrize(
    "more", [{}, {"cnf": None, "typ": "Bearer", "token_use": "access", "token_type": "Bearer"}]
)
async def test_an_access_token_has_one_of_the_types_that_issuers_give_it(typ, more, autojump_clock):
    issuer = InMemoryIssuer()
    verifier = JwtVerifier(issuer.url, web=issuer)
    made = issuer.sign(json.dumps({**claims_of(issuer), **more}).encode(), {"typ": typ})
    assert (await verifier.verify(made, RESOURCE, issuer.now())).principal.subject == "ada"


def claims_of(issuer):
    return {"iss": issuer.url, "sub": "ada", "aud": RESOURCE, "exp": issuer.now() + 100}


@pytest.mark.parametrize(
    ("needed", "good", "bad"),
    [("at+jwt", ["at+jwt", "application/at+JWT"], ["JWT", None]), ("JWT", ["jwt"], ["at+jwt", None])],
)
async def test_one_type_can_be_required(needed, good, bad, autojump_clock):
    issuer = InMemoryIssuer()
    verifier = JwtVerifier(issuer.url, typ=needed, web=issuer)
    for typ in good:
        assert await verifier.verify(issuer.token("ada", header={"typ": typ}), RESOURCE, issuer.now())
    for typ in bad:
        with pytest.raises(InvalidTokenError, match=f"its typ is not {re.escape(needed.lower())}"):
            await verifier.verify(issuer.token("ada", header={"typ": typ}), RESOURCE, issuer.now())


@pytest.mark.parametrize("typ", ["logout+jwt", "", 7, "application/at+jwt"])
def test_a_type_that_no_access_token_has_cannot_be_required(typ):
    with pytest.raises(ValueError, match="it must be 'at\\+jwt' or 'JWT'"):
        JwtVerifier("https://id.example.com", typ=typ)


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("text", ["\\u0041" * 4, '"', '",""', "\\", "\n", " ", "=", "+", "/", "é"])
async def test_a_part_that_is_not_in_base64_for_urls_is_none(part, text, autojump_clock):
    """Even where it would be good with what some reader takes for the same."""
    issuer = InMemoryIssuer()
    parts = issuer.token("ada", GOOD).split(".")
    parts[part] += text + "A" * (-len(parts[part] + text) % 4)
    with pytest.raises(InvalidTokenError, match="it is not a signed token"):
        await JwtVerifier(issuer.url, web=issuer).verify(".".join(parts), RESOURCE, issuer.now())


SIGNATURES = {
    "none": b"",
    "short": b"\1" * 63,
    "long": b"\1" * 65,
    "zeros": bytes(64),
    "no first number": bytes(32) + b"\1" * 32,
    "no second number": b"\1" * 32 + bytes(32),
    "beyond the curve": b"\xff" * 64,
}


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=SIGNATURES)
async def test_a_signature_that_can_be_none_is_wrong(signature, autojump_clock):
    issuer = InMemoryIssuer()
    signed = issuer.token("ada", GOOD).rpartition(".")[0]
    with pytest.raises(InvalidTokenError, match="its signature is wrong"):
        await JwtVerifier(issuer.url, web=issuer).verify(f"{signed}.{b64(signature)}", RESOURCE, issuer.now())


async def test_a_signature_has_all_its_zeros(autojump_clock):
    issuer = InMemoryIssuer()
    verifier = JwtVerifier(issuer.url, web=issuer)
    for number in itertools.count():  # until the second number begins with one, as each 256th does
        token = issuer.token(f"user {number}")
        start, _, text = token.rpartition(".")
        signature = base64.urlsafe_b64decode(text + "==")
        if signature[32] == 0:
            break
    assert (await verifier.verify(token, RESOURCE, issuer.now())).principal.subject == f"user {number}"
    for other in (signature[:32] + signature[33:], signature[:32] + b"\0" + signature[32:]):
        with pytest.raises(InvalidTokenError, match="its signature is wrong"):
            await verifier.verify(f"{start}.{b64(other)}", RESOURCE, issuer.now())


async def test_of_headers_those_of_good_tokens_are_remembered_as_they_are_written(autojump_clock):
    issuer = InMemoryIssuer()
    verifier = JwtVerifier(issuer.url, web=issuer)
    good = [issuer.token("ada", GOOD, header={"x-own": "é" * number}) for number in range(400)]
    bad = [issuer.token("ada", GOOD, header={"x-own": number}, aud="other") for number in range(3)]
    forged = [make(issuer) for make, _ in (BAD["another key of that name"], BAD["altered"])]
    for token in (*good[:3], *good[:3], *bad, *forged):
        with suppress(InvalidTokenError):
            await verifier.verify(token, RESOURCE, issuer.now())
    written = {token.split(".")[0].encode() for token in good[:3] + bad}
    assert set(verifier._headers) == written
    for token in good:
        await verifier.verify(token, RESOURCE, issuer.now())
        assert len(verifier._headers) <= MOST_REMEMBERED
    assert max(map(len, verifier._headers)) <= LONGEST_REMEMBERED


@pytest.mark.parametrize(("more", "why"), [(0, "it is not a signed token"), (1, "it is too long")])
async def test_a_token_has_a_length_beyond_which_it_is_not_looked_at(more, why, autojump_clock):
    async with guarded() as it:
        answer = await it.send("modern", bearing("x" * (LONGEST_TOKEN + more)))
        said = challenge_of(answer)
        assert (answer.status, said["error_description"]) == (401, f"the token is no good: {why}")


LONG = {"1 MB": lambda _: "x" * 1_000_000, "nested claims of 100 kB": nested(50_000)}


@pytest.mark.parametrize("make", LONG.values(), ids=LONG)
async def test_a_token_that_is_far_too_long_is_refused_before_it_is_looked_at(make, autojump_clock):
    async with guarded() as it:
        # Over HTTP/2 a connection ends that sends so much, and to pack it takes the client of this test minutes.
        token = make(it.issuer)[: 40_000 if probe.DEFAULT_SHELL == "http2" else None]
        assert (await it.send("modern", bearing(token))).status in {401, 431}
        assert it.issuer.asked == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aud": [RESOURCE]},
        {"aud": ["https://other.example", RESOURCE]},
        {"aud": "HTTP://LOCALHOST/mcp"},
        {"aud": f"{RESOURCE}/"},
        {"lifetime": -25},
        {"nbf": 1_800_000_025, "iat": 1_800_000_025},
        {"iat": None},
        {"exp": 1_800_000_100.5},
        {"exp": 1e12},
        {"header": {"typ": None}},
        {"header": {"kid": None}},
        {"header": {"x-own": {"a": 1}}},
        {"scope": None, "scp": "files:read other"},
        {"scope": None, "scp": ["files:read", 7]},
        {"groups": ["x" * 8000]},
    ],
    ids=str,
)
async def test_a_good_token_may_be_written_in_many_ways(options, autojump_clock):
    async with guarded() as it:
        answer = await it.send("modern", bearing(it.issuer.token("ada", GOOD, **options)))
        assert answer.status == 200


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b", "scp": "c"}, {"a", "b"}),
        ({"scope": "", "scp": "c"}, set()),
        ({"scp": "a  b"}, {"a", "b"}),
        ({"scope": ["a"]}, {"a"}),
        ({"scp": {"a": 1}}, set()),
        ({"scope": 7}, set()),
        ({}, set()),
    ],
)
def test_scopes_are_text_or_a_list(claims, scopes):
    assert read_scopes(claims) == scopes


@pytest.mark.parametrize(
    ("claims", "who"),
    [
        ({}, ("ada", "test client")),
        ({"client_id": None, "azp": "app"}, ("ada", "app")),
        ({"client_id": None}, ("ada", "ada")),
        ({"sub": None}, ("test client", "test client")),
    ],
)
async def test_a_principal_is_issuer_subject_and_client(claims, who, autojump_clock):
    async with guarded() as it:
        answer = await it.send("modern", bearing(it.issuer.token("ada", GOOD, **claims)))
        reply = await answer.message()
        found = reply["result"]["structuredContent"]
        assert (found["issuer"], found["subject"], found["client"]) == (it.issuer.url, *who)


def test_principals_are_the_same_whatever_their_tokens_allow():
    ada = Principal("https://a", "ada", "app", ["read"], {"nested": {"list": [1]}})
    assert ada == Principal("https://a", "ada", "app")
    assert hash(ada) == hash(Principal("https://a", "ada", "app"))
    others = [
        Principal(*who)
        for who in (("https://b", "ada", "app"), ("https://a", "bob", "app"), ("https://a", "ada", "x"))
    ]
    assert ada not in others
    with pytest.raises(AttributeError):
        ada.subject = "bob"
    with pytest.raises(TypeError):
        ada.claims["nested"]["list"] = 2
    assert ada.claims["nested"]["list"] == (1,)
    assert Principal("https://a", "ada", "app", claims={"none": None}).claims["none"] is None
    assert "nested" not in repr(ada)


@pytest.mark.parametrize(
    ("claims", "now", "why"),
    [
        ({"exp": 1000}, 1029.9, None),
        ({"exp": 1000}, 1030, "it has expired"),
        ({"exp": 2000, "nbf": 1000}, 970, None),
        ({"exp": 2000, "nbf": 1000}, 969.9, "it is not valid yet"),
        ({"exp": 2000, "iat": 1000}, 970, None),
        ({"exp": 2000, "iat": 1000}, 969.9, "it is not valid yet"),
    ],
)
def test_clocks_may_differ_by_half_a_minute(claims, now, why):
    said = {"sub": "ada", "aud": RESOURCE, **claims}
    with nullcontext() if why is None else pytest.raises(InvalidTokenError, match=why):
        found = check_claims(said, "https://a", (RESOURCE,), now)
        assert (found.principal.expires, found.until) == (claims["exp"], claims["exp"] + 30)


async def test_a_key_that_can_sign_nothing_has_signed_nothing(autojump_clock):
    issuer = InMemoryIssuer()
    issuer.keys.append(OKPKey.generate_key("X25519", {"kid": "x"}))
    token = made(b'{"alg":"EdDSA","kid":"x"}', b64(b'{"iss":"https://issuer.test"}').encode())
    with pytest.raises(InvalidTokenError, match="its signature is wrong"):
        await JwtVerifier(issuer.url, web=issuer).verify(token, RESOURCE, issuer.now())


KEYS = {
    "RS256": RSA,
    "PS256": RSA,
    "ES256": ECKey.generate_key("P-256", {"kid": "p256"}),
    "ES384": ECKey.generate_key("P-384", {"kid": "p384"}),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
    "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
}


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("alg", KEYS)
@pytest.mark.parametrize("named", [True, False])
async def test_each_algorithm_is_admitted_with_a_key_of_its_own_type_among_others(alg, named, autojump_clock):
    issuer = InMemoryIssuer()
    verifier = JwtVerifier(issuer.url, web=issuer)
    issuer.keys[:] = [
        *(key for key in {id(key): key for key in KEYS.values()}.values() if key is not KEYS[alg]),
        KEYS[alg],
    ]
    claims = json.dumps({"iss": issuer.url, "sub": "ada", "aud": RESOURCE, "exp": issuer.now() + 60})
    header = {"alg": alg} if named else {"alg": alg, "kid": None}
    found = await verifier.verify(issuer.sign(claims.encode(), header), RESOURCE, issuer.now())
    assert found.principal.subject == "ada"


@pytest.mark.parametrize("alg", ["RS512", "ES512", "HS256"])
async def test_an_algorithm_that_was_not_named_is_refused(alg, autojump_clock):
    issuer = InMemoryIssuer()
    verifier = JwtVerifier(issuer.url, web=issuer)
    key = {
        "RS512": RSA,
        "ES512": ECKey.generate_key("P-521", {"kid": "x"}),
        "HS256": OctKey.generate_key(256),
    }[alg]
    token = jws.serialize_compact({"alg": alg}, b"{}", key, algorithms=[alg])
    with pytest.raises(InvalidTokenError, match="algorithm"):
        await verifier.verify(token, RESOURCE, issuer.now())


@pytest.mark.parametrize("others", ["api://files", ["files", "api://files"]], ids=str)
async def test_other_audiences_take_the_place_of_the_servers_own(others, autojump_clock):
    async with guarded(verifier=lambda i: JwtVerifier(i.url, audience=others, web=i)) as it:
        for audience, status in (("api://files", 200), ("api", 401), (RESOURCE, 401)):
            answer = await it.send("modern", bearing(it.issuer.token("ada", GOOD, aud=audience)))
            assert answer.status == status


async def test_a_token_of_any_of_several_issuers_is_good(autojump_clock):
    other = InMemoryIssuer("https://other.test")
    both = []

    def verifier(issuer):
        both.append(issuer)
        return AnyTokenVerifier(JwtVerifier(other.url, web=other), JwtVerifier(issuer.url, web=issuer))

    async with guarded(verifier=verifier) as it:
        document = await it.probe.send("GET", target="/.well-known/oauth-protected-resource").ended()
        assert json.loads(document.body)["authorization_servers"] == [other.url, it.issuer.url]
        for issuer in (other, it.issuer):
            assert (await it.send("modern", issuer.bearer("ada", GOOD))).status == 200
        await trio.sleep(31)
        other.down = True
        other.add_key()
        assert (await it.send("modern", it.issuer.bearer("bob", GOOD))).status == 200
        assert (await it.send("modern", other.bearer("bob", GOOD))).status == 503
        late = it.issuer.bearer("bob", GOOD, lifetime=-60)
        assert "it has expired" in challenge_of(await it.send("modern", late))["error_description"]
        third = InMemoryIssuer("https://third.test").bearer("bob", GOOD)
        assert "somebody else" in challenge_of(await it.send("modern", third))["error_description"]


async def test_a_token_is_good_until_it_expires_and_no_longer_though_it_is_remembered(autojump_clock):
    async with guarded() as it:
        token = it.issuer.bearer("ada", GOOD, lifetime=100)
        assert (await it.send("modern", token)).status == 200
        await trio.sleep(128)
        assert (await it.send("modern", token)).status == 200
        await trio.sleep(3)
        answer = await it.send("modern", token)
        assert (answer.status, challenge_of(answer)["error"]) == (401, "invalid_token")
