"""The ways in which a request reaches a server: each is a transport and a manner of sending."""

import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import trio

from mcpbus.serving import ServeOptions, serve
from tests.exchanges.clients import Http2Client, over_asgi, over_http1
from tests.exchanges.house import House, open_house
from tests.exchanges.responses import Response
from tests.exchanges.steps import Request
from tests.forwarding import forward_all

CERTIFICATE: Final = str(Path(__file__).parent.parent / "serving" / "localhost.pem")

Sender: TypeAlias = Callable[[Request, Response], Awaitable[None]]
Patch: TypeAlias = Callable[[object, str, object], None]


@attrs.frozen
class Way:
    """One way.

    Attributes:
        transport: http1, http2, tls1 (HTTP/1.1 over TLS), tls2, asgi, or link: over HTTP/1.1 to a process that forwards to the one
            that answers.
        manner: whole: in one segment. pieces: with pauses in the head and in the body. behind: as the second request of a connection
            whose first one has paused, both in one segment. expecting: with `Expect: 100-continue`, and a pause before the body.
    """

    transport: str
    manner: str

    @property
    def name(self) -> str:
        """Its name in the tables."""
        return f"{self.transport} {self.manner}"


ALL: Final = tuple(
    Way(transport, manner)
    for transport, manners in {
        "http1": ("whole", "pieces", "behind"),
        "tls1": ("whole", "pieces"),
        "http2": ("whole", "pieces", "expecting"),
        "tls2": ("whole",),
        "asgi": ("whole", "pieces"),
        "link": ("whole", "pieces", "behind"),
    }.items()
    for manner in manners
)
FIRST: Final = ALL[0]
"""The way to which all others are compared."""


class Doors:
    """One open house, and what leads to it.

    Args:
        house: The house.
        folder: For its sockets.
        nursery: For its servers.
    """

    def __init__(self, house: House, folder: str, nursery: trio.Nursery) -> None:
        self.house = house
        self._folder = folder
        self._nursery = nursery
        self._open: dict[bool, str] = {}

    async def sender(self, way: Way) -> Sender:
        """Return what sends a request in a way."""
        if way.transport == "asgi":
            return lambda request, response: over_asgi(self.house.app, request, response, way.manner)
        secure = way.transport.startswith("tls")
        if secure not in self._open:
            path = f"{self._folder}/{'secure' if secure else 'plain'}"
            files = {"certfile": CERTIFICATE, "keyfile": CERTIFICATE} if secure else {}
            await self._nursery.start(serve, self.house.app, ServeOptions(bind=f"unix:{path}", **files))
            self._open[secure] = path
        return lambda request, response: _send(self._open[secure], way, request, response)


async def _send(path: str, way: Way, request: Request, response: Response) -> None:
    stream: trio.abc.Stream = await trio.open_unix_socket(path)
    if way.transport.startswith("tls"):
        secure = trio.SSLStream(
            stream, _context(way.transport), server_hostname="localhost", https_compatible=True
        )
        await secure.do_handshake()
        stream = secure
    if way.transport.endswith("2"):
        await Http2Client(stream, response).run(request, way.manner)
    else:
        await over_http1(stream, request, response, way.manner)


@cache
def _context(transport: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=CERTIFICATE)
    context.set_alpn_protocols(["h2"] if transport == "tls2" else ["http/1.1"])
    return context


@asynccontextmanager
async def open_doors(place: str, *, linked: bool, patch: Patch) -> AsyncIterator[Doors]:
    """Open one house; if it is linked, each request is forwarded over a link before it is answered.

    Args:
        place: Of `house.PLACES`.
        linked: Whether it is linked.
        patch: `monkeypatch.setattr`, with which requests are forwarded.
    """
    if linked:
        forward_all(patch)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="exchange-"))
        house = await stack.enter_async_context(open_house(place))
        nursery = await stack.enter_async_context(trio.open_nursery())
        try:
            yield Doors(house, folder, nursery)
        finally:
            nursery.cancel_scope.cancel()
