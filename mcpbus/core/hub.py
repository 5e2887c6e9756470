"""The hub: the directory of sessions, streams and tasks, and the place from which a change is told to all who want to hear of it.

Transports are thin: each turns its bytes into `dispatcher.serve`, and a `Stream` back into bytes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import trio
from mcpbus_actors import Address, DeadLetter, System, open_system

from mcpbus.core import mailboxes
from mcpbus.core.admission import overloaded
from mcpbus.core.backend import Backend
from mcpbus.core.event_log import EventLog
from mcpbus.core.farewell import Farewells
from mcpbus.core.limits import Limits
from mcpbus.core.notification import RESOURCE_UPDATED, Change
from mcpbus.core.open_count import OpenCount
from mcpbus.core.outbox import Outbox
from mcpbus.core.receipt import Broadcast
from mcpbus.core.remote_session import RemoteSession
from mcpbus.core.services import Services
from mcpbus.core.session import Session
from mcpbus.core.session_actor import SessionActor
from mcpbus.core.session_messages import Close, EndGet, Left
from mcpbus.core.shares import NoRoomError, Shares
from mcpbus.core.signals import End
from mcpbus.core.stash import SessionStash
from mcpbus.core.statistics import Statistics
from mcpbus.core.stores.breaker import Breaker
from mcpbus.core.stores.forgetting import Forgetting
from mcpbus.core.stores.memory import MemoryTaskStore
from mcpbus.core.stores.protocol import EventStore, TaskStore
from mcpbus.core.stream import Stream
from mcpbus.core.tasks.directory import TaskDirectory
from mcpbus.core.time_slice import TimeSlice
from mcpbus.protocol.jsonrpc import encode_notification
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.owners import Peer, owner_of
from mcpbus.protocol.principals import is_same
from mcpbus.protocol.request_state import RoundState, Sealer
from mcpbus.protocol.routes import Kind, StreamKind, TransportKind

_FLUSH_SECONDS = 0.25
"""At the end of a drain: how long clients have to take the last replies."""


class SessionMovedError(Exception):
    """Another process goes on with a session, which was here when it was begun to look into a request for it."""


class SessionRecords(Protocol):
    """Keeps what others need to go on with sessions over HTTP."""

    async def keep(self, session: Session, /) -> None:
        """Keep what is known of a session; returns when it is kept.

        Raises:
            Overloaded: It cannot be kept now.
        """

    def note(self, session: Session, /) -> None:
        """Keep what is known of a session that is kept already, as soon as that can be. Raises nothing."""

    def drop(self, session: Session, /) -> bool:
        """Forget a session, and return whether it was kept: if not, another process has it. Raises nothing."""

    def stash_of(self, session: Session, /) -> SessionStash | None:
        """Return where what is held for a session's client is kept; None if the session is not kept."""


class SharedRounds(Protocol):
    """Knows which rounds of calls were used, in whatever process."""

    async def use(self, state: RoundState, /) -> bool:
        """Use a round up, and return whether it was not.

        Raises:
            Overloaded: It cannot be known now.
        """

    def note(self, state: RoundState, /) -> None:
        """Use a round up, as soon as that can be: its call goes on here. Raises nothing."""


class Successors(Protocol):
    """Other processes, which go on with sessions over HTTP when this one ends."""

    def begin(self) -> None:
        """Hand each session over as soon as it has no request in flight."""

    def hurry(self) -> None:
        """Do so without waiting for clients that do not read."""

    async def wait_none(self) -> None:
        """Wait until all are handed over."""

    def has(self, session_id: str, /) -> bool:
        """Whether a session is theirs: it is handed over as soon as it has no request in flight, or has been."""


class RemoteSessions(Protocol):
    """The sessions over HTTP that other processes have."""

    async def find(self, session_id: str, principal: object, /) -> Session | RemoteSession | None:
        """See `Hub.find_anywhere`; the session is not here, or about to be."""


class Hub(Services):
    """An opened server, to which every transport attaches. Made by `open_hub`.

    Attributes:
        name: What is served.
        backend: What answers requests.
        sessions: The legacy sessions that have been initialized, by id.
        shares: The same by owner, with those that have not been initialized, and the connections that may never be.
        tasks: The calls that became tasks; their number is its length.
        event_store: What legacy clients can come back for, if there is one.
        event_breaker: Through which the event store is asked to keep something.
        time_slice: How long clients in process go on without letting others run.
        successors: Other processes, which go on with its sessions when this one ends; None if there are none.
        abandon: Ends what other processes have asked of this one, where no drain does; None if there are none.
        records: Keeps what other processes need to go on with sessions, should this one end; None if there are none.
        rounds: Knows the rounds that others have used; None likewise.
        remote_sessions: Those that others have; None likewise.
    """

    def __init__(
        self,
        backend: Backend,
        system: System,
        limits: Limits,
        state: Any,
        *,
        sealer: Sealer,
        event_store: EventStore | None,
        task_store: TaskStore | None,
        process: str | None,
    ) -> None:
        super().__init__(backend.auth, backend.tails, sealer, system, limits, state, process)
        self.name = backend.name
        self.backend = backend
        self.time_slice = TimeSlice(self)
        self.event_store = event_store
        self.event_breaker = Breaker("event store", limits, self.reached)
        self._forgetting = (
            None if event_store is None else Forgetting(system, event_store, limits.store_pause)
        )
        self.tasks = TaskDirectory(self, MemoryTaskStore() if task_store is None else task_store)
        self._sessions: dict[str, Session] = {}
        self._departed: set[Session] = set()
        self.sessions: Mapping[str, Session] = MappingProxyType(self._sessions)
        self.shares = Shares(limits.max_sessions, Session.idle_since, Session.silent_since)
        self._streams = OpenCount()
        self._farewells = Farewells(system, limits.max_sessions, self.reached)
        self.records: SessionRecords | None = None
        self.successors: Successors | None = None
        self.abandon: Callable[[], Awaitable[None]] | None = None
        self.rounds: SharedRounds | None = None
        self.remote_sessions: RemoteSessions | None = None
        self._drained = False

    # -- telling clients -------------------------------------------------------------------------

    def tools_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of tools has changed.

        `Server.add_tool` and `Server.remove_tool` do so by themselves.
        """
        return self._tell_all(Change("tools"))

    def prompts_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of prompts has changed."""
        return self._tell_all(Change("prompts"))

    def resources_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of resources or templates has changed."""
        return self._tell_all(Change("resources"))

    def resource_updated(self, uri: str) -> Broadcast:
        """Tell every client that subscribed to `uri`, or to one that it lies below, that its contents changed."""
        return self._tell_all(Change(None, uri))

    def _tell_all(self, change: Change) -> Broadcast:
        """Tell a change here and elsewhere; the receipts are for those here."""
        broadcast = self.tell_here(change)
        if self.tell_elsewhere is not None:
            broadcast.elsewhere = (self.tell_elsewhere(change),)
        return broadcast

    def tell_here(self, change: Change) -> Broadcast:
        """Tell a change to the clients of this process."""
        if change.list is not None:
            return self.list_changed(change.list)
        self.check_thread("bus.resource_updated")
        return self.tell_update(change.uri, self.topics.in_uri(change.uri))

    def tell_update(self, uri: str, recipients: Iterable[Address[object]]) -> Broadcast:
        """Tell some sessions and listens that the contents of a resource have changed."""
        data, key = encode_notification(RESOURCE_UPDATED, {"uri": uri}), (RESOURCE_UPDATED, uri)
        return self.publish(recipients, RESOURCE_UPDATED, Kind.RESOURCE_UPDATED, data, key, uri)

    def list_changed(self, name: ListName) -> Broadcast:
        """Tell every client that wants to know that a list has changed."""
        self.check_thread(f"bus.{name}_changed")
        sessions = (session.address for session in self._sessions.values())
        return self.publish_list(name, [*sessions, *self.topics.in_list(name)])

    # -- sessions --------------------------------------------------------------------------------

    def find_session(self, session_id: str, principal: object) -> Session | None:
        """Return the session of that id, if it is `principal`'s own; None is the answer for both faults.

        A session that is a connection has no requests over Streamable HTTP, whoever knows its id.

        Raises:
            SessionMovedError: Another process goes on with it.
        """
        session = self._sessions.get(session_id)
        # With requests in flight it is still here, where their client answers and cancels.
        busy = session is not None and session.in_flight
        if self.successors is not None and not busy and self.successors.has(session_id):
            raise SessionMovedError
        return self._find_here(session_id, principal)

    def _find_here(self, session_id: str, principal: object) -> Session | None:
        session = self._sessions.get(session_id)
        if (
            session is None
            or session.transport is TransportKind.DUPLEX
            or not is_same(session.principal, principal)
        ):
            return None
        return session

    async def find_anywhere(self, session_id: str, principal: object) -> Session | RemoteSession | None:
        """Return the session of that id in whichever process has it, as `find_session` does for this one.

        Args:
            session_id: The `Session.id` of a session of Streamable HTTP.
            principal: Whose it is: whom `authenticate` found.

        Returns:
            The session if this process has it; what speaks to it if another one has; None if nobody has, or it is somebody else's.

        Raises:
            Overloaded: It cannot be known now who has it.
        """
        await trio.lowlevel.checkpoint()
        if session_id in self._sessions or self.remote_sessions is None:
            return self._find_here(session_id, principal)
        return await self.remote_sessions.find(session_id, principal)

    def open_session(
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
        owner = self._make_room(principal, peer)
        return self._spawn_session(transport, principal, owner, None, name=name)

    def open_channel(self, principal: object, peer: Peer, *, timed: bool) -> tuple[Session, Stream]:
        """Open a connection that carries everything: its session, which may never be initialized, and its stream.

        Args:
            principal: Whom `authenticate` found.
            peer: From where it comes.
            timed: Whether it ends if its client says nothing.

        Raises:
            Overloaded: As for `open_session`; such connections count among the sessions.
        """
        owner = self._make_room(principal, peer)
        stream = self.open_stream(StreamKind.DUPLEX)
        stream.owner = owner
        return self._spawn_session(TransportKind.DUPLEX, principal, owner, stream, timed=timed), stream

    def _make_room(self, principal: object, peer: Peer) -> Hashable:
        """Make room for a session, and return to whom it is counted."""
        owner = owner_of(principal, peer)
        self.admission.check(owner)
        try:
            displaced = self.shares.make_room(owner)
        except NoRoomError as full:
            self.reached.note("max_sessions", owner, "a new session was refused")
            raise overloaded(
                full, f"Too many sessions: at most {self.limits.max_sessions} on this server"
            ) from None
        if displaced is not None:
            self.reached.note(
                "max_sessions", displaced.owner, "a session that was not at work made room for another one"
            )
            displaced.address.tell(Close("The session was not at work, and made room for another one"))
        return owner

    def _spawn_session(
        self,
        transport: TransportKind,
        principal: object,
        owner: Hashable,
        shared: Stream | None,
        *,
        timed: bool = True,
        name: str | None = None,
    ) -> Session:
        session = Session(self, self.new_name() if name is None else name, transport, principal, owner)
        self.backend.opened(session)
        self.system.spawn(SessionActor, session, self, shared, timed)
        self.shares.enter(owner, session)
        return session

    def registered(self, session: Session) -> None:
        """Enter a session whose initialize is being answered. For the handshake."""
        self._sessions[session.id] = session

    def ready(self, session: Session) -> None:
        """Note that a session's client sent initialized. For the session."""
        self.shares.establish(session)
        session.listening = session.transport is TransportKind.DUPLEX

    def stash_store(self, session: Session) -> SessionStash | None:
        """Return where what is held for a session's client is kept as well. For the session."""
        records = self.records_of(session)
        return None if records is None else records.stash_of(session)

    def records_of(self, session: Session) -> SessionRecords | None:
        """Return what keeps a session for others to go on with it, should this process end; None if nobody could. For the bus."""
        return None if session.transport is TransportKind.DUPLEX else self.records

    def forget(self, session: Session) -> None:
        """Take a session that has ended out of the directory. For the session."""
        self.shares.leave(session)
        departed = session in self._departed
        self._departed.discard(session)
        registered = departed or self._sessions.pop(session.id, None) is not None
        if not departed:
            self._forget_kept(session)
        farewell = self.backend.farewell(session) if registered else None
        if farewell is not None and not self.system.closed:
            self._farewells.begin(session.owner, farewell)

    def _forget_kept(self, session: Session) -> None:
        # Else it has not ended: this process has, and out of order, or before it could hand it over.
        alone = self.successors is None
        ended = not self.system.closed and (alone if self.records is None else self.records.drop(session))
        self.topics.remove(session.address, uris=session.subscriptions)
        if session.streams.close() and ended and self._forgetting is not None:
            self._forgetting.add(session.id)

    def depart(self, session: Session) -> None:
        """Take a session out of the directory that another process has, which has what is kept of it. For the session."""
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            self._departed.add(session)
        self.topics.remove(session.address, uris=session.subscriptions)
        session.streams.close()

    def open_stream(self, kind: StreamKind, session: Session | None = None) -> Stream:
        """Open a stream. For transports.

        Args:
            kind: What kind of stream it is. The answer of one request is dormant, and if its handler does not wait perhaps for ever.
            session: The legacy session over HTTP that it belongs to, which may lose it and come back.
        """
        limits = self.limits
        outbox = Outbox(limits.outbox_items, limits.outbox_bytes)
        stream = Stream(
            self.system, kind=kind, limits=limits, budget=self.budget, outbox=outbox, _open=self._streams
        )
        if session is not None:
            stream.owner = session.owner
            if kind is StreamKind.STANDALONE:
                stream.returns_to = session.address
            stream.log = self.open_log(kind, session, stream)
            if stream.log is not None:
                stream.registry = session.streams
        if kind is not StreamKind.RESPONSE:
            stream.address  # noqa: B018 - it is active from the beginning
        return stream

    def open_log(self, kind: StreamKind, session: Session, stream: Stream | None = None) -> EventLog | None:
        """Open the log of a session's stream, or of an answer without one; None where nothing is kept for clients that come back."""
        revision = session.revision
        if self.event_store is None or revision is None:
            return None
        log = EventLog(self.event_store, self.event_breaker, session.id, kind, primes=revision.priming)
        session.streams.add(stream, log)
        return log

    # -- looking inside --------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Return what the bus has done and holds at this moment."""
        ledger, inside = self.ledger, self.system.statistics()
        return Statistics(
            sessions=len(self._sessions),
            requests=len(self.admission) + len(self.listens),
            listens=len(self.listens),
            emitted=ledger.emitted,
            adopted=ledger.adopted,
            delivered=ledger.delivered,
            refused=ledger.refused,
            moved=ledger.moved,
            stored=ledger.stored,
            discarded=MappingProxyType({reason: n for reason, n in ledger.discarded.items() if n}),
            pending=MappingProxyType({place: n for place, n in ledger.pending.items() if n}),
            actors=inside.actors,
            tasks=inside.tasks,
            held_bytes=self.budget.held,
            limits_reached=MappingProxyType({**self.reached.counts}),
        )

    def dead_letters(self, callback: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Show `callback` every message inside the bus that no actor handled to its end.

        Returns:
            A function that ends this.
        """
        return self.system.tap_dead_letters(callback)

    # -- the end ---------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """End all that goes on: refuse what is new, end listens and GET streams, let requests finish.

        Args:
            seconds: How long requests and tasks may go on; the rest is then answered with an error, and reported
                failed. What is said last has a quarter of a second more, at most, to be written and stored; and what runs at the
                end of sessions has as long once more.
        """
        self._drained = True
        self.admission.closed = self.listens.closed = True
        self.parked_calls.evict_all()
        self.tasks.close()
        for slot in self.listens:
            if slot.address is not None:
                slot.address.tell(End("The server is shutting down"))
        self._let_sessions_go()
        with trio.move_on_after(seconds) as patience:
            await self.admission.wait_idle()
            await self.tasks.wait_idle()
            if self.successors is not None:
                await self.successors.wait_none()
        if patience.cancelled_caught:
            self.reached.note("drain_seconds", None, "what still ran at the shutdown was ended")
        for slot in self.admission:
            if slot.address is not None:
                slot.address.tell(End("The server is shutting down"))
        await self._end_sessions()
        self.tasks.end_all()
        with trio.move_on_after(_FLUSH_SECONDS):
            await self._streams.wait_none()
            await self.event_breaker.wait_idle()
            await self.tasks.wait_none()
        with trio.move_on_after(seconds):
            await self._farewells.wait_none()

    def _let_sessions_go(self) -> None:
        """Begin to end all sessions: the GET streams of those with which nobody goes on, and those that others go on with."""
        if self.successors is not None:
            self.successors.begin()
            return
        for session in [*self._sessions.values()]:
            session.address.tell(EndGet())

    async def _end_sessions(self) -> None:
        """End what is left of all sessions."""
        if self.successors is not None:
            self.successors.hurry()
            with trio.move_on_after(_FLUSH_SECONDS):
                await self.successors.wait_none()
            self.records = (
                None  # what could not be handed over is kept, for the time when this process has ended
            )
        for session in self.shares:
            goes_on = self.successors is not None and session.transport is not TransportKind.DUPLEX
            session.address.tell(Left() if goes_on else Close("The server is shutting down"))


def hub_of(services: Services) -> Hub:
    """Return the hub that a call's services are a part of."""
    assert isinstance(services, Hub)  # noqa: S101 - nothing else spawns what serves calls
    return services


@asynccontextmanager
async def _closed_first(hub: Hub) -> AsyncIterator[None]:
    """Where the block is cut short, let nobody come in, and end what runs for other processes while there is a system to end it in."""
    try:
        yield
    except BaseException:
        hub.admission.closed = hub.listens.closed = True
        if hub.abandon is not None:
            await hub.abandon()
        raise


HubT = TypeVar("HubT", bound=Hub)


@asynccontextmanager
async def open_hub(
    kind: type[HubT],
    backend: Backend,
    limits: Limits,
    state: Any,
    *,
    sealer: Sealer,
    event_store: EventStore | None,
    task_store: TaskStore | None,
    drain_seconds: float,
    process: str | None = None,
) -> AsyncIterator[HubT]:
    """Open what a backend serves, as a hub of some kind.

    Args:
        kind: Which kind.
        backend: What answers; it is opened first, and closed after the drain.
        limits: What clients may use.
        state: What handlers share.
        sealer: Seals what clients carry between the rounds of a request.
        event_store: As for `Server.open`.
        task_store: As for `Server.open`.
        drain_seconds: As for `Server.open`.
        process: Names this process among those that serve with it; None if there are no others.
    """
    raised: Exception | None = None
    tasks: TaskDirectory | None = None
    try:
        async with open_system(backend.name, mailboxes.settle, mailboxes.expendable) as system:
            hub = kind(
                backend,
                system,
                limits,
                state,
                sealer=sealer,
                event_store=event_store,
                task_store=task_store,
                process=process,
            )
            tasks = hub.tasks
            await tasks.recover()
            try:
                async with backend.open(hub):
                    try:
                        async with _closed_first(hub):
                            yield hub
                            if not hub._drained:  # noqa: SLF001 - its own opening
                                await hub.drain(drain_seconds)
                    finally:
                        with trio.CancelScope(shield=True):  # until it is known what is kept
                            await hub.event_breaker.wait_idle()
            except Exception as error:  # noqa: BLE001 - raised again below, as it is and not in a group
                raised = error
    finally:
        if tasks is not None:
            await tasks.leave_store()
    if raised is not None:
        raise raised
