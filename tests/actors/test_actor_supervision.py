"""What becomes of an actor that raised: its parent decides, and restarts are bounded."""

import logging

import mcpbus_actors as actors
import pytest
import trio
from actor_doubles import FAULTS, Recorder, boom, escalate, restart, stage, stop, stray_cancelled
from mcpbus_actors import DeadLetterReason, Directive, StopReason


async def test_by_default_an_actor_that_raised_is_stopped_and_all_hear_of_it(caplog):
    async with stage() as (system, probe, letters):
        recorder = system.spawn(Recorder, name="unlucky")
        probe.watch(recorder)
        recorder.tell(lambda _: recorder.tell("waits") or boom(None))
        assert probe.messages == [actors.Stopped(recorder, StopReason.FAILED)]
        assert recorder.tell("more") is DeadLetterReason.FAILED
        assert [letter.reason for letter in letters] == [DeadLetterReason.FAILED] * 3
        assert letters[1].message == "waits"
        assert system.statistics().failures == 1
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("mcpbus.actors", logging.ERROR)
    assert record.getMessage() == "unlucky raised and is stopped"
    assert record.exc_info[0] is ValueError


async def test_a_restart_keeps_address_queue_watchers_and_names(caplog):
    async with stage() as (system, probe, letters):
        log = []
        recorder = system.spawn(Recorder, log, strategy=restart)
        probe.watch(recorder)
        system.registry.register("it", recorder)
        first = []

        def queue_and_raise(actor):
            first.append(actor)
            recorder.tell("one")
            recorder.tell("two")
            raise ValueError

        recorder.tell(queue_and_raise)
        recorder.tell(first.append)
        assert log == ["one", "two"]
        assert first[0] is not first[1]
        assert system.registry["it"] is recorder
        assert [letter.message for letter in letters] == [queue_and_raise]
        recorder.tell(stop)
        assert probe.messages == [actors.Stopped(recorder, StopReason.STOPPED)]
        assert system.statistics().restarts == 1
    assert caplog.records[0].levelno == logging.WARNING


async def test_the_fourth_failure_in_five_seconds_escalates(autojump_clock):
    with pytest.RaisesGroup(ValueError):
        async with stage() as (system, _, _):
            recorder = system.spawn(Recorder, strategy=restart)
            for _ in range(3):
                recorder.tell(boom)
                await trio.sleep(1)
            await trio.sleep(2.5)  # the first is out of the window now
            recorder.tell(boom)
            assert not recorder.stopped
            recorder.tell(boom)
            assert recorder.stopped
            assert system.statistics().restarts == 4
            await trio.sleep_forever()


async def test_the_strategy_is_told_who_what_and_how_often(autojump_clock):
    async with stage() as (system, _, _):
        asked = []

        def strategy(child, error, failures):
            asked.append((child, str(error), failures))
            return Directive.RESTART if failures < 2 else Directive.STOP

        recorder = system.spawn(Recorder, strategy=strategy)
        recorder.tell(boom)
        await trio.sleep(6)
        recorder.tell(boom)
        recorder.tell(boom)
        assert asked == [(recorder, "boom", 1), (recorder, "boom", 1), (recorder, "boom", 2)]
        assert recorder.stopped


async def test_to_escalate_is_to_let_the_parent_fail():
    async with stage() as (system, probe, letters):
        children, incarnations = [], []

        def parent(cell):
            incarnations.append(cell)
            children.append(cell.spawn(Recorder, strategy=escalate))
            return Recorder(cell)

        root = system.spawn(parent, strategy=restart)
        probe.watch(children[0])
        children[0].tell(boom)
        assert probe.messages == [actors.Stopped(children[0], StopReason.FAILED)]
        assert not root.stopped
        assert len(incarnations) == 2
        assert not children[1].stopped
        assert [letter.message for letter in letters] == [boom]


async def test_a_root_that_escalates_ends_the_system():
    with pytest.RaisesGroup(ValueError):
        async with stage() as (system, probe, _):
            root = system.spawn(Recorder, strategy=escalate)
            assert root.tell(boom) is None
            assert probe.address.tell("the teller goes on") is None
            await trio.sleep_forever()


async def test_a_root_that_escalates_a_cancellation_ends_the_system_with_a_word():
    def fail(_):
        raise stray_cancelled()

    async def escalate_it():
        async with stage() as (system, _, _):
            system.spawn(Recorder, strategy=escalate).tell(fail)
            await trio.sleep_forever()

    with pytest.raises(RuntimeError, match="was ended by a cancellation that was not meant for it"):
        await escalate_it()


async def test_a_strategy_that_raises_escalates_its_own_exception():
    def blunder(*_):
        raise KeyError("the strategy")

    with pytest.RaisesGroup(KeyError) as info:
        async with stage() as (system, _, _):
            system.spawn(Recorder, strategy=blunder).tell(boom)
            await trio.sleep_forever()
    (error,) = info.value.exceptions
    assert isinstance(error.__context__, ValueError)


async def test_a_factory_that_raises_on_restart_is_a_failure_like_any_other():
    with pytest.RaisesGroup(OSError):
        async with stage() as (system, _, _):
            made = []

            def factory(cell):
                made.append(cell)
                if len(made) > 1:
                    raise OSError("gone")
                return Recorder(cell)

            recorder = system.spawn(factory, strategy=restart)
            recorder.tell(boom)
            assert recorder.stopped
            assert len(made) == 4
            await trio.sleep_forever()


async def test_who_asked_to_stop_and_raised_is_not_restarted():
    async with stage() as (system, probe, _):
        recorder = system.spawn(Recorder, strategy=restart)
        probe.watch(recorder)
        recorder.tell(lambda recorder: recorder.cell.stop() or boom(None))
        assert probe.messages == [actors.Stopped(recorder, StopReason.FAILED)]


async def test_a_callback_that_asks_to_stop_prevents_the_restart():
    async with stage() as (system, probe, _):
        made = []

        def factory(cell):
            made.append(cell)
            cell.on_stop(lambda _: cell.stop())
            return Recorder(cell)

        recorder = system.spawn(factory, strategy=restart)
        probe.watch(recorder)
        recorder.tell(boom)
        assert probe.messages == [actors.Stopped(recorder, StopReason.STOPPED)]
        assert len(made) == 1


@pytest.mark.parametrize("make", FAULTS.values(), ids=FAULTS)
async def test_what_is_no_exception_is_supervised_as_well(make, caplog):
    def fail(_):
        raise make()

    async with stage() as (system, probe, _):
        recorder = system.spawn(Recorder, name="unlucky")
        probe.watch(recorder)
        recorder.tell(lambda actor: actor.cell.on_stop(fail))
        system.tap_dead_letters(fail)
        recorder.tell(fail)
        assert probe.messages == [actors.Stopped(recorder, StopReason.FAILED)]
    assert [record.getMessage()[:29] for record in caplog.records] == [
        "a tap of the dead letters rai",
        "unlucky raised and is stopped",
        "unlucky: a callback of on_sto",
    ]


async def test_a_callback_that_is_interrupted_ends_the_system():
    def leave(_):
        raise KeyboardInterrupt

    with pytest.RaisesGroup(KeyboardInterrupt):
        async with stage() as (system, _, _):
            recorder = system.spawn(Recorder)
            recorder.tell(lambda recorder: recorder.cell.on_stop(leave))
            system.stop(recorder)
            await trio.sleep_forever()


async def test_a_failure_of_five_seconds_ago_counts_no_more(autojump_clock):
    counts = []

    def count(_address, _error, failures):
        counts.append(failures)
        return Directive.RESTART

    async with stage() as (system, _, _):
        recorder = system.spawn(Recorder, strategy=count)
        recorder.tell(boom)
        await trio.sleep(5)
        recorder.tell(boom)
        await trio.sleep(4.75)
        recorder.tell(boom)
    assert counts == [1, 1, 2]
