"""What goes into the judgement of one HTTP request, and what comes out of it: values, each for the shell to carry out."""

from collections.abc import Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec

from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.headers import AcceptHeader, Headers, LateFields
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter
from mcpbus.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    RequestId,
    Undecodable,
    encode_error,
)
from mcpbus.protocol.messages import InitializeParams
from mcpbus.protocol.meta import CallReader, ModernClaim, Routing
from mcpbus.protocol.revisions import Era, Revision


class SessionRef(Protocol):
    """What must be known of a session to judge a request in it."""

    @property
    def revision(self) -> Revision | None:
        """The revision that its handshake settled on; None before that."""
        ...


SessionT = TypeVar("SessionT", bound=SessionRef)
SessionT_co = TypeVar("SessionT_co", bound=SessionRef, covariant=True)


class ServerLookup(Protocol[SessionT_co]):
    """Whom the exchange asks. Asking changes nothing: a request that is refused leaves no trace."""

    def find_local_session(self, id: str, principal: object) -> SessionT_co | None:  # noqa: A002 - the protocol's word
        """The live session of that id, if it is this principal's; None is an answer for both faults (rule W-44)."""
        ...

    def offers(self, method: str, era: Era) -> bool:
        """Whether the server answers requests of this method in this era."""
        ...

    def mirrored_parameters(self, tool: str, principal: object) -> Sequence[MirroredParameter]:
        """The mirrored parameters of a tool; none where this principal sees no tool of that name (rule X-51)."""
        ...

    def call_reader(self, tool: str) -> CallReader | None:
        """What reads a call of a tool in one go, its arguments as well; None where they are left for later."""
        ...


class RequestHead(msgspec.Struct, frozen=True, gc=False):
    """A request before its body.

    Attributes:
        verb: The HTTP method.
        path: Relative to where the application is mounted, without a query, as `plain_path` has it.
        headers: Its fields.
        query: What follows the question mark, as it came.
        root: Where the application is mounted; empty if it has the whole server.
    """

    verb: str
    path: str
    headers: Headers
    query: str = ""
    root: str = ""

    def plus(self, late: LateFields) -> "RequestHead":
        """Return the same with more fields; see `Headers.plus`."""
        return RequestHead(self.verb, self.path, self.headers.plus(late), self.query, self.root)


def plain_path(path: str) -> str:
    """A path as it is compared: a slash at its end, which many clients and proxies add, makes no other place of it."""
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


class HttpResponse(msgspec.Struct, frozen=True, gc=False):
    """The whole response. `Exchange.cors_headers` come on top.

    `context` is the `RequestContext` of the request to which it is the reply, if it is one that is still to be entered in the books.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""
    context: Any = None


class Proceed(msgspec.Struct, frozen=True, gc=False):
    """The head is in order: authorize, then judge the verb."""

    verb: Literal["POST", "GET", "DELETE"]


class NeedsBody(msgspec.Struct, frozen=True, gc=False):
    """Read the body, then judge it; past `limit` bytes answer `HeadValidator.too_large`."""

    limit: int


class Serve(msgspec.Struct, Generic[SessionT], frozen=True, gc=False):
    """A request to serve, `subscriptions/listen` included.

    `session` is None for a modern or stateless request, `claim` is None for a legacy one.
    """

    request: JsonRpcRequest
    routing: Routing
    revision: Revision
    session: SessionT | None
    claim: ModernClaim | None
    accepted: AcceptHeader


class Initialize(msgspec.Struct, frozen=True, gc=False):
    """A legacy handshake to answer, under the revision that it settles on."""

    request: JsonRpcRequest
    routing: Routing
    params: InitializeParams
    revision: Revision
    accepted: AcceptHeader


class AcceptNotification(msgspec.Struct, Generic[SessionT], frozen=True, gc=False):
    """A notification to take note of; answer `ACCEPTED`. A modern or stateless one has no session, and no effect (rule X-5)."""

    notification: JsonRpcNotification
    session: SessionT | None


class DeliverResponse(msgspec.Struct, Generic[SessionT], frozen=True, gc=False):
    """The answer to a request of ours; whoever has asked hears of it, should the session still wait for it."""

    response: JsonRpcResponse
    session: SessionT

    @property
    def answer(self) -> HttpResponse:
        """What to answer: a 4xx where nobody waits for it would make some clients give up (rule W-7)."""
        return ACCEPTED if self.response.refusal is None else refusal(400, self.response.refusal)


class Batch(msgspec.Struct, Generic[SessionT], frozen=True, gc=False):
    """Messages that came in one array (revision 2025-03-26), each to be dealt with as if it had come by itself.

    What is no message, or must not be in an array, is there as what to answer instead. `session` is None in stateless serving.
    """

    members: (
        "Sequence[Serve[SessionT] | AcceptNotification[SessionT] | DeliverResponse[SessionT] | Undecodable]"
    )
    session: SessionT | None
    accepted: AcceptHeader


class OpenStream(msgspec.Struct, Generic[SessionT], frozen=True, gc=False):
    """A GET stream to open, or to resume after the event that the client saw last."""

    session: SessionT
    last_event_id: str | None


class EndSession(msgspec.Struct, Generic[SessionT], frozen=True, gc=False):
    """A session to end at its client's wish."""

    session: SessionT


NO_STORE: Final = (b"cache-control", b"no-store")
"""On every answer that is no stream: caches may keep a 404 (RFC 9110, section 15.1), and would then give it to those who come later."""

ACCEPTED: Final = HttpResponse(202, [(b"content-length", b"0"), NO_STORE])
"""The answer to a POST of a notification or a response (rules W-7, X-4)."""

NO_CONTENT: Final = HttpResponse(204, [NO_STORE])
"""The answer that says that something was done, or that there is nothing more."""


def answer(status: int, content_type: bytes, body: bytes, *extra: tuple[bytes, bytes]) -> HttpResponse:
    """A response with a body and its fields."""
    return HttpResponse(
        status,
        [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), NO_STORE, *extra],
        body,
    )


def refusal(
    status: int,
    error: ProtocolError,
    id: RequestId | None = None,  # noqa: A002 - the protocol's word
    *extra: tuple[bytes, bytes],
) -> HttpResponse:
    """A response whose body is a JSON-RPC error; without an id for whoever has none to give (rule J-9)."""
    return answer(status, b"application/json", encode_error(id, error), *extra)


def status_of(code: int, revision: Revision) -> int:
    """The HTTP status of an error answer that has not begun yet (rules X-26, X-30)."""
    return revision.error_statuses.get(code, 200)
