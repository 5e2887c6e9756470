"""By which buses a server reaches clients: by its own, and by those of the servers that it is mounted in."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from mcpbus.bus import Bus
from mcpbus.core.receipt import Broadcast
from mcpbus.features.mounting import Mount
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.validators import check_text

_Way: TypeAlias = tuple[Mount, ...]
"""The mounts between a server and one above it, from below."""
_NOT_OPEN: Final = "it is not open; server.run(), server.serve() and server.open() open it"


class BusSet:
    """The buses by which one server reaches clients.

    Args:
        name: The server's, for messages.

    Attributes:
        opened: Whether the server itself is open, be it that its lifespan has not yielded yet.
        own: Its own bus; None until its lifespan has yielded.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._above: list[tuple[BusSet, Mount]] = []
        self.opened = False
        self.own: Bus[Any] | None = None

    def add_above(self, above: "BusSet", mount: Mount) -> None:
        """Note that the server is mounted in another one, whose buses reach clients of its too."""
        self._above.append((above, mount))

    def remove_above(self, above: "BusSet") -> None:
        """Note that the server is mounted there no more."""
        self._above = [each for each in self._above if each[0] is not above]

    def is_open(self) -> bool:
        """Whether the server is open, or one that it is mounted in."""
        return any(buses.opened for buses, _ in self._ways_up())

    def nearest(self) -> Bus[Any]:
        """Return its own bus, or that of a server that it is mounted in.

        Raises:
            RuntimeError: There is none.
        """
        bus = next((bus for bus, _ in self._open()), None)
        if bus is None:
            why = "its lifespan has not yielded yet" if self.is_open() else _NOT_OPEN
            raise RuntimeError(f"server {self._name!r} has no bus: {why}")
        return bus

    def tell(self, tell: Callable[[Bus[Any]], Broadcast]) -> Broadcast:
        """Tell the clients of all of them.

        Raises:
            RuntimeError: The server is not open.
        """
        return self._tell(lambda bus, _way: tell(bus))

    def resource_updated(self, uri: str) -> Broadcast:
        """Tell the clients of all of them that a resource changed, by the URI that it has there; see `tell`.

        Raises:
            TypeError: The URI is no text.
        """
        check_text("server.resource_updated()", uri=uri)
        return self._tell(lambda bus, way: bus.resource_updated(_uri_above(uri, way)))

    def list_changed_for(self, key: Hashable, name: ListName, sessions: bool) -> None:
        """Tell one client that a list has changed; see `Hub.list_changed_for`."""
        for bus, _ in self._open():
            bus.list_changed_for(key, name, sessions=sessions)

    def resource_updated_for(self, key: Hashable, uri: str) -> None:
        """Tell one client that a resource was updated; see `Hub.resource_updated_for`."""
        for bus, way in self._open():
            bus.resource_updated_for(key, _uri_above(uri, way))

    def _tell(self, tell: Callable[[Bus[Any], _Way], Broadcast]) -> Broadcast:
        if not self.is_open():
            raise RuntimeError(f"server {self._name!r} has nobody to tell: {_NOT_OPEN}")
        told = [tell(bus, way) for bus, way in self._open()]
        broadcast = Broadcast([receipt for each in told for receipt in each])
        broadcast.elsewhere = tuple(elsewhere for each in told for elsewhere in each.elsewhere)
        return broadcast

    def subscriptions(self) -> list[tuple[str, Hashable]]:
        """Return the resources that clients have subscribed to, by the URIs that they have in this server, each with its subscriber."""
        found = []
        for bus, way in self._open():
            for above, owner in bus.topics.subscriptions:
                uri: str | None = above
                for mount in reversed(way):
                    uri = None if uri is None else mount.watched_below(uri, owner)
                if uri is not None:
                    found.append((uri, owner))
        return found

    def open_now(self) -> list[Bus[Any]]:
        """Return the buses that are there."""
        return [bus for bus, _ in self._open()]

    def _open(self) -> Iterator[tuple[Bus[Any], _Way]]:
        """Yield the buses that are there, with the way to each."""
        for buses, way in self._ways_up():
            if buses.own is not None:
                yield buses.own, way

    def _ways_up(self) -> "Iterator[tuple[BusSet, _Way]]":
        """Yield the server's own and those of the servers that it is mounted in, and so on, with the way to each."""
        yield self, ()
        for above, mount in self._above:
            for buses, way in above._ways_up():  # noqa: SLF001 - its own kind
                yield buses, (mount, *way)


def _uri_above(uri: str, way: Sequence[Mount]) -> str:
    for mount in way:
        uri = mount.uri_above(uri)
    return uri
