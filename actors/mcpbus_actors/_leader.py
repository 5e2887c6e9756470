"""Leader and followers: one task takes the work there is; where that waits, the task stays with it, and another one leads on.

Whoever starts an eager task has to be its host if it waits, and cannot know that before. So there is one task that waits for
work and takes one piece after the other, without a task or a turn of the scheduler for each. Once it has become a host, a
follower leads: one whose eager task has ended, or a new one. The pattern is Leader/Followers, of Schmidt, Stal, Rohnert and
Buschmann, Pattern-Oriented Software Architecture, volume 2.

Without this file's help, there would be a task for each piece of work, and that would mean the same.
"""

import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import trio

from mcpbus_actors._cell import Cell
from mcpbus_actors._eager import EagerTask
from mcpbus_actors._messages import Directive, Failed
from mcpbus_actors._tasks import TaskEnded
from mcpbus_actors.system import System

T = TypeVar("T")

_MOST_AT_REST: Final = 16
"""How many followers are kept for the next time that one is needed."""


class Leader:
    """Tasks that take work.

    Args:
        wait: Returns once there is work, or there will be none any more, and whether there is. One task at a time is in it; if
            that is cancelled, it is called again.
        take: Takes the work there is, given a scope that encloses the task, until none is left or there is an eager task that
            waits, or has cancelled the scope. It returns that.
    """

    __slots__ = ("_nursery", "_over", "_resting", "_take", "_wait")

    _nursery: trio.Nursery

    def __init__(
        self, wait: Callable[[], Awaitable[bool]], take: Callable[[trio.CancelScope], EagerTask | None]
    ) -> None:
        self._wait = wait
        self._take = take
        self._resting: list[trio.lowlevel.Task] = []
        self._over = False

    async def run(self) -> None:
        """Take work until there will be none any more and what waits has ended, or until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._lead)

    def run_in(self, system: System) -> None:
        """Have it run in tasks of a system. What goes wrong ends the system: whoever has put work would wait for ever."""
        system.spawn(_Owner, self, strategy=_escalate)

    async def _lead(self) -> None:
        """Be one of the tasks: lead, stay with what waits, rest until it leads again."""
        leads = True
        while leads:
            eager = None
            with trio.CancelScope() as scope:
                while eager is None:
                    if not await self._wait():
                        self._end()
                        return
                    eager = self._take(scope)
                self._hand_on()
                await eager.finish()
            # Without an eager task, one was cancelled that had ended in its first step, and this task when it next waited.
            leads = eager is None or await self._rest()

    def _hand_on(self) -> None:
        if self._resting:
            trio.lowlevel.reschedule(self._resting.pop())
        else:
            self._nursery.start_soon(self._lead)

    def _end(self) -> None:
        self._over = True
        while self._resting:
            trio.lowlevel.reschedule(self._resting.pop())

    async def _rest(self) -> bool:
        """Wait until this task is to lead, or there is no more work; return whether it was kept for that."""
        if len(self._resting) < _MOST_AT_REST and not self._over:
            task = trio.lowlevel.current_task()

            def leave(_: object) -> trio.lowlevel.Abort:
                self._resting.remove(task)
                return trio.lowlevel.Abort.SUCCEEDED

            self._resting.append(task)
            await trio.lowlevel.wait_task_rescheduled(leave)
            return True
        return False


class WorkQueue(Generic[T]):
    """What is put for a leader: ``Leader(queue.wait, queue.take)``.

    Args:
        take_one: Takes one thing, given the scope of the task that leads. Returns the eager task that waits, or has cancelled
            the scope, if there is one.

    Attributes:
        things: What was put and is still to be taken.
    """

    __slots__ = ("_closed", "_take_one", "_task", "things")

    def __init__(self, take_one: Callable[[T, trio.CancelScope], EagerTask | None]) -> None:
        self._take_one = take_one
        self._task: trio.lowlevel.Task | None = None
        self._closed = False
        self.things: deque[T] = deque()

    @trio.lowlevel.enable_ki_protection
    def put(self, thing: T) -> None:
        """Have something taken, after what was put before it. Never waits; nothing is taken once it is closed."""
        if not self._closed:
            self.things.append(thing)
            self._wake()

    @trio.lowlevel.enable_ki_protection
    def close(self) -> None:
        """Have nothing more taken, and its leader end. Eager tasks that wait go on."""
        self._closed = True
        self.things.clear()
        self._wake()

    def _wake(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def wait(self) -> bool:
        """Wait for something, and return whether there is; for the leader."""
        if not self.things and not self._closed:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._wait_no_longer)
        return not self._closed

    def _wait_no_longer(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def take(self, scope: trio.CancelScope) -> EagerTask | None:
        """Take one thing after the other; for the leader."""
        things, eager = self.things, None
        while things and eager is None:
            eager = self._take_one(things.popleft(), scope)
        return eager


def _escalate(*_: object) -> Directive:
    return Directive.ESCALATE


class _Owner:
    """The actor that has a leader run."""

    def __init__(self, cell: Cell[object], leader: Leader) -> None:
        self._cell = cell
        cell.start_task(leader.run, context=contextvars.Context(), name="leader")

    def handle(self, message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        if isinstance(message, TaskEnded):
            if isinstance(message.outcome, Failed):
                raise message.outcome.exception
            self._cell.stop()
