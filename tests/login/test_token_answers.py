"""What is asked of token endpoints, and what is believed of their answers."""

import math

import pytest

from mcpbus.client.oauth.discovery import AuthorizationServer
from mcpbus.client.oauth.errors import IssuerUnavailableError, LoginError, LoginRefusedError
from mcpbus.client.oauth.login import KnownClient, Login, Tokens
from mcpbus.client.oauth.redirect import AuthorizationRequest
from mcpbus.client.oauth.token_requests import (
    client_credentials_request,
    code_token_request,
    refresh_request,
    revocation_request,
    validate_tokens,
)

ID = "https://id.example"
ISSUER = AuthorizationServer(ID, f"{ID}/token")
RESOURCE = "https://mcp.example/mcp"
GOOD = {"access_token": "t0ken", "token_type": "Bearer"}


def test_what_is_asked():
    request = AuthorizationRequest("https://page", "http://127.0.0.1:1/callback", ISSUER, "state", "verifier")
    assert code_token_request("c0de", request, RESOURCE) == {
        "grant_type": "authorization_code",
        "code": "c0de",
        "redirect_uri": "http://127.0.0.1:1/callback",
        "code_verifier": "verifier",
        "resource": RESOURCE,
    }
    assert refresh_request("r", RESOURCE) == {
        "grant_type": "refresh_token",
        "refresh_token": "r",
        "resource": RESOURCE,
    }
    assert client_credentials_request(RESOURCE, ["a", "b"]) == {
        "grant_type": "client_credentials",
        "resource": RESOURCE,
        "scope": "a b",
    }
    assert "scope" not in client_credentials_request(RESOURCE, [])


@pytest.mark.parametrize(
    ("tokens", "asked"),
    [
        (None, []),
        (Tokens("a"), [("a", "access_token")]),
        (Tokens("a", refresh="r"), [("r", "refresh_token"), ("a", "access_token")]),
    ],
)
def test_what_is_taken_back(tokens, asked):
    login = Login(RESOURCE, ISSUER, KnownClient("me"), tokens=tokens)
    assert [(form["token"], form["token_type_hint"]) for form in revocation_request(login)] == asked


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ({}, Tokens("t0ken")),
        ({"token_type": "bEARER"}, Tokens("t0ken")),
        ({"expires_in": 3600}, Tokens("t0ken", 4600.0, 4570.0)),
        ({"expires_in": 60}, Tokens("t0ken", 1060.0, 1054.0)),
        ({"expires_in": "3600"}, Tokens("t0ken", 4600.0, 4570.0)),
        ({"expires_in": 2.5}, Tokens("t0ken", 1002.5, 1002.25)),
        ({"refresh_token": "r"}, Tokens("t0ken", refresh="r")),
        ({"refresh_token": ""}, Tokens("t0ken")),
        ({"refresh_token": 7}, Tokens("t0ken")),
        ({"scope": "a b"}, Tokens("t0ken", granted=("a", "b"))),
        ({"scope": ""}, Tokens("t0ken", granted=())),
        ({"scope": ["a"]}, Tokens("t0ken")),
        *[
            ({"expires_in": life}, Tokens("t0ken"))
            for life in (0, -1, None, True, "soon", "nan", math.inf, 10**400, 10**12, [], {})
        ],
    ],
)
def test_what_an_issuer_issues(said, tokens):
    assert validate_tokens(200, {**GOOD, **said}, ISSUER, 1000.0) == tokens


@pytest.mark.parametrize("status", [200, 201, 202, 203, 206])
@pytest.mark.parametrize("before", [None, Tokens("old", 1.0, 0.9, "r", ("a",))])
def test_each_status_of_success_issues_a_token(status, before):
    assert validate_tokens(status, GOOD, ISSUER, 1000.0, before).access == "t0ken"


def test_what_is_not_said_anew_still_holds():
    before = Tokens("old", 1.0, 0.9, "r", ("a",))
    assert validate_tokens(200, GOOD, ISSUER, 1000.0, before) == Tokens("t0ken", None, None, "r", ("a",))
    said = {**GOOD, "refresh_token": "s", "scope": "b"}
    assert validate_tokens(200, said, ISSUER, 1000.0, before) == Tokens("t0ken", None, None, "s", ("b",))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"access_token": "t0ken"},
        {"token_type": "Bearer"},
        {**GOOD, "access_token": ""},
        {**GOOD, "access_token": 7},
        {**GOOD, "access_token": "t0k en"},
        {**GOOD, "access_token": "t0ken\r\nX-Evil: 1"},
        {**GOOD, "access_token": "t\xf6ken"},
        {**GOOD, "token_type": "DPoP"},
        {**GOOD, "token_type": None},
    ],
)
def test_what_is_no_token_that_could_be_used(said):
    with pytest.raises(LoginError) as raised:
        validate_tokens(200, said, ISSUER, 1000.0)
    assert type(raised.value) is LoginError
    assert "t0k" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (400, {"error": "invalid_grant", "error_description": "it \x07 was used"}, "invalid_grant"),
        (401, {"error": "invalid_client"}, "invalid_client"),
        # As one that never says anything but 200.
        (200, {"error": "bad_verification_code", **GOOD}, "bad_verification_code"),
        (400, {}, "400"),
        (404, {}, "404"),
        (302, {}, "302"),
        (302, GOOD, "302"),
        (199, GOOD, "199"),
        (400, GOOD, "400"),
    ],
)
def test_an_issuer_that_refuses(status, said, code):
    with pytest.raises(LoginRefusedError, match=ID) as raised:
        validate_tokens(status, said, ISSUER, 1000.0)
    assert raised.value.code == code
    assert "\x07" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, {}),
        (503, {"error": "invalid_grant"}),
        (429, {}),
        (429, {"error": "slow_down"}),
        (408, {}),
        (400, {"error": "temporarily_unavailable"}),
        (400, {"error": "server_error"}),
    ],
)
def test_an_issuer_that_cannot_answer_now_has_refused_nothing(status, said):
    with pytest.raises(IssuerUnavailableError, match=ID):
        validate_tokens(status, said, ISSUER, 1000.0)


@pytest.mark.parametrize(
    ("renews", "now", "good"), [(None, 9e9, True), (10.0, 9.9, True), (10.0, 10.0, False)]
)
def test_when_a_token_is_renewed(renews, now, good):
    assert Tokens("t", renews=renews).is_good(now) is good
