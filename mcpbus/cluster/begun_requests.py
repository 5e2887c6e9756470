"""Requests of which a part is over already, as whoever goes on with them has them."""

import trio

from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.transports.answers import HeaderList
from mcpbus.transports.outlets import HttpRequest, InlineRunner


class BufferedRequest:
    """An `HttpRequest` whose body has been read.

    Args:
        http: The request.
        body: Its body; None if that is too long.
        host: Who runs its handler; see `HttpRequest`.
    """

    def __init__(self, http: HttpRequest, body: bytes | None, host: InlineRunner | None) -> None:
        self.head = http.head
        self.peer = http.peer
        self.bounds_writes = http.bounds_writes
        self.give_up = http.give_up
        self.head_validated = http.head_validated
        self.host = host
        self.answer = http.answer
        self.start_stream = http.start_stream
        self.write = http.write
        self.disconnected = http.disconnected
        self._body = body

    async def read_body(self, limit: int) -> bytes | None:
        """See `HttpRequest`."""
        await trio.lowlevel.checkpoint()
        return None if self._body is None or len(self._body) > limit else self._body


class ContinuedRequest(BufferedRequest):
    """An `HttpRequest` whose answer has begun, and is a stream that somebody else goes on with.

    Args:
        http: The request, which has no body.
    """

    def __init__(self, http: HttpRequest) -> None:
        super().__init__(http, b"", None)
        self.answer = self._answer
        self.start_stream = self._go_on

    async def _answer(self, reply: HttpResponse) -> None:  # noqa: ARG002 - as `HttpRequest` has it
        raise trio.BrokenResourceError("nobody can go on with this stream")

    async def _go_on(self, headers: HeaderList) -> None:  # noqa: ARG002
        await trio.lowlevel.checkpoint()
