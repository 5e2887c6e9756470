"""Runs the application: one task for each request, in its connection's nursery."""

import logging
from collections.abc import Awaitable, Callable

import trio

from mcpbus.core.containment import Contained
from mcpbus.serving.asgi import AsgiApp, Message, Receive, Scope, Send
from mcpbus.serving.counters import Counters
from mcpbus.serving.intake import Intake, Taken
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.websocket_intake import WebSocketIntake, limit_messages

_logger = logging.getLogger("mcpbus.serving")

# hypercorn's streams take one more message than ASGI has: None, for "the application has ended".
StreamSend = Callable[[Message | None], Awaitable[None]]
Put = Callable[[Message], Awaitable[None]]
Flush = Callable[[], Awaitable[None]]
Note = Callable[[str, str], None]
"""Takes the name of an option whose limit was reached, and what was done about it."""


class Tasks:
    """What hypercorn's protocols call a task group: they start an application with it, and their own helpers."""

    def __init__(
        self,
        nursery: trio.Nursery,
        options: ServeOptions,
        *,
        flush: Flush,
        counters: Counters,
        note: Note,
        taken: Taken | None = None,
        ended: Callable[[], None] | None = None,
        websockets: set[WebSocketIntake] | None = None,
        helpers: set[trio.CancelScope] | None = None,
    ) -> None:
        self._nursery = nursery
        self.options = options
        self.counters = counters
        self.note = note
        self._flush = flush
        self._taken = taken
        self._ended = ended
        self._websockets = set() if websockets is None else websockets
        self._helpers = set() if helpers is None else helpers

    def spawn(self, func: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a helper of the protocol; `end_helpers` ends it."""
        self._nursery.start_soon(self._help, func, *args)

    async def _help(self, func: Callable[..., Awaitable[object]], *args: object) -> None:
        with trio.CancelScope() as scope:
            self._helpers.add(scope)
            try:
                await func(*args)
            finally:
                self._helpers.discard(scope)

    async def spawn_app(self, app: AsgiApp, _config: object, scope: Scope, send: StreamSend) -> Put:
        """Start the application; returns what the protocol hands the client's messages to."""
        if scope["type"] == "websocket":
            messages = WebSocketIntake(self._taken)
            limit_messages(send, messages)
            self._websockets.add(messages)
            self._nursery.start_soon(self._run_websocket, app, scope, messages, send)
            return messages.put
        intake = Intake(taken=self._taken)
        self._nursery.start_soon(self._run_http, app, scope, intake, send)
        return intake.put

    def for_stream(self, taken: Taken, ended: Callable[[], None]) -> "Tasks":
        """The same for one HTTP/2 stream, which is told of the bytes its application takes, and of its end."""
        return Tasks(
            self._nursery,
            self.options,
            flush=self._flush,
            counters=self.counters,
            note=self.note,
            taken=taken,
            ended=ended,
            websockets=self._websockets,
            helpers=self._helpers,
        )

    def end_websockets(self) -> None:
        """Tell every WebSocket's application that the connection has ended."""
        for messages in self._websockets:
            messages.close()

    def end_helpers(self) -> None:
        """Cancel the helpers of a connection that has ended: one that sends pings would sleep on until the next is due."""
        for scope in self._helpers:
            scope.cancel()

    async def _run_http(self, app: AsgiApp, scope: Scope, intake: Intake, send: StreamSend) -> None:
        async def say(message: Message) -> None:
            """Say a message and write it; a head is written with what comes after it.

            Holds back the end of an early answer: the protocols would take the rest of the body for a fault.
            """
            # What is said changes the protocol's state, so this is the place to be cancelled: before.
            await trio.lowlevel.checkpoint_if_cancelled()
            if message["type"] == "http.response.start":
                await send(message)
                return
            if intake.gone:
                # HTTP/2 swallows what comes now, in no time: a loop would never end.
                await trio.lowlevel.checkpoint()
            ends = message["type"] == "http.response.body" and not message.get("more_body", False)
            if ends and not intake.ended:
                await send({**message, "more_body": True})
                await self._flush()
                await self._discard_rest(intake)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)
            await self._flush()

        await self._run(app, scope, intake.receive, say)
        await self._discard_rest(intake)
        await send(None)
        await self._flush()

    async def _discard_rest(self, intake: Intake) -> None:
        if not intake.ended:
            await intake.discard_rest(
                max_bytes=self.options.unread_body_bytes, seconds=self.options.unread_body_seconds
            )

    async def _run_websocket(
        self, app: AsgiApp, scope: Scope, messages: WebSocketIntake, send: StreamSend
    ) -> None:
        async def say(message: Message) -> None:
            await trio.lowlevel.checkpoint_if_cancelled()
            await send(message)
            await self._flush()

        await self._run(app, scope, messages.receive, say)
        self._websockets.discard(messages)
        messages.close()
        await send(None)

    async def _run(self, app: AsgiApp, scope: Scope, receive: Receive, send: Send) -> None:
        def report(failure: BaseException) -> None:
            what = scope["type"], scope["path"]
            _logger.error("the application raised while it served %s %s", *what, exc_info=failure)

        try:
            with Contained(report):
                await app(scope, receive, send)
        finally:
            if self._ended is not None:
                self._ended()
