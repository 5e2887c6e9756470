"""The HTTP side of a hosted server: its request objects, its tokens, and its web routes beside the endpoint."""

import copy
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import attrs
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, RequireAuthMiddleware
from mcp.shared.message import ServerMessageMetadata
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.routing import Route

from mcpbus.core.request_context import RequestContext
from mcpbus.hosting.channels import RequestChannel
from mcpbus.hosting.detect import FoundServer
from mcpbus.hosting.home import Home
from mcpbus.protocol.http.authentication import ForeignRefusalError
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_DEFAULT_PATH: Final = "/mcp"

_log = logging.getLogger("mcpbus")


@attrs.frozen(eq=False)
class HostedPrincipal:
    """A client whose token a hosted server has verified.

    Attributes:
        user: The user, as the SDK has it, with the token.
        credentials: The scopes of the token, as Starlette has them.
    """

    user: AuthenticatedUser
    credentials: AuthCredentials

    @property
    def mcpbus_key(self) -> list[str | None]:
        """The client, the issuer and the subject: a client with a renewed token is the same one."""
        token = self.user.access_token
        issuer = (getattr(token, "claims", None) or {}).get("iss")  # version 1 of the SDK has neither
        return [token.client_id, issuer, getattr(token, "subject", None)]

    @property
    def seconds_left(self) -> float:
        """For how long its token is valid."""
        expires = self.user.access_token.expires_at
        return math.inf if not expires else max(0.0, expires - time.time())


def scope_of(head: RequestHead, peer: Peer | None = None) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    host = None if peer is None or peer.address is None else str(peer.address)
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": head.verb,
        "scheme": "http",
        "path": head.root + head.path,
        "root_path": head.root,
        "query_string": head.query.encode("latin-1"),
        "headers": [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers.items()
        ],
        "client": None if host is None else (host, 0),
        "server": None,
        "state": {},
    }


def request_of(head: RequestHead, peer: Peer, principal: object) -> Request:
    """Return the request object that code of a hosted server gets; its body has been read already."""
    scope = scope_of(head, peer)
    if isinstance(principal, HostedPrincipal):
        scope["user"], scope["auth"] = principal.user, principal.credentials
    return Request(scope)


def metadata_of(
    context: RequestContext, channel: RequestChannel | None = None
) -> ServerMessageMetadata | None:
    """Return what the SDK's own transport attaches to a request over HTTP; None over other transports.

    Args:
        context: The request.
        channel: Its channel; None for `initialize`.
    """
    head = context.head
    if head is None:
        return None
    request = request_of(head, context.peer, context.principal)
    can_close = channel is not None and hasattr(
        ServerMessageMetadata, "close_sse_stream"
    )  # since 1.23 of the SDK
    callbacks: dict[str, Any] = channel.close_callbacks if can_close and channel is not None else {}
    return ServerMessageMetadata(request_context=request, **callbacks)


@contextmanager
def as_principal(principal: object) -> Iterator[None]:
    """Let `get_access_token()` return the token of a principal within the block."""
    if not isinstance(principal, HostedPrincipal):
        yield
        return
    token = auth_context_var.set(principal.user)
    try:
        yield
    finally:
        auth_context_var.reset(token)


class HostedWeb:
    """The web application of a hosted server, apart from its MCP endpoint.

    Its lifespan is not run: that of the server is entered already.

    Args:
        found: The server.
        home: Where its code runs.
        serves_routes: Whether its routes are served beside the endpoint.
    """

    def __init__(self, found: FoundServer, home: Home, *, serves_routes: bool) -> None:
        self._found = found
        self._home = home
        self._serves_routes = serves_routes
        self._app: Starlette | None = None
        self._gate: Callable[[_Scope, _Receive, _Send], Awaitable[None]] | None = None

    def beside(self, path: str) -> "Beside | None":
        """Return the application for requests beside the endpoint at `path`; None if it has no other routes."""
        self._build(path)
        if self._app is None or not self._serves_routes:
            return None
        others = [route for route in self._app.routes if getattr(route, "path", None) != path]
        return Beside(self._app, self._home, self._found.name) if others else None

    async def authenticate(self, head: RequestHead) -> HostedPrincipal:
        """Return the client of a request by its token.

        Raises:
            ForeignRefusalError: The server refuses it, and wrote the response.
        """
        if self._gate is None:
            self._build(_DEFAULT_PATH)
        principal, messages = await self._home.run(self._check, head)
        if principal is None:
            raise ForeignRefusalError(_response(messages))
        return principal

    def _build(self, path: str) -> None:
        self._app = self._found.make_app(path)
        if self._app is not None and self._found.checks_tokens:
            self._gate = _gate_of(self._app, path)

    async def _check(
        self, head: RequestHead
    ) -> tuple[HostedPrincipal | None, list[MutableMapping[str, Any]]]:
        """Run the token checks of the server, in the home."""
        assert self._gate is not None  # noqa: S101 - it checks tokens
        scope, messages = scope_of(head), list[MutableMapping[str, Any]]()

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        await self._gate(scope, _receive_nothing, send)
        user = scope.get("admitted")
        return (None if user is None else HostedPrincipal(user, scope["auth"])), messages


def _gate_of(app: Starlette, path: str) -> Callable[[_Scope, _Receive, _Send], Awaitable[None]]:
    """Return the token checks before the MCP route of an application, without the route.

    Raises:
        RuntimeError: The application checks tokens in a way that is not known.
    """

    async def admit(scope: _Scope, _receive: _Receive, _send: _Send) -> None:
        scope["admitted"] = scope["user"]

    for route in app.routes:
        if (
            isinstance(route, Route)
            and route.path == path
            and isinstance(route.endpoint, RequireAuthMiddleware)
        ):
            required = copy.copy(route.endpoint)
            required.app = admit
            break
    else:
        raise RuntimeError(
            f"the route {path} of this server has no RequireAuthMiddleware: its tokens cannot be checked, so it is not served"
        )
    gate: Any = required
    for middleware in reversed(app.user_middleware):
        make: Any = middleware.cls
        if _is_authentication(make):
            gate = make(gate, *middleware.args, **middleware.kwargs)
    return gate  # type: ignore[no-any-return]  # an ASGI application


def _is_authentication(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, AuthenticationMiddleware)


def _response(messages: list[MutableMapping[str, Any]]) -> HttpResponse:
    start = messages[0]
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return HttpResponse(
        start["status"], [(bytes(name), bytes(value)) for name, value in start["headers"]], body
    )


async def _receive_nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


class Beside:
    """The web routes of a hosted server as an ASGI application on trio.

    Args:
        app: The application.
        home: Where it runs.
        name: The name of the server, for the log.
    """

    def __init__(self, app: Starlette, home: Home, name: str) -> None:
        self._app = app
        self._home = home
        self._name = name

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one request. An error is logged; Starlette has answered it with 500."""
        try:
            home = self._home
            await home.run(
                self._app, scope, lambda: home.ask(receive), lambda message: home.ask(send, message)
            )
        except Exception:  # noqa: BLE001 - the code of the server's author
            _log.exception("a web route of %s failed", self._name)
