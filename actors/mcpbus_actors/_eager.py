"""Eager tasks: they start at once, in a trio task of somebody else's, their host.

Most tasks end without ever waiting for anything. Run by whoever waits for them anyway, they cost no task, no turn of the
scheduler, and no cancel scope of their own; and until one waits, nobody else can notice that it is there.
"""

import contextvars
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

import trio

from mcpbus_actors._address import Address
from mcpbus_actors._messages import Outcome, Succeeded
from mcpbus_actors._tasks import CANCELLED, Task, classify_failure


async def _sleep_on() -> None:
    """Sleep until woken, whoever is cancelled meanwhile."""
    await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)


# What trio's own functions yield to its run loop; it has no public name.
_CHECKPOINT: Final = trio.lowlevel.cancel_shielded_checkpoint().send(None)  # noqa: ASYNC105 - one step of it
_WOKEN: Final = _sleep_on().send(None)
_SLEEP: Final = type(_WOKEN)

_STARTED: Final = object()
"""The sleep data of a host whose task is about to sleep, if that has set none: trio clears it when the host is woken."""


class EagerTask(Task, kw_only=True, eq=False):
    """A task for a host: ``if not task.start(): await task.finish()``.

    It belongs to no actor until one adopts it, see `ActorContext.adopt`. From then on its end arrives there as that of any other
    task, and the actor's end cancels it.

    Made with a scope that encloses its host, and nothing that must outlive a cancellation: cancelling the task cancels it.

    Attributes:
        coroutine: What it runs.
        context: The contextvars it runs in, which nothing else may run in meanwhile.
        outcome: What came of it; None until it has ended.
        woken: How often it has gone on after a wait.
        report: Called at its end with the task, if no actor has adopted it; such as to tell one that is still dormant.
    """

    coroutine: Coroutine[Any, Any, Any]
    context: contextvars.Context
    outcome: Outcome | None = None
    woken: int = 0
    report: "Callable[[EagerTask], object] | None" = None
    _cancelled: bool = False
    _trap: Any = None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, and its host's scope with it."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the task, and its host. Harmless once it has ended."""
        if self.outcome is None:
            self._cancelled = True
        super().cancel()

    def forget(self) -> None:
        """See `Task.forget`. The traceback of a failure holds the arguments of the task, and often the task."""
        self.outcome = CANCELLED

    def move(self, owner: Address[Any]) -> bool:
        """Belong to an actor from now on, which is told of the end; for this package.

        Returns:
            Whether it does; it does not if it has ended, or if its actor did without handing it on.
        """
        if self.owner is not None:
            return super().move(owner)
        if self.outcome is not None:
            return False
        self._enter(owner)
        return True

    def start(self) -> bool:
        """Run it until it waits for the first time, or ends. No schedule point.

        Returns:
            Whether it has ended. If not, the host must call `finish` before it does anything else that waits.

        Raises:
            KeyboardInterrupt: The user ends the program.
        """
        try:
            # What trio's functions yield is for trio's run loop, and what it sends is for them.
            self._trap = self.context.run(self.coroutine.send, None)
        except StopIteration as end:
            self._conclude(Succeeded(end.value))
            return True
        except BaseException as error:  # noqa: BLE001 - whoever asks for the outcome is told
            self._fail(error, waited=False)
            return True
        task = trio.lowlevel.current_task()
        if task.custom_sleep_data is None:
            task.custom_sleep_data = _STARTED
        return False

    @types.coroutine
    def finish(self) -> Generator[Any, Any, None]:
        """Run it to its end. It may have come to that already.

        Raises:
            trio.Cancelled: Its scope, or one around it, was cancelled.
            KeyboardInterrupt: The user ends the program.
        """
        if self.outcome is not None:
            return
        step, coroutine, trap = self.context.run, self.coroutine, self._trap
        self._trap = None
        if trio.lowlevel.current_task().custom_sleep_data is None:
            # What it waits for came in the rest of its host's turn, before trio had heard that it waits, and the task is due
            # already. There is no wait any more that a cancellation could end.
            trap = _WOKEN
        while True:
            if type(trap) is _SLEEP or trap is _CHECKPOINT:
                function, value = coroutine.send, (yield trap)
            else:
                yield _CHECKPOINT
                function, value = coroutine.throw, _unknown(trap)
            self.woken += 1
            try:
                trap = step(function, value)
            except StopIteration as end:
                # Perhaps it was raised within, and its traceback holds this frame: without this, a cycle.
                del value
                self._conclude(Succeeded(end.value))
                return
            except BaseException as error:  # noqa: BLE001 - whoever asks for the outcome is told
                del value  # as above
                self._fail(error)
                return

    def _fail(self, error: BaseException, *, waited: bool = True) -> None:
        if error.__traceback__ is not None:
            # The frame of this task's own step holds the frames of its host, which may hold the outcome: without this, a cycle.
            error.__traceback__ = error.__traceback__.tb_next
        outcome, rest = classify_failure(error, waited=waited)
        self._conclude(outcome)
        if rest is not None:
            try:
                raise rest
            finally:
                del error, rest  # their traceback holds this frame: without this, a cycle

    def _conclude(self, outcome: Outcome) -> None:
        self._scope = None
        self.outcome = outcome
        if self.owner is not None:
            self._end(self.owner, outcome)
        elif self.report is not None:
            self.report(self)


def _unknown(trap: object) -> TypeError:
    """Make the error for a coroutine that waits for something in a way that trio does not know."""
    return TypeError(
        f"{trap!r} is nothing that a task of trio can wait for: is it meant for asyncio, or another framework?"
    )
