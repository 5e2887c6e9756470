"""What is written a moment later, because more may go with it in the same write.

An application says its answer in two messages, head and body, and a protocol makes three pieces of them. Written
one by one that is three system calls, and three packets.
"""

import logging
from typing import Final, Protocol

import trio

_logger: Final = logging.getLogger("mcpbus.serving")


class Writer(Protocol):
    """What has something to write, and may have more before it is called."""

    def write_now(self) -> None:
        """Write it, or begin to, if it is not written yet. No schedule point."""

    def lose(self) -> None:
        """End what it is written for, in the middle of it. Harmless once that was done. No schedule point."""


def give_up(writer: Writer, failure: Exception) -> None:
    """Log what one writer among many has raised, and end what it writes for: the others are not to blame, and go on."""
    _logger.error("what a connection had to say could not be written", exc_info=failure)
    writer.lose()


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
                except Exception as failure:  # noqa: BLE001 - it is logged
                    give_up(writer, failure)
