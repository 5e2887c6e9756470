"""Clients that send a request as a transport and a manner have it: over HTTP/1.1, over HTTP/2, and as an ASGI server calls an application."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import httptools
import trio

from tests.exchanges.responses import Response
from tests.exchanges.steps import Request

PAUSE = 0.05
"""Virtual seconds between two pieces."""
_READ = 64 * 1024
_WINDOW = 2**30
_FIRST = (
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
    b"expect: 100-continue\r\ncontent-length: 44\r\n\r\n"
)
_FIRST_BODY = b'{"jsonrpc":"2.0","method":"notifications/x"}'


@contextmanager
def server_may_close() -> Iterator[None]:
    """Let a server end the connection while a client sends."""
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        yield


# -- HTTP/1.1 ------------------------------------------------------------------------------------


def http1_head(request: Request) -> bytes:
    """Return the head of a request as HTTP/1.1 writes it."""
    lines = request.lines
    if lines is None:
        lines = tuple(f"{name}: {value}".encode("latin-1") for name, value in request.fields)
    line = f"{request.verb} {request.target} HTTP/1.1".encode()
    if request.framing in {"chunked", "trailers"}:
        lines = (*lines, b"transfer-encoding: chunked")
    elif request.framing == "length" and (request.body or request.verb in {"POST", "PUT"}):
        lines = (*lines, b"content-length: %d" % len(request.body))
    return b"\r\n".join([line, *lines, b"", b""])


def http1_body(request: Request, *, whole: bool) -> list[bytes]:
    """Return the body in the pieces in which it is sent."""
    pieces = [request.body] if whole and request.body else [] if whole else request.pieces
    if request.framing in {"chunked", "trailers"}:
        pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        pieces.append(b"0\r\nx-check: 1\r\n\r\n" if request.framing == "trailers" else b"0\r\n\r\n")
        return [b"".join(pieces)] if whole else pieces
    return pieces


class _Parser:
    """Writes into responses what llhttp reads on one connection, one response after the other."""

    def __init__(self, *responses: Response, bodiless: bool = False) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self._due = list(responses)
        self._bodiless = bodiless
        self._fields: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        fields, self._fields = self._fields, []
        status = self.parser.get_status_code()
        if status < 200:
            self._due[0].interim.append(status)
            self._due[0].notify()
        else:
            self._due[0].begin(status, fields)
            if self._bodiless and len(self._due) == 1:
                self._due.pop().take(b"", complete=True)

    def on_body(self, body: bytes) -> None:
        self._due[0].take(body, complete=False)

    def on_message_complete(self) -> None:
        if self._due and self._due[0].status is not None:
            self._due.pop(0).take(b"", complete=True)

    def end(self) -> None:
        """Note the end of the connection, which may be the end of a response."""
        for response in self._due:
            named = dict(response.fields)
            if response.status is not None and not {"content-length", "transfer-encoding"} & named.keys():
                response.take(b"", complete=True)
            else:
                response.abort()


async def over_http1(stream: trio.abc.Stream, request: Request, response: Response, manner: str) -> None:
    """Send a request on a new connection, and receive its response."""
    async with trio.open_nursery() as nursery:
        scope = nursery.cancel_scope
        response.on_disconnect = scope.cancel
        first = Response("first", [])
        due = [first, response] if manner == "behind" else [response]
        parser = _Parser(*due, bodiless=request.verb == "HEAD")
        nursery.start_soon(_receive_http1, stream, parser, scope)
        with server_may_close():
            head = http1_head(request)
            if manner == "pieces":
                for piece in (
                    head[: len(head) // 2],
                    head[len(head) // 2 :],
                    *http1_body(request, whole=False),
                ):
                    await stream.send_all(piece)
                    await trio.sleep(PAUSE)
            elif manner == "behind":
                await stream.send_all(_FIRST)
                await first.wait_for(lambda: bool(first.interim), 5)
                await stream.send_all(_FIRST_BODY + head + b"".join(http1_body(request, whole=True)))
            else:
                await stream.send_all(head + b"".join(http1_body(request, whole=True)))
        await response.wait_for(lambda: response.over)
        await _linger(response)
        scope.cancel()
    with trio.move_on_after(1) as closing:
        closing.shield = True
        await trio.aclose_forcefully(stream)


async def _receive_http1(stream: trio.abc.Stream, parser: _Parser, scope: trio.CancelScope) -> None:
    with server_may_close():
        while data := await stream.receive_some(_READ):
            parser.parser.feed_data(data)
    parser.end()
    scope.cancel()


async def _linger(response: Response) -> None:
    """Stay connected for a moment after a response: a client that closes while the server still writes loses the messages."""
    if not response.disconnected:
        await trio.sleep(PAUSE)


# -- HTTP/2 --------------------------------------------------------------------------------------


class Http2Client:
    """A client of HTTP/2 with one stream.

    Args:
        stream: The connection.
        response: Gets what the server sends.
    """

    def __init__(self, stream: trio.abc.Stream, response: Response) -> None:
        config = h2.config.H2Configuration(
            header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self._stream = stream
        self._response = response
        self._client = h2.connection.H2Connection(config)
        self._client.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW}
        )
        self._client.initiate_connection()
        self._client.increment_flow_control_window(_WINDOW)
        self._id = self._client.get_next_available_stream_id()
        self._ended = False
        self._sending = trio.Lock()  # the tasks that send and receive both write

    async def run(self, request: Request, manner: str) -> None:
        """Send a request, and receive its response."""
        async with trio.open_nursery() as nursery:
            self._response.on_disconnect = lambda: nursery.start_soon(self._leave, nursery.cancel_scope)
            nursery.start_soon(self._receive, nursery.cancel_scope)
            with server_may_close():
                await self._send(request, manner)
        await _linger(self._response)
        with trio.move_on_after(1) as closing:
            closing.shield = True
            await trio.aclose_forcefully(self._stream)

    async def _send(self, request: Request, manner: str) -> None:
        head = http2_head(request)
        if manner == "expecting" and request.body:
            head.append((b"expect", b"100-continue"))
        if manner == "whole":
            bodiless = not request.body and request.framing != "trailers"
            self._client.send_headers(self._id, head, end_stream=bodiless)
            if request.body:
                await self._data(request.body, end=request.framing != "trailers")
            self._trailers(request)
            await self._flush()
            return
        self._client.send_headers(self._id, head)
        await self._flush()
        await trio.sleep(PAUSE)
        for piece in request.pieces:
            await self._data(piece, end=False)
            await self._flush()
            await trio.sleep(PAUSE)
        if request.framing == "trailers":
            self._trailers(request)
        else:
            await self._data(b"", end=True)
        await self._flush()

    async def _data(self, data: bytes, *, end: bool) -> None:
        """Send a part of the body, as far as the server opens its windows."""
        client = self._client
        with contextlib.suppress(h2.exceptions.StreamClosedError):
            while data and not self._response.over:
                size = min(
                    len(data), client.local_flow_control_window(self._id), client.max_outbound_frame_size
                )
                if size:
                    self._ended = end and size == len(data)
                    client.send_data(self._id, data[:size], end_stream=self._ended)
                    data = data[size:]
                else:
                    await self._flush()
                    await trio.sleep(PAUSE)
            if end and not data and not self._ended:
                client.send_data(self._id, b"", end_stream=True)

    def _trailers(self, request: Request) -> None:
        if request.framing == "trailers":
            with contextlib.suppress(h2.exceptions.StreamClosedError):
                self._client.send_headers(self._id, [(b"x-check", b"1")], end_stream=True)

    async def _flush(self) -> None:
        async with self._sending:
            await self._stream.send_all(self._client.data_to_send())

    async def _leave(self, scope: trio.CancelScope) -> None:
        with server_may_close():
            self._client.reset_stream(self._id, h2.errors.ErrorCodes.CANCEL)
            await self._flush()
        scope.cancel()

    async def _receive(self, scope: trio.CancelScope) -> None:
        with server_may_close():
            while not self._response.over and (data := await self._stream.receive_some(_READ)):
                for event in self._client.receive_data(data):
                    self._take(event)
                await self._flush()
        self._response.abort()
        scope.cancel()

    def _take(self, event: h2.events.Event) -> None:
        response = self._response
        match event:
            case h2.events.InformationalResponseReceived(headers=fields):
                response.interim.append(int(dict(fields)[b":status"]))
            case h2.events.ResponseReceived(headers=fields):
                status = int(dict(fields)[b":status"])
                response.begin(status, [field for field in fields if field[0] != b":status"])
            case h2.events.DataReceived():
                if event.flow_controlled_length:
                    self._client.acknowledge_received_data(event.flow_controlled_length, self._id)
                if event.data:
                    response.take(event.data, complete=False)
            case h2.events.StreamEnded(stream_id=self._id):
                response.take(b"", complete=True)
            case h2.events.StreamReset(stream_id=self._id):
                response.abort()


def http2_head(request: Request) -> list[tuple[bytes, bytes]]:
    """Return the fields of a request in HTTP/2; its first Host is the authority."""
    named = [(name.lower().encode(), value.strip(" \t").encode("latin-1")) for name, value in request.fields]
    hosts = [value for name, value in named if name == b"host"]
    head = [(b":method", request.verb.encode()), (b":scheme", b"http"), (b":path", request.target.encode())]
    head += [(b":authority", hosts[0])] if hosts else []
    head += [(b"host", value) for value in hosts[1:]]
    head += [field for field in named if field[0] != b"host"]
    if request.framing == "length" and request.body:
        head.append((b"content-length", b"%d" % len(request.body)))
    return head


# -- ASGI ----------------------------------------------------------------------------------------


async def over_asgi(app: Any, request: Request, response: Response, manner: str) -> None:
    """Call an application with a request, as an ASGI server does."""
    path, _, query = request.target.partition("?")
    fields = [(name.lower().encode(), value.strip(" \t").encode("latin-1")) for name, value in request.fields]
    if request.framing == "length" and request.body:
        fields.append((b"content-length", b"%d" % len(request.body)))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.verb,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": fields,
        "client": None,
        "server": ("localhost", 80),
    }
    pieces = [request.body] if manner == "whole" else [*request.pieces, b""]

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        if pieces:
            if manner != "whole":
                await trio.sleep(PAUSE)
            body = pieces.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(pieces)}
        await response.wait_for(lambda: response.over)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        if response.over:
            return
        if message["type"] == "http.response.start":
            response.begin(message["status"], message["headers"])
        else:
            response.take(message.get("body", b""), complete=not message.get("more_body", False))

    try:
        await app(scope, receive, send)
    except Exception:  # noqa: BLE001 - an ASGI server answers 500 for it, if nothing was sent
        if response.status is None:
            response.begin(500, [])
            response.take(b"", complete=True)
    response.abort()
