"""What is written a moment later, because more may go with it in the same write.

An application says its answer in two messages, head and body, and a protocol makes three pieces of them. Written
one by one that is three system calls, and three packets.
"""

import logging
from typing import Protocol

import trio

_logger = logging.getLogger("mcpbus.serving")


class Writer(Protocol):
    """What has something to write, and may have more before it is called."""

    def write_now(self) -> None:
        """Write it, or begin to, if it is not written yet. No schedule point."""


class WriteCoalescer:
    """Sees to it that whatever waits is written one turn of the scheduler later: one task for all connections.

    That is for applications which begin an answer and then wait; one that goes on at once has its head written with
    what follows.
    """

    def __init__(self) -> None:
        self._writers: list[Writer] = []
        self._wake = trio.lowlevel.ParkingLot()

    def add(self, writer: Writer) -> None:
        """Have this one write in the next turn."""
        if not self._writers:
            self._wake.unpark()
        self._writers.append(writer)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            if self._writers:
                await trio.lowlevel.checkpoint()
            else:
                await self._wake.park()
            writers, self._writers = self._writers, []
            for writer in writers:
                try:
                    writer.write_now()
                except Exception:  # of one connection, and the others wait to be written as well
                    _logger.exception("what a connection held back could not be written")
