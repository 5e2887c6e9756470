"""Names: where they lead, and that nobody else makes them."""

import pytest

from mcpbus.cluster.signed_ids import SignedIds, new_home

KEY, OTHER = b"k" * 32, b"o" * 32


def test_a_name_leads_home_from_every_process():
    here, there = SignedIds(new_home(), [KEY]), SignedIds(new_home(), [KEY])
    assert there.home_of(here.new()) == here.home != there.home


def test_no_two_names_are_one():
    names = SignedIds(new_home(), [KEY])
    assert len({names.new() for _ in range(1000)}) == 1000


def test_a_name_can_stand_in_a_header_and_in_a_query():
    assert all(character.isalnum() or character in "-_." for character in SignedIds(new_home(), [KEY]).new())


@pytest.mark.parametrize("place", [0, 9, 34])
def test_a_name_that_was_changed_leads_nowhere(place):
    names = SignedIds(new_home(), [KEY])
    name = names.new()
    changed = name[:place] + ("A" if name[place] != "A" else "B") + name[place + 1 :]
    assert names.home_of(changed) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 42, "\u0661" * 8 + ".a.b", "a" * 8 + "." + "b" * 24 + "."]
)
def test_what_is_no_name_leads_nowhere(name):
    assert SignedIds(new_home(), [KEY]).home_of(name) is None


def test_a_name_made_with_another_key_leads_nowhere():
    home = new_home()
    assert SignedIds(home, [KEY]).home_of(SignedIds(home, [OTHER]).new()) is None
