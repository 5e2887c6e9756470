import copy
import pickle

import pytest
import trio
from actor_doubles import Recorder, stage, stop

import actors
from actors import Discard


async def test_tell_to_an_idle_actor_is_handled_before_it_returns():
    async with stage() as (_, probe, _):
        assert probe.address.tell("hello") is None
        assert probe.messages == ["hello"]


async def test_a_stopped_address_refuses_and_the_refusal_is_a_dead_letter():
    async with stage() as (system, probe, letters):
        system.stop(probe.address)
        assert probe.address.stopped
        assert probe.address.tell("late") is Discard.STOPPED
        assert letters == [actors.DeadLetter(probe.address, "late", Discard.STOPPED)]


async def test_an_actor_refuses_from_the_moment_it_asks_to_stop():
    async with stage() as (system, _, letters):
        outcomes = []

        def stop_and_tell(recorder):
            address = recorder.cell.address
            outcomes.append(address.tell("before"))
            recorder.cell.stop()
            outcomes.extend([address.tell("after"), address.stopped, address.permit()])

        recorder = system.spawn(Recorder)
        recorder.tell(stop_and_tell)
        assert outcomes == [None, Discard.STOPPED, True, None]
        assert [letter.message for letter in letters] == ["after", "before"]


async def test_a_closed_system_refuses_with_closed():
    async with stage() as (_, probe, _):
        pass
    assert probe.address.tell("late") is Discard.CLOSED


async def test_a_full_queue_refuses_and_keeps_what_it_has():
    async with stage() as (system, _, letters):
        log = []
        small = system.spawn(Recorder, log, capacity=2)

        def flood(_):
            assert [small.tell(number) for number in range(3)] == [None, None, Discard.FULL]

        system.spawn(Recorder).tell(flood)
        assert log == [0, 1]
        assert [(letter.message, letter.reason) for letter in letters] == [(2, Discard.FULL)]


async def test_a_permit_has_room_beyond_capacity_and_keeps_its_place_in_the_order():
    async with stage() as (system, _, _):
        log = []
        small = system.spawn(Recorder, log, capacity=1)

        def flood(_):
            permit = small.permit()
            assert small.tell("first") is None
            assert small.tell("refused") is Discard.FULL
            assert permit.tell("second") is None

        system.spawn(Recorder).tell(flood)
        assert log == ["first", "second"]


async def test_permits_are_bounded_by_capacity_and_come_back_when_handled_or_released():
    async with stage() as (system, _, _):
        small = system.spawn(Recorder, capacity=2)
        first, second = small.permit(), small.permit()
        assert small.permit() is None
        first.release()
        first.release()
        second.tell("used")
        assert small.permit() is not None
        assert small.permit() is not None
        assert small.permit() is None


async def test_a_permit_is_good_for_one_message():
    async with stage() as (_, probe, _):
        permit = probe.address.permit()
        permit.tell("once")
        with pytest.raises(actors.LifecycleError, match="used or released"):
            permit.tell("twice")


async def test_a_permit_for_a_stopped_actor_says_so():
    async with stage() as (system, probe, letters):
        permit = probe.address.permit()
        system.stop(probe.address)
        assert permit.tell("late") is Discard.STOPPED
        assert [letter.message for letter in letters] == ["late"]


async def test_nothing_works_from_another_thread():
    async with stage() as (system, probe, _):
        permit = probe.address.permit()
        ask = actors.Ask("question", system)

        def elsewhere():
            for call in (
                lambda: probe.address.tell("message"),
                probe.address.permit,
                lambda: permit.tell("message"),
                lambda: system.spawn(Recorder),
                lambda: system.stop(probe.address),
                lambda: ask.reply("answer"),
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
