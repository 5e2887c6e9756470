"""A request whose client is connected to another process, where it is served."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, Protocol

import attrs
import msgspec
import trio
from mcpbus_actors import EagerTask

from mcpbus.cluster.link import Link
from mcpbus.cluster.messages import FrameKind, ResponsePiece, ResponseStarted, WholeResponse, encode
from mcpbus.core.concurrency import ReportErrors
from mcpbus.core.fairness import Pace
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.receipt import DELIVERED, LOST
from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, refusal
from mcpbus.protocol.principals import Peer
from mcpbus.transports.deferred import Served
from mcpbus.transports.ledger_responses import RecordedResponse
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import (
    CoalescedWriter,
    KeepAliveHandler,
    SettleableResponse,
    TaskResponse,
)
from mcpbus.transports.responses import HeaderList
from mcpbus.transports.task_sink import write_whole


@attrs.frozen
class ForwardTo:
    """A request is to be served by another process.

    Attributes:
        home: That process.
    """

    home: str


class ClusterServedEndpoint(Protocol):
    """An endpoint, as those who are connected to other processes use it."""

    def is_head_valid(self, head: RequestHead, /) -> bool:
        """See `Endpoint.is_head_valid`."""

    def is_here(self, head: RequestHead, /) -> bool:
        """Whether the session is here for which a request is, if it is for one."""

    def respond_here(
        self, head: RequestHead, body: bytes, sink: "RemoteRequest", /, *, cleared: bool
    ) -> Served:
        """Serve a request whose session is here; see `Endpoint.respond`."""

    async def serve_here(self, sink: "RemoteRequest", body: bytes, /) -> Served | ForwardTo:
        """Serve a request as `respond_here` does, unless another process has its session."""

    def entered(
        self, answer: HttpResponse, give_up: Callable[[], object] | None = None, /
    ) -> RecordedResponse:
        """See `Endpoint.entered`."""

    def record_response(self, answer: HttpResponse, /) -> SettleableResponse | None:
        """See `Endpoint.enter`."""

    async def stream(self, opened: StreamedResponse, http: TaskResponse, /) -> None:
        """See `Endpoint.stream`."""

    def passes_on(self, head: RequestHead, /) -> bool:
        """Whether the stream that answers a request does not end here: another process goes on with it."""

    async def passed_on(self, head: RequestHead, /) -> ForwardTo:
        """Wait until that may be asked for it."""

    def reconnect(self, head: RequestHead, /) -> None:
        """End the stream that answers a request, so that its client opens another one."""


class RequestHost(Protocol):
    """Where requests are served that come over links."""

    def start(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a task that goes on when the link is lost."""

    def report(self, head: RequestHead, failure: BaseException, /) -> None:
        """Tell that the application failed."""


class RemoteRequest(msgspec.Struct, eq=False):
    """A request, where it is served: an `TaskResponse` whose client is connected to another process.

    It is also the `ResponseSink` of one that is served in its link's turn.

    Args:
        place: Where it is served.
        endpoint: By whom.
        link: Leads to where its client is.
        number: Its channel.
        body: The whole of it.
        pace: How long it takes to serve what has the same head.

    Attributes:
        head: The request before its body.
        peer: From where it came.
        scope: See `ResponseSink`: it encloses the task that begins to serve it.
    """

    bounds_writes: ClassVar[bool] = (
        True  # the process that the client is connected to sees how much that takes
    )

    _place: RequestHost
    _endpoint: ClusterServedEndpoint
    _link: Link
    _number: int
    _body: bytes
    _pace: Pace
    head: RequestHead
    peer: Peer
    scope: trio.CancelScope  # what waits may need it when another task takes what comes
    _awaited: KeepAliveHandler | None = None  # while the handler waits before anything is said
    _gone: bool = False  # the client, or nobody knows
    _left: trio.Event | None = None  # set then, if somebody waits for that
    _settled: trio.Event | None = None  # set then, and when what was said last was written
    _written: bool = False
    _started: bool = False
    _finished: bool = False
    _is_stream: bool = False
    _entry: SettleableResponse | None = None

    # -- in a turn -------------------------------------------------------------------------------

    def respond(self, *, cleared: bool) -> EagerTask | None:
        """Serve it; returns a handler that waits, if there is one."""
        try:
            result = self._endpoint.respond_here(self.head, self._body, self, cleared=cleared)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001 - the application is somebody else's code; its client gets an answer
            self.fail(failure)
            return None
        if not isinstance(result, HttpResponse):
            return result
        self.finish(result)
        return None

    @property
    def gathers(self) -> bool:
        """See `ResponseSink`."""
        return self._link.in_turn and not self._pace.long

    def open(self, opened: StreamedResponse) -> None:
        """See `ResponseSink`."""
        self._body = b""  # a stream lasts, and need not hold the text of its request
        self.respond_in_task(partial(self._endpoint.stream, opened))

    def on_handler_waiting(self, request: KeepAliveHandler, quiet: float) -> bool:
        """See `ResponseSink`."""
        if self._gone:
            return False
        self._awaited = request
        self._link.quiet.add(self, quiet)
        return True

    def keep_alive(self) -> None:
        """See `KeepAliveItem`. Where that fails the request is given up, with an error."""
        awaited = self._awaited
        if awaited is None:
            return
        try:
            awaited.keep_alive()
        except Exception as failure:  # noqa: BLE001 - there is no memory: the others of this link are not to blame
            self.fail(failure)
            with ReportErrors(self._report):
                awaited.cancel()

    def flush_last(self, writer: CoalescedWriter) -> None:
        """See `ResponseSink`: in the scheduler's next turn."""
        self._place.start(_write, writer)

    def _wait_no_longer(self) -> None:
        if self._awaited is not None:
            self._awaited = None
            self._link.quiet.remove(self)

    def finish(self, answer: HttpResponse) -> None:
        """See `ResponseSink`."""
        self._wait_no_longer()
        if len(answer.body) > SHORT_BYTES:
            self.respond_in_task(partial(write_whole, self._endpoint, answer))
            return
        self._entry = self._endpoint.record_response(answer)
        self._started = self._finished = True
        if self._gone:
            self._settle()
            return
        self._link.send(FrameKind.ANSWER, self._number, encode(_answered(answer)))

    def fail(self, failure: BaseException) -> None:
        """See `ResponseSink`."""
        self._wait_no_longer()
        self._report(failure)
        self.end()

    def respond_in_task(self, answer: Callable[[TaskResponse], Awaitable[None]]) -> None:
        """See `ResponseSink`."""
        self._wait_no_longer()
        self._place.start(self._answer_apart, answer)

    async def _answer_apart(self, answer: Callable[[TaskResponse], Awaitable[None]]) -> None:
        with ReportErrors(self._report):
            try:
                await answer(self)
                if self._is_stream and self._endpoint.passes_on(self.head):
                    self.leave_to((await self._endpoint.passed_on(self.head)).home)
            except* trio.BrokenResourceError:
                pass  # the client has gone, or the process to which it is connected
        self.end()

    # -- in a task -------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve it, once it is known which process has its session."""
        with trio.CancelScope() as self.scope:
            try:
                served = await self._endpoint.serve_here(self, self._body)
                if isinstance(served, HttpResponse):
                    self.finish(served)
                elif isinstance(served, ForwardTo):
                    self.leave_to(served.home)
                    self.end()
                elif served is not None:
                    await served.finish()
            except Exception as failure:  # noqa: BLE001 - the application's, or the directory's; its client gets an answer
                self.fail(failure)

    async def read_body(self, limit: int) -> bytes | None:
        """See `ResponseSink`; nothing asks, since the whole body has come."""
        return self._body if len(self._body) <= limit else None

    async def answer(self, reply: HttpResponse) -> None:
        """See `TaskResponse`."""
        await self._say(FrameKind.ANSWER, _answered(reply))

    async def start_stream(self, headers: HeaderList) -> None:
        """See `TaskResponse`."""
        self._started = self._is_stream = True
        self._link.send(FrameKind.START, self._number, encode(ResponseStarted(list(headers))))

    async def write(self, data: bytes, *, more: bool) -> None:
        """See `TaskResponse`. Returns when the client has it. A stream that another process goes on with has no end here."""
        if not more and self._endpoint.passes_on(self.head):
            return
        await self._say(FrameKind.DATA, ResponsePiece(data, more))

    def give_up(self) -> None:
        """See `TaskResponse`. A write can be cancelled."""

    async def disconnected(self) -> None:
        """See `TaskResponse`."""
        if self._left is None:
            self._left = trio.Event()
        if self._gone:
            self._left.set()
        await self._left.wait()

    async def _say(self, kind: FrameKind, said: Any) -> None:
        self._started = True
        self._written = False
        self._settled = trio.Event()
        if self._gone:
            self._settled.set()
        else:
            self._link.send(kind, self._number, encode(said))
        await self._settled.wait()
        if not self._written:
            raise trio.BrokenResourceError("the client has gone")

    # -- its end ---------------------------------------------------------------------------------

    def _report(self, failure: BaseException) -> None:
        self._place.report(self.head, failure)
        if not self._started:
            self._started = True
            self._link.send(FrameKind.ANSWER, self._number, encode(_answered(refusal(500, internal_error()))))

    def leave_to(self, home: str) -> None:
        """Tell that another process says what is to be said next; who waits here for something to be written is told that it is not."""
        self._started = True
        self._link.send(FrameKind.ELSEWHERE, self._number, home.encode())
        self.lose()

    def end(self) -> None:
        """Tell that nothing more is said."""
        self._link.send(FrameKind.END, self._number)
        self._link.leave(self._number)

    def take(self, kind: int, _payload: bytes) -> None:
        """See `LinkChannel`."""
        if kind == FrameKind.WRITTEN:
            self._written = True
            if self._settled is not None:
                self._settled.set()
            if self._finished:
                self._settle()
        elif kind == FrameKind.GONE:
            self.lose()
        elif kind == FrameKind.RECONNECT:
            self._endpoint.reconnect(self.head)

    def lose(self) -> None:
        """See `LinkChannel`."""
        self._gone = True
        for event in (self._left, self._settled):
            if event is not None:
                event.set()
        if self._finished:
            self._settle()
        awaited = self._awaited
        if awaited is not None:
            self._wait_no_longer()
            self._link.leave(self._number)
            with ReportErrors(self._report):
                awaited.cancel()

    def _settle(self) -> None:
        self._link.leave(self._number)
        if self._entry is not None:
            self._entry.settle(DELIVERED if self._written else LOST)


async def _write(writer: CoalescedWriter) -> None:
    await trio.lowlevel.checkpoint()
    writer.write_now()


def _answered(reply: HttpResponse) -> WholeResponse:
    return WholeResponse(reply.status, list(reply.headers), reply.body)
