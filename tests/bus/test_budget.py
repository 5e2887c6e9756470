"""What is kept for clients: the books of it, and who goes when it is too much."""

import json
import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.large import weigh


def budget_of(limit=math.inf):
    return MemoryBudget(limit, LimitMonitor())


def test_who_gives_back_more_than_it_holds_is_told():
    account = budget_of().account("a stream")
    account.hold(5)
    with pytest.raises(ValueError, match="cannot give back 6"):
        account.release(6)


async def test_those_that_hold_the_most_go_and_the_small_ones_stay(autojump_clock):
    budget, gone = budget_of(800), []
    accounts = [budget.account("a stream", lambda n=n: gone.append(n)) for n in range(5)]
    for account, size in zip(accounts, (10, 300, 20, 400, 71), strict=True):
        account.hold(size)
    # One goes, and with it more than an eighth of the limit: there is room again.
    assert gone == [3]
    assert budget.held == 801
    assert budget.full, "what has not been given back is still there"
    accounts[3].close()
    assert (budget.held, budget.full) == (401, False)


async def test_room_is_made_for_more_than_the_next_byte(autojump_clock):
    budget, gone = budget_of(800), []
    for n in range(81):
        account = budget.account("a stream", lambda n=n: gone.append(n))
        account.hold(10)
    assert len(gone) == 11


async def test_what_is_told_to_end_is_told_once(autojump_clock):
    budget, gone = budget_of(100), []
    account = budget.account("a stream", lambda: gone.append(1))
    account.hold(101)
    account.hold(1)
    assert gone == [1]


async def test_what_may_not_end_stays_and_newcomers_are_refused(autojump_clock):
    reached = LimitMonitor()
    budget = MemoryBudget(100, reached)
    budget.account("standard output").hold(101)
    assert budget.full
    assert "try again later" in budget.refusal("bob")
    assert reached.counts == {"memory_bytes": 1}


async def test_while_others_let_go_an_owner_that_holds_little_is_let_in(autojump_clock):
    """A quarter of the limit is there for such owners, and no more."""
    budget = budget_of(1000)
    large = budget.account("a stream", lambda: None, owner="alice")
    large.hold(1001)
    own = budget.account("a call", owner="carol")
    own.hold(20)
    assert budget.full
    assert [budget.refuses(each) for each in ("alice", "bob", "carol", None)] == [True, False, False, False]
    own.hold(5)
    assert budget.refuses("carol"), "it holds more than a tenth of what is left"
    assert not budget.refuses("bob")
    own.release(5)
    assert not budget.refuses("carol")
    large.hold(229)
    assert budget.refuses("bob"), "nothing is left for newcomers"
    large.close()
    assert not any(budget.refuses(each) for each in ("alice", "bob", "carol"))
    budget.account("a stream", lambda: None, owner="bob").hold(1001)
    assert [budget.refuses(each) for each in ("alice", "bob")] == [False, True]


async def test_an_end_may_make_others_hold_something(autojump_clock):
    budget, gone = budget_of(100), []
    heir = budget.account("a session")

    def end(n):
        gone.append(n)
        heir.hold(5)
        accounts[n].close()

    accounts = [budget.account("a stream", lambda n=n: end(n)) for n in range(3)]
    for account in accounts:
        account.hold(40)
    assert (gone, budget.held, heir.held) == ([0], 85, 5)


async def test_what_is_leaving_already_makes_room_before_anybody_else_goes(autojump_clock):
    budget, gone = budget_of(100), []
    accounts = [budget.account("a stream", lambda n=n: gone.append(n)) for n in range(2)]
    accounts[0].hold(101)
    accounts[1].hold(100)
    assert (gone, budget.held) == ([0], 201)
    accounts[1].hold(1)
    assert gone == [0, 1]


async def test_however_many_ends_make_others_hold_something_one_search_ends_them_all(autojump_clock):
    budget, gone = budget_of(4000), []
    heir = budget.account("a session")

    def end(n):
        gone.append(n)
        heir.hold(1)

    for n in range(2000):
        budget.account("a stream", lambda n=n: end(n)).hold(1)
    heir.hold(5000)
    assert sorted(gone) == list(range(2000))


async def test_what_fits_by_itself_is_not_refused(autojump_clock):
    reached = LimitMonitor()
    budget = MemoryBudget(100, reached)
    budget.check(100, "bob")
    with pytest.raises(ProtocolError, match="about 101 bytes"):
        budget.check(101, "bob")
    assert reached.counts == {"memory_bytes": 1}


def test_an_account_that_is_closed_keeps_nobody():
    account = budget_of().account("a session", lambda: None)
    account.hold(5)
    account.close()
    account.close()
    assert (account.held, account.end) == (0, None)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "release", "close", "hold_now"]), st.integers(0, 4), st.integers(0, 60)
    ),
    max_size=80,
)


@given(STEPS, st.integers(1, 200))
def test_the_sum_is_that_of_the_accounts_after_each_step(steps, limit):
    # Who is told to end gives all back with its next step.
    budget, told = budget_of(limit), set()
    accounts = [
        budget.account("a stream", None if n == 0 else (lambda n=n: told.add(n)), owner=n) for n in range(5)
    ]

    async def main():
        for verb, which, size in steps:
            account = accounts[which]
            if which in told:
                account.close()
            elif verb == "release":
                account.release(min(size, account.held))
            elif verb == "close":
                account.hold_now(0)
            else:
                before = account.held
                getattr(account, verb)(size)
                assert account.held == size + (before if verb == "hold" else 0)
            assert budget.held == sum(a.held for a in accounts)
            assert all(a.held >= 0 for a in accounts)
            assert set(budget.accounts()) == {a for a in accounts if a.held}
            assert budget.full == (budget.held > limit)
            staying = [a for n, a in enumerate(accounts) if n and n not in told]
            if budget.held - sum(accounts[n].held for n in told) > limit:
                assert not any(a.held for a in staying), "somebody could have gone"
        for account in accounts:
            account.close()
        assert (budget.held, budget.accounts(), budget.full) == (0, [], False)

    trio.run(main)


@pytest.mark.parametrize(
    "value",
    [[[] for _ in range(1000)], [{} for _ in range(1000)], {str(n): n for n in range(1000)}, "é" * 1000],
)
def test_json_weighs_about_what_it_takes(value):
    def size(value):
        parts = (
            value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else ()
        )
        return value.__sizeof__() + sum(map(size, parts))

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert weigh(text) > size(value) / 2


async def test_of_whoever_holds_most_in_all_the_largest_goes(autojump_clock):
    budget, gone = budget_of(800), []

    def account(owner, size):
        budget.account("a stream", lambda: gone.append((owner, size)), owner=owner).hold(size)

    account("alice", 200)
    account(None, 150)
    account("bob", 50)
    for _ in range(3):
        account("bob", 110)
    assert gone == []
    account("carol", 80)
    # Bob holds 380 in four, Alice 200 in one. Without one of his she has less than he still, until she wants more.
    assert gone == [("bob", 110)]
    account("alice", 150)
    assert gone[1:] == [("alice", 200)]


async def test_whoever_holds_most_is_looked_for_anew_after_each_that_goes(autojump_clock):
    budget, gone = budget_of(800), []

    def account(owner, size):
        budget.account("a stream", lambda: gone.append((owner, size)), owner=owner).hold(size)

    for _ in range(3):
        account("bob", 110)
    account("alice", 320)
    account("carol", 170)
    assert gone == [("bob", 110), ("alice", 320)]


async def test_what_is_leaving_makes_nobody_the_one_who_holds_most(autojump_clock):
    budget, gone = budget_of(1000), []

    def account(owner, size):
        account = budget.account("a stream", lambda: gone.append((owner, size)), owner=owner)
        account.hold(size)
        return account

    account("bob", 1001).release(801)
    account("alice", 570)
    account("bob", 431)
    assert gone == [("bob", 1001), ("alice", 570)]


async def test_what_may_not_end_counts_to_its_owner_all_the_same(autojump_clock):
    budget, gone = budget_of(100), []
    budget.account("standard output", owner="bob").hold(50)
    budget.account("a stream", lambda: gone.append("alice"), owner="alice").hold(45)
    budget.account("a stream", lambda: gone.append("bob"), owner="bob").hold(20)
    assert gone == ["bob", "alice"]
