"""Tasks that do what a program in the same process asks for: one thing after the other, without a task for each.

Whoever asks waits until it is done, so nothing would be gained by a task of its own as long as it does not wait. Done in the
task of whoever asks, on the other hand, it would be cancelled together with that, before the bus hears of it; and it could
not go on when the answer is there, as a parked call does.

With many who ask, one turn of the scheduler serves all of them.
"""

from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

import msgspec
import trio
from mcpbus_actors import Cell, Directive, EagerTask, Failed, System, TaskEnded

from mcpbus.core.hub import Hub
from mcpbus.dispatch.methods import METHODS
from mcpbus.protocol.revisions import Era

T = TypeVar("T")

_CALL: Final = "tools/call"
# Before Python 3.12 each look-up by a class's name is a search.
_MODERN: Final = Era.MODERN

NEVER_ENTERED: Final = trio.CancelScope()
"""For handlers that end in their only step: a cancellation cannot reach them. Nobody enters it, or asks whether it was cancelled."""

_MOST_AT_REST: Final = 16
"""How many tasks are kept for the next that wait."""


def may_wait(bus: Hub, method: str, tool: object, era: Era) -> bool:
    """Tell whether the handler of a request may take more than one step; only then does it need a task that may stay with it.

    Args:
        bus: The bus.
        method: What is asked for.
        tool: Whatever was given for a name, which is that of a tool if one is called.
        era: The client's. Over the legacy protocol even a function that cannot wait may have its client asked, by an
            `InputRequired`.
    """
    row = METHODS.get(method)
    if row is None:
        return True
    if row.answer is not None:
        return False
    if method != _CALL or not isinstance(tool, str) or era is not _MODERN:
        return True
    found = bus.features.tools.get(tool)
    return found is None or found.task is not None or bus.runner.waits(found.function)


class _Start(msgspec.Struct, frozen=True):
    """Start a task."""


class Hosts(Generic[T]):
    """One task, as a rule, that takes what is put; while an eager task of its waits, another one takes its place.

    Args:
        system: Where the tasks live. They end with it, or after `close` with the last of what they run.
        take: Takes one thing, given the scope of the task. Returns the eager task that waits, or has cancelled the scope,
            if there is one.

    Attributes:
        awake: Whether some task is about to look at what was put, or at work on it. Until it rests, nobody needs to be woken.
        closed: Whether nothing more is done.
    """

    def __init__(self, system: System, take: Callable[[T, trio.CancelScope], EagerTask | None]) -> None:
        self._take = take
        self._queue: deque[T] = deque()
        self._resting: list[trio.lowlevel.Task] = []
        self.awake = False
        self.closed = False
        # Without its tasks, whoever asks would wait for ever.
        self._owner = system.spawn(_Owner, self, strategy=_escalate)

    @trio.lowlevel.enable_ki_protection
    def put(self, thing: T) -> None:
        """Have something done, after what was put before it. Never waits; nothing is done once it is closed."""
        if not self.closed:
            self._queue.append(thing)
            if not self.awake:
                self._wake()

    @trio.lowlevel.enable_ki_protection
    def close(self) -> None:
        """Do nothing more. Eager tasks that wait go on."""
        if self.closed:
            return
        self.closed = True
        self._queue.clear()
        for task in self._resting:
            trio.lowlevel.reschedule(task)
        self._resting.clear()
        self._owner.tell(None)

    async def run(self) -> None:
        """Be one of the tasks. For their owner."""
        needed = True
        while needed:
            with trio.CancelScope() as scope:
                needed = await self._run(scope)

    async def _run(self, scope: trio.CancelScope) -> bool:
        """Work and rest, until an eager task has cancelled the scope; return False where there is no need to begin again."""
        while True:
            eager = self._work(scope)
            if eager is not None:
                if eager.outcome is None:
                    await eager.finish()
                if eager.cancelled:
                    return True
            elif self.closed or len(self._resting) == _MOST_AT_REST:
                return False
            else:
                await self._rest()

    def _work(self, scope: trio.CancelScope) -> EagerTask | None:
        """Take what is in the queue, until it is empty, or there is an eager task to go on with."""
        queue = self._queue
        self.awake = True
        while queue:
            eager = self._take(queue.popleft(), scope)
            if eager is not None:
                self.awake = False
                if queue:
                    self._wake()
                return eager
        self.awake = False
        return None

    def _wake(self) -> None:
        self.awake = True
        if self._resting:
            trio.lowlevel.reschedule(self._resting.pop())
        else:
            self._owner.tell(_Start())

    async def _rest(self) -> None:
        task = trio.lowlevel.current_task()

        def leave(_: object) -> trio.lowlevel.Abort:
            self._resting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        self._resting.append(task)
        await trio.lowlevel.wait_task_rescheduled(leave)


def _escalate(*_: object) -> Directive:
    return Directive.ESCALATE


class _Owner:
    """The actor whose tasks they are."""

    def __init__(self, cell: Cell[object], hosts: Hosts[Any]) -> None:
        self._cell = cell
        self._hosts = hosts
        self._tasks = 0

    def handle(self, message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        if isinstance(message, _Start):
            self._tasks += 1
            self._cell.start_task(self._hosts.run, context=Context(), name="host of calls in process")
        elif isinstance(message, TaskEnded):
            self._tasks -= 1
            if isinstance(message.outcome, Failed):
                raise message.outcome.exception
        if self._hosts.closed and not self._tasks:
            self._cell.stop()
