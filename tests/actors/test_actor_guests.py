import contextvars
from contextlib import asynccontextmanager

import pytest
import trio
from actor_doubles import Recorder, stage

from actors import Failed, Guest, LifecycleError, Succeeded, TaskCancelled, TaskEnded, testing

VARIABLE = contextvars.ContextVar("variable", default="outside")


@asynccontextmanager
async def hosting(function, *args, adopted=True):
    """A guest, the actor that has adopted it, and what that hears."""
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        guest = Guest(trio.CancelScope(), coroutine=function(*args), context=contextvars.copy_context())
        if adopted:
            recorder.tell(lambda actor: actor.cell.adopt(guest))
        yield system, recorder, guest, log


async def host(guest):
    """Run a guest as its host does, and return whether it waited."""
    with guest._scope:
        if guest.begin():
            return False
        await guest.go_on()
    return True


async def value(result):
    return result


async def slow(result):
    await trio.sleep(1)
    await trio.sleep(1)
    return result


async def fail(error):
    raise error


async def test_a_guest_that_never_waits_ends_in_its_first_step():
    async with hosting(value, 42) as (_, recorder, guest, log):
        assert guest.begin()
        assert guest.outcome == Succeeded(42)
        assert log == [TaskEnded(guest, Succeeded(42))]
        assert guest.owner is recorder


async def test_a_guest_that_waits_goes_on(autojump_clock):
    async with hosting(slow, 42) as (_, _, guest, log):
        begun = trio.current_time()
        assert await host(guest)
        assert trio.current_time() == begun + 2
        assert log == [TaskEnded(guest, Succeeded(42))]


async def test_nobody_hears_of_a_guest_that_nobody_has_adopted():
    async with hosting(value, 42, adopted=False) as (system, _, guest, log):
        assert guest.begin()
        assert (guest.outcome, guest.owner, log) == (Succeeded(42), None, [])
        assert system.statistics().discarded == 0


async def test_a_guest_is_adopted_after_its_first_step(autojump_clock):
    async with hosting(slow, 42, adopted=False) as (_, recorder, guest, log):
        with guest._scope:
            assert not guest.begin()
            recorder.tell(lambda actor: actor.cell.adopt(guest))
            await guest.go_on()
        assert log == [TaskEnded(guest, Succeeded(42))]


@pytest.mark.parametrize("error", [ValueError("no"), StopAsyncIteration()])
async def test_the_failure_of_a_guest_is_told_and_does_not_hurt_its_host(error):
    async with hosting(fail, error) as (_, _, guest, log):
        assert guest.begin()
        assert log == [TaskEnded(guest, Failed(error))]


async def test_what_ends_the_program_is_told_and_goes_on():
    async with hosting(fail, KeyboardInterrupt()) as (_, _, guest, log):
        with pytest.raises(KeyboardInterrupt):
            guest.begin()
        assert isinstance(guest.outcome, Failed)
        assert log == [TaskEnded(guest, guest.outcome)]


async def test_cancelling_a_guest_cancels_what_its_host_gave_for_that(autojump_clock):
    async with hosting(trio.sleep_forever) as (_, _, guest, log), trio.open_nursery() as nursery:
        nursery.start_soon(cancel_soon, guest)
        scope = guest._scope
        await host(guest)
        assert scope.cancelled_caught
        assert guest.cancelled
        assert log == [TaskEnded(guest, TaskCancelled())]


async def cancel_soon(guest):
    await trio.sleep(1)
    guest.cancel()


async def test_a_guest_that_is_cancelled_in_its_only_step_takes_its_host_with_it():
    async def cancels_itself():
        guest.cancel()

    async with hosting(cancels_itself) as (_, _, guest, log):
        scope = guest._scope
        assert guest.begin()
        assert guest.cancelled
        assert scope.cancel_called
        assert log == [TaskEnded(guest, Succeeded(None))]


async def test_a_cancellation_after_the_end_does_not_reach_the_host():
    async with hosting(value, 42) as (_, _, guest, _):
        scope = guest._scope
        guest.begin()
        guest.cancel()
        assert not scope.cancel_called
        assert not guest.cancelled


async def test_a_guest_made_more_of_its_cancellation(autojump_clock):
    async def stubborn():
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "in spite of it"

    async with hosting(stubborn) as (_, _, guest, log), trio.open_nursery() as nursery:
        nursery.start_soon(cancel_soon, guest)
        await host(guest)
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

    async with hosting(changes) as (_, _, guest, log):
        await host(guest)
        assert log == [TaskEnded(guest, Succeeded("inside"))]
        assert VARIABLE.get() == "outside"


async def test_the_guest_of_an_actor_that_has_ended_is_cancelled_and_unheard(autojump_clock):
    async with hosting(trio.sleep_forever) as (system, recorder, guest, log):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host, guest)
            await testing.settle(system)
            system.stop(recorder)
        assert not log
        assert guest.outcome == TaskCancelled()
        assert system.statistics().discarded == 0


async def test_another_actor_adopts_a_task(autojump_clock):
    async with hosting(slow, 42) as (system, recorder, guest, log):
        elsewhere = []
        other = system.spawn(Recorder, elsewhere)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host, guest)
            await testing.settle(system)
            other.tell(lambda adopter: adopter.cell.adopt(guest))
            assert guest.owner is other
            system.stop(recorder)
        assert not log
        assert elsewhere == [TaskEnded(guest, Succeeded(42))]


@pytest.mark.parametrize("adopted", [True, False])
async def test_a_task_that_has_ended_is_adopted_by_nobody(adopted):
    async with hosting(value, 42, adopted=adopted) as (system, _, guest, _):
        guest.begin()
        heard, answers = [], []
        system.spawn(Recorder, heard).tell(lambda actor: answers.append(actor.cell.adopt(guest)))
        assert (answers, heard) == ([False], [])


async def test_an_actor_that_has_stopped_adopts_nothing():
    async with hosting(value, 42) as (system, _, guest, _):
        cells = []
        other = system.spawn(Recorder, [])
        other.tell(lambda recorder: cells.append(recorder.cell))
        system.stop(other)
        with pytest.raises(LifecycleError):
            cells[0].adopt(guest)
        guest.begin()
