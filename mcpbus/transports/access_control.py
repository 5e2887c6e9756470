"""Who sends a request, as the resource server or the author's function says, and what an endpoint refuses for that reason."""

from collections.abc import Awaitable, Iterable
from typing import Any

from mcpbus.core.backend import Backend
from mcpbus.core.concurrency import WrapBaseExceptions
from mcpbus.core.hub import Hub
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.authentication import (
    Authenticate,
    Authorizer,
    ForeignRefusalError,
    UnauthorizedError,
)
from mcpbus.protocol.http.bearer import NewToken
from mcpbus.protocol.http.head_validation import HeadValidator
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, refusal
from mcpbus.protocol.principals import Peer, owner_of
from mcpbus.transports import needed_scopes
from mcpbus.transports.needed_scopes import Asked
from mcpbus.transports.refusal_log import RefusalLog


class AccessControl:
    """Access to one endpoint of an open bus.

    Args:
        bus: The bus.
        heads: Tells from where requests come.

    Attributes:
        refusals: Is told what is refused.
    """

    def __init__(self, bus: Hub, heads: HeadValidator) -> None:
        self._bus = bus
        self._heads = heads
        self.refusals = RefusalLog()

    def refuse(self, refusal: HttpResponse, head: RequestHead, peer: Peer) -> HttpResponse:
        """Tell the log why a request is refused, if this is what the answer is; return the answer.

        Args:
            refusal: The answer.
            head: The request.
            peer: From where its connection comes, which may be a proxy's.
        """
        return self.refusals.note(refusal, head, self._heads.origin(head, peer))

    def refuse_body(
        self, refusal: HttpResponse, head: RequestHead, principal: Any, peer: Peer
    ) -> HttpResponse:
        """Return why a POST is refused whose body is not judged, having noted it if its length is the reason."""
        insufficient = self.lacking(principal)
        if insufficient is not None:
            return self.refuse(insufficient, head, peer)
        if refusal is self._heads.too_large:
            owner = owner_of(principal, self._heads.origin(head, peer))
            self._bus.limit_monitor.note("max_body_bytes", owner, "a message was refused")
        return refusal

    def lacking(self, principal: Any, requests: Iterable[Asked] = ()) -> HttpResponse | None:
        """Return why somebody may not do what they ask for, if their token has to allow more; several requests are refused as a whole."""
        backend = self._bus.backend
        auth = backend.auth
        if auth is None:
            return None
        missing = needed_scopes.lacking(backend, principal, requests)
        return auth.step_up(missing) if missing else None


async def authorize(
    backend: Backend, heads: HeadValidator, head: RequestHead, peer: Peer
) -> tuple[Any, HttpResponse | None]:
    """Ask who is behind a request.

    Args:
        backend: Whom it is for.
        heads: Tells from where it really comes.
        head: The request.
        peer: From where its connection comes, which may be a proxy's.

    Returns:
        The principal, None where nobody is asked for; or None, and what the request is refused with.

    Raises:
        Exception: A function of the author's failed.
    """
    auth = backend.auth
    if auth is not None:
        found = auth.recall(head, peer)
        if isinstance(found, NewToken):
            return await verify(auth, found, heads.origin(head, peer))
        return (None, found) if isinstance(found, HttpResponse) else (found, None)
    return (None, None) if backend.authenticate is None else await _authenticate(backend.authenticate, head)


async def verify(auth: Authorizer, new: NewToken, peer: Peer) -> tuple[Any, HttpResponse | None]:
    """Ask who brings a token that was not seen before, from where it really comes; see `authorize`."""
    with WrapBaseExceptions("auth"):
        found = await auth.find(new, peer)
    return (None, found) if isinstance(found, HttpResponse) else (found, None)


async def _authenticate(authenticate: Authenticate, head: RequestHead) -> tuple[Any, HttpResponse | None]:
    try:
        with WrapBaseExceptions("authenticate"):
            found = authenticate(head)
            if not isinstance(found, Awaitable):  # a lambda, say: nobody could tell before it was called
                raise TypeError(
                    f"authenticate is awaited, and returned a {type(found).__name__}: write an async function"
                )
            return await found, None
    except ForeignRefusalError as refused:
        return None, refused.response
    except UnauthorizedError as refused:
        return None, _challenge(refused)


def _challenge(refused: UnauthorizedError) -> HttpResponse:
    """Return the answer of a request whose principal may not make it."""
    header = (b"www-authenticate", refused.challenge.encode("latin-1"))
    why = "who is asking is not known" if refused.status == 401 else "who is asking may not"
    return refusal(refused.status, invalid_request(why), None, header)
