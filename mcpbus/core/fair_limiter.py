"""Places: so many things at once, such as plain functions in worker threads, shared out between the owners of the calls that want them.

What has a place cannot be ended by anybody but itself. So of the last tenth of the places those have some who have little, and of
those who wait each owner has one in its turn, however many calls of another's wait.
"""

from collections import OrderedDict
from collections.abc import Hashable

import trio

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.shares import has_room


class FairLimiter:
    """So many places.

    Args:
        limit: How many there are.
        option: The name of the option that says so.
        waited: What is noted where somebody has to wait for one, for people.
    """

    def __init__(self, limit: int, *, option: str, waited: str) -> None:
        self._limit = limit
        self.option = option
        self.waited = waited
        self._taken: dict[Hashable, int] = {}
        self._total = 0
        # The owners of those who wait, in the order of their turns.
        self._waiting: OrderedDict[Hashable, trio.lowlevel.ParkingLot] = OrderedDict()

    def __len__(self) -> int:
        """How many places are taken."""
        return self._total

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return sum(map(len, self._waiting.values()))

    @property
    def owners(self) -> int:
        """How many owners have or want one."""
        return len(self._taken.keys() | self._waiting.keys())

    def place(self, owner: Hashable, reached: LimitMonitor) -> "FairToken":
        """Return one place for somebody: what `WorkerThreads.run` takes, and `trio.to_thread.run_sync` as its limiter."""
        return FairToken(self, owner, reached)

    def has_room(self, owner: Hashable) -> bool:
        """Tell whether there is a place for somebody. Then nobody of this owner's waits."""
        return has_room(self._limit, self._total, self._taken.get(owner, 0))

    def take(self, owner: Hashable) -> None:
        """Take a place."""
        self._taken[owner] = self._taken.get(owner, 0) + 1
        self._total += 1

    async def wait(self, owner: Hashable) -> None:
        """Wait until a place has been taken for somebody."""
        lot = self._waiting.get(owner)
        if lot is None:
            lot = self._waiting[owner] = trio.lowlevel.ParkingLot()
        try:
            await lot.park()
        finally:
            if not lot and self._waiting.get(owner) is lot:
                del self._waiting[owner]

    def give_back(self, owner: Hashable) -> None:
        """Give a place back, to somebody who waits."""
        left = self._taken.pop(owner, 1) - 1
        if left:
            self._taken[owner] = left
        self._total -= 1
        while (waiter := self._next()) is not None:
            self.take(waiter)
            lot = self._waiting[waiter]
            lot.unpark()
            if lot:
                self._waiting.move_to_end(waiter)
            else:
                del self._waiting[waiter]

    def _next(self) -> Hashable | None:
        # Whoever has no place yet may have one, so not many are asked in vain. A lot is empty, and still here, where all of an owner's
        # have been cancelled in this turn: a place that is taken for them would be nobody's.
        return next((owner for owner, lot in self._waiting.items() if lot and self.has_room(owner)), None)


class FairToken:
    """One place, in the form of a `trio.CapacityLimiter`."""

    __slots__ = ("_owner", "_places", "_reached")

    def __init__(self, places: FairLimiter, owner: Hashable, reached: LimitMonitor) -> None:
        self._places = places
        self._owner = owner
        self._reached = reached

    async def acquire_on_behalf_of(self, _borrower: object) -> None:
        """Take it, once there is one."""
        if self._places.has_room(self._owner):
            self._places.take(self._owner)
        else:
            self._reached.note(self._places.option, self._owner, self._places.waited)
            await self._places.wait(self._owner)

    def release_on_behalf_of(self, _borrower: object) -> None:
        """Give it back."""
        self._places.give_back(self._owner)
