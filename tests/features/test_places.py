"""Places, such as those of functions in threads, are shared out between the owners of the calls that want them."""

import threading

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from mcpbus import Server
from mcpbus.core.fair_limiter import FairLimiter
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.shares import kept


class Pool:
    """Places of nothing: whoever has one keeps it until it is told to give it back."""

    def __init__(self, limit, nursery):
        self.places = FairLimiter(limit, option="threads", waited="somebody waited")
        self.reached = LimitMonitor()
        self.running = []
        self.begun = []
        self.waiting = []
        self._nursery = nursery

    async def want(self, owner):
        scope = trio.CancelScope()
        self.waiting.append((owner, scope))
        self._nursery.start_soon(self._wait, owner, scope)
        await wait_all_tasks_blocked()

    async def _wait(self, owner, scope):
        place = self.places.place(owner, self.reached)
        with scope:
            await place.acquire_on_behalf_of(self)
            self.running.append((owner, place))
            self.begun.append(owner)
        self.waiting.remove((owner, scope))

    async def end(self, index=0):
        self.running.pop(index)[1].release_on_behalf_of(self)
        await wait_all_tasks_blocked()

    def check(self):
        owners = [owner for owner, _ in self.running]
        assert self.places._taken == {owner: owners.count(owner) for owner in owners}
        assert (len(self.places), self.places.waiting) == (len(self.running), len(self.waiting))
        assert not any(self.places.has_room(owner) for owner, _ in self.waiting)


async def test_the_last_tenth_is_for_who_has_little_and_each_owner_that_waits_has_its_turn(autojump_clock):
    async with trio.open_nursery() as nursery:
        pool = Pool(20, nursery)
        for _ in range(30):
            await pool.want("bob")
        assert (len(pool.places), pool.places.waiting) == (18, 12)
        assert pool.reached.counts == {"threads": 12}
        await pool.want("alice")
        await pool.want("carol")
        for _ in range(2):
            await pool.want("alice")
        assert pool.begun[18:] == ["alice", "carol"]
        for _ in range(4):
            await pool.end()
        assert pool.begun[20:] == ["bob", "alice"]
        pool.check()
        nursery.cancel_scope.cancel()


async def test_no_place_is_taken_for_whom_was_cancelled_in_the_same_turn(autojump_clock):
    async with trio.open_nursery() as nursery:
        pool = Pool(1, nursery)
        for owner in ("alice", "bob", "carol"):
            await pool.want(owner)
        pool.waiting[0][1].cancel()
        await pool.end()
        assert pool.begun == ["alice", "carol"]
        pool.check()
        await pool.end()
        assert (len(pool.places), pool.places.waiting, pool.places.owners) == (0, 0, 0)


@given(
    st.integers(1, 25),
    st.lists(
        st.tuples(st.sampled_from(["want", "end", "leave"]), st.sampled_from("abc"), st.integers(0, 30)),
        max_size=60,
    ),
)
def test_nobody_waits_for_whom_there_is_a_thread_and_nobody_is_remembered(limit, steps):
    async def main():
        async with trio.open_nursery() as nursery:
            pool = Pool(limit, nursery)
            for verb, owner, index in steps:
                if verb == "want":
                    await pool.want(owner)
                elif verb == "end" and pool.running:
                    await pool.end(index % len(pool.running))
                elif pool.waiting:
                    pool.waiting[index % len(pool.waiting)][1].cancel()
                    await wait_all_tasks_blocked()
                pool.check()
                assert len(pool.running) <= limit
                assert not pool.waiting or len(pool.running) >= limit - kept(limit)
            while pool.running:
                await pool.end()
            pool.check()
            assert (len(pool.places), pool.places.waiting, pool.places.owners) == (0, 0, 0)

    trio.run(main)


async def test_one_principals_functions_leave_a_thread_to_others():
    server, release = Server("s", max_threads=10), threading.Event()
    server.add_tool(lambda: release.wait(60), name="work")
    server.add_tool(lambda: "done", name="quick")
    async with (
        server.open() as bus,
        bus.connect(principal="bob") as bob,
        bus.connect(principal="alice") as alice,
        trio.open_nursery() as nursery,
    ):
        for _ in range(15):
            nursery.start_soon(bob.call_tool, "work")
        while not bus.statistics().limits_reached:
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(30):
            for _ in range(3):
                result = await alice.call_tool("quick")
                assert result["content"][0]["text"] == "done"
        assert bus.statistics().limits_reached == {"max_threads": 6}
        release.set()


def test_there_is_at_least_one():
    with pytest.raises(ValueError, match="at least 1"):
        Server("s", max_threads=0)
