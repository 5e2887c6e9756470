"""Small sets are sets, whatever they are kept as."""

from hypothesis import given
from hypothesis import strategies as st
from mcpbus_actors._mailbox import added, removed


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=30))
def test_they_do_as_sets_do(program):
    few, plain = (), set()
    for adds, member in program:
        few = added(few, member) if adds else removed(few, member)
        (plain.add if adds else plain.discard)(member)
        assert (set(few), len(few), bool(few)) == (plain, len(plain), bool(plain))


def test_one_member_takes_no_set():
    assert added((), 1) == (1,)
    assert removed((1,), 1) == ()
