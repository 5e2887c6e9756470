"""The Mcp-Param-* fields of a modern tools/call as a table: X-45 to X-47, X-50 and X-51 of the checklist, SEP-2243."""

import json
import sys

import pytest
from exchanges import (
    MIRRORED,
    Directory,
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

from mcpbus.protocol.http.messages import HttpResponse, Serve
from mcpbus.protocol.http.mirrored_headers import repeat_request
from mcpbus.protocol.jsonrpc import decode


def call(arguments, tool="query", options=None, **fields):
    directory = Directory()
    head = modern_head("tools/call", mcp_name=tool, **fields)
    sent = modern_request("tools/call", name=tool, arguments=arguments)
    return judge(head, sent, directory=directory, **(options or {}))


ACCEPTED = [
    # rule, arguments, header fields
    ("X-45", {"region": "us"}, {"mcp_param_region": "us"}),
    ("X-21 name in any case", {"region": "us"}, {"MCP_PARAM_REGION": "us"}),
    ("X-21 blanks around", {"region": "us"}, {"mcp_param_region": "  us\t"}),
    ("X-44 absent", {}, {}),
    ("X-44 null", {"region": None, "page": None, "dry": None}, {}),
    ("X-44 absent below", {"page": {}}, {}),
    ("X-44 nothing to look into", {"page": 5}, {}),
    ("X-50 empty", {"region": ""}, {"mcp_param_region": ""}),
    ("X-50 boolean", {"dry": True}, {"mcp_param_dry": "true"}),
    ("X-50 boolean", {"dry": False}, {"mcp_param_dry": "false"}),
    ("X-50 integer", {"page": {"size": 42}}, {"mcp_param_page_size": "42"}),
    ("X-50 integer", {"page": {"size": -7}}, {"mcp_param_page_size": "-7"}),
    ("X-50 greatest", {"page": {"size": 2**53 - 1}}, {"mcp_param_page_size": "9007199254740991"}),
    ("X-45 numerically", {"page": {"size": 42}}, {"mcp_param_page_size": "42.0"}),
    ("X-45 numerically", {"page": {"size": 42.0}}, {"mcp_param_page_size": "42"}),
    ("X-22 Base64", {"region": "Hello"}, {"mcp_param_region": "=?base64?SGVsbG8=?="}),
    ("X-22 Base64", {"region": " é\n"}, {"mcp_param_region": "=?base64?IMOpCg==?="}),
    ("X-22 Base64 of a number", {"page": {"size": 42}}, {"mcp_param_page_size": "=?base64?NDI=?="}),
    ("X-22 no prefix", {"region": "SGVsbG8="}, {"mcp_param_region": "SGVsbG8="}),
    ("X-22 no suffix", {"region": "=?base64?SGVsbG8="}, {"mcp_param_region": "=?base64?SGVsbG8="}),
    ("X-22 marker in capitals", {"region": "=?BASE64?YQ==?="}, {"mcp_param_region": "=?BASE64?YQ==?="}),
    ("X-47 unknown", {"region": "us"}, {"mcp_param_region": "us", "mcp_param_zone": ["b", "é"]}),
]
REFUSED = [
    ("X-45 missing", {"region": "us"}, {}),
    ("X-45 missing, empty", {"region": ""}, {}),
    ("X-45 missing, false", {"dry": False}, {}),
    ("X-45 missing, zero", {"page": {"size": 0}}, {}),
    ("X-45 other value", {"region": "us"}, {"mcp_param_region": "eu"}),
    ("X-21 case of the value", {"region": "us"}, {"mcp_param_region": "US"}),
    ("X-46 value absent", {}, {"mcp_param_region": "us"}),
    ("X-46 value absent, empty", {}, {"mcp_param_region": ""}),
    ("X-46 value null", {"region": None}, {"mcp_param_region": "null"}),
    ("X-46 absent below", {"page": []}, {"mcp_param_page_size": "1"}),
    ("X-24 twice", {"region": "us"}, {"mcp_param_region": ["us", "us"]}),
    ("X-23 padding", {"region": "Hello"}, {"mcp_param_region": "=?base64?SGVsbG8?="}),
    ("X-23 alphabet", {"region": "Hello"}, {"mcp_param_region": "=?base64?SGVs!!!bG8=?="}),
    ("X-23 no UTF-8", {"region": "\xff"}, {"mcp_param_region": "=?base64?/w==?="}),
    ("X-22 sentinel is decoded", {"region": "=?base64?YQ==?="}, {"mcp_param_region": "=?base64?YQ==?="}),
    ("X-20 characters", {"region": "é"}, {"mcp_param_region": "é"}),
    ("X-50 boolean's case", {"dry": True}, {"mcp_param_dry": "True"}),
    ("X-50 boolean", {"dry": True}, {"mcp_param_dry": "1"}),
    ("X-50 boolean", {"dry": True}, {"mcp_param_dry": "false"}),
    ("X-50 integer", {"page": {"size": 42}}, {"mcp_param_page_size": "43"}),
    ("X-50 integer", {"page": {"size": 42}}, {"mcp_param_page_size": "042"}),
    ("X-50 integer", {"page": {"size": 42}}, {"mcp_param_page_size": "4_2"}),
    ("X-50 integer", {"page": {"size": 42}}, {"mcp_param_page_size": ""}),
    ("X-50 integer", {"page": {"size": 42.5}}, {"mcp_param_page_size": "42.5"}),
    ("X-50 unsafe", {"page": {"size": 2**53}}, {"mcp_param_page_size": str(2**53)}),
    ("X-50 absurd", {"page": {"size": 10**30}}, {"mcp_param_page_size": "1" + "0" * 30}),
    ("X-45 not of its kind", {"region": 5}, {"mcp_param_region": "5"}),
    ("X-45 not of its kind", {"page": {"size": True}}, {"mcp_param_page_size": "1"}),
    ("X-45 not of its kind", {"dry": "true"}, {"mcp_param_dry": "true"}),
    ("X-45 not of its kind", {"region": ["us"]}, {"mcp_param_region": "us"}),
]


@pytest.mark.parametrize(("rule", "arguments", "fields"), ACCEPTED)
def test_headers_that_repeat_the_arguments_are_accepted(rule, arguments, fields):
    assert isinstance(call(arguments, **fields), Serve)


@pytest.mark.parametrize(("rule", "arguments", "fields"), REFUSED)
def test_headers_that_do_not_are_refused(rule, arguments, fields):
    verdict = call(arguments, **fields)
    assert isinstance(verdict, HttpResponse)
    said = json.loads(verdict.body)
    assert (verdict.status, said["error"]["code"], said["id"]) == (400, -32020, 1)
    assert "Mcp-Param-" in said["error"]["message"]


@pytest.mark.parametrize(("rule", "arguments", "fields"), ACCEPTED + REFUSED)
def test_where_they_are_optional_they_may_be_left_out_and_nothing_else(rule, arguments, fields):
    verdict = call(arguments, options={"param_headers": "optional"}, **fields)
    accepted = (rule, arguments, fields) in ACCEPTED or not fields
    assert isinstance(verdict, Serve if accepted else HttpResponse)


def test_one_of_several_may_be_left_out_where_they_are_optional():
    arguments = {"region": "us", "dry": True}
    options = {"param_headers": "optional"}
    assert isinstance(call(arguments, options=options, mcp_param_dry="true"), Serve)
    assert isinstance(call(arguments, options=options, mcp_param_dry="false"), HttpResponse)


def test_a_refusal_names_the_header_and_the_argument():
    verdict = call({"page": {"size": 1}}, mcp_param_page_size="2")
    message = json.loads(verdict.body)["error"]["message"]
    assert message == (
        "Header mismatch: the header Mcp-Param-Page-Size says '2', which is not the argument 'page.size'"
    )


def test_a_refusal_does_not_grow_with_the_header():
    verdict = call({"region": "us"}, mcp_param_region="x" * 5000)
    assert len(verdict.body) < 400


def test_a_tool_that_nobody_knows_is_left_to_its_own_error():  # X-51
    assert isinstance(call({"region": "us"}, tool="nope", mcp_param_region="eu"), Serve)


def test_a_tool_is_looked_up_as_its_caller_sees_it():  # X-51
    directory = Directory()
    judge(
        modern_head("tools/call", mcp_name="query"),
        modern_request("tools/call", name="query"),
        directory=directory,
    )
    assert ("mirrored_parameters", "query", "alice") in directory.asked


@pytest.mark.parametrize(
    ("method", "name"), [("prompts/get", "name"), ("resources/read", "uri"), ("tools/list", "name")]
)
def test_other_methods_have_no_such_headers(method, name):
    head = modern_head(method, mcp_name="query", mcp_param_region="eu")
    assert isinstance(judge(head, modern_request(method, **{name: "query"})), Serve)


def test_a_legacy_call_has_no_such_headers():
    head = legacy_head(mcp_param_region="eu")
    sent = request("tools/call", name="query", arguments={"region": "us"})
    assert isinstance(judge(head, sent), Serve)


@pytest.mark.parametrize("arguments", [5, "region", ["region"]])
def test_arguments_that_are_no_object_are_invalid_and_not_mismatched(arguments):
    verdict = call(arguments, mcp_param_region="us")
    assert (verdict.status, json.loads(verdict.body)["error"]["code"]) == (400, -32602)


def test_nesting_at_the_limit_is_refused_and_not_raised():
    """There is a depth that the message as a whole passes and its arguments, read a second time, do not."""
    flat = modern_request("tools/call", name="query", arguments={"region": "?"})
    head = modern_head("tools/call", mcp_name="query", mcp_param_region="us")
    limit = sys.getrecursionlimit()
    for depth in range(limit - 400, limit + 1):
        verdict = judge(head, flat.replace(b'"?"', b"[" * depth + b"]" * depth))
        assert isinstance(verdict, HttpResponse)
        assert verdict.status == 400


def test_the_claim_and_the_method_are_judged_before():
    sent = body(id=1, method="tools/call", params={"name": "query", "arguments": {"region": "us"}})
    verdict = judge(modern_head("tools/call", mcp_name="query"), sent)
    assert json.loads(verdict.body)["error"]["code"] == -32602
    verdict = call({"region": "us"}, mcp_method="tools/list")
    assert "Mcp-Method" in json.loads(verdict.body)["error"]["message"]


JSON = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just([])


@given(st.text(st.characters(max_codepoint=255)), JSON)
def test_arbitrary_headers_are_judged(text, value):
    for field in ("mcp_param_region", "mcp_param_page_size", "mcp_param_dry"):
        call({"region": value, "page": {"size": value}, "dry": value}, **{field: text})


SAFE = st.integers(-(2**53) + 1, 2**53 - 1)


@given(
    region=st.none() | st.text() | st.just("=?base64?YQ==?="),
    size=st.none() | SAFE | SAFE.map(float),
    dry=st.none() | st.booleans(),
)
def test_what_a_client_repeats_is_what_its_server_wants(region, size, dry):
    arguments = {"region": region, "page": {"size": size}, "dry": dry, "other": region}
    sent = modern_request("tools/call", name="query", arguments=arguments)
    said = repeat_request(decode(sent), "2026-07-28", MIRRORED["query"])
    fields = {name.lower().replace("-", "_"): value for name, value in said.items()}
    assert isinstance(judge(make_head(**fields), sent), Serve)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "caf\xe9"}, "=?base64?Y2Fmw6k=?="),
        ("prompts/get", {"name": "a"}, "a"),
        ("resources/read", {"uri": "file:///a"}, "file:///a"),
        ("tasks/get", {"taskId": "7"}, "7"),
        ("tools/list", {"name": "a"}, None),
        ("tools/call", {}, None),
    ],
)
def test_what_a_client_repeats_of_each_method(method, params, name):  # X-17 to X-19
    said = repeat_request(decode(modern_request(method, **params)), "2026-07-28")
    expected = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
    assert said == {key: value for key, value in expected.items() if value is not None}
