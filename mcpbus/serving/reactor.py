"""One task that waits for all connections of a service at once, and lets each take its turn when something has come.

A task that waits for a socket of its own costs two system calls and a turn of the scheduler for each request, and some
kilobytes for as long as the connection is open. Here the kernel keeps the list of who is waited for, and a connection that
is quiet costs what it remembers.
"""

import math
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from time import perf_counter
from typing import Final, Protocol

import trio
from mcpbus_actors import EagerTask, Leader

from mcpbus.core.fairness import GATHER_SECONDS, Pace
from mcpbus.serving.writer_failures import give_up
from mcpbus.transports.response_sinks import CoalescedWriter

Turn = Callable[[], EagerTask | None]
"""What a connection does when something has come, without waiting.

It returns a handler that waits, or was cancelled together with `Reactor.scope`: this is left to whoever took the turn.
"""

_MOST_AT_ONCE: Final = 32
"""Turns in a row, before other tasks may run."""

_MOST_AT_REST: Final = 64
"""How many tasks are kept for handlers that wait, by all connections together. One takes 5 KiB, and 20 µs to make."""

_MOST_WRITES: Final = 8
"""How many answers are written together."""

AVAILABLE: Final = hasattr(select, "epoll")
"""Whether this system has epoll. Otherwise each connection is waited for by a task of its own, which takes no turns."""


class Pollable(Protocol):
    """What can be waited for here."""

    @property
    def descriptor(self) -> int:
        """Its file descriptor, also once it is closed."""


class Reactor:
    """Waits for connections, and takes their turns.

    Turns are taken by a leader, which also runs the handlers of requests for as long as they do not wait; see `Leader`.

    Args:
        context: The context variables with which each turn begins.

    Attributes:
        scope: Encloses the task that takes the turn which is under way.
        pace: Of the turn which is under way, if it serves something.
        in_turn: Whether one is.
    """

    scope: trio.CancelScope

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nursery: trio.Nursery | None = None
        self._turns: dict[int, Turn] = {}
        self._due: deque[Turn] = deque()
        self.in_turn = False
        self.pace = Pace()
        self._begun: float | None = None
        self._writers: list[CoalescedWriter] = []
        self._last: list[CoalescedWriter] = []
        self._write_by = math.inf
        self._epoll = select.epoll() if AVAILABLE else None
        # Without epoll: the tasks that wait for a connection, and those whose turn is due, or was taken.
        self._waits: dict[int, trio.CancelScope] = {}
        self._come = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()
        self._leader = Leader(self._wait, partial(self._take, self._due), self._due, _MOST_AT_REST)

    def watch(self, connection: Pollable, turn: Turn) -> None:
        """Take this turn whenever the connection has something to read, or has ended."""
        descriptor = connection.descriptor
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)
        else:
            self._waits[descriptor] = scope = trio.CancelScope()
            if self._nursery is not None:
                self._nursery.start_soon(self._wait_for, descriptor, turn, scope)
        self._turns[descriptor] = turn

    def watch_end(self, connection: Pollable, turn: Turn) -> None:
        """Take this turn once the peer has closed the connection, or half of it, whatever it has sent that was not read.

        Without epoll no turn is taken: only reading all that the peer has sent would tell of its end.
        """
        if self._epoll is not None:
            self._epoll.register(connection.descriptor, select.EPOLLRDHUP)
        self._turns[connection.descriptor] = turn

    def forget(self, connection: Pollable) -> None:
        """Watch it no longer. A turn that is due already is not taken any more.

        To be called before it is closed, or before anything else happens: the next one to be opened gets its descriptor.
        """
        descriptor = connection.descriptor
        self._drop(self._turns.pop(descriptor))
        if self._epoll is None:
            scope = self._waits.pop(descriptor, None)
            if scope is not None:
                scope.cancel()
            return
        with suppress(OSError):  # of one that is closed the kernel has forgotten it
            self._epoll.unregister(descriptor)

    def _drop(self, turn: Turn) -> None:
        if turn in self._due:
            self._due.remove(turn)

    def call_soon(self, turn: Turn) -> None:
        """Take a turn once others have had theirs."""
        if self._nursery is not None:
            self._nursery.start_soon(self._take_one, turn)

    @property
    def in_brief_turn(self) -> bool:
        """Whether a turn is under way whose end is near enough for what is said in it to wait for that."""
        return self.in_turn and not self.pace.long

    def write_soon(self, writer: CoalescedWriter) -> None:
        """Write something together with what the next few turns say, if one is being taken; otherwise at once.

        Clients on the same machine are woken once for several answers then, and not for each, which is half of what a write costs.
        """
        if not self.in_turn:
            self._writers.append(writer)
            self._write()
            return
        if not self._writers:
            self._write_by = perf_counter() + GATHER_SECONDS
        self._writers.append(writer)

    def write_last(self, writer: CoalescedWriter) -> None:
        """Write something once no turn is due any more. To be called in a turn.

        That is for what others than clients read, of which many requests in a row have something each to say.
        """
        self._last.append(writer)

    def write_first(self) -> None:
        """Write in a turn what earlier ones have left, before this one takes its time; its pace is told how long that was."""
        self._write()
        self._begun = perf_counter()

    def measure(self) -> None:
        """Have the pace of the turn told how long it takes from now on, since something waits for its end."""
        if self._begun is None:
            self._begun = perf_counter()

    def _write(self) -> None:
        writers, self._writers, self._write_by = self._writers, [], math.inf
        for writer in writers:
            try:
                writer.write_now()
            except Exception as failure:  # noqa: BLE001 - it is logged
                give_up(writer, failure)

    async def run(self) -> None:
        """Take turns until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._leader.run)
            for descriptor, scope in self._waits.items():
                self._nursery.start_soon(self._wait_for, descriptor, self._turns[descriptor], scope)

    async def _take_one(self, turn: Turn) -> None:
        with trio.CancelScope() as scope:
            eager = self._take(deque((turn,)), scope)
            if eager is not None:
                await eager.finish()

    def _take(self, due: deque[Turn], scope: trio.CancelScope) -> EagerTask | None:
        """Take turns until none is due, or one leaves a handler, which is returned, to the task that takes them."""
        self.scope = scope
        eager = None
        self.in_turn = True
        try:
            while due and eager is None:
                # What one request sets there, such as a principal, is not for the next one.
                eager = self._context.copy().run(due.popleft())
                now = perf_counter()
                if self._begun is not None:
                    begun, self._begun = self._begun, None
                    self.pace.took(now - begun)
                if len(self._writers) >= _MOST_WRITES or now > self._write_by:
                    if now > self._write_by + GATHER_SECONDS:  # in this turn alone
                        self.pace.took(math.inf)
                    self._write()
        finally:
            self.in_turn = False
        if self._writers:
            self._write()
        if self._last:
            self._writers, self._last = self._last, []
            self._write()
        return eager

    async def _wait(self) -> bool:
        """Wait until turns are due. A schedule point, unless some were left by who led before."""
        due = self._due
        if due:
            return True
        if self._epoll is None:
            self._taken.unpark_all()
            while not due:
                await self._come.park()
            return True
        await trio.lowlevel.wait_readable(self._epoll.fileno())
        for descriptor, _ in self._epoll.poll(0, _MOST_AT_ONCE):
            turn = self._turns.get(descriptor)
            if turn is not None:  # otherwise it was closed here, and is still open in some other process
                due.append(turn)
        return True

    async def _wait_for(self, descriptor: int, turn: Turn, scope: trio.CancelScope) -> None:
        """Wait for one connection, without epoll, and have its turn taken, again and again until it is forgotten or closed."""
        with scope, suppress(trio.ClosedResourceError):
            while not scope.cancel_called:
                await trio.lowlevel.wait_readable(descriptor)
                self._due.append(turn)
                self._come.unpark_all()
                await self._taken.park()

    def close(self) -> None:
        """Give the kernel's list back."""
        if self._epoll is not None:
            self._epoll.close()
