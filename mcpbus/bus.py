"""The bus: an opened server, to which every transport attaches.

It is the directory of sessions, streams and subscriptions, and the place from which a change is told to all
who want to hear of it. Transports are thin: each turns its bytes into `dispatcher.serve`, and a `Stream` back
into bytes.
"""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import get_ident
from types import MappingProxyType
from typing import Any, Unpack

import attrs
import trio
from mcpbus_actors import Address, DeadLetter, System, open_system

from mcpbus import mailboxes
from mcpbus.admission import Admission, overloaded
from mcpbus.asking.parking import Parking
from mcpbus.budget import Budget
from mcpbus.dispatch.dispatcher import LISTEN
from mcpbus.dispatch.methods import METHODS
from mcpbus.dispatch.runner import Runner
from mcpbus.emission import LIST_CHANGED, RESOURCE_UPDATED, Emission
from mcpbus.fate import Broadcast, Ledger
from mcpbus.features.catalogue import Kind as FeatureKind
from mcpbus.features.definition import Definition
from mcpbus.features.mirrored import MirroredParameter
from mcpbus.http_keywords import read_http_options
from mcpbus.interest import Interests
from mcpbus.open_streams import OpenStreams
from mcpbus.options import Limits
from mcpbus.protocol.http.origin import HttpFields
from mcpbus.protocol.jsonrpc import encode_notification
from mcpbus.protocol.owners import Peer, owner_of
from mcpbus.protocol.principals import is_same
from mcpbus.protocol.revisions import LATEST, Era
from mcpbus.protocol.routes import Kind, Line, Setting
from mcpbus.reached import ReachedLimits
from mcpbus.serving import ServeOptions, serve
from mcpbus.session import Close, EndGet, Session, Stage
from mcpbus.session_actor import SessionActor
from mcpbus.shares import NoRoomError, Shares
from mcpbus.signals import End
from mcpbus.statistics import Statistics
from mcpbus.stores.breaker import Breaker
from mcpbus.stores.forgetting import Forgetting
from mcpbus.stores.log import EventLog
from mcpbus.stores.protocol import EventStore
from mcpbus.stream import Stream, open_stream
from mcpbus.tasks.directory import TaskDirectory
from mcpbus.tasks.stores.memory import MemoryTaskStore
from mcpbus.tasks.stores.protocol import TaskStore
from mcpbus.transport.asgi import AsgiApp
from mcpbus.transport.client import Client, OnQuestion
from mcpbus.transport.memory import connect
from mcpbus.transport.responding import ResponseMode
from mcpbus.transport.stdio import run_stdio
from mcpbus.turns import Turns

_OFFERED = {
    era: frozenset(name for name, method in METHODS.items() if era in method.eras)
    | ({LISTEN} if era is Era.MODERN else set())
    for era in Era
}
_FLUSH_SECONDS = 0.25
"""At the end of a drain: how long clients have to take the last replies."""


class Bus:
    """An opened server. Made by `Server.open`.

    Attributes:
        server: The server that was opened.
        runner: What calls its author's functions.
        state: What its lifespan yielded.
        limits: What clients may use.
        sessions: The legacy sessions that have been initialized, by id.
        shares: The same by owner, with those that have not been initialized, and the connections that may never be.
        tasks: The calls that became tasks; their number is its length.
        budget: What is kept in memory for clients, in bytes.
        event_breaker: Through which the event store is asked to keep something.
        reached: Which of the limits were reached, and how often.
        clock: Tells handlers how long they have kept others waiting, in seconds; a test may give it virtual time.
    """

    def __init__(
        self,
        server: Definition,
        runner: Runner,
        system: System,
        limits: Limits,
        state: Any,
        *,
        event_store: EventStore | None,
        task_store: TaskStore | None,
    ) -> None:
        self.server = server
        self.features = server.features
        self.runner = runner
        self.state = state
        self.limits = limits
        self.system = system
        self.clock: Callable[[], float] = time.perf_counter
        self._thread = get_ident()
        self.turns = Turns(self)
        self.ledger = Ledger()
        self.reached = ReachedLimits()
        self.budget = Budget(limits.memory_bytes, self.reached)
        self.admission = Admission(limits.max_requests, self.budget, reached=self.reached)
        self.listens = Admission(limits.max_listens, self.budget, option="max_listens", reached=self.reached)
        self.interests = Interests()
        self.event_store = event_store
        self.event_breaker = Breaker("event store", limits, self.reached)
        self._forgetting = (
            None if event_store is None else Forgetting(system, event_store, limits.store_pause)
        )
        self.parking = Parking(server.sealer, limits.max_parked, limits.parked_timeout, self.reached)
        self.tasks = TaskDirectory(self, MemoryTaskStore() if task_store is None else task_store)
        self._sessions: dict[str, Session] = {}
        self.sessions: Mapping[str, Session] = MappingProxyType(self._sessions)
        self.shares = Shares(limits.max_sessions, Session.idle_since, Session.silent_since)
        self._streams = OpenStreams()
        self._drained = False

    # -- telling clients -------------------------------------------------------------------------

    def tools_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of tools has changed.

        `Server.add_tool` and `Server.remove_tool` do so by themselves.
        """
        return self._list_changed("tools")

    def prompts_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of prompts has changed."""
        return self._list_changed("prompts")

    def resources_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of resources or templates has changed."""
        return self._list_changed("resources")

    def resource_updated(self, uri: str) -> Broadcast:
        """Tell every client that subscribed to `uri`, or to one that it lies below, that its contents changed."""
        self.check_thread("bus.resource_updated")
        data = encode_notification(RESOURCE_UPDATED, {"uri": uri})
        recipients, key = self.interests.in_uri(uri), (RESOURCE_UPDATED, uri)
        return self._publish(recipients, RESOURCE_UPDATED, Kind.RESOURCE_UPDATED, data, key, uri)

    def check_thread(self, call: str) -> None:
        """Refuse a call from a thread that trio does not run in, before anything is counted or changed.

        Args:
            call: What was called, as people write it.

        Raises:
            RuntimeError: Always, in such a thread; it says what to write instead.
        """
        if get_ident() != self._thread:
            raise RuntimeError(
                f"{call}() belongs to the thread that trio runs in: from another one, write "
                f"trio.from_thread.run_sync({call}, ...), with trio_token= where trio did not start that thread"
            )

    def session_tools_changed(self, session: Session) -> Broadcast:
        """Tell one session that its list of tools has changed, unless it is still registering."""
        registered = session.stage in {Stage.REGISTERED, Stage.READY}
        return self._publish_list("tools", [session.address] if registered else [])

    def _list_changed(self, kind: FeatureKind) -> Broadcast:
        self.check_thread(f"bus.{kind}_changed")
        sessions = (session.address for session in self._sessions.values())
        return self._publish_list(kind, [*sessions, *self.interests.in_list(kind)])

    def _publish_list(self, kind: FeatureKind, recipients: Iterable[Address[object]]) -> Broadcast:
        method = LIST_CHANGED[kind]
        return self._publish(recipients, method, Kind.LIST_CHANGED, encode_notification(method), method)

    def _publish(  # noqa: PLR0917 - what an emission is made of
        self,
        recipients: Iterable[Address[object]],
        method: str,
        kind: Kind,
        data: bytes,
        key: Hashable,
        uri: str | None = None,
    ) -> Broadcast:
        receipts = []
        for recipient in recipients:
            receipt = self.ledger.enter(method)
            recipient.tell(Emission(kind, receipt, data, key, None, uri))
            receipts.append(receipt)
        return Broadcast(receipts)

    # -- sessions --------------------------------------------------------------------------------

    def find_session(self, session_id: str, principal: object) -> Session | None:
        """Return the session of that id, if it is `principal`'s own; None is the answer for both faults.

        A session that is a connection has no requests over Streamable HTTP, whoever knows its id.
        """
        session = self._sessions.get(session_id)
        if session is None or session.setting is Setting.SHARED or not is_same(session.principal, principal):
            return None
        return session

    def offers(self, method: str, era: Era) -> bool:
        """Tell whether requests of `method` are served in `era`."""
        return method in _OFFERED[era]

    def mirrored_parameters(self, tool: str, principal: object) -> Sequence[MirroredParameter]:
        """Return the parameters of a tool that HTTP mirrors into headers; none where `principal` sees no such tool."""
        found = self.features.find_tool(tool, principal) if self.features.mirrors() else None
        return () if found is None else found.mirrored

    def open_session(self, setting: Setting, principal: object, peer: Peer) -> Session:
        """Open a session over HTTP, for an initialize that is about to be answered.

        Raises:
            Overloaded: There are as many as there may be, and none that could make room for one of this owner's.
        """
        owner = self._make_room(principal, peer)
        return self._spawn_session(setting, principal, owner, None)

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
        stream = self.open_stream(Line.SHARED)
        stream.owner = owner
        return self._spawn_session(Setting.SHARED, principal, owner, stream, timed=timed), stream

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
        setting: Setting,
        principal: object,
        owner: Hashable,
        shared: Stream | None,
        *,
        timed: bool = True,
    ) -> Session:
        session = Session(self, secrets.token_urlsafe(24), setting, principal, owner)
        self.system.spawn(SessionActor, session, shared, timed)
        self.shares.enter(owner, session)
        return session

    def registered(self, session: Session) -> None:
        """Enter a session whose initialize is being answered. For the handshake."""
        self._sessions[session.id] = session

    def ready(self, session: Session) -> None:
        """Note that a session's client sent initialized. For the session."""
        self.shares.establish(session)
        session.listening = session.setting is Setting.SHARED

    def forget(self, session: Session) -> None:
        """Take a session that has ended out of the directory. For the session."""
        self._sessions.pop(session.id, None)
        self.shares.leave(session)
        self.interests.remove(session.address, uris=session.subscriptions)
        if session.streams.close() and self._forgetting is not None and not self.system.closed:
            self._forgetting.add(session.id)

    def open_stream(self, line: Line, session: Session | None = None) -> Stream:
        """Open a stream. For transports.

        Args:
            line: What kind of stream it is.
            session: The legacy session over HTTP that it belongs to, which may lose it and come back.
        """
        log = None
        if self.event_store is not None and session is not None and session.revision is not None:
            primes = session.revision.priming
            log = EventLog(self.event_store, self.event_breaker, session.id, line, primes=primes)
        returns_to = session.address if session is not None and line is Line.GET else None
        stream = open_stream(
            self.system, line, self.limits, self._streams, self.budget, returns_to=returns_to, log=log
        )
        if session is not None:
            stream.owner = session.owner
        if log is not None and session is not None:
            session.streams.add(stream, log)
            stream.registry = session.streams
        return stream

    # -- transports ------------------------------------------------------------------------------

    def asgi(self, *, response: ResponseMode = "auto", **http: Unpack[HttpFields]) -> AsgiApp:
        """Return the bus's HTTP endpoint as an ASGI application that needs no lifespan.

        Args:
            response: The form of answers: "auto" chooses late for each one, "json" and "sse" fix it.
            **http: The fields of `HttpOptions`.

        Raises:
            TypeError: An option is not known; the message says what to write.
            ValueError: An option cannot be right; the message says what would be.
        """
        return AsgiApp(self, read_http_options("bus.asgi()", http), response)

    async def serve(
        self,
        *,
        bind: str | Iterable[str] | None = None,
        response: ResponseMode = "auto",
        options: ServeOptions | None = None,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
        **http: Unpack[HttpFields],
    ) -> None:
        """Serve the bus over HTTP with hypercorn, guarded, until cancelled.

        Args:
            bind: Where to listen: one or several ``HOST:PORT``; port 0 takes any free one. As `options` say if left out.
            response: As for `asgi`.
            options: All else about serving: TLS, deadlines, the drain.
            shutdown: Set it to drain the bus, with all that is attached to it, and return.
            task_status: Reports the URLs of the endpoint.
            **http: The fields of `HttpOptions`.

        Raises:
            CannotListenError: An address cannot be listened on, or the certificate cannot be used.
            TypeError: An option is not known; the message says what to write.
            ValueError: An option cannot be right; the message says what would be.
        """
        read_http_options("bus.serve()", http)
        if options is not None and not isinstance(options, ServeOptions):
            raise TypeError(f"options is a ServeOptions(...), not {options!r}")
        options = options or ServeOptions(write_deadline_seconds=self.limits.write_deadline)
        if bind is not None:
            options = attrs.evolve(options, bind=bind)
        app = self.asgi(response=response, **http)
        await serve(app, options, shutdown=shutdown, task_status=_WithPath(task_status, app.path))

    async def stdio(self, *, shutdown: trio.Event | None = None, drain_seconds: float = 5.0) -> bool:
        """Serve the process's standard input and output until the input ends.

        Meanwhile what the program prints goes to standard error. However slowly the client reads, all that is said is
        written; only after the end, and when it has taken nothing for `Limits.write_deadline`, is the rest given up.

        Args:
            shutdown: Set it to drain the bus, with all that is attached to it, and return.
            drain_seconds: How long requests may go on then.

        Returns:
            Whether the client took all that was said to it; what it did not take is told in the log.

        Raises:
            StdioClosedError: Standard input or output was closed when the process began.
        """
        return await run_stdio(self, shutdown=shutdown, drain_seconds=drain_seconds)

    def connect(
        self,
        *,
        revision: str = LATEST.name,
        principal: object = None,
        capabilities: Mapping[str, Any] | None = None,
        on_question: OnQuestion | None = None,
    ) -> AbstractAsyncContextManager[Client]:
        """Connect a client in process: ``async with bus.connect() as client``.

        What is called runs in tasks of the bus and in a copy of the caller's context variables, and is cancelled as a
        request is: a caller that is cancelled does not wait for it. Only what cannot wait, such as an async function
        without an ``await``, runs in the task that calls. Each call is a cancel point, and a schedule point unless its answer is there
        at once: then all who call share a millisecond, or 64 calls, before they let others run.

        Args:
            revision: The protocol revision that it speaks; a legacy one begins with the handshake.
            principal: Who it is.
            capabilities: What it declares, such as ``{"elicitation": {}}``.
            on_question: Answers what the server asks: an async function of the method and the params.
        """
        return connect(self, revision, principal, capabilities, on_question)

    # -- looking inside --------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Return what the bus has done and holds at this moment."""
        ledger, inside = self.ledger, self.system.statistics()
        return Statistics(
            sessions=len(self._sessions),
            requests=len(self.admission) + len(self.listens),
            listens=len(self.listens),
            emitted=ledger.emitted,
            delivered=ledger.delivered,
            refused=ledger.refused,
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
                failed. What is said last has a quarter of a second more, at most, to be written and stored.
        """
        self._drained = True
        self.admission.closed = self.listens.closed = True
        self.parking.evict_all()
        self.tasks.close()
        for slot in self.listens:
            if slot.address is not None:
                slot.address.tell(End("The server is shutting down"))
        for session in [*self._sessions.values()]:
            session.address.tell(EndGet())
        with trio.move_on_after(seconds) as patience:
            await self.admission.wait_idle()
            await self.tasks.wait_idle()
        if patience.cancelled_caught:
            self.reached.note("drain_seconds", None, "what still ran at the shutdown was ended")
        for slot in self.admission:
            if slot.address is not None:
                slot.address.tell(End("The server is shutting down"))
        for session in self.shares:
            session.address.tell(Close("The server is shutting down"))
        self.tasks.end_all()
        with trio.move_on_after(_FLUSH_SECONDS):
            await self._streams.wait_none()
            await self.tasks.wait_none()


class _WithPath:
    """Reports the URLs of an endpoint, of which the server below knows the address alone."""

    def __init__(self, task_status: trio.TaskStatus[list[str]], path: str) -> None:
        self._task_status = task_status
        self._path = path

    def started(self, value: list[str] | None = None) -> None:
        self._task_status.started([url + self._path for url in value or ()])


@asynccontextmanager
async def open_bus(
    server: Definition,
    runner: Runner,
    limits: Limits,
    state: Any,
    *,
    event_store: EventStore | None,
    task_store: TaskStore | None,
    drain_seconds: float,
) -> AsyncIterator[Bus]:
    """Open a server; see `Server.open`."""
    raised: Exception | None = None
    tasks: TaskDirectory | None = None
    try:
        async with open_system(server.name, mailboxes.settle, mailboxes.expendable) as system:
            bus = Bus(server, runner, system, limits, state, event_store=event_store, task_store=task_store)
            tasks = bus.tasks
            await tasks.recover()
            unlisten = server.features.on_change(bus._list_changed)  # noqa: SLF001 - the bus's own opening
            unguard = server.features.guard(bus.check_thread)
            try:
                yield bus
                if not bus._drained:  # noqa: SLF001
                    await bus.drain(drain_seconds)
            except Exception as error:  # noqa: BLE001 - raised again below, as it is and not in a group
                raised = error
            finally:
                unlisten()
                unguard()
    finally:
        if tasks is not None:
            await tasks.leave_store()
    if raised is not None:
        raise raised
