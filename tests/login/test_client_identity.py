"""As which client one logs in, and how an issuer is told."""

import base64

import attrs
import pytest

from mcpbus.client.oauth.client_registration import (
    ClientIdentity,
    authenticated,
    can_reuse_registration,
    check_issuer,
    find_client,
    registration,
    validate_registration,
)
from mcpbus.client.oauth.discovery import AuthorizationServer
from mcpbus.client.oauth.errors import LoginError, LoginNeededError, LoginRefusedError
from mcpbus.client.oauth.login import DOCUMENT, GIVEN, REGISTERED, KnownClient, Login

ID = "https://id.example"
OTHER = "https://other.example"
URL = "https://app.example/client.json"
BACK = "http://127.0.0.1:8123/callback"
ISSUER = AuthorizationServer(ID, f"{ID}/token", registration_endpoint=f"{ID}/register")
CLOSED = AuthorizationServer(ID, f"{ID}/token")
READER = attrs.evolve(ISSUER, reads_documents=True)
NOBODY = ClientIdentity()


def login(client, issuer=ISSUER):
    return Login("https://mcp.example", issuer, client)


@pytest.mark.parametrize(
    ("introduction", "issuer", "before", "client"),
    [
        # Who is known is not introduced in another way.
        (ClientIdentity("me"), READER, None, KnownClient("me")),
        (ClientIdentity("me", document=URL), READER, None, KnownClient("me")),
        (ClientIdentity("me", "s"), ISSUER, None, KnownClient("me", "s", "client_secret_basic")),
        (ClientIdentity("me"), CLOSED, None, KnownClient("me")),
        # Then by a document, if it is read.
        (ClientIdentity(document=URL), READER, None, KnownClient(URL, how=DOCUMENT)),
        (ClientIdentity(document=URL), ISSUER, None, None),
        # Then it registers.
        (NOBODY, ISSUER, None, None),
        (NOBODY, READER, None, None),
        # What was given once is kept, and so is the document; what has registered may have to do so again.
        (
            NOBODY,
            CLOSED,
            login(KnownClient("me", "s", "client_secret_post")),
            KnownClient("me", "s", "client_secret_post"),
        ),
        (NOBODY, READER, login(KnownClient(URL, how=DOCUMENT)), KnownClient(URL, how=DOCUMENT)),
        (NOBODY, ISSUER, login(KnownClient("x", how=REGISTERED)), None),
        (ClientIdentity("me"), ISSUER, login(KnownClient("you")), KnownClient("me")),
        (ClientIdentity(document=URL), READER, login(KnownClient("you")), KnownClient(URL, how=DOCUMENT)),
        # But not at another issuer.
        (NOBODY, ISSUER, login(KnownClient("x", "s"), AuthorizationServer(OTHER, f"{OTHER}/token")), None),
    ],
)
def test_as_which_client(introduction, issuer, before, client):
    assert find_client(introduction, issuer, before) == client


@pytest.mark.parametrize(
    ("introduction", "issuer", "way_out"),
    [
        (NOBODY, CLOSED, "give its client_id"),
        (ClientIdentity(document=URL), CLOSED, "give its client_id"),
        (NOBODY, attrs.evolve(CLOSED, reads_documents=True), "client_metadata_url"),
    ],
)
def test_who_cannot_be_known_is_told_what_to_give(introduction, issuer, way_out):
    with pytest.raises(LoginNeededError, match=way_out) as raised:
        find_client(introduction, issuer, None)
    assert ID in str(raised.value)


@pytest.mark.parametrize(
    ("introduction", "before"),
    [
        (ClientIdentity("me", "s", issuer=OTHER), None),
        (ClientIdentity(issuer=OTHER), None),
        (
            ClientIdentity("me", "s"),
            login(KnownClient("me", "s"), AuthorizationServer(OTHER, f"{OTHER}/token")),
        ),
        (NOBODY, login(KnownClient("me", "s"), AuthorizationServer(OTHER, f"{OTHER}/token"))),
    ],
)
def test_what_one_issuer_has_given_no_other_one_is_shown(introduction, before):
    told = "is known to" if introduction.issuer is None else r"the only one to log in at \(issuer\) is"
    with pytest.raises(LoginError, match=told) as raised:
        check_issuer(introduction, ISSUER, before)
    assert ID in str(raised.value)
    assert OTHER in str(raised.value)


@pytest.mark.parametrize(
    ("introduction", "before"),
    [
        (NOBODY, None),
        (ClientIdentity("me", issuer=f"{ID}/"), None),
        (ClientIdentity("me"), login(KnownClient("me"))),
        # Another client, or one that has registered, or is known by a document, is not bound to where it was before.
        (ClientIdentity("me"), login(KnownClient("you"), AuthorizationServer(OTHER, f"{OTHER}/token"))),
        (NOBODY, login(KnownClient("x", how=REGISTERED), AuthorizationServer(OTHER, f"{OTHER}/token"))),
        (NOBODY, login(KnownClient(URL, how=DOCUMENT), AuthorizationServer(OTHER, f"{OTHER}/token"))),
        (
            ClientIdentity(document=URL),
            login(KnownClient("you"), AuthorizationServer(OTHER, f"{OTHER}/token")),
        ),
        (
            ClientIdentity("me", issuer=ID),
            login(KnownClient("me"), AuthorizationServer(OTHER, f"{OTHER}/token")),
        ),
    ],
)
def test_who_may_log_in_at_this_issuer(introduction, before):
    check_issuer(introduction, ISSUER, before)


REGISTRATION = KnownClient("x", how=REGISTERED, redirect=BACK, scopes=("a", "b"))


@pytest.mark.parametrize(
    ("client", "redirect", "scopes", "may"),
    [
        (REGISTRATION, BACK, ["a"], True),
        (REGISTRATION, BACK, [], True),
        (REGISTRATION, BACK, ["a", "c"], False),
        (REGISTRATION, "http://127.0.0.1:9999/callback", ["a"], False),
        (attrs.evolve(REGISTRATION, expires=99.0), BACK, ["a"], False),
        (attrs.evolve(REGISTRATION, expires=101.0), BACK, ["a"], True),
        (attrs.evolve(REGISTRATION, how=GIVEN), BACK, ["a"], False),
    ],
)
def test_when_one_may_go_on_as_a_client_that_has_registered(client, redirect, scopes, may):
    assert can_reuse_registration(client, redirect, scopes, 100.0) is may


@pytest.mark.parametrize(
    ("methods", "method"),
    [
        (None, "none"),
        ([], "none"),
        (["none", "client_secret_basic"], "none"),
        (["client_secret_basic"], "client_secret_basic"),
        (["client_secret_post"], "client_secret_post"),
        (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        (["private_key_jwt"], "none"),
    ],
)
def test_what_a_client_registers_with(methods, method):
    issuer = attrs.evolve(ISSUER, methods=None if methods is None else tuple(methods))
    assert registration("desk", issuer, BACK, ["a"], ["b", "a"]) == {
        "client_name": "desk",
        "redirect_uris": [BACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
        "scope": "a b",
    }


def test_who_asks_for_no_scopes_registers_with_none():
    assert "scope" not in registration("desk", ISSUER, BACK, [], ["b"])


ASKED = registration("desk", ISSUER, BACK, ["a"], [])


@pytest.mark.parametrize(
    ("status", "said", "methods", "client"),
    [
        (201, {"client_id": "x"}, None, KnownClient("x")),
        (200, {"client_id": "x", "token_endpoint_auth_method": "none"}, None, KnownClient("x")),
        # A secret is shown where the issuer says so, or does not say otherwise.
        (
            201,
            {"client_id": "x", "client_secret": "s", "token_endpoint_auth_method": "client_secret_post"},
            None,
            KnownClient("x", "s", "client_secret_post"),
        ),
        (201, {"client_id": "x", "client_secret": "s"}, None, KnownClient("x", "s", "client_secret_basic")),
        (
            201,
            {"client_id": "x", "client_secret": "s"},
            ["client_secret_post"],
            KnownClient("x", "s", "client_secret_post"),
        ),
        (201, {"client_id": "x", "client_secret": "s"}, ["none"], KnownClient("x", "s")),
        (
            201,
            {"client_id": "x", "client_secret": "s", "token_endpoint_auth_method": "tls_client_auth"},
            ["client_secret_post"],
            KnownClient("x", "s", "client_secret_post"),
        ),
        (
            201,
            {"client_id": "x", "client_secret": "s", "client_secret_expires_at": 1000},
            ["none"],
            KnownClient("x", "s", expires=1000.0),
        ),
        (
            201,
            {"client_id": "x", "client_secret": "s", "client_secret_expires_at": 0},
            ["none"],
            KnownClient("x", "s"),
        ),
        (201, {"client_id": "x", "client_secret_expires_at": 1000}, None, KnownClient("x")),
    ],
)
def test_as_which_client_one_has_registered(status, said, methods, client):
    issuer = attrs.evolve(ISSUER, methods=None if methods is None else tuple(methods))
    expected = attrs.evolve(client, how=REGISTERED, redirect=BACK, scopes=("a",))
    assert validate_registration(status, said, ASKED, issuer) == expected


@pytest.mark.parametrize(
    ("status", "said", "code", "why"),
    [
        (400, {"error": "invalid_redirect_uri", "error_description": "no"}, "invalid_redirect_uri", "no"),
        (403, {}, "403", "403"),
        (404, {}, "404", "give its client_id"),
        (200, {"error": "access_denied", "client_id": "x"}, "access_denied", "access_denied"),
        (302, {"client_id": "x"}, "302", "302"),
    ],
)
def test_who_may_not_register_is_told_what_to_do(status, said, code, why):
    with pytest.raises(LoginRefusedError, match=why) as raised:
        validate_registration(status, said, ASKED, ISSUER)
    assert raised.value.code == code
    assert "client_id" in str(raised.value)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"client_id": ""},
        {"client_id": 7},
        {"client_id": "x", "token_endpoint_auth_method": "client_secret_basic"},
        {"client_id": "x", "client_secret": "", "token_endpoint_auth_method": "client_secret_post"},
    ],
)
def test_what_no_client_can_be_made_of(said):
    with pytest.raises(LoginError):
        validate_registration(201, said, ASKED, ISSUER)


def test_how_a_client_says_who_it_is():
    form = {"grant_type": "x"}
    assert authenticated(KnownClient("me"), form) == ({"grant_type": "x", "client_id": "me"}, {})
    assert authenticated(KnownClient("me", "s", "client_secret_post"), form) == (
        {"grant_type": "x", "client_id": "me", "client_secret": "s"},
        {},
    )
    # What a public client was given all the same, it keeps for itself.
    assert authenticated(KnownClient("me", "s"), form) == ({"grant_type": "x", "client_id": "me"}, {})
    said, headers = authenticated(KnownClient("m:e", "s /\xe9", "client_secret_basic"), form)
    assert said == {"grant_type": "x"}
    scheme, _, encoded = headers["Authorization"].partition(" ")
    # RFC 6749, section 2.3.1: each is encoded as in a form before they are put together.
    assert (scheme, base64.b64decode(encoded).decode()) == ("Basic", "m%3Ae:s+%2F%C3%A9")
