"""What waits for a stream: the order in which room is made, and what must hold after any sequence of steps."""

from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage, Outbox
from mcpbus.core.receipt import DELIVERED, Fate, FateKind, Ledger, Location
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT

RESERVED = frozenset(
    {
        MessageKind.REPLY,
        MessageKind.WITHDRAWAL,
        MessageKind.SESSION_WITHDRAWAL,
        MessageKind.ACKNOWLEDGED,
        MessageKind.LISTEN_RESULT,
    }
)
LOGS = frozenset({MessageKind.LOG, MessageKind.SESSION_LOG})


def make(ledger, kind=MessageKind.CUSTOM, *, size=0, key=None, request_id=None):
    key = None if kind in RESERVED else key  # what cannot be refused has nothing to collapse with
    return OutboundMessage(
        kind, Era.LEGACY, b"x" * size, ledger.emit(kind.value), key=key, request_id=request_id
    )


def belongs(request_id, message):
    return message.request_id == request_id


def fates(messages):
    return [None if m.receipt.fate is None else m.receipt.fate.reason for m in messages]


# Kinds and keys that are there; the newcomer; what becomes of each, in an outbox for three.
ROOM = [
    # Room is made only when there is none: while there is, the same key may wait twice.
    ([("LIST_CHANGED", "a"), ("LIST_CHANGED", "a")], ("LIST_CHANGED", "a"), [None, None, None]),
    # Same keys collapse into the newest, the newcomer included (P-8).
    (
        [("PROGRESS", "a"), ("PROGRESS", "a"), ("LOG", None)],
        ("PROGRESS", "a"),
        ["SUPERSEDED", "SUPERSEDED", None, None],
    ),
    # All keys collapse, not only the newcomer's.
    (
        [("PROGRESS", "a"), ("PROGRESS", "b"), ("PROGRESS", "a")],
        ("CUSTOM", None),
        ["SUPERSEDED", None, None, None],
    ),
    # Then the oldest log goes, and only as many as needed.
    (
        [("LOG", None), ("SESSION_LOG", None), ("CUSTOM", None)],
        ("CUSTOM", None),
        ["OVERFLOW", None, None, None],
    ),
    ([("CUSTOM", None), ("SESSION_LOG", None), ("LOG", None)], ("LOG", None), [None, "OVERFLOW", None, None]),
    # Collapsing comes before the logs.
    (
        [("LOG", None), ("PROGRESS", "a"), ("CUSTOM", None)],
        ("PROGRESS", "a"),
        [None, "SUPERSEDED", None, None],
    ),
    # Where nothing can go the newcomer is discarded.
    ([("CUSTOM", None), ("PROGRESS", "a"), ("PROGRESS", "b")], ("LOG", None), [None, None, None, "OVERFLOW"]),
    # What has no key collapses with nothing.
    (
        [("CUSTOM", None), ("CUSTOM", None), ("CUSTOM", None)],
        ("CUSTOM", None),
        [None, None, None, "OVERFLOW"],
    ),
    # Reserved kinds need no room and take none.
    ([("CUSTOM", None), ("LOG", None), ("CUSTOM", None)], ("REPLY", None), [None, None, None, None]),
    ([("REPLY", None), ("LISTEN_RESULT", None), ("ACKNOWLEDGED", None)], ("CUSTOM", None), [None] * 4),
]


@pytest.mark.parametrize(("there", "newcomer", "become"), ROOM)
def test_room_is_made_in_the_order_of_the_design(there, newcomer, become):
    ledger, outbox = Ledger(), Outbox(3, 10_000)
    messages = [make(ledger, MessageKind[kind], key=key) for kind, key in [*there, newcomer]]
    for message in messages:
        outbox.put(message)
    assert [None if r is None else r.name for r in fates(messages)] == become
    assert outbox.take() == [m for m in messages if m.receipt.fate is None]
    assert ledger.balance() == 0


def test_the_bound_in_bytes_counts_what_a_message_costs_beside_its_data():
    ledger, outbox = Ledger(), Outbox(100, 2 * (OVERHEAD_BYTES + 10))
    messages = [make(ledger, size=10) for _ in range(3)]
    for message in messages:
        outbox.put(message)
    assert fates(messages) == [None, None, Reason.OVERFLOW]
    assert outbox.queued_bytes == 2 * (OVERHEAD_BYTES + 10)


def test_what_joins_others_is_as_little_as_may_wait_unheard_of_and_less_than_makes_a_crowd():
    for outbox, most in [
        (Outbox(100, 100 * OVERHEAD_BYTES), 3 * OVERHEAD_BYTES),
        (Outbox(6, 100 * OVERHEAD_BYTES), 100 * OVERHEAD_BYTES),
        (Outbox(100, 6 * OVERHEAD_BYTES), 100 * OVERHEAD_BYTES),
    ]:
        ledger = Ledger()
        outbox.allow_joining(most)
        assert not outbox.try_append(make(ledger))  # there is nothing that it could join
        outbox.put(make(ledger))
        assert not outbox.try_append(make(ledger))  # somebody has to hear of each
        outbox.allow_joining(most)
        assert [outbox.try_append(make(ledger)) for _ in range(3)] == [True, False, False]
        assert (len(outbox), outbox.queued_bytes, outbox.half_full) == (2, 2 * OVERHEAD_BYTES, False)
        assert ledger.pending[Location.OUTBOX] == 2
        outbox.take()
        assert not outbox.try_append(make(ledger))


def test_what_joins_an_outbox_that_was_full_collapses_with_what_is_newer_all_the_same():
    outbox, ledger = Outbox(10, 10_000), Ledger()
    for _ in range(11):
        outbox.put(make(ledger, key="a"))
        outbox.allow_joining(10_000)
    assert len(outbox) == 1  # there was no room for the last one, which says what the others do
    messages = [make(ledger, key=key) for key in "aabcdefghija"]
    for message in messages:
        if not outbox.try_append(message):
            outbox.put(message)
            outbox.allow_joining(10_000)
    waiting = outbox.take()
    assert [message.key for message in waiting] == list("bcdefghija")
    assert waiting[-1] is messages[-1]


def test_as_many_old_logs_go_as_a_large_newcomer_needs_but_none_for_one_that_can_never_fit():
    ledger, outbox = Ledger(), Outbox(100, 3 * OVERHEAD_BYTES + 30)
    logs = [make(ledger, MessageKind.LOG, size=10) for _ in range(3)]
    for message in logs:
        outbox.put(message)
    huge = make(ledger, size=3 * OVERHEAD_BYTES)
    outbox.put(huge)
    assert fates([*logs, huge]) == [None, None, None, Reason.OVERFLOW]
    large = make(ledger, size=OVERHEAD_BYTES)
    outbox.put(large)
    assert fates([*logs, large]) == [Reason.OVERFLOW, Reason.OVERFLOW, None, None]


def test_what_is_as_large_as_all_that_may_wait_has_the_logs_go_for_it():
    ledger, outbox = Ledger(), Outbox(100, OVERHEAD_BYTES + 10)
    messages = [make(ledger, MessageKind.LOG), make(ledger, size=10)]
    for message in messages:
        outbox.put(message)
    assert fates(messages) == [Reason.OVERFLOW, None]


# How many of which size wait, in an outbox for so many, and for as many bytes as four of 100 take.
@pytest.mark.parametrize(
    ("sizes", "max_items", "crowded"),
    [
        ([0], 3, False),
        ([0, 0], 3, True),
        ([0], 4, False),
        ([0, 0], 4, True),
        ([100], 100, False),
        ([100, 99], 100, False),
        ([100, 100], 100, True),
    ],
)
def test_an_outbox_is_crowded_once_half_of_what_may_wait_does(sizes, max_items, crowded):
    ledger, outbox = Ledger(), Outbox(max_items, 4 * (OVERHEAD_BYTES + 100))
    for size in sizes:
        outbox.put(make(ledger, size=size))
    assert outbox.half_full is crowded


def test_a_purge_takes_one_requests_messages_of_every_kind_and_gives_their_room_back():
    ledger, outbox = Ledger(), Outbox(2, 10_000)
    messages = [
        make(ledger, MessageKind.LOG, request_id=1),
        make(ledger, MessageKind.CUSTOM, request_id="1"),
        make(ledger, MessageKind.REPLY, request_id=1),
    ]
    for message in messages:
        outbox.put(message)
    assert outbox.queued_bytes == 3 * OVERHEAD_BYTES
    assert outbox.remove_if(lambda message: message.request_id == 1) == [messages[0], messages[2]]
    assert outbox.queued_bytes == OVERHEAD_BYTES
    newcomer = make(ledger)
    outbox.put(newcomer)
    assert outbox.take() == [messages[1], newcomer]


def test_a_question_for_which_there_is_no_room_is_refused_and_its_asker_told():
    ledger, outbox, told = Ledger(), Outbox(1, 10_000), []
    outbox.put(make(ledger))
    question = OutboundMessage(MessageKind.QUESTION, Era.LEGACY, b"", ledger.emit("m"), refused=told.append)
    outbox.put(question)
    assert question.receipt.fate == Fate(FateKind.REFUSED, Reason.OVERFLOW)
    assert told == [Reason.OVERFLOW]


def test_what_is_taken_is_being_written_and_what_is_removed_stays_where_it_was():
    ledger, outbox = Ledger(), Outbox(2, 10_000)
    first, second = make(ledger), make(ledger)
    outbox.put(first)
    outbox.take()
    outbox.put(second)
    outbox.remove()
    assert (first.receipt.location, second.receipt.location) == (Location.WRITING, Location.OUTBOX)
    assert len(outbox) == outbox.queued_bytes == 0


steps = st.lists(
    st.tuples(
        st.sampled_from(["put"] * 6 + ["take", "purge", "remove"]),
        st.sampled_from(list(MessageKind)),
        st.integers(0, 200),
        st.sampled_from([None, None, "a", "b"]),
        st.sampled_from([1, "1", None]),
    ),
    max_size=60,
)


@given(steps, st.integers(1, 5), st.integers(1, 2000))
def test_bounds_order_and_books_hold_after_any_steps(program, max_items, max_bytes):
    ledger, outbox = Ledger(), Outbox(max_items, max_bytes)
    made = []
    for verb, kind, size, key, request_id in program:
        if verb == "put":
            message = make(ledger, kind, size=size, key=key, request_id=request_id)
            made.append(message)
            outbox.allow_joining(1_000)
            if kind in RESERVED or not outbox.try_append(message):
                outbox.put(message)
            else:
                assert not outbox.half_full
        elif verb == "take":
            batch = outbox.take()
            assert batch == sorted(batch, key=made.index)
            for message in batch:
                message.receipt.settle(DELIVERED)
        else:
            gone = outbox.remove_if(partial(belongs, request_id)) if verb == "purge" else outbox.remove()
            assert gone == sorted(gone, key=made.index)
            for message in gone:
                message.receipt.discard(Reason.CANCELLED)
        waiting = [m for m in made if m.receipt.fate is None]
        bounded = [m for m in waiting if m.kind not in RESERVED]
        assert len(outbox) == len(waiting) == ledger.pending[Location.OUTBOX]
        assert len(bounded) <= max_items
        assert outbox.queued_bytes == sum(len(m.data) + OVERHEAD_BYTES for m in waiting)
        assert sum(len(m.data) + OVERHEAD_BYTES for m in bounded) <= max_bytes
        assert ledger.balance() == 0
    for message in made:
        if message.kind in RESERVED:
            assert message.receipt.fate not in {
                Fate.discarded(Reason.OVERFLOW),
                Fate.discarded(Reason.SUPERSEDED),
            }
        if message.receipt.fate == Fate.discarded(Reason.SUPERSEDED):
            later = made[made.index(message) + 1 :]
            assert any(m.key == message.key is not None for m in later)


@given(steps, st.integers(1, 5))
def test_nothing_is_discarded_while_there_is_room(program, max_items):
    ledger, outbox = Ledger(), Outbox(max_items, 10_000)
    waiting = 0
    for _, kind, size, key, _ in program:
        had_room = waiting < max_items
        message = make(ledger, kind, size=size, key=key)
        before = sum(ledger.discarded.values())
        outbox.put(message)
        assert not had_room or sum(ledger.discarded.values()) == before
        if kind in RESERVED:
            assert message.receipt.fate is None
        waiting = ledger.pending[Location.OUTBOX] - sum(m.kind in RESERVED for m in outbox._queue)


@given(steps)
def test_a_full_outbox_loses_custom_notifications_only_when_no_log_and_no_older_twin_is_left(program):
    ledger, outbox = Ledger(), Outbox(3, 100_000)
    for _, kind, size, key, _ in program:
        message = make(ledger, kind, size=size, key=key)
        outbox.put(message)
        if message.receipt.fate == Fate.discarded(Reason.OVERFLOW):
            left = [m for m in outbox._queue if m.kind not in RESERVED]
            assert not [m for m in left if m.kind in LOGS]
            keys = [m.key for m in left if m.key is not None]
            assert len(keys) == len(set(keys))


def put_plainly(queue, message, max_items, max_bytes):
    """Put a message into a list by the rules alone, each applied to all that waits; return what goes for it, and why."""

    def fits():
        bounded = [len(m.data) + OVERHEAD_BYTES for m in [*queue, message] if m.kind not in RESERVED]
        return len(bounded) <= max_items and sum(bounded) <= max_bytes

    gone = []
    if message.kind not in RESERVED and not fits() and len(message.data) + OVERHEAD_BYTES <= max_bytes:
        said = [(m.request_id, m.key) for m in [*queue, message]]
        old = [m for at, m in enumerate(queue) if m.key is not None and said[at] in said[at + 1 :]]
        gone += [(m, Reason.SUPERSEDED) for m in old]
        queue[:] = [m for m in queue if m not in old]
        for log in [m for m in queue if m.kind in LOGS]:
            if not fits():
                queue.remove(log)
                gone.append((log, Reason.OVERFLOW))
    if message.kind in RESERVED or fits():
        queue.append(message)
    else:
        gone.append((message, Reason.OVERFLOW))
    return gone


LOG, CUSTOM = (MessageKind.LOG, None), (MessageKind.CUSTOM, None)
PROGRESS = (MessageKind.PROGRESS, "a")
STEPS_BACK = [(PROGRESS, 0), *[(LOG, 0)] * 4, (PROGRESS, 200)]
"""The last of it takes out what is before all logs, and then needs a log's room too."""
TWIN = [(PROGRESS, 0), (LOG, 200), (CUSTOM, 0), (CUSTOM, 0), (CUSTOM, 0), (PROGRESS, 0), (CUSTOM, 200)]
"""A long log line that went leaves room for a second report, the first of which goes when there is none any more."""
crowded = st.lists(
    st.tuples(
        st.sampled_from(["put"] * 20 + ["take", "purge"]),
        st.sampled_from(
            [LOG, LOG, CUSTOM, CUSTOM, PROGRESS, (MessageKind.CUSTOM, "b"), (MessageKind.REPLY, None)]
        ),
        st.sampled_from([0, 0, 0, 200]),
        st.sampled_from([1, 1, 2]),
    ),
    min_size=12,
    max_size=60,
)


@settings(max_examples=200)
@example([("put", said, 0, 1) for said in (PROGRESS, LOG, LOG, CUSTOM, PROGRESS, CUSTOM)], 3, 10_000)
@example([("put", said, size, 1) for said, size in STEPS_BACK], 4, 4 * OVERHEAD_BYTES + 100)
@example([("put", said, size, 1) for said, size in TWIN], 10, 4 * OVERHEAD_BYTES + 200)
@given(crowded, st.integers(2, 6), st.sampled_from([600, 10_000]))
def test_what_is_remembered_of_a_full_outbox_changes_nothing(program, max_items, max_bytes):
    ledger, outbox, plain = Ledger(), Outbox(max_items, max_bytes), []
    for verb, (kind, key), size, request_id in program:
        if verb == "put":
            message = make(ledger, kind, size=size, key=key, request_id=request_id)
            outbox.put(message)
            for other, reason in put_plainly(plain, message, max_items, max_bytes):
                assert other.receipt.fate == Fate.discarded(reason)
        elif verb == "purge":
            outbox.remove_if(partial(belongs, request_id))
            plain = [m for m in plain if not belongs(request_id, m)]
        else:
            assert [*(outbox.take() if verb == "take" else outbox.remove())] == plain
            plain = []
        assert [*outbox._queue] == plain
