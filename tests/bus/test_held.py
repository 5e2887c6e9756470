"""What a session keeps for a stream that is not open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.fate import DELIVERED, Ledger, Place, Reason
from mcpbus.held import Held
from mcpbus.outbox import Outgoing
from mcpbus.protocol.revisions import Era
from mcpbus.routing import Kind


def make(ledger, key=None):
    return Outgoing(Kind.LIST_CHANGED, Era.LEGACY, b"{}", ledger.enter("m"), key=key)


def reasons(messages):
    return [None if m.receipt.fate is None else m.receipt.fate.reason for m in messages]


@pytest.mark.parametrize(
    ("limit", "keys", "become"),
    [
        (3, ["a", "b", "a"], [Reason.SUPERSEDED, None, None]),
        (2, ["a", "b", "c"], [Reason.OVERFLOW, None, None]),
        # Collapsing makes the room: nobody else has to go.
        (2, ["a", "b", "b"], [None, Reason.SUPERSEDED, None]),
        # Without a key nothing collapses.
        (2, [None, None, None], [Reason.OVERFLOW, None, None]),
        (0, ["a"], [Reason.NO_STREAM]),
    ],
)
def test_a_newer_message_replaces_its_like_and_the_oldest_makes_room(limit, keys, become):
    ledger, held = Ledger(), Held(limit, 10)
    messages = [make(ledger, key) for key in keys]
    for message in messages:
        held.put(message, 0)
    assert reasons(messages) == become
    assert held.take() == [m for m in messages if m.receipt.fate is None]
    assert ledger.balance() == 0


def test_each_message_expires_on_its_own():
    ledger, held = Ledger(), Held(5, 10)
    messages = [make(ledger) for _ in range(3)]
    for now, message in enumerate(messages):
        held.put(message, now)
    assert held.deadline == 10
    held.expire(9.9)
    assert reasons(messages) == [None, None, None]
    held.expire(11)
    assert reasons(messages) == [Reason.EXPIRED, Reason.EXPIRED, None]
    assert held.deadline == 12
    assert held.take() == messages[2:]
    assert held.deadline is None


def test_some_can_be_discarded_and_the_rest_keeps_its_order():
    ledger, held = Ledger(), Held(5, 10)
    messages = [make(ledger, key) for key in "abc"]
    for message in messages:
        held.put(message, 0)
    held.discard(Reason.NOT_SUBSCRIBED, lambda message: message.key == "b")
    assert held.take() == [messages[0], messages[2]]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "put", "expire", "take"]),
            st.sampled_from([None, "a", "b", "c"]),
            st.floats(0, 5),
        ),
        max_size=50,
    ),
    st.integers(0, 4),
)
def test_the_bound_the_order_and_the_books_hold(program, limit):
    ledger, held, made, now = Ledger(), Held(limit, 10), [], 0.0
    for verb, key, elapsed in program:
        now += elapsed
        if verb == "put":
            made.append(make(ledger, key))
            held.put(made[-1], now)
        elif verb == "expire":
            held.expire(now)
            assert held.deadline is None or held.deadline > now
        else:
            taken = held.take()
            assert taken == [m for m in made if m.receipt.fate is None]
            for message in taken:
                message.receipt.settle(DELIVERED)
        waiting = [m for m in made if m.receipt.fate is None]
        keys = [m.key for m in waiting if m.key is not None]
        assert len(held) == len(waiting) == ledger.pending[Place.HELD] <= limit
        assert len(keys) == len(set(keys))
        assert ledger.balance() == 0
