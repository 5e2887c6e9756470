"""The page on which a person logs in, and what comes back from it (OAuth 2.1, section 4.1; RFC 7636; RFC 9207).

Where a person's browser comes back to after a login: a small HTTP server on this machine, for one redirect (RFC 8252, section 7.3).
"""

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Final, Generic, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs
import trio

from mcpbus.client.oauth.discovery import AuthorizationServer
from mcpbus.client.oauth.errors import LoginError, LoginRefusedError, MetadataError, said_why, sanitize
from mcpbus.client.oauth.login import KnownClient
from mcpbus.client.oauth.scopes import OFFLINE

_MOST_PARAMETERS = 50
_ONCE = ("state", "iss", "code", "error")
_STEERING = frozenset("\"'`<>\\^{|}$;")
"""What no page to log in at needs; no shell is between us and the browser, but there may be one behind it."""


@attrs.frozen
class AuthorizationRequest:
    """A request to let a person log in, with what proves later that the answer belongs to it.

    Attributes:
        url: The page; it holds the state, and is for the person's browser alone.
        redirect: Where the person is sent back to.
        issuer: At whom.
        state: Tells the answer to this request from others.
        verifier: Tells who asked from others.
    """

    url: str = attrs.field(repr=False)
    redirect: str
    issuer: AuthorizationServer
    state: str = attrs.field(repr=False)
    verifier: str = attrs.field(repr=False)


def make_request(
    issuer: AuthorizationServer,
    client: KnownClient,
    redirect: str,
    *,
    resource: str,
    scopes: Sequence[str],
    assume_pkce: bool = False,
) -> AuthorizationRequest:
    """Make the request to log in.

    Args:
        issuer: Where.
        client: As which client.
        redirect: Where the person is sent back to.
        resource: For which server.
        scopes: What to ask for.
        assume_pkce: Whether the issuer is taken to check who comes for the tokens, though it does not say so.

    Raises:
        MetadataError: Nobody can log in there, or not safely.
    """
    where = sanitize(issuer.name)
    if issuer.authorization_endpoint is None:
        raise MetadataError(f"{where} has no page to log in at (authorization_endpoint)")
    if not (issuer.pkce or assume_pkce):
        raise MetadataError(
            f"{where} does not say that it supports PKCE (code_challenge_methods_supported has no S256), without which codes "
            "can be stolen: if you know that it does, say assume_pkce"
        )
    if _STEERING & set(issuer.authorization_endpoint):
        raise MetadataError(f"{where} has a page to log in at whose address holds what steers shells")
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    parameters = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": resource,
    }
    if scopes:
        parameters["scope"] = " ".join(scopes)
    if OFFLINE in scopes:
        parameters["prompt"] = "consent"  # without which OpenID Connect, section 11, has it ignored
    page = urlsplit(issuer.authorization_endpoint)
    query = "&".join(part for part in (page.query, urlencode(parameters)) if part)
    return AuthorizationRequest(page._replace(query=query).geturl(), redirect, issuer, state, verifier)


def code_challenge(verifier: str) -> str:
    """Return what the verifier is known by until it is shown (RFC 7636, section 4.2)."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def belongs(query: str, request: AuthorizationRequest) -> bool:
    """Whether it is to this request that a person was sent back with a query, rather than made up, or of another time."""
    states = [value for name, value in _read(query) if name == "state"]
    return len(states) == 1 and hmac.compare_digest(states[0].encode(), request.state.encode())


def validate_redirect(query: str, request: AuthorizationRequest) -> str:
    """Return the code with which a person was sent back.

    Args:
        query: That of the address.
        request: The request.

    Raises:
        LoginError: It belongs to no such request, or comes from another issuer; nothing of it is told then.
        LoginRefusedError: The issuer, or the person, has refused.
    """
    where = sanitize(request.issuer.name)
    if not belongs(query, request):
        raise LoginError(f"what came back from {where} belongs to no login that was begun here")
    parameters = _read(query)
    told = dict(parameters)
    if any(sum(name == each for name, _ in parameters) > 1 for each in _ONCE):
        raise LoginError(f"what came back from {where} says something twice")
    issuer = told.get("iss")
    if issuer is None and request.issuer.says_itself:
        raise LoginError(f"what came back does not say that it is from {where}, which it would (iss)")
    if issuer is not None and issuer != request.issuer.name:
        raise LoginError(f"what came back is not from {where}, but from somebody else (iss)")
    if "error" in told:
        code = sanitize(told["error"])
        raise LoginRefusedError(f"{where} has let nobody log in ({code}{said_why(told)})", code)
    if not told.get("code"):
        raise LoginError(f"what came back from {where} has no code")
    return told["code"]


def _read(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        return []


T = TypeVar("T")

PATH: Final = "/callback"
_HOST: Final = "127.0.0.1"
_NAMES: Final = (_HOST, "localhost", "[::1]")
_UNNAMED_PORT: Final = 80
"""Browsers leave it out."""
_LONGEST_HEAD: Final = 32 * 1024
_HEAD_SECONDS: Final = 10.0
"""How long a browser may take to say what it wants."""
_MOST_CONNECTIONS: Final = 16
_FIRST_LINE: Final = re.compile(rb"GET (/[^ ?]*)(?:\?([^ ]*))? HTTP/1\.[01]\r\n")
_HOST_FIELD: Final = re.compile(rb"\r\nhost:[ \t]*([^\r\n]*?)[ \t]*\r\n", re.IGNORECASE)

_PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body style="font: 16px system-ui, sans-serif; max-width: 32em; margin: 4em auto; padding: 0 1em">
<h1 style="font-size: 1.3em">{title}</h1>
<p>{text}</p>
</body>
</html>
"""
_DONE: Final = _PAGE.format(title="You are logged in", text="You may close this window.")
_FAILED: Final = _PAGE.format(
    title="You are not logged in", text="The program that asked for it says why. You may close this window."
)
_HEAD: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n\r\n"
)


@attrs.frozen
class RedirectResult(Generic[T]):
    """What somebody came back with: what it stands for, or why it stands for nothing."""

    value: T | None = None
    failure: LoginError | None = None


class RedirectServer:
    """Listens, and tells where.

    Args:
        listeners: The sockets.
        redirect: Where browsers are sent back to.

    Attributes:
        redirect: The same.
    """

    def __init__(self, listeners: list[trio.SocketListener], redirect: str) -> None:
        self.redirect = redirect
        self._listeners = listeners
        self._path = (urlsplit(redirect).path or "/").encode()
        self._port = urlsplit(redirect).port
        self._hosts = {f"{name}:{self._port}" for name in _NAMES}
        if self._port == _UNNAMED_PORT:
            self._hosts |= {*_NAMES}

    def as_localhost(self) -> str:
        """Return the same address by the name that some issuers insist on."""
        return f"http://localhost:{self._port}{self._path.decode()}"

    async def receive(self, judge: Callable[[str], RedirectResult[T] | None]) -> RedirectResult[T]:
        """Wait for the redirect, and answer whoever else comes that there is nothing.

        Args:
            judge: Tells what the query of an address stands for; None if nothing of it is meant for this login.
        """
        found: list[RedirectResult[T]] = []
        limit = trio.CapacityLimiter(_MOST_CONNECTIONS)

        async def serve(stream: trio.SocketStream) -> None:
            judged = None
            async with limit, stream:
                with suppress(trio.BrokenResourceError), trio.move_on_after(_HEAD_SECONDS):
                    judged = self._judge(await _read_head(stream), judge)
                    await stream.send_all(_answer(judged))
            if judged is not None:  # though nobody may have stayed for the answer
                found.append(judged)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            await trio.serve_listeners(serve, self._listeners, handler_nursery=nursery)
        return found[0]

    def _judge(
        self, head: bytes, judge: Callable[[str], RedirectResult[T] | None]
    ) -> RedirectResult[T] | None:
        line, host = _FIRST_LINE.match(head), _HOST_FIELD.search(head)
        if line is None or host is None or line[1] != self._path:
            return None
        # A page elsewhere could have a name of its own lead here.
        named = host[1].decode("latin-1").lower()
        if named not in self._hosts:
            return None
        return judge((line[2] or b"").decode("latin-1"))


async def _read_head(stream: trio.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _LONGEST_HEAD:
        piece = await stream.receive_some()
        if not piece:
            break
        head += piece
    return head


def _answer(judged: RedirectResult[T] | None) -> bytes:
    """Return an answer; nothing that came with the request is in it."""
    if judged is None:
        status, kind, text = "404 Not Found", "text/plain", "There is nothing here.\n"
    else:
        status, kind, text = "200 OK", "text/html; charset=utf-8", _FAILED if judged.failure else _DONE
    return (_HEAD.format(status=status, kind=kind, length=len(text)) + text).encode()


@asynccontextmanager
async def open_listener(redirect: int | str | None, preferred: str = "") -> AsyncIterator[RedirectServer]:
    """Listen for as long as the block lasts.

    Args:
        redirect: At which port, or the whole address where browsers are sent back to; None for any port.
        preferred: An address to take if it is free, where any would do.

    Raises:
        LoginError: Somebody else listens there.
    """
    host, path, port = _HOST, PATH, redirect if isinstance(redirect, int) else 0
    if isinstance(redirect, str):
        parts = urlsplit(redirect)
        host, path, port = parts.hostname or _HOST, parts.path or "/", parts.port or 0
    if redirect is None and preferred:
        host, port = urlsplit(preferred).hostname or _HOST, urlsplit(preferred).port or 0
    listeners = await _listen(port) or (await _listen(0) if redirect is None else [])
    if not listeners:
        raise LoginError(
            f"port {port} of {_HOST} is taken, where the browser would come back to: end what listens there, or name another one"
        )
    port = listeners[0].socket.getsockname()[1]
    try:
        # Browsers may try either address by the name.
        listeners += [] if host == _HOST else await _listen(port, "::1")
        name = f"[{host}]" if ":" in host else host
        yield RedirectServer(listeners, f"http://{name}:{port}{path}")
    finally:
        for listener in listeners:
            await listener.aclose()


async def _listen(port: int, host: str = _HOST) -> list[trio.SocketListener]:
    try:
        return list(await trio.open_tcp_listeners(port, host=host))
    except OSError:
        return []
