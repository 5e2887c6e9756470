import contextvars
from contextlib import asynccontextmanager

import pytest
import trio
from actor_doubles import Recorder, stage

from actors import Failed, LifecycleError, Succeeded, TaskCancelled, TaskEnded, testing

VARIABLE = contextvars.ContextVar("variable", default="outside")


@asynccontextmanager
async def hosting(function, *args):
    """A guest of a fresh actor, what the actor hears, and how often its host was told that it waits."""
    async with stage() as (system, _, _):
        log, waits = [], []

        def start(recorder):
            log.append(recorder.cell.start_guest(function, *args, context=contextvars.copy_context()))

        recorder = system.spawn(Recorder, log)
        recorder.tell(start)
        guest = log.pop()
        yield system, recorder, guest, log, waits


def told(waits):
    return lambda: waits.append(trio.current_time())


async def value(result):
    return result


async def slow(result):
    await trio.sleep(1)
    await trio.sleep(1)
    return result


async def fail(error):
    raise error


async def test_a_guest_that_never_waits_leaves_its_host_free():
    async with hosting(value, 42) as (_, recorder, guest, log, waits):
        with trio.CancelScope() as scope:
            assert await guest.run(scope, told(waits))
        assert not waits
        assert log == [TaskEnded(guest, Succeeded(42))]
        assert guest.owner is recorder


async def test_a_guest_that_waits_says_so_once_and_before_it_does(autojump_clock):
    async with hosting(slow, 42) as (_, _, guest, log, waits):
        begun = trio.current_time()
        with trio.CancelScope() as scope:
            assert not await guest.run(scope, told(waits))
        assert waits == [begun]
        assert trio.current_time() == begun + 2
        assert log == [TaskEnded(guest, Succeeded(42))]


@pytest.mark.parametrize("error", [ValueError("no"), StopAsyncIteration()])
async def test_the_failure_of_a_guest_is_told_and_does_not_hurt_its_host(error):
    async with hosting(fail, error) as (_, _, guest, log, waits):
        with trio.CancelScope() as scope:
            assert await guest.run(scope, told(waits))
        assert log == [TaskEnded(guest, Failed(error))]


async def test_cancelling_a_guest_cancels_what_its_host_gave_for_that(autojump_clock):
    async with hosting(trio.sleep_forever) as (_, _, guest, log, waits):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.lowlevel.checkpoint)
                nursery.start_soon(cancel_soon, guest)
                await guest.run(scope, told(waits))
        assert scope.cancelled_caught
        assert len(waits) == 1
        assert log == [TaskEnded(guest, TaskCancelled())]


async def cancel_soon(guest):
    await trio.sleep(1)
    guest.cancel()


async def test_a_guest_that_was_cancelled_does_not_begin():
    async with hosting(value, 42) as (_, _, guest, log, waits):
        guest.cancel()
        with trio.CancelScope() as scope:
            assert not await guest.run(scope, told(waits))
        assert len(waits) == 1
        assert not scope.cancel_called
        assert log == [TaskEnded(guest, TaskCancelled())]


async def test_a_guest_that_is_cancelled_in_its_only_step_takes_its_host_with_it():
    async def cancels_itself():
        guest.cancel()

    async with hosting(cancels_itself) as (_, _, guest, log, waits):
        with trio.CancelScope() as scope:
            assert not await guest.run(scope, told(waits))
        assert scope.cancel_called
        assert len(waits) == 1
        assert log == [TaskEnded(guest, Succeeded(None))]


async def test_a_cancellation_after_the_end_does_not_reach_the_host():
    async with hosting(value, 42) as (_, _, guest, _, waits):
        with trio.CancelScope() as scope:
            await guest.run(scope, told(waits))
            guest.cancel()
            await trio.lowlevel.checkpoint()
        assert not scope.cancel_called


async def test_a_guest_made_more_of_its_cancellation(autojump_clock):
    async def stubborn():
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "in spite of it"

    async with hosting(stubborn) as (_, _, guest, log, waits), trio.open_nursery() as nursery:
        nursery.start_soon(cancel_soon, guest)
        with trio.CancelScope() as scope:
            assert not await guest.run(scope, told(waits))
        assert log == [TaskEnded(guest, Succeeded("in spite of it"))]


async def test_a_guest_runs_in_its_own_contextvars_at_every_step():
    async def changes():
        VARIABLE.set("inside")
        await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sees)
        return VARIABLE.get()

    async def sees():
        assert VARIABLE.get() == "inside"

    async with hosting(changes) as (_, _, guest, log, waits):
        with trio.CancelScope() as scope:
            await guest.run(scope, told(waits))
        assert log == [TaskEnded(guest, Succeeded("inside"))]
        assert VARIABLE.get() == "outside"


async def test_the_guest_of_an_actor_that_has_ended_is_cancelled_and_unheard(autojump_clock):
    async with hosting(trio.sleep_forever) as (system, recorder, guest, log, waits):
        async with trio.open_nursery() as nursery:

            async def host():
                with trio.CancelScope() as scope:
                    await guest.run(scope, told(waits))

            nursery.start_soon(host)
            await testing.settle(system)
            system.stop(recorder)
        assert not log


async def test_the_guest_of_an_actor_that_ended_before_never_begins():
    begun = []

    async def begin():
        begun.append(True)

    async with hosting(begin) as (system, recorder, guest, _, waits):
        system.stop(recorder)
        with trio.CancelScope() as scope:
            assert not await guest.run(scope, told(waits))
        assert not begun
        assert len(waits) == 1


async def test_another_actor_adopts_a_task(autojump_clock):
    async with hosting(slow, 42) as (system, recorder, guest, log, waits):
        elsewhere = []
        other = system.spawn(Recorder, elsewhere)
        async with trio.open_nursery() as nursery:

            async def host():
                with trio.CancelScope() as scope:
                    await guest.run(scope, told(waits))

            nursery.start_soon(host)
            await testing.settle(system)
            other.tell(lambda adopter: adopter.cell.adopt(guest))
            assert guest.owner is other
            system.stop(recorder)
        assert not log
        assert elsewhere == [TaskEnded(guest, Succeeded(42))]


async def test_a_task_that_has_ended_is_adopted_by_nobody():
    async with hosting(value, 42) as (system, _, guest, _, waits):
        with trio.CancelScope() as scope:
            await guest.run(scope, told(waits))
        adopted = []
        system.spawn(Recorder, []).tell(lambda adopter: adopted.append(adopter.cell.adopt(guest)))
        assert adopted == [False]


async def test_an_actor_that_has_stopped_takes_no_guest_and_adopts_nothing():
    async with hosting(value, 42) as (system, _, guest, _, _):
        cells = []
        other = system.spawn(Recorder, [])
        other.tell(lambda recorder: cells.append(recorder.cell))
        system.stop(other)
        with pytest.raises(LifecycleError):
            cells[0].start_guest(value, 1, context=contextvars.copy_context())
        with pytest.raises(LifecycleError):
            cells[0].adopt(guest)
