"""What a client tells the server, and the actor under which the function runs that an author registered for it.

It has a place among the requests in flight, those of its session if it came in one: that bounds how many there are, counts them to
whoever sent them, ends them with their session, and has a drain wait for them.
"""

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

import msgspec
from mcpbus_actors import ActorContext, Address

from mcpbus.core.admission import RequestSlot
from mcpbus.core.sessions.session import Session
from mcpbus.core.signals import InputEnded


class ClientNotification(msgspec.Struct, frozen=True):
    """A notification that a client sent.

    Attributes:
        method: Its method, such as ``notifications/roots/list_changed``.
        params: Its parameters, as the client sent them; empty if there were none.
        session: The legacy session in which it came; None in revision 2026-07-28 and in stateless serving.
        principal: Whom `authenticate` found behind it.
        state: What the server's lifespan yielded.
    """

    method: str
    params: dict[str, Any]
    session: Session | None
    principal: Any
    state: Any


class NotificationActor:
    """Owns the task of a function that was registered for a notification, and ends with it.

    Args:
        cell: Its cell.
        slot: Its place at admission.
        run: Runs the function.
    """

    __slots__ = ("_cell",)

    def __init__(
        self, cell: ActorContext[object], slot: RequestSlot, run: Callable[[], Awaitable[object]]
    ) -> None:
        self._cell = cell
        slot.request = self
        cell.on_stop(lambda _: slot.release())
        cell.start_task(run, context=copy_context())

    @property
    def address(self) -> Address[object]:
        """Where it can be reached."""
        return self._cell.address

    def handle(self, message: object) -> None:
        """Handle one message: its task has ended, or is to end. See `mcpbus_actors.Actor`."""
        if not isinstance(message, InputEnded):
            self._cell.stop()
