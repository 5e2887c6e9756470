"""One HTTP/1.1 request for an application that is called through ASGI."""

import msgspec
import trio

from mcpbus.protocol.http.messages import RequestHead
from mcpbus.serving.asgi import RequestLine
from mcpbus.serving.http1.connection_io import ConnectionIO
from mcpbus.serving.http1.encoder import CONTINUE
from mcpbus.serving.http1.head import Http1RequestHead, fields_of, target_of
from mcpbus.serving.http1.request import Http1RequestConnection, ResponseFraming
from mcpbus.serving.request_error import RequestError
from mcpbus.transports.responses import HeaderList


def line_of(head: Http1RequestHead) -> RequestLine:
    """What an application is told of a request."""
    version = "1.1" if head.modern else "1.0"
    return RequestLine(version, head.judged.verb, target_of(head), fields_of(head))


class Http1Exchange(ResponseFraming, eq=False):
    """An `Exchange` of HTTP/1.1.

    Args:
        connection: The connection.
    """

    # As in `Http1Request`.
    _wire: ConnectionIO
    head: RequestHead
    _read: Http1RequestHead
    _connection: Http1RequestConnection
    _writing: trio.Lock = msgspec.field(default_factory=trio.Lock)
    _gone: bool = False  # unlike the wire's, not while something is being written

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

    def begin(self, status: int, fields: HeaderList, *, measured: bool) -> None:
        """See `Exchange`."""
        self.begin_pieces(status, fields, measured=measured)
        self._connection.service.coalescer.add_in_turn(self)

    async def say(self, data: bytes, *, more: bool) -> None:
        """See `Exchange`."""
        async with self._writing:
            await self._write(self.encode_piece(data, more=more))
            self.ended = not more

    def write_now(self) -> None:
        """Have the head written, with which nothing has come. See `CoalescedWriter`."""
        if self._unsaid and not self.over:
            self._connection.start(self._write_head)

    def lose(self) -> None:
        """End in the middle of the answer. See `CoalescedWriter`."""
        self._connection.lose()

    async def _write_head(self) -> None:
        async with self._writing:
            if self._unsaid and not self.over:
                await self._write(self.encode_piece(b"", more=True))

    async def _write(self, data: bytes) -> None:
        # Half of it would corrupt what follows. The stream's own deadline ends this.
        with trio.CancelScope(shield=True):
            await self._wire.send(data)
        self._gone = self._wire.gone
