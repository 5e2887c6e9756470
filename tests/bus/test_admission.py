"""Requests in flight: counted, bounded, and unique by id where ids must be."""

from collections import Counter
from itertools import cycle
from types import SimpleNamespace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.core.admission import Admission, InFlight, QuotaExceeded, ServerOverloaded
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.core.shares import kept
from mcpbus.protocol.errors import ProtocolError
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT


class Somebody:
    """Whoever something is counted to."""

    def __init__(self, owner):
        self.owner = owner


ALICE, BOB = Somebody("alice"), Somebody("bob")


async def test_ids_compare_by_type_and_value_within_one_table_and_not_across():
    admission, table, other = Admission(10), InFlight(10), InFlight(10)
    admission.admit(1, table, BOB)
    admission.admit("1", table, BOB)
    admission.admit(1, other, BOB)
    admission.admit(1, None, BOB)
    admission.admit(1, None, BOB)
    with pytest.raises(ProtocolError, match="still in flight") as error:
        admission.admit(1, table, BOB)
    assert error.value.code == -32600
    assert (len(admission), len(table), len(other)) == (5, 2, 1)


async def test_an_id_may_be_used_again_once_its_place_was_given_back():
    admission, table = Admission(10), InFlight(10)
    slot = admission.admit(1, table, BOB)
    slot.request = SimpleNamespace(address="address")
    assert table.find(1) == "address"
    assert table.find("1") is None
    slot.release()
    slot.release()
    assert table.find(1) is None
    admission.admit(1, table, BOB)
    assert (len(admission), len(table)) == (1, 1)


async def test_while_memory_is_full_because_of_others_a_request_of_who_holds_nothing_is_admitted():
    budget = MemoryBudget(1000, LimitMonitor())
    account = budget.account("a stream", owner="alice")
    account.hold(1001)
    admission = Admission(10, budget)
    with pytest.raises(ServerOverloaded, match="try again later"):
        admission.admit(1, None, ALICE)
    admission.admit(1, None, BOB)
    account.hold(300)
    with pytest.raises(ServerOverloaded, match="try again later"):
        admission.admit(1, None, BOB)
    assert len(admission) == 1


@pytest.mark.parametrize(("whole", "one"), [(1, 5), (5, 1)])
async def test_past_a_bound_a_request_is_refused_and_leaves_no_trace(whole, one):
    admission, table = Admission(whole), InFlight(one)
    admission.admit(1, table, BOB)
    with pytest.raises(ServerOverloaded, match="at most 1"):
        admission.admit(2, table, BOB)
    assert (len(admission), len(table)) == (1, 1)


async def test_a_closed_admission_refuses_everybody_and_waits_for_the_rest(autojump_clock):
    admission, table = Admission(5), InFlight(5)
    slot = admission.admit(1, table, BOB)
    admission.closed = True
    with pytest.raises(ServerOverloaded, match="shutting down"):
        admission.admit(2, table, BOB)
    async with trio.open_nursery() as nursery:
        for waited_for in (admission, admission, table, table):
            nursery.start_soon(waited_for.wait_idle)
        await trio.sleep(5)
        slot.release()
    assert trio.current_time() == 5
    assert table.last_active == 5
    await admission.wait_idle()


async def test_who_waits_until_nobody_is_there_sleeps_again_if_somebody_comes_first(autojump_clock):
    admission, idle = Admission(5), []

    async def wait():
        await admission.wait_idle()
        idle.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        first = admission.admit(1, None, BOB)
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.sleep(1)
        first.release()
        second = admission.admit(2, None, BOB)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert trio.lowlevel.current_statistics().tasks_runnable == 0, "they ask again and again"
        await trio.sleep(1)
        second.release()
    assert idle == [2, 2]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from([0, 1, None])), max_size=60))
def test_the_counts_are_those_of_the_places_that_are_taken(program):
    async def main():
        admission, tables, taken = Admission(8), [InFlight(3), InFlight(3)], []
        for admits, number, which in program:
            table = None if which is None else tables[which]
            mine = [t for t in taken if t[1] is table]
            if admits:
                must_fail = len(taken) >= 8 or (
                    table is not None and (len(mine) >= 3 or any(t[2] == number for t in mine))
                )
                try:
                    taken.append((admission.admit(number, table, BOB), table, number))
                except ProtocolError:
                    assert must_fail
                else:
                    assert not must_fail
            elif taken:
                taken.pop(number % len(taken))[0].release()
            assert len(admission) == len(list(admission)) == len(taken)
            for table in tables:
                assert len(table) == sum(t[1] is table for t in taken)

    trio.run(main)


async def test_of_the_last_tenth_those_have_some_who_have_little():
    admission = Admission(20)
    slots = [admission.admit(number, None, BOB) for number in range(18)]
    with pytest.raises(QuotaExceeded, match="at most 20 on this server"):
        admission.admit(18, None, BOB)
    admission.admit(1, None, ALICE)
    with pytest.raises(QuotaExceeded):
        admission.admit(2, None, ALICE)
    admission.admit(1, None, Somebody("carol"))
    with pytest.raises(ServerOverloaded) as full:
        admission.admit(1, None, Somebody("dora"))
    assert full.value.status == 503
    with pytest.raises(QuotaExceeded):
        admission.admit(18, None, BOB)
    for slot in slots[:4]:
        slot.release()
    admission.admit(2, None, ALICE)


async def test_whose_requests_are_in_flight_is_counted_while_they_are_many_and_until_they_are_few():
    admission = Admission(40)
    slots = [admission.admit(number, None, BOB) for number in range(36)]
    assert admission._counts is None
    slots.append(admission.admit(36, None, ALICE))
    slots.pop().release()
    assert admission._counts == {"bob": 36}
    for left in range(35, 31, -1):
        slots.pop().release()
        assert admission._counts == {"bob": left}
    slots.pop().release()
    assert admission._counts is None


class Shifty:
    """A principal whose hash its author lets change."""

    number = 1

    def __hash__(self):
        return self.number


async def test_whoever_is_not_found_again_among_those_that_are_counted_gives_a_place_back_all_the_same():
    admission, shifty = Admission(40), Shifty()
    for number in range(36):
        admission.admit(number, None, BOB)
    slot = admission.admit(36, None, Somebody(shifty))
    shifty.number = 2
    slot.release()
    assert len(admission) == 36
    assert sorted(admission._counts.values()) == [1, 36]


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.sampled_from("abc")), max_size=150)


@given(st.integers(1, 40), STEPS)
def test_whose_requests_are_in_flight_is_known_while_they_are_many_and_forgotten_after(limit, steps):
    async def main():
        admission = Admission(limit)
        # They begin as few as may be counted no more.
        taken = [
            (owner, admission.admit(owner, None, Somebody(owner)))
            for owner, _ in zip(cycle("abc"), range(limit - 2 * kept(limit)), strict=False)
        ]
        for admits, number, owner in steps:
            if admits:
                mine, left = sum(who == owner for who, _ in taken), limit - len(taken)
                try:
                    taken.append((owner, admission.admit(number, None, Somebody(owner))))
                except ServerOverloaded:
                    assert left <= kept(limit)
                    assert mine or not left
                else:
                    assert left > 0
            elif taken:
                taken.pop(number % len(taken))[1].release()
            if admission._counts is not None:
                assert admission._counts == dict(Counter(who for who, _ in taken))
            assert admission._counts is not None or len(taken) <= limit - kept(limit)
        for _, slot in taken:
            slot.release()
        assert not admission._counts

    trio.run(main)
