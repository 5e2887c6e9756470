"""What many want looked up at once is looked up once, by one of them, after they found what they knew to be out of date."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.client.client import SingleFlight


class Slow:
    """A look-up that takes ten seconds, and how often it was begun and came to its end."""

    def __init__(self):
        self.begun = self.ended = 0
        self.shared = SingleFlight(self.run)

    async def run(self):
        self.begun += 1
        await trio.sleep(10)
        self.ended += 1


async def test_those_who_come_while_it_goes_on_wait_for_the_same_one(autojump_clock):
    slow, ends = Slow(), []

    async def want(delay):
        known = slow.shared.begun
        await trio.sleep(delay)
        await slow.shared.do(known)
        ends.append(trio.current_time())

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for delay in (0, 0, 5, 12):
            nursery.start_soon(want, delay)
    assert [end - began for end in ends] == [10, 10, 10, 12]
    assert slow.begun == 1


async def test_one_that_was_under_way_before_may_have_come_too_early(autojump_clock):
    slow = Slow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.shared.do, 0)
        await wait_all_tasks_blocked()
        nursery.start_soon(slow.shared.do, slow.shared.begun)
    assert slow.begun == slow.ended == 2


async def test_who_is_cancelled_over_it_leaves_it_to_the_next_one(autojump_clock):
    slow = Slow()
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def leave():
            with scope:
                await slow.shared.do(0)

        nursery.start_soon(leave)
        await wait_all_tasks_blocked()
        nursery.start_soon(slow.shared.do, 0)
        nursery.start_soon(slow.shared.do, 0)
        await trio.sleep(5)
        scope.cancel()
    assert (slow.begun, slow.ended) == (2, 1)


async def test_what_goes_wrong_is_told_to_who_had_it_looked_up_and_it_is_looked_up_again():
    asked = []

    async def fail_first():
        asked.append(None)
        await trio.lowlevel.checkpoint()
        if len(asked) == 1:
            raise KeyError

    lookup = SingleFlight(fail_first)
    with pytest.raises(KeyError):
        await lookup.do(0)
    await lookup.do(0)
    await lookup.do(0)
    assert len(asked) == 2
