"""A system of actors: what its end leaves behind, which is nothing, and who hears of dead letters."""

import mcpbus_actors as actors
import pytest
import trio
from actor_doubles import Recorder, boom, stage
from mcpbus_actors import DeadLetterReason, StopReason


async def test_leaving_the_block_ends_everything_the_youngest_first(autojump_clock):
    ends = []
    async with actors.open_system("name") as system:
        system.spawn(lambda cell: [cell.after(100, "never"), Recorder(cell)][1])
        for number in range(3):
            system.spawn(Recorder).tell(
                lambda recorder, number=number: recorder.cell.on_stop(lambda why: ends.append((number, why)))
            )
        assert repr(system) == "<ActorSystem 'name' open>"
    assert ends == [(2, StopReason.SYSTEM), (1, StopReason.SYSTEM), (0, StopReason.SYSTEM)]
    assert repr(system) == "<ActorSystem 'name' closed>"
    now = system.statistics()
    assert (now.actors, now.spawned, now.tasks, now.timers, now.queued) == (0, 4, 0, 0, 0)
    assert trio.current_time() == 0


async def test_a_closed_system_spawns_nothing_and_leaves_no_trace_of_trying():
    async with actors.open_system() as system:
        pass
    with pytest.raises(actors.LifecycleError, match="has closed"):
        system.spawn(Recorder)
    assert system.statistics().spawned == 0


async def test_what_waits_when_the_system_closes_is_discarded_with_closed():
    letters = []
    async with actors.open_system(dead_letter=letters.append) as system:
        recorder = system.spawn(Recorder, capacity=5000)
        system.spawn(Recorder).tell(lambda _: [recorder.tell(number) for number in range(1000)])
        waiting = system.statistics().queued
        assert waiting > 0
    assert len(letters) == waiting
    assert {letter.reason for letter in letters} == {DeadLetterReason.CLOSED}


async def test_what_is_told_while_the_system_closes_is_not_handled():
    log, letters, outcomes = [], [], []
    async with actors.open_system(dead_letter=letters.append) as system:
        elder = system.spawn(Recorder, log, capacity=1)

        def leave(_):
            outcomes.extend([elder.tell("last"), elder.tell("refused")])

        system.spawn(Recorder).tell(lambda recorder: recorder.cell.on_stop(leave))
    assert outcomes == [None, DeadLetterReason.FULL]
    assert log == []
    assert [(letter.message, letter.reason) for letter in letters] == [
        ("refused", DeadLetterReason.FULL),
        ("last", DeadLetterReason.CLOSED),
    ]


async def test_tasks_are_awaited_when_the_system_closes(autojump_clock):
    ended = []

    async def slow_to_leave():
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            ended.append(trio.current_time())

    async with actors.open_system() as system:
        context = trio.lowlevel.current_task().context
        system.spawn(Recorder).tell(lambda actor: actor.cell.start_task(slow_to_leave, context=context))
        await trio.sleep(1)
    assert ended == [4]


async def test_an_exception_of_the_block_ends_the_system_and_comes_through():
    with pytest.RaisesGroup(KeyError):
        async with actors.open_system() as system:
            recorder = system.spawn(Recorder)
            raise KeyError("mine")
    assert recorder.stopped


async def test_a_tap_sees_every_dead_letter_until_it_is_taken_away():
    async with stage() as (system, probe, letters):
        seen = []
        untap = system.tap_dead_letters(seen.append)
        probe.stop()
        probe.address.tell(1)
        untap()
        untap()
        probe.address.tell(2)
        assert [letter.message for letter in seen] == [1]
        assert [letter.message for letter in letters] == [1, 2]
        assert system.statistics().dead_letters[DeadLetterReason.STOPPED] == 2


async def test_nobody_needs_to_tap(caplog):
    async with actors.open_system() as system:
        recorder = system.spawn(Recorder)
        system.stop(recorder)
        assert recorder.tell("late") is DeadLetterReason.STOPPED
    assert caplog.records == []


async def test_a_tap_that_raises_is_logged_and_the_others_still_hear(caplog):
    async with stage() as (system, probe, _):
        seen = []
        system.tap_dead_letters(boom)
        system.tap_dead_letters(seen.append)
        probe.stop()
        assert probe.address.tell(1) is DeadLetterReason.STOPPED
        assert len(seen) == 1
    assert "a tap of the dead letters raised" in caplog.text


async def test_a_tap_that_is_interrupted_ends_the_system_and_not_the_teller():
    def leave(_):
        raise KeyboardInterrupt

    with pytest.RaisesGroup(KeyboardInterrupt):
        async with actors.open_system(dead_letter=leave) as system:
            recorder = system.spawn(Recorder)
            system.stop(recorder)
            assert recorder.tell(1) is DeadLetterReason.STOPPED
            await trio.sleep_forever()


async def test_a_tap_may_tell_and_its_own_dead_letters_go_no_further():
    async with stage() as (system, probe, _):
        system.tap_dead_letters(lambda letter: letter.recipient.tell("again"))
        probe.stop()
        probe.address.tell("once")
        assert system.statistics().dead_letters[DeadLetterReason.STOPPED] == 2


async def test_statistics_are_a_frozen_snapshot():
    async with stage() as (system, probe, _):
        before = system.statistics()
        probe.address.tell("message")
        assert before.handled == 0
        assert system.statistics().handled == 1
        with pytest.raises(AttributeError, match="immutable"):
            before.handled = 7
        with pytest.raises(TypeError):
            before.dead_letters[DeadLetterReason.FULL] = 7


async def test_stopping_what_has_stopped_is_harmless_and_what_is_foreign_a_mistake():
    async with stage() as (system, probe, _), stage() as (_, other, _):
        system.stop(probe.address)
        system.stop(probe.address)
        with pytest.raises(ValueError, match="another system"):
            system.stop(other.address)


async def test_an_idle_actor_is_small():
    import tracemalloc

    class Minimal:
        __slots__ = ("cell",)

        def __init__(self, cell):
            self.cell = cell

        def handle(self, message):
            pass

    async with actors.open_system() as system:
        addresses = [None] * 10_000
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for index in range(len(addresses)):
            addresses[index] = system.spawn(Minimal)
            addresses[index].tell("once")
        taken = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert taken / len(addresses) <= 0.4 * 1024
