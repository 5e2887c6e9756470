"""Tokens that are no good, and why: each is made by the issuer for which it would be meant."""

import base64
import hmac
import json

from guarded import RESOURCE
from joserfc import jwe
from joserfc.jwk import ECKey, RSAKey

HS256 = b'{"alg":"HS256","kid":"key 1"}'
GOOD = ["files:read"]


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def made(header, payload=None):
    """A token of a header and some claims that nobody has signed."""
    return f"{b64(header)}.{b64(b'{}') if payload is None else payload.decode()}.AAAA"


def unsigned(issuer):
    payload = issuer.token("ada", GOOD).split(".")[1]
    return f"{b64(json.dumps({'alg': 'none'}).encode())}.{payload}."


def signed_with_the_public_key(issuer):
    """What some libraries took for good: the public key, as the secret of an HMAC."""
    payload = base64.urlsafe_b64decode(issuer.token("ada", GOOD).split(".")[1] + "==")
    start = f"{b64(HS256)}.{b64(payload)}"
    return f"{start}.{b64(hmac.digest(issuer.keys[-1].as_pem(private=False), start.encode(), 'sha256'))}"


def encrypted(issuer):
    key = RSAKey.generate_key(2048)
    header = {"alg": "RSA-OAEP", "enc": "A128CBC-HS256"}
    return jwe.encrypt_compact(header, b"{}", key)


def forged(issuer):
    return issuer.sign(b'{"iss":"https://issuer.test"}', key=ECKey.generate_key("P-256", {"kid": "key 1"}))


def altered(issuer):
    header, payload, signature = issuer.token("ada", GOOD).split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{header}.{b64(json.dumps({**claims, 'sub': 'root'}).encode())}.{signature}"


def nested(depth):
    """A token that is signed as it should be, whose claims are nested so deeply."""

    def make(issuer):
        claims = json.dumps({"iss": issuer.url, "sub": "ada", "aud": RESOURCE, "exp": issuer.now() + 100})
        return issuer.sign(claims.encode()[:-1] + b',"a":' + b"[" * depth + b"]" * depth + b"}")

    return make


def respelt(issuer, character):
    """A token whose signature begins with another character."""
    start, _, signature = issuer.token("ada", GOOD).rpartition(".")
    return f"{start}.{character}{signature[1:]}"


NO_TOKEN = "it is not a signed token"
TOO_DEEP = "it is nested too deeply"
UNADMITTED = "it is not signed with an algorithm that is admitted here"
UNKNOWN_KEY = "it is signed with a key that the issuer does not have"
OTHER_TYPE = "it is no access token, but a token of another type"
BOUND = "it is bound to a key (cnf), and no proof of that key is accepted here"
CLAIMED = {
    "bound to a key by DPoP": ({"cnf": {"jkt": "0ZcOCORZNYy"}}, BOUND),
    "bound to a certificate": ({"cnf": {"x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2"}}, BOUND),
    "bound to nothing in particular": ({"cnf": {}}, BOUND),
    "bound to what cannot be read": ({"cnf": False}, BOUND),
    "a logout token": ({"events": {}}, "it is no access token, but a security event token"),
    "an ID token by its hash": ({"at_hash": "a"}, "it is no access token, but an ID token"),
    "an ID token of Keycloak": ({"typ": "ID"}, "it is no access token, but an ID token"),
    "a refresh token of Keycloak": ({"typ": "Refresh"}, "it is no access token, but a refresh token"),
    "an ID token of Cognito": ({"token_use": "id"}, "it is no access token, but an ID token"),
    "a token for DPoP": ({"token_type": "DPoP"}, "it is no access token, but a token that is bound to a key"),
}
"""Claims of tokens that are not for each bearer, whether a token or its issuer states them."""

TYPED = {
    "logout+jwt": "it is no access token, but a logout token",
    "application/logout+jwt": "it is no access token, but a logout token",
    "LOGOUT+JWT": "it is no access token, but a logout token",
    "dpop+jwt": "it is no access token, but a proof of possession",
    "secevent+jwt": "it is no access token, but a security event token",
    "id_token+jwt": "it is no access token, but an ID token",
    "oauth-authz-req+jwt": "it is no access token, but an authorization request",
    "example+jwt": OTHER_TYPE,
    "application/jwt+at": OTHER_TYPE,
    "text/at+jwt": OTHER_TYPE,
    "at+jwt ": OTHER_TYPE,
    "JOSE": OTHER_TYPE,
    "": OTHER_TYPE,
}
"""Types of which no access token is."""


def typed(typ):
    return lambda issuer: issuer.token("ada", GOOD, header={"typ": typ})


def claiming(claims):
    return lambda issuer: issuer.token("ada", GOOD, **claims)


BAD = {
    **{f"typ {typ!r}": (typed(typ), why) for typ, why in TYPED.items()},
    "typ that is a number": (lambda _: made(b'{"alg":"ES256","typ":7}'), "its typ is no text"),
    "typ that is a list": (lambda _: made(b'{"alg":"ES256","typ":["at+jwt"]}'), "its typ is no text"),
    **{name: (claiming(claims), why) for name, (claims, why) in CLAIMED.items()},
    "one part": (lambda _: "abc", NO_TOKEN),
    "three parts of nothing": (lambda _: "a.b.c", NO_TOKEN),
    "four parts": (lambda i: i.token("ada", GOOD) + ".x", NO_TOKEN),
    "padding": (lambda i: i.token("ada", GOOD) + "==", NO_TOKEN),
    "a plus": (lambda i: respelt(i, "+"), NO_TOKEN),
    "a slash": (lambda i: respelt(i, "/"), NO_TOKEN),
    "a tilde": (lambda i: respelt(i, "~"), NO_TOKEN),
    "tildes more": (lambda i: i.token("ada", GOOD) + "~~~~", NO_TOKEN),
    "a header that is a list": (lambda _: made(b"[]"), NO_TOKEN),
    "a header that is a number": (lambda _: made(b"1"), NO_TOKEN),
    "a header that is no JSON": (lambda _: made(b"\xff"), NO_TOKEN),
    "a header without alg": (lambda _: made(b"{}"), NO_TOKEN),
    "an alg that is a list": (lambda _: made(b'{"alg":[]}'), NO_TOKEN),
    "an alg that is nothing": (lambda _: made(b'{"alg":null}'), NO_TOKEN),
    "a kid that is a number": (lambda _: made(b'{"alg":"ES256","kid":7}'), NO_TOKEN),
    "alg twice": (
        lambda i: made(b'{"alg":"ES256","alg":"none"}', i.token().split(".")[1].encode()),
        UNADMITTED,
    ),
    "claims that are nested": (nested(700), TOO_DEEP),
    "claims that are nested more deeply": (nested(5000), TOO_DEEP),
    "claims that are a list": (lambda i: i.sign(b"[]"), NO_TOKEN),
    "claims that are no JSON": (lambda i: i.sign(b"\xff"), NO_TOKEN),
    "encrypted": (encrypted, NO_TOKEN),
    "alg none": (unsigned, UNADMITTED),
    "HS256 with the public key": (signed_with_the_public_key, UNADMITTED),
    "another key of that name": (forged, "its signature is wrong"),
    "altered": (altered, "its signature is wrong"),
    "unknown kid": (lambda i: i.token("ada", GOOD, header={"kid": "other"}), UNKNOWN_KEY),
    "crit": (
        lambda _: made(b'{"alg":"ES256","crit":["exp"],"exp":1}'),
        "it has critical extensions, of which none is known here",
    ),
    "other issuer": (
        lambda i: i.token("ada", GOOD, iss="https://evil.example"),
        "it was issued by somebody else",
    ),
    "no issuer": (lambda i: i.token("ada", GOOD, iss=None), "it was issued by somebody else"),
    "issuer with a slash more": (lambda i: i.token(iss=f"{i.url}/"), "it was issued by somebody else"),
    "other audience": (
        lambda i: i.token("ada", GOOD, aud="https://other.example"),
        "it was issued for another audience",
    ),
    "other audiences": (
        lambda i: i.token(aud=["https://other.example", 7]),
        "it was issued for another audience",
    ),
    "no audience": (lambda i: i.token("ada", GOOD, aud=None), "it was issued for another audience"),
    "no exp": (lambda i: i.token("ada", GOOD, exp=None), "it never expires"),
    "exp that is text": (lambda i: i.token("ada", GOOD, exp="tomorrow"), "its exp is no time"),
    "exp that is true": (lambda i: i.token("ada", GOOD, exp=True), "its exp is no time"),
    "exp in a million years": (lambda i: i.token("ada", GOOD, exp=1e14), "its exp is no time"),
    "expired": (lambda i: i.token("ada", GOOD, lifetime=-31), "it has expired"),
    "not yet valid": (lambda i: i.token("ada", GOOD, nbf=i.now() + 31), "it is not valid yet"),
    "issued in the future": (lambda i: i.token("ada", GOOD, iat=i.now() + 31), "it is not valid yet"),
    "nobody's": (lambda i: i.token(sub=None, client_id=None), "it does not say whose it is"),
    "whose name is a number": (lambda i: i.token(sub=7), "it does not say whose it is"),
    "whose name is empty": (lambda i: i.token(sub=""), "it does not say whose it is"),
}
