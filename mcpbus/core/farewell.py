"""What runs when a session has ended, and the actor that owns the task of it."""

from collections.abc import Awaitable, Callable
from contextvars import copy_context

from mcpbus_actors import Cell

from mcpbus.core.open_count import OpenCount


class FarewellActor:
    """Runs what a backend does for a session that has ended, and ends with it.

    Args:
        cell: Its cell.
        farewells: Where it is counted, so that a drain can wait for it.
        run: Runs it; ends in time by itself.
    """

    __slots__ = ("_cell",)

    def __init__(
        self, cell: Cell[object], farewells: OpenCount, run: Callable[[], Awaitable[object]]
    ) -> None:
        self._cell = cell
        farewells.opened()
        cell.on_stop(lambda _: farewells.ended())
        cell.start_task(run, context=copy_context())

    def handle(self, _message: object) -> None:
        """Handle one message: its task has ended. See `mcpbus_actors.Actor`."""
        self._cell.stop()
