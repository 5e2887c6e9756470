"""A client of the HTTP+SSE transport of 2024-11-05: one stream for everything that the server says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from examples.failures.client import Answer, Message, exchange

_REVISION = "2024-11-05"


class SseClient:
    """A connected client; iterate over it for each message as it arrives, whatever it belongs to."""

    def __init__(self, stream: Answer, address: SplitResult) -> None:
        self._stream = stream
        self._address = address
        self._ids = count(1)

    async def call(self, tool: str, arguments: Message) -> None:
        """Begin to call a tool, and ask for its progress."""
        request_id = next(self._ids)
        meta = {"progressToken": f"token of request {request_id}"}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        await self.post({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    async def post(self, message: Message) -> None:
        """Say something to the server."""
        headers = {"Content-Type": "application/json"}
        async with exchange("POST", self._address, headers, msgspec.json.encode(message)) as answer:
            if answer.status != 202:
                raise ConnectionError(f"the server answered a POST with {answer.status}")

    def __aiter__(self) -> "SseClient":
        return self

    async def __anext__(self) -> Message:
        return await anext(self._stream)


@asynccontextmanager
async def connect_sse(url: str) -> AsyncIterator[SseClient]:
    """Connect to an HTTP+SSE address, and open the session."""
    async with exchange("GET", urlsplit(url), {"Accept": "text/event-stream"}) as stream:
        address = urljoin(url, (await anext(stream))["endpoint"])
        client = SseClient(stream, urlsplit(address))
        params = {
            "protocolVersion": _REVISION,
            "capabilities": {},
            "clientInfo": {"name": "example", "version": "1"},
        }
        await client.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        await anext(client)
        await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield client
