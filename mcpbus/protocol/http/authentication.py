"""The seam for principals: who is behind an HTTP request.

``Server(auth=...)`` takes a resource server of `mcpbus.auth`, for tokens of OAuth. For everything else
``Server(authenticate=...)`` takes an async function of the request's `RequestHead`. What it returns is the principal:
a text, or any value that is compared by what it holds. A session may be used by the principal that opened it, and by
nobody else; so may all else that is somebody's, see `mcpbus.protocol.principals`.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from mcpbus.protocol.keywords import explained
from mcpbus.protocol.principals import Peer

if TYPE_CHECKING:  # who serves stdio knows this seam, and needs nothing of HTTP
    from mcpbus.protocol.http.bearer import NewToken
    from mcpbus.protocol.http.messages import HttpResponse, RequestHead

Authenticate: TypeAlias = Callable[["RequestHead"], Awaitable[Any]]


@explained
class UnauthorizedError(Exception):
    """Raised by `authenticate` to refuse a request.

    Args:
        challenge: The value of the WWW-Authenticate header, such as ``Bearer`` (RFC 9110, section 11.6.1).
        status: 401 for who has not said who it is, 403 for who may not.
    """

    def __init__(self, challenge: str = "Bearer", *, status: int = 401) -> None:
        super().__init__(challenge)
        if status not in {401, 403}:
            raise ValueError(f"status is {status}: it must be 401 or 403")
        self.challenge = challenge
        self.status = status


class ForeignRefusalError(UnauthorizedError):
    """Raised by `authenticate` to refuse a request with a response that another library wrote.

    Args:
        response: The response.
    """

    def __init__(self, response: "HttpResponse") -> None:
        super().__init__()
        self.response = response


@runtime_checkable
class Authorizer(Protocol):
    """What those who serve HTTP ask a resource server; see `mcpbus.auth.ResourceServer`."""

    @property
    def resource(self) -> str:
        """The canonical URI of the server."""

    @property
    def local(self) -> bool:
        """Whether its tokens are for development only, on this machine alone."""

    @property
    def document(self) -> bytes:
        """The metadata of the server, in JSON."""

    def recall(self, head: "RequestHead", peer: Peer) -> Any:
        """Return who sends a request, as far as that can be told at once.

        Returns:
            The principal; what to answer, if the request is refused; a `NewToken`, for which it may have to be waited.
        """

    async def find(self, new: "NewToken", peer: Peer) -> Any:
        """Find out who brings a token that `recall` has returned; return the principal, or what to answer.

        Args:
            new: The token.
            peer: From where it really comes.
        """

    def missing(self, principal: Any, scopes: Collection[str] = ()) -> Sequence[str]:
        """Return all that somebody's token has to allow for what they ask for; nothing if it does.

        Args:
            principal: Who they are.
            scopes: What is needed for it, besides what every request needs.
        """

    def step_up(self, scopes: Sequence[str]) -> "HttpResponse":
        """Return what to answer somebody whose token has to allow more."""

    def seconds_left(self, principal: Any) -> float:
        """Return how long somebody may go on listening with the token that they have brought."""
