"""The page to log in at, and what comes back from it."""

import base64
import hashlib
from urllib.parse import parse_qs, urlencode, urlsplit

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.client.oauth import redirect
from mcpbus.client.oauth.discovery import AuthorizationServer
from mcpbus.client.oauth.errors import LoginError, LoginRefusedError, MetadataError
from mcpbus.client.oauth.login import KnownClient
from mcpbus.client.oauth.redirect import belongs, code_challenge, make_request, validate_redirect

ID = "https://id.example"
BACK = "http://127.0.0.1:8123/callback"
RESOURCE = "https://mcp.example/mcp"
ISSUER = AuthorizationServer(ID, f"{ID}/token", f"{ID}/authorize", pkce=True)
SAYING = attrs.evolve(ISSUER, says_itself=True)


def request(issuer=ISSUER, scopes=("a", "b"), **options):
    return make_request(issuer, KnownClient("me"), BACK, resource=RESOURCE, scopes=scopes, **options)


def asked(made):
    return {name: value for name, [value] in parse_qs(urlsplit(made.url).query).items()}


def test_what_is_asked():
    made = request()
    assert made.url.startswith(f"{ID}/authorize?")
    assert asked(made) == {
        "response_type": "code",
        "client_id": "me",
        "redirect_uri": BACK,
        "state": made.state,
        "code_challenge": code_challenge(made.verifier),
        "code_challenge_method": "S256",
        "resource": RESOURCE,
        "scope": "a b",
    }
    assert "scope" not in asked(request(scopes=()))
    assert asked(request(scopes=("a", "offline_access")))["prompt"] == "consent"


def test_what_the_page_has_in_its_address_is_kept():
    made = request(attrs.evolve(ISSUER, authorization_endpoint=f"{ID}/login?tenant=x&y"))
    assert made.url.startswith(f"{ID}/login?tenant=x&y&response_type=code&")


def test_nothing_of_two_requests_is_alike_that_has_to_be_guessed():
    one, two = request(), request()
    assert one.state != two.state
    assert one.verifier != two.verifier
    assert min(len(one.state), len(one.verifier)) >= 43  # RFC 7636, section 4.1


def test_the_challenge_of_rfc_7636_appendix_b():
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert code_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    digest = hashlib.sha256(verifier.encode()).digest()
    assert base64.urlsafe_b64decode(code_challenge(verifier) + "=") == digest


def test_an_issuer_that_does_not_say_that_it_checks_codes_is_left_alone_unless_somebody_knows_better():
    silent = attrs.evolve(ISSUER, pkce=False)
    with pytest.raises(MetadataError, match=r"PKCE.*assume_pkce"):
        request(silent)
    assert asked(request(silent, assume_pkce=True))["code_challenge_method"] == "S256"


def test_an_issuer_without_a_page_has_nobody_log_in():
    with pytest.raises(MetadataError, match="authorization_endpoint"):
        request(attrs.evolve(ISSUER, authorization_endpoint=None))


@pytest.mark.parametrize(
    ("issuer", "iss", "good"),
    [
        # The table of the specification, "Authorization Response Validation".
        (SAYING, ID, True),
        (SAYING, None, False),
        (SAYING, "https://evil.example", False),
        (ISSUER, ID, True),
        (ISSUER, None, True),
        (ISSUER, "https://evil.example", False),
        # Compared to the letter.
        (SAYING, f"{ID}/", False),
        (SAYING, "https://ID.example", False),
        (SAYING, "https://id.example:443", False),
        (SAYING, "https://id.exampl%65", False),
        (SAYING, "", False),
        (ISSUER, "", False),
    ],
)
def test_who_has_sent_the_person_back(issuer, iss, good):
    made = request(issuer)
    said = {"state": made.state, "code": "c0de"} | ({} if iss is None else {"iss": iss})
    if good:
        assert validate_redirect(urlencode(said), made) == "c0de"
        return
    with pytest.raises(LoginError) as raised:
        validate_redirect(urlencode(said), made)
    assert type(raised.value) is LoginError
    # Nor is an error shown that somebody else has made up.
    forged = {**said, "error": "access_denied", "error_description": "call 555-1234"}
    with pytest.raises(LoginError) as raised:
        validate_redirect(urlencode(forged), made)
    assert type(raised.value) is LoginError
    assert "555" not in str(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda state: "",
        lambda state: "code=c0de",
        lambda state: "code=c0de&state=",
        lambda state: f"code=c0de&state={state}x",
        lambda state: f"code=c0de&state={state[:-1]}",
        lambda state: f"code=c0de&state={state}&state={state}",
        lambda state: f"code=c0de&state=x&state={state}",
        lambda state: "code=c0de&state=%ff%fe",
        lambda state: f"error=access_denied&state={state.swapcase()}",
        lambda state: "&".join(["a=b"] * 60) + f"&code=c0de&state={state}",
    ],
)
def test_what_belongs_to_no_login_of_ours(make):
    made = request()
    query = make(made.state)
    assert not belongs(query, made)
    with pytest.raises(LoginError, match="belongs to no login") as raised:
        validate_redirect(query, made)
    assert "c0de" not in str(raised.value)


def test_states_are_compared_in_the_same_time_whatever_they_are(monkeypatch):
    compared = []

    def compare(one, two):
        compared.append((one, two))
        return one == two

    monkeypatch.setattr(redirect.hmac, "compare_digest", compare)
    made = request()
    assert belongs(f"state={made.state}", made)
    assert compared == [(made.state.encode(), made.state.encode())]


@pytest.mark.parametrize(
    "more",
    ["&code=other", "&iss=https%3A%2F%2Fid.example&iss=https%3A%2F%2Fevil.example", "&error=a&error=b"],
)
def test_what_says_something_twice_says_nothing(more):
    made = request()
    with pytest.raises(LoginError, match="twice"):
        validate_redirect(f"state={made.state}&code=c0de{more}", made)


def test_what_the_issuer_or_the_person_refuses():
    made = request()
    said = {"state": made.state, "error": "access_denied", "error_description": "not \x1b[31mtoday"}
    with pytest.raises(
        LoginRefusedError, match=r"https://id\.example .*\(access_denied: not \ufffd\[31mtoday\)"
    ) as raised:
        validate_redirect(urlencode(said), made)
    assert raised.value.code == "access_denied"


@pytest.mark.parametrize("more", ["", "&code="])
def test_who_comes_back_with_nothing(more):
    made = request()
    with pytest.raises(LoginError, match="no code"):
        validate_redirect(f"state={made.state}{more}", made)


@given(st.text())
def test_whatever_else_comes_is_nobodys(query):
    made = request()
    assert not belongs(query, made)
