"""One WebSocket for an application that is called through ASGI, from the request that asks for it to its end."""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import Final, Protocol

import trio

from mcpbus.core.containment import ReportErrors
from mcpbus.protocol.websocket import FAREWELL_SECONDS, CloseCode
from mcpbus.serving.answer_length import ContentLengthCheck
from mcpbus.serving.asgi import AsgiApp, Message, Scope
from mcpbus.serving.asgi_call import for_the_wire
from mcpbus.serving.websocket.frames import WebSocketCodec
from mcpbus.transports.answers import HeaderList

_MAX_BYTES: Final = 16 * 1024 * 1024
"""How long a message of the client may be."""
_MOST_WAITING: Final = 10
_MOST_WAITING_BYTES: Final = 64 * 1024
"""How many messages, and bytes of them, may wait for the application before no more is read."""
_UNANSWERED: Final = 2
"""How many pings in a row a client may leave unanswered."""
_ABNORMAL: Final = 1006
"""That the connection ended without a word (RFC 6455, section 7.4.1)."""


class WebSocketRequest(Protocol):
    """A request for a WebSocket: what answers it, and carries the WebSocket if it is accepted."""

    @property
    def subprotocols(self) -> Sequence[str]:
        """Those that the client offers."""

    async def receive(self) -> bytes | None:
        """Wait for what the client sends; nothing once it has gone."""

    async def send(self, data: bytes, /) -> None:
        """Send to the client, if it is there."""

    def accept(self, subprotocol: str | None, fields: HeaderList, /) -> None:
        """Accept it; that goes out with what is sent first.

        Args:
            subprotocol: The one that is selected, if there is one.
            fields: Further fields.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """

    def refuse(self, status: int, fields: HeaderList, /) -> None:
        """Begin to refuse it; the head goes out with the first piece of the body.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """

    async def say(self, data: bytes, /, *, more: bool) -> None:
        """Say a piece of the body of a refusal, if the client is there."""


class _WebSocketState(Enum):
    ASKED = auto()
    """The request is not answered yet."""
    OPEN = auto()
    REFUSING = auto()
    """It is being answered in HTTP."""
    OVER = auto()


class AsgiWebSocketCall:
    """Calls an application for a WebSocket.

    Args:
        app: The application.
        opening: What the client asks for, and over what.
        early: Whether it has said more already, without waiting for the answer.
        ping_seconds: How long the connection may be quiet before the client is asked whether it is there.

    Attributes:
        opened: Whether there was one; otherwise the request was answered in HTTP.
    """

    def __init__(self, app: AsgiApp, opening: WebSocketRequest, *, early: bool, ping_seconds: float) -> None:
        self._app = app
        self._opening = opening
        self._early = early
        self._ping_seconds = ping_seconds
        self._state = _WebSocketState.ASKED
        self._frames = WebSocketCodec(_MAX_BYTES, trio.current_time, binary=True)
        self._said_connect = False
        self._messages: deque[tuple[Message, int]] = deque()
        self._waiting = 0  # bytes of them
        self._changed = trio.lowlevel.ParkingLot()
        self._code: int | None = None  # with which the connection has ended
        self._writing = trio.Lock()
        self._length: ContentLengthCheck | None = None  # of a refusal
        self.opened = False

    async def run(self, scope: Scope, report: Callable[[BaseException], None]) -> None:
        """Call the application, and serve the WebSocket to its end. One that the application leaves without an answer is refused.

        Args:
            scope: What it is told of the request; the rest is added.
            report: Told what it raises.
        """
        scope["subprotocols"] = list(self._opening.subprotocols)
        scope["extensions"] = {"websocket.http.response": {}}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            with ReportErrors(report):
                await self._app(scope, self._receive, self._send)
            if self._state is _WebSocketState.ASKED and self._code is None:
                await self._answer(500)
            elif self._state is _WebSocketState.OPEN:
                await self._close(CloseCode.INTERNAL_ERROR, "")
            self._state = _WebSocketState.OVER
            patience = FAREWELL_SECONDS if self.opened else 0
            nursery.cancel_scope.deadline = trio.current_time() + patience

    # -- what comes ------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Take what the client sends, until it has left."""
        frames, unanswered = self._frames, 0
        if self._early:
            await self._refuse_early()
        while not self._early and not frames.heard:
            with trio.move_on_after(self._ping_seconds) as quiet:
                data = await self._opening.receive()
            if quiet.cancelled_caught:
                unanswered += 1
                if unanswered > _UNANSWERED:
                    break
                await self._ping()
                continue
            if not data:
                break
            unanswered = 0
            if self._state is _WebSocketState.ASKED:
                await self._refuse_early()
                break
            if self.opened:  # what comes while it is refused is no frame, nor to be answered in one
                await self._take(data)
        self._leave(frames.code or _ABNORMAL)

    async def _ping(self) -> None:
        if self._state is _WebSocketState.OPEN:
            self._frames.ping()
            await self._say()

    async def _take(self, data: bytes) -> None:
        frames = self._frames
        frames.receive(data)
        while (message := frames.next()) is not None:
            said = {"text": message.decode()} if frames.is_text else {"bytes": message}
            self._messages.append(({"type": "websocket.receive", **said}, len(message)))
            self._waiting += len(message)
            self._changed.unpark_all()
            while self._is_full() and self._state is _WebSocketState.OPEN:
                await self._changed.park()
        if frames.speaks:
            await self._say()
        if frames.fault is not None:
            self._leave(frames.fault)

    def _is_full(self) -> bool:
        return len(self._messages) >= _MOST_WAITING or self._waiting >= _MOST_WAITING_BYTES

    def _leave(self, code: int) -> None:
        """Tell the application, after what has come, that nothing more will."""
        if self._code is None:
            self._code = code
            self._changed.unpark_all()

    async def _refuse_early(self) -> None:
        """Refuse a client that speaks before it is answered."""
        self._state = _WebSocketState.OVER
        await self._answer(400)

    async def _receive(self) -> Message:
        await trio.lowlevel.checkpoint()
        if not self._said_connect:
            self._said_connect = True
            return {"type": "websocket.connect"}
        while not self._messages and self._code is None:
            await self._changed.park()
        if not self._messages:
            return {"type": "websocket.disconnect", "code": self._code, "reason": ""}
        message, size = self._messages.popleft()
        self._waiting -= size
        self._changed.unpark_all()
        return message

    # -- what is said ----------------------------------------------------------------------------

    async def _send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        say = self._SAYINGS.get((self._state, message["type"]))
        if say is not None:
            await say(self, message)
        elif self._state is _WebSocketState.OVER or self._code is not None:
            await trio.lowlevel.checkpoint()  # nobody hears of it, and a loop would never end
        else:
            raise RuntimeError(f"{message['type']} cannot be said here")

    async def _accept(self, message: Message) -> None:
        fields = for_the_wire(message.get("headers", ()))
        self._opening.accept(message.get("subprotocol"), fields)
        self._state, self.opened = _WebSocketState.OPEN, True
        await self._write(self._opening.send(b""))

    async def _say_message(self, message: Message) -> None:
        data = message.get("bytes")
        if data is None:
            await self._say(message["text"].encode())
        else:
            await self._say(bytes(data), binary=True)

    async def _end(self, message: Message) -> None:
        self._state = _WebSocketState.OVER
        await self._close(message.get("code", CloseCode.NORMAL), message.get("reason") or "")

    async def _close(self, code: int, reason: str) -> None:
        self._frames.say_farewell(code, reason)
        self._leave(code)
        await self._say()

    async def _refuse(self, _message: Message) -> None:
        self._state = _WebSocketState.OVER
        await self._answer(403)

    async def _begin_refusal(self, message: Message) -> None:
        status, fields = message["status"], for_the_wire(message.get("headers", ()))
        self._length = ContentLengthCheck("GET", status, fields)
        self._opening.refuse(status, fields)
        self._state = _WebSocketState.REFUSING

    async def _go_on_refusing(self, message: Message) -> None:
        assert self._length is not None  # noqa: S101 - it was said with the head
        more = message.get("more_body", False)
        data = self._length.take(message.get("body", b""), more=more)
        if not more:
            self._state = _WebSocketState.OVER
        await self._write(self._opening.say(data, more=more))

    async def _answer(self, status: int) -> None:
        """Refuse it without a word."""
        self._opening.refuse(status, [(b"content-length", b"0")])
        await self._write(self._opening.say(b"", more=False))

    _SAYINGS: Final[
        dict[tuple[_WebSocketState, str], Callable[["AsgiWebSocketCall", Message], Awaitable[None]]]
    ] = {
        (_WebSocketState.ASKED, "websocket.accept"): _accept,
        (_WebSocketState.ASKED, "websocket.close"): _refuse,
        (_WebSocketState.ASKED, "websocket.http.response.start"): _begin_refusal,
        (_WebSocketState.REFUSING, "websocket.http.response.body"): _go_on_refusing,
        (_WebSocketState.OPEN, "websocket.send"): _say_message,
        (_WebSocketState.OPEN, "websocket.close"): _end,
    }

    async def _say(self, *messages: bytes, binary: bool = False) -> None:
        await self._write(self._opening.send(self._frames.encode(messages, binary=binary)))

    async def _write(self, sending: Coroutine[None, None, None]) -> None:
        # Half of it would corrupt what follows. The stream's own deadline ends this.
        with trio.CancelScope(shield=True):
            async with self._writing:
                await sending
