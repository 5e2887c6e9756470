# ruff: noqa: SLF001 - a task is part of the actor that started it
"""Tasks: ordinary trio, started by an actor and reporting to it.

A task is one trio task in the system's nursery, one cancel scope, and nothing more. It runs in the
contextvars it is given: trio would copy the context of whoever calls ``start_soon``, and an actor runs
on the stack of whoever told it something.
"""

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import trio

from mcpbus_actors._address import Address
from mcpbus_actors._errors import split_failure
from mcpbus_actors._mailbox import Mailbox, added, removed
from mcpbus_actors._messages import Failed, Outcome, Succeeded, TaskCancelled

CANCELLED: Final = TaskCancelled()


class Task(msgspec.Struct, eq=False):
    """A running task of an actor. Its end arrives there as ``TaskEnded(task, outcome)``.

    Attributes:
        owner: The address of the actor that started or adopted it; None of an eager one that no actor has adopted.
    """

    _scope: trio.CancelScope | None
    owner: Address[Any] | None = None
    _mailbox: Mailbox[Any] | None = None

    def cancel(self) -> None:
        """Cancel the task. Its end is still reported, with whatever it made of the cancellation."""
        if self._scope is not None:
            self._scope.cancel()

    def abandon(self) -> None:
        """Cancel the task on behalf of an instance that has ended and is to hear nothing more of it."""
        self._mailbox = None
        self.cancel()

    def forget(self) -> None:
        """Hold the outcome no longer, since no actor gets it; for this package."""

    def move(self, owner: Address[Any]) -> bool:
        """Belong to another actor from now on, which is told of the end; for this package.

        Returns:
            Whether it does; it does not if it has ended.
        """
        if self._mailbox is None:
            return False
        self._mailbox._tasks = removed(self._mailbox._tasks, self)
        self._enter(owner)
        return True

    def _enter(self, owner: Address[Any]) -> None:
        """Count it among the tasks of an actor."""
        mailbox = owner._mailbox
        mailbox._tasks = added(mailbox._tasks, self)
        self.owner, self._mailbox = owner, mailbox

    @trio.lowlevel.enable_ki_protection
    def _end(self, owner: Address[Any], outcome: Outcome) -> None:
        # What came of it may be large. It is not to wait in the lanes beside that of all others that end before the system's task has
        # its next turn: what is told first may be that its owner ends.
        owner._dispatcher.make_room()
        mailbox = self._mailbox
        if mailbox is not None:
            self._mailbox = None
            mailbox._tasks = removed(mailbox._tasks, self)
            owner._dispatcher.deliver(mailbox, TaskEnded(self, outcome))
        elif outcome is not CANCELLED:
            # Its owner is gone. It was cancelled for that, so anything else is news.
            owner._mailbox.system.refuse(owner, TaskEnded(self, outcome), owner.drop_reason)


class TaskEnded(msgspec.Struct, frozen=True):
    """Told to an actor when a task it started has ended; never refused for want of room."""

    task: Task
    outcome: Outcome


def start(
    owner: Address[Any],
    function: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    context: contextvars.Context,
    name: object,
) -> Task:
    """Start a task for an actor; see `ActorContext.start_task`."""
    task = Task(trio.CancelScope())
    start_soon = owner._dispatcher.nursery.start_soon
    # A copy, as the caller may be running in that very context, which cannot be entered twice.
    context.copy().run(start_soon, _run, task, function, args, name=name)  # type: ignore[arg-type] # mypy loses `name`
    task._enter(owner)
    return task


async def _run(task: Task, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
    outcome: Outcome = CANCELLED  # which it stays if the scope swallows the cancellation
    rest: BaseException | None = None
    scope = task._scope
    assert scope is not None  # noqa: S101 - a task of the system's own has one from the beginning
    try:
        with scope:
            outcome = Succeeded(await function(*args))
    except BaseException as error:  # noqa: BLE001 - the owner is told
        outcome, rest = classify_failure(error)
    assert task.owner is not None  # noqa: S101 - it was started for somebody
    task._end(task.owner, outcome)
    try:
        if rest is not None:
            raise rest
    finally:
        del outcome, rest  # the traceback of an exception in them holds this frame: without this, a cycle


def classify_failure(error: BaseException, *, waited: bool = True) -> tuple[Outcome, BaseException | None]:
    """Tell what came of a task that raised, and what is to be raised on in the trio task that ran it; see `split_failure`."""
    failure, rest = split_failure(error, waited=waited)
    if failure is not None:
        return Failed(failure), rest
    cancelled = isinstance(error, trio.Cancelled) or (
        isinstance(error, BaseExceptionGroup) and error.split(trio.Cancelled)[1] is None
    )
    return CANCELLED if cancelled else Failed(error), rest
