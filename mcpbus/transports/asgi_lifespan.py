"""A server as an ASGI application that opens its own bus, in the ASGI lifespan."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

import trio

from mcpbus.core.hub import Hub
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.protocol.http.messages import NO_STORE
from mcpbus.transports.asgi import AsgiApp, Message, Receive, Scope, Send
from mcpbus.transports.endpoint import Endpoint

HubT = TypeVar("HubT", bound=Hub)

_log = logging.getLogger("mcpbus")

NOT_TRIO = (
    "mcpbus runs on trio: serve this application with `hypercorn -k trio module:app`, or with `mcpbus serve`; under uvicorn, and "
    "whatever else runs on asyncio, serve mcpbus.asyncio.asgi(server)"
)
NO_LIFESPAN = (
    "The ASGI lifespan of this application was not run, so its server is not open. Where another application mounts "
    "this one and runs no lifespan but its own, give it this one's: `Starlette(routes=..., lifespan=app.lifespan)`, or "
    "`async with app.lifespan():` within its own."
)
NOT_OPEN = "the server is not open: there is a bus from the start of the ASGI lifespan to its end"


class LifespanApp(Generic[HubT]):
    """Opens a bus when the ASGI server starts, and serves it until the ASGI server stops. Made by `Server.asgi`.

    An application that mounts it and runs no lifespan but its own enters `lifespan` in that.

    Args:
        open_bus: Opens the bus.
        attach: Makes the endpoint of an open bus.
    """

    def __init__(
        self, open_bus: Callable[[], AbstractAsyncContextManager[HubT]], attach: Callable[[HubT], AsgiApp]
    ) -> None:
        self._open_bus = open_bus
        self._attach = attach
        self._app: AsgiApp | None = None
        self._bus: HubT | None = None
        self._reached = LimitMonitor()

    @property
    def bus(self) -> HubT:
        """The open bus.

        Raises:
            RuntimeError: The lifespan has not begun, or has ended.
        """
        if self._bus is None:
            raise RuntimeError(NOT_OPEN)
        return self._bus

    @property
    def attached(self) -> AsgiApp | None:
        """The application of the open bus; None while there is none."""
        return self._app

    @property
    def reached(self) -> LimitMonitor:
        """See `AsgiApp.reached`; of a server that has no bus, for its connections."""
        return self._reached if self._bus is None else self._bus.limit_monitor

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Open the server for as long as the block lasts: for the lifespan of an application that mounts this one.

        Args:
            _app: The outer application, which frameworks hand in.

        Raises:
            RuntimeError: No trio runs here, or the server is open already.
        """
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError(NOT_TRIO)
        async with self._open_bus() as bus:
            self._bus, self._app = bus, self._attach(bus)
            try:
                yield
            finally:
                self._bus = self._app = None

    def direct(self, path: str) -> Endpoint | None:
        """Return the endpoint of the open bus, as `AsgiApp.direct`; None while there is no open bus."""
        return None if self._app is None else self._app.direct(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope, as ASGI 3.0 has it."""
        if scope["type"] == "lifespan":
            await speak_lifespan(
                self.lifespan, None if trio.lowlevel.in_trio_run() else NOT_TRIO, receive, send
            )
        elif self._app is not None:
            await self._app(scope, receive, send)
        else:
            why = NO_LIFESPAN if trio.lowlevel.in_trio_run() else NOT_TRIO
            _log.error(why)
            await refuse(scope, send, why)

    def announce_drain(self) -> None:
        """Say at once that the server ends, as `Bus.announce_drain`."""
        if self._app is not None:
            self._app.announce_drain()

    async def drain(self, seconds: float) -> None:
        """End all that goes on, as `Bus.drain`."""
        if self._app is not None:
            await self._app.drain(seconds)


async def speak_lifespan(
    lifespan: Callable[[], AbstractAsyncContextManager[None]],
    why_not: str | None,
    receive: Receive,
    send: Send,
) -> None:
    """Speak the ASGI lifespan with who serves an application.

    Args:
        lifespan: Opens the application for as long as it lasts. What it raises is told to who serves, and raised here: of an
            exception alone ASGI servers take it that there is no lifespan, and serve on without a word of it.
        why_not: Why the application cannot be opened there, if it cannot.
        receive: Hears what the server says.
        send: Answers it.
    """
    await receive()
    if why_not is not None:
        await send({"type": "lifespan.startup.failed", "message": why_not})
        return
    phase = "startup"
    try:
        async with lifespan():
            phase = ""
            await send({"type": "lifespan.startup.complete"})
            await receive()
            phase = "shutdown"
    except Exception as error:
        if phase:
            # Of a failure of the end hypercorn says nothing.
            _log.error("the lifespan's %s failed", phase, exc_info=error)
            message = f"{type(error).__name__}: {error}"
            await send({"type": f"lifespan.{phase}.failed", "message": message})
        raise
    await send({"type": "lifespan.shutdown.complete"})


async def refuse(scope: Scope, send: Send, why: str) -> None:
    """Answer a request, or a WebSocket, that comes while the server is not open; on whatever runs the application."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1011, "reason": "server not open"})
        return
    body: bytes = why.encode() + b"\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        NO_STORE,
    ]
    start: Message = {"type": "http.response.start", "status": 500, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
