"""What a server says that belongs to no request: kept for whoever asks for it, or told as it comes."""

from collections import deque
from typing import Any, Final

import msgspec
import trio

from mcpbus.client.errors import DisconnectedError
from mcpbus.client.kept_notifications import KeptNotifications
from mcpbus.client.pending import OnNotification

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
