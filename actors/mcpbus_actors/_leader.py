"""Leader and followers: one task takes the work there is; where that waits, the task stays with it, and another one leads on.

Whoever starts an eager task has to be its host if it waits, and cannot know that before. So there is one task that waits for
work and takes one piece after the other, without a task or a turn of the scheduler for each. Once it has become a host, a
follower leads: one whose eager task has ended, or a new one. The pattern is Leader/Followers, of Schmidt, Stal, Rohnert and
Buschmann, Pattern-Oriented Software Architecture, volume 2.

Where one piece after the other waits, that would be one in each turn of the scheduler. Then more followers are woken at once, who
help: each takes what is there until something waits, and rests again if there is nothing.

Without this file's help, there would be a task for each piece of work, and that would mean the same.
"""

import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sized
from typing import Final, Generic, TypeVar

import trio

from mcpbus_actors._context import ActorContext
from mcpbus_actors._eager import EagerTask
from mcpbus_actors._messages import Directive, Failed
from mcpbus_actors._tasks import TaskEnded
from mcpbus_actors.system import ActorSystem

T = TypeVar("T")

_MOST_AT_REST: Final = 16
"""How many followers are kept for the next time that one is needed, if nobody says otherwise."""

_MOST_HELPERS: Final = 8
"""How many are woken at once, besides the one that leads."""


class Leader:
    """Tasks that take work.

    Args:
        wait: Returns once there is work, or there will be none any more, and whether there is. One task at a time is in it; if
            that is cancelled, it is called again.
        take: Takes the work there is, given a scope that encloses the task, until none is left or there is an eager task that
            waits, or has cancelled the scope. It returns that.
        work: The work there is, if that is known.
        most_at_rest: How many followers are kept for the next time that one is needed.
    """

    __slots__ = ("_in_a_row", "_most_at_rest", "_nursery", "_over", "_resting", "_take", "_wait", "_work")

    _nursery: trio.Nursery

    def __init__(
        self,
        wait: Callable[[], Awaitable[bool]],
        take: Callable[[trio.CancelScope], EagerTask | None],
        work: Sized = (),
        most_at_rest: int = _MOST_AT_REST,
    ) -> None:
        self._wait = wait
        self._take = take
        self._work = work
        self._most_at_rest = most_at_rest
        self._in_a_row = 0  # pieces that have waited
        self._resting: list[_Follower] = []
        self._over = False

    async def run(self) -> None:
        """Take work until there will be none any more and what waits has ended, or until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._lead)

    def run_in(self, system: ActorSystem, context: contextvars.Context | None = None) -> None:
        """Have it run in tasks of a system. What goes wrong ends the system: whoever has put work would wait for ever.

        Args:
            system: The system.
            context: The contextvars in which work is taken; none if not given.
        """
        system.spawn(_LeaderActor, self, context or contextvars.Context(), strategy=_escalate)

    async def _lead(self) -> None:
        """Be one of the tasks: lead, stay with what waits, rest until it leads again, or helps."""
        leads: bool | None = True  # None once it has handed that on, and of one that is to end
        follower = _Follower(self._resting)
        while leads is not None:
            with trio.CancelScope() as scope:  # until it is cancelled, for one eager task after the other
                while leads is not None:
                    eager = None
                    while leads and eager is None:
                        if not await self._wait():
                            self._end()
                            return
                        eager = self._look(scope)
                    if not leads:
                        eager = self._look(scope)
                    if eager is not None:
                        if leads:
                            self._hand_on()
                        leads = None
                        await eager.finish()
                        eager = None  # what came of it may be long, and this task may rest for long
                    # It helps where there is more to take: who rests has to be woken for that. One that is cancelled rests anew.
                    helps = leads is None and self._work and not scope.cancel_called
                    leads = False if helps else await self._rest(follower)
            # One that was cancelled while it led, because of an eager task that had ended in its first step, leads on.
            if leads is None:
                eager = None
                leads = await self._rest(follower)

    def _look(self, scope: trio.CancelScope) -> EagerTask | None:
        eager = self._take(scope)
        if eager is None:
            self._in_a_row = 0
        elif self._in_a_row < _MOST_HELPERS:
            self._in_a_row += 1
        return eager

    def _hand_on(self) -> None:
        if not self._resting:
            self._nursery.start_soon(self._lead)
            return
        self._resting.pop().wake(leads=True)
        for _ in range(min(self._in_a_row, len(self._work) - 1, len(self._resting))):
            self._resting.pop().wake(leads=False)

    def _end(self) -> None:
        self._over = True
        while self._resting:
            self._resting.pop().wake(leads=None)

    async def _rest(self, follower: "_Follower") -> bool | None:
        """Wait until this task is needed, and return whether it is to lead; None if it is not kept for that."""
        if len(self._resting) >= self._most_at_rest or self._over:
            return None
        follower.leads = None
        self._resting.append(follower)
        await trio.lowlevel.wait_task_rescheduled(follower.leave)
        return follower.leads


class _Follower:
    """A task that rests from time to time.

    Attributes:
        leads: Why it was woken: to lead, or to help; None is to end, or to be cancelled.
    """

    __slots__ = ("_resting", "_task", "leads")

    def __init__(self, resting: "list[_Follower]") -> None:
        self._resting = resting
        self._task = trio.lowlevel.current_task()
        self.leads: bool | None = None

    def wake(self, *, leads: bool | None) -> None:
        """Have it go on. It does not rest any more."""
        self.leads = leads
        trio.lowlevel.reschedule(self._task)

    def leave(self, _: object) -> trio.lowlevel.Abort:
        """Rest no longer: its task is cancelled."""
        self._resting.remove(self)
        return trio.lowlevel.Abort.SUCCEEDED


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


class _LeaderActor:
    """The actor that has a leader run."""

    def __init__(self, cell: ActorContext[object], leader: Leader, context: contextvars.Context) -> None:
        self._cell = cell
        cell.start_task(leader.run, context=context, name="leader")

    def handle(self, message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        if isinstance(message, TaskEnded):
            if isinstance(message.outcome, Failed):
                raise message.outcome.exception
            self._cell.stop()
