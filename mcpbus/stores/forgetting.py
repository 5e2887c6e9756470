"""The actor that makes a store forget a session that has ended."""

import logging
from contextvars import Context

from actors import Cell, Failed, TaskEnded
from mcpbus.stores.protocol import EventStore

_log = logging.getLogger("mcpbus")


class Forgetting:
    """Forgets one session, and stops."""

    def __init__(self, cell: Cell[TaskEnded], store: EventStore, session: str) -> None:
        self._cell = cell
        cell.start_task(store.forget, session, context=Context())

    def handle(self, message: TaskEnded) -> None:
        """Handle one message; see `actors.Actor`."""
        if isinstance(message.outcome, Failed):
            _log.error("the event store could not forget a session", exc_info=message.outcome.exception)
        self._cell.stop()
