# ruff: noqa: SLF001 - a timer is part of the actor that set it
"""Timers: one heap and at most one task for a whole system.

A cancelled timer lets go of its message at once and of its place in the heap soon: the heap is rebuilt
when more than half of it is cancelled. So a server that sets and cancels a timer for every request
keeps no more than twice the timers that are running, and pays no search.

The task runs while the heap is not empty. When the timer it sleeps for is cancelled it sleeps on,
because waking it to go to sleep again would cost more than a wake-up that finds nothing to do.

A process that was stopped for longer than a timeout finds its timers due and the news that should have
cancelled them unread, at the same moment. So timers that are late wait for a moment longer.
"""

import math
from heapq import heapify, heappop, heappush
from typing import Any, Final

import trio

from mcpbus_actors._dispatch import BUDGET, Dispatcher
from mcpbus_actors._mailbox import Mailbox, removed

LATE_SECONDS: Final = 0.25
"""A timer that is noticed so much later than it was due: the process was stopped, or something blocked its loop."""
LOOK_SECONDS: Final = 1.0
"""How long such timers wait, so that first comes what has arrived meanwhile, and would have cancelled them."""
SLACK: Final = 32
"""Cancelled timers that are not worth rebuilding the heap for."""


class Timer:
    """A message that an actor will be told later; see `ActorContext.after`."""

    __slots__ = ("_mailbox", "_message", "_timers")

    def __init__(self, timers: "Timers", mailbox: Mailbox[Any], message: object) -> None:
        self._timers = timers
        self._mailbox: Mailbox[Any] | None = mailbox
        self._message = message

    def cancel(self) -> None:
        """Take the message back. Does nothing if the time has come or the timer was cancelled before."""
        mailbox = self._mailbox
        if mailbox is not None:
            mailbox._timers = removed(mailbox._timers, self)
            self._mailbox = self._message = None
            self._timers.forget()

    abandon = cancel


class Timers:
    """The timers of one system."""

    __slots__ = (
        "_cancelled",
        "_dispatcher",
        "_heap",
        "_looked",
        "_looking",
        "_running",
        "_scope",
        "_sequence",
    )

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._cancelled = 0
        self._running = False
        self._scope = trio.CancelScope()  # in which the task sleeps, if there is one
        self._looked = -math.inf  # timers that were due before that have waited long enough
        self._looking: trio.CancelScope | None = None

    def __len__(self) -> int:
        """Return how many timers are running."""
        return len(self._heap) - self._cancelled

    def add(self, mailbox: Mailbox[Any], seconds: float, message: object) -> Timer:
        """Set a timer; see `ActorContext.after`."""
        if math.isnan(seconds) or seconds < 0:
            raise ValueError(f"a timer cannot be set to {seconds} s; seconds must not be negative")
        timer = Timer(self, mailbox, message)
        deadline = trio.current_time() + seconds
        self._sequence += 1
        heappush(self._heap, (deadline, self._sequence, timer))
        if not self._running:
            self._running = True
            self._dispatcher.context.run(self._dispatcher.nursery.start_soon, self._run)
        elif deadline < self._scope.deadline:
            self._scope.deadline = deadline
        return timer

    def forget(self) -> None:
        """Count one more cancelled timer, and rebuild the heap when they are the greater part of it."""
        self._cancelled += 1
        if self._cancelled > SLACK and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2]._mailbox is not None]
            heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Let the task end; every timer has been cancelled with its actor."""
        self._heap.clear()
        self._cancelled = 0
        self._scope.cancel()
        if self._looking is not None:
            self._looking.cancel()

    async def _run(self) -> None:
        # Shielded: timers run until the system closes, which ends this task by itself.
        while self._heap:
            with trio.CancelScope(deadline=self._heap[0][0], shield=True) as self._scope:
                await trio.sleep_forever()
            await self._look()
            self._fire()
        self._running = False

    async def _look(self) -> None:
        """Let others run for a while, if the next timer is late."""
        now = trio.current_time()
        if self._heap and self._looked < self._heap[0][0] < now - LATE_SECONDS:
            self._looked = now
            with trio.CancelScope(relative_deadline=LOOK_SECONDS, shield=True) as self._looking:
                await trio.sleep_forever()
            self._looking = None

    @trio.lowlevel.enable_ki_protection
    def _fire(self) -> None:
        now = trio.current_time()
        newest = self._sequence  # a timer of zero seconds that a handler sets waits for the next round
        for _ in range(BUDGET):  # as in a dispatch; the rest is for the next round, after a checkpoint
            if not self._heap or self._heap[0][0] > now or self._heap[0][1] > newest:
                break
            timer = heappop(self._heap)[2]
            mailbox = timer._mailbox
            if mailbox is None:
                self._cancelled -= 1
                continue
            message = timer._message
            timer._mailbox = timer._message = None
            mailbox._timers = removed(mailbox._timers, timer)
            self._dispatcher.deliver(mailbox, message)
