"""Dispatch: one message after the other, within a budget, in nobody else's context."""

import contextvars
import signal

import mcpbus_actors as actors
import pytest
import trio
from actor_doubles import Recorder, boom, stage, stop
from mcpbus_actors import testing
from mcpbus_actors._dispatch import BUDGET


async def test_a_turn_runs_to_completion_before_the_next_begins():
    async with stage() as (system, _, _):
        log = []
        second = system.spawn(Recorder, log)

        def first(recorder):
            log.append("begin")
            second.tell("from first")
            recorder.cell.address.tell("to itself")
            log.append("end")

        system.spawn(Recorder, log).tell(first)
        assert log == ["begin", "end", "from first", "to itself"]


async def test_past_the_budget_the_rest_moves_to_a_task_and_nothing_starves():
    async with stage() as (system, _, _):
        count = 0

        def again(recorder):
            nonlocal count
            count += 1
            recorder.cell.address.tell(again)

        restless = system.spawn(Recorder)
        restless.tell(again)
        assert count == BUDGET + 1
        assert system.statistics().queued == 1
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert BUDGET + 1 < count <= 5 * BUDGET + 1
        # While some wait, others queue behind them instead of running first.
        log = []
        other = system.spawn(Recorder, log)
        other.tell("in its turn")
        assert log == []
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert log == ["in its turn"]
        system.stop(restless)
        await testing.wait_until_idle(system)
        assert system.statistics().tasks == 0


async def test_a_task_may_have_it_caught_up_and_an_actor_may_not():
    async with stage() as (system, _, _):
        recorder = system.spawn(Recorder)
        log = recorder._mailbox._actor.log

        def flood(self):
            for n in range(1000):
                self.cell.address.tell(n)
            system.catch_up()
            log.append("nothing yet")

        recorder.tell(flood)
        assert 1 < len(log) < 1000
        system.catch_up()
        assert log == ["nothing yet", *range(1000)]


async def test_a_stop_that_is_asked_for_in_the_last_turn_of_the_budget_is_not_forgotten():
    async with stage() as (system, _, _):
        log, left = [], BUDGET
        victim = system.spawn(lambda cell: [cell.on_stop(log.append), Recorder(cell)][1])

        def count_down(recorder):
            nonlocal left
            if left:
                left -= 1
                recorder.cell.address.tell(count_down)
            else:
                system.stop(victim)

        system.spawn(Recorder).tell(count_down)
        assert log == []
        await testing.wait_until_idle(system)
        assert log == [actors.StopReason.STOPPED]


async def test_a_backlog_is_worked_off_while_the_opener_is_being_cancelled():
    log = []
    with trio.CancelScope() as scope:
        async with actors.open_system() as system:
            recorder = system.spawn(Recorder, log, capacity=5000)
            system.spawn(Recorder).tell(lambda _: [recorder.tell(number) for number in range(2 * BUDGET)])
            scope.cancel()
            with trio.CancelScope(shield=True):
                await testing.wait_until_idle(system)
            assert len(log) == 2 * BUDGET
            await trio.sleep_forever()


async def test_the_backlog_does_not_run_in_the_context_of_the_teller():
    principal = contextvars.ContextVar("principal", default="nobody")
    async with stage() as (system, _, _):
        seen = []
        recorder = system.spawn(Recorder)

        def flood(_):
            for _ in range(BUDGET + 1):
                recorder.tell(lambda _: seen.append(principal.get()))

        principal.set("somebody")
        system.spawn(Recorder).tell(flood)
        await testing.wait_until_idle(system)
        assert seen[-1] == "nobody"


async def test_what_ends_the_program_surfaces_in_the_nursery_and_not_in_the_teller():
    told = []
    with pytest.RaisesGroup(KeyboardInterrupt):
        async with stage() as (system, probe, _):
            recorder = system.spawn(Recorder)
            probe.watch(recorder)

            def leave(_):
                raise KeyboardInterrupt

            told.append(recorder.tell(leave))
            told.append(recorder.stopped)
            await trio.sleep_forever()
    assert told == [None, True]
    assert probe.messages == [actors.Stopped(recorder, actors.StopReason.FAILED)]


def test_a_turn_is_protected_from_keyboard_interrupt():
    log = []

    def interrupted(_):
        signal.raise_signal(signal.SIGINT)
        log.append("went on")

    async def main():
        async with stage() as (system, _, _):
            recorder = system.spawn(Recorder, log)
            recorder.tell(interrupted)
            recorder.tell("and the next")
            await trio.sleep_forever()

    with pytest.RaisesGroup(KeyboardInterrupt):
        trio.run(main)
    assert log == ["went on", "and the next"]


async def test_the_statistics_balance_inside_a_turn_too():
    async with stage() as (system, _, _):
        seen = []

        gone = [system.spawn(Recorder) for _ in range(2)]
        for address in gone:
            system.stop(address)

        def look(recorder):
            recorder.cell.address.tell("waits")
            for address in gone:
                recorder.cell.watch(address)  # of which it is told before that
            recorder.cell.stop()  # which is no message
            seen.append(system.statistics())

        system.spawn(Recorder).tell(look)
        (now,) = seen
        assert (now.accepted, now.handled, now.discarded, now.queued) == (4, 1, 0, 3)


async def nothing():
    pass


def watch_one_end(recorder):
    child = recorder.cell.spawn(Recorder)
    recorder.cell.watch(child)
    recorder.cell.system.stop(child)


ACCOUNTS = {
    "told": (lambda _: None, (1, 1, 0)),
    "told in a turn": (lambda actor: actor.cell.address.tell("message"), (2, 2, 0)),
    "raised on": (boom, (1, 0, 1)),
    "raised on in its turn": (lambda actor: actor.cell.address.tell(boom), (2, 1, 1)),
    "waiting at the end": (lambda actor: actor.cell.stop(actor.cell.address.tell("message")), (2, 1, 1)),
    "of a timer": (lambda actor: actor.cell.after(1, "message"), (2, 2, 0)),
    "of a task": (lambda actor: actor.cell.start_task(nothing, context=contextvars.Context()), (2, 2, 0)),
    "of another's end": (watch_one_end, (2, 2, 0)),
}


@pytest.mark.parametrize(("message", "expected"), ACCOUNTS.values(), ids=ACCOUNTS)
async def test_a_message_is_counted_once_on_each_side_however_it_came(message, expected, autojump_clock):
    async with stage() as (system, _, _):
        system.spawn(Recorder).tell(message)
        await trio.sleep(2)
        now = system.statistics()
        assert (now.accepted, now.handled, now.discarded, now.queued) == (*expected, 0)


@pytest.mark.parametrize("lane", ["user", "system"])
async def test_what_waits_is_worked_off_in_one_turn_of_the_scheduler(lane):
    many = 10 * BUDGET
    async with stage() as (system, probe, _):
        log = []
        if lane == "user":
            recorder = system.spawn(Recorder, log, capacity=many)
            system.spawn(Recorder).tell(lambda _: [recorder.tell(number) for number in range(many)])
        else:
            for _ in range(many):
                system.spawn(Recorder, log).tell(lambda recorder: recorder.cell.watch(probe.address))
            system.stop(probe.address)
        assert len(log) < many
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert len(log) == many


async def test_what_is_told_at_an_end_is_handled_after_it():
    async with stage() as (system, _, _):
        log = []
        heir = system.spawn(Recorder, log)

        def leave(reason):
            log.append("begin")
            heir.tell("told")
            log.append(reason)

        owner = system.spawn(Recorder)
        owner.tell(lambda recorder: recorder.cell.on_stop(leave))
        system.stop(owner)
        assert log == ["begin", actors.StopReason.STOPPED, "told"]


async def test_stopping_others_waits_for_the_end_of_the_turn():
    async with stage() as (system, _, _):
        log = []
        victim = system.spawn(lambda cell: [cell.on_stop(log.append), Recorder(cell, log)][1])

        def kill(_):
            victim.tell("queued before")
            system.stop(victim)
            log.append("still in the turn")

        system.spawn(Recorder).tell(kill)
        assert log == ["still in the turn", actors.StopReason.STOPPED]


async def test_a_stop_overtakes_what_waits_in_the_queue():
    async with stage() as (system, _, letters):
        log = []
        recorder = system.spawn(Recorder, log)
        recorder.tell(lambda _: [recorder.tell("first"), recorder.tell(stop), recorder.tell("discarded")])
        assert log == ["first"]
        assert [(letter.message, letter.reason) for letter in letters] == [
            ("discarded", actors.DeadLetterReason.STOPPED)
        ]
