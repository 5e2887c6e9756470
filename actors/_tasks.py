# ruff: noqa: SLF001 - a task is part of the cell that started it
"""Tasks: ordinary trio, started by an actor and reporting to it.

A task is one trio task in the system's nursery, one cancel scope, and nothing more. It runs in the
contextvars it is given: trio would copy the context of whoever calls ``start_soon``, and an actor runs
on the stack of whoever told it something.
"""

import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from actors._failures import split_failure
from actors._few import added, removed
from actors._messages import Failed, Outcome, Succeeded, TaskCancelled, TaskEnded

if TYPE_CHECKING:
    from actors._address import Address
    from actors._cell import Cell

CANCELLED: Final = TaskCancelled()


class Task(msgspec.Struct, eq=False):
    """A running task of an actor. Its end arrives there as ``TaskEnded(task, outcome)``.

    Attributes:
        owner: The address of the actor that started or adopted it; None of a guest that no actor has adopted.
    """

    _scope: trio.CancelScope | None
    owner: "Address[Any] | None" = None
    _cell: "Cell[Any] | None" = None

    def cancel(self) -> None:
        """Cancel the task. Its end is still reported, with whatever it made of the cancellation."""
        if self._scope is not None:
            self._scope.cancel()

    def abandon(self) -> None:
        """Cancel the task on behalf of an instance that has ended and is to hear nothing more of it."""
        self._cell = None
        self.cancel()

    def move(self, cell: "Cell[Any]") -> bool:
        """Belong to another actor from now on, which is told of the end; for this package.

        Returns:
            Whether it does; it does not if it has ended.
        """
        if self._cell is None:
            return False
        self._cell._tasks = removed(self._cell._tasks, self)
        self._cell, self.owner = cell, cell.address
        enter(cell, self)
        return True

    @trio.lowlevel.enable_ki_protection
    def _end(self, cell: "Cell[Any] | None", outcome: Outcome) -> None:
        if cell is None:
            self._end_unheard(outcome)
        else:
            self._cell = None
            cell._tasks = removed(cell._tasks, self)
            cell._dispatcher.deliver(cell, TaskEnded(self, outcome))

    def _end_unheard(self, outcome: Outcome) -> None:
        """Report the end of a task whose owner is gone: it was cancelled, so anything else is news."""
        if outcome is not CANCELLED and self.owner is not None:
            dead_letters = self.owner._cell.system.dead_letters
            dead_letters.refuse(self.owner, TaskEnded(self, outcome), self.owner.refusal)


def start(
    cell: "Cell[Any]",
    function: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    context: contextvars.Context,
    name: object,
) -> Task:
    """Start a task for an actor; see `Cell.start_task`."""
    task = Task(trio.CancelScope(), cell.address, cell)
    start_soon = cell._dispatcher.nursery.start_soon
    # A copy, as the caller may be running in that very context, which cannot be entered twice.
    context.copy().run(start_soon, _run, task, function, args, name=name)  # type: ignore[arg-type] # mypy loses `name`
    enter(cell, task)
    return task


def enter(cell: "Cell[Any]", task: Task) -> None:
    """Count a task among those of an actor."""
    cell._tasks = added(cell._tasks, task)


async def _run(task: Task, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
    outcome: Outcome = CANCELLED  # which it stays if the scope swallows the cancellation
    rest: BaseException | None = None
    scope = task._scope
    assert scope is not None  # noqa: S101 - a task of the system's own has one from the beginning
    try:
        with scope:
            outcome = Succeeded(await function(*args))
    except BaseException as error:  # noqa: BLE001 - the owner is told
        outcome, rest = judge(error)
    task._end(task._cell, outcome)
    try:
        if rest is not None:
            raise rest
    finally:
        del outcome, rest  # the traceback of an exception in them holds this frame: without this, a cycle


def judge(error: BaseException, *, waited: bool = True) -> tuple[Outcome, BaseException | None]:
    """Tell what came of a task that raised, and what is to be raised on in the trio task that ran it; see `split_failure`."""
    failure, rest = split_failure(error, waited=waited)
    if failure is not None:
        return Failed(failure), rest
    cancelled = isinstance(error, trio.Cancelled) or (
        isinstance(error, BaseExceptionGroup) and error.split(trio.Cancelled)[1] is None
    )
    return CANCELLED if cancelled else Failed(error), rest
