"""The directory of legacy sessions, in which they are opened and found, and the hooks that run when they have ended."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextvars import copy_context
from types import MappingProxyType
from typing import Any, Final

import trio
from mcpbus_actors import ActorContext, ActorSystem, Address

from mcpbus.core.admission import overloaded
from mcpbus.core.backend import Backend
from mcpbus.core.bus_services import BusServices
from mcpbus.core.concurrency import ActiveCounter
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.sessions.actor import SessionActor
from mcpbus.core.sessions.held_queue import SessionHeldStore
from mcpbus.core.sessions.messages import CloseSession, EndGet, SessionYielded
from mcpbus.core.sessions.remote import SessionHandoff, SessionMovedError, SessionStore
from mcpbus.core.sessions.session import Session
from mcpbus.core.shares import NoRoomError, Shares
from mcpbus.core.stores.forget_queue import ForgetQueue
from mcpbus.protocol.principals import Peer, is_same, owner_of
from mcpbus.protocol.routes import TransportKind

_CUT_SHORT: Final = "what ran when a session had ended was cut short for another one's"
_NOT_RUN: Final = "what runs when a session has ended was not run"


class SessionEndHooks:
    """What runs for sessions that have ended, by their owners.

    Args:
        system: Where it runs.
        limit: For how many sessions at once. Past it, what has run for longest for whoever has most is cut short.
        reached: Where that is noted.
    """

    def __init__(self, system: ActorSystem, limit: int, reached: LimitMonitor) -> None:
        self._system = system
        self._reached = reached
        self._shares: Shares[Address[Any]] = Shares(limit)
        self._open = ActiveCounter()

    def begin(self, owner: Hashable, run: Callable[[], Awaitable[object]]) -> None:
        """Run what there is for a session.

        Args:
            owner: To whom the session was counted.
            run: Runs it; ends in time by itself.
        """
        try:
            displaced = self._shares.make_room(owner)
        except NoRoomError:
            self._reached.note("max_sessions", owner, _NOT_RUN)
            return
        if displaced is not None:
            self._reached.note("max_sessions", owner, _CUT_SHORT)
            displaced.tell(None)
        self._system.spawn(_SessionEndHook, self, owner, run)

    def entered(self, owner: Hashable, one: Address[Any]) -> None:
        """Count one, for itself."""
        self._shares.enter(owner, one)
        self._open.opened()

    def left(self, one: Address[Any]) -> None:
        """Count one no longer, for itself."""
        self._shares.leave(one)
        self._open.ended()

    async def wait_none(self) -> None:
        """Wait until nothing of it runs."""
        await self._open.wait_none()


class _SessionEndHook:
    """The actor that runs it for one session, and ends with it; or when it is told anything else."""

    __slots__ = ("_cell",)

    def __init__(
        self,
        cell: ActorContext[object],
        farewells: SessionEndHooks,
        owner: Hashable,
        run: Callable[[], Awaitable[object]],
    ) -> None:
        self._cell = cell
        farewells.entered(owner, cell.address)
        cell.on_stop(lambda _: farewells.left(cell.address))
        cell.start_task(run, context=copy_context())

    def handle(self, _message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        self._cell.stop()


# Before Python 3.12 each look-up by a class's name is a search.
_DUPLEX: Final = TransportKind.DUPLEX


class SessionManager:
    """The legacy sessions of a hub, with connections that carry everything, of which each has one.

    Args:
        bus: What the sessions belong to.
        backend: Hears of each that is opened, and has ended.
        forgetting: Makes the event store forget those that have ended; None if there is none.

    Attributes:
        by_id: Those that have been initialized, by id.
        shares: All of them, by owner.
        records: Keeps what other processes need to go on with sessions, should this one end; None if there are none.
        successors: Other processes, which go on with sessions when this one ends; None likewise.
    """

    def __init__(self, bus: BusServices, backend: Backend, forgetting: ForgetQueue | None) -> None:
        limits = bus.limits
        self._bus = bus
        self._backend = backend
        self._forgetting = forgetting
        self._sessions: dict[str, Session] = {}
        self._departed: set[Session] = set()
        self.by_id: Mapping[str, Session] = MappingProxyType(self._sessions)
        self.shares = Shares(limits.max_sessions, Session.idle_since, Session.silent_since)
        self._farewells = SessionEndHooks(bus.system, limits.max_sessions, bus.limit_monitor)
        self.records: SessionStore | None = None
        self.successors: SessionHandoff | None = None

    def find(self, session_id: str, principal: object) -> Session | None:
        """Return the session of that id, if it is `principal`'s own; None is the answer for both faults.

        A session that is a connection has no requests over Streamable HTTP, whoever knows its id.

        Raises:
            SessionMovedError: Another process goes on with it.
        """
        if self.successors is not None and self.successors.has(session_id):
            session = self._sessions.get(session_id)
            # With requests in flight it is still here, where their client answers and cancels.
            if session is None or not session.in_flight:
                raise SessionMovedError
        return self.find_own(session_id, principal)

    def find_own(self, session_id: str, principal: object) -> Session | None:
        """Return the session of that id, if it is `principal`'s own, also where another process is about to go on with it."""
        session = self._sessions.get(session_id)
        if session is None or session.transport is _DUPLEX or not is_same(session.principal, principal):
            return None
        return session

    def open(
        self, transport: TransportKind, principal: object, peer: Peer, name: str | None = None
    ) -> Session:
        """Open a session over HTTP, for an initialize that is about to be answered.

        Args:
            transport: How its client is connected.
            principal: Whom `authenticate` found.
            peer: From where it comes.
            name: Its id, if it had that in another process.

        Raises:
            Overloaded: There are as many as there may be, and none that could make room for one of this owner's.
        """
        owner = self.make_room(principal, peer)
        session = Session(
            self._bus, self._bus.new_name() if name is None else name, transport, principal, owner
        )
        return self._enter(session, None, timed=True)

    def open_channel(
        self, principal: object, owner: Hashable, stream: MessageStream, *, timed: bool
    ) -> Session:
        """Open the session of a connection that carries everything, for which room was made; see `Hub.open_channel`."""
        session = Session(self._bus, self._bus.new_name(), TransportKind.DUPLEX, principal, owner)
        return self._enter(session, stream, timed=timed)

    def _enter(self, session: Session, shared: MessageStream | None, *, timed: bool) -> Session:
        self._backend.opened(session)
        self._bus.system.spawn(SessionActor, session, self, shared, timed)
        self.shares.enter(session.owner, session)
        if self._bus.recorder is not None:
            self._bus.recorder.opened(session.address, session)
        return session

    def make_room(self, principal: object, peer: Peer) -> Hashable:
        """Make room for a session, and return to whom it is counted."""
        bus, owner = self._bus, owner_of(principal, peer)
        bus.admission.check(owner)
        try:
            displaced = self.shares.make_room(owner)
        except NoRoomError as full:
            bus.limit_monitor.note("max_sessions", owner, "a new session was refused")
            raise overloaded(
                full, f"Too many sessions: at most {bus.limits.max_sessions} on this server"
            ) from None
        if displaced is not None:
            bus.limit_monitor.note(
                "max_sessions", displaced.owner, "a session that was not at work made room for another one"
            )
            displaced.address.tell(CloseSession("The session was not at work, and made room for another one"))
        return owner

    def registered(self, session: Session) -> None:
        """Enter a session whose initialize is being answered. For the handshake."""
        self._sessions[session.id] = session

    def ready(self, session: Session) -> None:
        """Note that a session's client sent initialized. For the session."""
        self.shares.establish(session)
        session.listening = session.transport is TransportKind.DUPLEX

    def stash_store(self, session: Session) -> SessionHeldStore | None:
        """Return where what is held for a session's client is kept as well. For the session."""
        records = self.records_of(session)
        return None if records is None else records.stash_of(session)

    def records_of(self, session: Session) -> SessionStore | None:
        """Return what keeps a session for others to go on with it, should this process end; None if nobody could. For the bus."""
        return None if session.transport is TransportKind.DUPLEX else self.records

    def forget(self, session: Session) -> None:
        """Take a session that has ended out of the directory. For the session."""
        self.shares.leave(session)
        if self._bus.recorder is not None:
            self._bus.recorder.closed(session.address)
        departed = session in self._departed
        self._departed.discard(session)
        registered = departed or self._sessions.pop(session.id, None) is not None
        if not departed:
            self._forget_kept(session)
        known = registered or session.backend_state is not None  # it may have ended before it was registered
        farewell = self._backend.session_end_hook(session) if known else None
        if farewell is not None and not self._bus.system.closed:
            self._farewells.begin(session.owner, farewell)

    def _forget_kept(self, session: Session) -> None:
        # Else it has not ended: this process has, and out of order, or before it could hand it over.
        alone = self.successors is None
        ended = not self._bus.system.closed and (
            alone if self.records is None else self.records.drop(session)
        )
        self._bus.topics.remove(session.address, uris=session.subscriptions)
        if session.streams.close() and ended and self._forgetting is not None:
            self._forgetting.add(session.id)

    def depart(self, session: Session) -> None:
        """Take a session out of the directory that another process has, which has what is kept of it. For the session."""
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            self._departed.add(session)
        self._bus.topics.remove(session.address, uris=session.subscriptions)
        session.streams.close()

    # -- the end ---------------------------------------------------------------------------------

    def let_go(self) -> None:
        """Begin to end all sessions: the GET streams of those with which nobody goes on, and those that others go on with."""
        if self.successors is not None:
            self.successors.begin()
            return
        for session in [*self._sessions.values()]:
            session.address.tell(EndGet())

    async def wait_handed_over(self) -> None:
        """Wait until others go on with all sessions with which they are to."""
        if self.successors is not None:
            await self.successors.wait_none()

    async def end_all(self, seconds: float) -> None:
        """End what is left of all sessions.

        Args:
            seconds: How long it is waited for those with which others are to go on.
        """
        if self.successors is not None:
            self.successors.hurry()
            with trio.move_on_after(seconds):
                await self.wait_handed_over()
            # What could not be handed over is kept, for the time when this process has ended.
            self.records = None
        for session in self.shares:
            goes_on = self.successors is not None and session.transport is not TransportKind.DUPLEX
            session.address.tell(SessionYielded() if goes_on else CloseSession("The server is shutting down"))

    async def wait_farewells(self) -> None:
        """Wait until nothing runs any more for sessions that have ended."""
        await self._farewells.wait_none()
