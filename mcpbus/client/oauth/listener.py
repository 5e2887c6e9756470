"""Where a person's browser comes back to after a login: a small HTTP server on this machine, for one redirect (RFC 8252, section 7.3)."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

import attrs
import trio

from mcpbus.client.oauth.errors import LoginError

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
