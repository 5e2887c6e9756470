"""Eager tasks, whose first step is taken by whoever starts them, and those who adopt them."""

import asyncio
import contextvars
import gc
import weakref
from contextlib import asynccontextmanager

import pytest
import trio
from actor_doubles import FAULTS, Recorder, stage, stray_cancelled
from mcpbus_actors import EagerTask, Failed, LifecycleError, Succeeded, TaskCancelled, TaskEnded, testing

VARIABLE = contextvars.ContextVar("variable", default="outside")


@asynccontextmanager
async def hosting(function, *args, adopted=True):
    """An eager task, the actor that has adopted it, and what that hears."""
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        eager = EagerTask(trio.CancelScope(), coroutine=function(*args), context=contextvars.copy_context())
        if adopted:
            recorder.tell(lambda actor: actor.cell.adopt(eager))
        yield system, recorder, eager, log


async def host(eager):
    """Run an eager task as its host does, and return whether it waited."""
    with eager._scope:
        if eager.start():
            return False
        await eager.finish()
    return True


async def value(result):
    return result


async def slow(result):
    await trio.sleep(1)
    await trio.sleep(1)
    return result


async def fail(error):
    raise error


async def test_an_eager_task_that_never_waits_ends_in_its_first_step():
    async with hosting(value, 42) as (_, recorder, eager, log):
        assert eager.start()
        assert eager.outcome == Succeeded(42)
        assert log == [TaskEnded(eager, Succeeded(42))]
        assert eager.owner is recorder


async def test_an_eager_task_that_waits_goes_on(autojump_clock):
    async with hosting(slow, 42) as (_, _, eager, log):
        begun = trio.current_time()
        assert await host(eager)
        assert trio.current_time() == begun + 2
        assert log == [TaskEnded(eager, Succeeded(42))]


async def test_nobody_hears_of_an_eager_task_that_nobody_has_adopted():
    async with hosting(value, 42, adopted=False) as (system, _, eager, log):
        assert eager.start()
        assert (eager.outcome, eager.owner, log) == (Succeeded(42), None, [])
        assert system.statistics().discarded == 0


async def test_an_eager_task_is_adopted_after_its_first_step(autojump_clock):
    async with hosting(slow, 42, adopted=False) as (_, recorder, eager, log):
        with eager._scope:
            assert not eager.start()
            recorder.tell(lambda actor: log.append(actor.cell.adopt(eager)))
            await eager.finish()
        assert log == [True, TaskEnded(eager, Succeeded(42))]


@pytest.mark.parametrize("adopted", [False, True])
async def test_whoever_made_an_eager_task_hears_of_its_end_unless_an_actor_does(adopted, autojump_clock):
    reports = []
    async with hosting(slow, 42, adopted=adopted) as (_, _, eager, log):
        eager.report = reports.append
        assert await host(eager)
        assert (reports, log) == (([], [TaskEnded(eager, Succeeded(42))]) if adopted else ([eager], []))
        assert eager.outcome == Succeeded(42)


@pytest.mark.parametrize("error", [ValueError("no"), StopAsyncIteration()])
async def test_the_failure_of_an_eager_task_is_told_and_does_not_hurt_its_host(error):
    async with hosting(fail, error) as (_, _, eager, log):
        assert eager.start()
        assert log == [TaskEnded(eager, Failed(error))]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("make", FAULTS.values(), ids=FAULTS)
async def test_whatever_an_eager_task_raises_does_not_hurt_its_host(make, waits):
    error = make()

    async def fail_in_time():
        if waits:
            await trio.lowlevel.checkpoint()
        raise error

    async with hosting(fail_in_time) as (_, _, eager, log):
        assert await host(eager) is waits
        assert log == [TaskEnded(eager, Failed(error))]


async def test_what_ends_the_program_is_told_and_goes_on():
    async with hosting(fail, KeyboardInterrupt()) as (_, _, eager, log):
        with pytest.raises(KeyboardInterrupt):
            eager.start()
        assert isinstance(eager.outcome, Failed)
        assert log == [TaskEnded(eager, eager.outcome)]


async def test_a_cancelled_eager_task_is_freed_without_the_garbage_collector():
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
        async with hosting(wait, adopted=False) as (_, _, eager, _):
            with eager._scope:
                assert not eager.start()
                eager.cancel()
                await eager.finish()
            assert eager.outcome == TaskCancelled()
        del eager
        assert things[0]() is None
    finally:
        gc.enable()


async def test_cancelling_an_eager_task_cancels_what_its_host_gave_for_that(autojump_clock):
    async with hosting(trio.sleep_forever) as (_, _, eager, log), trio.open_nursery() as nursery:
        nursery.start_soon(cancel_soon, eager)
        scope = eager._scope
        await host(eager)
        assert scope.cancelled_caught
        assert eager.cancelled
        assert log == [TaskEnded(eager, TaskCancelled())]


async def cancel_soon(eager):
    await trio.sleep(1)
    eager.cancel()


async def test_an_eager_task_that_is_cancelled_in_its_only_step_takes_its_host_with_it():
    async def cancels_itself():
        eager.cancel()

    async with hosting(cancels_itself) as (_, _, eager, log):
        scope = eager._scope
        assert eager.start()
        assert eager.cancelled
        assert scope.cancel_called
        assert log == [TaskEnded(eager, Succeeded(None))]


async def test_a_cancellation_after_the_end_does_not_reach_the_host():
    async with hosting(value, 42) as (_, _, eager, _):
        scope = eager._scope
        eager.start()
        eager.cancel()
        assert not scope.cancel_called
        assert not eager.cancelled


async def test_an_eager_task_made_more_of_its_cancellation(autojump_clock):
    async def stubborn():
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "in spite of it"

    async with hosting(stubborn) as (_, _, eager, log), trio.open_nursery() as nursery:
        nursery.start_soon(cancel_soon, eager)
        await host(eager)
        assert log == [TaskEnded(eager, Succeeded("in spite of it"))]


async def test_an_eager_task_runs_in_its_own_contextvars_at_every_step():
    async def changes():
        VARIABLE.set("inside")
        await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sees)
        return VARIABLE.get()

    async def sees():
        assert VARIABLE.get() == "inside"

    async with hosting(changes) as (_, _, eager, log):
        await host(eager)
        assert log == [TaskEnded(eager, Succeeded("inside"))]
        assert VARIABLE.get() == "outside"


async def test_the_eager_task_of_an_actor_that_has_ended_is_cancelled_and_unheard(autojump_clock):
    async with hosting(trio.sleep_forever) as (system, recorder, eager, log):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host, eager)
            await testing.wait_until_idle(system)
            system.stop(recorder)
        assert not log
        assert eager.outcome == TaskCancelled()
        assert system.statistics().discarded == 0


async def test_another_actor_adopts_a_task(autojump_clock):
    async with hosting(slow, 42) as (system, recorder, eager, log):
        elsewhere = []
        other = system.spawn(Recorder, elsewhere)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host, eager)
            await testing.wait_until_idle(system)
            other.tell(lambda adopter: adopter.cell.adopt(eager))
            assert eager.owner is other
            system.stop(recorder)
        assert not log
        assert elsewhere == [TaskEnded(eager, Succeeded(42))]


@pytest.mark.parametrize("adopted", [True, False])
async def test_a_task_that_has_ended_is_adopted_by_nobody(adopted):
    async with hosting(value, 42, adopted=adopted) as (system, _, eager, _):
        eager.start()
        heard, answers = [], []
        system.spawn(Recorder, heard).tell(lambda actor: answers.append(actor.cell.adopt(eager)))
        assert (answers, heard) == ([False], [])


async def test_an_actor_that_has_stopped_adopts_nothing():
    async with hosting(value, 42) as (system, _, eager, _):
        cells = []
        other = system.spawn(Recorder, [])
        other.tell(lambda recorder: cells.append(recorder.cell))
        system.stop(other)
        with pytest.raises(LifecycleError):
            cells[0].adopt(eager)
        eager.start()


# -- between its first step and its host's next wait --------------------------------------------------


async def wait_for(event, heard):
    """Wait for something in every way that makes a difference."""
    await event.wait()
    heard.append("woken")
    await trio.lowlevel.checkpoint()
    heard.append("went on")


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("by", ["its own cancellation", "the end of its host"])
async def test_an_eager_task_that_is_woken_before_trio_hears_that_it_waits(by, cancelled):
    event, heard = trio.Event(), []
    async with hosting(wait_for, event, heard) as (_, _, eager, log), trio.open_nursery() as nursery:

        async def be_host():
            with eager._scope:
                assert not eager.start()
                event.set()
                await eager.finish()

        nursery.start_soon(be_host)
        if cancelled:
            nursery.start_soon(
                cancel_at_once, eager.cancel if by == "its own cancellation" else nursery.cancel_scope.cancel
            )
    if cancelled:
        assert heard[:1] == ["woken"]
    else:
        assert heard == ["woken", "went on"]
        assert log == [TaskEnded(eager, Succeeded(None))]


async def cancel_at_once(cancel):
    cancel()


@pytest.mark.parametrize("woken", [False, True])
async def test_an_eager_task_that_is_cancelled_before_trio_hears_that_it_waits(woken):
    event, heard = trio.Event(), []
    async with hosting(wait_for, event, heard) as (_, _, eager, log):
        with eager._scope:
            assert not eager.start()
            if woken:
                event.set()
            eager.cancel()
            await eager.finish()
        assert heard == (["woken"] if woken else [])
        assert log == [TaskEnded(eager, TaskCancelled())]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_eager_task_of_an_eager_task_is_woken_before_trio_hears_that_it_waits(cancelled):
    event, heard = trio.Event(), []
    scope = trio.CancelScope()

    async def hosts_another():
        inner = EagerTask(scope, coroutine=wait_for(event, heard), context=contextvars.copy_context())
        assert not inner.start()
        event.set()
        await inner.finish()
        heard.append(inner.outcome)

    outer = EagerTask(scope, coroutine=hosts_another(), context=contextvars.copy_context())
    with scope:
        assert not outer.start()
        if cancelled:
            scope.cancel()
        await outer.finish()
    assert heard == (["woken"] if cancelled else ["woken", "went on", Succeeded(None)])


async def test_what_woke_an_eager_task_early_reaches_it():
    send, receive = trio.open_memory_channel(0)
    async with hosting(receive.receive) as (_, _, eager, log):
        assert not eager.start()
        send.send_nowait("a value")
        await eager.finish()
        assert log == [TaskEnded(eager, Succeeded("a value"))]


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
async def test_an_eager_task_that_waits_for_something_foreign_hears_of_it(what, function):
    args = (what,) if function is foreign else (foreign, what)
    async with hosting(function, *args) as (_, _, eager, log), trio.open_nursery() as nursery:
        nursery.start_soon(host, eager)
    error = log[0].outcome.exception
    while isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    # A task with nurseries cannot be detached, and trio says so.
    assert isinstance(error, RuntimeError if (what, function) == ("another runner", in_scopes) else TypeError)


async def test_an_eager_task_that_does_not_give_up_on_something_foreign_lets_others_run():
    async def insist():
        while not log:
            try:
                await foreign("asyncio")
            except TypeError:
                continue

    log = []

    async def other():
        log.append("ran")

    async with hosting(insist) as (_, _, eager, _), trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await host(eager)
    assert eager.outcome == Succeeded(None)


async def test_an_eager_task_that_fails_at_its_cancellation_tells_of_the_failure():
    error = SystemExit(3)

    async def fail_when_cancelled():
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("both", [cancelled, error]) from None

    async with hosting(fail_when_cancelled) as (_, _, eager, _):
        scope = eager._scope
        with scope:
            eager.start()
            eager.cancel()
            await eager.finish()
        assert scope.cancelled_caught
        assert eager.outcome.exception.exceptions == (error,)


async def test_a_cancellation_that_was_kept_is_a_failure_in_a_first_step_even_of_a_cancelled_host():
    error = stray_cancelled()

    async with hosting(fail, error) as (_, _, eager, _):
        with trio.CancelScope() as scope:  # noqa: ASYNC100 - nothing is to wait in it
            scope.cancel()
            assert eager.start()
        assert not scope.cancelled_caught
        assert eager.outcome == Failed(error)
