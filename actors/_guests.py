"""Guests: tasks that run in a trio task of somebody else's, their host.

Most tasks end without ever waiting for anything. Run by whoever waits for them anyway, they cost no task, no turn of the
scheduler, and no cancel scope of their own; and until one waits, nobody else can notice that it is there.
"""

import contextvars
import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from actors._messages import Failed, Outcome, Succeeded
from actors._tasks import CANCELLED, Task, enter, is_cancellation

if TYPE_CHECKING:
    from actors._cell import Cell


class Guest(Task, kw_only=True, eq=False):
    """A task for a host: ``if not guest.begin(): await guest.go_on()``.

    It belongs to no actor until one adopts it, see `Cell.adopt`. From then on its end arrives there as that of any other
    task, and the actor's end cancels it.

    Made with a scope that encloses its host, and nothing that must outlive a cancellation: cancelling the task cancels it.

    Attributes:
        coroutine: What it runs.
        context: The contextvars it runs in, which nothing else may run in meanwhile.
        outcome: What came of it; None until it has ended.
    """

    coroutine: Coroutine[Any, Any, Any]
    context: contextvars.Context
    outcome: Outcome | None = None
    _cancelled: bool = False
    _trap: Any = None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, and its host's scope with it."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the task, and its host. Harmless once it has ended."""
        if self._scope is not None:
            self._cancelled = True
            self._scope.cancel()

    def move(self, cell: "Cell[Any]") -> bool:
        """Belong to an actor from now on, which is told of the end; for this package.

        Returns:
            Whether it does; it does not if it has ended, or if its actor did without handing it on.
        """
        if self.owner is not None:
            return super().move(cell)
        if self.outcome is not None:
            return False
        self._cell, self.owner = cell, cell.address
        enter(cell, self)
        return True

    def begin(self) -> bool:
        """Run it until it waits for the first time, or ends. No schedule point.

        Returns:
            Whether it has ended. If not, the host must call `go_on` before it does anything else that waits.
        """
        try:
            # What trio's functions yield is for trio's run loop, and what it sends is for them.
            self._trap = self.context.run(self.coroutine.send, None)
        except StopIteration as end:
            self._conclude(Succeeded(end.value))
        except Exception as error:  # noqa: BLE001 - whoever asks for the outcome is told
            self._conclude(Failed(error))
        except BaseException as error:
            self._conclude(Failed(error))
            raise
        else:
            return False
        return True

    @types.coroutine
    def go_on(self) -> Generator[Any, Any, None]:
        """Run it to its end.

        Raises:
            trio.Cancelled: Its scope, or one around it, was cancelled.
        """
        step, send, trap = self.context.run, self.coroutine.send, self._trap
        self._trap = None
        try:
            while True:
                trap = step(send, (yield trap))
        except StopIteration as end:
            outcome: Outcome = Succeeded(end.value)
        except Exception as error:  # noqa: BLE001 - whoever asks for the outcome is told
            outcome = Failed(error)
        except BaseException as error:
            self.coroutine.close()
            self._conclude(CANCELLED if is_cancellation(error) else Failed(error))
            raise
        self._conclude(outcome)
        del outcome  # the traceback of an exception in it holds this frame: without this, a cycle

    def _conclude(self, outcome: Outcome) -> None:
        self._scope = None
        self.outcome = outcome
        if self.owner is not None:
            self._end(self._cell, outcome)
