"""One HTTP/1.1 connection of the lane: its requests are served one after the other.

Most of them in a turn of the connection, which waits for nothing: what has come is read, the request is served, the answer
written. A quiet connection, and one whose answer comes on a stream, then has no task. What has to be waited for is done by a
task of the connection's own, from a request on until nothing more is there: a long body, an application that waits before
the handler runs, a client that leaves HTTP/1.1, a fault. So it is all the time for a stream that cannot be polled, such as TLS.

That task runs handlers itself, too. When one waits, the task stays with it, and another one goes on with the connection.
"""

import logging
import math
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from actors import Guest
from mcpbus.fate import DELIVERED, LOST, Receipt
from mcpbus.serving.asgi import Endpoint
from mcpbus.serving.http1 import Requests
from mcpbus.serving.http1_answer import CLOSE, encode_answer
from mcpbus.serving.http1_head import RequestError, RequestHead
from mcpbus.serving.http1_poll import Poll
from mcpbus.serving.http1_push import Push
from mcpbus.serving.http1_request import MOST_AHEAD, Http1Request
from mcpbus.serving.stream import DeadlineStream
from mcpbus.transport.answering import Opened
from mcpbus.transport.decisions import Answer, Head

if TYPE_CHECKING:
    from mcpbus.serving.http1_lane import Lane

_logger = logging.getLogger("mcpbus.serving")

_READ_BYTES: Final = 64 * 1024
_MOST_IN_TURN: Final = 64 * 1024
"""Bytes of a body that are waited for without a task; it may come in other packets than its head."""
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
_FAILED: Final = RequestError(500, "the server failed")
_TOO_SLOW: Final = RequestError(408, "the request did not come in time")


class Owner(Protocol):
    """Who accepted a connection."""

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task of the connection's; what it raises ends the connection."""

    def close(self) -> None:
        """Close the connection, which is over. No schedule point."""

    async def hand_over(self, data: bytes) -> None:
        """Serve the connection, which is not for the lane any more, and close it.

        Args:
            data: What the client has sent, from the beginning of a request on.
        """


class Doing(Enum):
    """What a connection is at. All but `SERVING` may be ended from outside."""

    IDLE = auto()
    """Waits for a request."""
    HEAD = auto()
    """Waits for the rest of a head."""
    BODY = auto()
    """Waits for the rest of a body."""
    SERVING = auto()
    """A request is being served."""
    DISCARDING = auto()
    """The answer is out; what the client still sends is thrown away."""


class Http1Connection:
    """Serves what a client asks for over HTTP/1.1, until it leaves or wants to speak something else.

    Args:
        lane: What all connections of a server share.
        stream: The connection.
        owner: Who accepted it.
        poll: Waits for the stream, if it can be polled.

    Attributes:
        requests: What the client has sent.
        options: How it is served.
        expires: When what it is at takes too long, by trio's clock.
        retired: Whether it ends with the request that is under way.
        gone: Whether nothing more can be said to the client.
        fault: What is wrong with the body that was read, to be answered.
    """

    __slots__ = (
        "_closed",
        "_doing",
        "_head",
        "_lane",
        "_over",
        "_owner",
        "_poll",
        "_push",
        "_served",
        "_silent",
        "_socket",
        "_stream",
        "_task",
        "_watched",
        "expires",
        "fault",
        "gone",
        "options",
        "requests",
        "retired",
    )

    def __init__(self, lane: "Lane", stream: trio.abc.Stream, owner: Owner, poll: Poll | None = None) -> None:
        self._lane = lane
        self._stream = stream
        self._owner = owner
        self._poll = poll
        self._socket = stream if isinstance(stream, DeadlineStream) else None
        self._task: trio.CancelScope | None = None
        self._head: RequestHead | None = None
        self._push: Push | None = None
        self._watched = False
        self._served = False
        self._silent = False
        self._over = False
        self._closed = False
        self._doing = Doing.IDLE
        self.requests = Requests(lane.heads)
        self.options = lane.options
        self.expires = math.inf
        self.retired = False
        self.gone = False
        self.fault: RequestError | None = None

    def begin(self) -> None:
        """Serve the connection, to its end. No schedule point."""
        self._lane.enter(self)
        if self._poll is None:
            self._go_on()
        else:
            self._wait(Doing.IDLE, self.options.keep_alive_seconds)
            self._watch()

    def retire(self) -> None:
        """End as soon as no request is under way; at once if none is."""
        self.retired = True
        if self._doing not in {Doing.SERVING, Doing.BODY}:
            self.expire()

    def expire(self) -> None:
        """End what the connection waits for; if that is something to say, say anything."""
        self.expires = math.inf
        if self._doing is Doing.SERVING:
            if self._push is not None:
                self._push.keep_alive()
        elif self._task is not None:
            self._over = True
            self._task.cancel()
        elif self._doing is Doing.IDLE or self.retired:
            self._close()
        else:
            self._start(self._refuse, _TOO_SLOW)

    def lose(self) -> None:
        """End in the middle of an answer."""
        self.gone = True
        self._close()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._lane.leave(self)
        self._forget()
        # They know each other, and should not wait for the garbage collector.
        push, self._push = self._push, None
        if push is not None:
            push.cancel()
        self._owner.close()

    # -- a turn ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._poll is not None and not self._watched:
            try:
                self._poll.watch(self._stream, self._take_turn)  # type: ignore[arg-type]  # whoever gave a poll knows
                self._watched = True
            except OSError as error:  # there are bounds to what a kernel waits for
                _logger.warning("a connection cannot be waited for: %s", error)
                self.lose()

    def _forget(self) -> None:
        if self._poll is not None and self._watched:
            self._watched = False
            self._poll.forget(self._stream)  # type: ignore[arg-type]  # as above

    def _take_turn(self) -> Guest | None:
        """Read what has come, and serve a request if it is whole."""
        if not self._watched:
            return None  # it was due before that
        try:
            data = self._stream.receive_now()  # type: ignore[attr-defined]  # as above
        except _GONE:
            data = b""
        if data is None:
            return None
        if self._doing is Doing.SERVING:
            self._read_ahead(data)
        elif data:
            return self._look(data)
        else:
            self._close()
        return None

    def _read_ahead(self, data: bytes) -> None:
        """Keep what comes while a request is served, up to a bound."""
        if data:
            self.requests.receive(data)
            if self.requests.waiting >= MOST_AHEAD:
                self._forget()
            return
        self._forget()
        if self._push is not None:
            self._push.cancel()
        self._silent = True

    def _look(self, data: bytes) -> Guest | None:
        """Serve the next request, if it is there with this data and can be served without waiting."""
        head = None
        try:
            whole = self.requests.take_whole(data) if self._doing is Doing.IDLE else None
            if whole is None:
                self.requests.receive(data)
            head = self._next_whole() if whole is None else whole[0]
            if head is None:
                return None
            endpoint = None if head.leaves else self._lane.app.direct(head.judged.path)
            if endpoint is None or not endpoint.is_immediate(head.judged):
                if whole is not None:
                    self.requests.receive(data)
                    self.requests.next_head()
                self._head = head
                self._go_on()
                return None
            return self._respond(endpoint, head, self.requests.take_body() if whole is None else whole[1])
        except RequestError as fault:
            self._start(self._refuse, fault)
        except Exception as failure:  # noqa: BLE001 - the application is somebody else's code; its client gets an answer
            self.fail(failure, None if head is None else head.judged)
        return None

    def _look_ahead(self) -> Guest | None:
        """Serve the next request, of which something was read before this one's turn."""
        if self._closed:
            return None
        if self.retired:
            self._start(self._linger)
            return None
        self._wait(Doing.IDLE, self.options.keep_alive_seconds)
        if self.requests.waiting < MOST_AHEAD:
            self._watch()
        return self._look(b"")

    def _respond(self, endpoint: Endpoint, head: RequestHead, body: bytes) -> Guest | None:
        self._served = True
        self._stop_waiting()
        cleared = head.cleared is endpoint
        if not cleared and endpoint.clears(head.judged):
            head.cleared = endpoint
        request = Http1Request(self, head, endpoint)
        result = endpoint.respond(head.judged, body, request, cleared=cleared)
        if not isinstance(result, Answer):
            return result
        self.finish(request, result)
        return None

    def _next_whole(self) -> RequestHead | None:
        """The head of the next request, once all of its body is there, too; one that a task is to wait for, is left to it."""
        head, self._head = self._head or self.requests.next_head(), None
        if head is None:
            if self.requests.waiting and self._doing is Doing.IDLE:
                self._wait(Doing.HEAD, self.options.head_seconds)
            self._watch()
            return None
        missing = self.requests.missing
        if missing == 0:
            return head
        self._head = head
        if missing is None or missing > _MOST_IN_TURN or head.expects:
            self._go_on()
        else:
            self._wait(Doing.BODY, self.options.body_seconds)
            self._watch()
        return None

    def finish(self, request: Http1Request, answer: Answer) -> None:
        """Write a whole answer, and go on with the next request."""
        data = request.encode_answer(answer)
        receipt = request.endpoint.enter(answer)
        assert self._poll is not None  # noqa: S101 - a task answers by itself
        self._poll.write_soon(partial(self._send, request, receipt, data))

    def _send(self, request: Http1Request, receipt: Receipt | None, data: bytes) -> None:
        try:
            rest = self.send_now(data)
            if rest:
                self.start(self._send_answer, request, receipt, rest)
            else:
                self._sent(request, receipt)
        except Exception as failure:  # noqa: BLE001 - a fault in here is this connection's, and not that of those after it
            self.fail(failure, request.head)

    async def _send_answer(self, request: Http1Request, receipt: Receipt | None, rest: bytes) -> None:
        try:
            await self.send(rest)
        finally:
            self._sent(request, receipt)

    def _sent(self, request: Http1Request, receipt: Receipt | None) -> None:
        if receipt is not None:
            receipt.settle(LOST if self.gone else DELIVERED)
        if self.gone:
            self.lose()
        else:
            self.answered(request)

    def fail(self, failure: Exception, head: Head | None) -> None:
        """End a connection whose request could not be answered, and tell its client if nothing was said to it."""
        where = ("a request", "") if head is None else (head.verb, head.path)
        self._lane.report(ExceptionGroup("in a turn of a connection", [failure]), *where)
        if self._push is None and self._task is None:
            self._start(self._refuse, _FAILED)
        else:
            self.lose()

    def _start(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Have a task end the connection: it alone reads and writes from now on."""
        self._forget()
        self._task = trio.CancelScope()
        self._owner.start_soon(self._end_in_task, function, args)

    async def _end_in_task(self, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        assert self._task is not None  # noqa: S101 - it was set with the task's start
        try:
            with self._task, suppress(*_GONE):
                await function(*args)
        finally:
            self._close()

    # -- for a request that is served in a turn ----------------------------------------------------

    @property
    def scope(self) -> trio.CancelScope:
        """Encloses the task that serves the connection at the moment."""
        if self._task is not None:
            return self._task
        assert self._poll is not None  # noqa: S101 - there would be a task
        return self._poll.scope

    def open(self, request: Http1Request, opened: Opened) -> None:
        """Answer from a stream."""
        if opened.stream.log is None and not opened.form.array:
            self._push = Push(self, request, opened, request.endpoint.limits)
            if self._silent:
                self._push.cancel()  # a client that says no more is not told what is still to come
            else:
                self._push.begin()
        else:
            self._go_on(request, partial(request.endpoint.stream, request, opened))

    def answered(self, request: Http1Request) -> None:
        """Go on with the next request; the answer of this one is written."""
        self._push = None
        if request.closes or self.retired:
            if self.requests.waiting:
                self._start(self._linger)
            else:
                self._close()
            return
        if self.requests.waiting and self._poll is not None:
            # A client that sends many requests at once does not get all of our time. Until the next one is looked at it
            # counts as being served, so that there is a bound to what is read meanwhile.
            self._poll.soon(self._look_ahead)
        else:
            self._wait(Doing.IDLE, self.options.keep_alive_seconds)
            self._watch()

    def quiet_for(self, seconds: float) -> None:
        """Keep the answer alive after so many seconds without a word."""
        self.expires = trio.current_time() + seconds
        if self.expires < self._lane.next_look:
            self._lane.look_at(self.expires)

    def flush_later(self, push: Push) -> None:
        """Have what waits written together with what comes in this turn of the scheduler."""
        self._lane.flusher.notice(push)

    def start(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task that writes what the client does not take at once."""
        self._owner.start_soon(self._run, function, args)

    async def _run(self, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        try:
            await function(*args)
        except BaseException:
            self.lose()
            raise

    def send_now(self, data: bytes) -> bytes | None:
        """Send what the client takes at once, and return the rest; None if it has gone."""
        try:
            sent: int = self._stream.send_now(data)  # type: ignore[attr-defined]  # whoever gave a poll knows
        except _GONE:
            self.gone = True
            return None
        return data[sent:]

    # -- for a request that is served by a task ----------------------------------------------------

    def leave(self, request: Http1Request, answer: Callable[[], Awaitable[None]]) -> None:
        """Have another task answer a request, and then go on with the connection."""
        self._go_on(request, answer)

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
        self.gone = self._closed

    # -- a task of the connection ------------------------------------------------------------------

    def _go_on(
        self, request: Http1Request | None = None, answer: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Have a task go on with the connection, beginning with a request that is to be answered if there is one."""
        self._forget()
        if self._head is not None:
            self._stop_waiting()
        self._task = trio.CancelScope()
        self._owner.start_soon(self._work, self._task, request, answer)

    async def _work(
        self,
        scope: trio.CancelScope,
        request: Http1Request | None,
        answer: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Serve requests until none is there that could be served in a turn."""
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
            if self._task is not scope:
                return
            if scope.cancelled_caught and not self.retired and self._doing in {Doing.HEAD, Doing.BODY}:
                await self._say(_TOO_SLOW)
        finally:
            if self._task is scope and rest is None:
                self._close()
        if rest is not None:
            self._lane.leave(self)
            await self._owner.hand_over(rest)

    async def _serve_all(self) -> bytes | None:
        while (head := await self._next_head()) is not None:
            endpoint = None if head.leaves else self._lane.app.direct(head.judged.path)
            if endpoint is None:
                if head.judged.verb == "PRI" and self._served:
                    raise RequestError(400, "HTTP/2 begins with the connection")
                return head.raw + self.requests.take_rest()
            self._served = True
            request = Http1Request(self, head, endpoint)
            if not await self._serve(request, partial(endpoint.serve, request)):
                break
        return None

    async def _serve(self, request: Http1Request, answer: Callable[[], Awaitable[None]]) -> bool:
        """Serve one request, and return whether there may be another one for this task."""
        scope = self._task
        try:
            await answer()
        except* trio.BrokenResourceError:
            pass  # of the client, which is seen below
        except* Exception as failure:  # noqa: BLE001 - the application is somebody else's code; its client gets an answer
            self._lane.report(failure, request.head.verb, request.head.path)
            if not request.started:
                self.fault = _FAILED
        if self._task is not scope:
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
        head, self._head = self._head, None
        if head is not None:
            self._stop_waiting()
            return head
        requests = self.requests
        if requests.waiting:
            # A client that sends many requests at once does not get all of our time.
            await trio.lowlevel.checkpoint()
        self._wait(Doing.IDLE, self.options.keep_alive_seconds)
        while True:
            if requests.waiting:
                head = requests.next_head()
                if head is not None:
                    self._stop_waiting()
                    return head
                if requests.waiting and self._doing is Doing.IDLE:
                    self._wait(Doing.HEAD, self.options.head_seconds)
            if self._poll is not None:
                self._task = None
                self._watch()
                return None
            # Context variables that are set while a request is served, such as a principal, are not for the next one.
            trio.lowlevel.current_task().context = self._lane.context.copy()
            data = await self._stream.receive_some(_READ_BYTES)
            if not data or self._over:
                return None
            requests.receive(bytes(data))

    def _wait(self, doing: Doing, seconds: float) -> None:
        self._doing = doing
        self.quiet_for(seconds)

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
