"""Tasks that actors start: their ends are told, their failures hurt nobody else."""

import contextvars
import gc
import logging
import weakref

import mcpbus_actors as actors
import pytest
import trio
import trio.testing
from actor_doubles import FAULTS, Recorder, Restless, boom, restart, stage, stop
from mcpbus_actors import DeadLetterReason, Failed, StopReason, Succeeded, TaskCancelled, TaskEnded, testing

EMPTY = contextvars.Context()


def starter(function, *args, context=EMPTY, name=None):
    def start(recorder):
        recorder.task = recorder.cell.start_task(function, *args, context=context, name=name)
        recorder.log.append(recorder.task)

    return start


async def value(result):
    await trio.sleep(1)
    return result


async def failure(error):
    await trio.sleep(1)
    raise error


async def test_the_end_of_a_task_is_told_with_its_value(autojump_clock):
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        recorder.tell(starter(value, 42))
        await trio.sleep(2)
        assert log == [log[0], TaskEnded(log[0], Succeeded(42))]
        assert log[0].owner is recorder
        assert system.statistics().tasks == 0
        assert not recorder._mailbox._tasks


async def test_the_failure_of_a_task_is_told_and_hurts_nobody_else(autojump_clock):
    async with stage() as (system, _, _):
        log = []
        error = ValueError("no")
        system.spawn(Recorder, log).tell(starter(failure, error))
        await trio.sleep(2)
        assert log[1] == TaskEnded(log[0], Failed(error))


async def test_a_cancelled_task_ends_cancelled_unless_it_made_more_of_it(autojump_clock):
    async def stubborn():
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "in spite of it"

    async with stage() as (system, _, _):
        for function, outcome in (
            (trio.sleep_forever, TaskCancelled()),
            (stubborn, Succeeded("in spite of it")),
        ):
            log = []
            system.spawn(Recorder, log).tell(starter(function))
            await testing.wait_until_idle(system)
            log[0].cancel()
            await testing.wait_until_idle(system)
            assert log[1:] == [TaskEnded(log[0], outcome)]
            log[0].cancel()


async def test_a_task_cancelled_before_its_first_step_still_ends():
    async with stage() as (system, _, _):
        log = []
        system.spawn(Recorder, log).tell(starter(trio.sleep_forever))
        log[0].cancel()
        await testing.wait_until_idle(system)
        assert log[1:] == [TaskEnded(log[0], TaskCancelled())]


async def test_a_task_runs_in_the_context_it_is_given_and_not_in_the_tellers():
    principal = contextvars.ContextVar("principal", default="nobody")

    async def who():
        return principal.get()

    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        given = contextvars.copy_context()
        given.run(principal.set, "the one of the request")
        principal.set("the teller")
        for context in (given, contextvars.Context(), trio.lowlevel.current_task().context):
            recorder.tell(starter(who, context=context))
        await testing.wait_until_idle(system)
        outcomes = {entry.task: entry.outcome.value for entry in log if isinstance(entry, TaskEnded)}
        assert [outcomes[task] for task in log[:3]] == ["the one of the request", "nobody", "the teller"]


async def test_the_end_of_a_task_has_room_in_a_full_queue_and_is_not_overtaken():
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log, capacity=1)
        restless = system.spawn(Restless)

        async def fill_and_end():
            restless.tell("for ever")
            recorder.tell("first")

        recorder.tell(starter(fill_and_end))
        while len(log) < 3:
            await trio.lowlevel.checkpoint()
        assert log[1:] == ["first", TaskEnded(log[0], Succeeded(None))]
        system.stop(restless)
        await testing.wait_until_idle(system)
        # It took no room for ever, and left none that is not there.
        outcomes = []
        system.spawn(Recorder).tell(lambda _: outcomes.extend(recorder.tell(word) for word in ("one", "two")))
        assert outcomes == [None, DeadLetterReason.FULL]


async def test_what_came_of_a_task_does_not_wait_beside_that_of_others_however_far_the_system_is_behind():
    waiting, go_on = [], trio.Event()

    async def end():
        await go_on.wait()
        waiting.append(system.statistics().queued)

    async with stage() as (system, _, _):
        recorder = system.spawn(Recorder)
        for _ in range(5):
            recorder.tell(starter(end))
        await trio.testing.wait_all_tasks_blocked()
        system.spawn(Restless).tell("on and on")
        go_on.set()
        for _ in range(2):
            await trio.lowlevel.checkpoint()
        assert len(waiting) == 5
        assert max(waiting) == 2, "what the restless one tells itself, and the last end"


async def test_tasks_are_cancelled_when_their_actor_stops_and_nobody_is_told():
    async with stage() as (system, _, letters):
        log = []
        recorder = system.spawn(Recorder, log)
        recorder.tell(starter(trio.sleep_forever))
        await testing.wait_until_idle(system)
        recorder.tell(stop)
        await testing.wait_until_idle(system)
        assert system.statistics().tasks == 0
        assert len(log) == 1
        assert letters == []


async def test_tasks_of_an_instance_that_raised_do_not_report_to_the_next():
    async with stage() as (system, _, letters):
        log = []
        recorder = system.spawn(Recorder, log, strategy=restart)
        recorder.tell(starter(trio.sleep_forever))
        recorder.tell(boom)
        await testing.wait_until_idle(system)
        assert len(log) == 1
        assert [letter.message for letter in letters] == [boom]
        assert not recorder.stopped


async def test_a_failure_that_nobody_hears_is_logged_and_a_dead_letter(caplog):
    async def spiteful():
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("in cleanup")

    async with stage() as (system, _, letters):
        log = []
        recorder = system.spawn(Recorder, log, name="owner")
        recorder.tell(starter(spiteful))
        await testing.wait_until_idle(system)
        recorder.tell(stop)
        await testing.wait_until_idle(system)
        (letter,) = letters
        assert letter.recipient is recorder
        assert letter.reason is DeadLetterReason.STOPPED
        assert isinstance(letter.message.outcome.exception, ValueError)
    (record,) = caplog.records
    assert record.name == "mcpbus.actors"
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "a task of owner raised, unheard"
    assert record.exc_info[0] is ValueError


@pytest.mark.parametrize(("error", "logged"), [(KeyError(), 0), (IndexError(), 0), (ValueError(), 1)])
async def test_an_expected_failure_that_nobody_hears_is_a_dead_letter_only(error, logged, caplog):
    async def fail():
        try:
            await trio.sleep_forever()
        finally:
            raise error

    letters = []
    async with actors.open_system("test", letters.append, expected=LookupError) as system:
        recorder = system.spawn(Recorder, [])
        recorder.tell(starter(fail))
        await testing.wait_until_idle(system)
        recorder.tell(stop)
        await testing.wait_until_idle(system)
    assert len(letters) == 1
    assert len(caplog.records) == logged


async def test_a_value_that_nobody_hears_is_a_dead_letter_only(caplog):
    async def stubborn():
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        return "done"

    async with stage() as (system, _, letters):
        recorder = system.spawn(Recorder)
        recorder.tell(starter(stubborn))
        recorder.tell(stop)
        await testing.wait_until_idle(system)
        assert [letter.message.outcome for letter in letters] == [Succeeded("done")]
    assert caplog.records == []


async def test_a_task_that_is_interrupted_ends_the_system():
    async def leave():
        raise KeyboardInterrupt

    log = []
    with pytest.RaisesGroup(KeyboardInterrupt):
        async with stage() as (system, _, _):
            system.spawn(Recorder, log).tell(starter(leave))
            await trio.sleep_forever()
    assert isinstance(log[1].outcome.exception, KeyboardInterrupt)


async def raise_(error):
    raise error


@pytest.mark.parametrize("make", FAULTS.values(), ids=FAULTS)
async def test_whatever_else_a_task_raises_is_told_and_harms_nobody(make):
    error = make()
    async with stage() as (system, _, _):
        log, others = [], []
        system.spawn(Recorder, others).tell(starter(trio.sleep, 1))
        system.spawn(Recorder, log).tell(starter(raise_, error))
        await testing.wait_until_idle(system)
        assert log[1:] == [TaskEnded(log[0], Failed(error))]
        assert len(others) == 1


async def test_the_failure_of_a_task_is_freed_without_the_garbage_collector():
    class OwnError(Exception):
        pass

    async def fail():
        raise OwnError

    async with stage() as (system, _, _):
        log = []
        gc.collect()
        gc.disable()
        try:
            system.spawn(Recorder, log).tell(starter(fail))
            await testing.wait_until_idle(system)
            error = weakref.ref(log.pop().outcome.exception)
            assert error() is None
        finally:
            gc.enable()


async def test_a_task_that_is_cancelled_and_fails_at_that_tells_of_the_failure(autojump_clock):
    error = SystemExit(3)

    async def fail_when_cancelled():
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("both", [cancelled, error]) from None

    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log)
        recorder.tell(starter(fail_when_cancelled))
        await testing.wait_until_idle(system)
        log[0].cancel()
        await testing.wait_until_idle(system)
        assert log[1].outcome.exception.exceptions == (error,)


@pytest.mark.parametrize("nested", [False, True])
async def test_when_the_opener_is_cancelled_tasks_report_that_they_were(nested):
    async def wait():
        if nested:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                nursery.start_soon(trio.sleep_forever)
        await trio.sleep_forever()

    log = []
    with trio.CancelScope() as scope:
        async with actors.open_system() as system:
            system.spawn(Recorder, log).tell(starter(wait))
            await testing.wait_until_idle(system)
            scope.cancel()
            with trio.CancelScope(shield=True):
                await testing.wait_until_idle(system)
            assert log[1:] == [TaskEnded(log[0], TaskCancelled())]
    assert scope.cancelled_caught


async def test_a_task_that_another_actor_has_adopted_ends_with_that_one():
    async with stage() as (system, _, _):
        log, answers = [], []
        starts, adopts = system.spawn(Recorder, log), system.spawn(Recorder)
        starts.tell(starter(trio.sleep_forever))
        adopts.tell(lambda actor: answers.append(actor.cell.adopt(log[0])))
        assert answers == [True]
        system.stop(starts)
        await testing.wait_until_idle(system)
        assert system.statistics().tasks == 1
        system.stop(adopts)
        await testing.wait_until_idle(system)
        assert system.statistics().tasks == 0


async def test_a_task_may_end_the_very_actor_that_owns_it():
    async with stage() as (system, probe, _):
        recorder = system.spawn(Recorder)
        probe.watch(recorder)

        async def end_it():
            recorder.tell(stop)
            await trio.sleep_forever()

        recorder.tell(starter(end_it))
        await testing.wait_until_idle(system)
        assert probe.messages == [actors.Stopped(recorder, StopReason.STOPPED)]
        assert system.statistics().tasks == 0


async def test_a_task_bears_the_name_of_its_function_or_the_one_given():
    names = []

    async def named():
        names.append(trio.lowlevel.current_task().name)

    async with stage() as (system, _, _):
        recorder = system.spawn(Recorder)
        recorder.tell(starter(named))
        await testing.wait_until_idle(system)
        recorder.tell(starter(named, name="tools/call forecast"))
        await testing.wait_until_idle(system)
    assert names[0].endswith("named")
    assert names[1] == "tools/call forecast"
