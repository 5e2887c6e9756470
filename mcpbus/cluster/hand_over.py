"""How a process that ends lets others go on with its sessions: each as soon as none of its requests is in flight any more."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import trio

from mcpbus.cluster.chores import BackgroundTasks
from mcpbus.cluster.forwarding import ForwardedRequest
from mcpbus.cluster.records import Records
from mcpbus.core.hub import Hub
from mcpbus.core.open_count import ActiveCounter
from mcpbus.core.session import Session
from mcpbus.core.session_messages import SessionYielded, StopWaitingForWrites, YieldSession

_TOGETHER: Final = 100
"""Idle sessions that are handed over in one step: more would keep others waiting for longer than a turn should take."""
_AT_ONCE: Final = 4
"""Steps that are under way at once: while the directory is asked in one, the process works at the next ones."""


class SessionHandoffs:
    """Hands the sessions of one process over; see `mcpbus.core.other_processes.SessionHandoff`.

    Args:
        records: The sessions, as they are kept.
        bus: Where they are.
        chores: Where it is waited for each.

    Attributes:
        begun: Whether the process ends: it takes nothing over any more.
    """

    def __init__(self, records: Records, bus: Hub, chores: BackgroundTasks) -> None:
        self.begun = False
        self._records = records
        self._bus = bus
        self._chores = chores
        self._gone: dict[str, trio.Event] = {}
        self._going = ActiveCounter()
        self._relayed: set[ForwardedRequest] = set()

    def has(self, name: str) -> bool:
        """See `SessionHandoff`."""
        return name in self._gone

    def forget(self, name: str) -> None:
        """Take note that a session has ended, which nobody has any more; one that is still being handed over is waited for."""
        if name in self._gone and self._gone[name].is_set():
            del self._gone[name]

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
        """See `SessionHandoff`."""
        if not self.begun:  # what is relayed later is told when it begins
            self.begun = True
            for forwarded in self._relayed:
                forwarded.reconnect()
        idle: list[Session] = []
        for session in self._bus.sessions.values():
            if session.id not in self._gone and self._bus.session_directory.records_of(session) is not None:
                self._gone[session.id] = trio.Event()
                self._going.opened()
                if session.in_flight or session.listening:
                    self._chores.start_soon(self._hand_over, session)
                else:
                    idle.append(session)
        for first in range(min(len(idle), _AT_ONCE)):
            self._chores.start_soon(self._hand_over_idle, idle[first::_AT_ONCE])

    def hurry(self) -> None:
        """See `SessionHandoff`."""
        self.begin()  # what has been initialized since then
        for session in self._bus.sessions.values():
            session.address.tell(StopWaitingForWrites())

    async def wait_none(self) -> None:
        """See `SessionHandoff`."""
        await self._going.wait_none()

    async def _hand_over_idle(self, sessions: Sequence[Session]) -> None:
        for first in range(0, len(sessions), _TOGETHER):
            silent: list[Session] = []
            for session in sessions[first : first + _TOGETHER]:
                is_silent = self._leave(session)
                if is_silent.is_set():
                    silent.append(session)
                else:
                    self._chores.start_soon(self._release_when, is_silent, session)
            await self._release(silent)

    async def _hand_over(self, session: Session) -> None:
        await session.in_flight.wait_idle()
        await self._release_when(self._leave(session), session)

    def _leave(self, session: Session) -> trio.Event:
        """Have nothing more be said to the client of a session; returns what is set once that is so."""
        silent = trio.Event()
        session.address.tell(YieldSession(silent.set))
        return silent

    async def _release_when(self, silent: trio.Event, session: Session) -> None:
        await silent.wait()
        await self._release([session])

    async def _release(self, sessions: Sequence[Session]) -> None:
        try:
            pass_on = await self._records.release(sessions)
            for session in sessions:
                session.address.tell(SessionYielded(pass_on.get(session.id)))
        finally:
            for session in sessions:
                self._gone[session.id].set()
                self._going.ended()
