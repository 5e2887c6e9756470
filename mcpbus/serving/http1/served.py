"""One request of HTTP/1.1 that is served, by whom ever: how its answer begins, and what its pieces look like."""

import msgspec

from mcpbus.protocol.http.messages import RequestHead
from mcpbus.serving.http1.encoder import CHUNKED, CLOSE, END, KEEP, encode_chunk, encode_head
from mcpbus.serving.http1.head import Http1RequestHead
from mcpbus.serving.http1.wire import ConnectionIO
from mcpbus.serving.request_error import RequestError
from mcpbus.transports.answers import HeaderList


class ResponseFraming(msgspec.Struct, eq=False, kw_only=True):
    """What an endpoint's request and an application's have in common.

    Args:
        wire: The bytes of the connection.
        read: The head, with what only HTTP/1.1 wants to know of it.

    Attributes:
        head: The request before its body, as it is judged.
        started: Whether something of the answer was written.
        ended: Whether all of it was.
        closes: Whether the connection ends with it; the client knows.
        fault: What is wrong with its body, or with who serves it, to be answered instead.
    """

    _wire: ConnectionIO
    head: RequestHead
    _read: Http1RequestHead
    _said_continue: bool = False  # to a client that waits for that before it sends the body
    _chunked: bool = False
    _unsaid: bytes = b""  # a head that waits for what comes after it
    started: bool = False
    ended: bool = False
    closes: bool = False
    fault: RequestError | None = None

    def begin_pieces(self, status: int, fields: HeaderList, *, measured: bool) -> None:
        """Begin an answer in pieces; its head goes out with the first one.

        Args:
            status: The HTTP status.
            fields: Its header fields.
            measured: Whether they say where it ends.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """
        self._chunked = not measured and self._read.modern
        if not (measured or self._chunked):
            self.closes = True  # the end of the connection is the end of the answer
        framing = self.say_connection()
        self._unsaid = encode_head(status, fields, framing + CHUNKED if self._chunked else framing)

    def encode_piece(self, data: bytes, *, more: bool) -> bytes:
        """A piece of an answer, the last one unless `more`."""
        if self._chunked:
            data = encode_chunk(data) if more else encode_chunk(data) + END
        if self._unsaid:
            data, self._unsaid = self._unsaid + data, b""
        self.started = True
        return data

    def say_connection(self) -> bytes:
        """What the answer says of the connection, as a line of its head: nothing, `KEEP`, or `CLOSE` if it ends the connection.

        It is decided when the head is made.
        """
        head, wire = self._read, self._wire
        body = wire.requests.body
        if body is None and head.keeps and head.modern and not wire.retired:
            return b""  # as nearly always
        # The client may send this body or not, or it is too long to wait for its end.
        endless = body is not None and (
            (head.expects and not self._said_continue) or body.left > wire.options.unread_body_bytes
        )
        if endless or self.closes or wire.retired or not head.keeps:
            self.closes = True
            return CLOSE
        return b"" if head.modern else KEEP
