"""Guests: tasks of an actor that run in a trio task of somebody else's, their host.

Most tasks end without ever waiting for anything. Run by whoever waits for them anyway, they cost no task, no turn of the
scheduler, and no cancel scope of their own.
"""

import contextvars
import types
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

import trio

from actors._messages import Failed, Outcome, Succeeded
from actors._tasks import CANCELLED, Task, is_cancellation

if TYPE_CHECKING:
    from actors._cell import Cell


class Guest(Task):
    """A task of an actor that waits for its host. Its end arrives at the actor as that of any other task.

    Made by `Cell.start_guest`, and run once, by `run`.
    """

    __slots__ = ("_args", "_cancelled", "_context", "_function")

    def __init__(
        self,
        cell: "Cell[Any]",
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        self.owner = cell.address
        self._cell = cell
        self._scope = None
        self._cancelled = False
        self._context = context
        self._function = function
        self._args = args

    def cancel(self) -> None:
        """Cancel the task; one that has not begun will not. Harmless once it has ended."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def abandon(self) -> None:
        """Cancel the task on behalf of an instance that has ended and is to hear nothing more of it."""
        self._cell = None
        self.cancel()

    @types.coroutine
    def run(self, scope: trio.CancelScope, waits: Callable[[], object]) -> Generator[Any, Any, bool]:
        """Run the task in the present trio task, but in the contextvars that it was given.

        Args:
            scope: Encloses this call and nothing that must outlive a cancellation. Cancelling the task cancels it.
            waits: Called once, when the task waits for the first time or was cancelled: from now on the host is busy
                with it for as long as it takes, and whatever else the host had to do is for somebody else to do.

        Returns:
            Whether `waits` was not called: then the task has ended, and the host is free.

        Raises:
            trio.Cancelled: The scope, or one around it, was cancelled.
        """
        if self._cancelled:
            self._end(self._cell, CANCELLED)
            waits()
            return False
        self._scope = scope
        hosting = True
        outcome: Outcome
        coroutine = self._function(*self._args)
        step, send, received = self._context.run, coroutine.send, None
        try:
            while True:
                # What trio's functions yield is for trio's run loop, and what it sends is for them.
                trap = step(send, received)
                if hosting:
                    hosting = False
                    waits()
                received = yield trap
        except StopIteration as end:
            outcome = Succeeded(end.value)
        except Exception as error:  # noqa: BLE001 - the owner is told
            outcome = Failed(error)
        except BaseException as error:
            self._scope = None
            coroutine.close()
            self._end(self._cell, CANCELLED if is_cancellation(error) else Failed(error))
            raise
        self._scope = None
        self._end(self._cell, outcome)
        del outcome  # the traceback of an exception in it holds this frame: without this, a cycle
        if hosting and self._cancelled:
            hosting = False
            waits()
        return hosting
