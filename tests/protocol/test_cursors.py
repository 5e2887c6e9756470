"""Pagination, rules I-1 to I-3."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.protocol.cursors import decode_cursor, encode_cursor, paginate
from mcpbus.protocol.errors import INVALID_PARAMS, ProtocolError


@attrs.frozen
class Entry:
    number: int


def page(entries, cursor, size=2, list_name="tools/list"):
    return paginate(entries, cursor, size, list_name=list_name, position=lambda entry: entry.number)


def walk(entries, size):
    cursor, seen = None, []
    while True:
        part = page(entries, cursor, size)
        assert len(part.items) <= size
        seen += part.items
        if part.next_cursor is None:
            return seen
        cursor = part.next_cursor


@given(st.sets(st.integers(0, 10_000)), st.integers(1, 7))
def test_the_pages_together_are_the_list(numbers, size):  # I-1
    entries = [Entry(n) for n in sorted(numbers)]
    assert walk(entries, size) == entries


@given(st.sets(st.integers(0, 50), min_size=3), st.sets(st.integers(0, 50)), st.sets(st.integers(0, 50)))
def test_a_change_between_two_pages_neither_repeats_nor_hides_what_stays(before, added, removed):
    first = page([Entry(n) for n in sorted(before)], None)
    after = (before | added) - removed
    rest, cursor = [], first.next_cursor
    while cursor is not None:
        part = page([Entry(n) for n in sorted(after)], cursor)
        rest += part.items
        cursor = part.next_cursor
    seen = [entry.number for entry in [*first.items, *rest]]
    assert len(seen) == len(set(seen))
    assert (before & after) - set(seen) == set()


def test_an_empty_list_is_one_page():
    assert page([], None) == page([Entry(1)], encode_cursor("tools/list", 1))
    assert page([], None).next_cursor is None


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "nonsense",
        "é",
        "=",
        "W10",
        encode_cursor("prompts/list", 1),
        encode_cursor("tools/list", 1) + "A",
        encode_cursor("tools/list", 1)[:-1],
        "!" + encode_cursor("tools/list", 1)[:4] + "!!!" + encode_cursor("tools/list", 1)[4:],
    ],
)
def test_what_is_no_cursor_of_this_list_is_refused(cursor):  # I-2, I-3
    with pytest.raises(ProtocolError, match="nextCursor") as caught:
        page([Entry(1), Entry(2)], cursor)
    assert caught.value.code == INVALID_PARAMS


@given(st.text())
def test_arbitrary_text_is_a_cursor_or_refused(text):
    try:
        position = decode_cursor("tools/list", text)
    except ProtocolError as error:
        position = error
    assert isinstance(position, int) or position.code == INVALID_PARAMS


@given(st.integers())
def test_a_cursor_is_made_of_what_a_url_bears(after):
    cursor = encode_cursor("tools/list", after)
    assert set(cursor) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert decode_cursor("tools/list", cursor) == after
