"""The messages of one WebSocket that its application has not taken yet."""

from contextlib import suppress
from typing import Any, Final

import trio

from mcpbus.serving.asgi import Message
from mcpbus.serving.hypercorn import FrameTooLargeError, WebsocketBuffer, WSStream

_MESSAGES: Final = 10


class WebSocketIntake:
    """A bounded queue that always ends: after `close`, the application is told that the client has gone.

    hypercorn says so itself, but not for a handshake that it has refused while the application was at it.
    An application that does not take its messages holds up its connection, which is its own.
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
