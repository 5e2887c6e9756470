"""One WebSocket connection from the server's end: bytes in, whole messages out, and the other way round. No input or output here.

wsproto reads frames byte by byte, and can read any. A short text message in one frame, which is nearly all that clients send (RFC 6455,
section 5.2), is read here at once, in a tenth of the time; `Boundaries` says where the next one may begin after something else. wsproto is
there while something else is under way, and writes the frames that change what may follow. The rules are here: how long a message may
become, how many frames may bring nothing, that several pings in one turn get one pong, and how the connection ends.
"""

from collections.abc import Callable, Iterable
from typing import Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from mcpbus.protocol.websocket import CloseCode

_TEXT: Final = 0x81
_FINAL: Final = 0x80
_OPCODE: Final = 0x0F
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_SHORT: Final = 126
"""What a length below says itself; this one is followed by two bytes that say it."""
_LONG: Final = 127
_CLOSE: Final = 8
"""The first opcode of those that are about the connection, and may come within a message."""


def read_text(data: bytes) -> bytes | None:
    """Return the text, if the data is just one frame that is a whole message, in UTF-8 and of less than 64 KiB; None if it is not."""
    if len(data) < 2 + _MASK_BYTES or data[0] != _TEXT or not data[1] & _MASKED:
        return None
    size, mask = data[1] & ~_MASKED, 2
    if size == _SHORT:
        size, mask = int.from_bytes(data[2:4], "big"), 4
        if size < _SHORT:
            return None
    start = mask + _MASK_BYTES
    if size == _LONG or len(data) != start + size:
        return None
    key = (data[mask:start] * (size // _MASK_BYTES + 1))[:size]
    text = (int.from_bytes(data[start:]) ^ int.from_bytes(key)).to_bytes(size)
    try:
        text.decode()
    except UnicodeDecodeError:
        return None
    return text


class Boundaries:
    """Follows bytes that somebody else reads, to where their frames and messages end."""

    __slots__ = ("_begun", "_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._begun = False

    @property
    def between(self) -> bool:
        """Whether the next byte begins a message."""
        return not (self._head or self._left or self._begun)

    def follow(self, data: bytes) -> None:
        """Follow what comes. Where it is not as it may be, whoever reads it ends the connection."""
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            self._head += data[at : at + 1]
            at += 1
            self._look_at_head()

    def _look_at_head(self) -> None:
        head = self._head
        if len(head) < 2:
            return
        size = head[1] & ~_MASKED
        more = {_SHORT: 2, _LONG: 8}.get(size, 0)
        masked = _MASK_BYTES if head[1] & _MASKED else 0
        if len(head) < 2 + more + masked:
            return
        self._left = int.from_bytes(head[2 : 2 + more], "big") if more else size
        self._head = b""
        if head[0] & _OPCODE < _CLOSE:
            self._begun = not head[0] & _FINAL


_MOST_IDLE: Final = 100
"""Frames in a second that bring nothing: pings and pongs, and fragments that leave a message as short as it was, or nearly."""
_SHORT_BYTES: Final = 16
"""What a fragment has to bring at least, if others are to come after it."""


_BINARY: Final = 0x82
"""The first byte of a frame that is a whole message."""
_PING: Final = b"\x89\x00"
"""A frame that asks whether the client is there."""
_PONG: Final = 0x8A
"""The first byte of the answer to such a frame."""


class WebSocketCodec:
    """The frames of one connection.

    Args:
        max_bytes: How long a message of the client may be.
        clock: Tells the time in seconds.
        head: The answer that accepts the upgrade, which is said first.
        data: What the client has sent after its request.
        binary: Whether a message may be binary.

    Attributes:
        is_text: Whether the message that was taken last is text.
        code: What the client has said with its close.
        fault: What the client has done that it must not, if that ended the connection.
        heard: Whether the client has closed, or answered our close: it says nothing more.
        closing: Whether a close has been said, or is about to be; nothing can be said after it.
    """

    __slots__ = (
        "_binary",
        "_boundaries",
        "_clock",
        "_connection",
        "_events",
        "_farewell",
        "_idle",
        "_max_bytes",
        "_pending",
        "_ping",
        "_second",
        "_text",
        "_unfinished",
        "closing",
        "code",
        "fault",
        "heard",
        "is_text",
    )

    def __init__(
        self,
        max_bytes: int,
        clock: Callable[[], float],
        head: bytes = b"",
        data: bytes = b"",
        *,
        binary: bool = False,
    ) -> None:
        # None most of the time: what is kept for a quiet client is a sixth then.
        self._connection: Connection | None = None
        self._events: Iterable[Event] = ()
        self._boundaries: Boundaries | None = None  # of what wsproto has read
        self._text: bytes | None = None  # a message that came as most do
        self._binary = binary
        self._max_bytes = max_bytes
        self._clock = clock
        self._unfinished = bytearray()
        self._idle, self._second = 0, 0.0
        self._ping: Ping | None = None
        self._pending = head
        self._farewell: CloseConnection | None = None
        self.is_text = True
        self.code: int | None = None
        self.fault: CloseCode | None = None
        self.heard = False
        self.closing = False
        if data:
            self._read(data)

    # -- what comes ------------------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """How many bytes have come of a message whose end has not."""
        return len(self._unfinished)

    def receive(self, data: bytes) -> None:
        """Add what has come. What the client does wrong, or sends after a close, `next` finds.

        After a fault nothing is read, a close that answers ours neither: RFC 6455, section 7.1.7, has it so.
        """
        if self.fault is not None or self.heard:
            return
        if not self.closing and (self._boundaries is None or self._boundaries.between):
            self._text = read_text(data)
            if self._text is not None:
                return
        self._read(data)

    def _read(self, data: bytes) -> None:
        """Have wsproto read what has come."""
        connection = self._employ()
        connection.receive_data(data)
        self._events = connection.events()
        if self._boundaries is None:
            self._boundaries = Boundaries()
        self._boundaries.follow(data)

    def _employ(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(ConnectionType.SERVER)
        return self._connection

    def _dismiss(self) -> None:
        """Let go of wsproto if a message may begin next: it then knows nothing that a new one would not."""
        if not self.closing and self._boundaries is not None and self._boundaries.between:
            self._connection = self._boundaries = None
            self._events = ()

    def next(self) -> bytes | None:
        """Take the next message that has come whole, text in UTF-8; None if there is none. To be called until then."""
        if self._text is not None:
            text, self._text, self.is_text = self._text, None, True
            if len(text) > self._max_bytes:
                self._fail(CloseCode.MESSAGE_TOO_BIG)
            return None if self.closing else text
        for event in self._events:
            match event:
                case TextMessage() | BytesMessage() if not self.closing and self._admits(event):
                    message = self._put_together(event)
                    if message is not None:
                        return message
                case CloseConnection():
                    self._end(event)
                case BytesMessage() if not self.closing:
                    self._fail(CloseCode.UNSUPPORTED_DATA)
                case Ping() | Pong() if not self.closing:
                    self._allow()
                    self._ping = event if isinstance(event, Ping) else self._ping
            if self.fault is not None:
                break
        self._dismiss()
        return None

    def _admits(self, event: TextMessage | BytesMessage) -> bool:
        self.is_text = isinstance(event, TextMessage)
        return self.is_text or self._binary

    def _put_together(self, event: TextMessage | BytesMessage) -> bytes | None:
        """Add a piece of a message; return the message if that is all of it."""
        unfinished = self._unfinished
        piece = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
        if len(unfinished) + len(piece) > self._max_bytes:
            self._fail(CloseCode.MESSAGE_TOO_BIG)
        elif not event.message_finished:
            unfinished += piece
            if event.frame_finished and len(piece) < _SHORT_BYTES:
                self._allow()
        elif unfinished:
            message = bytes(unfinished + piece)
            unfinished.clear()
            return message
        else:
            return piece
        return None

    def _allow(self) -> None:
        """Count a frame that brings nothing."""
        now = self._clock()
        if now >= self._second + 1:
            self._second, self._idle = now, 0
        self._idle += 1
        if self._idle > _MOST_IDLE:
            self._fail(CloseCode.POLICY_VIOLATION)

    def _end(self, event: CloseConnection) -> None:
        state = self._employ().state
        if state is ConnectionState.OPEN:  # the client has not closed: what it sent could not be read
            self._fail(CloseCode(event.code))
            return
        self.heard, self.code = True, event.code
        if state is ConnectionState.REMOTE_CLOSING:
            self._close(event.response())

    def _fail(self, code: CloseCode) -> None:
        self.fault = code
        self.close(code)

    # -- what is said ----------------------------------------------------------------------------

    def close(self, code: CloseCode) -> None:
        """Say that the connection ends, after what was said; harmless if that was said."""
        self.say_farewell(code, code.reason)

    def say_farewell(self, code: int, reason: str) -> None:
        """Say in these words that the connection ends, after what was said; harmless if that was said."""
        if not self.closing:
            self._close(CloseConnection(code, reason))

    def _close(self, farewell: CloseConnection) -> None:
        self.closing = True
        self._unfinished.clear()
        self._farewell = farewell

    def ping(self) -> None:
        """Ask whether the client is there."""
        if not self.closing:
            self._pending += _PING

    @property
    def speaks(self) -> bool:
        """Whether there is something to be said beside messages."""
        return bool(self._pending) or self._ping is not None or self._farewell is not None

    def encode(self, messages: Iterable[bytes], *, binary: bool = False) -> bytes:
        """The bytes of so many messages, and of all else that is to be said with them. After a close, ours or the client's, messages are not said."""
        data, self._pending = self._pending, b""
        ping, self._ping = self._ping, None
        farewell, self._farewell = self._farewell, None
        connection = self._connection
        if connection is None or connection.state is ConnectionState.OPEN:
            if ping is not None:
                data += _frame(_PONG, bytes(ping.payload))
            opcode = _BINARY if binary else _TEXT
            data += b"".join([_frame(opcode, message) for message in messages])
        return data if farewell is None else data + self._employ().send(farewell)


def _frame(first: int, payload: bytes) -> bytes:
    """A frame, which is not masked (RFC 6455, section 5.2)."""
    size = len(payload)
    if size < 126:
        return b"%c%c%b" % (first, size, payload)
    if size < 65_536:
        return b"%c\x7e%b%b" % (first, size.to_bytes(2, "big"), payload)
    return b"%c\x7f%b%b" % (first, size.to_bytes(8, "big"), payload)
