"""The messages of one WebSocket that its application has not taken yet."""

from contextlib import suppress

import trio

from mcpbus.serving.asgi import Message

_MESSAGES = 10


class WebSocketIntake:
    """A bounded queue that always ends: after `close`, the application is told that the client has gone.

    hypercorn says so itself, but not for a handshake that it has refused while the application was at it.
    """

    def __init__(self) -> None:
        self._into, self._messages = trio.open_memory_channel[Message](_MESSAGES)

    async def put(self, message: Message) -> None:
        """Accept a message from the connection; waits for room."""
        with suppress(trio.ClosedResourceError):
            await self._into.send(message)

    async def receive(self) -> Message:
        """Give the application its next message (ASGI `receive`)."""
        try:
            return await self._messages.receive()
        except trio.EndOfChannel:
            return {"type": "websocket.disconnect", "code": 1006}

    def close(self) -> None:
        """Say that the connection has ended; what is queued is still given."""
        self._into.close()
