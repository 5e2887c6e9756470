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
import httptools
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
    target = f"{url.path}?{url.query}" if url.query else url.path
    lines = [f"{verb} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
        response = Response(stream)
        while response.status is None:
            await response.receive()
        streamed = response.headers.get("content-type", "").partition(";")[0] == _SSE
        yield Answer(response.status, response.headers, Events(response, streamed=streamed))


class Response:
    """One HTTP answer, as far as it has come.

    Attributes:
        status: The HTTP status; None until the head is there.
        headers: The header fields, by name in lower case.
        body: What has come of the body, and was not taken yet.
        ended: Whether that is all of it.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._parser = httptools.HttpResponseParser(self)
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False

    async def receive(self) -> None:
        """Wait for more of it.

        Raises:
            ConnectionError: The connection ended before it.
        """
        data = await self._stream.receive_some(_CHUNK_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection before its answer had ended")
        self._parser.feed_data(data)

    # What follows is called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field."""
        self.headers[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        """Take the end of the head."""
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body. Some servers end lines of events with CR LF."""
        self.body += data.replace(b"\r", b"")

    def on_message_complete(self) -> None:
        """Take the end."""
        self.ended = True


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

    def __init__(self, response: Response, *, streamed: bool) -> None:
        self._response = response
        # Server-sent events end with an empty line (here always \n\n), and one JSON message ends with the body.
        self._separator = b"\n\n" if streamed else None

    def __aiter__(self) -> "Events":
        return self

    async def __anext__(self) -> Message | None:
        response, separator = self._response, self._separator
        while not response.ended and (separator is None or separator not in response.body):
            await response.receive()
        if not response.body:
            raise StopAsyncIteration
        event, _, response.body = response.body.partition(separator or b"\0")
        return None if event.startswith(b":") else _decode(event)


def _decode(event: bytes) -> Message:
    """Decode a JSON body, or a server-sent event, which here always has one line of data, the last one."""
    data = event.rpartition(b"\n")[2].removeprefix(b"data:")
    if event.startswith(b"event: endpoint"):
        return {"endpoint": data.decode().strip()}
    message: Message = msgspec.json.decode(data)
    return message
