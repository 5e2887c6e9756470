"""What is held back for a moment, because more may go with it in the same write.

An application says its answer in two messages, head and body, and a protocol makes three pieces of them. Written
one by one that is three system calls, and three packets.
"""

import logging
from typing import Protocol

import trio

from mcpbus.serving.hypercorn import RawData

_logger = logging.getLogger("mcpbus.serving")


class Held(RawData):
    """Bytes for the connection that may wait for the next ones, but not for the next turn of the scheduler."""


class Holder(Protocol):
    """Something that holds bytes back: a connection."""

    def flush_soon(self) -> None:
        """Start to write what is still held, if there is any."""


class Flusher:
    """Sees to it that whatever is held is written one turn of the scheduler later: one task for all connections.

    That is for applications which begin an answer and then wait; one that goes on at once has its head written with
    what follows.
    """

    def __init__(self) -> None:
        self._holders: list[Holder] = []
        self._wake = trio.lowlevel.ParkingLot()

    def notice(self, holder: Holder) -> None:
        """Take note that this one has begun to hold bytes back."""
        if not self._holders:
            self._wake.unpark()
        self._holders.append(holder)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            if self._holders:
                await trio.lowlevel.checkpoint()
            else:
                await self._wake.park()
            holders, self._holders = self._holders, []
            for holder in holders:
                try:
                    holder.flush_soon()
                except Exception:  # of one connection, and the others wait to be written as well
                    _logger.exception("what a connection held back could not be written")
