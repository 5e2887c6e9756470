"""An ASGI application that is called in this process, without a socket; see `mcpbus.Server.from_asgi`.

The application runs in its home: an asyncio loop in a thread, or trio. Its lifespan is entered with the server's. A request that is
cancelled in trio is cancelled there, and its end is awaited.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeAlias

import anyio

from mcpbus.client.http_library import httpx2
from mcpbus.hosting.home import Home, TrioHome

_log = logging.getLogger("mcpbus")

AppMessage: TypeAlias = MutableMapping[str, Any]
CalledApp: TypeAlias = Callable[
    [AppMessage, Callable[[], Awaitable[AppMessage]], Callable[[AppMessage], Awaitable[None]]],
    Awaitable[None],
]
AppLoop: TypeAlias = Literal["asyncio", "trio"]

_STOP_SECONDS: Final = 30.0
"""The time that an application has for its shutdown."""


def document_of(app: object) -> Mapping[str, Any]:
    """Return the OpenAPI document that an application makes of itself.

    Raises:
        TypeError: It makes none.
    """
    make = getattr(app, "openapi", None)
    if not callable(make):
        raise TypeError(
            f"Server.from_asgi(): {type(app).__name__} has no openapi(), as FastAPI has: give document="
        )
    made = make()
    if not isinstance(made, Mapping):
        raise TypeError(f"Server.from_asgi(): app.openapi() returned no document, but {type(made).__name__}")
    return made


@asynccontextmanager
async def open_app(app: CalledApp, loop: AppLoop) -> AsyncIterator[httpx2.AsyncBaseTransport]:
    """Run an application for as long as the block lasts, and yield a transport that calls it.

    Raises:
        RuntimeError: The application refused to start.
    """
    home: Home = TrioHome()
    if loop == "asyncio":
        from mcpbus.asyncio.home import AsyncioHome  # noqa: PLC0415 - an application on trio needs no asyncio

        home = AsyncioHome()
    async with home.enter(_lifespan(app)) as (entered, state):
        yield AppTransport(app, entered, state)


class AppTransport(httpx2.AsyncBaseTransport):
    """Calls an application in its home.

    Args:
        app: The application.
        home: Its home.
        state: What its lifespan shares with its requests.
    """

    def __init__(self, app: CalledApp, home: Home, state: Mapping[str, Any]) -> None:
        async def with_state(scope: AppMessage, receive: Any, send: Any) -> None:
            scope["state"] = dict(state)
            await app(scope, receive, send)

        self._home = home
        self._inner = httpx2.ASGITransport(with_state)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response of the application.

        Raises:
            Exception: What the application raised.
        """
        body = _RequestBody(await request.aread())
        sent = httpx2.Request(request.method, request.url, headers=request.headers, stream=body)
        return await self._home.run(self._inner.handle_async_request, sent)


class _RequestBody(httpx2.AsyncByteStream):
    """A body in one piece. It is no generator, since applications need not read it to its end, and generators have to be closed."""

    def __init__(self, content: bytes) -> None:
        self._left = [content] if content else []

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


@asynccontextmanager
async def _lifespan(app: CalledApp) -> AsyncIterator[Mapping[str, Any]]:
    """Run the lifespan of an application, if it has one, and yield its state (ASGI 3.0, "Lifespan Protocol")."""
    state: dict[str, Any] = {}
    started, stopping, ended = anyio.Event(), anyio.Event(), anyio.Event()
    told: list[AppMessage] = []
    asked = 0

    async def receive() -> AppMessage:
        nonlocal asked
        asked += 1
        if asked == 1:
            return {"type": "lifespan.startup"}
        await stopping.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: AppMessage) -> None:
        told.append(message)
        started.set()

    async def run() -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}
        try:
            await app(scope, receive, send)
        except Exception as error:
            # One that raises before it says anything has no lifespan, and is served without.
            if told and told[0]["type"] == "lifespan.startup.complete":
                raise
            if not told:
                _log.info(
                    "the application is served without a lifespan: it raised an exception", exc_info=error
                )
        finally:
            started.set()
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await started.wait()
        if told and told[0]["type"] == "lifespan.startup.failed":
            raise RuntimeError(
                f"the application did not start: {told[0].get('message') or 'it gave no reason'}"
            )
        try:
            yield state
        finally:
            stopping.set()
            with anyio.move_on_after(_STOP_SECONDS, shield=True):
                await ended.wait()
            group.cancel_scope.cancel()
