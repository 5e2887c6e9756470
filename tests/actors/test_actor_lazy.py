"""Lazy actors: dormant until their address is asked for, and then no different from what they were."""

import logging
from typing import Any

import pytest
import trio
from actor_doubles import Recorder, Restless, stage
from hypothesis import given, settings
from hypothesis import strategies as st
from mcpbus_actors import (
    DeadLetterReason,
    Failed,
    LazyActor,
    LifecycleError,
    Stopped,
    StopReason,
    TaskEnded,
    testing,
)

BOTH = pytest.mark.parametrize("awake", [False, True], ids=["dormant", "active"])


class Anything(dict):
    """Handles messages of every type by one function."""

    def __init__(self, function):
        self.function = function

    def __missing__(self, _):
        return self.function


class Lazy(LazyActor[Any], kw_only=True, eq=False):
    """Keeps what it handles; a callable message is called with it."""

    log: list[Any]
    end: Any = None
    start: Any = None

    def keep(self, message):
        if callable(message):
            message(self)
        else:
            self.log.append(message)

    HANDLERS = Anything(keep)

    def activated(self, cell):
        if self.start is not None:
            self.start(cell)

    def ended(self, reason):
        self.log.append(reason)
        if self.end is not None:
            self.end(reason)


def make(system, *, awake=False, **fields):
    lazy = Lazy(system, log=[], **fields)
    if awake:
        assert lazy.address is not None
    return lazy


def boom(*_):
    raise ValueError("boom")


def end(lazy):
    lazy.stop()


async def test_what_nobody_asks_for_has_neither_cell_nor_account():
    async with stage() as (system, _, _):
        before = system.statistics()
        lazy = make(system)
        assert lazy.tell("hello") is None
        assert lazy.log == ["hello"]
        assert not lazy.stopped
        lazy.tell(end)
        assert lazy.stopped
        assert lazy.log == ["hello", StopReason.STOPPED]
        assert not lazy.active
        assert system.statistics() == before


@BOTH
async def test_it_is_at_rest_unless_somebody_is_at_work_or_it_has_ended(awake):
    async with stage() as (system, _, _):
        lazy, other = make(system, awake=awake), make(system)
        assert lazy.at_rest
        lazy.tell(lambda itself: itself.log.append(itself.at_rest))
        assert lazy.log == [False]
        other.tell(lambda _: lazy.log.append(lazy.at_rest))
        assert lazy.log == [False, not awake]
        assert lazy.at_rest
        lazy.tell(end)
        assert not lazy.at_rest


async def test_its_address_is_there_as_soon_as_somebody_asks():
    async with stage() as (system, probe, _):
        lazy = make(system)
        lazy.tell("dormant")
        address = lazy.address
        assert lazy.active
        assert lazy.address is address
        probe.watch(address)
        address.tell("active")
        lazy.tell(end)
        assert lazy.log == ["dormant", "active", StopReason.STOPPED]
        assert probe.messages == [Stopped(address, StopReason.STOPPED)]


@BOTH
async def test_what_it_tells_others_waits_for_the_end_of_its_turn(awake):
    async with stage() as (system, probe, _):
        lazy = make(system, awake=awake)

        def speak(lazy):
            probe.address.tell("first")
            lazy.log.append(list(probe.messages))

        lazy.tell(speak)
        assert lazy.log == [[]]
        assert probe.messages == ["first"]


@BOTH
async def test_what_it_tells_itself_waits_for_the_end_of_its_turn(awake):
    async with stage() as (system, _, _):
        lazy = make(system, awake=awake)

        def again(lazy):
            lazy.tell("second")
            lazy.log.append("first")

        lazy.tell(again)
        assert lazy.log == ["first", "second"]


async def test_its_maker_tells_it_in_the_middle_of_a_turn():
    async with stage() as (system, probe, _):
        lazy = make(system)
        maker = system.spawn(Recorder)

        def turn(_):
            lazy.tell(lambda _: probe.address.tell("said"))
            lazy.tell("heard")
            assert lazy.log == ["heard"]
            assert probe.messages == []

        maker.tell(turn)
        assert probe.messages == ["said"]


async def test_it_takes_something_within_its_makers_turn_while_it_is_dormant_and_not_at_work():
    async with stage() as (system, probe, _):
        lazy, maker = make(system), make(system)

        def nested(lazy):
            probe.address.tell("said")
            lazy.log.append(lazy.take("late"))

        def turn(maker):
            maker.log.append(
                (lazy.take("early"), lazy.take(nested), list(probe.messages), lazy.address.stopped)
            )
            maker.log.append(lazy.take("active"))

        maker.tell(turn)
        assert maker.log == [(True, True, [], False), False]
        assert lazy.log == ["early", False]
        assert probe.messages == ["said"]


@pytest.mark.parametrize("word", [end, boom])
async def test_what_ends_in_what_it_takes_has_ended_before_its_maker_goes_on(word):
    async with stage() as (system, _, letters):
        lazy, maker = make(system), make(system)
        maker.tell(lambda maker: maker.log.append((lazy.take(word), lazy.stopped)))
        assert maker.log == [(True, True)]
        assert lazy.log == [StopReason.STOPPED if word is end else StopReason.FAILED]
        assert [letter.message for letter in letters] == ([] if word is end else [boom])


@BOTH
async def test_what_it_raises_is_the_supervisors_affair(awake, caplog):
    async with stage() as (system, _, letters):
        lazy = make(system, awake=awake)
        assert lazy.tell(boom) is None
        assert lazy.stopped
        assert lazy.log == [StopReason.FAILED]
        assert [(letter.message, letter.reason) for letter in letters] == [(boom, DeadLetterReason.FAILED)]
        assert letters[0].recipient is lazy.address
        assert lazy.tell("late") is DeadLetterReason.FAILED
        assert "raised and is stopped" in caplog.text
        now = system.statistics()
        assert (now.failures, now.accepted) == (1, now.handled + now.discarded)


@BOTH
async def test_what_is_told_to_one_that_has_stopped_is_refused(awake):
    async with stage() as (system, _, letters):
        lazy = make(system, awake=awake)
        lazy.stop()
        lazy.stop()
        assert lazy.stopped
        assert lazy.address.stopped
        assert lazy.tell("late") is DeadLetterReason.STOPPED
        assert lazy.address.tell("later") is DeadLetterReason.STOPPED
        assert [letter.message for letter in letters] == ["late", "later"]
        assert lazy.log == [StopReason.STOPPED]
        with pytest.raises(LifecycleError):
            lazy.cell.after(0, "never")


@BOTH
async def test_one_that_stops_in_a_turn_takes_nothing_more_and_ends_after_it(awake):
    async with stage() as (system, _, letters):
        lazy = make(system, awake=awake)

        def stop(lazy):
            lazy.stop()
            lazy.log.append((lazy.stopped, lazy.tell("late"), lazy.address.tell("later")))

        lazy.tell(stop)
        assert lazy.log == [(True, DeadLetterReason.STOPPED, DeadLetterReason.STOPPED), StopReason.STOPPED]
        assert [letter.reason for letter in letters] == [DeadLetterReason.STOPPED] * 2


@BOTH
async def test_one_that_stops_and_raises_has_failed(awake):
    async with stage() as (system, _, letters):
        lazy = make(system, awake=awake)

        def fail(lazy):
            lazy.stop()
            raise ValueError("boom")

        lazy.tell(fail)
        assert lazy.log == [StopReason.FAILED]
        assert [letter.reason for letter in letters] == [DeadLetterReason.FAILED]


@BOTH
async def test_what_is_told_at_its_end_waits_for_that_and_for_the_turn_that_it_is_in(awake):
    async with stage() as (system, probe, _):
        heard = []

        def leave(_):
            probe.address.tell("gone")
            heard.append(list(probe.messages))

        def turn(_):
            make(system, awake=awake, end=leave).stop()
            heard.append(list(probe.messages))

        make(system, awake=awake, end=leave).stop()
        system.spawn(Recorder).tell(turn)
        assert heard == [[], ["gone"], ["gone"]]
        assert probe.messages == ["gone", "gone"]


async def test_the_address_of_one_that_stopped_while_dormant_activates_nobody():
    async with stage() as (system, _, _):
        maker = make(system)
        lazy = make(system, maker=maker)
        lazy.stop()
        assert lazy.address.stopped
        assert not maker.active


@BOTH
async def test_what_its_end_raises_is_logged(awake, caplog):
    async with stage() as (system, _, _):
        lazy = make(system, awake=awake, end=boom)
        lazy.tell(end)
        assert lazy.stopped
        assert "a callback of on_stop raised" in caplog.text
        assert system.statistics().failures == 1


async def test_an_interrupt_ends_the_system_and_not_the_teller():
    def interrupt(*_):
        raise KeyboardInterrupt

    for fields, message in (({}, interrupt), ({"end": interrupt}, end)):
        with pytest.RaisesGroup(KeyboardInterrupt):
            async with stage() as (system, _, _):
                lazy = make(system, **fields)
                assert lazy.tell(message) is None
                assert lazy.stopped
                await trio.sleep_forever()


async def test_it_activates_itself_for_what_takes_a_cell(autojump_clock):
    async with stage() as (system, _, _):
        lazy = make(system)
        lazy.tell(lambda lazy: lazy.cell.after(1, "later"))
        assert lazy.active
        await trio.sleep(2)
        assert lazy.log == ["later"]


async def test_its_maker_is_activated_before_it():
    async with stage() as (system, _, _):
        maker = make(system)
        lazy = make(system, maker=maker)
        maker.start = lambda cell: cell.watch(lazy.address)
        assert not maker.active
        system.stop(lazy.address)
        assert maker.active
        assert [type(message) for message in maker.log] == [Stopped]


async def test_one_that_cannot_be_activated_has_failed(caplog):
    async with stage() as (system, _, letters):
        lazy = make(system, start=boom)
        with pytest.raises(ValueError, match="boom"):
            lazy.address  # noqa: B018 - it is asked for
        assert lazy.stopped
        assert lazy.log == [StopReason.FAILED]
        assert lazy.tell("late") is DeadLetterReason.FAILED
        caplog.clear()
        other = make(system, start=boom)
        assert other.tell(boom) is None
        assert other.stopped
        assert [letter.reason for letter in letters] == [DeadLetterReason.FAILED] * 2
        assert "could not be activated" in caplog.text
        assert "raised, and has ended already" in caplog.text
        assert not system.dispatcher.busy
        now = system.statistics()
        assert now.accepted == now.handled + now.discarded


async def test_one_whose_system_has_closed_ends_when_it_raises(caplog):
    async with stage() as (system, _, _):
        lazy = make(system)
    assert lazy.tell(boom) is None
    assert lazy.log == [StopReason.STOPPED]
    assert "could not be activated" in caplog.text
    assert not system.dispatcher.busy


async def test_no_turns_are_taken_within_its_own_where_the_system_is_behind(autojump_clock):
    async with stage() as (system, _, _):
        system.spawn(Restless).tell("on and on")
        full = system.spawn(Recorder, capacity=1)
        assert system.dispatcher.behind
        lazy = make(system)

        def crowd(lazy):
            lazy.tell("mine")
            assert full.tell("first") is None
            assert full.tell("second") is DeadLetterReason.FULL
            lazy.log.append(system.dispatcher.behind)

        lazy.tell(crowd)
        assert lazy.log == [False]
        assert system.dispatcher.behind
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert lazy.log == [False, "mine"]


@pytest.mark.parametrize("wakes", [False, True])
async def test_where_the_system_is_not_behind_a_turn_leaves_it_so(wakes, autojump_clock):
    async with stage() as (system, _, _):
        lazy = make(system)
        lazy.tell((lambda lazy: lazy.address) if wakes else "mine")
        assert (lazy.active, system.dispatcher.behind, system.dispatcher.busy) == (wakes, False, False)


# -- dormant and active are alike ----------------------------------------------------------------

says = st.tuples(st.just("say"), st.integers(0, 9))
wakes, stops, raises = (st.just((word,)) for word in ("wake", "stop", "raise"))
plain = st.lists(st.one_of(says, says, wakes, stops, raises), max_size=4)
parent = st.one_of(says, says, wakes, stops, raises, st.tuples(st.sampled_from(["child", "taken"]), plain))
later = st.tuples(st.sampled_from(["self", "timer", "task"]), plain)
from_tasks = st.lists(st.lists(st.one_of(parent, parent, later), max_size=5), max_size=5)
in_turns = st.lists(st.lists(st.lists(parent, max_size=4), max_size=3), max_size=3)


class Actor(LazyActor[Any], kw_only=True, eq=False):
    """Does what it is told, word by word, and has what came of it noted."""

    name: str
    notes: dict[str, list[Any]]
    ear: Any
    child: "Actor | None" = None
    busy: bool = False

    def obey(self, message):
        assert not self.busy, "two messages at a time"
        self.busy = True
        try:
            self.note("handled", message)
            for word, *more in message if isinstance(message, list) else ():
                self.do(word, *more)
        finally:
            self.busy = False

    HANDLERS = Anything(obey)

    def note(self, *what):
        self.notes.setdefault(self.name, []).append(
            tuple("an end" if isinstance(part, TaskEnded) else part for part in what)
        )

    def do(self, word, *more):
        match word:
            case "say":
                self.note("accepted", self.ear.tell((self.name, *more)))
            case "wake":
                self.note("stopped", self.address.stopped)
            case "stop":
                self.stop()
            case "raise":
                raise ValueError(self.name)
            case "child":
                self.note("child", self.child.tell(*more) is None or self.child.stopped)
            case "taken":
                taken = self.child.take(*more) or self.child.tell(*more) is None
                self.note("child", taken or self.child.stopped)
            case "self":
                self.note("self", self.tell(*more))
            case "timer":
                self.cell.after(0.5, *more)
            case "task":
                self.cell.start_task(trio.sleep, 0, context=trio.lowlevel.current_task().context)

    def ended(self, reason):
        self.note("ended", reason)


def run(script, told, *, awake):
    """Run a script, and return what each actor noted, what was said by each, and what was not handled."""
    notes: dict[str, list[Any]] = {}

    async def main():
        async with stage() as (system, probe, letters):
            child = Actor(system, name="child", notes=notes, ear=probe.address)
            lazy = Actor(system, name="lazy", notes=notes, ear=probe.address, child=child)
            if awake:
                assert lazy.address
                assert child.address
            await told(script, system, lazy, probe.address)
            await testing.wait_until_idle(system)
            await trio.sleep(1)
            for name in ("lazy", "child", "maker"):
                notes[f"{name} said"] = [said for said in probe.messages if said[0] == name]
            for actor in (lazy, child):
                notes[f"{actor.name}'s letters"] = [
                    (None if isinstance(letter.message, TaskEnded) else letter.message, letter.reason)
                    for letter in letters
                    if letter.recipient is actor.address
                ]
                actor.stop()
                assert actor.address.stopped
            now = system.statistics()
            assert now.accepted == now.handled + now.discarded
            assert not system.dispatcher.busy

    logging.disable()
    try:
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        logging.disable(logging.NOTSET)
    return notes


async def by_a_task(script, system, lazy, ear):
    for message in script:
        lazy.tell(message)


async def by_a_maker(script, system, lazy, ear):
    def turn(messages):
        for number, message in enumerate(messages):
            ear.tell(("maker", number))
            lazy.tell(message)

    maker = system.spawn(Recorder)
    for messages in script:
        maker.tell(lambda _, messages=messages: turn(messages))


alike = settings(max_examples=100)


@alike
@given(from_tasks)
def test_whether_it_is_dormant_makes_no_difference_to_what_a_task_tells_it(script):
    assert run(script, by_a_task, awake=False) == run(script, by_a_task, awake=True)


@alike
@given(in_turns)
def test_nor_does_it_to_what_its_maker_tells_it_in_the_middle_of_a_turn(script):
    assert run(script, by_a_maker, awake=False) == run(script, by_a_maker, awake=True)


async def test_a_task_that_fails_is_heard_of_by_what_has_started_it(autojump_clock):
    async with stage() as (system, _, _):
        lazy = make(system)

        async def fail():
            raise ValueError("boom")

        lazy.tell(lambda lazy: lazy.cell.start_task(fail, context=trio.lowlevel.current_task().context))
        await testing.wait_until_idle(system)
        assert isinstance(lazy.log[0].outcome, Failed)
