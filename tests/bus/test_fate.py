"""The books: every message has one fate, and the sums balance whatever is done."""

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.core.receipt import (
    DELIVERED,
    MOVED,
    STORED,
    Broadcast,
    Fate,
    FateKind,
    Ledger,
    Location,
    move_all,
    settle_all,
)
from mcpbus.protocol.routes import Reason

FATES = [
    DELIVERED,
    STORED,
    MOVED,
    *(Fate(verdict, why) for verdict in (FateKind.DISCARDED, FateKind.REFUSED) for why in Reason),
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["emit", "adopt", "record", "move", "settle", "move all", "settle all"]),
            st.integers(0, 9),
            st.sampled_from(list(Location)),
            st.sampled_from(FATES),
        ),
        max_size=60,
    )
)
def test_the_books_balance_after_every_step(program):
    ledger, receipts, recorded = Ledger(), [], []
    for verb, index, place, fate in program:
        pending = [receipt for receipt in receipts if receipt.fate is None]
        if verb in {"emit", "adopt"}:
            receipts.append(getattr(ledger, verb)("m"))
        elif verb == "record":
            ledger.emit_settled(fate)
            recorded.append(fate)
        elif pending and verb == "move":
            pending[index % len(pending)].move(place)
        elif verb == "move all":
            move_all(
                [receipt for receipt in pending[index:] if receipt.location is pending[-1].location], place
            )
        elif verb == "settle all":
            settle_all(
                [receipt for receipt in pending[index:] if receipt.location is pending[-1].location], fate
            )
        elif pending:
            pending[index % len(pending)].settle(fate)
        fates = recorded + [receipt.fate for receipt in receipts]
        assert ledger.balance() == 0
        assert ledger.emitted + ledger.adopted == len(fates)
        assert ledger.moved == fates.count(MOVED)
        assert ledger.delivered == fates.count(DELIVERED)
        assert ledger.stored == fates.count(STORED)
        assert ledger.refused == sum(each is not None and each.kind is FateKind.REFUSED for each in fates)
        for each in Location:
            assert ledger.pending[each] == sum(r.location is each for r in receipts)
        for why in Reason:
            assert ledger.discarded[why] == fates.count(Fate.discarded(why))


def test_a_message_has_exactly_one_fate_and_a_second_is_an_error_that_changes_nothing():
    ledger = Ledger()
    receipt = ledger.emit("notifications/message")
    receipt.discard(Reason.OVERFLOW)
    with pytest.raises(RuntimeError, match=r"notifications/message: settled as discarded"):
        receipt.settle(DELIVERED)
    assert receipt.fate == Fate.discarded(Reason.OVERFLOW)
    assert (ledger.delivered, ledger.balance()) == (0, 0)


@pytest.mark.parametrize("fate", FATES, ids=str)
def test_each_fate_is_counted_once_and_its_message_is_pending_no_more(fate):
    ledger = Ledger()
    receipt = ledger.emit("m")
    receipt.settle(fate)
    counts = {
        FateKind.DELIVERED: ledger.delivered,
        FateKind.STORED: ledger.stored,
        FateKind.DISCARDED: sum(ledger.discarded.values()),
        FateKind.REFUSED: ledger.refused,
        FateKind.MOVED: ledger.moved,
    }
    assert counts == {verdict: verdict is fate.kind for verdict in FateKind}
    assert (ledger.balance(), set(ledger.pending.values())) == (0, {0})


def test_a_batch_that_holds_a_settled_message_is_settled_as_far_as_that():
    ledger = Ledger()
    receipts = [ledger.emit("m") for _ in range(3)]
    receipts[1].discard(Reason.LOST)
    with pytest.raises(RuntimeError, match=r"m: settled as discarded"):
        settle_all(receipts, DELIVERED)
    assert [receipt.fate for receipt in receipts] == [DELIVERED, Fate.discarded(Reason.LOST), None]
    assert (ledger.delivered, ledger.balance()) == (1, 0)


async def test_settled_waits_for_the_fate_and_returns_it(autojump_clock):
    receipt = Ledger().emit("m")
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(receipt.settled)
        with pytest.raises(trio.TooSlowError):
            await receipt.settled(timeout=3)
        assert trio.current_time() == 3
        assert receipt.location is Location.MAILBOX
        receipt.settle(DELIVERED)
    assert await receipt.settled(timeout=0.1) == DELIVERED
    assert receipt.location is None


async def test_asking_for_a_fate_that_is_there_is_a_checkpoint():
    receipt = Ledger().emit("m")
    receipt.settle(DELIVERED)
    with trio.testing.assert_checkpoints():
        assert await receipt.settled() == DELIVERED


async def test_a_broadcast_counts_its_copies_and_waits_for_all(autojump_clock):
    ledger = Ledger()
    receipts = [ledger.emit("m") for _ in range(3)]
    broadcast = Broadcast(receipts)
    receipts[0].settle(DELIVERED)
    assert broadcast.fates == {DELIVERED: 1, None: 2}
    with pytest.raises(trio.TooSlowError):
        await broadcast.settled(timeout=1)
    receipts[1].settle(DELIVERED)
    receipts[2].discard(Reason.FILTERED)
    assert await broadcast.settled() == {DELIVERED: 2, Fate.discarded(Reason.FILTERED): 1}
    assert list(broadcast) == receipts
    assert broadcast[0] is receipts[0]
    assert len(broadcast) == 3


async def test_a_broadcast_to_nobody_is_settled():
    assert await Broadcast([]).settled(timeout=1) == {}
