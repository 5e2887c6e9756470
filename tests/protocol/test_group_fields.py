"""Header fields by name, in linear time."""

import time

from hypothesis import given
from hypothesis import strategies as st

from mcpbus.protocol.http.headers import Headers, group_fields

FIELDS = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"", b"x", b"y"])))


@given(FIELDS)
def test_fields_are_grouped_by_name_in_the_order_in_which_they_came(fields):
    expected = {}
    for name, value in fields:
        expected.setdefault(name, []).append(value)
    grouped = group_fields(fields)
    assert {name: [v] if isinstance(v, bytes) else list(v) for name, v in grouped.items()} == expected
    assert list(grouped) == list(expected)
    assert all(isinstance(v, bytes) or len(v) > 1 for v in grouped.values())


def test_a_field_that_comes_many_times_takes_linear_time():
    """By the square of their number it would be minutes."""
    begun = time.process_time()
    headers = Headers([(b"A", b"")] * 200_000)
    assert len(headers.raw(b"a")) == 200_000
    assert time.process_time() - begun < 5
