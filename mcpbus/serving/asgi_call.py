"""An application that is called through ASGI: for one HTTP request, whichever version of HTTP it came with."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol
from urllib.parse import unquote

import attrs
import trio

from mcpbus.serving.answer_length import ContentLengthCheck
from mcpbus.serving.asgi import AsgiApp, Message, Scope
from mcpbus.serving.deadline_stream import DeadlineStream
from mcpbus.transports.answers import HeaderList

_OF_THE_SERVER: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"date"}
)
"""Fields that say how an answer is sent, and when: not for an application to say."""

Address = tuple[str, int] | None


@attrs.frozen
class RequestLine:
    """What an application is told of a request before its body.

    Attributes:
        version: The version of HTTP.
        method: The HTTP method.
        target: What was asked for, as it came.
        fields: The header fields one by one, their names in lower case.
    """

    version: str
    method: str
    target: bytes
    fields: list[tuple[bytes, bytes]]


@attrs.frozen
class ConnectionScope:
    """What the scopes of all requests of one connection have in common.

    Attributes:
        client: The client's address.
        server: Our own.
        secure: Whether the connection is encrypted.
        state: What the application's lifespan left.
    """

    client: Address
    server: Address
    secure: bool
    state: dict[str, object]

    def describe(self, line: RequestLine) -> Scope:
        """Describe a request, as ASGI has it."""
        path, _, query = line.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": line.version,
            "method": line.method,
            "scheme": "https" if self.secure else "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": line.fields,
            "client": self.client,
            "server": self.server,
            "state": dict(self.state),
            "extensions": {},
        }


def scope_of(stream: trio.abc.Stream, state: dict[str, object]) -> ConnectionScope:
    """Describe a connection."""
    client = server = None
    secure = False
    if isinstance(stream, DeadlineStream):
        secure = stream.secure
        with suppress(OSError):
            client, server = _address(stream.socket.getpeername()), _address(stream.socket.getsockname())
    return ConnectionScope(client, server, secure, state)


def _address(address: Any) -> Address:
    return (address[0], address[1]) if isinstance(address, tuple) else None


def for_the_wire(fields: Iterable[Sequence[bytes]]) -> HeaderList:
    """The fields of an answer as an application gives them, without those that are the server's to say."""
    lowered = [(bytes(name).lower(), bytes(value)) for name, value in fields]
    return [field for field in lowered if field[0] not in _OF_THE_SERVER]


class HttpExchange(Protocol):
    """One HTTP request and its answer, as whoever calls an application sees it."""

    @property
    def line(self) -> RequestLine:
        """What the application is told of the request."""

    @property
    def over(self) -> bool:
        """Whether nothing more can be said: it was said whole, or the client has gone."""

    async def read(self) -> tuple[bytes, bool]:
        """Wait for more of the body; returns what has come, and whether that was the last of it. Nothing once the client has gone."""

    async def disconnected(self) -> None:
        """Wait until the client has gone."""

    def begin(self, status: int, fields: HeaderList, /, *, measured: bool) -> None:
        """Say the head of the answer, which is written together with what is said in this turn of the scheduler.

        Args:
            status: The HTTP status.
            fields: Its header fields.
            measured: Whether they say where the body ends.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """

    async def say(self, data: bytes, /, *, more: bool) -> None:
        """Say a piece of the body, and wait until it is written, or cannot be."""


class AsgiCall:
    """Calls an application for a request.

    Args:
        app: The application.
        exchange: The request.
        connection: What is the same for all requests of its connection.
    """

    def __init__(self, app: AsgiApp, exchange: HttpExchange, connection: ConnectionScope) -> None:
        self._app = app
        self._exchange = exchange
        self._connection = connection
        self._method = ""
        self._length: ContentLengthCheck | None = None  # once the answer has begun
        self._read = False
        self._receiving = trio.Lock()
        self._waiting = trio.CancelScope()

    async def run(self) -> None:
        """Call it.

        Raises:
            RuntimeError: It has not answered.
        """
        line = self._exchange.line
        self._method = line.method
        await self._app(self._connection.describe(line), self._receive, self._send)
        if self._length is None and not self._exchange.over:
            raise RuntimeError("the application returned without an answer")

    async def _receive(self) -> Message:
        exchange = self._exchange
        async with self._receiving:
            if not self._read:
                data, ended = await exchange.read()
                if data or ended:
                    self._read = ended
                    return {"type": "http.request", "body": data, "more_body": not ended}
            with trio.CancelScope() as self._waiting:
                if not exchange.over:
                    await exchange.disconnected()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        # What is said changes the connection's state, so this is the place to be cancelled: before.
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._exchange.over:
            await trio.lowlevel.checkpoint()  # nobody hears of it, and a loop would never end
        elif message["type"] == "http.response.start":
            if self._length is not None:
                raise RuntimeError("a response has one head")
            status, fields = message["status"], for_the_wire(message.get("headers", ()))
            length = ContentLengthCheck(self._method, status, fields)
            self._exchange.begin(status, fields, measured=length.measured)
            self._length = length
        elif message["type"] == "http.response.body":
            if self._length is None:
                raise RuntimeError("a response begins with http.response.start")
            more = message.get("more_body", False)
            await self._exchange.say(self._length.take(message.get("body", b""), more=more), more=more)
            if not more:
                self._waiting.cancel()
