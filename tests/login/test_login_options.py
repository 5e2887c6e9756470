"""What may be said of how to log in, and the sentence that says what to write instead."""

import attrs
import pytest

from mcpbus.client import ClientCredentials, FileTokenStorage, MemoryTokenStorage, OAuth, connect_http
from mcpbus.client.oauth.authorization_code import open_browser

PROGRAM = {"client_id": "me", "client_secret": "s3cret"}


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"client": "me"}, TypeError, "OAuth() has no option 'client'; "),
        ({"scope": ["a"]}, TypeError, "did you mean 'scopes'?"),
        ({"client_id": ""}, ValueError, "client_id is empty; leave it out"),
        ({"client_id": 7}, TypeError, "client_id is a text"),
        ({"client_secret": "s3cret"}, ValueError, "client_secret needs client_id, whose it is"),
        ({"client_id": "me", "client_secret": b"s3cret"}, TypeError, "client_secret is a text"),
        ({"client_metadata_url": "http://a.example/x"}, ValueError, "it must be https"),
        ({"client_metadata_url": "https://a.example/"}, ValueError, "has a path"),
        ({"client_metadata_url": "http://127.0.0.1/x"}, ValueError, "it is https and has a path"),
        ({"client_name": None}, TypeError, "client_name is a text"),
        ({"issuer": "id.example"}, ValueError, "issuer is 'id.example': write an address"),
        ({"issuer": 7}, TypeError, "issuer is a text"),
        ({"scopes": "a b"}, TypeError, 'scopes are a list: write scopes=["files:read"]'),
        ({"scopes": ["a b"]}, ValueError, "'a b' is no scope"),
        ({"scopes": [7]}, ValueError, "7 is no scope"),
        ({"redirect": 0}, ValueError, "ports go from 1 to 65535"),
        ({"redirect": 65536}, ValueError, "ports go from 1 to 65535"),
        ({"redirect": True}, TypeError, "redirect is a port"),
        ({"redirect": 1.5}, TypeError, "redirect is a port"),
        ({"redirect": "https://a.example/callback"}, ValueError, "an address of this machine"),
        ({"redirect": "http://10.0.0.1/callback"}, ValueError, "redirect is"),
        (
            {"redirect": "http://127.0.0.2:8123/callback"},
            ValueError,
            "an address of this machine, as http://127.0.0.1:8123",
        ),
        ({"redirect": "http://127.0.0.1/callback?x"}, ValueError, "an address of this machine"),
        (
            {"store": MemoryTokenStorage},
            TypeError,
            "store is a FileTokenStorage(), a MemoryTokenStorage(), or another TokenStorage",
        ),
        ({"store": {}}, TypeError, "store is a FileTokenStorage()"),
        ({"open_page": "firefox"}, TypeError, "open_page is a function of a URL"),
        ({"timeout": 0}, ValueError, "timeout is more than 0"),
        ({"timeout": "5"}, TypeError, "timeout is a number"),
        ({"assume_pkce": "yes"}, TypeError, "assume_pkce is True or False"),
    ],
)
def test_what_cannot_be_right(options, error, told):
    with pytest.raises(error) as raised:
        OAuth(**options)
    assert told in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({}, TypeError, "needs 'client_id'"),
        ({"client_id": "me"}, ValueError, "give client_secret, or make_assertion, and not both"),
        ({**PROGRAM, "make_assertion": str}, ValueError, "and not both"),
        ({**PROGRAM, "issuer": "x"}, ValueError, "issuer is 'x'"),
        ({**PROGRAM, "store": 7}, TypeError, "store is a FileTokenStorage()"),
        ({**PROGRAM, "scopes": "a"}, TypeError, "scopes are a list"),
        ({**PROGRAM, "open_page": None}, TypeError, "has no option 'open_page'"),
    ],
)
def test_what_no_program_can_log_in_with(options, error, told):
    with pytest.raises(error) as raised:
        ClientCredentials(**options)
    assert told in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("auth", ["s3cret", OAuth, ("me", "s3cret"), {"Authorization": "s3cret"}])
async def test_what_is_no_way_to_log_in(auth):
    takes = r"auth is an OAuth\(\.\.\.\) or ClientCredentials\(\.\.\.\), not (a str|the class OAuth|a tuple|a dict)"
    with pytest.raises(TypeError, match=takes) as raised:
        async with connect_http("https://mcp.example/mcp", auth=auth):
            pass
    assert "s3cret" not in str(raised.value)


def test_what_is_there_by_default():
    auth = OAuth()
    assert (auth.open_page, auth.timeout, auth.redirect, auth.scopes) == (open_browser, 300.0, None, ())
    assert isinstance(auth.store, MemoryTokenStorage)
    assert OAuth().store is not auth.store
    assert OAuth(scopes=iter(["a", "b", "a"])).scopes == ("a", "b")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        auth.timeout = 1


def test_what_is_right_is_taken(tmp_path):
    OAuth(
        client_id="me",
        client_secret="s3cret",
        client_metadata_url="https://app.example/client.json",
        issuer="http://localhost:9000/realms/a",
        redirect="http://localhost:8123/callback",
        store=FileTokenStorage(tmp_path),
        open_page=None,
    )
    OAuth(redirect=65535)


@pytest.mark.parametrize("store", [FileTokenStorage, MemoryTokenStorage])
def test_what_a_store_is_not_told(store):
    with pytest.raises(TypeError, match=f"{store.__name__}.* has no option 'path'"):
        store(path="x")
