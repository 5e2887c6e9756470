"""Addresses: telling an actor something, and what becomes of it where its queue is full or it has ended."""

import contextvars
import copy
import pickle

import mcpbus_actors as actors
import pytest
import trio
from actor_doubles import Recorder, Restless, stage, stop
from mcpbus_actors import DeadLetterReason, _dispatch
from mcpbus_actors._dispatch import CATCH_UP


async def test_tell_to_an_idle_actor_is_handled_before_it_returns():
    async with stage() as (_, probe, _):
        assert probe.address.tell("hello") is None
        assert probe.messages == ["hello"]


async def test_a_stopped_address_refuses_and_the_refusal_is_a_dead_letter():
    async with stage() as (system, probe, letters):
        system.stop(probe.address)
        assert probe.address.stopped
        assert probe.address.tell("late") is DeadLetterReason.STOPPED
        assert letters == [actors.DeadLetter(probe.address, "late", DeadLetterReason.STOPPED)]


async def test_an_actor_refuses_from_the_moment_it_asks_to_stop():
    async with stage() as (system, _, letters):
        outcomes = []

        def stop_and_tell(recorder):
            address = recorder.cell.address
            outcomes.append(address.tell("before"))
            recorder.cell.stop()
            outcomes.extend([address.tell("after"), address.stopped])

        recorder = system.spawn(Recorder)
        recorder.tell(stop_and_tell)
        assert outcomes == [None, DeadLetterReason.STOPPED, True]
        assert [letter.message for letter in letters] == ["after", "before"]


async def test_a_closed_system_refuses_with_closed():
    async with stage() as (_, probe, _):
        pass
    assert probe.address.tell("late") is DeadLetterReason.CLOSED


async def test_a_full_queue_refuses_and_keeps_what_it_has():
    async with stage() as (system, _, letters):
        log = []
        small = system.spawn(Recorder, log, capacity=2)

        def flood(_):
            outcomes.append([small.tell(number) for number in range(3)])

        outcomes = []
        for _ in range(2):  # its room is the same each time
            system.spawn(Recorder).tell(flood)
        assert outcomes == [[None, None, DeadLetterReason.FULL]] * 2
        assert log == [0, 1, 0, 1]
        assert [(letter.message, letter.reason) for letter in letters] == [(2, DeadLetterReason.FULL)] * 2


async def test_what_is_not_expendable_is_taken_by_a_full_queue_and_keeps_its_place_in_the_order():
    log = []
    async with actors.open_system(expendable=lambda message: message != "cancel") as system:
        small = system.spawn(Recorder, log, capacity=1)

        def flood(_):
            words = ["first", "refused", "cancel", "refused", "cancel"]
            assert [small.tell(word) for word in words] == [
                None,
                DeadLetterReason.FULL,
                None,
                DeadLetterReason.FULL,
                None,
            ]

        system.spawn(Recorder).tell(flood)
        assert log == ["first", "cancel", "cancel"]


async def test_whoever_finds_a_queue_full_while_nothing_is_handled_has_the_rest_handled_first():
    async with stage() as (system, _, letters):
        log = []
        system.spawn(Restless).tell("for ever")
        small = system.spawn(Recorder, log, capacity=3)
        assert [small.tell(number) for number in range(3)] == [None, None, None]
        assert log == []
        assert small.tell(3) is None
        assert small.tell(4) is None
        assert log == [0, 1, 2]
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert log == [0, 1, 2, 3, 4]
        assert letters == []


async def test_an_actor_that_stops_while_room_is_made_in_its_queue_refuses():
    async with stage() as (system, _, letters):
        small = system.spawn(Recorder, capacity=1)
        system.spawn(Restless).tell("for ever")
        assert small.tell(stop) is None
        assert small.tell("late") is DeadLetterReason.STOPPED
        assert [letter.message for letter in letters] == ["late"]


@pytest.mark.parametrize("turns", range(1, 3 * CATCH_UP))
async def test_an_actor_that_is_to_stop_refuses_whoever_makes_room_also_if_its_end_is_left_to_the_task(
    turns, monkeypatch
):
    monkeypatch.setattr(_dispatch, "BUDGET", 1)

    def count_down(recorder):
        nonlocal left
        left -= 1
        if left == 0:
            system.stop(small)
        recorder.cell.address.tell(count_down)

    async with stage() as (system, _, _):
        small = system.spawn(Recorder, capacity=1)
        left = 1_000_000
        system.spawn(Recorder).tell(count_down)
        assert small.tell("first") is None
        left = turns
        assert small.tell("second") is (DeadLetterReason.STOPPED if small.stopped else None)
        assert small.stopped is (turns < 2 * CATCH_UP)


async def test_no_room_is_made_in_a_turn_that_the_task_takes():
    async with stage() as (system, _, _):
        log = []
        small = system.spawn(Recorder, log, capacity=1)

        def flood(_):
            log.append([small.tell("first"), small.tell("refused")])

        system.spawn(Restless).tell("for ever")
        system.spawn(Recorder).tell(flood)
        assert log == []
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert log == [[None, DeadLetterReason.FULL], "first"]


async def test_no_room_is_made_while_an_actor_comes_to_life():
    async with stage() as (system, _, letters):
        log = []

        def tell_itself(cell):
            for number in range(2):
                cell.address.tell(number)
            return Recorder(cell, log)

        system.spawn(Restless).tell("for ever")
        system.spawn(tell_itself, capacity=1)
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert log == [0]
        assert [(letter.message, letter.reason) for letter in letters] == [(1, DeadLetterReason.FULL)]


async def test_nothing_works_from_another_thread():
    async with stage() as (system, probe, _):
        ask = actors.Ask("question", system.dispatcher)
        other = system.spawn(Recorder)

        def elsewhere():
            for call in (
                lambda: probe.address.tell("message"),
                lambda: system.spawn(Recorder),
                lambda: system.stop(probe.address),
                lambda: ask.reply("answer"),
                lambda: probe._cell.start_task(trio.sleep_forever, context=contextvars.Context()),
                lambda: probe._cell.after(1, "message"),
                lambda: probe._cell.watch(other),
                probe._cell.stop,
            ):
                with pytest.raises(RuntimeError, match=r"trio\.from_thread"):
                    call()
            trio.from_thread.run_sync(probe.address.tell, "the right way")

        await trio.to_thread.run_sync(elsewhere)
        assert probe.messages == ["the right way"]


async def test_an_address_is_made_by_spawn_alone_and_is_itself_alone():
    async with stage() as (system, probe, _):
        with pytest.raises(TypeError, match="spawning"):
            actors.Address()
        with pytest.raises(TypeError, match="own process"):
            pickle.dumps(probe.address)
        with pytest.raises(TypeError):
            copy.copy(probe.address)
        other = system.spawn(Recorder, name="probe")
        assert other.name == probe.address.name
        assert other != probe.address
        assert {probe.address: 1}[probe.address] == 1


async def test_names_are_made_when_asked_for_and_kept():
    async with stage() as (system, _, _):
        first, second = system.spawn(Recorder), system.spawn(Recorder)
        assert second.name == "test-1"
        assert (first.name, second.name) == ("test-2", "test-1")
        assert repr(first) == "<Address test-2>"
        first.tell(stop)
        assert repr(first) == "<Address test-2 stopped>"
