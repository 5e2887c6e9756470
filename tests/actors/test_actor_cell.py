"""What an actor does through its cell: children, watching, stopping."""

import contextvars
import gc
import weakref

import mcpbus_actors as actors
import pytest
import trio
from actor_doubles import Recorder, boom, restart, stage, stop
from mcpbus_actors import StopReason, testing
from mcpbus_actors._mailbox import NOBODY


async def test_children_end_before_their_parent_the_youngest_first():
    async with stage() as (system, _, _):
        ends = []

        class Node:
            def __init__(self, cell, name, depth):
                cell.on_stop(lambda reason: ends.append((name, reason)))
                self.cell = cell
                if depth:
                    cell.spawn(Node, name + "a", depth - 1)
                    cell.spawn(Node, name + "b", 0)

            def handle(self, message):
                self.cell.stop()

        root = system.spawn(Node, "r", 2)
        assert system.statistics().actors == 6
        root.tell("stop")
        assert [name for name, _ in ends] == ["rab", "raa", "rb", "ra", "r"]
        assert [reason for _, reason in ends] == [StopReason.PARENT] * 4 + [StopReason.STOPPED]
        assert system.statistics().actors == 1


async def test_a_deep_tree_ends_without_recursion():
    async with stage() as (system, _, _):

        class Chain:
            def __init__(self, cell):
                self.cell = cell

            def handle(self, depth):
                if depth:
                    self.cell.spawn(Chain).tell(depth - 1)

        root = system.spawn(Chain)
        root.tell(5000)
        while system.statistics().queued:
            await testing.wait_until_idle(system)
        assert system.statistics().actors > 5000
        system.stop(root)
        assert system.statistics().actors == 1


async def test_watching_tells_the_end_once():
    async with stage() as (system, probe, _):
        watched = system.spawn(Recorder)
        probe.watch(watched)
        probe.watch(watched)
        watched.tell(stop)
        assert probe.messages == [actors.Stopped(watched, StopReason.STOPPED)]
        assert not probe._cell._watching


async def test_watching_the_dead_tells_at_once_and_why():
    async with stage() as (system, probe, _):
        failed = system.spawn(Recorder)
        failed.tell(boom)
        before = system.statistics()
        probe.watch(failed)
        now = system.statistics()
        assert probe.messages == [actors.Stopped(failed, StopReason.FAILED)]
        assert (now.accepted - before.accepted, now.handled - before.handled) == (1, 1)
        assert not probe._cell._watching


async def test_watching_oneself_or_another_system_is_a_mistake():
    async with stage() as (_, probe, _), stage() as (_, other, _):
        with pytest.raises(ValueError, match="itself, or of another system"):
            probe.watch(probe.address)
        with pytest.raises(ValueError, match="itself, or of another system"):
            probe.watch(other.address)


async def test_a_watcher_that_ended_is_not_told_and_not_kept():
    async with stage() as (system, probe, letters):
        watched = system.spawn(Recorder)
        probe.watch(watched)
        probe.stop()
        assert not watched._mailbox._watchers
        watched.tell(stop)
        assert letters == []


async def test_a_stopped_notice_overtakes_ordinary_messages():
    async with stage() as (system, probe, _):
        watched = system.spawn(Recorder)
        probe.watch(watched)

        def say_and_end(recorder):
            probe.address.tell("ordinary")
            recorder.cell.stop()

        watched.tell(say_and_end)
        assert probe.messages == [actors.Stopped(watched, StopReason.STOPPED), "ordinary"]


async def test_on_stop_runs_once_in_order_and_may_tell():
    async with stage() as (system, probe, _):
        recorder = system.spawn(Recorder)

        def prepare(recorder):
            recorder.cell.on_stop(lambda reason: probe.address.tell(("first", reason)))
            recorder.cell.on_stop(boom)
            recorder.cell.on_stop(lambda reason: probe.address.tell(("third", reason)))

        recorder.tell(prepare)
        recorder.tell(stop)
        system.stop(recorder)
        assert probe.messages == [("first", StopReason.STOPPED), ("third", StopReason.STOPPED)]
        assert system.statistics().failures == 1


async def test_a_given_reason_reaches_the_watchers():
    async with stage() as (system, probe, _):
        recorder = system.spawn(Recorder)
        probe.watch(recorder)
        recorder.tell(lambda recorder: recorder.cell.stop(StopReason.FAILED))
        assert probe.messages == [actors.Stopped(recorder, StopReason.FAILED)]


async def test_a_factory_that_raises_spawns_nothing():
    async with stage() as (system, probe, _):
        ends = []

        def factory(cell):
            cell.on_stop(ends.append)
            cell.spawn(Recorder)
            raise KeyError("no")

        with pytest.raises(KeyError, match="no"):
            system.spawn(factory)
        assert ends == [StopReason.FAILED]
        assert system.statistics().actors == 1
        assert probe.address.tell("still works") is None
        assert probe.messages == ["still works"]


async def test_a_factory_may_tell_itself_and_may_stop():
    async with stage() as (system, _, letters):
        log = []

        def eager(cell):
            cell.address.tell("in due time")
            assert log == []
            return Recorder(cell, log)

        def hasty(cell):
            cell.stop()
            return Recorder(cell, log)

        system.spawn(eager)
        assert log == ["in due time"]
        assert system.spawn(hasty).stopped
        assert letters == []


POWERS = {
    "spawn": lambda cell, _: cell.spawn(Recorder),
    "start a task": lambda cell, _: cell.start_task(None, context=None),
    "adopt a task": lambda cell, _: cell.adopt(None),
    "set a timer": lambda cell, _: cell.after(1, "message"),
    "watch": lambda cell, other: cell.watch(other),
    "be called back": lambda cell, _: cell.on_stop(print),
}


@pytest.mark.parametrize("use", POWERS.values(), ids=POWERS)
async def test_an_actor_that_asks_to_stop_can_do_nothing_more_from_then_on(use):
    async with stage() as (system, probe, _):

        def stop_and_go_on(recorder):
            recorder.cell.stop()
            with pytest.raises(actors.LifecycleError, match="stopped"):
                use(recorder.cell, probe.address)

        recorder = system.spawn(Recorder)
        cell = recorder._mailbox
        probe.watch(recorder)
        recorder.tell(stop_and_go_on)
        assert probe.messages == [actors.Stopped(recorder, StopReason.STOPPED)]
        with pytest.raises(actors.LifecycleError, match="stopped"):
            use(cell, probe.address)


async def test_a_stopped_cell_is_stopped_for_good():
    async with stage() as (_, probe, _):
        cell = probe._cell
        probe.stop()
        cell.stop()
        assert repr(cell) == "<ActorContext probe stopped>"
        with pytest.raises(actors.LifecycleError):
            NOBODY.handle("anything")
        with pytest.raises(actors.LifecycleError):
            cell._factory(cell)


@pytest.mark.parametrize("end", [stop, boom, None])
async def test_nobody_in_a_tree_is_told_anything_while_it_ends(end):
    async with stage() as (system, _, _):
        outcomes = []

        def make_parent(cell):
            elder = cell.spawn(Recorder)

            def make_child(child):
                child.on_stop(lambda _: outcomes.extend([elder.tell("late"), cell.address.tell("late")]))
                return Recorder(child)

            cell.spawn(make_child)
            return Recorder(cell)

        parent = system.spawn(make_parent)
        if end is not None:
            parent.tell(end)
    assert outcomes == [actors.DeadLetterReason.STOPPED] * 2


async def test_a_mailbox_has_room_for_one_at_least():
    async with stage() as (system, _, _):
        with pytest.raises(ValueError, match="at least"):
            system.spawn(Recorder, capacity=0)


async def test_a_restart_gives_up_children_watches_and_callbacks():
    async with stage() as (system, probe, _):
        ends, children = [], []
        recorder = system.spawn(Recorder, strategy=restart)

        def prepare(recorder):
            children.append(recorder.cell.spawn(Recorder))
            recorder.cell.watch(probe.address)
            recorder.cell.on_stop(ends.append)
            recorder.cell.start_task(trio.sleep_forever, context=contextvars.Context())

        recorder.tell(prepare)
        recorder.tell(boom)
        assert ends == [StopReason.RESTARTED]
        assert children[0].stopped
        assert not probe._cell._watchers
        assert (recorder._mailbox._watching, recorder._mailbox._tasks) == ((), ())
        recorder.tell(stop)
        assert ends == [StopReason.RESTARTED]


async def test_a_life_leaves_no_garbage_for_the_collector():
    async with stage() as (system, probe, _):

        class Big(Recorder):
            pass

        refs = []

        def make(cell):
            actor = Big(cell)
            refs.append(weakref.ref(actor))
            cell.watch(probe.address)
            cell.spawn(Recorder)
            cell.after(100, "later")
            return actor

        gc.collect()
        gc.disable()
        try:
            kept = [system.spawn(make) for _ in range(10)]
            for address in kept:
                system.stop(address)
            assert [ref() for ref in refs] == [None] * 10
        finally:
            gc.enable()
        assert all(address.stopped for address in kept)


class Thing:
    """Something whose end can be seen."""


def spawn_with_things(system, strategy=None):
    """Spawn an actor, and return its cell, and what shows whether its factory and an argument of that are kept."""

    def make(cell, _):
        return Recorder(cell)

    thing = Thing()
    address = system.spawn(make, thing, strategy=strategy)
    return address._mailbox, [weakref.ref(make), weakref.ref(thing)]


async def test_what_makes_an_actor_is_kept_only_for_one_that_may_be_made_again():
    async with stage() as (system, _, _):
        _, once = spawn_with_things(system)
        _, again = spawn_with_things(system, restart)
        assert [ref() for ref in once] == [None, None]
        assert None not in [ref() for ref in again]


async def test_a_cell_that_is_kept_keeps_nothing_else_after_its_end():
    async with stage() as (system, _, _):
        cell, refs = spawn_with_things(system, restart)
        gc.collect()
        gc.disable()
        try:
            before = count_cells()
            watcher = testing.Probe(system)
            watcher.watch(cell.address)
            system.stop(cell.address)
            watcher.stop()
            del watcher
            assert count_cells() == before
            assert [ref() for ref in refs] == [None, None]
        finally:
            gc.enable()


def count_cells():
    return sum(type(thing) is actors.ActorContext for thing in gc.get_objects())
