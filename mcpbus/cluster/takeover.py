"""How a process goes on with a session of one that has ended: the handshake is made once more, from what is kept of it.

How a process that ends lets others go on with its sessions: each as soon as none of its requests is in flight any more.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, get_args

import msgspec
import trio

from mcpbus.cluster.background_tasks import BackgroundTasks
from mcpbus.cluster.directory import ClusterDirectory, StoredSession
from mcpbus.cluster.forwarded_request import ForwardedRequest
from mcpbus.cluster.session_records import Records, SessionRecord, decode_record
from mcpbus.core.concurrency import ActiveCounter
from mcpbus.core.hub import Hub
from mcpbus.core.sessions.messages import (
    CloseSession,
    Initialized,
    SessionYielded,
    StopWaitingForWrites,
    YieldSession,
)
from mcpbus.core.sessions.session import Session
from mcpbus.dispatch.handshake import Registration
from mcpbus.protocol.messages import InitializeParams, ListName
from mcpbus.protocol.principals import Peer, digest_of
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.protocol.routes import TransportKind

_log = logging.getLogger("mcpbus")


class _Result(msgspec.Struct):
    """What initialize is answered."""

    capabilities: dict[str, dict[str, Any]]


_decode_result = msgspec.json.Decoder(_Result).decode


class SessionTakeover:
    """The sessions that one process takes over.

    Args:
        directory: Where they are kept.
        records: Those of this process.
        home: The process.
        bus: Its bus.
    """

    def __init__(self, directory: ClusterDirectory, records: Records, home: str, bus: Hub) -> None:
        self._directory = directory
        self._records = records
        self._home = home
        self._bus = bus
        self._going_on: dict[str, trio.Event] = {}

    async def settled(self, name: str) -> None:
        """Wait until a session is here that is being taken over."""
        while name in self._going_on:
            await self._going_on[name].wait()

    async def adopt(self, kept: StoredSession, principal: Any, peer: Peer) -> StoredSession | None:
        """Take a session over, if it is this principal's and nobody else does.

        Args:
            kept: The session, of which nobody has anything more.
            principal: Who asks for it.
            peer: From where they come.

        Returns:
            What is kept of it, with who has it now; None if it is nobody's that this principal could ask for.

        Raises:
            Overloaded: There is no room for it; or the directory does not answer.
        """
        name = kept.ownership.name
        try:
            record = decode_record(kept.record)
            transport = TransportKind[record.transport]
        except (msgspec.DecodeError, UnicodeError, KeyError) as error:
            _log.warning("what another version has kept of a session cannot be read: %r", error)
            return None
        if record.principal != digest_of(principal):
            return None
        session = self._bus.session_directory.open(transport, principal, peer, name)
        claimed = None
        done = self._going_on[name] = trio.Event()
        try:
            # Once it is ours it is here, whether this client waits for it or not.
            with trio.CancelScope(shield=True):
                claimed = await self._take_over(session, kept)
        finally:
            del self._going_on[name]
            done.set()
        return claimed

    async def _take_over(self, session: Session, kept: StoredSession) -> StoredSession | None:
        claimed = None
        try:
            with self._records.asking():
                claimed = await self._directory.claim(session.id, kept.ownership.home, self._home)
        finally:
            if claimed is None or claimed.ownership.home != self._home:
                session.address.tell(CloseSession(None))
        if claimed is not None and claimed.ownership.home == self._home:
            self._records.enter(claimed.ownership)
            await self._go_on(session, claimed)
        return claimed

    async def _go_on(self, session: Session, claimed: StoredSession) -> None:
        """Have a session that is this process's now be here as it was; where that fails it ends."""
        goes_on = False
        try:
            self._records.restore(session, claimed.held)  # before anything newer is held for it
            await self._register(session, decode_record(claimed.record))
            goes_on = True
        except Exception:  # noqa: BLE001 - the author's own code, or what another version has written
            _log.exception("a session of a process that has ended could not be taken over, and ends")
        finally:
            if not goes_on:
                session.address.tell(CloseSession(None))

    async def _register(self, session: Session, record: SessionRecord) -> None:
        """Make the handshake."""
        said = {
            "protocolVersion": record.revision,
            "capabilities": msgspec.json.decode(record.client_capabilities),
            "clientInfo": msgspec.json.decode(record.client_info),
        }
        params = msgspec.convert(said, InitializeParams)
        registration = Registration(self._bus, session, params, REVISIONS[record.revision])
        await registration.prepare(None)
        self._restore(session, record, registration.complete())

    def _restore(self, session: Session, record: SessionRecord, result: bytes) -> None:
        """Have a session be as it was, and hear of what may have changed while nobody had it."""
        session.streams.inherit()
        session.threshold.level = record.level
        for uri in record.subscriptions:
            session.subscribe(uri)
        # Its client has been answered initialize. That it was told nothing between that and initialized is not worth a write of its own.
        session.address.tell(Initialized())
        capabilities = _decode_result(result).capabilities
        for name in get_args(ListName):
            if capabilities.get(name, {}).get("listChanged"):
                session.list_changed(name)
        for uri in record.subscriptions:
            self._bus.tell_update(uri, [session.address])


_TOGETHER: Final = 100
"""Idle sessions that are handed over in one step: more would keep others waiting for longer than a turn should take."""
_AT_ONCE: Final = 4
"""Steps that are under way at once: while the directory is asked in one, the process works at the next ones."""


class SessionHandoffs:
    """Hands the sessions of one process over; see `mcpbus.core.sessions.remote.SessionHandoff`.

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
