"""One HTTP/2 request for an application that is called through ASGI."""

from collections.abc import Callable
from functools import partial

import trio

from mcpbus.serving.asgi_call import RequestLine
from mcpbus.serving.http2.request import Http2Request
from mcpbus.transports.answers import HeaderList


class Http2Exchange:
    """An `Exchange` of HTTP/2.

    Args:
        request: The request.
        flush_soon: Has what was said written in the next turn of the scheduler.
    """

    __slots__ = ("_flush_soon", "_request")

    def __init__(self, request: Http2Request, flush_soon: Callable[[], None]) -> None:
        self._request = request
        self._flush_soon = flush_soon

    @property
    def line(self) -> RequestLine:
        """See `Exchange`."""
        read = self._request.read
        return RequestLine("2", read.judged.verb, read.target, read.judged.headers.pairs())

    @property
    def over(self) -> bool:
        """See `Exchange`."""
        return self._request.gone

    async def read(self) -> tuple[bytes, bool]:
        """See `Exchange`."""
        self._request.invite()
        body = self._request.body
        await body.more()
        return body.take(), body.ended

    async def disconnected(self) -> None:
        """See `Exchange`."""
        await self._request.disconnected()

    def begin(self, status: int, fields: HeaderList, *, measured: bool) -> None:  # noqa: ARG002 - its last frame says so, too
        """See `Exchange`."""
        self._request.answering.say_head(status, fields)
        self._flush_soon()

    async def say(self, data: bytes, *, more: bool) -> None:
        """See `Exchange`. An answer that comes before the body has ended, ends after it: many clients send it all first."""
        request = self._request
        early = not more and request.is_early
        try:
            if data or more or early:
                say = partial(request.answering.say, data, last=not more and not early)
                await request.answering.wait_sent(say)
            if early or (not more and not data):
                await request.say_end()
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()  # who waits for the end hears of it
