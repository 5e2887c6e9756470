"""Host, Origin, CORS and the options they obey."""

import pytest

from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.http.options import (
    HttpOptions,
    cors_headers,
    is_preflight,
    preflight,
    validate_host,
    validate_origin,
)


def headers(*fields: tuple[str, str]) -> Headers:
    return Headers([(name.encode(), value.encode("latin-1")) for name, value in fields])


DEFAULT = HttpOptions()
NAMED = HttpOptions(
    allowed_hosts=["Api.example.com", "other.example.com:8443", "[2001:db8::1]"],
    allowed_origins=["https://App.example.com", "vscode-webview://abc", "null"],
)
ANY = HttpOptions(allowed_hosts=["*"], allowed_origins=["*"])


def test_the_defaults_are_those_that_the_documentation_states():
    assert (DEFAULT.path, DEFAULT.max_body_bytes, DEFAULT.sessions) == ("/mcp", 4_194_304, "sessionful")
    assert (DEFAULT.allowed_hosts, DEFAULT.allowed_origins, DEFAULT.get_streams) == ((), (), True)


@pytest.mark.parametrize(
    ("options", "host", "passes"),
    [
        (DEFAULT, "localhost", True),
        (DEFAULT, "LOCALHOST:1", True),
        (DEFAULT, "127.0.0.1:8000", True),
        (DEFAULT, "127.9.9.9", True),
        (DEFAULT, "[::1]:8000", True),
        (DEFAULT, "[::1]", True),
        (DEFAULT, "evil.example", False),
        (DEFAULT, "localhost.evil.example", False),
        (DEFAULT, "127.0.0.1.evil.example", False),
        (DEFAULT, "localhost@evil.example", False),
        (DEFAULT, "localhost:8000:8000", False),
        (DEFAULT, "localhost, evil.example", False),
        (DEFAULT, "0.0.0.0", False),
        (DEFAULT, "128.0.0.1", False),
        (DEFAULT, "[::2]", False),
        (DEFAULT, "", False),
        (DEFAULT, "a" * 5000, False),
        (NAMED, "api.example.com", True),
        (NAMED, "API.example.com:443", True),
        (NAMED, "other.example.com:8443", True),
        (NAMED, "other.example.com:8444", False),
        (NAMED, "other.example.com", False),
        (NAMED, "x.api.example.com", False),
        (NAMED, "api.example.com.evil.example", False),
        (NAMED, "api.example.com:443.evil.example", False),
        (NAMED, "api.example.com:443@evil.example", False),
        (NAMED, "api.example.com@evil.example", False),
        (NAMED, "api.example.com/evil.example", False),
        (NAMED, "api.example.com:x", False),
        (NAMED, "api.example.comevil", False),
        (NAMED, "[2001:db8::1]evil.example", False),
        (NAMED, "[2001:db8::1]:80:80", False),
        (NAMED, "[2001:db8::12]", False),
        (DEFAULT, "[::1]evil.example", False),
        (DEFAULT, "[::1].evil.example:80", False),
        (DEFAULT, "localhostevil.example", False),
        (NAMED, "[2001:db8::1]:80", True),
        (NAMED, "localhost", True),
        (ANY, "whatever.example:99", True),
    ],
)
def test_host_is_a_loopback_name_or_an_allowed_one(options, host, passes):  # W-43
    fault = validate_host(headers(("host", host)), options)
    assert (fault is None) is passes
    if fault is not None and host:
        assert "allowed_hosts" in fault.message


@pytest.mark.parametrize("copies", [[], ["localhost", "localhost"], ["localhost", "evil.example"]])
def test_there_is_exactly_one_host(copies):
    assert validate_host(headers(*(("host", copy) for copy in copies)), ANY) is not None


@pytest.mark.parametrize(
    ("options", "origin", "passes"),
    [
        (DEFAULT, "http://localhost:3000", True),
        (DEFAULT, "https://127.0.0.1", True),
        (DEFAULT, "http://[::1]:6274", True),
        (DEFAULT, "https://evil.example", False),
        (DEFAULT, "http://localhost.evil.example", False),
        (DEFAULT, "http://localhost/evil", False),
        (DEFAULT, "ftp://localhost", False),
        (DEFAULT, "localhost", False),
        (DEFAULT, "null", False),
        (DEFAULT, "", False),
        (NAMED, "https://app.example.com", True),
        (NAMED, "https://app.example.com:8443", False),
        (NAMED, "https://app.example.com.evil.example", False),
        (NAMED, "https://app.example.com@evil.example", False),
        (NAMED, "https://app.example.com/evil", False),
        (NAMED, "https://app.example.comevil", False),
        (NAMED, "vscode-webview://abcd", False),
        (NAMED, "nullevil", False),
        (DEFAULT, "http://localhost:3000.evil.example", False),
        (DEFAULT, "http://127.0.0.1@evil.example", False),
        (DEFAULT, "http://[::1].evil.example", False),
        (NAMED, "http://app.example.com", False),
        (NAMED, "vscode-webview://abc", True),
        (NAMED, "null", True),
        (ANY, "https://evil.example", True),
        (ANY, "https://evil.example\r\nx: y", False),
        (ANY, "", False),
    ],
)
def test_origin_is_loopback_or_an_allowed_one(options, origin, passes):  # W-41, X-28
    fault = validate_origin(headers(("origin", origin)), options)
    assert (fault is None) is passes
    if fault is not None:
        assert "allowed_origins" in fault.message


def test_a_client_that_is_no_browser_sends_no_origin():
    assert validate_origin(headers(), DEFAULT) is None


@pytest.mark.parametrize(
    ("options", "fields", "passes"),
    [
        (DEFAULT, {"sec-fetch-site": "cross-site"}, False),
        (DEFAULT, {"sec-fetch-site": "Cross-Site"}, False),
        (DEFAULT, {"sec-fetch-site": "same-site"}, False),
        (DEFAULT, {"sec-fetch-site": "same-origin"}, True),
        (DEFAULT, {"sec-fetch-site": "none"}, True),
        (DEFAULT, {"sec-fetch-site": "cross-site", "origin": "http://localhost:3000"}, True),
        (DEFAULT, {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, False),
        (NAMED, {"sec-fetch-site": "cross-site"}, False),
        (NAMED, {"sec-fetch-site": "cross-site", "origin": "https://app.example.com"}, True),
        (ANY, {"sec-fetch-site": "cross-site"}, True),
    ],
)
def test_what_a_page_of_elsewhere_embeds_without_an_origin_is_refused(options, fields, passes):
    assert (validate_origin(headers(*fields.items()), options) is None) is passes


def test_two_origins_are_refused():
    twice = headers(("origin", "http://localhost"), ("origin", "http://localhost"))
    assert validate_origin(twice, DEFAULT) is not None
    assert cors_headers(RequestHead("POST", "/mcp", twice), DEFAULT) == []


def test_an_allowed_page_may_read_the_answer_and_the_session_id():
    found = dict(
        cors_headers(RequestHead("POST", "/mcp", headers(("origin", "http://Localhost:1"))), DEFAULT)
    )
    assert found[b"access-control-allow-origin"] == b"http://Localhost:1"
    assert b"Mcp-Session-Id" in found[b"access-control-expose-headers"]
    assert found[b"vary"] == b"Origin"


@pytest.mark.parametrize("fields", [[], [("origin", "https://evil.example")]])
def test_others_are_told_nothing_of_cors(fields):
    assert cors_headers(RequestHead("POST", "/mcp", headers(*fields)), DEFAULT) == []


ORIGIN, METHOD = ("origin", "http://localhost"), ("access-control-request-method", "POST")


@pytest.mark.parametrize(
    ("verb", "fields", "is_one"),
    [
        ("OPTIONS", [ORIGIN, METHOD], True),
        ("OPTIONS", [ORIGIN], False),
        ("OPTIONS", [METHOD], False),
        ("POST", [ORIGIN, METHOD], False),
    ],
)
def test_a_preflight_is_told_from_other_requests(verb, fields, is_one):
    assert is_preflight(RequestHead(verb, "/mcp", headers(*fields))) is is_one


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [
        ("content-type,mcp-method, Mcp-Param-Region", b"content-type,mcp-method, Mcp-Param-Region"),
        ("bad header", None),
        ("a\r\nb: c", None),
        ("a,\xa0b", None),
        ("", None),
    ],
)
def test_a_preflight_is_granted_the_fields_it_asks_for(wanted, granted):
    head = RequestHead("OPTIONS", "/mcp", headers(("access-control-request-headers", wanted)))
    found = dict(preflight(head, b"POST").headers)
    assert found.get(b"access-control-allow-headers") == granted
    assert found[b"access-control-allow-methods"] == b"POST"


@pytest.mark.parametrize(
    ("wrong", "error", "names"),
    [
        ({"path": "mcp"}, ValueError, "path"),
        ({"path": "/mcp?x"}, ValueError, "path"),
        ({"root_path": "tools"}, ValueError, "root_path"),
        ({"root_path": "/tools/"}, ValueError, "root_path"),
        ({"max_body_bytes": 0}, ValueError, "max_body_bytes"),
        ({"sessions": "both"}, ValueError, "sessions"),
        ({"allowed_hosts": "example.com"}, TypeError, "example.com"),
        ({"allowed_hosts": ["https://example.com"]}, ValueError, "allowed_hosts"),
        ({"allowed_origins": "https://example.com"}, TypeError, "example.com"),
        ({"allowed_origins": ["example.com"]}, ValueError, "allowed_origins"),
        ({"allowed_origins": ["https://example.com/"]}, ValueError, "allowed_origins"),
    ],
)
def test_an_option_that_cannot_work_is_refused_where_it_is_set(wrong, error, names):
    with pytest.raises(error, match=names):
        HttpOptions(**wrong)


@pytest.mark.parametrize(("given", "meant"), [("/mcp/", "/mcp"), ("/", "/"), ("/a/b", "/a/b")])
def test_a_slash_at_the_end_makes_no_other_place(given, meant):
    assert HttpOptions(path=given).path == meant
