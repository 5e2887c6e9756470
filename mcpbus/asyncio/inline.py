"""A short POST under an ASGI host on asyncio crosses into trio once, and its answer crosses back once.

The task of the host reads the body and writes the answer. In between, a turn of one task of trio serves the request. A request whose
answer comes on a stream, or for which something else has to wait, goes on in a task of trio that reads and writes through
`to_asyncio`.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeAlias

import trio
from mcpbus_actors import EagerTask

from mcpbus.asyncio.crossing import outlast, to_trio
from mcpbus.core.concurrency import ReportErrors
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.receipt import DELIVERED, LOST
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.transports.asgi import AsgiApp, Message, RecalledHead, Receive, Scope, Send
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import CoalescedWriter, KeepAliveHandler, TaskResponse

_BODY_SECONDS: Final = 1.0
"""How long the task of the host waits for a body. For a slower one a task of trio waits, which measures how fast it comes."""
_ENDED: Final = "the server has ended before it answered"

AnswerInTask: TypeAlias = Callable[[TaskResponse], Awaitable[None]]
"""What answers a request in a task of trio."""
_Outcome: TypeAlias = HttpResponse | AnswerInTask | None


async def read_short_body(receive: Receive) -> tuple[bytes, bool]:
    """Read a body that comes soon and is short, in a task of the host.

    Returns:
        What has come, and whether that is all of it.

    Raises:
        ConnectionAbortedError: The client went away.
    """
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while len(body) < LARGE_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionAbortedError
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    return body, True
    except TimeoutError:
        pass
    return body, False


def replay(body: bytes, receive: Receive) -> Receive:
    """Return what receives a body whose beginning was read already."""
    begun: Message | None = {"type": "http.request", "body": body, "more_body": True}

    async def receive_all() -> Message:
        nonlocal begun
        if begun is None:
            return await receive()
        message, begun = begun, None
        return message

    return receive_all


class InlineTurns:
    """Serves the requests of an application in the turns of one task of trio.

    The task stays with a handler that waits, and another task takes the next turns. The queue has no limit of its own: for each
    request in it a task of the host waits.
    """

    def __init__(self) -> None:
        self._due: deque[Callable[[trio.CancelScope], WaitingHandler | None]] = deque()
        self._woken = trio.Event()
        self._pending: set[InlineRequest] = set()
        self._nursery: trio.Nursery

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a task that ends with the turns at the latest."""
        self._nursery.start_soon(function, *args)

    def serve(self, request: "InlineRequest") -> None:
        """Have a request served. A task of the host calls this."""
        self._pending.add(request)
        self.call_soon(request.serve)

    def call_soon(self, function: "Callable[[trio.CancelScope], WaitingHandler | None]") -> None:
        """Have a function called in the next turn, with the scope of the task that takes it. A task of the host calls this."""
        self._due.append(function)
        self._woken.set()

    def forget(self, request: "InlineRequest") -> None:
        """Note that a request has its answer, or needs none any more."""
        self._pending.discard(request)

    async def run(self) -> None:
        """Take turns until cancelled. What has no answer by then fails."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._take)
        finally:
            for request in tuple(self._pending):
                request.end()

    async def _take(self) -> None:
        with trio.CancelScope() as scope:
            while (waiting := self._take_all(scope)) is None and not scope.cancel_called:
                await self._woken.wait()
                self._woken = trio.Event()
            # From here on the scope belongs to a handler, which may have cancelled it.
            self._nursery.start_soon(self._take)
            if waiting is not None:
                await waiting.finish()

    def _take_all(self, scope: trio.CancelScope) -> "WaitingHandler | None":
        """Call what is due, until a handler waits. Returns that."""
        while self._due and not scope.cancel_called:
            with ReportErrors(report):
                waiting = self._due.popleft()(scope)
                if waiting is not None:
                    return waiting
        return None


@asynccontextmanager
async def inline_turns() -> AsyncIterator[InlineTurns]:
    """Give turns while the block lasts, in the trio beside this loop."""
    turns = InlineTurns()
    running = asyncio.get_running_loop().create_task(to_trio(turns.run))
    try:
        yield turns
    finally:
        running.cancel()
        await outlast(running, running.cancel)
        if not running.cancelled():
            running.result()


class WaitingHandler:
    """A handler that waits, and the request that it serves."""

    __slots__ = ("_handler", "_request")

    def __init__(self, handler: EagerTask, request: "InlineRequest") -> None:
        self._handler = handler
        self._request = request

    async def finish(self) -> None:
        """Stay with the handler until it ends."""
        try:
            await self._handler.finish()
        finally:
            self._request.handler_ended()


class InlineRequest:
    """A request whose whole body is there, and the sink of its answer.

    `answer` runs in the task of the host; all other methods run in trio. Both are in one thread.

    Args:
        app: Whose request it is.
        turns: Serves it.
        recalled: Its head.
        body: Its body.
        scope: The scope that the host gave.

    Attributes:
        gathers: See `ResponseSink`. The task of the host writes after the turn.
        peer: From where the request came.
        scope: Encloses the task that serves it.
    """

    __slots__ = ("_app", "_body", "_context", "_ended", "_gone", "_handler", "_outcome", "_recalled", "_scope", "_turns", "gathers", "peer", "scope")  # fmt: skip

    def __init__(
        self, app: AsgiApp, turns: InlineTurns, recalled: RecalledHead, body: bytes, scope: Scope
    ) -> None:
        self._app = app
        self._turns = turns
        self._recalled = recalled
        self._body = body
        self._scope = scope
        self._context = copy_context()
        self._outcome: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._handler: tuple[KeepAliveHandler, float] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._gone = False
        self.gathers = True
        self.peer = app.peer_of(scope)
        self.scope: trio.CancelScope

    # -- in the task of the host -------------------------------------------------------------------

    async def answer(self, receive: Receive, send: Send) -> AnswerInTask | None:
        """Have the request served, and write the answer.

        Returns:
            What answers it in a task of trio, if it cannot be answered here.

        Raises:
            Exception: What the author's code has raised, or the host.
        """
        self._turns.serve(self)
        try:
            outcome = await self._outcome
            if outcome is None:
                outcome = await self._wait_for_handler(receive)
        except asyncio.CancelledError:
            await self._leave()
            raise
        finally:
            self._turns.forget(self)
        if isinstance(outcome, HttpResponse):
            await self._write(outcome, send)
            return None
        return outcome

    async def _wait_for_handler(self, receive: Receive) -> _Outcome:
        """Wait while the handler does, and cancel it if the client leaves."""
        if self._outcome.done():
            return self._outcome.result()
        loop, handler = asyncio.get_running_loop(), self._handler
        assert handler is not None  # noqa: S101 - it waits
        timer = None
        if handler[1] < math.inf:
            timer = loop.call_later(handler[1], self._turns.call_soon, self._keep_alive)
        outcome: asyncio.Future[Any] = self._outcome
        leaving = loop.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait([outcome, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not outcome.done():
                await self._leave()
                leaving.result()
                return None
            answered: _Outcome = outcome.result()
            return answered
        finally:
            if timer is not None:
                timer.cancel()
            leaving.cancel()
            await asyncio.wait([leaving])

    async def _leave(self) -> None:
        """Give the request up, and wait for the end of its handler."""
        self._gone = True
        self._turns.call_soon(self._end_in_vain)
        if self._ended is not None:
            await outlast(self._ended, lambda: None)

    async def _write(self, answer: HttpResponse, send: Send) -> None:
        """Write a whole answer, and record what has become of it."""
        app, size, fate = self._app, len(answer.body), LOST
        endpoint, limits = app.endpoint, app.endpoint.limits
        headers = [*answer.headers, *self._recalled.cors]
        if size and b"content-length" not in dict(headers):
            headers.append((b"content-length", b"%d" % size))
        entry = account = None
        try:
            async with asyncio.timeout(limits.write_deadline) as bound:
                if size > SHORT_BYTES:
                    entry = endpoint.record_response(answer)
                    account = endpoint.budget.account("an answer", partial(bound.reschedule, 0))
                    account.hold(2 * size)  # it is there twice, as a stream's messages are
                await send({"type": "http.response.start", "status": answer.status, "headers": headers})
                await send({"type": "http.response.body", "body": answer.body})
            fate = DELIVERED
        except (
            OSError
        ):  # also a TimeoutError: the client has gone, took nothing, or was given up to make room
            if bound.expired() and (account is None or not account.leaving):
                app.reached.missed_write(self.peer)
        finally:
            if account is None:
                endpoint.record(answer, fate)
            else:
                account.close()
                if entry is not None:
                    entry.settle(fate)

    # -- in trio -----------------------------------------------------------------------------------

    def serve(self, scope: trio.CancelScope) -> WaitingHandler | None:
        """Serve the request. Returns its handler if that waits."""
        if self._gone:
            return None
        self.scope = scope
        try:
            result = self._context.run(
                self._app.endpoint.respond, self._recalled.head, self._body, self, cleared=True
            )
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001 - the application's, whose host reports it
            self.fail(failure)
            return None
        self._body = b""  # a stream lasts, and need not hold the text of its request
        self.gathers = False
        if isinstance(result, HttpResponse):
            self.finish(result)
        elif result is not None:
            self._ended = self._outcome.get_loop().create_future()
            return WaitingHandler(result, self)
        return None

    async def read_body(self, limit: int) -> bytes | None:
        """See `ResponseSink`. Nothing reads it: `serve` hands it in."""
        return self._body if len(self._body) <= limit else None

    def handler_ended(self) -> None:
        """Note that the handler has ended, which `serve` returned."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def on_handler_waiting(self, request: KeepAliveHandler, quiet: float) -> bool:
        """See `ResponseSink`."""
        if self._gone:
            request.cancel()
        else:
            self._handler = request, quiet
            self._outcome.set_result(None)
            self._outcome = self._outcome.get_loop().create_future()
        return True

    def open(self, opened: StreamedResponse) -> None:
        """See `ResponseSink`."""
        self._hand_over(partial(self._app.endpoint.stream, opened))

    def respond_in_task(self, answer: AnswerInTask) -> None:
        """See `ResponseSink`."""
        self._hand_over(answer)

    def finish(self, answer: HttpResponse) -> None:
        """See `ResponseSink`."""
        self._hand_over(answer)

    def fail(self, failure: BaseException) -> None:
        """See `ResponseSink`."""
        self._handler = None
        if self._gone or self._outcome.done():
            report(failure)
        elif isinstance(failure, Exception):
            self._outcome.set_exception(failure)
        else:
            self._outcome.set_exception(RuntimeError(f"a request raised {failure!r}"))

    def lose(self) -> None:
        """See `ResponseSink`. The body is there, so nothing can lose it."""

    def end(self) -> None:
        """Fail if there is no answer yet: nothing serves the request any more."""
        if not self._outcome.done():
            self.fail(RuntimeError(_ENDED))

    def flush_last(self, writer: CoalescedWriter) -> None:
        """See `ResponseSink`."""
        trio.lowlevel.current_trio_token().run_sync_soon(writer.write_now)

    def _hand_over(self, outcome: HttpResponse | AnswerInTask) -> None:
        self._handler = None
        if self._gone:
            self._dispose(outcome)
        else:
            self._outcome.set_result(outcome)

    def _dispose(self, outcome: _Outcome) -> None:
        """Let an answer end that nobody wants any more."""
        if isinstance(outcome, HttpResponse):
            self._app.endpoint.record(outcome, LOST)
        elif outcome is not None:
            self._turns.start_soon(self._answer_nobody, outcome)

    async def _answer_nobody(self, answer: AnswerInTask) -> None:
        with ReportErrors(report):
            await self._app.answer_in_task(
                self._recalled, self._scope, _receive_disconnect, _send_to_nobody, answer
            )

    def _keep_alive(self, _scope: trio.CancelScope) -> None:
        if self._handler is not None:
            self._handler[0].keep_alive()

    def _end_in_vain(self, _scope: trio.CancelScope) -> None:
        if self._handler is not None:
            self._handler[0].cancel()
        elif self._outcome.done() and not self._outcome.cancelled() and self._outcome.exception() is None:
            self._dispose(self._outcome.result())


def report(failure: BaseException) -> None:
    """Tell the operator of a failure that no client can be told of: as any failure of a callback in asyncio, which logs it."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "a request failed whose client has gone", "exception": failure}
    )


async def _receive_disconnect() -> Message:
    return {"type": "http.disconnect"}


async def _send_to_nobody(_message: Message) -> None:
    raise OSError("the client has gone")


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
