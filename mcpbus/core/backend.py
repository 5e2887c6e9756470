"""Where answers come from: a `Backend`. The features of a `mcpbus.Server` are one."""

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

from mcpbus.core.bus_services import BusServices
from mcpbus.core.call import Handler
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.http.authentication import Authenticate, Authorizer
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.messages import SubscriptionFilter
from mcpbus.protocol.meta import CallReader, Routing
from mcpbus.protocol.results import Tail
from mcpbus.protocol.revisions import Era, Revision

Listener: TypeAlias = Callable[[ClientNotification], Awaitable[object]]


class Backend(Protocol):
    """Who answers which method, and what is granted to whom.

    The dispatcher and the transports ask it, and know no more of what is served. What concerns sessions and streams, and calls
    once they run, is theirs. `open`, `authenticate` and `register` apart, nothing here waits.

    Attributes:
        name: What is served, for the log.
        auth: The resource server that lets clients in over HTTP; None if there is none.
        authenticate: Tells who is behind an HTTP request, where there is no `auth`; None if nobody is told from the other.
        tails: What ends each result, by revision.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - an attribute, as the others
    @property
    def auth(self) -> Authorizer | None: ...  # noqa: D102
    @property
    def authenticate(self) -> Authenticate | None: ...  # noqa: D102
    @property
    def tails(self) -> Mapping[Revision, Tail]: ...  # noqa: D102

    def open(self, bus: BusServices, /) -> AbstractAsyncContextManager[object]:
        """Open it for a bus: entered before anything is served, and left after the drain."""

    def open_to_all(self) -> None:
        """Hear that it is served over HTTP without `auth`: nobody is asked for a token from now on.

        Raises:
            RegistrationError: Something is for those alone whose token allows it.
        """

    def offers(self, method: str, era: Era, /) -> bool:
        """Whether requests of this method are answered in this era, listens included; asked before anything is allocated for one."""

    def mirrored_parameters(self, tool: str, principal: object, /) -> Sequence[MirroredParameter]:
        """The parameters of a tool that HTTP mirrors into headers; none where this principal sees no such tool."""

    def may_wait(self, method: str, name: object, era: Era, /) -> bool:
        """Whether what answers a request may take more than one step; only then does it need a task that may stay with it.

        Args:
            method: What is asked for.
            name: Whatever was given for a name, which is that of a tool if one is called.
            era: The client's.
        """

    def begin(self, context: RequestContext, /) -> bytes | Handler | None:
        """Answer a request.

        Returns:
            The encoded result object, where it is there at once; what is to be run for it; or None if the method is none of its own.

        Raises:
            ProtocolError: What to answer instead.
        """

    def needed_scopes(
        self, request: JsonRpcRequest, routing: Routing, session: Session | None, principal: object, /
    ) -> Collection[str]:
        """The scopes that a request needs its sender's token to allow, besides what every one needs; see `auth`.

        What is malformed, or names nothing that this principal sees, needs none, and is refused later. The session is that of a
        legacy request, if it has one.
        """

    def opened(self, session: Session, /) -> None:
        """Hear of a legacy session, or a connection, in which nothing has been said yet."""

    def initialize(self, revision: Revision, session: Session | None, /) -> bytes:
        """The encoded InitializeResult, for a session; None stands for stateless serving."""

    def seconds_left(self, principal: Any, /) -> float:
        """Return how long a client may listen with the token that it has brought; infinite where tokens do not expire."""

    @property
    def has_session_hooks(self) -> bool:
        """Whether it has something to do before an initialize is answered."""

    async def register(self, session: Session, context: RequestContext | None, /) -> None:
        """Do it. If it raises, the session is refused; it is cancelled when its time is over.

        Args:
            session: The session.
            context: The `initialize` request; None where this process takes over the session of another one, which got that request.

        Raises:
            ProtocolError: What to answer instead.
        """

    def session_end_hook(self, session: Session, /) -> Callable[[], Awaitable[object]] | None:
        """What is to run, in a task of its own, now that a session has ended that was registered; None for nothing.

        It ends in time by itself, and raises nothing of an author's.
        """

    def notification_hook(self, method: str, /) -> Listener | None:
        """What is to run for a client's notification of this method, in a task of its own; None for nothing.

        It ends in time by itself, and raises nothing of an author's.
        """

    @property
    def has_upstream_subscriptions(self) -> bool:
        """Whether it hears elsewhere of changes of resources, and has to be there first; see `wait_subscribed`."""

    async def wait_subscribed(self, uris: Collection[str], key: Hashable, /) -> None:
        """Wait until changes of these resources are heard of, to which somebody has subscribed.

        It ends in time by itself, and raises nothing.
        """

    def may_subscribe(self, session: Session, /) -> bool:
        """Whether a legacy client may subscribe to resources; what a listen is for, `grant` says."""

    def grant(self, asked: SubscriptionFilter, context: RequestContext, /) -> SubscriptionFilter:
        """What of a filter is honoured; which tasks are whose is not for it to say.

        Raises:
            ProtocolError: What to answer instead.
        """


Beside: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application on trio for the requests that are not for the endpoint."""


@runtime_checkable
class HasRoutes(Protocol):
    """A backend with web routes of its own."""

    def beside(self, path: str, /) -> Beside | None:
        """Return the application for all paths but those of the endpoint at `path`; None if it has no routes."""


@runtime_checkable
class ReadsCalls(Protocol):
    """A backend that can have a long call read together with its arguments; one that cannot is as good."""

    def call_reader(self, tool: str, /) -> CallReader | None:
        """What reads a call of a tool in one go, whoever sees the tool; None where it is read in parts, as the methods do."""
