"""One HTTP/1.1 request for an application that is called through ASGI."""

import trio

from mcpbus.serving.answer_length import AnswerLength
from mcpbus.serving.asgi_call import RequestLine
from mcpbus.serving.http1.encoder import CHUNKED, CLOSE, CONTINUE, END, encode_chunk, encode_head
from mcpbus.serving.http1.head import RequestHead, fields_of, target_of
from mcpbus.serving.http1.request import Connection
from mcpbus.serving.request_error import RequestError
from mcpbus.transports.answers import HeaderList


def line_of(head: RequestHead) -> RequestLine:
    """What an application is told of a request."""
    version = "1.1" if head.modern else "1.0"
    return RequestLine(version, head.judged.verb, target_of(head), fields_of(head))


class Http1Exchange:
    """An `Exchange` of HTTP/1.1.

    Args:
        connection: The connection.
        read: The head of the request.

    Attributes:
        head: The request before its body, as it is judged.
        started: Whether something of the answer was written.
        ended: Whether all of it was.
        closes: Whether the connection ends with it; the client knows.
        fault: What is wrong with its body, or with who serves it, to be answered instead.
    """

    def __init__(self, connection: Connection, read: RequestHead) -> None:
        self._connection = connection
        self._wire = connection.wire
        self._read = read
        self._said_continue = False
        self._writing = trio.Lock()
        self._unsaid = b""  # a head that waits for what comes after it
        self._chunked = False
        self._length: AnswerLength | None = None  # once the answer has begun
        self._gone = False  # unlike the wire's, not while something is being written
        self.head = read.judged
        self.started = False
        self.ended = False
        self.closes = False
        self.fault: RequestError | None = None

    @property
    def line(self) -> RequestLine:
        """See `Exchange`."""
        return line_of(self._read)

    @property
    def over(self) -> bool:
        """See `Exchange`."""
        return self.ended or self._gone or self.fault is not None or self._wire.closed

    # -- what comes ------------------------------------------------------------------------------

    async def read(self) -> tuple[bytes, bool]:
        """See `Exchange`. A client that sends what is no body is as good as gone."""
        wire, requests = self._wire, self._wire.requests
        if self.ended:
            return b"", False  # what comes now is the next request's
        try:
            body = requests.take_body()
            while not body and requests.body is not None and not self.over:
                await self._say_continue()
                data = await wire.receive()
                if not data:
                    self._leave()
                    return b"", False
                requests.receive(data)
                body = requests.take_body()
        except RequestError as fault:
            if self.started:
                self._leave()
            else:
                self.fault = fault
            return b"", False
        return body, requests.body is None

    def _leave(self) -> None:
        self._gone = self._wire.gone = True

    async def _say_continue(self) -> None:
        """Ask for the body, if its client waits for that."""
        if self._read.expects and not self._said_continue and not self.started:
            self._said_continue = True
            if not self._wire.requests.waiting:
                async with self._writing:
                    if not self.started:  # meanwhile: it would stand in the middle of the answer
                        await self._write(CONTINUE)

    async def disconnected(self) -> None:
        """See `Exchange`."""
        await self._wire.client_left(self._connection.readiness)
        self._gone = True

    # -- what is said ----------------------------------------------------------------------------

    def begin(self, status: int, fields: HeaderList) -> None:
        """See `Exchange`."""
        if self._unsaid or self.started:
            raise RuntimeError("a response has one head")
        self._length = length = AnswerLength(self.head.verb, status, fields)
        measured = length.bodiless or length.left is not None
        self._chunked = not measured and self._read.modern
        framing = CHUNKED if self._chunked else b""
        said = self._wire.say_connection(self._read, said_continue=self._said_continue)
        if said is CLOSE or not (measured or self._chunked):
            self.closes, said = True, CLOSE  # the end of the connection may be the end of the answer
        self._unsaid = encode_head(status, fields, said + framing)
        self._connection.coalescer.add_to_turn(self)

    async def say(self, data: bytes, *, more: bool) -> None:
        """See `Exchange`.

        Raises:
            RuntimeError: The body is not as long as was said.
        """
        async with self._writing:
            assert self._length is not None  # noqa: S101 - a body comes after its head
            data = self._length.take(data, more=more)
            if self._chunked:
                data = encode_chunk(data) if more else encode_chunk(data) + END
            await self._write_with_head(data)
            self.ended = not more

    def write_now(self) -> None:
        """Have the head written, with which nothing has come. See `LateWriter`."""
        if self._unsaid and not self.over:
            self._connection.start(self._write_head)

    def lose(self) -> None:
        """End in the middle of the answer. See `LateWriter`."""
        self._connection.lose()

    async def _write_head(self) -> None:
        async with self._writing:
            if not self.over:
                await self._write_with_head(b"")

    async def _write_with_head(self, data: bytes) -> None:
        data, self._unsaid = self._unsaid + data, b""
        self.started = True
        await self._write(data)

    async def _write(self, data: bytes) -> None:
        # Half of it would corrupt what follows. The stream's own deadline ends this.
        with trio.CancelScope(shield=True):
            await self._wire.send(data)
        self._gone = self._wire.gone
