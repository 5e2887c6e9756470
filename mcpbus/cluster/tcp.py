"""Links between machines: where a process listens for the others, and what the others are told of that."""

import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Self

import attrs
import trio

from mcpbus.cluster.directory import JoinError
from mcpbus.protocol.keywords import explained

_PLACE: Final = re.compile(r"(?:\[([^]]+)\]|([^:]*))(?::(\d{1,5}))?")
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - they are looked for, not listened on
_ANY_PORT: Final = 9
"""To which nothing is sent."""


@attrs.frozen
class HostPort:
    """Where somebody listens.

    Attributes:
        host: A name or an address.
        port: The port; 0 is any that is free.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``HOST:PORT``; the port may be left out.

        Raises:
            ValueError: It is something else.
        """
        match = _PLACE.fullmatch(text)
        host = match and (match[1] or match[2])
        port = int(match[3] or 0) if match else 0
        if not host or port > 65535:
            raise ValueError(f"{text!r} is no place to listen on: write HOST:PORT")
        return cls(host, port)

    @property
    def is_any(self) -> bool:
        """Whether it is all addresses of the machine, of which none is a way to it."""
        return self.host in _WILDCARDS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@explained
@attrs.frozen
class TlsPair:
    """How links are encrypted.

    Attributes:
        server: For those that come.
        client: For those that are dialled.
    """

    server: ssl.SSLContext
    client: ssl.SSLContext


async def listen(place: HostPort) -> trio.SocketListener:
    """Listen for links.

    Raises:
        JoinError: That cannot be done.
    """
    try:
        first, *others = await trio.open_tcp_listeners(place.port, host=place.host)
    except OSError as error:
        raise JoinError(f"links cannot be listened for on {place}: {error}") from error
    for other in others:
        await other.aclose()
    return first


async def serve(
    listener: trio.SocketListener, accept: Callable[[trio.abc.Stream], Awaitable[None]], tls: TlsPair | None
) -> None:
    """Call `accept` for each connection, in a task; until cancelled."""

    async def take(stream: trio.SocketStream) -> None:
        await accept(stream if tls is None else trio.SSLStream(stream, tls.server, server_side=True))

    await trio.serve_listeners(take, [listener])


async def dial(place: HostPort, tls: TlsPair | None) -> trio.abc.Stream:
    """Connect to a place.

    Raises:
        OSError: Nobody can be reached there.
    """
    stream = await trio.open_tcp_stream(place.host, place.port)
    return stream if tls is None else trio.SSLStream(stream, tls.client, server_hostname=place.host)


async def own_address(towards: str) -> str:
    """Return the address of this machine from which a host would be spoken to.

    Raises:
        OSError: There is none.
    """
    (family, _, _, _, address), *_ = await trio.socket.getaddrinfo(towards, _ANY_PORT, type=socket.SOCK_DGRAM)
    with trio.socket.socket(family, socket.SOCK_DGRAM) as sock:
        await sock.connect(address)
        return str(sock.getsockname()[0])
