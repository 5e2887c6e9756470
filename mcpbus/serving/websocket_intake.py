"""The messages of one WebSocket that its application has not taken yet."""

import math
from contextlib import suppress
from typing import Any, Final

import trio

from mcpbus.serving.asgi import Message
from mcpbus.serving.hypercorn import FrameTooLargeError, WebsocketBuffer, WSStream
from mcpbus.serving.intake import Taken

_MESSAGES: Final = 10

TAKEN: Final = "mcpbus.taken"
"""The type of what stands between messages: all bytes before it have been taken. Over HTTP/2 it opens the window."""


class WebSocketIntake:
    """A bounded queue that always ends: after `close`, the application is told that the client has gone.

    hypercorn says so itself, but not for a handshake that it has refused while the application was at it.

    Args:
        taken: Opens the window of an HTTP/2 stream, which then bounds the queue. Over HTTP/1.1 there is none, and an
            application that does not take its messages holds up its connection, which is its own.
    """

    def __init__(self, taken: Taken | None = None) -> None:
        self._taken = taken
        capacity = _MESSAGES if taken is None else math.inf
        self._into, self._messages = trio.open_memory_channel[Message](capacity)

    async def put(self, message: Message) -> None:
        """Accept a message from the connection; waits for room."""
        with suppress(trio.ClosedResourceError):
            await self._into.send(message)

    async def receive(self) -> Message:
        """Give the application its next message (ASGI `receive`)."""
        while True:
            try:
                message = await self._messages.receive()
            except trio.EndOfChannel:
                return {"type": "websocket.disconnect", "code": 1006}
            if message["type"] != TAKEN:
                return message
            if self._taken is not None:
                await self._taken(message["size"])

    def close(self) -> None:
        """Say that the connection has ended; what is queued is still given."""
        self._into.close()


class BoundedBuffer(WebsocketBuffer):
    """A message whose end has not come, and which is given up for good when it is too long.

    The base adds every further piece before it complains of the length again, so a client could send pieces for ever; and
    nobody tells the application that the connection is as good as closed.
    """

    def __init__(self, max_length: int, messages: WebSocketIntake) -> None:
        super().__init__(max_length)
        self._messages = messages

    def extend(self, event: Any) -> None:
        """Add a piece.

        Raises:
            FrameTooLargeError: The message is, or was, too long; hypercorn closes with 1009.
        """
        if self.length > self.max_length:
            raise FrameTooLargeError
        try:
            super().extend(event)
        except FrameTooLargeError:
            self.value = None
            self._messages.close()
            raise


def limit_messages(send: Any, messages: WebSocketIntake) -> None:
    """Have the stream that an application sends to give up on endless messages."""
    stream = send.__self__
    if isinstance(stream, WSStream):
        stream.buffer = BoundedBuffer(stream.buffer.max_length, messages)
