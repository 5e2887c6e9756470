"""JSON-RPC errors: what each constructor says."""

import pytest

from mcpbus.protocol import errors
from mcpbus.protocol.errors import ProtocolError, quoted

TABLE = [
    # rule, error, code, data, what the message names
    ("J-12", errors.parse_error("why"), -32700, None, "why"),
    ("J-12", errors.invalid_request("why"), -32600, None, "why"),
    ("J-12", errors.method_not_found("a/b"), -32601, None, "a/b"),
    ("J-12", errors.invalid_params("why"), -32602, None, "why"),
    ("J-12", errors.internal_error(), -32603, None, "Internal error"),
    ("J-18", errors.header_mismatch("why"), -32020, None, "why"),
    (
        "M-12",
        errors.missing_client_capability({"sampling": {}}),
        -32021,
        {"requiredCapabilities": {"sampling": {}}},
        ": declare sampling",
    ),
    (
        "M-12",
        errors.missing_client_capability({"roots": {}, "elicitation": {"url": {}, "form": {}}}),
        -32021,
        {"requiredCapabilities": {"roots": {}, "elicitation": {"url": {}, "form": {}}}},
        ": declare elicitation.form, elicitation.url, roots",
    ),
    (
        "M-4",
        errors.unsupported_protocol_version("v9", ["2026-07-28"]),
        -32022,
        {"supported": ["2026-07-28"], "requested": "v9"},
        "v9",
    ),
    ("R-3", errors.resource_not_found("a://b", -32002), -32002, {"uri": "a://b"}, "a://b"),
]


@pytest.mark.parametrize(("rule", "error", "code", "data", "names"), TABLE)
def test_an_error_says_code_reason_and_data(rule, error, code, data, names):
    assert (error.code, error.data) == (code, data), rule
    assert names in error.message
    assert str(code) in str(error)


def test_what_a_client_wrote_is_quoted_only_shortened():
    assert len(errors.method_not_found("x" * 1_000_000).message) < 200
    assert quoted("short") == "'short'"
    assert quoted("a\nb") == "'a\\nb'"


@pytest.mark.parametrize("make", [errors.parse_error, errors.invalid_request, errors.invalid_params])
def test_what_a_decoder_says_of_a_long_value_is_shortened_and_names_its_place(make):
    told = make(f"Invalid enum value '{'x' * 1_000_000}' - at `params.level`").message
    assert len(told) < 1_300
    assert "Invalid enum value 'xxx" in told
    assert told.endswith("xxx' - at `params.level`")


def test_a_message_that_is_not_unicode_is_made_so():
    assert ProtocolError(1, "no file \udcff").message == "no file ?"


def test_a_code_is_an_integer():
    with pytest.raises(TypeError, match="integer"):
        ProtocolError("-32602", "m")


@pytest.mark.parametrize("data", [object(), {"a": object()}])
def test_data_that_json_cannot_hold_is_refused_where_it_is_made(data):
    with pytest.raises(TypeError):
        ProtocolError(1, "m", data)
