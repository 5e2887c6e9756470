"""One HTTP/1.1 connection of the lane: its requests are served one after the other, by one task at a time.

That task runs handlers itself. When one waits, the task stays with it, and another one goes on with the connection.
"""

import math
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from mcpbus.serving.http1 import Requests
from mcpbus.serving.http1_answer import CLOSE, encode_answer
from mcpbus.serving.http1_head import RequestError, RequestHead
from mcpbus.serving.http1_request import Http1Request
from mcpbus.serving.stream import DeadlineStream
from mcpbus.transport.decisions import Head

if TYPE_CHECKING:
    from mcpbus.serving.http1_lane import Lane

Answer = Callable[[], Awaitable[None]]

_READ_BYTES: Final = 64 * 1024
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
_FAILED: Final = RequestError(500, "the server failed")
_TOO_SLOW: Final = RequestError(408, "the request did not come in time")


class Doing(Enum):
    """What a connection's task is at. All but `SERVING` may be ended from outside."""

    IDLE = auto()
    """Waits for a request."""
    HEAD = auto()
    """Waits for the rest of a head."""
    BODY = auto()
    """Waits for the rest of a body that somebody reads."""
    SERVING = auto()
    """A request is being served."""
    DISCARDING = auto()
    """The answer is out; what the client still sends is thrown away."""


class Http1Connection:
    """Serves what a client asks for over HTTP/1.1, until it leaves or wants to speak something else.

    Args:
        lane: What all connections of a server share.
        stream: The connection. It is not closed.
        nursery: Where its tasks live.
        finish: What to do in the end. It is given what the client has sent and is not for this lane, from the beginning of
            a request on: it wants another protocol, or a path that is not served directly. None if the connection is over.

    Attributes:
        requests: What the client has sent.
        options: How it is served.
        expires: When what it is at takes too long, by trio's clock.
        retired: Whether it ends with the request that is under way.
        gone: Whether nothing more can be said to the client.
        fault: What is wrong with the body that was read, to be answered.
    """

    __slots__ = (
        "_doing",
        "_finish",
        "_lane",
        "_nursery",
        "_over",
        "_scope",
        "_socket",
        "_stream",
        "expires",
        "fault",
        "gone",
        "options",
        "requests",
        "retired",
    )

    def __init__(
        self,
        lane: "Lane",
        stream: trio.abc.Stream,
        nursery: trio.Nursery,
        finish: Callable[[bytes | None], Awaitable[None]],
    ) -> None:
        self._lane = lane
        self._stream = stream
        self._nursery = nursery
        self._finish = finish
        self._socket = stream if isinstance(stream, DeadlineStream) else None
        self._scope = trio.CancelScope()
        self._over = False
        self._doing = Doing.IDLE
        self.requests = Requests(lane.options.max_head_bytes)
        self.options = lane.options
        self.expires = math.inf
        self.retired = False
        self.gone = False
        self.fault: RequestError | None = None

    async def run(self) -> None:
        """Serve the connection, to its end unless another task goes on with it."""
        self._lane.enter(self)
        await self._work(self._scope)

    async def _work(
        self, scope: trio.CancelScope, request: Http1Request | None = None, answer: Answer | None = None
    ) -> None:
        """Serve requests, beginning with one that another task stays with if there is one."""
        rest = None
        try:
            with scope:
                try:
                    if request is None or answer is None or await self._serve(request, answer):
                        rest = await self._serve_all()
                except _GONE:
                    pass
                except RequestError as fault:
                    await self._refuse(fault)
            if self._scope is not scope:
                return
            if scope.cancelled_caught and not self.retired and self._doing in {Doing.HEAD, Doing.BODY}:
                await self._say(_TOO_SLOW)
        finally:
            if self._scope is scope:
                self._lane.leave(self)
        await self._finish(rest)

    def retire(self) -> None:
        """End as soon as no request is under way; at once if none is."""
        self.retired = True
        if self._doing not in {Doing.SERVING, Doing.BODY}:
            self.expire()

    def expire(self) -> None:
        """End what the connection waits for."""
        self.expires = math.inf
        if self._doing is not Doing.SERVING:
            self._over = True
            self._scope.cancel()

    # -- for the request -------------------------------------------------------------------------

    @property
    def scope(self) -> trio.CancelScope:
        """Encloses what the task does that serves the connection at the moment."""
        return self._scope

    def leave(self, request: Http1Request, answer: Answer) -> None:
        """Have another task answer a request, and then go on with the connection."""
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._work, self._scope, request, answer)

    async def receive(self) -> bytes:
        """Wait for what the client sends; nothing once it has gone, or its time is over."""
        try:
            data = await self._stream.receive_some(_READ_BYTES)
        except _GONE:
            return b""
        # What came at the last moment is not looked at: the request that it belongs to would be cancelled half-way.
        return b"" if self._over else bytes(data)

    async def receive_body(self) -> bool:
        """Wait for more of a body, and return whether some has come."""
        self._wait(Doing.BODY, self.options.body_seconds)
        data = await self.receive()
        self._stop_waiting()
        self.requests.receive(data)
        return bool(data)

    async def send(self, data: bytes) -> None:
        """Send to the client, if it is there; returns when the kernel has taken all of it."""
        if self.gone:
            await trio.lowlevel.checkpoint()  # whoever sends in a loop is to notice
            return
        self.gone = True  # unless this is sent whole: what comes after a part of it would be misread
        try:
            sent = 0 if self._socket is None else self._socket.send_now(data)
            if sent < len(data):
                await self._stream.send_all(data[sent:])
        except _GONE:
            return
        self.gone = False

    # -- the connection --------------------------------------------------------------------------

    async def _serve_all(self) -> bytes | None:
        first = True
        while (head := await self._next_head()) is not None:
            endpoint = None if head.leaves else self._lane.app.direct(head.path)
            if endpoint is None:
                if head.verb == "PRI" and not first:
                    raise RequestError(400, "HTTP/2 begins with the connection")
                return head.raw + self.requests.take_rest()
            first = False
            judged = Head(head.verb, head.path, head.headers, head.query)
            request = Http1Request(self, head, judged, endpoint.cors_headers(judged))
            if not await self._serve(request, partial(endpoint.serve, request)):
                break
        return None

    async def _serve(self, request: Http1Request, answer: Answer) -> bool:
        """Serve one request, and return whether there may be another one for this task."""
        scope = self._scope
        try:
            await answer()
        except* trio.BrokenResourceError:
            pass  # of the client, which is seen below
        except* Exception as failure:  # noqa: BLE001 - the application is somebody else's code; its client gets an answer
            self._lane.report(failure, request.head.verb, request.head.path)
            if not request.started:
                self.fault = _FAILED
        if self._scope is not scope:
            return False
        if self.fault is not None:
            raise self.fault
        if self.gone or not request.ended:
            return False
        if request.closes or self.retired:
            if self.requests.unread is not None or self.requests.waiting:
                await self._linger()
            return False
        return self.requests.unread is None or await self._discard_body()

    async def _next_head(self) -> RequestHead | None:
        requests = self.requests
        task = trio.lowlevel.current_task()
        if requests.waiting:
            await (
                trio.lowlevel.checkpoint()
            )  # a client that sends many requests at once does not get all of our time
        self._wait(Doing.IDLE, self.options.keep_alive_seconds)
        while True:
            if requests.waiting:
                head = requests.next_head()
                if head is not None:
                    self._stop_waiting()
                    return head
                if requests.waiting and self._doing is Doing.IDLE:
                    self._wait(Doing.HEAD, self.options.head_seconds)
            # Context variables that are set while a request is served, such as a principal, are not for the next one.
            task.context = self._lane.context.copy()
            data = await self._stream.receive_some(_READ_BYTES)
            if not data or self._over:
                return None
            requests.receive(bytes(data))

    def _wait(self, doing: Doing, seconds: float) -> None:
        self._doing = doing
        self.expires = trio.current_time() + seconds
        if self.expires < self._lane.next_look:
            self._lane.look_at(self.expires)

    def _stop_waiting(self) -> None:
        self._doing = Doing.SERVING
        self.expires = math.inf

    # -- the end ---------------------------------------------------------------------------------

    async def _refuse(self, fault: RequestError) -> None:
        """Answer what is no request, and end the connection: where the next one begins is not known."""
        await self._say(fault)
        await self._linger()

    async def _say(self, fault: RequestError) -> None:
        fields = [(b"content-type", b"text/plain; charset=utf-8")]
        await self.send(encode_answer(fault.status, fields, f"{fault.text}\n".encode(), CLOSE))

    async def _discard_body(self) -> bool:
        """Throw away the rest of a body nobody wanted, and return whether its end came in time."""
        size = 0
        self._wait(Doing.DISCARDING, self.options.unread_body_seconds)
        while True:
            size += len(self.requests.take_body())
            if self.requests.unread is None:
                return True
            if size > self.options.unread_body_bytes:
                return False
            data = await self.receive()
            if not data:
                return False
            self.requests.receive(data)

    async def _linger(self) -> None:
        """Wait until the client has read the answer, as far as it may still be sending.

        The kernel resets a connection that is closed with something unread, and the client then loses what it was told.
        """
        if self.gone:
            return
        if self._socket is not None:
            with suppress(OSError):
                self._socket.socket.shutdown(socket.SHUT_WR)
        left = self.options.unread_body_bytes
        self._wait(Doing.DISCARDING, self.options.unread_body_seconds)
        while left > 0:
            data = await self.receive()
            if not data:
                return
            left -= len(data)
