"""Which resources clients want to hear of, and to which of them the other server is asked to subscribe: those that it may have, up to a bound."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from mcpbus.protocol.uris import UriSet

_log = logging.getLogger("mcpbus")

MOST_URIS: Final = 1_000
"""To how many resources of the other server this one subscribes at most."""


class Wishes:
    """Those of all clients of one opened proxy.

    Args:
        knows: Tells whether the other server may have a resource, as far as it is known now.

    Attributes:
        chosen: What is to be subscribed to.
    """

    def __init__(self, knows: Callable[[str], bool]) -> None:
        self._knows = knows
        self.chosen = UriSet()
        # What the other server has, too, but is too much, the oldest first; and what it has not, or not yet.
        self._beyond: dict[str, None] = {}
        self._unknown: dict[str, None] = {}

    def add(self, uri: str) -> None:
        """Note that clients want to hear of a resource."""
        if not self._knows(uri):
            self._unknown[uri] = None
        elif len(self.chosen) < MOST_URIS:
            self.chosen.add(uri)
        else:
            if not self._beyond:
                _log.warning("%r is not subscribed to: %s other resources are", uri, MOST_URIS)
            self._beyond[uri] = None

    def discard(self, uri: str) -> None:
        """Note that nobody wants to hear of it any more; what was too much takes its place."""
        self._unknown.pop(uri, None)
        self._beyond.pop(uri, None)
        self.chosen.discard(uri)
        if self._beyond and len(self.chosen) < MOST_URIS:
            oldest = next(iter(self._beyond))
            del self._beyond[oldest]
            self.chosen.add(oldest)

    def look_again(self) -> None:
        """Choose among what the other server had not, now that it may have something else."""
        unknown, self._unknown = self._unknown, {}
        for uri in unknown:
            self.add(uri)

    def among(self, uris: Iterable[str]) -> UriSet:
        """Return which of these are subscribed to, or about to be."""
        return UriSet(uri for uri in uris if uri in self.chosen)
