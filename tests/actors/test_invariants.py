"""The nine invariants of the actor library, each as a property of random programs."""

import contextlib
from unittest import mock

import mcpbus_actors as actors
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from mcpbus_actors import _dispatch
from swarm import Swarm
from swarm_programs import programs

thorough = settings(max_examples=60)


def balanced(swarm):
    now = swarm.system.statistics()
    assert now.accepted == now.handled + now.discarded + now.queued


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_1_the_accounts_balance_and_each_envelope_has_one_fate(program, budget, _):
    swarm = Swarm()
    swarm.checks.append(balanced)
    swarm.run(program, budget)
    assert swarm.faults == []
    balanced(swarm)
    assert swarm.system.statistics().queued == 0
    for number in swarm.accepted:
        # Handled, or a dead letter, or both: the poisonous message is handed over and then discarded.
        fates = swarm.letters[number]
        assert len(fates) == 1 or (not fates and len(swarm.handled[number]) == 1)
        if swarm.handled[number]:
            assert fates in ([], [actors.DeadLetterReason.FAILED])
    for number, discard in swarm.refused.items():
        assert swarm.letters[number] == [discard]
        assert swarm.handled[number] == []


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_2_one_message_at_a_time_and_fifo_per_sender(program, budget, _):
    swarm = Swarm().run(program, budget)
    assert not [fault for fault in swarm.faults if "interleaved" in fault]
    for (sender, _recipient), numbers in swarm.order.items():
        if isinstance(sender, str):  # timers of actors have an order of their own
            assert numbers == sorted(numbers)


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_3_tell_never_raises_and_every_queue_has_a_bound(program, budget, _):
    swarm = Swarm().run(program, budget)
    assert not [fault for fault in swarm.faults if "raised" in fault or "wait" in fault or "room" in fault]


@given(st.integers(1, 8), st.lists(st.sampled_from(["speech", "cancel"]), max_size=40))
def test_invariant_3_a_turn_finds_a_full_mailbox_closed_to_what_is_expendable_and_to_nothing_else(
    capacity, flood
):
    class Flooder:
        def __init__(self, cell, victim):
            self.victim = victim

        def handle(self, message):
            taken = []
            for word in flood:
                room = len(taken) < capacity
                assert self.victim.tell(word) is (
                    None if room or word == "cancel" else actors.DeadLetterReason.FULL
                )
                if room or word == "cancel":
                    taken.append(word)
            expected.extend(taken)

    expected = []

    async def main():
        async with actors.open_system(expendable=lambda message: message == "speech") as system:
            probe = actors.testing.Probe(system, capacity=capacity)
            flooder = system.spawn(Flooder, probe.address)
            assert flooder.tell("go") is None
            assert not flooder.stopped, "an assertion in the flooder failed"
            assert probe.messages == expected

    trio.run(main)


@given(st.integers(1, 8), st.lists(st.sampled_from(["speech", "cancel"]), max_size=40), st.integers(1, 5))
def test_invariant_3_a_task_finds_room_in_every_mailbox_and_none_holds_more_than_it_may(
    capacity, flood, budget
):
    class Restless:
        def __init__(self, cell):
            self.cell = cell

        def handle(self, message):
            self.cell.address.tell(message)

    async def main():
        async with actors.open_system(expendable=lambda message: message == "speech") as system:
            system.spawn(Restless).tell("for ever")
            assert system.dispatcher.behind
            probe = actors.testing.Probe(system, capacity=capacity)
            for word in flood:
                assert probe.address.tell(word) is None
                assert system.statistics().queued <= 1 + capacity
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            assert probe.messages == flood

    with mock.patch.object(_dispatch, "BUDGET", budget):
        trio.run(main)


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_4_every_ask_ends(program, budget, _):
    swarm = Swarm().run(program, budget)
    assert not [fault for fault in swarm.faults if "ask" in fault]
    # Those that a surfacing exception cancelled have ended, too, but have no result.
    assert len(swarm.asks) == swarm.asks_put or swarm.crashes


@given(st.sampled_from(["keep and stop", "keep, then raise", "keep, then stop", "raise", "ignore"]))
def test_invariant_4_an_ask_ends_with_the_actor_that_keeps_it(manner):
    class Keeper:
        def __init__(self, cell):
            self.cell = cell

        def handle(self, message):
            if manner == "raise" or message == "raise":
                raise ValueError
            if manner == "keep and stop" or message == "stop":
                self.cell.stop()

    async def main():
        async with actors.open_system() as system:
            strategy = (lambda *_: actors.Directive.RESTART) if "raise" in manner else None
            keeper = system.spawn(Keeper, strategy=strategy)
            async with trio.open_nursery() as nursery:

                async def ask():
                    expected = actors.AskTimeoutError if manner == "ignore" else actors.AskFailedError
                    with pytest.raises(expected):
                        await keeper.ask("question", timeout=7)
                    assert trio.current_time() - start == (7 if manner == "ignore" else when)

                start = trio.current_time()
                when = 1 if "then" in manner else 0
                nursery.start_soon(ask)
                await trio.sleep(1)
                if "then" in manner:
                    keeper.tell(manner.split()[-1])

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_5_no_instance_handles_after_it_raised_and_nothing_is_handled_twice(program, budget, _):
    swarm = Swarm().run(program, budget)
    assert not [fault for fault in swarm.faults if "after its end" in fault]
    assert all(len(recipients) == 1 for recipients in swarm.handled.values() if recipients)


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_6_an_address_is_never_rebound(program, budget, _):
    gone = {}

    def gone_stay_gone(swarm):
        for address in swarm.addresses:
            if address in gone:
                assert address.stopped
                assert address.tell("anything") is gone[address]
            elif address.stopped and not swarm.system.dispatcher.busy:
                gone[address] = address.tell("anything")
                assert gone[address] is not None

    swarm = Swarm()
    swarm.checks.append(gone_stay_gone)
    swarm.run(program, budget)
    gone_stay_gone(swarm)
    assert all(len(others) == 1 for others in swarm.bound.values())  # of cells to addresses, and back
    assert len(set(swarm.addresses)) == len(swarm.addresses)
    assert not [fault for fault in swarm.faults if "accepted a message after" in fault]


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_7_registrations_vanish_with_their_owner(program, budget, _):
    def only_the_living(swarm):
        for address in swarm.system.registry.values():
            # One that is asked to stop keeps its names until its turn comes.
            assert not address.stopped or swarm.system.dispatcher.busy

    swarm = Swarm()
    swarm.checks.append(only_the_living)
    swarm.run(program, budget)
    assert dict(swarm.system.registry) == {}
    assert swarm.system.registry._names == {}


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_8_no_task_outlives_the_system_and_no_exception_vanishes(program, budget, _):
    swarm = Swarm().run(program, budget)
    assert swarm.planned == swarm.ended
    assert swarm.system.statistics().tasks == 0
    heard = {
        id(end.outcome.exception) for end in swarm.ends if isinstance(end.outcome, actors.Failed)
    } | swarm.seen
    assert [crash for crash in swarm.crashes if id(crash) not in heard] == []


@given(st.lists(st.sampled_from(["return", "raise", "sleep", "linger"]), max_size=6), st.booleans())
def test_invariant_8_tasks_end_with_the_block_however_it_is_left(kinds, by_exception):
    class Owner:
        def __init__(self, cell):
            for kind in kinds:
                cell.start_task(swarm.work, kind, context=trio.lowlevel.current_task().context)

        def handle(self, message):
            pass

    swarm = Swarm()

    async def main():
        with contextlib.suppress(ExceptionGroup):
            async with actors.open_system() as system:
                system.spawn(Owner)
                await trio.sleep(0.1)
                if by_exception:
                    raise ValueError
        assert swarm.ended == len(kinds)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@thorough
@given(programs(), st.integers(1, 5), st.random_module())
def test_invariant_9_an_idle_actor_holds_no_task(program, budget, _):
    def tasks_have_a_purpose(swarm):
        system = swarm.system
        tasks = [task for task in system.dispatcher.nursery.child_tasks if "_raise" not in task.name]
        work = swarm.planned - swarm.ended
        assert len(tasks) <= work + system.dispatcher.busy + bool(system.timers._heap)

    swarm = Swarm()
    swarm.checks.append(tasks_have_a_purpose)
    swarm.run(program, budget)
