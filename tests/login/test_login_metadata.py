"""Where a client looks for metadata, in which order, and what it believes of it."""

import pytest

from mcpbus.client.oauth.discovery import (
    AuthorizationServer,
    ProtectedResource,
    choose_issuer,
    default_issuer,
    issuer_places,
    resource_places,
    same_issuer,
    server_uri,
    validate_issuer,
    validate_resource,
)
from mcpbus.client.oauth.errors import MetadataError

URL = "https://mcp.example/tools/mcp"
PLACE = "https://mcp.example/.well-known/oauth-protected-resource/tools/mcp"
ROOT = "https://mcp.example/.well-known/oauth-protected-resource"
ID = "https://id.example"
WHERE = f"{ID}/.well-known/oauth-authorization-server"
ISSUER = {"issuer": ID, "token_endpoint": f"{ID}/token"}


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("https://MCP.Example/Tools", "https://mcp.example/Tools"),
        ("HTTPS://mcp.example:443/", "https://mcp.example"),
        ("http://localhost:80/mcp/", "http://localhost/mcp"),
        ("https://mcp.example:8443", "https://mcp.example:8443"),
        ("https://mcp.example/mcp?tenant=a#x", "https://mcp.example/mcp?tenant=a"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
    ],
)
def test_the_canonical_uri_of_a_server(url, uri):
    assert server_uri(url) == uri


@pytest.mark.parametrize(
    ("url", "told", "places"),
    [
        (URL, None, [PLACE, ROOT]),
        (URL, "https://meta.example/x", ["https://meta.example/x", PLACE, ROOT]),
        (URL, PLACE, [PLACE, ROOT]),
        (URL, ROOT, [ROOT, PLACE]),
        ("https://mcp.example/", None, [ROOT]),
        ("https://mcp.example/mcp?a=b", None, [f"{ROOT}/mcp?a=b", ROOT]),
    ],
)
def test_where_the_metadata_of_a_server_may_be(url, told, places):
    assert resource_places(url, told) == places


@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        (
            "https://id.example",
            ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"],
        ),
        (
            "https://id.example/",
            ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"],
        ),
        (
            "https://id.example/tenant1",
            [
                "/.well-known/oauth-authorization-server/tenant1",
                "/.well-known/openid-configuration/tenant1",
                "/tenant1/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_where_the_metadata_of_an_issuer_may_be(issuer, places):
    assert issuer_places(issuer) == [f"{ID}{place}" for place in places]


@pytest.mark.parametrize(
    "issuer",
    [
        "http://id.example",
        "ftp://id.example",
        "javascript:alert(1)",
        "//id.example",
        "id.example",
        "https://ada:secret@id.example",
        "https://id.example/#x",
        "https://id.example?x=y",
        "https://id.example/a b",
        "https://id.example:99999",
        "",
    ],
)
def test_an_issuer_that_is_no_address_is_asked_nothing(issuer):
    with pytest.raises(MetadataError) as raised:
        issuer_places(issuer)
    assert "the issuer that the server names" in str(raised.value)


@pytest.mark.parametrize(
    "resource",
    [
        "https://mcp.example/tools/mcp",
        "https://mcp.example/tools/mcp/",
        "https://mcp.example/tools",
        "https://mcp.example",
        "https://MCP.EXAMPLE:443/tools/mcp",
    ],
)
def test_a_server_may_be_the_resource_itself_or_lie_below_it(resource):
    found = validate_resource({"resource": resource, "authorization_servers": [ID]}, PLACE, URL)
    assert found == ProtectedResource(resource, (ID,), None)


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example/tools/mcp",
        "https://mcp.example.evil.example/tools/mcp",
        "http://mcp.example/tools/mcp",
        "https://mcp.example:8443/tools/mcp",
        "https://mcp.example/tools/mcp/more",
        "https://mcp.example/tool",
        "https://mcp.example/tools/m",
        "https://mcp.example/Tools/mcp",
        "https://mcp.example/tools/mcp?tenant=b",
        "https://mcp.example/tools/mcp#",
        "https://evil@mcp.example/tools/mcp",
        "https://mcp.example:99999999/tools/mcp",
        "mcp.example/tools/mcp",
        "/tools/mcp",
    ],
)
def test_what_is_said_of_another_server_is_not_believed(resource):
    with pytest.raises(MetadataError, match="of another server"):
        validate_resource({"resource": resource, "authorization_servers": [ID]}, PLACE, URL)


def test_a_server_with_a_query_is_the_one_of_that_query_or_lies_below_one_without():
    url = f"{URL}?tenant=a"
    for resource in (url, URL):
        validate_resource({"resource": resource, "authorization_servers": [ID]}, PLACE, url)
    with pytest.raises(MetadataError):
        validate_resource({"resource": f"{URL}?tenant=b", "authorization_servers": [ID]}, PLACE, url)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "does not say which server it is of"),
        ({"resource": 7}, "does not say which server it is of"),
        ({"resource": ""}, "does not say which server it is of"),
        ({"resource": URL}, "does not say who issues tokens"),
        ({"resource": URL, "authorization_servers": []}, "does not say who issues tokens"),
        ({"resource": URL, "authorization_servers": ID}, "does not say who issues tokens"),
        ({"resource": URL, "authorization_servers": [7, None, ""]}, "does not say who issues tokens"),
    ],
)
def test_what_a_server_must_say(document, why):
    with pytest.raises(MetadataError, match=why) as raised:
        validate_resource(document, PLACE, URL)
    assert PLACE in str(raised.value)


def test_what_a_server_lists():
    document = {"resource": URL, "authorization_servers": [ID], "scopes_supported": ["b", "a", "b", 7]}
    assert validate_resource(document, PLACE, URL).scopes == ("b", "a")
    assert validate_resource({**document, "scopes_supported": []}, PLACE, URL).scopes == ()
    assert validate_resource({**document, "scopes_supported": "b"}, PLACE, URL).scopes is None


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ((), "https://one.example"),
        ((None, None), "https://one.example"),
        (("https://two.example/",), "https://two.example"),
        ((None, "https://two.example"), "https://two.example"),
        (("https://two.example", "https://one.example"), "https://two.example"),
        (("https://three.example", "https://two.example"), "https://two.example"),
        (("https://three.example",), "https://one.example"),
    ],
)
def test_which_issuer_is_chosen_of_several(wanted, chosen):
    resource = ProtectedResource(URL, ("https://one.example", "https://two.example"))
    assert choose_issuer(resource, *wanted) == chosen


def test_all_that_an_issuer_says_of_itself():
    document = {
        **ISSUER,
        "authorization_endpoint": "https://login.example/authorize?x=y",
        "registration_endpoint": f"{ID}/register",
        "revocation_endpoint": f"{ID}/revoke",
        "scopes_supported": ["a", "offline_access"],
        "token_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["plain", "S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": True,
    }
    assert validate_issuer(document, WHERE, ID) == AuthorizationServer(
        ID,
        f"{ID}/token",
        "https://login.example/authorize?x=y",
        f"{ID}/register",
        f"{ID}/revoke",
        ("a", "offline_access"),
        ("none",),
        pkce=True,
        says_itself=True,
        reads_documents=True,
    )


@pytest.mark.parametrize(
    ("said", "pkce"),
    [(None, False), ([], False), (["plain"], False), (["s256"], False), ("S256", False), (["S256"], True)],
)
def test_who_does_not_say_that_it_checks_codes_does_not(said, pkce):
    assert validate_issuer({**ISSUER, "code_challenge_methods_supported": said}, WHERE, ID).pkce is pkce


@pytest.mark.parametrize("said", ["true", 1, None, [True]])
def test_what_is_not_true_is_not_so(said):
    document = {
        **ISSUER,
        "authorization_response_iss_parameter_supported": said,
        "client_id_metadata_document_supported": said,
    }
    issuer = validate_issuer(document, WHERE, ID)
    assert (issuer.says_itself, issuer.reads_documents) == (False, False)


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        "",
        "https://honest.example",
        "https://id.example.evil.example",
        "http://id.example",
        "https://id.example/tenant",
        "https://ID.example",
        "https://id.example:443",
        "https://id.example//",
        "https://id.exampl%65",
    ],
)
def test_what_is_said_of_another_issuer_is_not_believed(said):
    with pytest.raises(MetadataError, match="of another issuer"):
        validate_issuer({**ISSUER, "issuer": said}, WHERE, ID)


@pytest.mark.parametrize("name", [ID, f"{ID}/tenant"])
def test_a_slash_at_its_end_makes_no_other_issuer_and_its_own_way_to_write_it_counts(name):
    """Google's servers name theirs with one, and it calls itself by none; others are the other way round."""
    for said, named in ((name, f"{name}/"), (f"{name}/", name)):
        assert same_issuer(said, named)
        assert validate_issuer({**ISSUER, "issuer": said}, WHERE, named).name == said


@pytest.mark.parametrize(
    "endpoint", ["token_endpoint", "authorization_endpoint", "registration_endpoint", "revocation_endpoint"]
)
@pytest.mark.parametrize(
    "address",
    [
        "http://id.example/x",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "https://id.example/x#y",
        "https://u@id.example/x",
        "https://id.example/x y",
        "https://id.example/x\ny",
        "/x",
    ],
)
def test_an_endpoint_is_https_or_on_this_machine(endpoint, address):
    with pytest.raises(MetadataError, match=endpoint) as raised:
        validate_issuer({**ISSUER, endpoint: address}, WHERE, ID)
    assert "\n" not in str(raised.value)
    validate_issuer({**ISSUER, endpoint: "http://127.0.0.1:9000/x"}, WHERE, ID)


def test_an_issuer_without_a_token_endpoint_is_none():
    with pytest.raises(MetadataError, match="no token_endpoint"):
        validate_issuer({"issuer": ID}, WHERE, ID)


def test_what_a_server_of_2025_03_26_is_by_default():
    origin = "https://mcp.example"
    assert default_issuer(URL) == AuthorizationServer(
        origin, f"{origin}/token", f"{origin}/authorize", f"{origin}/register", pkce=True
    )


def test_what_others_say_is_shown_without_what_steers_a_terminal_and_not_for_ever():
    said = "https://evil.example/\x1b]0;\u202e" + "x" * 1000
    with pytest.raises(MetadataError) as raised:
        validate_issuer({**ISSUER, "issuer": said}, WHERE, ID)
    assert not {"\x1b", "\u202e"} & {*str(raised.value)}
    assert len(str(raised.value)) < 1000
