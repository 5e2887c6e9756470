"""One legacy client, or one connection on a shared channel, as the rest of the program holds it.

`Session` is what the rest of the program holds: what is known of the client, and how to speak to it outside of
any request. The actor decides on which stream that leaves, holds what has none yet, and ends the session when
its client has gone, in any of the ways in which that can happen.
"""

import enum
import secrets
from collections.abc import Awaitable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, Never, Protocol

import trio
from mcpbus_actors import Address

from mcpbus.core import outbound
from mcpbus.core.admission import InFlight
from mcpbus.core.bus_services import BusServices
from mcpbus.core.event_log import ResumableStreams
from mcpbus.core.input_requests import InputRequestQuota, answered_within
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbound import OutboundNotification, Params
from mcpbus.core.receipt import Receipt
from mcpbus.core.sessions.held_queue import SessionHeldStore
from mcpbus.core.sessions.messages import CloseSession, Unsubscribed
from mcpbus.core.subscriber import Subscriber
from mcpbus.core.topics import weigh_uri
from mcpbus.features.input_requests.errors import cannot_ask
from mcpbus.features.input_requests.interface import InputRequests
from mcpbus.features.input_requests.requests import InputRequest, OnProgress
from mcpbus.features.session_features import SessionFeatures
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.other_names import missing
from mcpbus.protocol.principals import digest_of
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import MessageKind, Reason, StreamState, TransportKind
from mcpbus.protocol.uris import UriSet

_ID_BITS: Final = 30
"""A session's questions are numbered from anywhere on, so that one process repeats no id of another's to a client that they share.

Below 2 ** 31, which is what clients in every language can hold.
"""


class SessionStage(enum.Enum):
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


class SessionCallbacks(Protocol):
    """Where sessions are entered."""

    def ready(self, session: "Session", /) -> None:
        """Note that a session's client sent initialized."""

    def stash_store(self, session: "Session", /) -> SessionHeldStore | None:
        """Return where what is held for a session's client is kept as well; None if nobody could go on with it."""

    def depart(self, session: "Session", /) -> None:
        """Take out a session that another process has, and of which requests may go on here."""

    def forget(self, session: "Session", /) -> None:
        """Take out a session that has ended."""


class LogThreshold:
    """From which level a client wants log lines: None for none at all.

    Attributes:
        level: The level.
        chosen: Whether the client has chosen it, by ``logging/setLevel``.
    """

    __slots__ = ("chosen", "level")

    def __init__(self, level: LogLevel | None) -> None:
        self.level = level
        self.chosen = False


class Session(SessionFeatures, InputRequests):
    """A legacy client, from its initialize on. Only the bus makes them.

    What it asks belongs to no request. It goes out on the client's GET stream, or on its connection, once the client has
    been initialized; where there is no such stream it is held, within the bus's limits, and refused if none opens in time.
    The specification up to 2025-11-25 allows such questions, but newer clients may refuse them: ask with `Context` where a request is what
    makes you ask. In revision 2026-07-28 there are no sessions, and nobody is asked anything but in answer to a request.

    Attributes:
        id: Names the session in HTTP headers; unguessable, and no proof of who the client is.
        bus: The bus that it belongs to.
        principal: Whom `authenticate` found when the session was opened; nobody else may use it.
        owner: To whom the session is counted, with all that is done in it.
        transport: How the client is connected.
        backend_state: The state of the backend for this client; None if it has none. For the bus.
        revision: The negotiated protocol revision; None on a shared channel before initialize.
        client_info: The client's name and version, as it sent them.
        client_capabilities: What the client declared, as it sent it.
        in_flight: Its requests in flight.
        threshold: From which level it is sent log lines.
        questions: The requests of its own that asked the client something, by the question's id.
        streams: Its streams that its client can come back to, by the name that their event ids carry.
        subscriptions: The URIs that it subscribed to.
        stage: Where it is in its life.
        input_ended: Why nobody can be asked anything, though its client still reads; None if it says something.
        listening: Whether its client waits for what is said to it: its GET stream is open, or it is a connection that
            has been initialized.
        last_active: When its client last did something, in trio's time.
    """

    __slots__ = (
        "_asked",
        "_awaited",
        "_open",
        "_state",
        "account",
        "address",
        "backend_state",
        "bus",
        "client_capabilities",
        "client_info",
        "id",
        "in_flight",
        "input_ended",
        "last_active",
        "listening",
        "owner",
        "principal",
        "questions",
        "revision",
        "stage",
        "streams",
        "subscriptions",
        "threshold",
        "transport",
    )

    address: Address[object]

    if not TYPE_CHECKING:  # type checkers know which attributes there are

        def __getattr__(self, name: str) -> Never:
            raise missing("Session", name, self)

    def __init__(
        self, bus: BusServices, session_id: str, transport: TransportKind, principal: object, owner: Hashable
    ) -> None:
        super().__init__()
        self.bus = bus
        self.id: str = session_id
        self.transport = transport
        self.principal: object = principal
        self.owner: Hashable = owner
        self._asked = secrets.randbits(_ID_BITS)
        self._open = InputRequestQuota()
        self._awaited: trio.Event | None = None
        self._state: dict[str, Any] | None = None
        self.backend_state: Any = None
        self.revision: Revision | None = None
        self.client_info: dict[str, Any] = {}
        self.client_capabilities: dict[str, Any] = {}
        self.in_flight = InFlight(bus.limits.max_requests_per_session)
        self.threshold = LogThreshold(bus.limits.log_level)
        self.questions: dict[RequestId, Address[object]] = {}
        self.streams: ResumableStreams[MessageStream] = ResumableStreams()
        self.subscriptions = UriSet()
        self.account = bus.budget.account("a session", self._make_room, owner=owner)
        self.stage = SessionStage.CONNECTED if transport is TransportKind.DUPLEX else SessionStage.REGISTERING
        self.input_ended: str | None = None
        self.listening = False
        self.last_active = trio.current_time()

    @property
    def short_id(self) -> str:
        """Eight characters of its id, for people: the whole of it is what many clients authenticate with in practice."""
        parts = self.id.split(".")
        # Where several processes serve, the first part names one of them; see `mcpbus.cluster.signed_ids`.
        return (parts[1] if len(parts) > 1 else self.id)[:8]

    @property
    def state(self) -> dict[str, Any]:
        """What handlers keep for this client, as long as the session lasts. Nobody but them reads or writes it."""
        if self._state is None:
            self._state = {}
        return self._state

    @property
    def state_key(self) -> Hashable:
        """See `RequestContext.state_key`. For the bus."""
        return self.owner if self.principal is None else digest_of(self.principal)

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
        self.bus.check_thread("session.log")
        return self.pass_on(outbound.log(self.bus.ledger, MessageKind.SESSION_LOG, level, data, logger))

    def notify(self, method: str, params: Params = None) -> Receipt:
        """Send a notification of an extension that no request caused.

        Where there is no stream for it yet it is held, within the bus's limits.

        Args:
            method: Its method, which begins with ``notifications/`` and is not one of the protocol's core.
            params: Its parameters, a JSON object; or the text of one, as `msgspec.Raw`.

        Raises:
            ValueError: The protocol's core defines `method`, or it is no notification.
            TypeError: `params` is not JSON.
        """
        self.bus.check_thread("session.notify")
        return self.pass_on(outbound.custom(self.bus.ledger, MessageKind.SESSION_CUSTOM, method, params))

    def resource_updated(self, uri: str) -> Receipt:
        """Tell this client alone that a resource has changed, as where each client sees contents of its own.

        It is told if it subscribed to `uri`, or to one that it lies below; see `Bus.resource_updated` for all clients.

        Args:
            uri: The resource.
        """
        self.bus.check_thread("session.resource_updated")
        return self.pass_on(outbound.resource_updated(self.bus.ledger, uri))

    def elicitation_complete(self, elicitation_id: str) -> Receipt:
        """Tell the client that what an elicitation by URL was for has been done, as revision 2025-11-25 has it.

        Held, within the bus's limits, where there is no stream for it yet.

        Args:
            elicitation_id: That of an `ElicitUrl` that this client was asked.
        """
        self.bus.check_thread("session.elicitation_complete")
        said = outbound.elicitation_complete(self.bus.ledger, elicitation_id)
        if self.revision is None or not self.revision.elicitation_ids:
            said.receipt.emit()
            said.receipt.discard(Reason.NOT_IN_REVISION)
            return said.receipt
        return self.pass_on(said)

    def pass_on(self, said: OutboundNotification) -> Receipt:
        """Send a notification that is drafted, such as one of another server. For the bus."""
        said.receipt.aim(self.address)
        said.receipt.emit()
        return self.say(said)

    def say(self, said: OutboundNotification) -> Receipt:
        """Send a notification that is in the ledger, after all that this process has said to the session before. For the bus."""
        in_order = self.bus.say_in_order
        if in_order is not None and not self.address.stopped and in_order(self.id, said):
            return said.receipt
        return self.say_now(said)

    def say_now(self, said: OutboundNotification) -> Receipt:
        """Send a notification that is in the ledger. For the bus."""
        if self.address.stopped:
            said.receipt.discard(Reason.SESSION_ENDED)
        else:
            self.bus.flush_mailbox(said.data)
            self.address.tell(said)
        return said.receipt

    def check_thread(self, call: str) -> None:
        """Refuse a call from another thread than trio's; see `BusServices.check_thread`. For its features."""
        self.bus.check_thread(call)

    def list_changed(self, name: ListName) -> None:
        """Tell the client that a list of its own has changed, unless it is still registering. For its features."""
        registered = self.stage in {SessionStage.REGISTERED, SessionStage.READY}
        self.bus.publish_list(name, [self.address] if registered else [])

    def subscribe(self, uri: str) -> None:
        """Subscribe the client to a resource, so that it hears of what is said of it as soon as it knows. For the bus."""
        if uri not in self.subscriptions and not self.address.stopped:
            self.subscriptions.add(uri)
            self.account.hold(weigh_uri(uri))
            subscriber = Subscriber(self.id, self.owner, self)
            self.bus.topics.add(self.address, uris=[uri], owner=subscriber)

    def unsubscribe(self, uri: str) -> None:
        """Take a subscription back. For the bus."""
        spelled = None if self.address.stopped else self.subscriptions.take(uri)
        if spelled is not None:
            self.account.release(weigh_uri(spelled))
            self.bus.topics.remove(self.address, uris=[uri])
            self.address.tell(Unsubscribed())

    async def _ask(
        self,
        questions: Mapping[Any, InputRequest],
        timeout: float | None,  # noqa: ASYNC109
        on_progress: OnProgress | None = None,
        via: Address[object] | None = None,
    ) -> list[Any]:
        if self.revision is None or self.stage is SessionStage.REGISTERING:
            raise cannot_ask("its initialize has not been answered; have another task ask, once that is done")
        bound = answered_within(self.bus, self.owner, timeout, self.revision.era)
        named = {key or question.label: question for key, question in questions.items()}
        ask = self._open.prepare(named, self.client_capabilities, self.revision, on_progress)
        ask.via = via
        with self._open.waiting(ask, self.address.tell), bound:
            await self.until_initialized()
            if self.address.stopped:
                raise cannot_ask(StreamState.ENDED.value)
            self.address.tell(ask)
            return list((await ask.wait()).values())

    def relay_questions(
        self,
        questions: Mapping[str | None, InputRequest],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        *,
        via: Address[object] | None = None,
    ) -> Awaitable[list[Any]]:
        """Send the input requests of another server; as `Context.relay_questions`, outside any request. For the bus.

        Args:
            questions: The input requests.
            timeout: As for `Context.relay_questions`.
            on_progress: As for `Context.relay_questions`.
            via: The request on whose stream they are sent; None for the stream of the session. They outlive that request.
        """
        return self._ask(questions, timeout, on_progress, via=via)

    async def until_initialized(self) -> None:
        """Wait until the client has sent initialized, or says nothing more.

        Until then a client should be sent no requests (2025-11-25, Lifecycle, "Initialization"), yet over HTTP
        its first call may overtake what it said before.
        """
        while self.stage not in {SessionStage.READY, SessionStage.ENDED} and self.input_ended is None:
            await self._stirred()

    async def until_registered(self) -> None:
        """Wait until `initialize` is answered, if it has come. For the bus."""
        while self.stage is SessionStage.REGISTERING:
            await self._stirred()

    async def _stirred(self) -> None:
        """Wait until the stage changes, or the input ends."""
        if self._awaited is None or self._awaited.is_set():
            self._awaited = trio.Event()
        await self._awaited.wait()

    def enter(self, stage: SessionStage) -> None:
        """Come to a later stage. For the session's actor."""
        self.stage = stage
        self._stir()

    def close_input(self, why: str) -> None:
        """Note why nobody can be asked anything more. For the session's actor."""
        self.input_ended = why
        self._stir()

    def _stir(self) -> None:
        if self._awaited is not None:
            self._awaited.set()

    def next_question_id(self) -> int:
        """Return an id for a request to the client: one that no question to it has had, whoever asked that. For the bus."""
        self._asked += 1
        return self._asked

    def idle_since(self) -> float | None:
        """Tell since when its client has done nothing; None while something goes on. For the bus."""
        return None if self.listening else self.silent_since()

    def silent_since(self) -> float | None:
        """Tell since when its client has asked nothing, though it may listen; None while it waits for an answer. For the bus."""
        if self.in_flight or self.stage is SessionStage.REGISTERING:
            return None
        return max(self.last_active, self.in_flight.last_active)

    def touch(self) -> None:
        """Note that the client did something. For the bus."""
        self.last_active = self.bus.now()

    def close(self) -> None:
        """End the session; what it has in flight is answered with an error first."""
        self.bus.check_thread("session.close")
        self.address.tell(CloseSession("The session was closed by the server"))

    def _make_room(self) -> None:
        self.address.tell(
            CloseSession("The session ended because the server keeps too much in memory, and for it the most")
        )

    def __repr__(self) -> str:
        name = self.client_info.get("name", "unknown client")
        revision = "no revision" if self.revision is None else self.revision.name
        return f"<Session of {name!r}, {revision}, {self.stage.value}, {len(self.in_flight)} in flight>"
