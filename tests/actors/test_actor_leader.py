"""Tasks that take work, one after the other, and stay with what waits."""

import contextvars
import weakref
from contextlib import asynccontextmanager

import mcpbus_actors as actors
import pytest
import trio
import trio.testing
from mcpbus_actors import EagerTask, Leader, WorkQueue, testing

VARIABLE = contextvars.ContextVar("variable", default="unset")


class Value:
    """What may come of something."""


class Crew:
    """A leader of async functions that are put, and its tasks."""

    def __init__(self):
        self.eager = []
        self._work = WorkQueue(self._take)
        self.leader = Leader(self._work.wait, self._work.take, self._work.things)
        self.put = self._work.put
        self.close = self._work.close

    def _take(self, function, scope):
        eager = EagerTask(scope, coroutine=function(), context=contextvars.copy_context())
        self.eager.append(eager)
        return None if eager.start() and not eager.cancelled else eager

    @property
    def tasks(self):
        return len(self.leader._nursery.child_tasks)


@asynccontextmanager
async def crew():
    mine = Crew()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine.leader.run)
        await trio.testing.wait_all_tasks_blocked()
        yield mine
        mine.close()


@pytest.mark.eagerness
@pytest.mark.leadership
async def test_one_task_does_what_does_not_wait_in_order(autojump_clock):
    async with crew() as mine:
        done = []

        def does(number):
            async def do():
                done.append((number, trio.lowlevel.current_task()))

            return do

        for number in range(50):
            mine.put(does(number))
        assert done == []
        await trio.testing.wait_all_tasks_blocked()
        assert [number for number, _ in done] == list(range(50))
        assert len({task for _, task in done}) == mine.tasks == 1


@pytest.mark.leadership
async def test_what_waits_holds_nobody_up_and_its_task_is_used_again(autojump_clock):
    async with crew() as mine:
        done, tasks = [], set()

        def naps(number):
            async def nap():
                tasks.add(trio.lowlevel.current_task())
                await trio.sleep(10 - number)
                done.append(number)

            return nap

        for _ in range(3):
            for number in range(5):
                mine.put(naps(number))
            await trio.sleep(11)
            assert done == [4, 3, 2, 1, 0]
            done.clear()
        # One that serves at any time, beside those that wait.
        assert len(tasks) <= mine.tasks <= 6


@pytest.mark.leadership
async def test_a_task_at_rest_keeps_nothing_of_what_it_did(autojump_clock):
    async with crew() as mine:
        made = weakref.WeakSet()

        async def nap():
            await trio.sleep(1)
            made.add(value := Value())
            return value

        for _ in range(3):
            mine.put(nap)
        await trio.sleep(2)
        assert mine.tasks > 1  # of which one leads, and the others rest
        assert len(made) == 3
        mine.eager.clear()
        assert len(made) == 0


@pytest.mark.eagerness
@pytest.mark.leadership
async def test_what_waits_one_after_the_other_is_begun_by_several_in_a_turn(autojump_clock):
    async with crew() as mine:
        begun = []

        async def nap():
            begun.append(trio.lowlevel.current_task())
            await trio.sleep(1)

        for _ in range(2):
            begun.clear()
            for _ in range(32):
                mine.put(nap)
            turns = 0
            while len(begun) < 32:
                await trio.lowlevel.checkpoint()
                turns += 1
            await trio.sleep(2)
        assert len(set(begun)) == 32
        assert (
            turns < 26
        )  # 16 were at rest, of which some led and the others helped; for the rest, new ones had to be made


@pytest.mark.eagerness
@pytest.mark.leadership
async def test_whose_work_has_ended_takes_more_if_it_is_there_and_is_not_woken_for_that(autojump_clock):
    async with crew() as mine:
        mine.leader._most_at_rest = 0
        tasks = []

        async def pauses():
            tasks.append(trio.lowlevel.current_task())
            await trio.lowlevel.checkpoint()

        for _ in range(40):
            mine.put(pauses)
        await trio.testing.wait_all_tasks_blocked()
        assert len(tasks) == 40
        assert len(set(tasks)) < 20


@pytest.mark.leadership
async def test_who_finds_nothing_to_help_with_rests_again(autojump_clock):
    async with crew() as mine:
        done = []

        async def nap():
            await trio.sleep(1)
            done.append("nap")

        async def step():
            done.append("step")

        for _ in range(16):
            mine.put(nap)
        await trio.sleep(2)
        for _ in range(3):
            done.clear()
            for function in (nap, *[step] * 10, nap):
                mine.put(function)
            await trio.sleep(2)
            assert done == [*["step"] * 10, "nap", "nap"]
        assert mine.tasks == 17


async def test_not_all_tasks_are_kept_that_were_ever_needed(autojump_clock):
    async with crew() as mine:

        async def nap():
            await trio.sleep(1)

        for _ in range(100):
            mine.put(nap)
        await trio.testing.wait_all_tasks_blocked()
        assert mine.tasks == 101
        await trio.sleep(2)
        assert mine.tasks <= 17


@pytest.mark.parametrize("waits", [True, False])
async def test_an_eager_task_that_is_cancelled_does_not_harm_those_after_it(waits, autojump_clock):
    async with crew() as mine:
        done = []

        async def cancels_itself():
            mine.eager[0].cancel()
            if waits:
                await trio.sleep_forever()

        async def naps():
            await trio.sleep(1)
            done.append("nap")

        for function in (cancels_itself, naps, naps):
            mine.put(function)
        await trio.sleep(2)
        mine.put(naps)
        await trio.sleep(2)
        assert done == ["nap"] * 3


async def test_a_cancellation_that_comes_when_nothing_is_left_to_cancel_does_not_harm_those_after_it(
    autojump_clock,
):
    """Whoever takes has kept to itself that an eager task was cancelled which has ended."""
    done, scopes = [], []

    def take(thing, scope):
        done.append(thing)
        scopes.append(scope)
        if thing == "cancels":
            scope.cancel()

    work = WorkQueue(take)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Leader(work.wait, work.take).run)
        for thing in ("cancels", "next"):
            work.put(thing)
            await trio.testing.wait_all_tasks_blocked()
        work.close()
    assert done == ["cancels", "next"]
    assert not scopes[1].cancel_called


async def test_after_the_end_nothing_is_taken_but_what_waits_goes_on(autojump_clock):
    done = []

    async def naps():
        await trio.sleep(1)
        done.append(trio.current_time())

    async def closes():
        mine.put(never)
        mine.close()
        mine.put(never)

    async def never():
        done.append("never")

    begun = trio.current_time()
    async with crew() as mine:
        mine.put(naps)
        await trio.testing.wait_all_tasks_blocked()
        mine.put(closes)
        await trio.testing.wait_all_tasks_blocked()
        mine.put(never)
    assert done == [begun + 1]
    assert trio.current_time() == begun + 1


async def test_the_end_wakes_those_at_rest(autojump_clock):
    with trio.fail_after(5):
        async with crew() as mine:

            async def nap():
                await trio.sleep(1)

            mine.put(nap)
            await trio.sleep(2)


async def test_it_may_be_cancelled_at_any_time(autojump_clock):
    ended = []

    async def hangs():
        try:
            await trio.sleep_forever()
        finally:
            ended.append("hung")

    async def nap():
        await trio.sleep(1)

    with trio.fail_after(5), trio.move_on_after(2) as scope:
        async with crew() as mine:
            for function in (nap, nap, hangs, hangs):
                mine.put(function)
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert ended == ["hung"] * 2
    mine.put(nap)  # which nobody takes any more


@pytest.mark.leadership
async def test_who_leads_when_all_are_cancelled_hands_nothing_on_to_who_has_gone(autojump_clock):
    async def nap():
        await trio.sleep(1)

    with trio.fail_after(5), trio.move_on_after(5) as scope:
        async with crew() as mine:
            mine.put(nap)
            mine.put(nap)
            await trio.sleep(2)
            mine.put(nap)
            scope.cancel()
    assert scope.cancelled_caught


# -- in a system -------------------------------------------------------------------------------------------------------


async def test_in_a_system_it_lives_as_long_as_something_is_taken_or_waits(autojump_clock):
    async def naps():
        await trio.sleep(1)

    async with actors.open_system("test") as system:
        mine = Crew()
        mine.leader.run_in(system)
        mine.put(naps)
        await testing.wait_until_idle(system)
        mine.close()
        await testing.wait_until_idle(system)
        assert (system.statistics().actors, system.statistics().tasks) == (1, 1)
        await trio.sleep(2)
        assert (system.statistics().actors, system.statistics().tasks) == (0, 0)


async def test_in_a_system_its_tasks_have_no_context_of_whoever_began_it(autojump_clock):
    seen = []

    async def looks():
        seen.append(VARIABLE.get())

    async with actors.open_system("test") as system:
        mine = Crew()
        VARIABLE.set("mine")
        mine.leader.run_in(system)
        mine.put(looks)
        await testing.wait_until_idle(system)
        mine.close()
    assert seen == ["unset"]


async def test_the_end_of_the_system_ends_them_all(autojump_clock):
    ended = []

    async def hangs():
        try:
            await trio.sleep_forever()
        finally:
            ended.append("hung")

    with trio.fail_after(1):
        async with actors.open_system("test") as system:
            mine = Crew()
            mine.leader.run_in(system)
            mine.put(hangs)
            await testing.wait_until_idle(system)
            mine.put(hangs)
            await testing.wait_until_idle(system)
    assert ended == ["hung"] * 2


async def test_what_goes_wrong_in_taking_ends_the_system_with_it(autojump_clock):
    """Whoever asks would wait for ever otherwise."""

    def take(_thing, _scope):
        raise ZeroDivisionError

    work = WorkQueue(take)
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with actors.open_system() as system:
            Leader(work.wait, work.take).run_in(system)
            work.put("a thing")
            with trio.fail_after(60):
                await trio.sleep_forever()
