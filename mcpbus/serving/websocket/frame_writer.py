"""What is written on a WebSocket, in the stack of whoever speaks: no task waits for it.

What is said first is written at once. What follows within a millisecond goes out together, one turn of the scheduler
later; and what is said in a turn of a connection, with what else that turn says. Only where the client does not take it fast enough does a task wait until it has.
"""

import math
from typing import Protocol

import trio

from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.serving.websocket.codec import WebSocketCodec
from mcpbus.serving.websocket.transport import WebSocketTransport
from mcpbus.serving.write_coalescer import COALESCE_SECONDS
from mcpbus.transports.duplex import DuplexChannel
from mcpbus.transports.websocket import WebSockets


class WriteListener(Protocol):
    """Who is told how the writing goes."""

    def wrote(self) -> None:
        """All that was to be said so far has been written."""

    def ended(self) -> None:
        """The server has ended the channel, and all that was said on it has been written."""

    def close(self) -> None:
        """The client has gone, or takes nothing."""


class WebSocketFrameWriter:
    """Writes what is said on a channel, and what its frames have to say beside it.

    Args:
        carrier: Where to.
        channel: The channel.
        frames: What makes frames of it.
        websockets: The endpoint, for how slow the client may be.
        listener: Who is told how it goes.

    Attributes:
        sending: Whether the client has yet to take something.
    """

    __slots__ = (
        "_carrier",
        "_channel",
        "_clock",
        "_frames",
        "_gathers",
        "_left",
        "_listener",
        "_most",
        "_over",
        "_websockets",
        "_written_at",
        "sending",
    )

    def __init__(
        self,
        carrier: WebSocketTransport,
        channel: DuplexChannel,
        frames: WebSocketCodec,
        websockets: WebSockets,
        listener: WriteListener,
    ) -> None:
        self._carrier = carrier
        self._channel = channel
        self._frames = frames
        self._websockets = websockets
        self._listener = listener
        self._gathers = False
        self._left = False
        self._over = False
        self._written_at = -math.inf
        self._clock = trio.lowlevel.current_clock().current_time
        self._most = min(SHORT_BYTES, websockets.limits.outbox_bytes) - OVERHEAD_BYTES
        self.sending = False

    def begin(self) -> None:
        """Write what is there, and from now on what comes."""
        self._channel.writer.notify = self._notice
        self._channel.writer.direct = self._write_one
        self.write_now()

    def leave_channel(self) -> None:
        """Write nothing more of what is said on the channel; what the frames have to say still is."""
        self._left = True
        writer = self._channel.writer
        writer.notify = writer.direct = writer.connection = None

    def end(self) -> None:
        """Write nothing more."""
        self._over = True

    def cancel(self) -> None:
        """Give the client up, which takes nothing, and for which too much waits."""
        self._listener.close()

    def _notice(self, final: bool) -> bool:
        if self.sending or self._over or (self._gathers and not final):
            return self._gathers
        carrier = self._carrier
        if carrier.in_turn or (not final and self._clock() - self._written_at < COALESCE_SECONDS):
            self._gathers = True
            carrier.write_later(self)
            return True
        self.write_now()
        return False

    def _write_one(self, message: OutboundMessage) -> bool:
        """Write one notification where nothing waits, in one step with its fate; see `mcpbus.core.writer.Writer`."""
        carrier, frames, now = self._carrier, self._frames, self._clock()
        if (
            self.sending
            or self._over
            or now - self._written_at < COALESCE_SECONDS
            or len(message.data) > self._most
            or frames.speaks
            or frames.closing
            or carrier.in_turn
        ):
            return False
        try:
            rest = carrier.send_now(frames.encode([message.data]))
        except Exception as failure:  # noqa: BLE001 - as below
            carrier.fail(failure)
            return False
        if rest is None:
            return False  # what comes of it is seen when it is tried again
        self._written_at = now
        if rest:
            self._channel.writer.start_writing(message)
            self._wait_for(rest, said=True)
        else:
            message.receipt.emit_delivered()
            self._listener.wrote()
        return True

    def write_now(self) -> None:
        """Write all that waits. See `CoalescedWriter`. Nothing is raised: whoever speaks is not to blame."""
        self._gathers = False
        try:
            while not self.sending and not self._over:
                batch = self._take()
                if not batch and not self._frames.speaks:
                    return
                data = self._frames.encode([message.data for message in batch])
                self._send(data, said=bool(batch))
        except Exception as failure:  # noqa: BLE001 - there is no memory for it, say
            self._carrier.fail(failure)

    def lose(self) -> None:
        """See `CoalescedWriter`."""
        self._listener.close()

    def _take(self) -> list[OutboundMessage]:
        """Take what waits; if that is the end, the close that is to be said is all that there is."""
        if self._left:
            return []
        batch = self._channel.writer.take_now()
        if batch is None:
            self._listener.ended()
        return batch or []

    def _send(self, data: bytes, *, said: bool) -> None:
        self._written_at = self._clock()
        rest = self._carrier.send_now(data)
        if rest is None:
            self._listener.close()
        elif rest:
            self._wait_for(rest, said=said)
        else:
            self._sent(said=said)

    def _wait_for(self, rest: bytes, *, said: bool) -> None:
        """Have a task send what the client does not take at once."""
        self.sending = True
        self._channel.writer.connection = self
        self._carrier.start(self._send_rest, rest, said)

    async def _send_rest(self, rest: bytes, said: bool) -> None:
        websockets, sent = self._websockets, False
        with websockets.reached.writing(websockets.limits.write_deadline, self._channel.owner):
            sent = await self._carrier.send(rest)
        if self._over:
            return
        if not sent:
            self._listener.close()
            return
        self.sending = False
        if not self._left:
            self._channel.writer.connection = None
        self._sent(said=said)
        self.write_now()

    def _sent(self, *, said: bool) -> None:
        if said and not self._left:
            self._channel.writer.settle_written()
        self._listener.wrote()
