"""A stream of HTTP/2 that carries a WebSocket (RFC 8441): its bytes are those of a connection, its end is that connection's."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio
from mcpbus_actors import EagerTask

from mcpbus.serving.http2.request import Http2Request
from mcpbus.serving.reactor import Turn
from mcpbus.serving.websocket.connection import WebSocketConnection
from mcpbus.serving.write_coalescer import WriteCoalescer
from mcpbus.serving.writer import Writer


class Connection(Protocol):
    """The connection of a stream.

    Attributes:
        coalescer: Has what is said written later.
    """

    coalescer: WriteCoalescer

    @property
    def in_turn(self) -> bool:
        """Whether a turn is under way, of this connection or of another one."""

    def write_now(self) -> None:
        """Write what was said, as far as that takes no time."""

    def start(self, request: Http2Request, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a task that works for a request."""


class _Piece:
    """Something that was said, until it is known what came of it."""

    __slots__ = ("known", "whole")

    def __init__(self) -> None:
        self.known = trio.Event()
        self.whole = False

    def sent(self, whole: bool) -> None:
        self.whole = whole
        self.known.set()


class Tunnel:
    """A `Carrier`, as long as its request lasts.

    Args:
        connection: The connection.
        request: The request that asked for it.
        speaker: Makes who speaks there.
    """

    __slots__ = ("_connection", "_piece", "_request", "_speaker", "_turn")

    def __init__(
        self,
        connection: Connection,
        request: Http2Request,
        speaker: Callable[["Tunnel"], WebSocketConnection],
    ) -> None:
        self._connection = connection
        self._request = request
        self._turn: Turn | None = None
        self._piece = _Piece()
        self._speaker: WebSocketConnection | None = speaker(self)
        request.tunnel = self

    def begin(self, seconds: float) -> None:
        """Begin to speak; the client has been told, and may be quiet for so many seconds. No schedule point."""
        self.quiet_for(seconds)
        if self._speaker is not None:
            self._speaker.begin()

    # -- for its request -------------------------------------------------------------------------

    def take(self) -> EagerTask | None:
        """Have a turn taken for what has come, if one is wanted."""
        eager = None if self._turn is None else self._turn()
        if self._turn is not None and self._request.body.over:  # nothing more comes that could tell of it
            self.start(self._take_end)
        return eager

    async def _take_end(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._turn is not None:
            self._turn()

    def keep_alive(self) -> None:
        """Tell that it has been quiet for as long as it may be."""
        if self._speaker is not None:
            self._speaker.keep_alive()

    def lose(self) -> None:
        """Tell that the stream has gone."""
        self._turn = None
        # They know each other, and should not wait for the garbage collector.
        speaker, self._speaker = self._speaker, None
        if speaker is not None:
            speaker.cancel()

    # -- what comes ------------------------------------------------------------------------------

    def watch(self, turn: Turn) -> bool:
        """See `Carrier`. What is there already is to be received."""
        body = self._request.body
        if body or body.over:
            return False
        self._turn = turn
        return True

    def forget(self) -> None:
        """See `Carrier`."""
        self._turn = None

    @property
    def scope(self) -> trio.CancelScope:
        """See `Carrier`."""
        return self._request.scope

    def receive_now(self) -> bytes | None:
        """See `Carrier`."""
        body = self._request.body
        return body.take() if body or body.over else None

    async def receive(self) -> bytes:
        """See `Carrier`."""
        await trio.lowlevel.checkpoint()
        await self._request.body.more()
        return self._request.body.take()

    # -- what is said ----------------------------------------------------------------------------

    @property
    def in_turn(self) -> bool:
        """See `Carrier`."""
        return self._connection.in_turn

    def write_later(self, writer: Writer) -> None:
        """See `Carrier`."""
        self._connection.coalescer.add_to_turn(writer)

    def send_now(self, data: bytes) -> bytes | None:
        """See `Carrier`. What the windows or the connection hold up is said all the same: `send` waits for it, and says nothing."""
        self._piece = piece = _Piece()
        self._request.answering.say(data, last=False, sent=piece.sent)
        self._connection.write_now()
        if not piece.known.is_set():
            return data
        return b"" if piece.whole else None

    async def send(self, data: bytes) -> bool:  # noqa: ARG002
        """See `Carrier`."""
        piece = self._piece
        await piece.known.wait()
        return piece.whole

    # -- time, and the end -----------------------------------------------------------------------

    def quiet_for(self, seconds: float) -> None:
        """See `Carrier`."""
        self._request.wake_at(trio.current_time() + seconds)

    def start(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Carrier`."""
        self._connection.start(self._request, function, *args)

    def fail(self, failure: BaseException) -> None:
        """See `Carrier`."""
        self._request.fail(failure)

    def close(self) -> None:
        """See `Carrier`."""
        self._turn = self._speaker = None
        self._request.hang_up()
