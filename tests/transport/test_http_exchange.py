"""The judgement of requests that are let through, and what answers beside the endpoint."""

import pytest
from exchanges import (
    CLAIM,
    HELLO,
    NOTE,
    PREFIX,
    REPLY,
    SESSION,
    Directory,
    E,
    body,
    judge,
    legacy_head,
    make_head,
    modern_head,
    modern_request,
    request,
)

from mcpbus.protocol.http.head_validation import HeadValidator, health
from mcpbus.protocol.http.headers import AcceptHeader
from mcpbus.protocol.http.messages import (
    ACCEPTED,
    AcceptNotification,
    DeliverResponse,
    EndSession,
    Initialize,
    OpenStream,
    Proceed,
    Serve,
)
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.http.validation import RequestValidator
from mcpbus.protocol.revisions import ASSUMED, LATEST, REVISIONS, Era

# -- what is let through -----------------------------------------------------------------------------------------------


def test_a_modern_request_is_served_by_itself():  # M-1, M-8
    directory = Directory()
    verdict = judge(
        modern_head("tools/call", mcp_name=" a "), modern_request("tools/call", name="a"), directory=directory
    )
    assert isinstance(verdict, Serve)
    assert (verdict.request.id, verdict.routing.name, verdict.revision) == (1, "a", LATEST)
    assert (verdict.session, verdict.claim.client_capabilities) == (None, {})
    assert verdict.accepted == AcceptHeader(json=True, sse=True)
    assert directory.asked == [("offers", "tools/call", Era.MODERN), ("mirrored_parameters", "a", "alice")]


@pytest.mark.parametrize(
    ("rule", "head", "sent"),
    [
        ("D-8", modern_head(mcp_session_id="gone", last_event_id="9"), modern_request()),
        ("X-21", make_head(MCP_PROTOCOL_VERSION=E, MCP_METHOD="tools/list"), modern_request()),
        (
            "X-22",
            modern_head("tools/call", mcp_name="=?base64?w6k=?="),
            modern_request("tools/call", name="é"),
        ),
        (
            "X-19",
            modern_head("resources/read", mcp_name="a://b"),
            modern_request("resources/read", uri="a://b"),
        ),
        ("X-19", modern_head(mcp_name="of nothing"), modern_request()),
        ("F-14", modern_head("tools/call"), modern_request("tools/call", name=5)),
        (
            "M-3",
            modern_head(),
            modern_request(meta={**CLAIM, PREFIX + "clientInfo": {"name": "c", "version": "1"}}),
        ),
        (
            "W-48",
            modern_head("subscriptions/listen", accept="text/event-stream"),
            modern_request("subscriptions/listen"),
        ),
    ],
)
@pytest.mark.parametrize("sessions", ["sessionful", "stateless"])
def test_modern_requests_that_are_in_order(rule, head, sent, sessions):
    verdict = judge(head, sent, sessions=sessions)
    assert isinstance(verdict, Serve), (rule, verdict)
    assert verdict.revision is LATEST
    assert verdict.session is None


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (make_head(mcp_protocol_version=E), body(method="a")),
        (modern_head("a"), body(method="a", params={"_meta": CLAIM})),
        (make_head(), body(method="a", params={"_meta": CLAIM})),
        (make_head(), body(method="a", params={"_meta": {PREFIX + "clientInfo": {}}})),
    ],
)
def test_a_modern_notification_needs_no_headers(head, sent):
    verdict = judge(head, sent)
    assert isinstance(verdict, AcceptNotification)
    assert (verdict.notification.method, verdict.session) == ("a", None)


@pytest.mark.parametrize("version", [None, "2025-06-18", "2025-11-25"])
def test_a_legacy_request_is_governed_by_its_session(version):  # W-39, W-40
    verdict = judge(legacy_head(mcp_protocol_version=version), request("no/such"))
    assert isinstance(verdict, Serve)
    assert (verdict.session, verdict.revision, verdict.claim) == (SESSION, SESSION.revision, None)


@pytest.mark.parametrize(
    "meta", [{"progressToken": 1}, {PREFIX + "related-task": {"taskId": "t"}}, {"traceparent": "x"}, None]
)
def test_a_meta_without_a_claim_is_legacy(meta):  # D-3
    assert judge(legacy_head(), request(_meta=meta)).session is SESSION


@pytest.mark.parametrize(
    ("version", "governs"),
    [(None, ASSUMED), ("2025-11-25", REVISIONS["2025-11-25"]), ("2024-11-05", REVISIONS["2024-11-05"])],
)
def test_a_stateless_legacy_request_needs_no_session(version, governs):  # W-48
    directory = Directory()
    head = make_head(mcp_protocol_version=version, mcp_session_id="ignored")
    verdict = judge(head, request(), directory=directory, sessions="stateless")
    assert isinstance(verdict, Serve)
    assert (verdict.session, verdict.revision) == (None, governs)
    assert directory.asked == []


def test_a_session_of_somebody_else_is_not_found():  # W-44, A-13
    exchange = RequestValidator(HttpOptions(), Directory())
    assert exchange.validate_body(legacy_head(), request(), "mallory").status == 404
    assert exchange.validate_get(legacy_head("GET"), "mallory").status == 404
    assert exchange.validate_delete(legacy_head("DELETE"), None).status == 404


@pytest.mark.parametrize(
    ("accept", "json", "sse"),
    [("application/json", True, False), ("text/event-stream", False, True), (None, True, True)],
)
def test_what_the_client_accepts_goes_with_the_request(accept, json, sse):
    verdict = judge(legacy_head(accept=accept), request())
    assert verdict.accepted == AcceptHeader(json, sse)


@pytest.mark.parametrize("sessions", ["sessionful", "stateless"])
@pytest.mark.parametrize(
    ("proposed", "settled"), [("2024-11-05", "2024-11-05"), (E, "2025-11-25"), ("v9", "2025-11-25")]
)
@pytest.mark.parametrize("header", [None, "v9", "2025-06-18"])
def test_a_handshake_is_let_through_with_its_revision(sessions, proposed, settled, header):  # L-2, L-3
    head = make_head(mcp_protocol_version=header)
    verdict = judge(head, request("initialize", **{**HELLO, "protocolVersion": proposed}), sessions=sessions)
    assert isinstance(verdict, Initialize)
    assert (verdict.revision.name, verdict.params.client_info.name) == (settled, "c")


def test_a_stateless_server_takes_any_number_of_handshakes():  # W-48
    assert isinstance(judge(legacy_head(), request("initialize", **HELLO), sessions="stateless"), Initialize)


def test_legacy_notifications_and_responses_reach_their_session():  # W-7
    accepted = judge(legacy_head(), NOTE)
    assert isinstance(accepted, AcceptNotification)
    assert accepted.session is SESSION
    delivered = judge(legacy_head(), REPLY)
    assert isinstance(delivered, DeliverResponse)
    assert (delivered.session, delivered.response.id) == (SESSION, 1)


def test_a_stateless_server_has_nobody_to_give_a_response_to():  # W-49
    assert judge(make_head(), REPLY, sessions="stateless") is ACCEPTED
    assert (ACCEPTED.status, ACCEPTED.body) == (202, b"")
    accepted = judge(make_head(), NOTE, sessions="stateless")
    assert isinstance(accepted, AcceptNotification)
    assert accepted.session is None


@pytest.mark.parametrize(("last", "seen"), [(None, None), ("", None), ("s/7", "s/7")])
def test_a_get_opens_or_resumes_a_stream(last, seen):  # W-17, W-24
    assert judge(legacy_head("GET", last_event_id=last)) == OpenStream(SESSION, seen)


def test_a_delete_ends_the_session():  # W-35
    assert judge(legacy_head("DELETE", accept="text/html")) == EndSession(SESSION)
    assert isinstance(judge(legacy_head("DELETE"), get_streams=False), EndSession)


# -- beside the endpoint -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["health", "healthz"])
@pytest.mark.parametrize(("path", "beside"), [("/mcp", "/"), ("/", "/"), ("/a/b", "/a/")])
def test_health_is_beside_the_endpoint_whoever_asks(path, beside, name):
    verdict = judge(make_head("GET", beside + name, host="10.0.0.7", accept=None), path=path)
    assert (verdict.status, verdict.body) == (200, b'{"status":"ok"}')


def test_an_endpoint_called_health_is_an_endpoint():
    assert isinstance(judge(legacy_head("GET", path="/health"), path="/health"), OpenStream)


def test_a_draining_server_says_so():
    assert (health("draining", 503).status, health("draining", 503).body) == (503, b'{"status":"draining"}')


@pytest.mark.parametrize("path", ["/", "/mcp//", "/MCP", "/other"])
def test_another_path_is_not_found_and_no_json_rpc(path):  # D-15
    verdict = judge(make_head(path=path), request())
    assert verdict.status == 404
    assert dict(verdict.headers)[b"content-type"] == b"text/plain"
    assert b"/mcp" in verdict.body


@pytest.mark.parametrize("verb", ["POST", "GET"])
def test_what_was_in_order_once_is_judged_anew_where_another_page_asks(verb):
    heads = HeadValidator(HttpOptions())
    assert heads.validate_head(make_head(verb)) == Proceed(verb)
    assert heads.validate_head(make_head(verb, sec_fetch_site="cross-site")).status == 403


@pytest.mark.parametrize("path", ["/mcp", "/health", "/other"])
def test_an_answer_to_head_has_no_body(path):
    assert judge(make_head("HEAD", path)).body == b""


def test_a_preflight_is_granted_to_an_allowed_page():
    head = make_head(
        "OPTIONS",
        origin="http://localhost:6274",
        access_control_request_method="POST",
        access_control_request_headers="content-type,mcp-param-region",
        accept="*/*",
    )
    verdict = judge(head)
    assert (verdict.status, verdict.body) == (204, b"")
    assert dict(verdict.headers)[b"access-control-allow-methods"] == b"POST, GET, DELETE"
    assert dict(verdict.headers)[b"access-control-allow-headers"] == b"content-type,mcp-param-region"
    assert dict(HeadValidator(HttpOptions()).cors_headers(head))[b"access-control-allow-origin"]


@pytest.mark.parametrize(
    ("path", "verbs"),
    [
        ("/health", b"GET, HEAD"),
        ("/.well-known/oauth-protected-resource", b"GET, HEAD"),
        ("/.well-known/oauth-protected-resource/mcp", b"GET, HEAD"),
    ],
)
def test_a_page_may_look_for_what_may_not_be_there(path, verbs):
    """It asks with MCP-Protocol-Version, hence with a preflight, and has to be able to read the 404."""
    asked = {"origin": "http://localhost:6274", "access_control_request_method": "GET"}
    verdict = judge(
        make_head("OPTIONS", path, access_control_request_headers="mcp-protocol-version", **asked)
    )
    assert (verdict.status, dict(verdict.headers)[b"access-control-allow-methods"]) == (204, verbs)
    assert judge(make_head("OPTIONS", path, **{**asked, "origin": "https://evil.example"})).status == 403
    assert judge(make_head("OPTIONS", "/elsewhere", **asked)).status == 404


def test_a_preflight_of_another_page_is_refused():
    head = make_head("OPTIONS", origin="https://evil.example", access_control_request_method="POST")
    assert judge(head).status == 403
