"""The hub, to which transports attach, and which announces changes to all clients that want to know them.

Transports are thin: each turns its bytes into `dispatcher.serve`, and a `MessageStream` back into bytes.

A full mailbox refuses only messages of handlers and programs, which have no end: the sender has a receipt, which gets a fate. A mailbox
accepts everything else, because a client, a handler or a session would wait for ever if it was lost. Other limits bound that:

- replies, ends, cancellations and what calls tell their requests: by the number of admitted requests;
- messages of the writer of a connection: by one connection for each stream, and one batch at a time;
- messages of a client besides requests: by the bytes that are read in one turn of the scheduler. The rest stays in the connection until
  the mailboxes have been emptied; see `mcpbus_actors.Address.tell`.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import trio
from mcpbus_actors import ActorSystem, Address, DeadLetter, DeadLetterReason, open_system

from mcpbus.core.backend import Backend
from mcpbus.core.bus_services import BusServices, BusWatch
from mcpbus.core.concurrency import ActiveCounter
from mcpbus.core.event_log import EventLog
from mcpbus.core.fairness import TimeSlice
from mcpbus.core.input_requests import InputRound
from mcpbus.core.limit_monitor import name_of
from mcpbus.core.limits import Limits
from mcpbus.core.message_stream import MessageStream, UnsentReturned
from mcpbus.core.outbound import (
    RESOURCE_UPDATED,
    ChangeEvent,
    OutboundNotification,
    Progress,
    UnencodableNotification,
)
from mcpbus.core.outbox import BOUNDED, OutboundMessage, Outbox
from mcpbus.core.receipt import Broadcast
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.manager import SessionManager
from mcpbus.core.sessions.messages import YieldSession
from mcpbus.core.sessions.remote import RemoteSession, RemoteSessionLookup, RoundRegistry
from mcpbus.core.sessions.session import Session
from mcpbus.core.signals import FailRequest
from mcpbus.core.statistics import Statistics
from mcpbus.core.stores.circuit_breaker import CircuitBreaker
from mcpbus.core.stores.forget_queue import ForgetQueue
from mcpbus.core.stores.memory import MemoryTaskStore
from mcpbus.core.stores.protocol import EventStore, TaskStore
from mcpbus.core.tasks.manager import TaskManager
from mcpbus.core.writer import WriterTakeOver
from mcpbus.features.input_requests.errors import cannot_ask
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import encode_notification
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.printable import quoted
from mcpbus.protocol.request_state import StateSealer
from mcpbus.protocol.routes import MessageKind, Reason, StreamKind
from mcpbus.protocol.validators import check_text

_LOSSES = {
    DeadLetterReason.FULL: Reason.OVERFLOW,
    DeadLetterReason.STOPPED: Reason.FINISHED,
    DeadLetterReason.FAILED: Reason.INTERNAL_ERROR,
    DeadLetterReason.CLOSED: Reason.SESSION_ENDED,
    DeadLetterReason.LATE: Reason.FINISHED,
}


def may_drop(message: object) -> bool:
    """Tell whether a full mailbox may refuse a message; see the module."""
    if isinstance(message, OutboundMessage):
        return message.kind in BOUNDED
    return isinstance(message, OutboundNotification | Progress)


def settle(letter: DeadLetter) -> None:
    """Let whoever waits for a message know that no actor of the bus will handle it, and give its fate to what it carries."""
    message, reason = letter.message, _LOSSES[letter.reason]
    match message:
        case OutboundNotification() | Progress():
            if message.receipt.fate is None:
                message.receipt.discard(reason)
        case UnencodableNotification() if message.said.receipt.fate is None:
            message.said.receipt.discard(reason)
        case InputRound():
            message.fail(cannot_ask("its request, or its session, has ended"))
        case WriterTakeOver():
            message.writer.grant()
        case YieldSession():
            message.done()
    for unsent in message.waiting if isinstance(message, UnsentReturned) else [message]:
        if isinstance(unsent, OutboundMessage) and unsent.receipt.fate is None:
            unsent.discard(reason)


_log = logging.getLogger("mcpbus")

_MOST_NAMED = 10
"""Requests that a drain names."""
_LONGEST_NAME = 100
_FLUSH_SECONDS = 0.25
"""At the end of a drain: how long clients have to take the last replies."""


class Hub(BusServices):
    """An opened server, to which every transport attaches. Made by `open_hub`.

    Attributes:
        name: What is served.
        backend: What answers requests.
        begin: Begins a request, as `Backend.begin`.
        sessions: The legacy sessions that have been initialized, by id.
        session_directory: The same and those that have not been initialized, with the connections that may never be.
        tasks: The calls that became tasks; their number is its length.
        event_store: What legacy clients can come back for, if there is one.
        event_breaker: Through which the event store is asked to keep something.
        time_slice: How long clients in process go on without letting others run.
        abort_remote_requests: Ends what other processes have asked of this one, where no drain does; None if there are none.
        rounds: Knows the rounds that others have used; None likewise.
        remote_sessions: Those that others have; None likewise.
        draining: Whether who asks for its health is told that it ends.
    """

    def __init__(
        self,
        backend: Backend,
        system: ActorSystem,
        limits: Limits,
        state: Any,
        *,
        sealer: StateSealer,
        event_store: EventStore | None,
        task_store: TaskStore | None,
        process: str | None,
        watch: BusWatch | None = None,
    ) -> None:
        super().__init__(
            backend.auth, backend.tails, sealer, system, limits, state, process, backend.seconds_left, watch
        )
        self.name = backend.name
        self.backend = backend
        self.begin = backend.begin if watch is None else watch.watch_backend(backend)
        self.time_slice = TimeSlice(self)
        self.event_store = event_store
        self.event_breaker = CircuitBreaker("event store", limits, self.limit_monitor)
        self.tasks = TaskManager(self, MemoryTaskStore() if task_store is None else task_store)
        self.session_directory = SessionManager(
            self,
            backend,
            None if event_store is None else ForgetQueue(system, event_store, limits.store_pause),
        )
        self.sessions: Mapping[str, Session] = self.session_directory.by_id
        self._streams = ActiveCounter()
        self.abort_remote_requests: Callable[[], Awaitable[None]] | None = None
        self.rounds: RoundRegistry | None = None
        self.remote_sessions: RemoteSessionLookup | None = None
        self.draining = False
        self._drained = False
        if watch is not None:
            watch.attach(self)

    # -- telling clients -------------------------------------------------------------------------

    def tools_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of tools has changed.

        `Server.add_tool` and `Server.remove_tool` do so by themselves.
        """
        return self._tell_all(ChangeEvent("tools"))

    def prompts_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of prompts has changed."""
        return self._tell_all(ChangeEvent("prompts"))

    def resources_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of resources or templates has changed."""
        return self._tell_all(ChangeEvent("resources"))

    def resource_updated(self, uri: str) -> Broadcast:
        """Tell every client that subscribed to `uri`, or to one that it lies below, that its contents changed."""
        check_text("bus.resource_updated()", uri=uri)
        return self._tell_all(ChangeEvent(None, uri))

    def _tell_all(self, change: ChangeEvent) -> Broadcast:
        """Tell a change here and elsewhere; the receipts are for those here."""
        broadcast = self.publish_local(change)
        if self.tell_elsewhere is not None:
            broadcast.elsewhere = (self.tell_elsewhere(change),)
        return broadcast

    def publish_local(self, change: ChangeEvent) -> Broadcast:
        """Tell a change to the clients of this process."""
        if change.list is not None:
            return self.list_changed(change.list)
        self.check_thread("bus.resource_updated")
        return self.tell_update(change.uri, self.topics.in_uri(change.uri))

    def tell_update(self, uri: str, recipients: Iterable[Address[object]]) -> Broadcast:
        """Tell some sessions and listens that the contents of a resource have changed."""
        data, key = encode_notification(RESOURCE_UPDATED, {"uri": uri}), (RESOURCE_UPDATED, uri)
        return self.publish(recipients, RESOURCE_UPDATED, MessageKind.RESOURCE_UPDATED, data, key, uri)

    def list_changed(self, name: ListName) -> Broadcast:
        """Tell every client that wants to know that a list has changed."""
        self.check_thread(f"bus.{name}_changed")
        sessions = (session.address for session in self.sessions.values())
        return self.publish_list(name, [*sessions, *self.topics.in_list(name)])

    def list_changed_for(self, key: Hashable, name: ListName, *, sessions: bool) -> Broadcast:
        """Tell one client that a list has changed.

        Args:
            key: The `RequestContext.state_key` of its listens.
            name: The list.
            sessions: Whether sessions with this key have the same list.
        """
        told = [each for each in self.topics.in_list(name) if self.topics.key_of(each) == key]
        if sessions:
            told += [each.address for each in self.sessions.values() if each.state_key == key]
        return self.publish_list(name, told)

    def resource_updated_for(self, key: Hashable, uri: str) -> Broadcast:
        """Tell one client that a resource was updated, if it subscribed to it; `key` is its `Subscriber.key`."""
        return self.tell_update(uri, self.topics.in_uri_of(key, uri))

    # -- sessions and streams --------------------------------------------------------------------

    async def find_session(self, session_id: str, principal: object) -> Session | RemoteSession | None:
        """Return the session of that id in whichever process has it, if it is `principal`'s own.

        Args:
            session_id: The `Session.id` of a session of Streamable HTTP.
            principal: Whose it is: whom `authenticate` found.

        Returns:
            The session if this process has it; what speaks to it if another one has; None if nobody has, or it is somebody else's.

        Raises:
            Overloaded: It cannot be known now who has it.
        """
        await trio.lowlevel.checkpoint()
        if session_id in self.sessions or self.remote_sessions is None:
            return self.session_directory.find_own(session_id, principal)
        return await self.remote_sessions.find(session_id, principal)

    def open_channel(self, principal: object, peer: Peer, *, timed: bool) -> tuple[Session, MessageStream]:
        """Open a connection that carries everything: its session, which may never be initialized, and its stream.

        Args:
            principal: Whom `authenticate` found.
            peer: From where it comes.
            timed: Whether it ends if its client says nothing.

        Raises:
            Overloaded: There are as many sessions as there may be, such connections among them, and none that could make room.
        """
        owner = self.session_directory.make_room(principal, peer)
        stream = self.open_stream(StreamKind.DUPLEX)
        stream.owner = owner
        return self.session_directory.open_channel(principal, owner, stream, timed=timed), stream

    def open_stream(self, kind: StreamKind, session: Session | None = None) -> MessageStream:
        """Open a stream. For transports.

        Args:
            kind: What kind of stream it is. The answer of one request is dormant, and if its handler does not wait perhaps for ever.
            session: The legacy session over HTTP that it belongs to, which may lose it and come back.
        """
        limits = self.limits
        outbox = Outbox(limits.outbox_items, limits.outbox_bytes)
        stream = MessageStream(
            self.system, kind=kind, limits=limits, budget=self.budget, outbox=outbox, _open=self._streams
        )
        if session is not None:
            stream.owner = session.owner
            if kind is StreamKind.STANDALONE:
                stream.session_address = session.address
            stream.log = self.open_log(kind, session, stream)
            if stream.log is not None:
                stream.resumable_streams = session.streams
        if kind is not StreamKind.RESPONSE:
            stream.address  # noqa: B018 - it is active from the beginning
        return stream

    def open_log(
        self, kind: StreamKind, session: Session, stream: MessageStream | None = None
    ) -> EventLog | None:
        """Open the log of a session's stream, or of an answer without one; None where nothing is kept for clients that come back."""
        revision = session.revision
        if self.event_store is None or revision is None:
            return None
        name = session.streams.new_name(kind)
        log = EventLog(self.event_store, self.event_breaker, session.id, name, primes=revision.priming)
        session.streams.add(stream, log)
        return log

    # -- looking inside --------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Return what the bus has done and holds at this moment."""
        ledger, inside = self.ledger, self.system.statistics()
        return Statistics(
            sessions=len(self.sessions),
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
            limits_reached=MappingProxyType({**self.limit_monitor.counts}),
        )

    def dead_letters(self, callback: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Show `callback` every message inside the bus that no actor handled to its end.

        Returns:
            A function that ends this.
        """
        return self.system.tap_dead_letters(callback)

    # -- the end ---------------------------------------------------------------------------------

    def announce_drain(self) -> None:
        """Tell whoever asks for its health from now on that it ends; until `drain`, all else goes on as ever."""
        self.draining = True

    async def drain(self, seconds: float) -> None:
        """End all that goes on: refuse what is new, end listens and GET streams, let requests finish.

        Args:
            seconds: How long requests and tasks may go on; the rest is then answered with an error, and reported
                failed. What is said last has a quarter of a second more, at most, to be written and stored; and what runs at the
                end of sessions has as long once more.
        """
        self.draining = self._drained = True
        self.admission.closed = self.listens.closed = True
        self.parked_calls.evict_all()
        self.tasks.close()
        for slot in self.listens:
            if slot.address is not None:
                slot.address.tell(FailRequest("The server is shutting down"))
        self.session_directory.let_go()
        if not await self._wait_idle(seconds / 2):
            self._report(logging.INFO, "the shutdown waits for %s")
            if not await self._wait_idle(seconds / 2):
                self.limit_monitor.note("drain_timeout", None, "what still ran at the shutdown was ended")
                self._report(logging.WARNING, "the shutdown has ended %s")
        for slot in self.admission:
            if slot.address is not None:
                slot.address.tell(FailRequest("The server is shutting down"))
        await self.session_directory.end_all(_FLUSH_SECONDS)
        self.tasks.end_all()
        with trio.move_on_after(_FLUSH_SECONDS):
            await self._streams.wait_none()
            await self.event_breaker.wait_idle()
            await self.tasks.wait_none()
        with trio.move_on_after(seconds):
            await self.session_directory.wait_farewells()

    async def _wait_idle(self, seconds: float) -> bool:
        """Wait until requests and tasks have ended, and return whether they have within so many seconds."""
        with trio.move_on_after(seconds) as waiting:
            await self.admission.wait_idle()
            await self.tasks.wait_idle()
            await self.session_directory.wait_handed_over()
        return not waiting.cancelled_caught

    def _report(self, level: int, line: str) -> None:
        """Log the requests and the number of tasks that have not ended."""
        requests = [slot.request for slot in self.admission]
        for request in requests[:_MOST_NAMED]:
            context: RequestContext | None = getattr(request, "context", None)
            what = "a client's notification" if context is None else describe(context)
            progress = "" if self.recorder is None else self.recorder.progress_of(request)
            _log.log(level, line, f"{what} {progress}".rstrip())
        if len(requests) > _MOST_NAMED:
            _log.log(level, line, f"{len(requests) - _MOST_NAMED} more requests")
        if self.tasks.running:
            _log.log(level, line, f"{self.tasks.running} tasks")


def describe(context: RequestContext) -> str:
    """Return a request in one line of the log, such as ``tools/call reserve of alice, session LTs87CLK``."""
    name, session = context.routing.name, context.session
    label = (
        context.request.method if name is None else f"{context.request.method} {quoted(name, _LONGEST_NAME)}"
    )
    return f"{label} of {name_of(context.owner)}" + (
        "" if session is None else f", session {session.short_id}"
    )


def hub_of(services: BusServices) -> Hub:
    """Return the hub that a call's services are a part of."""
    assert isinstance(services, Hub)  # noqa: S101 - nothing else spawns what serves calls
    return services


@asynccontextmanager
async def _closed_first(hub: Hub) -> AsyncIterator[None]:
    """Where the block is cut short, let nobody come in, and end what runs for other processes while there is a system to end it in."""
    try:
        yield
    except BaseException:
        hub.draining = hub.admission.closed = hub.listens.closed = True
        if hub.abort_remote_requests is not None:
            await hub.abort_remote_requests()
        raise


HubT = TypeVar("HubT", bound=Hub)


@asynccontextmanager
async def open_hub(
    kind: type[HubT],
    backend: Backend,
    limits: Limits,
    state: Any,
    *,
    sealer: StateSealer,
    event_store: EventStore | None,
    task_store: TaskStore | None,
    drain_timeout: float,
    process: str | None = None,
    watch: BusWatch | None = None,
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
        drain_timeout: As for `Server.open`.
        process: Names this process among those that serve with it; None if there are no others.
        watch: Records what it does; None for nothing.
    """
    raised: Exception | None = None
    tasks: TaskManager | None = None
    try:
        async with open_system(backend.name, settle, may_drop, ProtocolError) as system:
            hub = kind(
                backend,
                system,
                limits,
                state,
                sealer=sealer,
                event_store=event_store,
                task_store=task_store,
                process=process,
                watch=watch,
            )
            tasks = hub.tasks
            await tasks.recover()
            try:
                async with backend.open(hub):
                    try:
                        async with _closed_first(hub):
                            yield hub
                            if not hub._drained:  # noqa: SLF001 - its own opening
                                await hub.drain(drain_timeout)
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
