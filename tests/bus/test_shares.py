"""Whether there is room for one more thing of an owner's, and whose thing makes room if there is none."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.core.shares import NoRoomError, Shares, kept
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT


class Thing:
    """Something that is somebody's, and at work or idle."""

    def __init__(self, owner, since=0.0):
        self.owner = owner
        self.since = self.of_use_since = since
        self.established = False


class Table:
    """Shares, and what is in them by another count."""

    def __init__(self, limit, *, always_idle=False, at_worst=False):
        self.shares = Shares(
            limit,
            None if always_idle else lambda thing: thing.since,
            (lambda thing: thing.of_use_since) if at_worst else None,
        )
        self.things = []
        self.clock = 0.0

    def counts(self):
        return Counter(thing.owner for thing in self.things)

    def come(self, owner):
        """A newcomer; return what was displaced, or the error."""
        try:
            displaced = self.shares.make_room(owner)
        except NoRoomError as full:
            return full
        if displaced is not None:
            self.things.remove(displaced)
        self.clock += 1
        thing = Thing(owner, self.clock)
        self.things.append(thing)
        self.shares.enter(owner, thing)
        return displaced

    def fill(self, owner, count):
        for _ in range(count):
            self.come(owner)

    def check(self):
        counts = self.counts()
        assert len(self.shares) == len(self.things)
        assert list(self.shares) == self.things
        assert self.shares.owners == len(counts)
        assert all(self.shares.held_by(owner) == count for owner, count in counts.items())
        assert self.shares._most == max(counts.values(), default=0)
        assert sum(map(len, self.shares._ranks.values())) == len(counts)


@pytest.mark.parametrize("limit", [1, 5, 9, 10, 100])
def test_who_is_alone_may_have_all_but_what_is_kept_and_then_takes_the_place_of_their_own(limit):
    table = Table(limit)
    table.fill("bob", limit - kept(limit))
    first = table.things[0]
    assert table.come("bob") is first
    assert len(table.things) == limit - kept(limit)


@pytest.mark.parametrize("limit", [1, 10, 100])
def test_of_what_is_always_idle_who_is_alone_may_have_all(limit):
    table = Table(limit, always_idle=True)
    table.fill("bob", limit)
    assert len(table.things) == limit
    assert isinstance(table.come("bob"), Thing)
    assert len(table.things) == limit


def test_where_something_goes_at_the_worst_no_room_is_kept_and_it_goes_for_who_has_little():
    table = Table(40, at_worst=True)
    table.fill("bob", 40)
    assert len(table.things) == 40
    for thing in table.things:
        thing.since = None
    assert isinstance(table.come("bob"), NoRoomError)
    oldest = table.things[:4]
    for thing in oldest:
        assert table.come("alice") is thing
        table.things[-1].since = None
    assert table.counts() == {"bob": 36, "alice": 4}
    assert table.come("alice").past_share is False
    assert table.come("bob").past_share
    for thing in table.things:
        thing.of_use_since = None
    assert table.come("carol").past_share is False


def test_a_tenth_of_what_somebody_has_is_not_little_beside_them():
    table = Table(23, at_worst=True)
    table.fill("bob", 21)
    table.fill("alice", 2)
    for thing in table.things:
        thing.since = None
    assert isinstance(table.come("alice"), Thing)
    assert table.counts() == {"bob": 20, "alice": 3}
    table.things[-1].since = None
    assert table.come("alice").past_share is False
    table.shares.leave(table.things.pop())
    table.fill("carol", 1)
    table.things[-1].since = None
    # Now Bob has twenty and Alice two.
    assert isinstance(table.come("alice"), NoRoomError)


def test_a_newcomer_takes_the_place_of_what_was_idle_for_longest_of_whoever_has_most():
    table = Table(9)
    table.fill("carol", 3)
    table.fill("bob", 6)
    oldest, other = [thing for thing in table.things if thing.owner == "bob"][:2]
    oldest.since = 100.0  # it has been used since
    assert table.come("alice") is other
    assert table.counts() == {"carol": 3, "bob": 5, "alice": 1}


def test_of_two_that_are_idle_since_the_same_moment_that_which_came_first_makes_room():
    table = Table(4)
    table.fill("bob", 4)
    for thing in table.things:
        thing.since = 1.0
    first = table.things[0]
    assert table.come("alice") is first


def test_two_who_want_all_end_with_half_of_it_each():
    table = Table(8)
    table.fill("bob", 20)
    table.fill("alice", 20)
    assert table.counts() == {"bob": 4, "alice": 4}
    table.fill("bob", 20)
    assert table.counts() == {"bob": 4, "alice": 4}


def test_what_has_not_been_established_goes_first():
    table = Table(4)
    table.fill("bob", 4)
    used, fresh, *_ = table.things
    table.shares.establish(used)
    assert table.come("alice") is fresh


def test_what_is_at_work_is_not_displaced_and_the_last_tenth_is_for_those_who_have_little():
    table = Table(100)
    table.fill("bob", 90)
    for thing in table.things:
        thing.since = None
    refused = table.come("bob")
    assert isinstance(refused, NoRoomError)
    assert refused.past_share
    for number in range(10):
        assert table.come(number) is None
    refused = table.come("eleventh")
    assert isinstance(refused, NoRoomError)
    assert not refused.past_share
    assert table.come("bob").past_share


def test_who_has_nothing_finds_room_in_what_is_kept_however_much_others_take_of_it():
    table = Table(1000)
    for owner in range(2000):
        for _ in range(1000):
            if isinstance(table.come(owner), NoRoomError):
                break
            table.things[-1].since = None
        if len(table.things) == 1000:
            break
    # The first one has nine tenths. Of the last one each took a tenth of what was left, or one.
    assert table.counts()[0] == 900
    assert len(table.counts()) == 39
    assert table.counts()[owner] == 1


def test_a_newcomer_looks_at_so_many_things_and_the_next_one_at_others():
    table = Table(200)
    table.fill("bob", 180)
    for thing in table.things[:150]:
        thing.since = None
    results = [table.come("bob") for _ in range(5)]
    assert [isinstance(result, NoRoomError) for result in results] == [True] * 4 + [False]


def test_what_is_an_owners_own_may_be_kept_from_making_room():
    table = Table(4)
    table.fill("bob", 3)
    table.fill("alice", 1)
    with pytest.raises(NoRoomError):
        table.shares.make_room("bob", of_its_own=False)
    assert table.shares.make_room("alice", of_its_own=False).owner == "bob"


def test_for_others_sake_the_oldest_goes_of_whoever_has_most_as_long_as_that_is_more_than_one_thing():
    table = Table(10)
    table.fill("alice", 2)
    table.fill("bob", 3)
    at_work, oldest, _ = (thing for thing in table.things if thing.owner == "bob")
    at_work.since = None
    assert table.shares.displace() is oldest
    assert oldest not in table.shares
    while table.shares.displace():
        pass
    assert [table.shares.held_by(owner) for owner in ("alice", "bob")] == [1, 1]


def test_for_others_sake_nothing_goes_that_is_at_work():
    table = Table(10)
    assert table.shares.displace() is None
    table.fill("bob", 2)
    for thing in table.things:
        thing.since = None
    assert table.shares.displace() is None
    table.check()


def test_what_would_go_first_of_an_owner_can_be_seen_without_its_going():
    table = Table(10)
    table.fill("bob", 2)
    table.fill("alice", 3)
    older, newer = table.things[:2]
    assert table.shares.find_idle("bob") is older
    older.since = None
    assert table.shares.find_idle("bob") is newer
    newer.since = None
    assert table.shares.find_idle("bob") is None
    table.check()


def test_an_equal_part_is_nobodys_excess():
    table = Table(2)
    table.come("bob")
    table.come("alice")
    for thing in table.things:
        thing.since = None
    assert table.come("bob").past_share is False
    assert table.come("carol").past_share is False


OWNERS = "abcd"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from(OWNERS)),
        st.tuples(st.sampled_from(["leave", "work", "rest", "establish"]), st.integers(0, 50)),
    ),
    max_size=120,
)


@given(st.integers(1, 25), st.booleans(), STEPS)
def test_nobody_loses_to_somebody_who_has_more_and_nothing_is_left_of_what_has_gone(
    limit, always_idle, steps
):
    table = Table(limit, always_idle=always_idle)
    for verb, what in steps:
        if verb == "come":
            before, things = table.counts(), list(table.things)
            outcome = table.come(what)
            if isinstance(outcome, Thing):
                assert outcome.since is not None
                assert outcome.owner == what or before[outcome.owner] > before[what] + 1
                assert before[outcome.owner] == max(before.values()) or outcome.owner == what
                rivals = [t for t in things if t.owner == outcome.owner and t.since is not None]
                fresh = [t for t in rivals if not t.established]
                assert outcome.since <= min(t.since for t in fresh or rivals)
            elif isinstance(outcome, NoRoomError):
                assert len(table.things) >= limit - kept(limit)
                assert all(t.since is None for t in table.things if t.owner == what)
                assert before[what] or len(table.things) == limit
        elif table.things:
            thing = table.things[what % len(table.things)]
            if verb == "leave":
                table.things.remove(thing)
                table.shares.leave(thing)
                table.shares.leave(thing)
            elif always_idle:
                continue  # they are in the order in which they came, whatever happens to them
            elif verb == "establish":
                thing.established = True
                table.shares.establish(thing)
            else:
                table.clock += 1
                thing.since = None if verb == "work" else table.clock
        assert len(table.things) <= limit
        table.check()
    for thing in table.things:
        table.shares.leave(thing)
    assert (len(table.shares), table.shares.owners, table.shares._most) == (0, 0, 0)
    assert table.shares._ranks == {}
