"""Section 23 of the checklist as a table, the order of faults, and that nothing happens for a request that is refused."""

import gzip
import itertools
import json

import attrs
import pytest
from exchanges import (
    CLAIM,
    HELLO,
    NOTE,
    PREFIX,
    REPLY,
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
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.protocol.http.head_validation import HeadValidator
from mcpbus.protocol.http.messages import HttpResponse, Proceed, RequestHead, status_of
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.revisions import REVISIONS

# -- section 23 --------------------------------------------------------------------------------------------------------


LISTEN = "subscriptions/listen"


def claiming(version):
    return modern_request(meta={**CLAIM, PREFIX + "protocolVersion": version})


def call_head(name, method="tools/call"):
    return modern_head(method, mcp_name=name)


def notification(meta):
    return body(method="a", params={"_meta": meta})


@attrs.frozen
class Case:
    rule: str
    head: RequestHead
    sent: bytes
    options: dict[str, object]
    status: int
    code: int
    identity: int | str | None


ROWS = [
    # rule, head, body, options, status, code, id
    ("W-41 Host", legacy_head(host="evil.example"), request(), {}, 403, -32600, None),
    ("W-41 Origin", legacy_head(origin="https://evil.example"), request(), {}, 403, -32600, None),
    ("X-28 Origin", modern_head(origin="https://evil.example"), modern_request(), {}, 403, -32600, None),
    ("W-41 Origin of a GET", legacy_head("GET", origin="https://evil.example"), b"", {}, 403, -32600, None),
    ("body cap, announced", legacy_head(content_length="11"), b"", {"max_body_bytes": 10}, 413, -32600, None),
    ("body cap, absurd", legacy_head(content_length="9" * 9999), b"", {}, 413, -32600, None),
    ("body cap, found", legacy_head(), request(), {"max_body_bytes": 10}, 413, -32600, None),
    ("content length", legacy_head(content_length="-1"), request(), {}, 400, -32600, None),
    ("content length", legacy_head(content_length="\xb2"), request(), {}, 400, -32600, None),
    ("W-4", legacy_head(content_type="text/plain"), request(), {}, 415, -32600, None),
    ("W-4", legacy_head(content_type=None), request(), {}, 415, -32600, None),
    ("encoded", modern_head(content_encoding="gzip"), gzip.compress(request()), {}, 415, -32600, None),
    ("said to be as it is", modern_head(content_encoding="Identity"), b"{", {}, 400, -32700, None),
    ("W-3", legacy_head(accept="text/html"), request(), {}, 406, -32600, None),
    ("X-3", modern_head(accept="text/html"), modern_request(), {}, 406, -32600, None),
    ("W-5", legacy_head(), b"{", {}, 400, -32700, None),
    ("W-5 modern", modern_head(), b"{", {}, 400, -32700, None),
    ("not JSON-RPC", legacy_head(), b'{"id":7}', {}, 400, -32600, 7),
    ("not JSON-RPC", modern_head(), b'{"id":7}', {}, 400, -32600, 7),
    ("J-1 null id", modern_head(), body(id=None, method="tools/list"), {}, 400, -32600, None),
    ("J-25 array", legacy_head(), b"[%b]" % request(), {}, 400, -32600, None),
    ("J-25 array", modern_head(), b"[%b]" % modern_request(), {}, 400, -32600, None),
    ("_meta no object", legacy_head(), request(_meta=5), {}, 400, -32602, 1),
    ("X-2 response", make_head(mcp_protocol_version=E), REPLY, {}, 400, -32600, None),
    # the modern claim
    ("M-2", modern_head(), request(), {}, 400, -32602, 1),
    ("D-4", make_head(mcp_protocol_version=E), request(_meta={"progressToken": 1}), {}, 400, -32602, 1),
    ("D-4 initialize", make_head(mcp_protocol_version=E), request("initialize", **HELLO), {}, 400, -32602, 1),
    ("M-2 one key", modern_head(), modern_request(meta={PREFIX + "protocolVersion": E}), {}, 400, -32602, 1),
    ("M-2 before X-17", make_head(), modern_request(meta={PREFIX + "logLevel": "info"}), {}, 400, -32602, 1),
    ("G-9", modern_head(), modern_request(meta={**CLAIM, PREFIX + "logLevel": "loud"}), {}, 400, -32602, 1),
    ("D-7", modern_head(mcp_protocol_version=None), modern_request(), {}, 400, -32020, 1),
    ("X-17", modern_head(mcp_protocol_version="2025-11-25"), modern_request(), {}, 400, -32020, 1),
    ("X-21 blanks", call_head("a "), modern_request("tools/call", name="a "), {}, 400, -32020, 1),
    ("X-21 blanks", call_head(" a"), modern_request("tools/call", name=" a"), {}, 400, -32020, 1),
    ("X-21 blanks", modern_head("ping "), modern_request("ping "), {}, 400, -32020, 1),
    ("X-21 case", modern_head(mcp_method="Tools/List"), modern_request(), {}, 400, -32020, 1),
    ("D-5", modern_head(), claiming("v9"), {}, 400, -32020, 1),
    ("D-6", modern_head(mcp_protocol_version="v9"), claiming("v9"), {}, 400, -32022, 1),
    ("D-6", modern_head(mcp_protocol_version="2025-11-25"), claiming("2025-11-25"), {}, 400, -32022, 1),
    ("X-24", modern_head(mcp_protocol_version=[E, E]), modern_request(), {}, 400, -32020, 1),
    ("X-24", modern_head(mcp_method=["tools/list"] * 2), modern_request(), {}, 400, -32020, 1),
    ("X-20 no ASCII", modern_head("\xe9"), modern_request("\xe9"), {}, 400, -32020, 1),
    ("X-18", modern_head(mcp_method=None), modern_request(), {}, 400, -32020, 1),
    ("X-18", modern_head(mcp_method="prompts/list"), modern_request(), {}, 400, -32020, 1),
    ("X-19", call_head(None), modern_request("tools/call", name="a"), {}, 400, -32020, 1),
    ("X-19", call_head("b"), modern_request("tools/call", name="a"), {}, 400, -32020, 1),
    ("X-19", call_head("b", "prompts/get"), modern_request("prompts/get", name="a"), {}, 400, -32020, 1),
    (
        "X-19 uri",
        call_head("a", "resources/read"),
        modern_request("resources/read", name="a", uri="u"),
        {},
        400,
        -32020,
        1,
    ),
    ("X-19 no name", call_head("a"), modern_request("tools/call"), {}, 400, -32020, 1),
    ("X-24", call_head(["a", "a"]), modern_request("tools/call", name="a"), {}, 400, -32020, 1),
    ("X-23", call_head("=?base64?SGVsbG8?="), modern_request("tools/call", name="Hello"), {}, 400, -32020, 1),
    ("X-20", call_head("é"), modern_request("tools/call", name="é"), {}, 400, -32020, 1),
    ("X-26", modern_head("no/such"), modern_request("no/such", "x"), {}, 404, -32601, "x"),
    ("M-14", modern_head("initialize"), modern_request("initialize", **HELLO), {}, 404, -32601, 1),
    ("M-14", modern_head("ping"), modern_request("ping"), {}, 404, -32601, 1),
    ("S-16", modern_head(LISTEN, accept="application/json"), modern_request(LISTEN), {}, 406, -32600, 1),
    ("X-5", modern_head("b"), notification(CLAIM), {}, 400, -32020, None),
    ("X-5", make_head(mcp_protocol_version="v9"), notification(CLAIM), {}, 400, -32020, None),
    ("X-5", make_head(mcp_protocol_version=[E, E]), notification({}), {}, 400, -32020, None),
    ("X-25", make_head(), notification({PREFIX + "protocolVersion": "v9"}), {}, 400, -32022, None),
    # the legacy session
    ("W-32", make_head(), request(), {}, 400, -32000, 1),
    ("W-32", legacy_head(mcp_session_id=["live", "live"]), request(), {}, 400, -32000, 1),
    ("W-33", legacy_head(mcp_session_id="gone"), request(), {}, 404, -32000, 1),
    ("W-46", legacy_head(mcp_session_id="gone"), NOTE, {}, 404, -32000, None),
    ("W-32 response", make_head(), REPLY, {}, 400, -32000, None),
    ("W-33 response", legacy_head(mcp_session_id="gone"), REPLY, {}, 404, -32000, None),
    ("W-38", legacy_head(mcp_protocol_version="v9"), request(), {}, 400, -32000, 1),
    ("W-38", legacy_head(mcp_protocol_version=["2025-06-18"] * 2), request(), {}, 400, -32000, 1),
    ("W-38", legacy_head(mcp_protocol_version="v9"), NOTE, {}, 400, -32000, None),
    ("W-38", legacy_head(mcp_protocol_version="v9"), REPLY, {}, 400, -32000, None),
    (
        "W-38 stateless",
        make_head(mcp_protocol_version="v9"),
        request(),
        {"sessions": "stateless"},
        400,
        -32000,
        1,
    ),
    ("L-11", legacy_head(), request("initialize", **HELLO), {}, 400, -32600, 1),
    ("W-33", legacy_head(mcp_session_id="gone"), request("initialize", **HELLO), {}, 404, -32000, 1),
    ("L-1", make_head(), request("initialize", capabilities={}), {}, 200, -32602, 1),
    # GET, DELETE and the rest
    ("W-32", make_head("GET"), b"", {}, 400, -32000, None),
    ("W-33", legacy_head("GET", mcp_session_id="gone"), b"", {}, 404, -32000, None),
    ("W-38", legacy_head("GET", mcp_protocol_version="v9"), b"", {}, 400, -32000, None),
    ("W-17", legacy_head("GET", accept="application/json"), b"", {}, 406, -32600, None),
    ("W-17", legacy_head("GET"), b"", {"get_streams": False}, 405, -32600, None),
    ("W-48", legacy_head("GET"), b"", {"sessions": "stateless"}, 405, -32600, None),
    ("X-29", legacy_head("GET", mcp_protocol_version=E), b"", {}, 405, -32600, None),
    ("X-29", legacy_head("GET", mcp_protocol_version=E, accept="a/b"), b"", {}, 405, -32600, None),
    ("W-32", make_head("DELETE"), b"", {}, 400, -32000, None),
    ("W-33", legacy_head("DELETE", mcp_session_id="gone"), b"", {}, 404, -32000, None),
    ("W-38", legacy_head("DELETE", mcp_protocol_version="v9"), b"", {}, 400, -32000, None),
    ("W-48", legacy_head("DELETE"), b"", {"sessions": "stateless"}, 405, -32600, None),
    ("X-29", legacy_head("DELETE", mcp_protocol_version=E), b"", {}, 405, -32600, None),
    ("W-47", legacy_head("PUT"), b"", {}, 405, -32600, None),
    ("W-47", legacy_head("OPTIONS"), b"", {}, 405, -32600, None),
]
REFUSED = [Case(*row) for row in ROWS]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.rule)
def test_bad_input_is_answered_as_the_table_says(case):
    verdict = judge(case.head, case.sent, **case.options)
    assert isinstance(verdict, HttpResponse)
    said = json.loads(verdict.body)
    assert (verdict.status, said["error"]["code"]) == (case.status, case.code), said
    assert ("id" in said) == (case.identity is not None)
    assert said.get("id") == case.identity
    assert dict(verdict.headers)[b"content-type"] == b"application/json"
    assert dict(verdict.headers)[b"content-length"] == b"%d" % len(verdict.body)
    assert dict(verdict.headers)[b"cache-control"] == b"no-store"
    assert b"gone" not in verdict.body, "the text of an error names no session"


def test_the_error_for_a_version_lists_what_is_served():  # M-4
    meta = {**CLAIM, PREFIX + "protocolVersion": "v9"}
    verdict = judge(modern_head(mcp_protocol_version="v9"), modern_request(meta=meta))
    assert json.loads(verdict.body)["error"]["data"] == {"supported": [E], "requested": "v9"}


@pytest.mark.parametrize(
    ("options", "fields", "allow"),
    [
        ({}, {}, b"POST, GET, DELETE"),
        ({"get_streams": False}, {}, b"POST, DELETE"),
        ({"sessions": "stateless"}, {}, b"POST"),
        ({}, {"mcp_protocol_version": E}, b"POST"),
    ],
)
def test_a_verb_that_is_not_offered_is_told_those_that_are(options, fields, allow):  # W-1, W-47
    verdict = judge(make_head("PATCH", **fields), **options)
    assert (verdict.status, dict(verdict.headers)[b"allow"]) == (405, allow)


# -- the order of faults -----------------------------------------------------------------------------------------------

STEPS = [
    # what is wrong with a modern request: head fields, a change of the body, and how it is answered; in the order of judgement
    ({"host": "evil.example"}, None, (403, -32600)),
    ({"content_length": "99999"}, None, (413, -32600)),
    ({"content_type": "text/plain"}, None, (415, -32600)),
    ({"accept": "text/html"}, None, (406, -32600)),
    ({}, lambda message: {**message, "jsonrpc": "1"}, (400, -32600)),
    ({}, lambda message: _without(message, PREFIX + "clientCapabilities"), (400, -32602)),
    ({"mcp_protocol_version": None}, None, (400, -32020)),
    ({}, lambda message: _claiming(message, "v9"), (400, -32022)),
    ({"mcp_method": "x"}, None, (400, -32020)),
    ({}, lambda message: {**message, "method": "no/such"}, (404, -32601)),
]


def _without(message, key):
    meta = {name: value for name, value in message["params"]["_meta"].items() if name != key}
    return {**message, "params": {"_meta": meta}}


def _claiming(message, version):
    return {
        **message,
        "params": {"_meta": {**message["params"]["_meta"], PREFIX + "protocolVersion": version}},
    }


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(range(len(STEPS)), 2)])
def test_of_two_faults_the_one_judged_first_is_answered(first, second):  # DESIGN, section 6
    fields = {"mcp_protocol_version": E, "mcp_method": "tools/list"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": dict(CLAIM)}}
    # The later fault goes in first, so that the headers which must agree with the body can be made to.
    for step in (second, first):
        change, alter, _ = STEPS[step]
        fields.update(change)
        message = alter(message) if alter else message
    stated = message["params"]["_meta"].get(PREFIX + "protocolVersion")
    if fields["mcp_protocol_version"] is not None:
        fields["mcp_protocol_version"] = stated
    if fields["mcp_method"] != "x":
        fields["mcp_method"] = message["method"]
    verdict = judge(make_head(**fields), json.dumps(message).encode(), max_body_bytes=9999)
    assert (verdict.status, json.loads(verdict.body)["error"]["code"]) == STEPS[first][2]


def test_authorization_comes_before_the_form_of_a_post():
    heads = HeadValidator(HttpOptions())
    bad = make_head(content_type="text/plain", accept="text/html", content_length="99999999")
    assert heads.validate_head(bad) == Proceed("POST")


# -- nothing happens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.rule)
def test_a_refused_request_asks_at_most_one_question_and_leaves_nothing(case):
    directory = Directory()
    first, second = (judge(case.head, case.sent, directory=directory, **case.options) for _ in range(2))
    assert first == second
    asked = len(directory.asked) // 2
    assert asked <= 1
    if case.status in {403, 405, 413, 415} or case.code in {-32700, -32602, -32020, -32022}:
        assert asked == 0


@given(
    st.sampled_from(["POST", "GET", "DELETE", "PUT", "HEAD"]),
    st.binary(),
    st.text(st.characters(max_codepoint=255)),
)
def test_arbitrary_requests_are_judged(verb, sent, text):
    fields = {
        "accept": text,
        "mcp_session_id": text,
        "mcp_protocol_version": text,
        "mcp_name": text,
        "origin": text,
    }
    for name, value in fields.items():
        judge(legacy_head(verb, **{name: value}), sent)
        judge(modern_head(**{name: value}), modern_request("tools/call", name=text))


@pytest.mark.parametrize(
    ("revision", "code", "status"),
    [
        ("2025-03-26", -32601, 200),
        ("2025-11-25", -32602, 200),
        ("2025-11-25", -32603, 200),
        ("2025-11-25", -32600, 400),
        ("2025-11-25", -32700, 400),
        (E, -32700, 400),
        (E, -32600, 400),
        (E, -32601, 404),
        (E, -32602, 400),
        (E, -32020, 400),
        (E, -32021, 400),
        (E, -32022, 400),
        (E, -32603, 200),
        (E, 7, 200),
    ],
)
def test_the_status_of_an_error_that_has_not_begun(revision, code, status):
    assert status_of(code, REVISIONS[revision]) == status
