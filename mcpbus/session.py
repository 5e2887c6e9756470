"""The session actor: one legacy client, or one connection on a shared channel.

`Session` is what the rest of the program holds: what is known of the client, and how to speak to it outside of
any request. The actor decides on which stream that leaves, holds what has none yet, and ends the session when
its client has gone, in any of the ways in which that can happen.
"""

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import trio

from actors import Address, Cell, Stopped, StopReason
from mcpbus import emission
from mcpbus.admission import InFlight
from mcpbus.emission import Emission
from mcpbus.fate import Reason, Receipt
from mcpbus.features import Features, RegistrationError, Tool
from mcpbus.held import Held
from mcpbus.interest import covers
from mcpbus.outbox import Outgoing
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.levels import LogLevel
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.request import Cancel, Drop, End, LogThreshold
from mcpbus.routing import ABSENT, CHANGES, Kind, Line, Setting, Situation, absent, route
from mcpbus.stream import Abort, Ending, Finish, Purge, Returned, Stream, Supersede

if TYPE_CHECKING:
    from mcpbus.bus import Bus


class Stage(enum.Enum):
    """Where a session is in its life. It only ever moves down this list."""

    CONNECTED = "connected"
    """A shared channel on which no initialize has come."""
    REGISTERING = "registering"
    """initialize has come and is not answered yet; the session's hooks run."""
    REGISTERED = "registered"
    """initialize was answered; initialized has not come."""
    READY = "ready"
    """The client has sent initialized."""
    ENDED = "ended"


class OpenGet(msgspec.Struct, frozen=True):
    """The client opened a GET stream; it takes the place of an earlier one."""

    stream: Stream


class Registered(msgspec.Struct, frozen=True):
    """initialize is answered."""


class Initialized(msgspec.Struct, frozen=True):
    """The client sent initialized."""


class Subscribe(msgspec.Struct, frozen=True):
    """The client subscribed to a resource."""

    uri: str


class Unsubscribe(msgspec.Struct, frozen=True):
    """The client unsubscribed from a resource."""

    uri: str


class CancelRequest(msgspec.Struct, frozen=True):
    """The client cancelled one of its requests."""

    request_id: RequestId


class Close(msgspec.Struct, frozen=True):
    """End the session.

    Attributes:
        why: What requests in flight are answered with; None if the client ended it, which is silent.
    """

    why: str | None


class _Tick(msgspec.Struct, frozen=True):
    """Look whether the session is idle."""


class _Expire(msgspec.Struct, frozen=True):
    """Look what was held for too long."""


class Session:
    """A legacy client, from its initialize on. Only the bus makes them.

    Attributes:
        id: Names the session in HTTP headers; unguessable, and no proof of who the client is.
        bus: The bus that it belongs to.
        principal: Whom `authenticate` found when the session was opened; nobody else may use it.
        setting: How the client is connected.
        revision: The negotiated protocol revision; None on a shared channel before initialize.
        client_info: The client's name and version, as it sent them.
        client_capabilities: What the client declared, as it sent it.
        in_flight: Its requests in flight.
        threshold: From which level it is sent log lines.
        questions: The requests of its own that asked the client something, by the question's id.
        streams: Its streams that its client can come back to, by the name that their event ids carry.
        subscriptions: The URIs that it subscribed to.
        stage: Where it is in its life.
    """

    __slots__ = (
        "_asked",
        "_awaited",
        "_own",
        "address",
        "bus",
        "client_capabilities",
        "client_info",
        "id",
        "in_flight",
        "last_active",
        "principal",
        "questions",
        "revision",
        "setting",
        "stage",
        "streams",
        "subscriptions",
        "threshold",
    )

    address: Address[object]

    def __init__(self, bus: "Bus", session_id: str, setting: Setting, principal: object) -> None:
        self.bus = bus
        self.id = session_id
        self.setting = setting
        self.principal = principal
        self._own: Features | None = None
        self._asked = 0
        self._awaited: trio.Event | None = None
        self.revision: Revision | None = None
        self.client_info: dict[str, Any] = {}
        self.client_capabilities: dict[str, Any] = {}
        self.in_flight = InFlight(bus.limits.max_requests_per_session)
        self.threshold = LogThreshold(bus.limits.log_level)
        self.questions: dict[RequestId, Address[object]] = {}
        self.streams: dict[str, Stream] = {}
        self.subscriptions: set[str] = set()
        self.stage = Stage.CONNECTED if setting is Setting.SHARED else Stage.REGISTERING
        self.last_active = trio.current_time()

    @property
    def features(self) -> Features:
        """What the client is offered: the server's features, with the session's own tools over them."""
        return self.bus.features if self._own is None else self._own

    @property
    def log_level(self) -> LogLevel | None:
        """From which level the client is sent log lines."""
        return self.threshold.level

    def log(self, level: str, data: Any, logger: str | None = None) -> Receipt:
        """Send a log line that no request caused; on HTTP it needs an open GET stream.

        Args:
            level: One of the eight syslog levels.
            data: The line: a text, or any value that is JSON.
            logger: Which part of the server speaks.

        Raises:
            ValueError: There is no such level.
            TypeError: `data` is not JSON.
        """
        return self._say(emission.log(self.bus.ledger, Kind.SESSION_LOG, level, data, logger))

    def notify(self, method: str, params: dict[str, Any] | None = None) -> Receipt:
        """Send a notification of an extension that no request caused.

        Where there is no stream for it yet it is held, within the bus's limits.

        Args:
            method: Its method, which begins with ``notifications/`` and is not one of the protocol's core.
            params: Its parameters, a JSON object.

        Raises:
            ValueError: The protocol's core defines `method`, or it is no notification.
            TypeError: `params` is not JSON.
        """
        return self._say(emission.custom(self.bus.ledger, Kind.SESSION_CUSTOM, method, params))

    def elicitation_complete(self, elicitation_id: str) -> Receipt:
        """Tell the client that what an elicitation by URL was for has been done, as revision 2025-11-25 has it.

        Held, within the bus's limits, where there is no stream for it yet.

        Args:
            elicitation_id: That of an `ElicitUrl` that this client was asked.
        """
        said = emission.elicitation_complete(self.bus.ledger, elicitation_id)
        if self.revision is None or not self.revision.elicitation_ids:
            said.receipt.discard(Reason.ERA)
            return said.receipt
        return self._say(said)

    def add_tool(self, tool: Tool | Callable[..., Any], **fields: Any) -> Tool:
        """Give this client a tool of its own; it takes the place of the server's of the same name.

        The client is told that its list of tools has changed, unless it is still registering.

        Args:
            tool: A function, or a tool made by `mcpbus.tool`.
            **fields: As for `Server.tool`.

        Raises:
            RegistrationError: The session has a tool of that name, or the function cannot be one.
        """
        if self._own is None:
            # Made only now: most sessions have no tools of their own.
            self._own = self.bus.features.overlay()
            self._own.on_change(lambda _: self.bus.session_tools_changed(self))
        return self._own.add_tool(tool, **fields)

    def remove_tool(self, name: str) -> None:
        """Take one of its own tools from this client, and tell it.

        Raises:
            RegistrationError: The session has no tool of that name of its own.
        """
        if self._own is None:
            raise RegistrationError(f"tool {name!r} is not one of this session's own; it has none")
        self._own.remove_tool(name)

    async def until_initialized(self) -> None:
        """Wait until the client has sent initialized, or the session has ended. For the bus.

        Until then a client should be sent no requests (2025-11-25, Lifecycle, "Initialization"), yet over HTTP
        its first call may overtake what it said before.
        """
        while self.stage not in {Stage.READY, Stage.ENDED}:
            if self._awaited is None:
                self._awaited = trio.Event()
            await self._awaited.wait()

    def enter(self, stage: Stage) -> None:
        """Come to a later stage. For the session's actor."""
        self.stage = stage
        if self._awaited is not None:
            self._awaited.set()
            self._awaited = None

    def next_question_id(self) -> int:
        """Return an id for a request to the client. For the bus."""
        self._asked += 1
        return self._asked

    def touch(self) -> None:
        """Note that the client did something. For the bus."""
        self.last_active = trio.current_time()

    def close(self) -> None:
        """End the session; what it has in flight is answered with an error first."""
        self.address.tell(Close("The session was closed by the server"))

    def _say(self, said: Emission) -> Receipt:
        if self.address.stopped:
            said.receipt.discard(Reason.SESSION_ENDED)
        else:
            self.address.tell(said)
        return said.receipt

    def __repr__(self) -> str:
        name = self.client_info.get("name", "unknown client")
        revision = "no revision" if self.revision is None else self.revision.name
        return f"<Session of {name!r}, {revision}, {self.stage.value}, {len(self.in_flight)} in flight>"


class SessionActor:
    """See the module."""

    def __init__(self, cell: Cell[object], session: Session, shared: Stream | None) -> None:
        limits = session.bus.limits
        self._cell = cell
        self._session = session
        self._limits = limits
        self._get: Stream | None = None
        self._dropped = False
        self._shared = shared
        self._held: Held | None = None
        self._why: str | None = None
        session.address = cell.address
        cell.on_stop(self._ended)
        if shared is not None:
            cell.watch(shared.address)

    def handle(self, message: object) -> None:
        """Handle one message; see `actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    # -- life ------------------------------------------------------------------------------------

    def _registered(self, _message: Registered) -> None:
        self._session.enter(Stage.REGISTERED)
        if self._shared is None:
            self._cell.after(self._limits.initialize_timeout, _Tick())

    def _initialized(self, _message: Initialized) -> None:
        if self._session.stage is Stage.REGISTERED:
            self._session.enter(Stage.READY)
            self._session.bus.ready(self._session)
            self._flush()

    def _tick(self, _message: _Tick) -> None:
        session, now = self._session, trio.current_time()
        if session.stage is Stage.REGISTERED:
            self._end(
                f"The client sent no notifications/initialized for {self._limits.initialize_timeout:g} s"
            )
        elif self._shared is None:
            active = self._get is not None or session.in_flight
            idle = 0.0 if active else now - max(session.last_active, session.in_flight.last_active)
            if idle >= self._limits.idle_timeout:
                self._end("The session was idle for too long")
            else:
                self._cell.after(self._limits.idle_timeout - idle, _Tick())

    def _close(self, message: Close) -> None:
        self._end(message.why)

    def _end(self, why: str | None) -> None:
        self._why = why
        self._cell.stop()

    def _ended(self, reason: StopReason) -> None:
        session = self._session
        session.enter(Stage.ENDED)
        session.bus.forget(session)
        silent = self._why is None and reason is not StopReason.FAILED
        end = Drop() if silent else End(self._why or "The session failed")
        for request in session.in_flight.addresses():
            request.tell(end)
        if self._get is not None:
            self._get.address.tell(Abort(Ending.SESSION_ENDED, Reason.SESSION_ENDED) if silent else Finish())
        if self._shared is not None:
            self._shared.address.tell(Finish())
        if self._held is not None:
            self._held.discard(Reason.SESSION_ENDED)

    # -- what the client says --------------------------------------------------------------------

    def _subscribe(self, message: Subscribe) -> None:
        if message.uri not in self._session.subscriptions:
            self._session.subscriptions.add(message.uri)
            self._session.bus.interests.add(self._cell.address, uris=[message.uri])

    def _unsubscribe(self, message: Unsubscribe) -> None:
        session = self._session
        session.subscriptions.discard(message.uri)
        session.bus.interests.remove(self._cell.address, uris=[message.uri])
        if self._held is not None:
            self._held.discard(Reason.NOT_SUBSCRIBED, self._not_subscribed)
        stream = self._shared or self._get
        if stream is not None:
            stream.address.tell(Purge(self._not_subscribed, Reason.NOT_SUBSCRIBED))

    def _not_subscribed(self, message: Outgoing) -> bool:
        # A shared channel has the modern client's updates too, whose listens are no concern of the session.
        if message.kind is not Kind.RESOURCE_UPDATED or message.era is not Era.LEGACY:
            return False
        return isinstance(message.key, tuple) and not covers(self._session.subscriptions, message.key[1])

    def _cancel_request(self, message: CancelRequest) -> None:
        request = self._session.in_flight.find(message.request_id)
        if request is not None:
            request.tell(Cancel())

    # -- streams ---------------------------------------------------------------------------------

    def _open_get(self, message: OpenGet) -> None:
        old, self._get = self._get, message.stream
        if old is not None:
            for waiting in old.hand_over():
                message.stream.send(waiting)
            old.address.tell(Supersede())
        self._flush()

    def _returned(self, message: Returned) -> None:
        if self._get is message.stream:
            self._get = None
            self._dropped = True
            self._session.last_active = trio.current_time()
        # What was lost is older than what waited.
        for lost in message.lost:
            if lost.kind in CHANGES:
                receipt = self._session.bus.ledger.enter(lost.receipt.method)
                self._send(Outgoing(lost.kind, Era.LEGACY, lost.data, receipt, key=lost.key))
        for waiting in message.waiting:
            self._send(waiting)

    def _shared_stopped(self, _message: Stopped) -> None:
        self._end(None)

    # -- what the server says --------------------------------------------------------------------

    def _emit(self, said: Emission) -> None:
        session = self._session
        threshold = session.threshold.level
        if said.level is not None and (threshold is None or said.level < threshold):
            said.receipt.discard(Reason.FILTERED)
        elif said.uri is not None and not covers(session.subscriptions, said.uri):
            said.receipt.discard(Reason.NOT_SUBSCRIBED)
        else:
            self._send(Outgoing(said.kind, Era.LEGACY, said.data, said.receipt, key=said.key))

    def _send(self, message: Outgoing) -> None:
        way = route(message.kind, Era.LEGACY, self._session.setting)
        stream = self._get if way is Line.GET else self._shared
        if (
            self._session.stage is not Stage.READY
            and (message.kind, Era.LEGACY, Situation.UNINITIALIZED) in ABSENT
        ):
            way = absent(message.kind, Era.LEGACY, Situation.UNINITIALIZED)
        elif stream is None:
            way = absent(message.kind, Era.LEGACY, Situation.DROPPED if self._dropped else Situation.NEVER)
        if isinstance(way, Reason):
            message.receipt.discard(way)
        elif way is Line.HELD or stream is None:
            self._hold(message)
        else:
            stream.send(message)

    def _hold(self, message: Outgoing) -> None:
        if self._held is None:
            self._held = Held(self._limits.held_items, self._limits.held_timeout)
        if not self._held:
            self._cell.after(self._limits.held_timeout, _Expire())
        self._held.put(message, trio.current_time())

    def _expire(self, _message: _Expire) -> None:
        now = trio.current_time()
        if self._held:
            self._held.expire(now)
            if self._held.deadline is not None:
                self._cell.after(self._held.deadline - now, _Expire())

    def _flush(self) -> None:
        """Send what is held, where its stream is there now."""
        if self._held:
            for message in self._held.take():
                self._send(message)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Emission: _emit,
        OpenGet: _open_get,
        Returned: _returned,
        Initialized: _initialized,
        Subscribe: _subscribe,
        Unsubscribe: _unsubscribe,
        CancelRequest: _cancel_request,
        Close: _close,
        Stopped: _shared_stopped,
        Registered: _registered,
        _Tick: _tick,
        _Expire: _expire,
    }
