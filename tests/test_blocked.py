"""A loop that is blocked, and what the log of its program says about that."""

import logging
import re
import sys
import threading
import time
import traceback
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from types import FunctionType
from typing import ClassVar

import pytest
import trio

from mcpbus import Server
from mcpbus.process import loop_monitor
from mcpbus.process.loop_monitor import report_blocked_loop
from mcpbus.testing import open_bus

PATIENCE = 60


class Lines(logging.Handler):
    """What is said in the log, for whoever waits for it in whatever thread."""

    def __init__(self):
        super().__init__()
        self.said = []
        self.queue = SimpleQueue()

    def emit(self, record):
        self.said.append(record.getMessage())
        self.queue.put(self.said[-1])

    def next(self):
        return self.queue.get(timeout=PATIENCE)


class Looking(threading.Event):
    """Time passes for it only while the loop is in a function that blocks it: no machine is so slow that it blocks anywhere else."""

    def wait(self, timeout=None):
        while not (happened := super().wait(timeout)):
            innermost = sys._current_frames()[threading.main_thread().ident]
            if any(frame.f_code in BLOCKING for frame, _ in traceback.walk_stack(innermost)):
                break
        return happened


@contextmanager
def soon_blocked():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_monitor.threading, "Event", Looking)
        patch.setattr(loop_monitor, "_LAST_WORDS_SECONDS", PATIENCE)
        with report_blocked_loop(look_seconds=0.02, looks=3) as watch:
            yield watch


@pytest.fixture
def lines(monkeypatch):
    lines = Lines()
    monkeypatch.setattr(logging.getLogger("mcpbus"), "handlers", [lines])
    return lines


def waits_without_trio(lines):
    return lines.next()


def deep(depth, lines):
    return deep(depth - 1, lines) if depth else waits_without_trio(lines)


def computes_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


BLOCKING = {Lines.next.__code__, computes_until.__code__}


async def until_it_has_answered():
    """The loop answers in the order in which it was asked."""
    answered = trio.Event()
    trio.lowlevel.current_trio_token().run_sync_soon(answered.set)
    await answered.wait()


class Asked(trio.abc.Instrument):
    """Sets an event when the loop was asked for something this often."""

    def __init__(self, times):
        self.times = times
        self.event = trio.Event()

    def before_task_step(self, task):
        if task.name == "<TrioToken.run_sync_soon task>":
            self.times -= 1
            if self.times == 0:
                self.event.set()


async def test_what_blocks_the_loop_is_told_while_it_does_and_when_it_goes_on(lines):
    with soon_blocked():
        told = waits_without_trio(lines)
        with pytest.raises(Empty):  # nothing more, while it lasts
            lines.queue.get(timeout=0.1)
        goes_on = await trio.to_thread.run_sync(lines.next)
    first, *stack = told.splitlines()
    assert re.fullmatch(
        r"the event loop has been blocked for \d+\.\d seconds: nobody is served until this function waits or ends",
        first,
    )
    assert stack[-4].endswith("in waits_without_trio")
    assert stack[-1].strip() == "return self.queue.get(timeout=PATIENCE)"
    assert not any("site-packages/trio" in line for line in stack)
    assert re.fullmatch(r"the event loop goes on after \d+\.\d seconds", goes_on)
    assert lines.queue.empty()


async def test_nothing_is_said_of_a_loop_that_answers(lines):
    asked = Asked(5)
    trio.lowlevel.add_instrument(asked)
    with report_blocked_loop(0.001, PATIENCE * 1000):
        await asked.event.wait()
    trio.lowlevel.remove_instrument(asked)
    assert lines.queue.empty()


async def test_of_a_deep_stack_both_ends_are_told(lines):
    with soon_blocked():
        _, *stack = deep(200, lines).splitlines()
    places = [line for line in stack if line.startswith("  File")]
    assert len(places) <= 2 * loop_monitor._MOST_FRAMES
    assert any(place.endswith("in test_of_a_deep_stack_both_ends_are_told") for place in places[:3])
    assert places[-1].endswith("in next")


async def test_where_trio_itself_holds_on_its_own_frames_are_told(lines):
    of_its_own = FunctionType(Lines.next.__code__, {**globals(), "__name__": "trio"})
    with soon_blocked():
        trio.lowlevel.current_trio_token().run_sync_soon(of_its_own, lines)
        await until_it_has_answered()
        assert "goes on" in await trio.to_thread.run_sync(lines.next)
    _, *stack = lines.said[0].splitlines()
    assert stack[-4].endswith("in run_cb")
    assert len([line for line in stack if line.startswith("  File")]) == loop_monitor._MOST_FRAMES


async def test_of_a_handler_it_is_told_from_where_it_begins(lines):
    server = Server("s", version="1")

    @server.tool
    async def block() -> str:
        return waits_without_trio(lines)

    async with open_bus(server) as bus, bus.connect() as client:
        with soon_blocked():
            async with trio.open_nursery() as calling:
                # It takes the first line, before anybody else waits.
                calling.start_soon(client.call_tool, "block")
            assert "goes on" in await trio.to_thread.run_sync(lines.next)
    assert lines.said[0].splitlines()[1].endswith("in block")


async def test_blocks_within_a_minute_are_one_line_and_the_others_are_counted(lines, monkeypatch):
    with soon_blocked() as watch:
        waits_without_trio(lines)
        await trio.to_thread.run_sync(lines.next)
        for _ in range(2):
            before = watch.unsaid
            computes_until(lambda before=before: watch.unsaid > before)
            await until_it_has_answered()
        unsaid = watch.unsaid
        assert lines.queue.empty()
        monkeypatch.setattr(loop_monitor, "QUIET_SECONDS", 0)
        told = waits_without_trio(lines)
    assert told.splitlines()[0].endswith(f"(and {unsaid} times more since the last line about it)")
    assert watch.unsaid == 0


async def test_each_block_that_is_not_told_counts_once(lines):
    with report_blocked_loop(PATIENCE * 1000) as watch:  # which sees nothing by itself meanwhile
        watch._answered.set()
        for _ in range(4):
            watch._tell(time.monotonic())
        assert watch.unsaid == 3
    assert len(lines.said) == 2


async def test_the_end_is_no_block_though_it_comes_as_the_loop_is_about_to_be_asked(lines, monkeypatch):
    class Ending(threading.Event):
        """Before it is cleared, `close` has said all that it says to the thread."""

        made: ClassVar = []

        def __init__(self):
            super().__init__()
            self.made.append(self)

        def clear(self):
            self.made[0].set()  # that of the end was made first
            super().clear()

    monkeypatch.setattr(loop_monitor.threading, "Event", Ending)
    with report_blocked_loop(0.01, 3) as watch:
        watch.thread.join(PATIENCE)  # as `close` does: the loop gives no answer meanwhile
        assert not watch.thread.is_alive()
    assert lines.said == []


async def test_the_thread_keeps_no_program_from_its_end():
    with soon_blocked() as watch:
        assert watch.thread.daemon


async def test_the_thread_ends_with_the_block_and_says_what_it_has_to_say(lines):
    with soon_blocked() as watch:
        waits_without_trio(lines)
    assert not watch.thread.is_alive()
    assert lines.queue.get(block=False).startswith("the event loop goes on")


def test_the_thread_ends_with_the_loop_in_any_case():
    with ExitStack() as left_open:

        async def main():
            return left_open.enter_context(report_blocked_loop(0.001, 1_000_000))

        watch = trio.run(main)
        watch.thread.join(PATIENCE)
        assert not watch.thread.is_alive()


async def test_a_bus_that_is_embedded_has_no_such_thread():
    before = threading.enumerate()
    async with Server("embedded", version="1").open():
        assert threading.enumerate() == before
