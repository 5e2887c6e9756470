"""A login as it is kept, and what shows of it."""

import json

import pytest

from mcpbus.client import ClientCredentials, OAuth
from mcpbus.client.oauth.client_registration import ClientIdentity
from mcpbus.client.oauth.discovery import AuthorizationServer
from mcpbus.client.oauth.errors import (
    InsufficientScopeError,
    LoginError,
    LoginRefusedError,
    copy_error,
    sanitize,
)
from mcpbus.client.oauth.http import OAuthResponse
from mcpbus.client.oauth.login import KnownClient, Login, Tokens, decode_login, encode_login
from mcpbus.client.oauth.redirect import AuthorizationRequest, make_request
from mcpbus.client.oauth.refusal import TokenChallenge

ISSUER = AuthorizationServer(
    "https://id.example", "https://id.example/token", "https://id.example/authorize", pkce=True
)
CLIENT = KnownClient(
    "me", "s3cret", "client_secret_post", redirect="http://127.0.0.1:1/callback", scopes=("a",)
)
TOKENS = Tokens("s3cret-access", 2.0, 1.0, "s3cret-refresh", ("a",))
LOGIN = Login("https://mcp.example", ISSUER, CLIENT, ("a", "b"), TOKENS, ("c",), 3)


def test_a_login_is_read_as_it_was_written():
    assert decode_login(encode_login(LOGIN), "u") == LOGIN
    assert json.loads(encode_login(LOGIN))["tokens"]["access"] == "s3cret-access"


@pytest.mark.parametrize(
    "stored", [b"", b"{", b"{}", b'{"resource": "s3cret"}', b'"s3cret"', b"[" * 9999, b"\xff"]
)
def test_what_is_no_login_says_how_to_be_rid_of_it_and_shows_nothing(stored):
    with pytest.raises(LoginError, match=r"mcpbus logout https://mcp\.example") as raised:
        decode_login(stored, "https://mcp.example")
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    "value",
    [
        CLIENT,
        TOKENS,
        LOGIN,
        make_request(ISSUER, CLIENT, "http://127.0.0.1:1/callback", resource="r", scopes=()),
        AuthorizationRequest("https://page?state=s3cret", "back", ISSUER, "s3cret", "s3cret"),
        ClientIdentity("me", "s3cret"),
        TokenChallenge("s3cret", too_little=False),
        OAuthResponse(200, {"access_token": "s3cret"}),
        OAuth(client_id="me", client_secret="s3cret"),
        ClientCredentials(client_id="me", client_secret="s3cret"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_secret_shows(value):
    assert "s3cret" not in f"{value!r} {value}"
    for name in ("state", "verifier"):
        assert getattr(value, name, "s3cret") not in repr(value)


@pytest.mark.parametrize(
    "error",
    [LoginError("x"), LoginRefusedError("x", "access_denied"), InsufficientScopeError("x", ("a",))],
)
def test_who_waits_for_the_same_has_an_error_of_their_own(error):
    error.__cause__ = ValueError()
    other = copy_error(error)
    assert other is not error
    assert (type(other), str(other), vars(other)) == (type(error), "x", vars(error))
    assert other.__traceback__ is None


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("a\x1b[31m\nb\x7f\x9b\u2028\u202e\ud800", "a\ufffd[31m\ufffdb" + "\ufffd" * 5),
        ("x" * 301, "x" * 300 + "..."),
        (7, "7"),
    ],
)
def test_what_others_say_cannot_steer_a_terminal(said, seen):
    assert sanitize(said) == seen
