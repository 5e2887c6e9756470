"""What is written a moment later, because more may go with it in the same write.

An application says its answer in two messages, head and body, and a protocol makes three pieces of them. Written
one by one that is three system calls, and three packets.
"""

from collections.abc import Callable
from typing import Final

import trio

from mcpbus.serving.reactor import Reactor
from mcpbus.serving.writer_failures import give_up
from mcpbus.transports.response_sinks import CoalescedWriter

COALESCE_SECONDS: Final = 0.001
"""For how long after a write what is said on a connection waits for the end of the scheduler's turn, and more to go with it."""


class WriteCoalescer:
    """Sees to it that whatever waits is written later: after the turn that is being taken, or one turn of the scheduler later.

    One task does the latter for all connections. That is for applications which begin an answer and then wait; one that goes on
    at once has its head written with what follows.

    Args:
        reactor: Takes the turns of connections.

    Attributes:
        clock: Tells trio's time, for whoever asks how long ago something was written.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.clock: Callable[[], float] = trio.lowlevel.current_clock().current_time
        self._writers: list[CoalescedWriter] = []
        self._wake = trio.lowlevel.ParkingLot()

    @property
    def in_turn(self) -> bool:
        """Whether a turn of some connection is under way."""
        return self._reactor.in_turn

    @property
    def in_brief_turn(self) -> bool:
        """Whether one is that is about to end, so that what is said in it is one write."""
        return self._reactor.in_brief_turn

    def add(self, writer: CoalescedWriter) -> None:
        """Have this one write in the next turn of the scheduler."""
        if not self._writers:
            self._wake.unpark()
        self._writers.append(writer)

    def add_in_turn(self, writer: CoalescedWriter) -> None:
        """Have it write together with what others say in the turn that is under way; if there is none, as `add`."""
        if self._reactor.in_turn:
            self._reactor.write_soon(writer)
        else:
            self.add(writer)

    def add_last(self, writer: CoalescedWriter) -> None:
        """Have it write once no turn is due any more; if none is under way, as `add`."""
        if self._reactor.in_turn:
            self._reactor.write_last(writer)
        else:
            self.add(writer)

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
