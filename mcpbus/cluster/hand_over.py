"""How a process that ends lets others go on with its sessions: each as soon as none of its requests is in flight any more."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from mcpbus.cluster.chores import Chores
from mcpbus.cluster.forwarding import ForwardedRequest
from mcpbus.cluster.records import Records
from mcpbus.core.hub import Hub
from mcpbus.core.open_count import OpenCount
from mcpbus.core.session import Hurry, Leave, Left, Session

_AT_ONCE: Final = 64
"""Sessions of which the directory is told at once: it has its time for each, of which none is to be spent on waiting for others."""


class HandOver:
    """Hands the sessions of one process over; see `mcpbus.core.hub.Successors`.

    Args:
        records: The sessions, as they are kept.
        bus: Where they are.
        chores: Where it is waited for each.

    Attributes:
        begun: Whether the process ends: it takes nothing over any more.
    """

    def __init__(self, records: Records, bus: Hub, chores: Chores) -> None:
        self.begun = False
        self._records = records
        self._bus = bus
        self._chores = chores
        self._gone: dict[str, trio.Event] = {}
        self._going = OpenCount()
        self._at_once = trio.Semaphore(_AT_ONCE)
        self._relayed: set[ForwardedRequest] = set()

    def has(self, name: str) -> bool:
        """See `Successors`."""
        return name in self._gone

    def forget(self, name: str) -> None:
        """Take note that a session has ended, which nobody has any more."""
        self._gone.pop(name, None)

    async def wait_gone(self, name: str) -> None:
        """Wait until a session is handed over, if it is to be."""
        if name in self._gone:
            await self._gone[name].wait()

    @contextmanager
    def relaying(self, forwarded: ForwardedRequest) -> Iterator[None]:
        """Relay a GET stream of a session that is elsewhere, within the block; its client is told to reconnect when this process ends."""
        self._relayed.add(forwarded)
        if self.begun:
            forwarded.reconnect()
        try:
            yield
        finally:
            self._relayed.discard(forwarded)

    def begin(self) -> None:
        """See `Successors`."""
        self.begun = True
        for forwarded in self._relayed:
            forwarded.reconnect()
        idle: list[Session] = []
        for session in self._bus.sessions.values():
            if session.id not in self._gone and self._bus.records_of(session) is not None:
                self._gone[session.id] = trio.Event()
                self._going.opened()
                if session.in_flight or session.listening:
                    self._chores.start_soon(self._hand_over, session)
                else:
                    idle.append(session)
        for first in range(min(len(idle), _AT_ONCE)):
            self._chores.start_soon(self._hand_over, *idle[first::_AT_ONCE])

    def hurry(self) -> None:
        """See `Successors`."""
        self.begin()  # what has been initialized since then
        for session in self._bus.sessions.values():
            session.address.tell(Hurry())

    async def wait_none(self) -> None:
        """See `Successors`."""
        await self._going.wait_none()

    async def _hand_over(self, *sessions: Session) -> None:
        for session in sessions:
            await self._hand_one_over(session)

    async def _hand_one_over(self, session: Session) -> None:
        try:
            silent = trio.Event()
            await session.in_flight.wait_idle()
            session.address.tell(Leave(silent.set))
            await silent.wait()
            async with self._at_once:
                await self._records.release(session)
            session.address.tell(Left())
        finally:
            self._gone[session.id].set()
            self._going.ended()
