"""The official SDK's client over WebSocket. It has no such transport any more: wsproto carries its messages."""

from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import pytest
import trio
from mcp import types
from mcp.shared.message import SessionMessage
from sdk_checks import CHECKS
from sdk_client import REVISIONS, TOLERATED, connected, served
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Request, TextMessage

pytestmark = TOLERATED


class Socket:
    """A WebSocket whose ends are the SDK's streams."""

    def __init__(self, stream):
        self._stream = stream
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._sending = trio.Lock()

    async def open(self, url):
        await self._send(Request(host=url.netloc, target=url.path, subprotocols=["mcp"]))
        (accepted,) = await self._receive()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == "mcp"

    async def read(self, into):
        text = ""
        async with into:
            while events := await self._receive():
                for event in events:
                    if isinstance(event, TextMessage):
                        text += event.data
                        if event.message_finished:
                            message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
                            await into.send(SessionMessage(message))
                            text = ""
                    elif isinstance(event, Ping):
                        await self._send(event.response())
                    elif isinstance(event, CloseConnection):
                        return

    async def write(self, messages):
        async for sent in messages:
            await self._send(
                TextMessage(data=sent.message.model_dump_json(by_alias=True, exclude_unset=True))
            )

    async def _send(self, event):
        async with self._sending:
            await self._stream.send_all(self._ws.send(event))

    async def _receive(self):
        events = []
        while not events:
            data = await self._stream.receive_some()
            if not data:
                return []
            self._ws.receive_data(data)
            events = list(self._ws.events())
        return events


@asynccontextmanager
async def websocket_client(url):
    url = urlsplit(url)
    async with await trio.open_tcp_stream(url.hostname, url.port) as stream, trio.open_nursery() as nursery:
        socket = Socket(stream)
        await socket.open(url)
        into, reader = anyio.create_memory_object_stream(0)
        writer, messages = anyio.create_memory_object_stream(0)
        nursery.start_soon(socket.read, into)
        nursery.start_soon(socket.write, messages)
        async with into, reader, writer, messages:
            yield reader, writer
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_sdks_client_does_all_over_websocket(revision):
    async with (
        served() as server,
        connected("websocket", websocket_client(server.url), revision, log_level="warning") as link,
    ):
        for check in CHECKS:
            await check(link)
