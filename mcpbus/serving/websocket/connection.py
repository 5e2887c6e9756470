"""One WebSocket, from the answer that accepts it to its end: messages in, to the channel; what is said there out, as frames.

What has come is taken in a turn of the connection, which waits for nothing, as the requests of HTTP/1.1 are. What has to be waited
for is left to a task, see `InboundQueue`, and so is a connection that cannot be polled. Nothing waits in order to write, see `WebSocketFrameWriter`.
"""

import math
from typing import Final

from mcpbus_actors import EagerTask, Leader

from mcpbus.core.memory_budget import SHORT_BYTES, MemoryAccount
from mcpbus.protocol.websocket import FAREWELL_SECONDS, CloseCode
from mcpbus.serving.websocket.codec import WebSocketCodec
from mcpbus.serving.websocket.frame_writer import WebSocketFrameWriter
from mcpbus.serving.websocket.transport import WebSocketTransport
from mcpbus.transports.duplex import DuplexChannel
from mcpbus.transports.inbound_queue import InboundQueue
from mcpbus.transports.websocket import WebSockets

_MOST_UNHEARD: Final = 1024 * 1024
"""Bytes that a client may send after it was told of the end, which it may not have read yet."""


class WebSocketConnection:
    """Serves an open channel over a WebSocket. A `KeepAliveHandler`.

    Args:
        carrier: What carries it.
        websockets: The endpoint.
        channel: The channel.
        frames: Its frames.
        ping_seconds: How long the connection may be quiet before the client is asked whether it is there.
    """

    __slots__ = (
        "_account",
        "_carrier",
        "_channel",
        "_frames",
        "_intake",
        "_left",
        "_over",
        "_patience",
        "_ping_seconds",
        "_unanswered",
        "_unheard",
        "_websockets",
        "_writer",
    )

    def __init__(
        self,
        carrier: WebSocketTransport,
        websockets: WebSockets,
        channel: DuplexChannel,
        frames: WebSocketCodec,
        *,
        ping_seconds: float,
    ) -> None:
        self._carrier = carrier
        self._websockets = websockets
        self._channel = channel
        self._frames = frames
        self._writer = WebSocketFrameWriter(carrier, channel, frames, websockets, self)
        self._account: MemoryAccount | None = None
        self._ping_seconds = ping_seconds
        self._patience = max(1, math.ceil(websockets.limits.write_deadline / ping_seconds))
        self._unanswered = 0
        self._unheard = 0
        self._intake = InboundQueue(channel, websockets.budget, self._next_message)
        self._left = False
        self._over = False

    def begin(self) -> None:
        """Serve the connection, from the answer that accepts it on. No schedule point."""
        self._writer.begin()
        self._intake.advance()
        if self._intake.next is not None or not self._carrier.watch(self._take_turn):
            self._work()

    # -- what comes ------------------------------------------------------------------------------

    def _take_turn(self) -> EagerTask | None:
        """Take what has come, in a turn of the connection."""
        data = self._carrier.receive_now()
        if data is None:
            return None
        self._receive(data)
        eager = self._intake.take(self._carrier.scope)
        if self._intake.next is not None:
            self._carrier.forget()
            self._work()
        return eager

    def _work(self) -> None:
        """Have a task take what has come, and wait for more if nothing else does."""
        self._carrier.start(Leader(self._wait, self._intake.take).run)

    async def _wait(self) -> bool:
        """Wait until there is something to take, and return whether there is, for a task; not if it comes in turns from now on."""
        await self._intake.wait_ready()
        if self._intake.next is None and not self._over:
            if self._carrier.watch(self._take_turn):
                return False
            self._receive(await self._carrier.receive())
        return not self._over

    def _receive(self, data: bytes) -> None:
        self._unanswered = 0
        if self._frames.closing:
            self._unheard += len(data)
        if data and self._unheard <= _MOST_UNHEARD:
            self._frames.receive(data)
            self._intake.advance()
        else:
            self.close()

    def _next_message(self) -> bytes | None:
        """Return the next message; if there is none, do what the frames that have come ask for beside their messages."""
        message = self._frames.next()
        if message is None:
            self._look()
        return message

    def _look(self) -> None:
        frames = self._frames
        if frames.heard:
            self._leave()
        elif frames.fault is CloseCode.MESSAGE_TOO_BIG and not self._left:
            self._websockets.note_too_big(self._channel.owner)
        if frames.speaks:
            self._writer.write_now()
        if frames.fault is not None:
            self._leave()
        if frames.heard and not self._writer.sending:
            self.close()
        elif self._account is not None or frames.unfinished > SHORT_BYTES:
            self._count(frames.unfinished)

    def _count(self, size: int) -> None:
        """Count what has come of a message whose end has not."""
        if self._account is None:
            self._account = self._websockets.budget.account(
                "an unfinished message", self._give_up, owner=self._channel.owner
            )
        self._account.hold_now(size)

    def _give_up(self) -> None:
        self._frames.close(CloseCode.TRY_AGAIN_LATER)
        self._writer.write_now()
        self._leave()

    # -- how the writing goes --------------------------------------------------------------------

    def wrote(self) -> None:
        """See `WriteListener`."""
        if self._frames.heard:
            self.close()
        else:
            self._carrier.quiet_for(FAREWELL_SECONDS if self._frames.closing else self._ping_seconds)

    def ended(self) -> None:
        """See `WriteListener`."""
        self._frames.close(self._websockets.why_ended())
        self._leave()

    # -- time, and the end -----------------------------------------------------------------------

    def keep_alive(self) -> None:
        """See `KeepAliveHandler`: ask whether the client is there, or stop to wait for it."""
        if self._frames.closing:
            self.close()
        elif self._unanswered == self._patience:
            self._websockets.reached.missed_write(self._channel.owner)
            self.close()
        else:
            self._unanswered += 1
            self._frames.ping()
            self._writer.write_now()

    def cancel(self) -> None:
        """See `KeepAliveHandler`."""
        self._over = True
        self._writer.end()
        self._leave()

    def close(self) -> None:
        """End the connection, whatever is left to say. Harmless once that was done."""
        if not self._over:
            self.cancel()
            self._carrier.close()

    def _leave(self) -> None:
        """End the channel, and with it all that is in flight."""
        if not self._left:
            self._left = True
            self._intake.end()
            self._writer.leave_channel()
            self._channel.close()
            if self._account is not None:
                self._account.close()
