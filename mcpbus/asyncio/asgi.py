"""A server as an ASGI application for uvicorn, and any other ASGI host on asyncio."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Unpack

import trio

from mcpbus.asyncio.crossing import outlast, to_asyncio, to_trio
from mcpbus.asyncio.guest import trio_guest
from mcpbus.asyncio.inline import InlineRequest, InlineTurns, inline_turns, read_short_body, replay
from mcpbus.bus import Bus
from mcpbus.core.limits import Limits
from mcpbus.core.stores.protocol import EventStore, TaskStore
from mcpbus.protocol.http.options import HttpFields
from mcpbus.protocol.keywords import explained
from mcpbus.server_base import ServerBase
from mcpbus.transports.asgi import Receive, Scope, Send
from mcpbus.transports.asgi_lifespan import NO_LIFESPAN, LifespanApp, refuse, speak_lifespan
from mcpbus.transports.request_handler import ResponseMode

_log = logging.getLogger("mcpbus")

_BROKEN = "the server has ended, though this program goes on; the log says why"
NOT_ASYNCIO = "mcpbus.asyncio.asgi(server) is for ASGI hosts on asyncio: under trio, as with `hypercorn -k trio`, serve server.asgi()"


class AsyncioApp:
    """A server in an asyncio program: it runs on trio, which is a guest of the loop. Made by `asgi`.

    Args:
        app: The server as an application for trio.
    """

    def __init__(self, app: LifespanApp[Bus]) -> None:
        self._app = app
        self._open = False
        self._why_not = NO_LIFESPAN
        self._turns: InlineTurns | None = None

    @property
    def bus(self) -> Bus:
        """The open bus, whose plain functions may be called here, as in a route; what it has to await, through `to_trio`.

        Raises:
            RuntimeError: The lifespan has not begun, or has ended.
        """
        return self._app.bus

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Open the server for as long as the block lasts: for the lifespan of an application that mounts this one.

        When the block ends, what goes on is drained; when it raises or is cancelled, everything is cancelled at once.

        Args:
            _app: The outer application, which frameworks hand in.

        Raises:
            RuntimeError: No asyncio runs here, or the server is open already.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(NOT_ASYNCIO) from None
        async with trio_guest(), inline_turns() as turns:
            opened, closing = loop.create_future(), trio.Event()

            async def hold() -> None:
                async with self._app.lifespan():
                    opened.set_result(None)
                    await closing.wait()

            holding = loop.create_task(to_trio(hold))
            try:
                await asyncio.wait([opened, holding], return_when=asyncio.FIRST_COMPLETED)
                if opened.done():
                    self._open, self._turns = True, turns
                    holding.add_done_callback(self._note_end)
                    yield
            except BaseException:
                holding.cancel()
                raise
            finally:
                if opened.done():  # else it may be open still, by whoever was first
                    self._open, self._why_not = False, NO_LIFESPAN
                closing.set()
                await outlast(holding, holding.cancel)
            holding.result()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope, as ASGI 3.0 has it."""
        if scope["type"] == "lifespan":
            await speak_lifespan(
                self.lifespan, NOT_ASYNCIO if trio.lowlevel.in_trio_task() else None, receive, send
            )
        elif self._open:
            await self._serve(scope, receive, send)
        else:
            why = NOT_ASYNCIO if trio.lowlevel.in_trio_task() else self._why_not
            _log.error(why)
            await refuse(scope, send, why)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, turns = self._app.attached, self._turns
        recalled = None if app is None else app.recall_inline(scope)
        if app is None or turns is None or recalled is None:
            await to_trio(self._app, scope, *_across(receive, send))
            return
        try:
            body, whole = await read_short_body(receive)
        except ConnectionAbortedError:
            return
        if not whole:
            await to_trio(self._app, scope, *_across(replay(body, receive), send))
            return
        request = InlineRequest(app, turns, recalled, body, scope)
        in_task = await request.answer(receive, send)
        if in_task is not None:
            await to_trio(app.answer_in_task, recalled, scope, *_across(receive, send), in_task)

    def _note_end(self, holding: "asyncio.Task[None]") -> None:
        """Tell the log if the server has ended by itself: whoever is in the block hears of it only when that ends."""
        if self._open:
            self._open, self._why_not = False, _BROKEN
            why = None if holding.cancelled() else holding.exception()
            _log.error("the server has ended while it was open", exc_info=why)


def _across(receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Return what a host receives and sends with, for a task of trio."""
    return partial(to_asyncio, receive), lambda message: to_asyncio(send, message)


@explained
def asgi(
    server: ServerBase[Any],
    *,
    limits: Limits | None = None,
    event_store: EventStore | None = None,
    task_store: TaskStore | None = None,
    response: ResponseMode | None = None,
    **http: Unpack[HttpFields],
) -> AsyncioApp:
    """Return a server as an ASGI application for ``uvicorn module:app`` and other hosts on asyncio.

    It opens the server in the ASGI lifespan. An application that mounts it and runs no lifespan but its own enters
    `AsyncioApp.lifespan` in that: ``FastAPI(lifespan=app.lifespan)``, then ``web.mount("/tools", app)``.

    The handlers run on trio, in the loop's own thread; what only asyncio can await, they await through `to_asyncio`.

    Args:
        server: A `Server`, or the result of `mcpbus.host`.
        limits: As for `Server.asgi`, like the others.
        event_store: Keeps what legacy clients can come back for.
        task_store: Keeps tasks.
        response: The form of answers; as for `Server.asgi` if left out.
        **http: The fields of `HttpOptions`.
    """
    form: Any = {} if response is None else {"response": response}
    return AsyncioApp(
        server.asgi(limits=limits, event_store=event_store, task_store=task_store, **form, **http)
    )
