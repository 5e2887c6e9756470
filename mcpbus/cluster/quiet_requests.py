"""The requests of one link to which nothing was said yet: each is kept alive after a while, by one task for all."""

import math
from typing import Protocol

import trio


class KeepAliveItem(Protocol):
    """A request to which nothing was said yet."""

    def keep_alive(self) -> None:
        """Say something without meaning. No schedule point; nothing is raised."""


class KeepAliveQueue:
    """They, in the order in which that is due: a bus has one time for all of its requests."""

    def __init__(self) -> None:
        self._due: dict[KeepAliveItem, float] = {}
        self._some = trio.lowlevel.ParkingLot()

    def add(self, request: KeepAliveItem, seconds: float) -> None:
        """Keep a request alive after so many seconds."""
        if seconds == math.inf:
            return
        if not self._due:
            self._some.unpark()
        self._due[request] = trio.current_time() + seconds

    def remove(self, request: KeepAliveItem) -> None:
        """Take note that something was said to a request, or that there is nobody to hear it."""
        self._due.pop(request, None)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            while not self._due:
                await self._some.park()
            await trio.sleep_until(next(iter(self._due.values())))
            now = trio.current_time()
            for request in [request for request, due in self._due.items() if due <= now]:
                if self._due.pop(request, None) is not None:  # else it was answered because of one before it
                    request.keep_alive()
