"""What a session keeps for a stream that is not open."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.core.receipt import DELIVERED, Ledger, Location
from mcpbus.core.sessions.held_queue import HeldQueue
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT


def make(ledger, key=None, data=b"{}"):
    return OutboundMessage(MessageKind.LIST_CHANGED, Era.LEGACY, data, ledger.emit("m"), key=key)


def account():
    return MemoryBudget(math.inf, LimitMonitor()).account("a session")


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
    ledger, held = Ledger(), HeldQueue(limit, 10**6, 10, account())
    messages = [make(ledger, key) for key in keys]
    for message in messages:
        held.put(message, 0)
    assert reasons(messages) == become
    assert held.take() == [m for m in messages if m.receipt.fate is None]
    assert ledger.balance() == 0


def test_what_is_as_large_as_all_that_may_be_held_is_held():
    ledger = Ledger()
    held = HeldQueue(100, OVERHEAD_BYTES + 10, 10, account())
    messages = [make(ledger, data=b"x" * size) for size in (1, 10)]
    for message in messages:
        held.put(message, 0)
    assert reasons(messages) == [Reason.OVERFLOW, None]


def test_what_is_held_has_a_bound_in_bytes():
    ledger, mine = Ledger(), account()
    held = HeldQueue(100, 2 * (OVERHEAD_BYTES + 10), 10, mine)
    messages = [make(ledger, data=b"x" * size) for size in (5, 10, 10, 500, 1)]
    reached = [held.put(message, 0) for message in messages]
    assert reached == [None, None, "outbox_bytes", "outbox_bytes", "outbox_bytes"]
    # What is larger than all of it takes nobody's place.
    assert reasons(messages) == [Reason.OVERFLOW, Reason.OVERFLOW, None, Reason.OVERFLOW, None]
    assert mine.held == 2 * OVERHEAD_BYTES + 11
    held.take()
    assert mine.held == 0


def test_each_message_expires_on_its_own():
    ledger, held = Ledger(), HeldQueue(5, 10**6, 10, account())
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
    ledger, held = Ledger(), HeldQueue(5, 10**6, 10, account())
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
    ledger, mine, made, now = Ledger(), account(), [], 0.0
    held = HeldQueue(limit, 10**6, 10, mine)
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
        assert len(held) == len(waiting) == ledger.pending[Location.HELD] <= limit
        assert len(keys) == len(set(keys))
        assert ledger.balance() == 0
        assert mine.held == len(held) * (OVERHEAD_BYTES + 2)
