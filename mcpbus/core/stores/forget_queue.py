"""How a store is made to forget sessions that have ended: one after the other, so that whoever says something waits for one at most."""

import logging
from collections import deque
from contextvars import Context
from typing import Final

from mcpbus_actors import ActorContext, ActorSystem, Failed, TaskEnded

from mcpbus.core.stores.protocol import EventStore

_log = logging.getLogger("mcpbus")

_MOST_WAITING: Final = 100_000
"""Past so many the store keeps the oldest of them for as long as it keeps anything."""


class _RetryForget:
    """Try once more."""


class ForgetQueue:
    """The sessions that a store is still to forget. There is an actor for as long as there are any.

    Args:
        system: Where that lives.
        store: The store.
        pause: Seconds to wait after it failed.
    """

    def __init__(self, system: ActorSystem, store: EventStore, pause: float) -> None:
        self.store = store
        self.pause = pause
        self.waiting: deque[str] = deque(maxlen=_MOST_WAITING)
        self.busy = False
        self._system = system

    def add(self, session: str) -> None:
        """Forget a session, after those that came before."""
        self.waiting.append(session)
        if not self.busy:
            self.busy = True
            self._system.spawn(_Forgetter, self)


class _Forgetter:
    """Forgets what waits, and stops."""

    def __init__(self, cell: ActorContext[TaskEnded | _RetryForget], forgetting: ForgetQueue) -> None:
        self._cell = cell
        self._forgetting = forgetting
        self._failing = False
        self._session = ""
        cell.on_stop(lambda _: self._leave())
        self._next()

    def handle(self, message: TaskEnded | _RetryForget) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        if isinstance(message, TaskEnded) and isinstance(message.outcome, Failed):
            if not self._failing:
                _log.error("the event store could not forget a session", exc_info=message.outcome.exception)
            self._failing = True
            self._forgetting.waiting.append(self._session)
            self._cell.after(self._forgetting.pause, _RetryForget())
            return
        if isinstance(message, TaskEnded):
            self._failing = False
        self._next()

    def _next(self) -> None:
        waiting = self._forgetting.waiting
        if waiting:
            self._session = waiting.popleft()
            self._cell.start_task(self._forgetting.store.forget, self._session, context=Context())
        else:
            self._cell.stop()

    def _leave(self) -> None:
        self._forgetting.busy = False
