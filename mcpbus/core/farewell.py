"""What runs when sessions have ended: for as many at once as there may be sessions, and shared as those are."""

from collections.abc import Awaitable, Callable, Hashable
from contextvars import copy_context
from typing import Any, Final

from mcpbus_actors import ActorContext, ActorSystem, Address

from mcpbus.core.open_count import ActiveCounter
from mcpbus.core.reached_limits import LimitMonitor
from mcpbus.core.shares import NoRoomError, Shares

_CUT_SHORT: Final = "what ran when a session had ended was cut short for another one's"
_NOT_RUN: Final = "what runs when a session has ended was not run"


class SessionEndHooks:
    """What runs for sessions that have ended, by their owners.

    Args:
        system: Where it runs.
        limit: For how many sessions at once. Past it, what has run for longest for whoever has most is cut short.
        reached: Where that is noted.
    """

    def __init__(self, system: ActorSystem, limit: int, reached: LimitMonitor) -> None:
        self._system = system
        self._reached = reached
        self._shares: Shares[Address[Any]] = Shares(limit)
        self._open = ActiveCounter()

    def begin(self, owner: Hashable, run: Callable[[], Awaitable[object]]) -> None:
        """Run what there is for a session.

        Args:
            owner: To whom the session was counted.
            run: Runs it; ends in time by itself.
        """
        try:
            displaced = self._shares.make_room(owner)
        except NoRoomError:
            self._reached.note("max_sessions", owner, _NOT_RUN)
            return
        if displaced is not None:
            self._reached.note("max_sessions", owner, _CUT_SHORT)
            displaced.tell(None)
        self._system.spawn(_SessionEndHook, self, owner, run)

    def entered(self, owner: Hashable, one: Address[Any]) -> None:
        """Count one, for itself."""
        self._shares.enter(owner, one)
        self._open.opened()

    def left(self, one: Address[Any]) -> None:
        """Count one no longer, for itself."""
        self._shares.leave(one)
        self._open.ended()

    async def wait_none(self) -> None:
        """Wait until nothing of it runs."""
        await self._open.wait_none()


class _SessionEndHook:
    """The actor that runs it for one session, and ends with it; or when it is told anything else."""

    __slots__ = ("_cell",)

    def __init__(
        self,
        cell: ActorContext[object],
        farewells: SessionEndHooks,
        owner: Hashable,
        run: Callable[[], Awaitable[object]],
    ) -> None:
        self._cell = cell
        farewells.entered(owner, cell.address)
        cell.on_stop(lambda _: farewells.left(cell.address))
        cell.start_task(run, context=copy_context())

    def handle(self, _message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        self._cell.stop()
