"""The tasks of an HTTP/1.1 connection of the lane, for what has to be waited for.

Such a task goes on from a request until nothing more is there: with a long body, a path that is not served in turns, an answer
whose stream is kept in a store, a client that leaves HTTP/1.1, a fault. A stream that cannot be polled, such as TLS, has one
all the time.

The task runs handlers itself. When one waits, the task stays with it, and another one goes on with the connection.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from actors import Guest
from mcpbus.containment import Contained
from mcpbus.serving.asgi import Endpoint
from mcpbus.serving.http1.head import RequestError, RequestHead, Terms
from mcpbus.serving.http1.reactor import Poll, Pollable, Turn
from mcpbus.serving.http1.request import Http1Request
from mcpbus.serving.http1.wire import GONE, IDLE, Doing, Http1Wire, Owner, too_slow

if TYPE_CHECKING:
    from mcpbus.serving.http1.lane import Lane

FAILED: Final = RequestError(500, "the server failed")


class Http1Work(Http1Wire):
    """What a connection does in tasks of its own.

    Args:
        lane: What all connections of a server share.
        stream: The connection.
        owner: Who accepted it.
        poll: Waits for the stream, if it can be polled.

    Attributes:
        fault: What is wrong with the body that was read, to be answered.
        poll: Waits for the stream; None if it cannot be polled.
    """

    __slots__ = ("_ending", "_head", "_served", "_task", "_watched", "fault", "poll")

    def __init__(self, lane: "Lane", stream: trio.abc.Stream, owner: Owner, poll: Poll | None) -> None:
        super().__init__(lane, stream, owner)
        self.poll = poll
        self._task: trio.CancelScope | None = None
        self._head: RequestHead | None = None
        self._watched = False
        self._ending: Pollable | None = None
        self._served = False
        self.fault: RequestError | None = None

    # -- turns or tasks --------------------------------------------------------------------------

    def _watch(self) -> None:
        if self.poll is not None and not self._watched:
            self._forget()
            try:
                self.poll.watch(self._stream, self._take_turn)  # type: ignore[arg-type]  # whoever gave a poll knows
                self._watched = True
            except OSError as error:  # there are bounds to what a kernel waits for
                self._lane.complaints.warn("a connection cannot be waited for: %s", error)
                self.lose()

    def _watch_end(self, turn: Turn) -> None:
        """Have a turn taken when the client leaves, while nothing more is read of what it sends."""
        self._forget()
        poll = self._lane.poll
        below: Any = (
            self._stream if self.poll is not None else getattr(self._stream, "transport_stream", None)
        )
        if poll is not None and below is not None:
            with suppress(OSError):
                poll.watch_end(below, turn)
                self._ending = below

    def _forget(self) -> None:
        if self.poll is not None and self._watched:
            self._watched = False
            self.poll.forget(self._stream)  # type: ignore[arg-type]  # as above
        self._forget_end()

    def _forget_end(self) -> None:
        if self._ending is not None:
            assert self._lane.poll is not None  # noqa: S101 - it watches it
            self._lane.poll.forget(self._ending)
            self._ending = None

    async def client_left(self) -> None:
        """Wait until the client has left, and read nothing of what it sends."""
        left = trio.Event()
        self._watch_end(left.set)
        try:
            await left.wait()
        finally:
            self._forget_end()

    def _take_turn(self) -> Guest | None:
        """Do what can be done without waiting, now that something has come."""
        raise NotImplementedError

    def _make_request(self, head: RequestHead, terms: Terms, scope: trio.CancelScope) -> Http1Request:
        """Make what the endpoint is given of a request."""
        raise NotImplementedError

    def leave(self, request: Http1Request, answer: Callable[[], Awaitable[None]]) -> None:
        """Have another task answer a request, and then go on with the connection."""
        self._go_on(request, answer)

    def _go_on(
        self, request: Http1Request | None = None, answer: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Have a task go on with the connection, beginning with a request that is to be answered if there is one."""
        self._forget()
        if self._head is not None:
            self._stop_waiting()
        self._task = trio.CancelScope()
        self._owner.start_soon(self._work, self._task, request, answer)

    # -- its tasks -------------------------------------------------------------------------------

    def start(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task that writes what the client does not take at once."""
        self._owner.start_soon(self._run, function, args)

    async def _run(self, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        try:
            await function(*args)
        except BaseException:
            self.lose()
            raise

    def _end_with(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Have a task end the connection: it alone reads and writes from now on."""
        self._forget()
        self._task = trio.CancelScope()
        self._owner.start_soon(self._end_after, function, args)

    async def _end_after(self, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        assert self._task is not None  # noqa: S101 - it was set with the task's start
        try:
            with self._task, suppress(*GONE):
                await function(*args)
        finally:
            self._close()

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
                        rest = await self._serve_all(scope)
                except GONE:
                    pass
                except RequestError as fault:
                    await self._refuse(fault)
            if self._task is not scope:
                return
        finally:
            if self._task is scope and rest is None:
                self._close()
        if rest is not None:
            self._lane.leave(self)
            await self._owner.hand_over(rest)

    async def _serve_all(self, scope: trio.CancelScope) -> bytes | None:
        while (head := await self._next_head()) is not None:
            terms = self._lane.terms(head)
            if terms is None:
                if head.judged.verb == "PRI" and self._served:
                    raise RequestError(400, "HTTP/2 begins with the connection")
                return head.raw + self.requests.take_rest()
            self._served = True
            request = self._make_request(head, terms, scope)
            if not await self._serve(request, partial(_answer, terms.endpoint, request)):
                break
        return None

    async def _serve(self, request: Http1Request, answer: Callable[[], Awaitable[None]]) -> bool:
        """Serve one request, and return whether there may be another one for this task."""
        scope = self._task
        with Contained(partial(self._report, request)):
            try:
                await answer()
            except* trio.BrokenResourceError:
                pass  # of the client, which is seen below
        if self._task is not scope:
            return False
        if self.fault is not None:
            raise self.fault
        if self.gone or not request.ended:
            return False
        if request.closes or self.retired:
            if self.requests.body is not None or self.requests.waiting:
                await self._linger()
            return False
        return self.requests.body is None or await self._discard_body()

    def _report(self, request: Http1Request, failure: BaseException) -> None:
        """Tell that the application failed: it is somebody else's code, and its client gets an answer."""
        self._lane.report(failure, request.head.verb, request.head.path)
        if not request.started:
            self.fault = FAILED

    async def _next_head(self) -> RequestHead | None:
        head, self._head = self._head, None
        if head is not None:
            self._stop_waiting()
            return head
        # Context variables that are set while a request is served, such as a principal, are not for the next one. They may be
        # a handler's, in whose turn this task was started.
        trio.lowlevel.current_task().context = self._lane.context.copy()
        requests = self.requests
        if requests.waiting:
            # A client that sends many requests at once does not get all of our time.
            await trio.lowlevel.checkpoint()
        self._wait(IDLE, self.options.keep_alive_seconds)
        while True:
            if requests.waiting:
                head = requests.next_head()
                if head is not None:
                    self._stop_waiting()
                    return head
                if requests.waiting and self._doing is IDLE:
                    self._wait(Doing.HEAD, self.options.head_seconds)
            if self.poll is not None:
                self._task = None
                self._watch()
                return None
            data = await self.receive()
            if data is None and self._doing is Doing.HEAD and not self.retired:
                self._stop_waiting()
                raise too_slow("head_seconds")
            if not data:
                return None
            requests.receive(data)


async def _answer(endpoint: Endpoint, request: Http1Request) -> None:
    answer = await endpoint.serve(request)
    if answer is not None:
        with endpoint.entered(answer):
            await request.answer(answer)
