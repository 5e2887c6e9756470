"""Where a client hears the server: one HTTP exchange, or one connection that carries everything."""

import json
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import DisconnectedError
from mcpbus.client.pending import PendingRequest
from mcpbus.client.session import Message
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    RequestId,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from mcpbus.testing import Recording
from mcpbus.transports.lines import run_channel


class Ear:
    """What all of them have in common.

    Attributes:
        client: Whose it is; None while nobody knows.
        purpose: What it was opened for: "post", "get", "listen", or "all" for a connection.
        root: The ear that this one goes on for; itself, if it is the first of its stream.
        sents: The requests whose answers belong here, by id and its type.
        scanned: How many messages the world has looked at.
        since: When it was opened.
    """

    client: Any = None
    purpose = "all"
    root: "Ear"

    def __init__(self) -> None:
        self.root = self
        self.sents: dict[tuple[type, Any], Any] = {}
        self.scanned = 0
        self.since = trio.current_time()

    def expect(self, sent: Any) -> None:
        self.sents[type(sent.id), sent.id] = sent


class HttpEar(Ear):
    """One HTTP exchange.

    Attributes:
        after: The Last-Event-ID with which it was opened.
        known: Whether all that its stream had said by then was kept.
        rivals: The exchanges on which its client came back to the same stream while this one was open, or at the same moment.
    """

    purpose = "other"

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording
        self.after: str | None = None
        self.known = False
        self.rivals: list[HttpEar] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.recording.messages

    @property
    def over(self) -> bool:
        return self.recording.over

    @property
    def deaf(self) -> bool:
        """Whether its connection ended in a way that can lose what had been written."""
        return self.recording.disconnected or self.recording.aborted

    @property
    def stalled(self) -> bool:
        return self.recording.stalled

    def stall(self) -> None:
        self.recording.stall()

    def resume(self) -> None:
        self.recording.resume()

    def cut(self) -> None:
        self.recording.disconnect()

    def events(self) -> list[tuple[str | None, bytes, bool]]:
        """The events of its stream: the id, the data, and whether it says when to come back."""
        if not self.recording.is_stream:
            return []
        events = []
        for block in self.recording.body.split(b"\n\n")[:-1]:
            fields = dict(line.partition(b": ")[::2] for line in block.split(b"\n"))
            if b"data" in fields:
                name = fields.get(b"id")
                events.append((None if name is None else name.decode(), fields[b"data"], b"retry" in fields))
        return events


class ChannelEar(Ear):
    """A connection that carries everything, down to the messages.

    Attributes:
        over: Whether the server has let go of it, or refused it.
        refused: Whether the server took it at all.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []
        self.over = False
        self.refused = False
        self.deaf = False
        self._nursery = nursery
        self._reads = trio.Event()
        self._reads.set()

    @property
    def stalled(self) -> bool:
        return not self._reads.is_set()

    def stall(self) -> None:
        self._reads = trio.Event()

    def resume(self) -> None:
        self._reads.set()

    async def hear(self, data: bytes) -> None:
        """Take lines of the server's, once the client reads."""
        await self._reads.wait()
        if self.deaf:
            raise trio.BrokenResourceError
        self.messages += [json.loads(line) for line in data.splitlines()]


class LineEar(ChannelEar):
    """A channel of lines, such as stdio."""

    async def open(self, bus: Any, principal: str) -> None:
        self._sender, receiver = trio.open_memory_channel[bytes](1000)

        async def serve() -> None:
            try:
                await run_channel(bus, receiver, self.hear, principal)
            except Exception:  # noqa: BLE001 - whether it may refuse is judged by who connects
                self.refused = True
            self.over = True
            receiver.close()

        self._nursery.start_soon(serve)

    def say(self, message: dict[str, Any]) -> bool:
        """Send a message, and return whether it was taken."""
        try:
            self._sender.send_nowait(json.dumps(message).encode() + b"\n")
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    def leave(self) -> None:
        self._sender.close()

    def cut(self) -> None:
        self.deaf = True
        self.resume()
        self._sender.close()


class SseEar(HttpEar):
    """The stream of HTTP+SSE; what its client says is POSTed beside it."""

    purpose = "all"
    refused = False

    def __init__(self, recording: Recording, post: Callable[..., Any]) -> None:
        super().__init__(recording)
        self._post = post

    def say(self, message: dict[str, Any]) -> bool:
        if self.over or self.recording.endpoint is None:
            return False
        self._post(json.dumps(message).encode(), self.recording.endpoint)
        return True

    def leave(self) -> None:
        self.cut()


class SocketEar(ChannelEar):
    """A WebSocket, as an ASGI server shows it to its application."""

    async def open(self, app: Any, principal: str) -> None:
        self._into, self._frames = trio.open_memory_channel[dict[str, Any]](1000)
        headers = [(b"host", b"localhost"), (b"authorization", principal.encode())]
        scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": "/mcp",
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "subprotocols": ["mcp"],
            "extensions": {"websocket.http.response": {}},
        }

        async def serve() -> None:
            await app(scope, self._frames.receive, self._send)
            self.over = True

        self._into.send_nowait({"type": "websocket.connect"})
        self._nursery.start_soon(serve)

    async def _send(self, message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "websocket.http.response.start":
            self.refused = True
        elif message["type"] == "websocket.send":
            if not self.deaf:
                await self._reads.wait()
            if not self.deaf:
                self.messages.append(json.loads(message["text"]))
        elif message["type"] == "websocket.close":
            self.leave()

    def say(self, message: dict[str, Any]) -> bool:
        try:
            self._into.send_nowait({"type": "websocket.receive", "text": json.dumps(message)})
        except trio.WouldBlock:
            return False
        return not self.over

    def leave(self) -> None:
        self.deaf = True
        self.resume()
        self._into.send_nowait({"type": "websocket.disconnect", "code": 1000})

    def cut(self) -> None:
        self.leave()


class MemoryEar(ChannelEar):
    """A client in process: what goes over its connection both ways is seen on the way.

    Attributes:
        client_end: The client, once it is connected.
        on_sent: Called with each message that it sends.
    """

    client_end: "Overheard"
    on_sent: Callable[[dict[str, Any]], object]

    def stall(self) -> None:
        """Do nothing: a program that is told something in its own process cannot put it off."""

    def note(self, data: bytes) -> None:
        """Take a message of the server's."""
        if not self.deaf:
            self.messages.append(json.loads(data))

    async def open(self, bus: Any, revision: str, principal: str, **options: Any) -> None:
        self._left, self.scope = trio.Event(), trio.CancelScope()
        self.on_sent = lambda _: None

        async def serve() -> None:
            with self.scope:
                Overheard.opening = self
                try:
                    async with bus.connect(
                        revision=revision, principal=principal, **options
                    ) as self.client_end:
                        await self._left.wait()
                except* (ProtocolError, DisconnectedError):
                    self.refused = True
            self.over = True

        self._nursery.start_soon(serve)

    def leave(self) -> None:
        self._left.set()

    def cut(self) -> None:
        self.deaf = True
        self.resume()
        self.scope.cancel()


class Overheard(Client):
    """A client in process, with an ear that hears what it hears and says; to be put in the place of `Client`.

    An answer that comes straight from the server is heard too, as the message that it would be on a wire.
    """

    opening: ClassVar[MemoryEar]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.ear = self.opening

    def receive(self, data: bytes, owner: PendingRequest | None = None) -> None:
        self.ear.note(data)
        super().receive(data, owner)

    def disconnected(self) -> None:
        super().disconnected()
        self.ear.over = True

    def answered(self, request_id: RequestId, result: bytes | ProtocolError) -> None:
        failed = isinstance(result, ProtocolError)
        self.ear.note(encode_error(request_id, result) if failed else encode_result(request_id, result))
        super().answered(request_id, result)

    def _send(self, message: Message, pending: PendingRequest | None = None) -> None:
        self.ear.on_sent(json.loads(written(message)))
        super()._send(message, pending)


def written(message: Message) -> bytes:
    """Encode a message of a client in process, as it would be on a wire."""
    if isinstance(message, JsonRpcRequest):
        return encode_request(message.id, message.method, message.params)
    if isinstance(message, JsonRpcNotification):
        return encode_notification(message.method, message.params)
    if message.error is None:
        return encode_result(message.id, bytes(message.result))
    error = message.error
    data = None if error.data is msgspec.UNSET else msgspec.json.decode(error.data)
    return encode_error(message.id, ProtocolError(error.code, error.message, data))
