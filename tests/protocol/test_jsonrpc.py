"""Reading and writing JSON-RPC messages; the rules are those of the checklist's section J."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpbus.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ProtocolError
from mcpbus.protocol.jsonrpc import (
    MAX_BATCH,
    ErrorObject,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    Undecodable,
    decode,
    decode_batch,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

IDS = st.integers(min_value=-(2**70), max_value=2**70) | st.text()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


def message(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [0, 1, -7, 2**53, 2**64, "", "a", "1", "é", "\n"])
def test_a_request_keeps_its_id_in_type_and_value(identity):  # J-1, J-5
    request = decode(message(id=identity, method="ping"))
    assert isinstance(request, JsonRpcRequest)
    assert (type(request.id), request.id) == (type(identity), identity)


def test_text_and_bytes_are_read_alike():
    data = message(id=1, method="tools/call", params={"name": "é"})
    assert decode(data) == decode(data.decode())


def test_params_stay_raw_until_their_type_is_known():
    request = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params": {"a": [1, 2]} }')
    assert bytes(request.params) == b'{"a": [1, 2]}'


def test_a_message_without_params_has_an_empty_object():
    assert decode(message(id=1, method="ping")) == JsonRpcRequest(1, "ping", msgspec.Raw(b"{}"))


def test_a_message_with_a_method_and_no_id_is_a_notification():  # J-10
    assert decode(message(method="notifications/initialized")) == JsonRpcNotification(
        "notifications/initialized"
    )


def test_members_that_nobody_knows_are_ignored():
    assert isinstance(decode(message(id=1, method="ping", extra={"a": 1})), JsonRpcRequest)


def test_a_result_is_read_whatever_json_it_is():
    assert decode(message(id="q", result={"a": 1})) == JsonRpcResponse("q", msgspec.Raw(b'{"a": 1}'))
    assert decode(message(id=1, result=None)).result == msgspec.Raw(b"null")


def test_an_error_is_read_with_its_data():
    response = decode(message(id=0, error={"code": -1, "message": "no", "data": [1]}))
    assert response == JsonRpcResponse(0, None, ErrorObject(-1, "no", msgspec.Raw(b"[1]")))


def test_only_an_error_may_lack_an_id():  # J-9
    assert decode(message(error={"code": 1, "message": "?"})).id is None
    with pytest.raises(Undecodable):
        decode(message(result={}))


def test_an_error_may_say_by_null_that_it_lacks_one():  # J-9: MCP leaves it out, JSON-RPC itself and the SDKs do not
    error = {"code": -32000, "message": "no"}
    assert decode(message(id=None, error=error)) == JsonRpcResponse(None, None, ErrorObject(-32000, "no"))


# On any interpreter: the first had a bound of 1,000, later ones go by the stack that is left.
TOO_DEEP = 1_000_000
DEEP = b"[" * TOO_DEEP + b"]" * TOO_DEEP
NESTED = b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + DEEP + b"}"
FAULTS = [
    # rule, text, code, the id that can still be answered, what the message names
    ("W-5", b"", PARSE_ERROR, None, "is empty: what belongs there is JSON-RPC, such as {"),
    ("W-5", b" \r\n", PARSE_ERROR, None, "is empty"),
    ("W-5", b"hello", PARSE_ERROR, None, "malformed"),
    ("W-5", b'{"jsonrpc":"2.0","id":1,"method":"m"', PARSE_ERROR, None, "truncated"),
    ("W-5", message(id=1, method="m") + b"x", PARSE_ERROR, None, "malformed"),
    ("W-5", b'{"jsonrpc":"2.0","id":true,"method"!}', PARSE_ERROR, None, "malformed"),
    ("J-9", NESTED, INVALID_PARAMS, 1, "nested more than 200 levels deep - at `params`"),
    ("W-5", b"[" * TOO_DEEP, PARSE_ERROR, None, "nested"),
    ("W-5", b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * TOO_DEEP, PARSE_ERROR, None, "nested"),
    # Without an end: what is before that is not looked at again and again.
    ("W-5", b'{"id":1,' + b'"a":{},' * 20_000 + b'"b":' + b"[" * TOO_DEEP, PARSE_ERROR, None, "nested"),
    ("W-5", b'{"id":1,"a":[]}' + b"[" * 20_000, PARSE_ERROR, None, "malformed"),
    ("W-5", NESTED.replace(b'"id":1', b'"id":null'), PARSE_ERROR, None, "nested"),
    ("W-5", NESTED.replace(b'"id":1', b'"id":1,"result":1'), PARSE_ERROR, 1, "nested"),
    ("J-11", b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xff"}}', PARSE_ERROR, None, "UTF-8"),
    ("J-11", '{"jsonrpc":"2.0","id":1,"method":"\ud800"}', PARSE_ERROR, None, "UTF-8"),
    ("J-9", message(id=1, method="m", params={"a": "\ud83d"}), PARSE_ERROR, 1, "half of a surrogate pair"),
    ("J-9", message(id="b", method="m", params={"a": "\udc00, then"}), PARSE_ERROR, "b", "half of"),
    ("J-9", message(id=1, method="m\ud83d\ud83d\ude00"), PARSE_ERROR, 1, "half of"),
    ("J-9", message(id="\ud83d", method="m"), PARSE_ERROR, None, "half of"),
    ("J-9", message(method="m", params={"a": "\ud83d"}), PARSE_ERROR, None, "half of"),
    ("J-9", message(id="\ud83d", result={"a": 1}), PARSE_ERROR, None, "half of"),
    ("J-9", message(error={"code": 1, "message": "\ud83d"}), PARSE_ERROR, None, "half of"),
    ("J-9", message(id=1, method="m", params={"a": "\ud83d"}) + b"x", PARSE_ERROR, None, "malformed"),
    ("J-9", rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\\ud83d"}}', PARSE_ERROR, 1, "half of"),
    (
        "J-9",
        rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud83d"}',
        PARSE_ERROR,
        None,
        "truncated",
    ),
    ("J-9", message(id="\\", method="m", params={"a": "\ud83d"}), PARSE_ERROR, None, "half of"),
    ("J-9", message(id=1, method="m", params={"\ud83d": "\ud83d\ude00"}), PARSE_ERROR, 1, "half of"),
    ("J-22", b"[" + message(id=1, method="\ud83d") + b"]", INVALID_REQUEST, None, "got an array"),
    ("J-9", b"[" + message(id=1, method="\ud83d"), PARSE_ERROR, None, "truncated"),
    ("J-9", message(id=1, method=7, params={"a": "\ud83d"}), INVALID_REQUEST, 1, "$.method"),
    ("J-1", message(id=None, method="m"), INVALID_REQUEST, None, "$.id"),
    ("J-1", message(id=True, method="m"), INVALID_REQUEST, None, "$.id"),
    ("J-1", message(id=1.0, method="m"), INVALID_REQUEST, None, "$.id"),
    ("J-1", message(id=[1], method="m"), INVALID_REQUEST, None, "$.id"),
    ("J-1", message(id="i" * 1025, method="m"), INVALID_REQUEST, None, "length <= 1024 - at `$.id`"),
    ("J-1", message(id=None, result={}), INVALID_REQUEST, None, "$.id"),
    ("J-1", message(id=None, error={"code": "x", "message": ""}), INVALID_REQUEST, None, "$.id"),
    ("J-7", message(id=None, method="m", error={"code": 1, "message": ""}), INVALID_REQUEST, None, "$.id"),
    ("J-7", message(id=None, result=1, error={"code": 1, "message": ""}), INVALID_REQUEST, None, "$.id"),
    ("J-12", b'{"id":null,"error":{"code":1,"message":""}}', INVALID_REQUEST, None, "$.id"),
    ("J-7", message(id=1), INVALID_REQUEST, 1, "exactly one"),
    ("J-7", message(id=1, method="m", result={}), INVALID_REQUEST, 1, "neither"),
    ("J-7", message(result={}, error={"code": 1, "message": ""}), INVALID_REQUEST, None, "exactly one"),
    ("J-8", message(error={"code": "x", "message": ""}), INVALID_REQUEST, None, "$.error.code"),
    ("J-12", b"3", INVALID_REQUEST, None, "object"),
    ("J-12", b"null", INVALID_REQUEST, None, "object"),
    ("J-12", b'{"id":1,"method":"m"}', INVALID_REQUEST, 1, "$.jsonrpc"),
    ("J-12", b'{"jsonrpc":"1.0","id":"1","method":"m"}', INVALID_REQUEST, "1", '"2.0"'),
    ("J-12", b'{"jsonrpc":2.0,"id":1,"method":"m"}', INVALID_REQUEST, 1, "$.jsonrpc"),
    ("J-12", message(id=0, method=7), INVALID_REQUEST, 0, "$.method"),
    ("J-25", b"[]", INVALID_REQUEST, None, "by itself"),
    ("J-25", b" [" + message(id=1, method="m") + b"]", INVALID_REQUEST, None, "by itself"),
    ("J-29", message(id="", method="m", params=[]), INVALID_REQUEST, "", "$.params"),
    ("J-29", message(id=2, method="m", params=None), INVALID_REQUEST, 2, "$.params"),
    ("J-29", message(id=2, method="m", params="x"), INVALID_REQUEST, 2, "$.params"),
]


@pytest.mark.parametrize(("rule", "text", "code", "identity", "names"), FAULTS)
def test_what_is_no_message_is_told_why_and_answered_by_its_id_if_that_can_be_read(
    rule, text, code, identity, names
):
    with pytest.raises(Undecodable) as caught:
        decode(text)
    assert (caught.value.error.code, caught.value.id) == (code, identity), rule
    assert type(caught.value.id) is type(identity)
    assert names in caught.value.error.message
    assert names in str(caught.value)


ANSWERS = {
    "a text for an error": (message(id=1, error="no"), "Expected `object`, got `str` - at `$.error`"),
    "another code": (message(id=1, error={"code": "x", "message": ""}), "got `str` - at `$.error.code`"),
    "no message": (message(id=1, error={"code": 1}), "missing required field `message` - at `$.error`"),
    "null for an error": (message(id=1, result={}, error=None), "got `null` - at `$.error`"),
    "both": (
        message(id=1, result={}, error={"code": 1, "message": ""}),
        "expected exactly one of result and error",
    ),
    "no version": (b'{"id":1,"result":{}}', 'expected "2.0" - at `$.jsonrpc`'),
    "another version": (b'{"jsonrpc":1.0,"id":1,"result":{}}', "got `float` - at `$.jsonrpc`"),
    "half a character": (message(id=1, result={"a": "\ud83d"}), "a text has half of a surrogate pair"),
    "half in an error": (message(id=1, error={"code": 1, "message": "\udc00"}), "a text has half of"),
    "half in an error that is none": (message(id=1, error="\udc00"), "got `str` - at `$.error`"),
    "half after it": (b'{"id":1,"error":"no","a":"\\ud83d"}', "got `str` - at `$.error`"),
    "nested": (b'{"jsonrpc":"2.0","id":1,"result":' + DEEP + b"}", "nested more than 200 levels deep"),
    "nested before": (b'{"jsonrpc":"2.0","result":' + DEEP + b',"id":1}', "nested more than 200 levels"),
    "nested in an error": (
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no","data":' + DEEP + b"}}",
        "nested more than 200 levels",
    ),
    "nested in both": (NESTED.replace(b'"method":"m"', b'"result":1,"error":1'), "nested more than 200"),
}


@pytest.mark.parametrize(("text", "fault"), ANSWERS.values(), ids=ANSWERS)
def test_of_an_answer_that_cannot_be_read_it_is_told_whose_it_is_and_why(text, fault):
    for said in (text, text.decode()):
        answer = decode(said)
        assert answer == JsonRpcResponse(1, fault=answer.fault)
        assert fault in answer.fault


def outcome(data: bytes | str) -> JsonRpcRequest | JsonRpcNotification | JsonRpcResponse | Undecodable:
    try:
        return decode(data)
    except Undecodable as fault:
        return fault


def is_sound(found: object) -> bool:
    if isinstance(found, Undecodable):
        return found.error.code in {PARSE_ERROR, INVALID_REQUEST}
    return isinstance(found, (JsonRpcRequest, JsonRpcNotification, JsonRpcResponse))


@given(st.binary() | st.text(st.characters()))
@example(b'{"jsonrpc":"2.0","id":"\\ud800","method":"m"}')
@example(b'{"jsonrpc":"2.0","id":' + b"1" * 6000 + b',"method":"m"}')
def test_arbitrary_bytes_and_text_are_a_message_or_undecodable(data):
    assert is_sound(outcome(data))


@given(JSON)
def test_arbitrary_json_is_a_message_or_an_invalid_request(value):
    found = outcome(json.dumps(value))
    assert is_sound(found)
    assert getattr(found, "error", None) is None or found.error.code == INVALID_REQUEST


MEMBERS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"])


@given(st.dictionaries(MEMBERS, JSON | st.just("2.0")))
def test_whatever_is_wrong_with_an_envelope_its_id_is_read(envelope):
    found = outcome(json.dumps(envelope))
    assert is_sound(found)
    readable = isinstance(envelope.get("id"), (int, str)) and not isinstance(envelope.get("id"), bool)
    if readable:
        assert found.id == envelope["id"]
    if readable and "method" not in envelope and ("result" in envelope or "error" in envelope):
        assert [found.result, found.error, found.fault].count(None) == 2


# -- batches -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.sampled_from([message(id=1, method="ping"), message(method="m"), message(id=2, result={})]),
        min_size=1,
    )
)
def test_the_messages_of_an_array_are_read_as_if_each_had_come_by_itself(parts):  # J-23
    data = b"[ %b\n]" % b" ,".join(parts)
    with pytest.raises(Undecodable) as refused:
        decode(data)
    assert (refused.value.array, refused.value.error.code, refused.value.id) == (True, INVALID_REQUEST, None)
    assert decode_batch(data) == [decode(part) for part in parts]


def test_what_in_an_array_is_no_message_is_given_in_its_place():
    bad, good, nested = decode_batch(b'[{"id": 7}, %b, []]' % message(id=1, method="ping"))
    assert (bad.id, bad.error.code) == (7, INVALID_REQUEST)
    assert good == JsonRpcRequest(1, "ping")
    assert (nested.id, nested.error.code, nested.array) == (None, INVALID_REQUEST, True)


def test_half_of_a_character_in_an_array_spoils_no_more_than_the_message_that_has_it():  # J-23
    good = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\\\ \\b","b":"\xc3\xa9 \\ud83d\\ude00"}}'
    data = b"[%b, %b,%b , 5\n,%b]" % (
        good,
        message(id=2, method="\ud83d"),
        message(id=3, result="\ud83d"),
        good,
    )
    for text in (data, data.decode()):
        first, bad, answer, five, last = decode_batch(text)
        assert first == last == decode(good)
        assert (bad.id, bad.error.code) == (2, PARSE_ERROR)
        assert (answer.id, answer.result) == (3, None)
        assert "half of" in answer.fault
        assert five.error.code == INVALID_REQUEST


@pytest.mark.parametrize("length", [0, MAX_BATCH + 1])
def test_an_array_has_a_length(length):  # J-26
    with pytest.raises(Undecodable) as refused:
        decode_batch(json.dumps([1] * length).encode())
    assert (refused.value.error.code, refused.value.id) == (INVALID_REQUEST, None)


@pytest.mark.parametrize("data", [b"[1", b"[}", b'[{"jsonrpc":"2.0"}', b"[" * 100_000, b'["\xff"]'])
def test_what_is_no_json_is_no_array_either(data):
    with pytest.raises(Undecodable) as refused:
        decode(data)
    assert (refused.value.array, refused.value.error.code) == (False, PARSE_ERROR)


# -- writing -----------------------------------------------------------------------------------------------------------


def lines(text: bytes) -> int:
    return len(text.replace(b"\r", b"\n").split(b"\n"))


@given(IDS, st.text(), OBJECTS)
def test_a_request_survives_the_round_trip(identity, method, params):
    request = decode(encode_request(identity, method, params))
    assert (request.id, type(request.id), request.method) == (identity, type(identity), method)
    assert msgspec.json.decode(request.params) == params


@given(st.text(), OBJECTS)
def test_a_notification_survives_the_round_trip(method, params):
    notification = decode(encode_notification(method, params))
    assert notification.method == method
    assert msgspec.json.decode(notification.params) == params


@given(IDS, OBJECTS, st.sampled_from([None, 2, "\r\n", "\t\n"]))
def test_a_result_is_spliced_in_as_one_line_and_keeps_its_value(identity, result, indent):  # J-31
    text = encode_result(identity, json.dumps(result, indent=indent).encode())
    assert lines(text) == 1
    response = decode(text)
    assert (response.id, msgspec.json.decode(response.result)) == (identity, result)


@given(IDS | st.none(), st.integers(), st.text(st.characters()), OBJECTS | st.none())
def test_an_error_is_one_line_and_survives_the_round_trip(identity, code, text, data):  # J-8, J-9, J-31
    encoded = encode_error(identity, ProtocolError(code, text, data))
    assert lines(encoded) == 1
    assert ("id" in json.loads(encoded)) == (identity is not None)
    response = decode(encoded)
    assert (response.id, response.error.code) == (identity, code)
    assert ("data" in json.loads(encoded)["error"]) == (data is not None)


RAW = msgspec.Raw(b'{\r\n "type": "object",\n "title": "a\\nb"\r}')


@pytest.mark.parametrize(
    "text",
    [
        encode_notification("m", {"schema": RAW}),
        encode_request(1, "m", {"schema": RAW}),
        encode_result(1, bytes(RAW)),
        encode_error(1, ProtocolError(1, "m", {"schema": RAW})),
    ],
)
def test_raw_json_with_line_breaks_cannot_break_a_line(text):  # J-31
    assert lines(text) == 1
    assert b'"a\\nb"' in text
    json.loads(text)


def test_without_params_there_is_no_params_member():
    assert (
        encode_notification("notifications/initialized")
        == b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    )
    assert json.loads(encode_request(1, "ping")) == {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def test_what_json_cannot_hold_is_refused_where_it_is_said():
    with pytest.raises(TypeError):
        encode_notification("m", {"a": object()})


def test_a_fault_in_a_batch_refers_to_no_frame():
    """A traceback would: it refers to itself so, and a thousand of them in each batch stay until the garbage collector looks."""
    for fault in decode_batch(b'[{}, 5, [], {"jsonrpc": "2.0", "id": 1}]'):
        assert isinstance(fault, Undecodable)
        for error in (fault, fault.error):
            assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)
