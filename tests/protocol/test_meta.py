"""`_meta`, the modern claim, and what routes a message."""

import json

import msgspec
import pytest

from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.errors import INVALID_PARAMS, ProtocolError
from mcpbus.protocol.meta import Meta, read_routing

PREFIX = "io.modelcontextprotocol/"
VERSION, CAPABILITIES, INFO, LEVEL = (
    PREFIX + name for name in ("protocolVersion", "clientCapabilities", "clientInfo", "logLevel")
)
REQUIRED = {VERSION: "2026-07-28", CAPABILITIES: {}}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def routing(**params):
    return read_routing(msgspec.Raw(json.dumps(params).encode()))


# -- routing -----------------------------------------------------------------------------------------------------------


def test_routing_reads_meta_name_and_uri_and_nothing_else():
    found = routing(_meta={"a": 1}, name="n", uri="u", arguments={"x": [1]})
    assert (found.meta.values, found.name, found.uri) == ({"a": 1}, "n", "u")


@pytest.mark.parametrize("params", [{}, {"_meta": None}, {"name": 5, "uri": [1]}])
def test_what_is_absent_or_for_the_method_to_refuse_is_none(params):
    found = routing(**params)
    assert (found.meta.values, found.name, found.uri) == ({}, None, None)


@pytest.mark.parametrize("meta", [5, "x", [], True])
def test_a_meta_that_is_no_object_is_refused(meta):
    with pytest.raises(ProtocolError, match=r"params\._meta") as caught:
        routing(_meta=meta)
    assert caught.value.code == INVALID_PARAMS


def test_a_meta_that_cannot_be_held_is_refused():
    with pytest.raises(ProtocolError) as caught:
        read_routing(msgspec.Raw(b'{"_meta":{"a":1e999}}'))
    assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize("levels", [199, 5_000, 100_000])
def test_a_meta_that_is_nested_too_deeply_is_refused_whatever_the_interpreter_can_read(levels):
    with pytest.raises(ProtocolError) as caught:
        read_routing(msgspec.Raw(b'{"_meta":{"a":' + b"[" * levels + b"]" * levels + b"}}"))
    assert caught.value.code == INVALID_PARAMS


def test_a_meta_that_is_nested_less_deeply_is_held():
    meta = read_routing(msgspec.Raw(b'{"_meta":{"a":' + b"[" * 198 + b"]" * 198 + b"}}")).meta
    assert meta.values["a"] == json.loads("[" * 198 + "]" * 198)


@pytest.mark.parametrize(
    ("meta", "modern"),
    [
        ({}, False),
        ({"progressToken": 1}, False),
        ({PREFIX + "related-task": {"taskId": "t"}}, False),
        ({"com.example/protocolVersion": "2026-07-28"}, False),
        ({VERSION: "2026-07-28"}, True),
        ({VERSION: None}, True),
        ({CAPABILITIES: {}}, True),
        ({INFO: {}}, True),
        ({LEVEL: "info"}, True),
    ],
)
def test_four_keys_claim_the_modern_era(meta, modern):  # D-1, D-3
    assert Meta(meta).claims_modern is modern


@pytest.mark.parametrize(
    ("token", "read"),
    [(0, 0), ("", ""), ("a", "a"), (7, 7), (True, None), (1.5, None), (None, None), ([1], None)],
)
def test_a_progress_token_is_text_or_an_integer(token, read):  # P-1
    assert Meta({"progressToken": token}).progress_token == read


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ({"progressToken": "t" * 1025}, "at most 1024 characters - at `params._meta.progressToken`"),
        ({f"k{n}": n for n in range(8_000)}, "at most 65536 bytes, got 1"),
        ({"a": "x" * 65_536}, "at most 65536 bytes, got 65545 - at `params._meta`"),
    ],
    ids=["token", "keys", "text"],
)
def test_a_meta_that_is_too_long_is_refused_unread(meta, told):
    with pytest.raises(ProtocolError, match=told) as caught:
        routing(_meta=meta)
    assert caught.value.code == INVALID_PARAMS


def test_a_meta_may_be_as_long_as_it_says():
    assert len(routing(_meta={"progressToken": "t" * 1024, "a": "x" * 64_000}).meta.progress_token) == 1024


def test_without_a_token_there_is_none():
    assert Meta({}).progress_token is None


# -- the claim ---------------------------------------------------------------------------------------------------------


def test_a_claim_has_all_that_meta_says_of_its_client():  # M-1
    claim = Meta(
        {
            **REQUIRED,
            CAPABILITIES: {"roots": {}},
            INFO: {"name": "c", "version": "1", "x": 1},
            LEVEL: "error",
        }
    ).claim()
    assert claim.protocol_version == "2026-07-28"
    assert claim.client_capabilities == {"roots": {}}
    assert claim.client_info == {"name": "c", "version": "1", "x": 1}
    assert claim.log_level is LogLevel.ERROR


@pytest.mark.parametrize("extra", [{}, {INFO: None, LEVEL: None}])
def test_who_the_client_is_and_its_log_level_may_be_left_out(extra):  # M-3, G-7
    claim = Meta({**REQUIRED, **extra}).claim()
    assert (claim.client_info, claim.log_level) == (None, None)


def test_a_version_is_read_whether_or_not_it_is_served():
    assert Meta({**REQUIRED, VERSION: "v9"}).claim().protocol_version == "v9"


@pytest.mark.parametrize(
    ("rule", "meta", "names"),
    [
        ("M-2", {}, [VERSION, CAPABILITIES]),
        ("M-2", {VERSION: "2026-07-28"}, [CAPABILITIES]),
        ("M-2", {CAPABILITIES: {}}, [VERSION]),
        ("M-2", {**REQUIRED, VERSION: 20260728}, [VERSION]),
        ("M-2", {**REQUIRED, CAPABILITIES: None}, [CAPABILITIES]),
        ("M-2", {**REQUIRED, CAPABILITIES: ["roots"]}, [CAPABILITIES]),
        ("M-2", {**REQUIRED, INFO: {"name": "c"}}, [INFO, "version"]),
        ("M-2", {**REQUIRED, INFO: "c"}, [INFO]),
        ("G-9", {**REQUIRED, LEVEL: "loud"}, [LEVEL, "debug"]),
        ("G-9", {**REQUIRED, LEVEL: 3}, [LEVEL]),
        ("G-9", {**REQUIRED, LEVEL: ["info"]}, [LEVEL]),
    ],
)
def test_an_incomplete_claim_names_the_key(rule, meta, names):
    with pytest.raises(ProtocolError) as caught:
        _ = Meta(meta).claim()
    assert caught.value.code == INVALID_PARAMS, rule
    assert all(name in caught.value.message for name in names)


# -- remembering -------------------------------------------------------------------------------------------------------


def test_what_a_client_says_of_itself_is_read_once():
    assert routing(_meta=REQUIRED).meta is routing(_meta=REQUIRED, name="n").meta


@pytest.mark.parametrize("own", [{"progressToken": 1}, {"traceparent": TRACE}, {INFO: {"name": "x" * 2000}}])
def test_what_is_of_one_request_or_long_is_not_remembered(own):
    meta = {**REQUIRED, **own}
    assert routing(_meta=meta).meta is not routing(_meta=meta).meta


def test_a_claim_that_is_wrong_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(ProtocolError, match=r"clientCapabilities"):
            _ = routing(_meta={VERSION: "2026-07-28"}).meta.claim()


def test_clients_that_call_themselves_something_else_each_time_fill_no_memory():
    first = routing(_meta={**REQUIRED, INFO: {"name": "first", "version": "1"}}).meta
    for number in range(1000):
        assert routing(_meta={**REQUIRED, INFO: {"name": str(number)}}).meta.values[INFO] == {
            "name": str(number)
        }
    assert routing(_meta={**REQUIRED, INFO: {"name": "first", "version": "1"}}).meta is not first
