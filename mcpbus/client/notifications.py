"""What a server says that belongs to no request: kept for whoever asks for it, or told as it comes.

Listens of a client of an older revision, which has none: what changes is told to its session, and handed here to who listens.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import msgspec
import trio

from mcpbus.client.errors import DisconnectedError
from mcpbus.client.kept_notifications import KeptNotifications
from mcpbus.client.pending import ChangeSubscription, OnNotification
from mcpbus.protocol.uris import UriSet, canonical_uri

_DROPPED: Final = "notifications were dropped, of which too many waited, or too large ones"


class Inbox:
    """That of one client.

    Attributes:
        losses: How often some may not have been heard: over HTTP the session may be another one since, or too much waited here.
    """

    def __init__(self) -> None:
        self._kept = KeptNotifications()
        self._hear: OnNotification | None = None
        self.losses = 0
        self._arrived = trio.lowlevel.ParkingLot()
        # Why some were not heard the last time, and why there will be no more.
        self._lost = ""
        self._closed: str | None = None

    @property
    def kept(self) -> deque[tuple[str, dict[str, Any]]]:
        """The method and the params of each notification that was not taken yet, the oldest first."""
        return self._kept.items

    def put(self, method: str, params: dict[str, Any], text: msgspec.Raw) -> None:
        """Take a notification, whose params were this text."""
        if self._hear is not None:
            self._hear(method, params)
        elif self._kept.add(method, params, text):
            self._arrived.unpark()
        else:
            self.lose(_DROPPED)

    def tell(self, hear: OnNotification) -> None:
        """Have a function called with each notification, as it comes, instead of keeping it."""
        self._hear = hear
        while self._kept.items:
            hear(*self._kept.take())

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Wait for the oldest, and take it.

        Raises:
            DisconnectedError: There will be none any more; or some may have been lost while this waited.
        """
        losses = self.losses
        while not self._kept.items:
            if self._closed is not None:
                raise DisconnectedError(self._closed)
            if self.losses != losses:
                raise DisconnectedError(self._lost)
            await self._arrived.park()
        return self._kept.take()

    def lose(self, why: str) -> None:
        """Tell who waits that something may have been lost."""
        self.losses += 1
        self._lost = why
        self._arrived.unpark_all()

    def close(self, why: str) -> None:
        """Tell who waits that there will be no more."""
        self._closed = why
        self._arrived.unpark_all()


_UPDATED: Final = "notifications/resources/updated"


@attrs.frozen(eq=False)
class _Listening:
    """Who listens to what.

    Attributes:
        listen: Who.
        lists: The methods that tell of changes of lists.
        uris: The resources.
    """

    listen: ChangeSubscription
    lists: frozenset[str]
    uris: UriSet

    def hears(self, method: str, params: Mapping[str, Any]) -> bool:
        """Tell whether this is what it listens to; of resources those that lie below one that it named, too."""
        if method != _UPDATED:
            return method in self.lists
        if not isinstance(uri := params.get("uri"), str):
            return False
        canonical = canonical_uri(uri)
        return any(
            canonical == named or canonical.startswith(named.removesuffix("/") + "/")
            for named in self.uris.canonical
        )


@attrs.define
class SessionListens:
    """The open ones of one client."""

    _open: dict[ChangeSubscription, _Listening] = attrs.Factory(dict)

    def add(self, listen: ChangeSubscription, kinds: Iterable[str], uris: Iterable[str]) -> None:
        """Tell a listen of the lists of these kinds, such as ``tools``, and of these resources."""
        lists = frozenset(f"notifications/{kind}/list_changed" for kind in kinds)
        self._open[listen] = _Listening(listen, lists, UriSet(uris))

    def remove(self, listen: ChangeSubscription) -> UriSet:
        """Tell it no more; returns of which resources nobody wants to hear any more. One that has ended with its session has none."""
        removed = self._open.pop(listen, None)
        if removed is None:
            return UriSet()
        heard = UriSet(uri for other in self._open.values() for uri in other.uris)
        return UriSet(uri for uri in removed.uris if uri not in heard)

    def take(self, method: str, params: dict[str, Any], text: msgspec.Raw) -> bool:
        """Give a notification, whose params were this text, to all who listen to that; returns whether anybody does."""
        hearing = [each.listen for each in self._open.values() if each.hears(method, params)]
        for listen in hearing:
            listen.put(method, params, text)
        return bool(hearing)

    def end(self) -> None:
        """End them all: nothing is told to them any more."""
        ended, self._open = self._open, {}
        for listen in ended:
            listen.end()


def tells(capabilities: Mapping[str, Any], kind: str, what: str = "listChanged") -> bool:
    """Tell whether a server has declared to tell of changes of a list; or, if `what` is ``subscribe``, of the resources in it."""
    declared = capabilities.get(kind)
    return isinstance(declared, Mapping) and declared.get(what) is True
