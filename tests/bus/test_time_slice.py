"""How long tasks that never wait go on, and how they share that."""

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest
import trio

from mcpbus.core.fairness import MOST_IN_A_ROW, SLICE_SECONDS, TimeSlice


class Rounds(trio.abc.Instrument):
    """How often the scheduler has come round, to whomever."""

    def __init__(self):
        self.count = 0

    def before_io_wait(self, timeout):
        self.count += 1


async def parts(tasks, things, seconds=0.0):
    """Have so many tasks do so many things each, every one of which takes so long.

    Returns:
        How many each of them did in each turn of the scheduler, the first turn and the last left out.
    """
    now, rounds, done = 0.0, Rounds(), [Counter() for _ in range(tasks)]
    time_slice = TimeSlice(SimpleNamespace(clock=lambda: now))

    async def go_on(mine):
        nonlocal now
        for _ in range(things):
            await time_slice.yield_if_due()
            mine[rounds.count] += 1
            now += seconds

    trio.lowlevel.add_instrument(rounds)
    async with trio.open_nursery() as nursery:
        for mine in done:
            nursery.start_soon(go_on, mine)
    trio.lowlevel.remove_instrument(rounds)
    for mine in done:
        assert all(after == before + 1 for before, after in pairwise(sorted(mine))), "somebody missed a turn"
    return [[mine[turn] for turn in sorted(mine)][1:-1] for mine in done]


@pytest.mark.parametrize("tasks", [1, 2, 4])
async def test_what_is_done_in_a_turn_is_shared_by_those_that_would_go_on(tasks):
    share = MOST_IN_A_ROW // tasks
    for mine in await parts(tasks, 10 * share):
        assert mine == [share] * 8


@pytest.mark.parametrize("tasks", [1, 2, 4])
async def test_so_is_the_time_of_a_turn(tasks):
    for mine in await parts(tasks, 80 // tasks, seconds=SLICE_SECONDS / 8):
        assert mine == [8 // tasks] * 8
