"""The bus of a handler that is a plain function, in a thread of its own."""

from functools import partial

from mcpbus.core.hub import Hub
from mcpbus.core.receipt import Broadcast
from mcpbus.core.statistics import Statistics


class SyncBus:
    """The bus that serves a request, for a plain function: what it says is said in the thread that trio runs in.

    `Context.bus`, which an async function has, does more.
    """

    __slots__ = ("_bus",)

    def __init__(self, bus: Hub) -> None:
        self._bus = bus

    def tools_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of tools has changed."""
        return self._bus.from_thread.run(self._bus.tools_changed)

    def prompts_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of prompts has changed."""
        return self._bus.from_thread.run(self._bus.prompts_changed)

    def resources_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of resources or templates has changed."""
        return self._bus.from_thread.run(self._bus.resources_changed)

    def resource_updated(self, uri: str) -> Broadcast:
        """Tell every client that subscribed to `uri`, or to one that it lies below, that its contents changed."""
        return self._bus.from_thread.run(partial(self._bus.resource_updated, uri))

    def statistics(self) -> Statistics:
        """Return what the bus has done and holds at this moment."""
        return self._bus.from_thread.run(self._bus.statistics)
