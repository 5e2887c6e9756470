"""hypercorn's HTTP/2 with the streams of a connection kept out of each other's way."""

from contextlib import suppress
from functools import partial
from typing import Any, cast

import h2.events
import trio
from h2.connection import ConnectionState
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from mcpbus.serving.app_tasks import Tasks
from mcpbus.serving.http2_buffer import Budget, StalledError
from mcpbus.serving.http2_connection import GuardedH2Connection
from mcpbus.serving.http2_patience import Patience
from mcpbus.serving.http2_responses import Fields, Responses
from mcpbus.serving.hypercorn import (
    Body,
    Closed,
    Data,
    EndBody,
    EndData,
    Event,
    H2Protocol,
    Held,
    HTTPStream,
    InformationalResponse,
    RawData,
    Request,
    Response,
    StreamClosed,
    StreamEvent,
    TaskGroup,
    Trailers,
    Updated,
    WSStream,
    filter_pseudo_headers,
)
from mcpbus.serving.websocket_intake import TAKEN


class GuardedH2Protocol(H2Protocol):
    """HTTP/2 of one connection.

    It differs from its base in what flow control and resets mean (RFC 9113, sections 5.2, 8.1):

    - a body that its application does not read fills its own stream's window, never the connection's;
    - DATA of a stream that is no longer known counts against the connection, and is otherwise ignored;
    - a response that was cut short resets its stream, and so does a complete one whose request still goes on;
    - the end of the connection wakes an application that waits for a window;
    - a response has ended when its END_STREAM is sent;
    - a client that opens no window for the write deadline loses the stream;
    - what is wrong with one request resets its stream, and what is beyond the limits is refused: see
      `GuardedH2Connection`. Applications of streams that the client has reset count against twice the limit, until they
      have ended;
    - a connection that ends says so (section 6.8).

    Attributes:
        fault: What the client did to the connection, if that has ended it.
    """

    connection: GuardedH2Connection

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fault: ProtocolError | None = None
        self._tasks = tasks = cast("Tasks", self.task_group)
        patience = Patience(trio.current_time)
        self.connection = GuardedH2Connection(
            self.connection.config, self.connection.local_settings, patience, tasks.counters
        )
        seconds = tasks.options.write_deadline_seconds
        self._responses = Responses(self.connection, self._flush, patience, Budget(tasks.counters), seconds)
        self._running = 0

    async def initiate(self, headers: Fields | None = None, settings: bytes | None = None) -> None:
        """Begin, with the request that asked for an upgrade if there was one."""
        if settings is None:
            self.connection.initiate_connection()
        else:
            self.connection.initiate_upgrade_connection(settings)
        await self._flush()
        if headers is not None:
            await self._begin(1, headers)
            await self._end_request(1)
        self.task_group.spawn(self.send_task)

    async def send_task(self) -> None:
        """Send what waits for windows."""
        await self._responses.run()

    async def handle(self, event: Event) -> None:
        """Take bytes from the connection, or its end."""
        if isinstance(event, RawData):
            try:
                await self._handle_events(self.connection.receive_data(event.data))
            except ProtocolError as fault:
                await self._fail(fault)
        elif isinstance(event, Closed):
            self._responses.forget_all()
            await super().handle(event)
            if self.fault is None:
                # Not before the last response has ended: many clients drop what comes after a GOAWAY.
                with suppress(ProtocolError):
                    self.connection.close_connection()
                await self._flush()

    async def stream_send(self, event: StreamEvent) -> None:
        """Take a part of a response, or its end."""
        stream_id = event.stream_id
        try:
            await self._say(stream_id, event)
        except StalledError:
            seconds = self._tasks.options.write_deadline_seconds
            consequence = f"a stream whose client accepted nothing for {seconds:g} s was reset"
            self._tasks.note("write_deadline_seconds", consequence)
            self._tasks.counters.withheld += 1
            self._responses.reset(stream_id, ErrorCodes.CANCEL)
            await self._close_stream(stream_id)
        if isinstance(event, StreamClosed):
            await self._close_stream(stream_id)
            await self.send(Updated(idle=self.idle))
        await self._hold()

    async def _say(self, stream_id: int, event: StreamEvent) -> None:
        responses = self._responses
        match event:
            case Body() | Data():
                await responses.say(stream_id, event.data)
            case EndBody() | EndData():
                await self._hold()
                await responses.say_end(stream_id)
            case Response() | InformationalResponse():
                ours = self.config.response_headers("h2")
                status = (b":status", b"%d" % event.status_code)
                responses.say_head(stream_id, [status, *event.headers, *ours])
                if event.status_code == 200 and isinstance(self.streams.get(stream_id), WSStream):
                    responses.make_tunnel(stream_id)
            case Trailers():
                await responses.say_trailers(stream_id, event.headers)
            case StreamClosed() if responses.is_open(stream_id):
                stream = self.streams.get(stream_id)
                if isinstance(stream, WSStream) and stream.handshake.accepted:
                    # Its close frame is on its way. This may be the reader's task, so nothing waits for that.
                    responses.say_end_soon(stream_id)
                else:
                    responses.reset(stream_id, ErrorCodes.INTERNAL_ERROR)

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            match event:
                case h2.events.DataReceived():
                    await self._take_data(event)
                case h2.events.RequestReceived(stream_id=stream_id, headers=headers):
                    await self._begin(stream_id, headers)
                case h2.events.StreamEnded(stream_id=stream_id):
                    await self._end_request(stream_id)
                case h2.events.StreamReset(stream_id=stream_id):
                    self._responses.forget(stream_id)
                    await self._close_stream(stream_id)
                    await self.send(Updated(idle=self.idle))
                case h2.events.WindowUpdated(stream_id=stream_id):
                    self._responses.window_opened(stream_id)
                case h2.events.RemoteSettingsChanged(changed_settings=changed):
                    if SettingCodes.INITIAL_WINDOW_SIZE in changed:
                        self._responses.window_opened(0)
                case h2.events.ConnectionTerminated():
                    await self.send(Closed())
        await self._flush()

    async def _begin(self, stream_id: int, headers: Fields) -> None:
        if not self.connection.is_open(stream_id):
            return  # it was reset in the same breath
        limit = self.config.h2_max_concurrent_streams
        if self.context.terminated.is_set() or self._running >= 2 * limit:
            self.connection.refuse(stream_id)
            return
        pseudo = {name: value for name, value in headers if name[:1] == b":"}
        method, path = pseudo[b":method"], pseudo.get(b":path", b"")
        if not (method.isascii() and path.isascii()):
            self.connection.blame(stream_id)
        elif method == b"CONNECT" and pseudo.get(b":protocol") != b"websocket":
            # Nothing is tunnelled here but WebSockets (RFC 9110, section 9.3.6; RFC 8441; RFC 9220, section 3).
            self.connection.send_headers(stream_id, [(b":status", b"501")], end_stream=True)
            self.connection.reset(stream_id, ErrorCodes.NO_ERROR)
        else:
            await self._call(stream_id, method.decode(), path, headers)

    async def _call(self, stream_id: int, method: str, path: bytes, headers: Fields) -> None:
        """Start the application with a request."""
        tasks = self._tasks.for_stream(partial(self._open_window, stream_id), self._note_end)
        kind = WSStream if method == "CONNECT" else HTTPStream
        self.streams[stream_id] = stream = kind(
            self.app,
            self.config,
            self.context,
            cast("TaskGroup", tasks),
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            stream_id,
        )
        self._responses.open(stream_id)
        self._running += 1
        await stream.handle(
            Request(
                stream_id=stream_id,
                headers=filter_pseudo_headers(headers),
                http_version="2",
                method=method.upper(),
                raw_path=path,
                state=self.connection_state,
            )
        )
        await self.send(Updated(idle=False))

    def _note_end(self) -> None:
        self._running -= 1

    async def _end_request(self, stream_id: int) -> None:
        if stream := self.streams.get(stream_id):
            await stream.handle(EndBody(stream_id=stream_id))

    async def _take_data(self, event: h2.events.DataReceived) -> None:
        stream_id, size = event.stream_id, event.flow_controlled_length
        if size:
            self.connection.increment_flow_control_window(size)
        stream = self.streams.get(stream_id)
        if isinstance(stream, HTTPStream):
            await self._open_window(stream_id, size - len(event.data))
        if stream is not None:
            await stream.handle(Body(stream_id=stream_id, data=event.data))
        if isinstance(stream, WSStream):
            if stream.app_put is None:
                await self._open_window(stream_id, size)
            else:
                # After the messages that came with it: the window opens when the application has taken these.
                await stream.app_put({"type": TAKEN, "size": size})

    async def _open_window(self, stream_id: int, size: int) -> None:
        if size and self.connection.is_open(stream_id):
            with suppress(ProtocolError):  # the connection may have ended meanwhile
                self.connection.increment_flow_control_window(size, stream_id)
            await self._hold()

    async def _fail(self, fault: ProtocolError) -> None:
        """End the connection, and say why, unless h2 has."""
        self.fault = fault
        if self.connection.state_machine.state is not ConnectionState.CLOSED:
            self.connection.close_connection(fault.error_code)
        await self._flush()
        await self.send(Closed())

    async def _hold(self) -> None:
        """Have what was said written with what follows."""
        if data := self.connection.data_to_send():
            await self.send(Held(data=data))
