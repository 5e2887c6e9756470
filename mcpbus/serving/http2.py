"""hypercorn's HTTP/2 with the streams of a connection kept out of each other's way."""

import logging
from contextlib import suppress
from functools import partial
from typing import Any, cast

import h2.errors
import h2.events
import h2.exceptions

from mcpbus.serving.http2_buffer import ResponseBuffer, StalledError
from mcpbus.serving.hypercorn import (
    Body,
    Closed,
    Event,
    H2Protocol,
    HTTPStream,
    StreamClosed,
    StreamEvent,
    TaskGroup,
    Updated,
    WSStream,
)
from mcpbus.serving.tasks import Tasks
from mcpbus.serving.websocket import TAKEN

_logger = logging.getLogger("mcpbus.serving")


class GuardedH2Protocol(H2Protocol):
    """HTTP/2 of one connection.

    It differs from its base in what flow control and resets mean (RFC 9113, sections 5.2, 8.1):

    - a body that its application does not read fills its own stream's window, never the connection's;
    - DATA of a stream that is no longer known counts against the connection, and is otherwise ignored;
    - a response that was cut short resets its stream, and so does a complete one whose request still goes on;
    - the end of the connection wakes an application that waits for a window;
    - a response has ended when its END_STREAM is sent;
    - a client that opens no window for the write deadline loses the stream.
    """

    stream_buffers: dict[int, ResponseBuffer]  # type: ignore[assignment]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tasks = cast("Tasks", self.task_group)
        self._requests_open: set[int] = set()

    async def handle(self, event: Event) -> None:
        """Take bytes from the connection, or its end."""
        await super().handle(event)
        if isinstance(event, Closed):
            for buffer in list(self.stream_buffers.values()):
                await buffer.close()

    async def stream_send(self, event: StreamEvent) -> None:
        """Take a part of a response, or its end."""
        buffer = self.stream_buffers.get(event.stream_id)
        if isinstance(event, StreamClosed) and buffer is not None and not buffer.complete:
            stream = self.streams.get(event.stream_id)
            if isinstance(stream, WSStream) and stream.handshake.accepted:
                # Its close frame is on its way. This may be the reader's task, so nothing waits for that.
                buffer.set_complete()
                self.priority.unblock(event.stream_id)
                await self.has_data.set()
            else:
                await self._abandon(event.stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
        try:
            await super().stream_send(event)
        except StalledError:
            _logger.warning("a stream of %s was reset: it opened no window in time", self.client)
            await self._abandon(event.stream_id, h2.errors.ErrorCodes.CANCEL)
            await self._close_stream(event.stream_id)

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            match event:
                case h2.events.DataReceived():
                    await self._take_data(event)
                    continue
                case h2.events.RequestReceived(stream_id=int(stream_id)):
                    self._requests_open.add(stream_id)
                case h2.events.StreamEnded(stream_id=stream_id):
                    self._requests_open.discard(stream_id)
                case h2.events.StreamReset(stream_id=stream_id):
                    self._requests_open.discard(stream_id)
            await super()._handle_events([event])
            if isinstance(event, h2.events.StreamReset):
                await self.send(Updated(idle=self.idle))
        await self._flush()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        # The base gives a new stream whatever is its task group at this moment.
        tasks = self._tasks.for_stream(partial(self._open_window, request.stream_id))
        self.task_group = cast("TaskGroup", tasks)
        await super()._create_stream(request)
        # The application has not run yet: the base does not wait between making its own buffer and here.
        self.stream_buffers[request.stream_id] = ResponseBuffer(self._tasks.options.write_deadline_seconds)

    async def _send_data(self, stream_id: int) -> None:
        buffer = self.stream_buffers.get(stream_id)
        await super()._send_data(stream_id)
        if stream_id not in self.stream_buffers:
            if stream_id in self._requests_open:
                await self._reset(stream_id, h2.errors.ErrorCodes.NO_ERROR)
            if buffer is not None:
                await buffer.close()

    async def _take_data(self, event: h2.events.DataReceived) -> None:
        if event.flow_controlled_length:
            self.connection.increment_flow_control_window(event.flow_controlled_length)
        stream = self.streams.get(event.stream_id)
        if isinstance(stream, HTTPStream):
            await self._open_window(event.stream_id, event.flow_controlled_length - len(event.data))
        if stream is not None:
            await stream.handle(Body(stream_id=event.stream_id, data=event.data))
        if isinstance(stream, WSStream):
            if stream.app_put is None:
                await self._open_window(event.stream_id, event.flow_controlled_length)
            else:
                # After the messages that came with it: the window opens when the application has taken these.
                await stream.app_put({"type": TAKEN, "size": event.flow_controlled_length})

    async def _open_window(self, stream_id: int, size: int) -> None:
        if size:
            # The stream may have ended meanwhile: its window then matters to nobody.
            with suppress(h2.exceptions.ProtocolError, KeyError):
                self.connection.increment_flow_control_window(size, stream_id)
            await self._flush()

    async def _abandon(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        """Reset a stream whose response has not ended, and forget what it had to say."""
        await self._reset(stream_id, code)
        if buffer := self.stream_buffers.get(stream_id):
            await buffer.close()
        await self._window_updated(stream_id)  # so that the sending task forgets the stream

    async def _reset(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        self._requests_open.discard(stream_id)
        with suppress(h2.exceptions.ProtocolError):
            self.connection.reset_stream(stream_id, error_code=code)
        await self._flush()
