"""How deep values are nested in JSON is found without decoding it, and judged alike wherever a message is read."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.meta import read_request, read_routing
from mcpbus.protocol.nesting import MOST_NESTED, SHORTEST_NESTED, _depth, nests_too_deeply

TEXTS = st.text(alphabet='[]{}"\\,a\n\N{SNOWMAN}', max_size=8)
VALUES = st.recursive(
    TEXTS | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=20,
)


def depth(value):
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


def nested(levels, kind="["):
    opening, closing = {"[": ("[", "]"), "{": ('{"a":', "}")}[kind]
    return opening * levels + ("0" if kind == "{" else "") + closing * levels


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
@example(['"]', ['\\"', ["\\"]]], None, True)
@example([["["], ["]"], [[]]], None, True)
def test_the_depth_is_that_of_the_decoded_value(value, indent, ascii_alone):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_alone).encode()
    assert _depth(text) == depth(value)


@pytest.mark.parametrize("kind", "[{")
def test_the_bound_is_exact(kind):
    assert not nests_too_deeply(nested(MOST_NESTED, kind).encode())
    assert nests_too_deeply(nested(MOST_NESTED + 1, kind).encode())
    assert len(nested(MOST_NESTED + 1).encode()) == SHORTEST_NESTED


def test_what_is_wide_is_not_deep():
    wide = json.dumps([[{"a": []}, "[" * 1000]] * 1000).encode()
    assert not nests_too_deeply(wide)
    assert nests_too_deeply(wide[:-1] + b"," + nested(MOST_NESTED).encode() + b"]")


@pytest.mark.parametrize("member", ["_meta", "arguments", "inputResponses", "unknown"])
def test_a_request_is_refused_by_the_params_alone(member):
    for levels, fine in ((MOST_NESTED - 1, True), (MOST_NESTED, False)):
        value = nested(levels, "{")
        params = msgspec.Raw(f'{{"name":"a","{member}":{value}}}'.encode())
        if fine:
            assert read_routing(params).name == "a"
        else:
            with pytest.raises(ProtocolError, match="nested more than 200 levels deep - at `params`"):
                read_routing(params)


def test_what_reads_a_request_in_one_go_leaves_a_deep_meta_to_those_who_say_so():
    message = f'{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"_meta":{nested(MOST_NESTED + 1, "{")}}}}}'
    assert read_request(message.encode()) is None
