"""The comparison of what two connections show, and its table."""

import pytest

from tests.gateways.differences import ABSENT, Row, compare

NAME = Row(("tools", "*", "name"), "{x}", "{server}_{x}", "the prefix", servers="a b")
DIRECT = {"tools": {"t": {"name": "t", "hints": [True, {}]}}}
THROUGH = {"tools": {"t": {"name": "a_t", "hints": [True, {}]}}}


def found(rows, direct, through, server="a"):
    return compare(rows, server, "python-legacy", "file", direct=direct, through=through)


def test_a_difference_that_a_row_names_is_intended():
    assert found([NAME], DIRECT, THROUGH) == []
    assert found([], DIRECT, DIRECT) == []


@pytest.mark.parametrize(
    "through",
    [
        {"tools": {"t": {"name": "b_t", "hints": [True, {}]}}},
        {"tools": {"t": {"name": "a_u", "hints": [True, {}]}}},
        {"tools": {"t": {"name": "a_t", "hints": [False, {}]}}},
        {"tools": {"t": {"name": "a_t", "hints": [True, []]}}},
        {"tools": {"t": {"name": "a_t", "hints": [True]}}},
        {"tools": {"t": {"name": "a_t", "hints": [True, {}], "more": None}}},
        {"tools": {}},
    ],
)
def test_any_other_difference_is_a_fault(through):
    assert found([NAME], DIRECT, through)


def test_a_row_that_explains_nothing_is_a_fault_where_it_holds():
    [fault] = found([NAME], DIRECT, DIRECT)
    assert "a row explains no difference" in fault
    assert found([NAME], DIRECT, DIRECT, server="c") == []
    assert found([NAME], DIRECT, THROUGH, server="c") == [
        "tools / t / name:\n    direct:  t\n    gateway: a_t"
    ]


def test_a_row_may_be_about_what_is_missing_and_of_any_depth():
    row = Row(("**", "last"), "{x}", ABSENT, "it is left out")
    assert found([row], {"a": {"b": {"last": 1}}, "last": [1]}, {"a": {"b": {"other": 1}}}) == [
        "a / b / other:\n    direct:  (absent)\n    gateway: 1",
        "last / 0:\n    direct:  1\n    gateway: (absent)",
    ]


def test_times_of_day_are_not_compared():
    assert found([], {"text": "made at 5:04:22 PM"}, {"text": "made at 11:04:23 AM"}) == []
