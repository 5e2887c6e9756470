"""What a server says that belongs to no request: kept for whoever asks for it, or told as it comes."""

from collections import deque
from typing import Any

import trio

from mcpbus.client.errors import Disconnected
from mcpbus.client.pending import KEPT_NOTIFICATIONS, OnNotification


class Inbox:
    """That of one client.

    Attributes:
        kept: The method and the params of each notification that nobody has taken yet, the oldest first.
        put: Takes a notification.
        losses: How often some may not have been heard: over HTTP the session may be another one since.
    """

    def __init__(self) -> None:
        self.kept: deque[tuple[str, dict[str, Any]]] = deque(maxlen=KEPT_NOTIFICATIONS)
        self.put: OnNotification = self._keep
        self.losses = 0
        self._arrived = trio.lowlevel.ParkingLot()
        # Why some were not heard the last time, and why there will be no more.
        self._lost = ""
        self._closed: str | None = None

    def _keep(self, method: str, params: dict[str, Any]) -> None:
        self.kept.append((method, params))
        self._arrived.unpark()

    def tell(self, hear: OnNotification) -> None:
        """Have a function called with each notification, as it comes, instead of keeping it."""
        self.put = hear
        while self.kept:
            hear(*self.kept.popleft())

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Wait for the oldest, and take it.

        Raises:
            Disconnected: There will be none any more; or some may have been lost while this waited.
        """
        losses = self.losses
        while not self.kept:
            if self._closed is not None:
                raise Disconnected(self._closed)
            if self.losses != losses:
                raise Disconnected(self._lost)
            await self._arrived.park()
        return self.kept.popleft()

    def lose(self, why: str) -> None:
        """Tell who waits that something may have been lost."""
        self.losses += 1
        self._lost = why
        self._arrived.unpark_all()

    def close(self, why: str) -> None:
        """Tell who waits that there will be no more."""
        self._closed = why
        self._arrived.unpark_all()
