"""What is remembered: so many things, none of them long, and all of them until there are too many."""

import pytest

from mcpbus.protocol.bounded_cache import LONGEST_REMEMBERED, MOST_REMEMBERED, BoundedCache


def test_all_is_remembered_until_there_are_too_many_things_and_then_forgotten():
    remembered = BoundedCache()
    for number in range(MOST_REMEMBERED):
        remembered.keep(number, -number, 1)
    assert remembered == {number: -number for number in range(MOST_REMEMBERED)}
    remembered.keep("one more", "came of it", 1)
    assert remembered == {"one more": "came of it"}


@pytest.mark.parametrize(("size", "kept"), [(LONGEST_REMEMBERED, True), (LONGEST_REMEMBERED + 1, False)])
def test_what_is_long_is_not_remembered(size, kept):
    remembered = BoundedCache()
    remembered.keep("it", "came of it", size)
    assert ("it" in remembered) is kept
