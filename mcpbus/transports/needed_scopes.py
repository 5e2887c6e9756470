"""What a token has to allow for what its bearer asks for."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from mcpbus.core.backend import Backend
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.meta import Routing

Asked: TypeAlias = tuple[JsonRpcRequest, Routing, Session | None]
"""A request, what was read of its params, and the session of a legacy one, if it has one."""


def lacking(backend: Backend, principal: Any, requests: Iterable[Asked] = ()) -> Sequence[str]:
    """Return all that a token has to allow for some requests, if it does not: what they need, and what every one needs.

    Args:
        backend: Whom it is for.
        principal: Whose token it is.
        requests: What they ask for.
    """
    auth = backend.auth
    if auth is None:
        return ()
    # Each once, in their order.
    needed: dict[str, None] = {}
    for request, routing, session in requests:
        for scope in backend.needed_scopes(request, routing, session, principal):
            needed[scope] = None
    return auth.missing(principal, needed)
