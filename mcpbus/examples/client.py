"""A client of Streamable HTTP that hides nothing: one connection for each request, each event as it arrives.

A client library would merge the streams and put notifications where it thinks best. To see on which stream a server
sends something, one has to look at the stream.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import attrs
import h11
import msgspec
import trio

from mcpbus.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from mcpbus.protocol.revisions import LATEST_LEGACY, REVISIONS, Era

Message = dict[str, Any]
"""A JSON-RPC message."""

_CHUNK_BYTES: Final = 64 * 1024
_ACCEPT: Final = "application/json, text/event-stream"
_JSON: Final = "application/json"
_SSE: Final = "text/event-stream"


class HttpClient:
    """Speaks one protocol revision to one endpoint.

    Args:
        url: The endpoint.
        revision: The protocol revision. A legacy client begins with `initialize`, a modern one with anything.
        name: What it calls itself.

    Attributes:
        session_id: The session that `initialize` opened, or None. Sent with each request.
    """

    def __init__(self, url: str, *, revision: str = LATEST_LEGACY.name, name: str = "example") -> None:
        self.session_id: str | None = None
        self._url = urlsplit(url)
        self._revision = REVISIONS[revision]
        self._info = {"name": name, "version": "1"}
        self._ids = count(1)

    async def initialize(self) -> "Exchange":
        """Open a session: `initialize`, and `notifications/initialized` if that succeeds."""
        params = {"protocolVersion": self._revision.name, "capabilities": {}, "clientInfo": self._info}
        opened = await self.request("initialize", params)
        if opened.status == 200:
            self.session_id = opened.headers.get("mcp-session-id")
            async with self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}) as answer:
                await answer.read()
        return opened

    async def call(self, tool: str, arguments: Message | None = None) -> "Exchange":
        """Call a tool and wait for the answer's end."""
        return await self.request("tools/call", {"name": tool, "arguments": arguments or {}})

    async def request(self, method: str, params: Message | None = None) -> "Exchange":
        """Send a request and wait for the answer's end."""
        async with self.open(method, params) as answer:
            return await answer.read()

    @asynccontextmanager
    async def open(self, method: str, params: Message | None = None) -> "AsyncIterator[Answer]":
        """Send a request; the block begins with the head of the answer, and its end closes the connection.

        Progress and log lines are asked for.
        """
        request_id = next(self._ids)
        params = dict(params or {})
        params["_meta"] = {"progressToken": f"token of request {request_id}"}
        if self._revision.era is Era.MODERN:
            params["_meta"] |= {
                PROTOCOL_VERSION: self._revision.name,
                CLIENT_CAPABILITIES: {},
                CLIENT_INFO: self._info,
                LOG_LEVEL: "info",
            }
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        async with self._post(request) as answer:
            yield answer

    @asynccontextmanager
    async def get(self) -> "AsyncIterator[Answer]":
        """Open the session's stream for what belongs to no request."""
        async with exchange("GET", self._url, self._headers() | {"Accept": _SSE}) as answer:
            yield answer

    @asynccontextmanager
    async def _post(self, message: Message) -> "AsyncIterator[Answer]":
        headers = self._headers() | {"Accept": _ACCEPT, "Content-Type": _JSON}
        if self._revision.era is Era.MODERN:
            headers["Mcp-Method"] = message["method"]
            params = message.get("params", {})
            if name := params.get("name") or params.get("uri"):
                headers["Mcp-Name"] = name
        async with exchange("POST", self._url, headers, msgspec.json.encode(message)) as answer:
            yield answer

    def _headers(self) -> dict[str, str]:
        headers = {}
        if self.session_id is not None:
            headers["Mcp-Session-Id"] = self.session_id
        if self.session_id is not None or self._revision.era is Era.MODERN:
            headers["MCP-Protocol-Version"] = self._revision.name
        return headers


@asynccontextmanager
async def exchange(
    verb: str, url: SplitResult, headers: Mapping[str, str], body: bytes = b""
) -> "AsyncIterator[Answer]":
    """Send one request on a connection of its own; the block begins with the head of the answer."""
    host, port = url.hostname, url.port
    if host is None or port is None:
        raise ValueError(f"{url.geturl()!r} is no URL with a host and a port")
    fields = {"Host": url.netloc, "Content-Length": str(len(body)), **headers}
    connection = h11.Connection(h11.CLIENT)
    target = f"{url.path}?{url.query}" if url.query else url.path
    request = h11.Request(method=verb, target=target, headers=list(fields.items()))
    parts = [request, h11.Data(data=body), h11.EndOfMessage()]
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(b"".join(connection.send(part) or b"" for part in parts))
        head = await _next_event(connection, stream)
        if not isinstance(head, h11.Response):
            raise TypeError(f"the server began its answer with {head!r}")
        answered = {name.decode(): value.decode() for name, value in head.headers}
        streamed = answered.get("content-type") == _SSE
        yield Answer(head.status_code, answered, Events(connection, stream, streamed=streamed))


@attrs.frozen
class Exchange:
    """An HTTP answer from beginning to end.

    Attributes:
        status: The HTTP status.
        headers: The header fields, by name in lower case.
        messages: The JSON-RPC messages of the answer, in order.
    """

    status: int
    headers: Mapping[str, str]
    messages: list[Message]

    @property
    def streamed(self) -> bool:
        """Whether the answer was a stream of server-sent events."""
        return self.headers.get("content-type") == _SSE

    @property
    def result(self) -> Message:
        """The result of the request; the last message holds it."""
        result: Message = self.messages[-1]["result"]
        return result

    @property
    def text(self) -> str:
        """The text that a tool returned."""
        text: str = self.result["content"][0]["text"]
        return text


@attrs.frozen
class Answer:
    """An HTTP answer whose head has arrived; iterate over it for each message as it arrives.

    Attributes:
        status: The HTTP status.
        headers: The header fields, by name in lower case.
        events: Iterate over this instead to see comments too.
    """

    status: int
    headers: Mapping[str, str]
    events: "Events"

    async def read(self) -> Exchange:
        """Wait for the answer's end."""
        return Exchange(self.status, self.headers, [message async for message in self])

    def __aiter__(self) -> "Answer":
        return self

    async def __anext__(self) -> Message:
        while (message := await anext(self.events)) is None:
            pass
        return message


class Events:
    """The body of an answer: each message as it arrives, and None for a comment that only keeps the stream alive."""

    def __init__(self, connection: h11.Connection, stream: trio.SocketStream, *, streamed: bool) -> None:
        self._connection = connection
        self._stream = stream
        # Server-sent events end with an empty line (here always \n\n), and one JSON message ends with the body.
        self._separator = b"\n\n" if streamed else None
        self._buffer = b""
        self._ended = False

    def __aiter__(self) -> "Events":
        return self

    async def __anext__(self) -> Message | None:
        while not self._ended and (self._separator is None or self._separator not in self._buffer):
            part = await _next_event(self._connection, self._stream)
            if isinstance(part, h11.Data):
                self._buffer += part.data
            else:
                self._ended = True
        if not self._buffer:
            raise StopAsyncIteration
        event, _, self._buffer = self._buffer.partition(self._separator or b"\0")
        return None if event.startswith(b":") else _decode(event)


async def _next_event(connection: h11.Connection, stream: trio.SocketStream) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await stream.receive_some(_CHUNK_BYTES))
    return event


def _decode(event: bytes) -> Message:
    """Decode a JSON body, or a server-sent event, which here always has one line of data, the last one."""
    data = event.rpartition(b"\n")[2].removeprefix(b"data:")
    if event.startswith(b"event: endpoint"):
        return {"endpoint": data.decode().strip()}
    message: Message = msgspec.json.decode(data)
    return message
