import asyncio
import contextvars
import gc
import weakref
from contextlib import asynccontextmanager

import pytest
import trio
from actor_doubles import FAULTS, Recorder, stage, stray_cancelled

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
            recorder.tell(lambda actor: log.append(actor.cell.adopt(guest)))
            await guest.go_on()
        assert log == [True, TaskEnded(guest, Succeeded(42))]


@pytest.mark.parametrize("error", [ValueError("no"), StopAsyncIteration()])
async def test_the_failure_of_a_guest_is_told_and_does_not_hurt_its_host(error):
    async with hosting(fail, error) as (_, _, guest, log):
        assert guest.begin()
        assert log == [TaskEnded(guest, Failed(error))]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("make", FAULTS.values(), ids=FAULTS)
async def test_whatever_a_guest_raises_does_not_hurt_its_host(make, waits):
    error = make()

    async def fail_in_time():
        if waits:
            await trio.lowlevel.checkpoint()
        raise error

    async with hosting(fail_in_time) as (_, _, guest, log):
        assert await host(guest) is waits
        assert log == [TaskEnded(guest, Failed(error))]


async def test_what_ends_the_program_is_told_and_goes_on():
    async with hosting(fail, KeyboardInterrupt()) as (_, _, guest, log):
        with pytest.raises(KeyboardInterrupt):
            guest.begin()
        assert isinstance(guest.outcome, Failed)
        assert log == [TaskEnded(guest, guest.outcome)]


async def test_a_cancelled_guest_is_freed_without_the_garbage_collector():
    class Thing:
        pass

    async def wait():
        thing = Thing()
        things.append(weakref.ref(thing))
        await trio.sleep_forever()

    things = []
    gc.collect()
    gc.disable()
    try:
        async with hosting(wait, adopted=False) as (_, _, guest, _):
            with guest._scope:
                assert not guest.begin()
                guest.cancel()
                await guest.go_on()
            assert guest.outcome == TaskCancelled()
        del guest
        assert things[0]() is None
    finally:
        gc.enable()


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


# -- between its first step and its host's next wait --------------------------------------------------


async def wait_for(event, heard):
    """Wait for something in every way that makes a difference."""
    await event.wait()
    heard.append("woken")
    await trio.lowlevel.checkpoint()
    heard.append("went on")


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("by", ["its own cancellation", "the end of its host"])
async def test_a_guest_that_is_woken_before_trio_hears_that_it_waits(by, cancelled):
    event, heard = trio.Event(), []
    async with hosting(wait_for, event, heard) as (_, _, guest, log), trio.open_nursery() as nursery:

        async def be_host():
            with guest._scope:
                assert not guest.begin()
                event.set()
                await guest.go_on()

        nursery.start_soon(be_host)
        if cancelled:
            nursery.start_soon(
                cancel_at_once, guest.cancel if by == "its own cancellation" else nursery.cancel_scope.cancel
            )
    if cancelled:
        assert heard[:1] == ["woken"]
    else:
        assert heard == ["woken", "went on"]
        assert log == [TaskEnded(guest, Succeeded(None))]


async def cancel_at_once(cancel):
    cancel()


@pytest.mark.parametrize("woken", [False, True])
async def test_a_guest_that_is_cancelled_before_trio_hears_that_it_waits(woken):
    event, heard = trio.Event(), []
    async with hosting(wait_for, event, heard) as (_, _, guest, log):
        with guest._scope:
            assert not guest.begin()
            if woken:
                event.set()
            guest.cancel()
            await guest.go_on()
        assert heard == (["woken"] if woken else [])
        assert log == [TaskEnded(guest, TaskCancelled())]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_guest_of_a_guest_is_woken_before_trio_hears_that_it_waits(cancelled):
    event, heard = trio.Event(), []
    scope = trio.CancelScope()

    async def hosts_another():
        inner = Guest(scope, coroutine=wait_for(event, heard), context=contextvars.copy_context())
        assert not inner.begin()
        event.set()
        await inner.go_on()
        heard.append(inner.outcome)

    outer = Guest(scope, coroutine=hosts_another(), context=contextvars.copy_context())
    with scope:
        assert not outer.begin()
        if cancelled:
            scope.cancel()
        await outer.go_on()
    assert heard == (["woken"] if cancelled else ["woken", "went on", Succeeded(None)])


async def test_what_woke_a_guest_early_reaches_it():
    send, receive = trio.open_memory_channel(0)
    async with hosting(receive.receive) as (_, _, guest, log):
        assert not guest.begin()
        send.send_nowait("a value")
        await guest.go_on()
        assert log == [TaskEnded(guest, Succeeded("a value"))]


# -- waiting for what trio does not know --------------------------------------------------------------


async def in_scopes(function, *args):
    """Call it in a scope and in a nursery, which have to be closed as well."""
    await trio.lowlevel.checkpoint()
    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await function(*args)


class Strange:
    """Waits as some other framework has it."""

    def __await__(self):
        yield 42


FOREIGN = {
    "asyncio": lambda: asyncio.sleep(0),
    "a value": Strange,
    "another runner": lambda: trio.lowlevel.permanently_detach_coroutine_object(None),  # noqa: ASYNC105
}


async def foreign(what):
    await FOREIGN[what]()


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("function", [foreign, in_scopes])
async def test_a_guest_that_waits_for_something_foreign_hears_of_it(what, function):
    args = (what,) if function is foreign else (foreign, what)
    async with hosting(function, *args) as (_, _, guest, log), trio.open_nursery() as nursery:
        nursery.start_soon(host, guest)
    error = log[0].outcome.exception
    while isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    # A task with nurseries cannot be detached, and trio says so.
    assert isinstance(error, RuntimeError if (what, function) == ("another runner", in_scopes) else TypeError)


async def test_a_guest_that_does_not_give_up_on_something_foreign_lets_others_run():
    async def insist():
        while not log:
            try:
                await foreign("asyncio")
            except TypeError:
                continue

    log = []

    async def other():
        log.append("ran")

    async with hosting(insist) as (_, _, guest, _), trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await host(guest)
    assert guest.outcome == Succeeded(None)


async def test_a_guest_that_fails_at_its_cancellation_tells_of_the_failure():
    error = SystemExit(3)

    async def fail_when_cancelled():
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("both", [cancelled, error]) from None

    async with hosting(fail_when_cancelled) as (_, _, guest, _):
        scope = guest._scope
        with scope:
            guest.begin()
            guest.cancel()
            await guest.go_on()
        assert scope.cancelled_caught
        assert guest.outcome.exception.exceptions == (error,)


async def test_a_cancellation_that_was_kept_is_a_failure_in_a_first_step_even_of_a_cancelled_host():
    error = stray_cancelled()

    async with hosting(fail, error) as (_, _, guest, _):
        with trio.CancelScope() as scope:  # noqa: ASYNC100 - nothing is to wait in it
            scope.cancel()
            assert guest.begin()
        assert not scope.cancelled_caught
        assert guest.outcome == Failed(error)
