"""Runs the application: one task for each request, in its connection's nursery."""

import logging
from collections.abc import Awaitable, Callable

import trio

from mcpbus.core.containment import Contained
from mcpbus.serving.asgi import AsgiApp, Message, Receive, Scope, Send
from mcpbus.serving.intake import Intake
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.websocket_intake import WebSocketIntake, limit_messages

_logger = logging.getLogger("mcpbus.serving")

# hypercorn's streams take one more message than ASGI has: None, for "the application has ended".
StreamSend = Callable[[Message | None], Awaitable[None]]
Put = Callable[[Message], Awaitable[None]]
Flush = Callable[[], Awaitable[None]]


class Tasks:
    """What hypercorn's protocols call a task group: they start an application with it, and their own helpers."""

    def __init__(self, nursery: trio.Nursery, options: ServeOptions, *, flush: Flush) -> None:
        self._nursery = nursery
        self.options = options
        self._flush = flush
        self._websockets: set[WebSocketIntake] = set()
        self._helpers: set[trio.CancelScope] = set()

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
            messages = WebSocketIntake()
            limit_messages(send, messages)
            self._websockets.add(messages)
            self._nursery.start_soon(self._run_websocket, app, scope, messages, send)
            return messages.put
        intake = Intake()
        self._nursery.start_soon(self._run_http, app, scope, intake, send)
        return intake.put

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
                # What comes now is swallowed in no time: a loop would never end.
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

        with Contained(report):
            await app(scope, receive, send)
