"""How it is found out which tasks another process has reported failed, since it took this one for ended."""

from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final

from mcpbus_actors import ActorContext, ActorSystem, Failed, Succeeded, TaskEnded

_PAUSE: Final = 1.0
"""Seconds until it is looked once more at what was not known."""


class _CheckAgain:
    """Look once more."""


class TakeoverCheck:
    """A look at all tasks that run here, whoever has noticed that some may have been taken. There is an actor for as long as one is due.

    Args:
        system: Where that lives.
        look: Looks at them; whether all was known.
    """

    def __init__(self, system: ActorSystem, look: Callable[[], Awaitable[bool]]) -> None:
        self.look = look
        self.due = False
        self.busy = False
        self._system = system

    def ask(self) -> None:
        """Have a look that begins from now on."""
        self.due = True
        if not self.busy and not self._system.closed:
            self.busy = True
            self._system.spawn(_Reviewer, self)


class _Reviewer:
    """Looks until all is known, and stops."""

    def __init__(self, cell: ActorContext[TaskEnded | _CheckAgain], review: TakeoverCheck) -> None:
        self._cell = cell
        self._review = review
        cell.on_stop(lambda _: self._leave())
        self._look()

    def handle(self, message: TaskEnded | _CheckAgain) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        if isinstance(message, _CheckAgain):
            self._look()
            return
        if isinstance(message.outcome, Failed):
            raise message.outcome.exception  # the fault is the look's own: that of a store is no failure
        if not (isinstance(message.outcome, Succeeded) and message.outcome.value):
            self._cell.after(_PAUSE, _CheckAgain())
        elif self._review.due:
            self._look()
        else:
            self._cell.stop()

    def _look(self) -> None:
        self._review.due = False
        self._cell.start_task(self._review.look, context=Context())

    def _leave(self) -> None:
        self._review.busy = False
