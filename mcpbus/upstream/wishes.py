"""The resources that clients want to hear of, and those of them to which mcpbus subscribes at the upstream server."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from mcpbus.core.shares import NoRoomError, Shares
from mcpbus.protocol.uris import UriSet

_log = logging.getLogger("mcpbus")

MOST_URIS: Final = 1_000
"""Resources of one upstream server to which mcpbus subscribes at once. Owners share them, see `Shares`."""


class SubscriptionSelector:
    """The wishes of all clients of one opened proxy.

    Each subscription is counted to one of the owners that want it. At the bound, an owner with fewer of them takes the place of one of
    the owner that has most.

    Args:
        knows: Tells whether the upstream server may have a resource, as far as it is known now.

    Attributes:
        chosen: The resources to subscribe to.
    """

    def __init__(self, knows: Callable[[str], bool]) -> None:
        self._knows = knows
        self.chosen = UriSet()
        self._shares: Shares[str] = Shares(MOST_URIS)
        # The owners that want a resource, the one first to which its subscription is counted.
        self._owners: dict[str, OrderedDict[Hashable, None]] = {}
        # Resources beyond the bound, by owner. Owners take turns.
        self._beyond: OrderedDict[Hashable, dict[str, None]] = OrderedDict()
        # Resources that the upstream server does not have, or not yet.
        self._unknown: dict[str, None] = {}

    def wanted(self, uri: str) -> bool:
        """Tell whether any owner wants to hear of a resource."""
        return uri in self._owners

    def add(self, uri: str, owner: Hashable) -> None:
        """Note that an owner wants to hear of a resource."""
        self._owners.setdefault(uri, OrderedDict())[owner] = None
        if uri not in self.chosen:
            self._consider(uri)

    def discard(self, uri: str, owner: Hashable) -> None:
        """Note that an owner wants to hear of a resource no more. Another one takes its place."""
        owners = self._owners.get(uri, OrderedDict())
        if owner not in owners:
            return
        counted = uri in self.chosen and next(iter(owners)) == owner
        del owners[owner]
        self._leave_line(uri, owner)
        if counted:
            self._shares.leave(uri)
            self.chosen.discard(uri)
        if not owners:
            del self._owners[uri]
            self._unknown.pop(uri, None)
        elif counted:
            self._consider(uri)
        while self._beyond and len(self.chosen) < MOST_URIS:
            owner, uris = self._beyond.popitem(last=False)
            self._beyond[owner] = uris
            self._choose(next(iter(uris)), owner)

    def look_again(self) -> None:
        """Choose among what the upstream server had not, now that it may have something else."""
        unknown, self._unknown = self._unknown, {}
        for uri in unknown:
            self._consider(uri)

    def selected(self, uris: Iterable[str]) -> UriSet:
        """Return which of these are subscribed to, or about to be."""
        return UriSet(uri for uri in uris if uri in self.chosen)

    def _consider(self, uri: str) -> None:
        """Subscribe to a resource that is known, on the account of the first owner that has a place for it."""
        if not self._knows(uri):
            self._unknown[uri] = None
            return
        for owner in [*self._owners[uri]]:
            try:
                displaced = self._shares.make_room(owner, of_its_own=False)
            except NoRoomError:
                if not self._beyond:
                    _log.warning("%r is not subscribed to: %s other resources are", uri, MOST_URIS)
                self._beyond.setdefault(owner, {})[uri] = None
                continue
            if displaced is not None:
                self.chosen.discard(displaced)
                for other in self._owners[displaced]:
                    self._beyond.setdefault(other, {})[displaced] = None
            self._choose(uri, owner)
            return

    def _choose(self, uri: str, owner: Hashable) -> None:
        self._shares.enter(owner, uri)
        self.chosen.add(uri)
        owners = self._owners[uri]
        owners.move_to_end(owner, last=False)
        for each in owners:
            self._leave_line(uri, each)

    def _leave_line(self, uri: str, owner: Hashable) -> None:
        uris = self._beyond.get(owner)
        if uris is not None:
            uris.pop(uri, None)
            if not uris:
                del self._beyond[owner]
