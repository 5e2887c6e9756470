"""Who is behind an HTTP request: the resource server or the author's function is asked here, for every transport over HTTP."""

from collections.abc import Iterable, Sequence
from typing import Any

from mcpbus.core.containment import ExceptionsOnly
from mcpbus.dispatch.scopes import needed_scopes
from mcpbus.features.catalogue import Features
from mcpbus.features.definition import Definition
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.authentication import Authenticate, Unauthorized
from mcpbus.protocol.http.messages import Answer, Head, refusal
from mcpbus.protocol.jsonrpc import Request
from mcpbus.protocol.meta import Routing
from mcpbus.protocol.owners import Peer


async def authorize(server: Definition, head: Head, peer: Peer) -> tuple[Any, Answer | None]:
    """Ask who is behind a request.

    Args:
        server: Whom it is for.
        head: The request.
        peer: From where it came.

    Returns:
        The principal, None where nobody is asked for; or None, and what the request is refused with.

    Raises:
        Exception: A function of the author's failed.
    """
    auth = server.auth
    if auth is not None:
        found = auth.recall(head, peer)
        if found is None:
            with ExceptionsOnly("auth"):
                found = await auth.find(head)
        return (None, found) if isinstance(found, Answer) else (found, None)
    return (None, None) if server.authenticate is None else await _authenticate(server.authenticate, head)


def lacking(
    server: Definition, principal: Any, requests: Iterable[tuple[Features, Request, Routing]] = ()
) -> Sequence[str]:
    """Return all that a token has to allow for some requests, if it does not: what they need, and what every one needs.

    Args:
        server: Whom it is for.
        principal: Whose token it is.
        requests: What they ask for, with what is offered to each of them.
    """
    auth = server.auth
    if auth is None:
        return ()
    needed: dict[str, None] = {}
    for features, request, routing in requests:
        needed.update(dict.fromkeys(needed_scopes(features, request, routing, principal)))
    return auth.missing(principal, needed)


def refuse_lacking(server: Definition, scopes: Sequence[str]) -> Answer | None:
    """Return what to answer whose token has to allow more, if that is so; see `lacking`."""
    return server.auth.step_up(scopes) if scopes and server.auth is not None else None


async def _authenticate(authenticate: Authenticate, head: Head) -> tuple[Any, Answer | None]:
    try:
        with ExceptionsOnly("authenticate"):
            return await authenticate(head), None
    except Unauthorized as refused:
        return None, _challenge(refused)


def _challenge(refused: Unauthorized) -> Answer:
    """Return the answer of a request whose principal may not make it."""
    header = (b"www-authenticate", refused.challenge.encode("latin-1"))
    why = "who is asking is not known" if refused.status == 401 else "who is asking may not"
    return refusal(refused.status, invalid_request(why), None, header)
