"""Reading header fields."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.protocol.http.headers import AcceptHeader, Headers, decode_mirrored, encode_mirrored, is_json


def headers(*fields: tuple[str, str]) -> Headers:
    return Headers([(name.encode(), value.encode("latin-1")) for name, value in fields])


def test_names_compare_without_case_and_copies_are_kept():  # X-21, W-36
    found = headers(("MCP-Method", " a "), ("mcp-method", "\tB"))
    assert found.all(b"mcp-method") == ["a", "B"]
    assert found.get(b"mcp-method") == "a, B"
    assert (found.all(b"absent"), found.get(b"absent")) == ([], None)


@pytest.mark.parametrize(
    "name", ["authorization", "Authorization", "AUTHORIZATION", b"authorization", b"Authorization"]
)
def test_a_field_is_found_however_its_name_is_written(name):
    found = headers(("Authorization", " Bearer a "), ("x-more", "1"), ("X-More", "2"))
    assert (found[name], found.get(name), found.all(name)) == ("Bearer a", "Bearer a", ["Bearer a"])
    assert name in found
    assert dict(found) == {"authorization": "Bearer a", "x-more": "1, 2"}
    assert len(found) == 2


@pytest.mark.parametrize("name", ["x-to\u212aen", "x-tok", "", "é", "\ud800", b"\xff"])
def test_a_field_that_is_not_there_is_a_missing_key(name):
    found = headers(("x-token", "a"))
    assert name not in found
    assert (found.get(name), found.get(name, "b"), found.all(name)) == (None, "b", [])
    with pytest.raises(KeyError):
        found[name]


def test_what_came_is_not_changed():
    found = headers(("a", "b"))
    with pytest.raises(TypeError):
        found["a"] = "c"
    with pytest.raises(TypeError):
        del found["a"]


BOTH, JSON, SSE, NEITHER = (
    AcceptHeader(True, True),
    AcceptHeader(True, False),
    AcceptHeader(False, True),
    AcceptHeader(False, False),
)


@pytest.mark.parametrize(
    ("accept", "accepted"),
    [
        ("application/json, text/event-stream", BOTH),
        ("text/event-stream,application/json", BOTH),
        ("Application/JSON;q=0.5 , TEXT/event-stream; charset=utf-8", BOTH),
        ("*/*", BOTH),
        ("application/*, text/*", BOTH),
        ("application/json", JSON),
        ("application/*", JSON),
        ("text/event-stream", SSE),
        ("text/html, */*;q=0.1", BOTH),
        ("text/html", NEITHER),
        ("", NEITHER),
        ("text/event-stream;q=0, */*", JSON),
        ("text/event-stream ; Q=0.000, */*", JSON),
        ("application/json;q=0, application/*", NEITHER),
        ('text/plain;x="application/json, text/event-stream"', NEITHER),
        ('application/json;profile="a,b;c", text/event-stream', BOTH),
        (",,;;q=,", NEITHER),
        ('application/json, text/html;x="a, text/event-stream', JSON),
        ('application/json, text/html;x="a\\", text/event-stream', JSON),
        ("application/jsonx, text/event-streams", NEITHER),
    ],
)
def test_accept_is_read_with_order_parameters_wildcards_and_weights(accept, accepted):  # W-3
    assert headers(("accept", accept)).accepted == accepted
    assert headers(("accept", accept + ", a/b" * 100)).accepted == accepted


def test_without_accept_everything_is_accepted():
    assert headers().accepted == BOTH


def test_copies_of_accept_are_one_list():
    assert headers(("accept", "application/json"), ("accept", "text/event-stream")).accepted == BOTH


@pytest.mark.parametrize("quoted", ['\\"', '"', ',"\\', "\\\\", '\\"a"'])
@pytest.mark.parametrize("before", ['"', 'a;"', '"a"'])
def test_a_long_field_of_quotation_marks_takes_no_time(before, quoted):
    text = before + quoted * 10_000
    began = time.process_time()
    assert headers(("accept", text)).accepted == NEITHER
    assert not is_json(headers(("content-type", text)))
    assert time.process_time() - began < 1


@given(st.text(st.characters(max_codepoint=255)))
def test_arbitrary_accept_is_read(text):
    assert isinstance(headers(("accept", text)).accepted, AcceptHeader)


@pytest.mark.parametrize(
    ("values", "json"),
    [
        (["application/json"], True),
        (["Application/JSON ; charset=UTF-8"], True),
        (['application/json; charset="utf-8"; x=y'], True),
        (["application/json; charset=iso-8859-1"], False),
        (["text/plain"], False),
        (["application/json-rpc"], False),
        ([""], False),
        ([], False),
        (["application/json", "application/json"], False),
    ],
)
def test_content_type_is_json_in_utf_8(values, json):  # W-4, J-11
    assert is_json(headers(*(("content-type", value) for value in values))) is json


def sentinel(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@given(st.text())
def test_a_wrapped_value_is_what_was_wrapped(text):
    assert decode_mirrored(sentinel(text)) == text


@pytest.mark.parametrize(
    "text",
    ["add", "", "a b\tc", "=?BASE64?SGVsbG8=?=", "=?base64?SGVsbG8=", "SGVsbG8=?=", "x=?base64?SGVsbG8=?="],
)
def test_what_is_not_wrapped_exactly_is_literal(text):
    assert decode_mirrored(text) == text


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("=?base64?SGVsbG8?=", "padding"),
        ("=?base64?SGVs!!!bG8=?=", "alphabet"),
        ("=?base64?SGVsbG8==?=", "Base64"),
        ("=?base64?SGVs bG8=?=", "Base64"),
        ("=?base64?_w==?=", "alphabet"),
        ("=?base64?/w==?=", "UTF-8"),
        ("é", "visible ASCII"),
        ("a\x00b", "visible ASCII"),
        ("a\x7fb", "visible ASCII"),
    ],
)
def test_a_malformed_value_says_why(value, names):
    with pytest.raises(ValueError, match=names):
        decode_mirrored(value)


@given(st.text() | st.text().map(sentinel))
def test_what_is_written_is_what_is_read_and_a_header_can_hold_it(text):
    value = encode_mirrored(text)
    assert decode_mirrored(value) == text
    assert value.strip() == value
    assert all(character == "\t" or " " <= character <= "~" for character in value)


@pytest.mark.parametrize("text", ["add", "", "a b\tc", "file:///a.txt", "=?BASE64?SGVsbG8=?="])
def test_what_can_stand_in_a_header_does(text):
    assert encode_mirrored(text) == text
