"""The line of those for whom somebody else has to be asked: so many at once, and of those who wait one of each peer in its turn."""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from mcpbus.protocol.owners import Peer


class IssuerQueue:
    """A line in which who has many places delays nobody who has few.

    Args:
        limit: How many are served at once.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        # Those who wait, in the order of their turns. As long as there are any, no place is left.
        self._waiting: OrderedDict[Peer | None, trio.lowlevel.ParkingLot] = OrderedDict()
        self._limit = limit

    @property
    def served(self) -> int:
        """How many are served now."""
        return self._limit - self._left

    @asynccontextmanager
    async def turn(self, peer: Peer | None) -> AsyncIterator[None]:
        """Wait for a turn of a peer's, which lasts as long as the block."""
        if self._left:
            self._left -= 1
        else:
            await self._wait(peer)
        try:
            yield
        finally:
            self._call_next()

    async def _wait(self, peer: Peer | None) -> None:
        lot = self._waiting.get(peer)
        if lot is None:
            lot = self._waiting[peer] = trio.lowlevel.ParkingLot()
        try:
            await lot.park()
        except trio.Cancelled:
            if not lot and self._waiting.get(peer) is lot:
                del self._waiting[peer]
            raise

    def _call_next(self) -> None:
        while self._waiting:
            peer, lot = self._waiting.popitem(last=False)
            if lot:  # otherwise all of that peer's have left in this turn of the scheduler
                lot.unpark()
                if lot:
                    self._waiting[peer] = lot
                return
        self._left += 1
