"""Timers: in order, in one task, and gone when they are cancelled."""

import math

import pytest
import trio
from actor_doubles import Recorder, boom, restart, stage, stop
from mcpbus_actors import testing
from mcpbus_actors._dispatch import BUDGET
from mcpbus_actors._timers import LOOK_SECONDS, SLACK


def after(seconds, message):
    def set_timer(recorder):
        recorder.timer = recorder.cell.after(seconds, message)

    return set_timer


async def test_timers_fire_in_the_order_of_their_times(autojump_clock):
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        for seconds in (3, 1, 2, 1):
            recorder.tell(
                after(seconds, lambda _, seconds=seconds: log.append((seconds, trio.current_time())))
            )
        assert system.statistics().timers == 4
        await trio.sleep(10)
        assert log == [(1, 1), (1, 1), (2, 2), (3, 3)]
        assert system.statistics().timers == 0
        assert system.statistics().tasks == 0
        assert not recorder._mailbox._timers


async def test_there_is_one_task_for_all_timers(autojump_clock):
    async with stage() as (system, _, _):
        for seconds in range(1, 50):
            system.spawn(Recorder).tell(after(seconds, "late"))
        await trio.sleep(0.5)
        assert system.statistics().tasks == 1


async def test_an_earlier_timer_wakes_the_task_earlier(autojump_clock):
    async with stage() as (_, probe, _):
        probe._cell.after(100, "late")
        await trio.sleep(1)
        probe._cell.after(1, "soon")
        await probe.expect(str, timeout=5)
        assert trio.current_time() == 2


async def test_a_cancelled_timer_never_fires(autojump_clock):
    async with stage() as (system, probe, _):
        timer = probe._cell.after(1, "never")
        timer.cancel()
        timer.cancel()
        assert system.statistics().timers == 0
        await probe.expect_nothing(5)
        fired = probe._cell.after(1, "fired")
        await probe.expect(str, timeout=5)
        fired.cancel()
        assert len(system.timers) == 0


async def test_a_timer_can_cancel_another_that_is_due_with_it(autojump_clock):
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        recorder.tell(after(1, lambda recorder: recorder.timer.cancel()))
        recorder.tell(after(1, "never"))
        await trio.sleep(5)
        assert log == []


async def test_cancelled_timers_do_not_pile_up(autojump_clock):
    async with stage() as (system, probe, _):
        keep = [probe._cell.after(1000, "keep") for _ in range(10)]
        for _ in range(10_000):
            probe._cell.after(300, object()).cancel()
        assert len(system.timers._heap) <= 2 * len(keep) + SLACK + 1
        assert len(system.timers) == len(keep)
        assert probe._cell._timers == set(keep)


@pytest.mark.parametrize(
    ("running", "cancelled", "kept"),
    [(0, SLACK, SLACK), (0, SLACK + 1, 0), (100, 100, 100), (100, 101, 0)],
)
async def test_the_heap_is_rebuilt_when_more_than_a_few_and_more_than_half_of_it_are_cancelled(
    running, cancelled, kept
):
    async with stage() as (system, probe, _):
        for _ in range(running):
            probe._cell.after(1, "runs")
        for timer in [probe._cell.after(1, "never") for _ in range(cancelled)]:
            timer.cancel()
        assert len(system.timers._heap) == running + kept
        assert len(system.timers) == running


@pytest.mark.parametrize("end", [stop, boom])
async def test_timers_end_with_the_instance(end, autojump_clock):
    async with stage() as (system, _, letters):
        log = []
        recorder = system.spawn(Recorder, log, strategy=restart)
        recorder.tell(after(1, "never"))
        recorder.tell(end)
        assert system.statistics().timers == 0
        await trio.sleep(5)
        assert log == []
        assert [letter.message for letter in letters if letter.message is not end] == []


async def test_zero_seconds_are_a_later_turn_and_no_busy_loop(autojump_clock):
    async with stage() as (system, _, _):
        count = 0

        def again(recorder):
            nonlocal count
            count += 1
            recorder.cell.after(0, again)

        recorder = system.spawn(Recorder)
        recorder.tell(again)
        assert count == 1
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert 1 < count <= 12
        system.stop(recorder)


async def test_many_timers_due_at_once_yield_to_the_scheduler(autojump_clock):
    async with stage() as (system, probe, _):
        steps = []
        for _ in range(3 * BUDGET):
            probe._cell.after(1, "now")

        async def look():
            await trio.sleep(1)
            while len(probe.messages) < 3 * BUDGET:
                steps.append(len(probe.messages))
                await trio.lowlevel.checkpoint()

        await look()
        assert any(0 < step < 3 * BUDGET for step in steps)
        await testing.wait_until_idle(system)


async def test_a_time_that_is_none_is_refused():
    async with stage() as (system, probe, _):
        for seconds in (-1, math.nan):
            with pytest.raises(ValueError, match="must not be negative"):
                probe._cell.after(seconds, "message")
        probe._cell.after(math.inf, "never")
        await testing.wait_until_idle(system)


async def test_timers_run_while_the_opener_is_being_cancelled(autojump_clock):
    with trio.CancelScope() as scope:
        async with stage() as (_, probe, _):
            probe._cell.after(2, "drained")
            scope.cancel()
            with trio.CancelScope(shield=True):
                assert await probe.expect(str, timeout=5) == "drained"


async def test_what_is_left_of_many_cancelled_timers_fires_in_the_order_of_their_times(autojump_clock):
    async with stage() as (_, probe, _):
        timers = {}
        for number in range(4 * SLACK):
            seconds = number * 37 % 101 + 1  # in no order
            timers[number] = seconds, probe._cell.after(seconds, str(number))
        left = {number: timers[number] for number in timers if number % 3 == 1}
        for number, (_, timer) in timers.items():
            if number not in left:
                timer.cancel()
        fired = [left[int(await probe.expect(str, timeout=200))][0] for _ in left]
        assert fired == sorted(seconds for seconds, _ in left.values())


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_timer_that_is_late_leaves_others_a_moment_to_cancel_it(cancelled, autojump_clock):
    """As where the process was stopped: what would have cancelled it has arrived, and was not looked at."""
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        for seconds in (10, 10, 20):
            recorder.tell(after(seconds, lambda _: log.append(trio.current_time())))
        autojump_clock.jump(30)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert log == []
        if cancelled:
            recorder.tell(lambda recorder: recorder.timer.cancel())
        await trio.sleep(5)
        assert log == [30 + LOOK_SECONDS] * (2 if cancelled else 3)


async def test_no_timer_waits_twice_for_that_nor_one_that_is_set_meanwhile(autojump_clock):
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        for seconds in [1] * (BUDGET + 1):
            recorder.tell(after(seconds, lambda _: log.append(trio.current_time())))
        autojump_clock.jump(30)
        await trio.sleep(0.5)
        recorder.tell(after(0, lambda _: log.append("set meanwhile")))
        await trio.sleep(5)
        assert log == [30 + LOOK_SECONDS] * (BUDGET + 1) + ["set meanwhile"]


async def test_a_system_that_closes_waits_for_no_late_timer(autojump_clock):
    async with stage() as (system, _, _):
        system.spawn(Recorder).tell(after(1, "late"))
        autojump_clock.jump(30)
        await trio.sleep(0.5)
        begun = trio.current_time()
    assert trio.current_time() == begun
