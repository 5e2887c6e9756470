"""When the reactor of a lane takes turns, and when what they answer is written."""

import socket
from contextvars import ContextVar, copy_context
from functools import partial

import pytest
import trio
import trio.testing
from mcpbus_actors import EagerTask

from mcpbus.core.fairness import Pace
from mcpbus.serving import reactor
from mcpbus.serving.reactor import Reactor
from mcpbus.serving.write_coalescer import WriteCoalescer


class Turns(Reactor):
    """A reactor whose turns a test makes due."""

    def __init__(self):
        super().__init__(copy_context())
        self._more = trio.Event()
        self._next = []
        self.done = []

    def due(self, *turns):
        self._next.extend(turns)
        self._more.set()

    async def _wait(self):
        if not self._due:
            await trio.lowlevel.checkpoint()
            while not self._next:
                self._more = trio.Event()
                await self._more.wait()
            self._due.extend(self._next)
            self._next.clear()
        return True

    def says(self, name, then=None):
        """A turn that answers."""

        def turn():
            self.done.append(f"turn {name}")
            self.write_soon(Answer(self.done, name))
            return None if then is None else then()

        return turn


class Answer:
    def __init__(self, done, name):
        self._done = done
        self._name = name

    def write_now(self):
        self._done.append(f"answer {self._name}")


@pytest.fixture
async def turns():
    reactor = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reactor.run)
        await trio.testing.wait_all_tasks_blocked()
        yield reactor
        nursery.cancel_scope.cancel()
    reactor.close()


async def test_what_is_to_be_written_last_is_written_once_no_turn_is_due(turns):
    count = 2 * reactor._MOST_WRITES
    last = turns.says("0", lambda: turns.write_last(Answer(turns.done, "last")))
    turns.due(last, *(turns.says(str(number)) for number in range(1, count)))
    await trio.testing.wait_all_tasks_blocked()
    assert len(turns.done) == 2 * count + 1
    assert turns.done[-1] == "answer last"


async def test_answers_of_turns_that_are_due_together_are_written_together(turns, monkeypatch):
    monkeypatch.setattr(reactor, "perf_counter", lambda: 0)
    turns.due(turns.says("a"), turns.says("b"), turns.says("c"))
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done == ["turn a", "turn b", "turn c", "answer a", "answer b", "answer c"]


@pytest.mark.parametrize(("each", "at_most"), [(1, 8), (3, 9)])
async def test_no_more_than_a_few_are_kept_back(each, at_most, turns, monkeypatch):
    monkeypatch.setattr(reactor, "perf_counter", lambda: 0)

    def say_more(name):
        for n in range(1, each):
            turns.write_soon(Answer(turns.done, name + n))

    turns.due(*[turns.says(n, partial(say_more, n)) for n in range(0, 21, each)])
    await trio.testing.wait_all_tasks_blocked()
    written = [line for line in turns.done if line.startswith("answer")]
    assert written == [f"answer {n}" for n in range(21)]
    assert turns.done.index("answer 0") * each == at_most


async def test_an_answer_does_not_wait_for_others_once_a_turn_has_taken_its_time(turns, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(reactor, "perf_counter", lambda: now[0])

    def work():
        now[0] += 0.001

    turns.due(turns.says("a"), turns.says("b", work), turns.says("c"))
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done == ["turn a", "turn b", "answer a", "answer b", "turn c", "answer c"]


async def test_what_took_its_time_while_an_answer_waited_is_expected_to_do_so_again(turns, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(reactor, "perf_counter", lambda: now[0])
    slow, quick = Pace(slow=0), Pace(slow=0)

    def work(pace, seconds):
        turns.pace = pace
        now[0] += seconds

    turns.due(turns.says("a"), lambda: work(quick, 0.0002), lambda: work(slow, 0.2))
    await trio.testing.wait_all_tasks_blocked()
    assert (quick.slow, slow.slow) == (0, 64)


def test_what_is_quick_is_taken_for_quick_in_the_end():
    pace = Pace()
    pace.took(0.0001)
    assert pace.slow == 0
    pace.took(0.2)
    for _ in range(64):
        assert pace.slow
        pace.took(0.0001)
    assert not pace.slow


async def test_a_handler_that_waits_keeps_no_answer_back_and_others_go_on(turns, monkeypatch, autojump_clock):
    monkeypatch.setattr(reactor, "perf_counter", lambda: 0)

    async def handler():
        await trio.sleep(5)
        turns.done.append("handler")

    def wait():
        eager = EagerTask(turns.scope, coroutine=handler(), context=copy_context())
        assert not eager.start()
        return eager

    turns.due(turns.says("a"), turns.says("b", wait), turns.says("c"))
    await trio.sleep(6)
    assert turns.done == ["turn a", "turn b", "answer a", "answer b", "turn c", "answer c", "handler"]


async def test_what_is_answered_outside_of_a_turn_is_written_at_once(turns):
    turns.write_soon(Answer(turns.done, "now"))
    assert turns.done == ["answer now"]
    turns.call_soon(turns.says("later"))
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done == ["answer now", "turn later", "answer later"]


async def test_a_writer_that_fails_is_ended_and_logged_and_the_others_write(turns, monkeypatch, caplog):
    class Fails(Answer):
        def write_now(self):
            raise MemoryError("not for this one")

        def lose(self):
            self._done.append("lost")

    monkeypatch.setattr(reactor, "perf_counter", lambda: 0)
    turns.due(turns.says("a"), lambda: turns.write_soon(Fails(turns.done, "b")), turns.says("c"))
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done == ["turn a", "turn c", "answer a", "lost", "answer c"]
    assert [str(record.exc_info[1]) for record in caplog.records] == ["not for this one"]


async def test_what_a_turn_leaves_in_the_context_is_not_there_in_the_next_one(turns):
    note = ContextVar("note", default="nothing")

    def turn():
        turns.done.append(note.get())
        note.set("something")

    turns.due(turn, turn)
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done == ["nothing", "nothing"]


async def test_a_handler_that_is_cancelled_in_its_own_turn_takes_nobody_with_it(turns):
    async def handler():
        eager.cancel()

    def turn():
        nonlocal eager
        eager = EagerTask(turns.scope, coroutine=handler(), context=copy_context())
        assert eager.start()
        return eager

    eager = None
    turns.due(turns.says("a"), turn, turns.says("b"))
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done == ["turn a", "answer a", "turn b", "answer b"]


async def test_a_handler_that_is_cancelled_in_its_own_turn_and_answers_in_it_takes_nobody_with_it(turns):
    async def handler():
        eager.cancel()

    def turn():
        nonlocal eager
        eager = EagerTask(turns.scope, coroutine=handler(), context=copy_context())
        assert eager.start()

    eager = None
    turns.due(turns.says("a"), turn)
    await trio.testing.wait_all_tasks_blocked()
    turns.due(turns.says("b"))
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done == ["turn a", "answer a", "turn b", "answer b"]


async def test_what_may_wait_for_the_turn_is_written_after_it_and_with_the_answers_of_others(
    turns, monkeypatch
):
    monkeypatch.setattr(reactor, "perf_counter", lambda: 0)

    def speak():
        turns.write_soon(Answer(turns.done, "more"))

    turns.due(turns.says("a"), turns.says("b", speak), turns.says("c"))
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done == ["turn a", "turn b", "turn c", "answer a", "answer b", "answer more", "answer c"]


async def test_what_is_to_be_written_later_waits_for_the_end_of_the_turn_or_of_all_or_for_the_scheduler(
    turns,
):
    coalescer = WriteCoalescer(turns)
    assert not coalescer.in_turn

    def say():
        assert coalescer.in_turn
        coalescer.add(Answer(turns.done, "of the scheduler"))
        coalescer.add_last(Answer(turns.done, "last"))
        coalescer.add_in_turn(Answer(turns.done, "of the turn"))

    turns.due(turns.says("a", say), turns.says("b"))
    await trio.testing.wait_all_tasks_blocked()
    assert turns.done[-2:] == ["answer b", "answer last"]
    assert turns.done.index("answer of the turn") < len(turns.done) - 1
    turns.done.clear()
    for add in (coalescer.add_in_turn, coalescer.add_last):
        add(Answer(turns.done, "between turns"))
    assert turns.done == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(coalescer.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert turns.done == ["answer of the scheduler", *["answer between turns"] * 2]


class End:
    """A connection that is watched."""

    def __init__(self, socket):
        self.descriptor = socket.fileno()


@pytest.mark.skipif(
    not reactor.AVAILABLE, reason="nothing is watched where the system has nothing to do it with"
)
async def test_a_turn_that_is_due_is_not_taken_of_a_connection_that_is_forgotten():
    watching, taken = Reactor(copy_context()), []
    (one, its_peer), (other, its_own) = socket.socketpair(), socket.socketpair()
    with one, its_peer, other, its_own:
        ends = [End(one), End(other)]

        def turn(name):
            taken.append(name)
            for end in ends:
                watching.forget(end)

        for end in ends:
            watching.watch(end, partial(turn, "a turn"))
        its_peer.send(b"x")
        its_own.send(b"x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watching.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    watching.close()
    assert taken == ["a turn"]
