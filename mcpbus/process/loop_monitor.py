"""A line in the log about whatever blocks the event loop of a program.

A handler that waits without trio, or computes for long, holds up everybody: meanwhile nobody is served and no deadline is kept,
and within the loop there is nobody left to say so. Here a thread asks the loop for a sign of life every quarter of a second. Where
none comes, it says for how long, and in which function. It counts how often it has looked, and not the time that has passed: a
process that was stopped for an hour, or a machine that slept, has missed one look.
"""

import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import dropwhile, takewhile
from math import inf
from types import FrameType
from typing import Final

import trio

from mcpbus.protocol.log_records import OwnLines

_log = logging.getLogger("mcpbus")

LOOK_SECONDS: Final = 0.25
LOOKS: Final = 3
"""In vain, after which the loop is blocked: what blocks it for a second is seen, whenever it begins."""

QUIET_SECONDS: Final = 60.0
"""After a line about a block: how long none is written about another."""

_LAST_WORDS_SECONDS: Final = 1.0
"""At the end: for what is being said."""

_MOST_FRAMES: Final = 10
"""That are shown from either end of a stack."""

_MACHINERY: Final = frozenset({"trio", "outcome", "mcpbus", "mcpbus_actors"})


@contextmanager
def report_blocked_loop(look_seconds: float = LOOK_SECONDS, looks: int = LOOKS) -> Iterator["LoopMonitor"]:
    """Have the log say what blocks this trio loop, while the block lasts. For programs.

    Args:
        look_seconds: How often the loop is asked, and its answer looked for.
        looks: How many looks in vain make a block.
    """
    watch = LoopMonitor(look_seconds, looks)
    try:
        yield watch
    finally:
        watch.close()


class LoopMonitor:
    """A thread that watches the trio loop it is made in.

    Args:
        look_seconds: How often the loop is asked, and its answer looked for.
        looks: How many looks in vain make a block.

    Attributes:
        thread: It ends with the loop, if not before.
        unsaid: Blocks that the log does not have, since the last one that it has.
    """

    def __init__(self, look_seconds: float, looks: int) -> None:
        self._look_seconds = look_seconds
        self._looks = looks
        self._token = trio.lowlevel.current_trio_token()
        self._loop_thread = threading.get_ident()
        self._ended = threading.Event()
        self._answered = threading.Event()
        self._last_told = -inf
        self.unsaid = 0
        self.thread = threading.Thread(target=self._run, name="mcpbus watch", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """End the thread. From the loop, which gives no other answer meanwhile."""
        self._ended.set()
        self._answered.set()
        self.thread.join(_LAST_WORDS_SECONDS)

    def _run(self) -> None:
        with suppress(trio.RunFinishedError):
            while not self._ended.wait(self._look_seconds):
                self._answered.clear()
                if self._ended.is_set():  # what was cleared may have been the answer of `close`
                    return
                asked = time.monotonic()
                self._token.run_sync_soon(self._answered.set)
                if not any(self._answered.wait(self._look_seconds) for _ in range(self._looks)):
                    self._tell(asked)

    def _tell(self, asked: float) -> None:
        """Tell of a block, and wait for its end."""
        where = _stack_within_task(sys._current_frames()[self._loop_thread])  # noqa: SLF001 - its documented way
        told = asked >= self._last_told + QUIET_SECONDS
        if told:
            _log.warning(
                "the event loop has been blocked for %.1f seconds: nobody is served until this function waits or ends%s\n%s",
                time.monotonic() - asked,
                f" (and {self.unsaid} times more since the last line about it)" if self.unsaid else "",
                OwnLines(where),
            )
            self._last_told, self.unsaid = asked, 0
        else:
            self.unsaid += 1
        self._answered.wait()
        if told:
            _log.warning("the event loop goes on after %.1f seconds", time.monotonic() - asked)


def _stack_within_task(innermost: FrameType) -> str:
    """Return how a task got where it is, outermost first, without what trio and mcpbus have to do with that."""
    stack = list(traceback.walk_stack(innermost))
    task = list(takewhile(lambda each: _module(each[0]) != "trio._core._run", stack))
    theirs = list(dropwhile(lambda each: _module(each[0]).partition(".")[0] in _MACHINERY, reversed(task)))
    shown = theirs or stack[_MOST_FRAMES - 1 :: -1]
    shown = shown[:_MOST_FRAMES] + shown[_MOST_FRAMES:][-_MOST_FRAMES:]
    return "".join(traceback.StackSummary.extract(iter(shown)).format()).rstrip()


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
