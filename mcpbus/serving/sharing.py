"""Listening on sockets that other processes listen on, too."""

import socket
from collections.abc import Sequence
from mmap import mmap
from typing import Final

import attrs
import trio

_AHEAD: Final = 2
_WAIT_SECONDS: Final = 0.0005
_MOST_WAITS: Final = 5
COUNT_BYTES: Final = 4
ABSENT: Final = 2**32 - 1
"""The count of a process that has ended."""


class ConnectionCounts:
    """How many connections each of several processes has, in memory that they share.

    The kernel gives a connection to whichever process takes it first, and of many that come at once that is one for all. So
    who has more than others waits for a moment, and lets them.

    Args:
        memory: A count of four bytes for each process.
        number: Which of them is this one's.

    Attributes:
        number: The same.
    """

    def __init__(self, memory: mmap, number: int) -> None:
        self._counts = memoryview(memory).cast("I")
        self.number = number
        self.note(0)

    def note(self, connections: int) -> None:
        """Note how many connections there are here."""
        self._counts[self.number] = connections

    @property
    def is_ahead(self) -> bool:
        """Whether there are more connections here than elsewhere."""
        return self._counts[self.number] > min(self._counts) + _AHEAD

    async def give_way(self) -> None:
        """Wait for a moment if there are more connections here than elsewhere."""
        for _ in range(_MOST_WAITS):
            if not self.is_ahead:
                return
            await trio.sleep(_WAIT_SECONDS)


@attrs.frozen
class SharedSockets:
    """What is shared with other processes that serve.

    Attributes:
        sockets: They listen already.
        board: Who has how many connections.
    """

    sockets: Sequence[socket.socket]
    board: ConnectionCounts
