"""An endpoint as an ASGI application, and the messages of ASGI that have arrived already, which nothing has to wait for."""

import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, MutableMapping
from contextlib import nullcontext, suppress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import trio

from mcpbus.core.backend import Beside
from mcpbus.core.concurrency import WrapBaseExceptions
from mcpbus.core.hub import Hub
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, plain_path, refusal
from mcpbus.protocol.http.options import is_well_known
from mcpbus.protocol.http.sse import EVENT_STREAM
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.recurring_cache import LONGEST_RECALLED, MOST_RECALLED, RecurringCache
from mcpbus.transports.asgi_websocket import GONE, AsgiWebSocketServer, say
from mcpbus.transports.endpoint import Endpoint
from mcpbus.transports.request_body import last_look, read_unfinished
from mcpbus.transports.response_sinks import TaskResponse
from mcpbus.transports.responses import HeaderList
from mcpbus.transports.task_sink import HttpTaskSink

T = TypeVar("T")
"""Messages of ASGI."""

_RECEIVE: Final = trio.MemoryReceiveChannel.receive


def arrived_in(receive: Callable[[], Awaitable[T]]) -> trio.MemoryReceiveChannel[T] | None:
    """Return the channel that the messages come in, of which one that is there can be taken; None where nobody can tell.

    Args:
        receive: What the server handed in. With hypercorn on trio it is the method of a memory channel, unless something wraps it.
    """
    if getattr(receive, "__func__", None) is not _RECEIVE:
        return None
    channel: trio.MemoryReceiveChannel[T] = receive.__self__  # type: ignore[attr-defined]
    return channel


_ENDING_SECONDS: Final = 1.0
"""How long the end of an answer may take at most where its client has gone, or seems to have, or accepts nothing."""
_HTTP1: Final = frozenset({"1.0", "1.1"})
_NO_BOUND: Final = nullcontext()
_TOO_SLOW: Final = refusal(408, invalid_request("the body of the request did not come in time"))

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Fields: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Header fields, as ASGI gives them: perhaps only once."""


class AsgiApp:
    """The endpoint of an open bus as an ASGI application. Made by `Bus.asgi`; needs no lifespan.

    Args:
        bus: The bus to attach to.
        endpoint: Its endpoint.
        beside: The application for HTTP requests to other paths, if there is one.
    """

    def __init__(self, bus: Hub, endpoint: Endpoint, beside: Beside | None = None) -> None:
        self._bus = bus
        self._endpoint = endpoint
        self._beside = beside
        self._reads_first = bus.backend.authenticate is None
        self._remembered = RecurringCache[Hashable, RecalledHead](MOST_RECALLED)

    @property
    def reached(self) -> LimitMonitor:
        """Which limits were reached, of the bus or of the server that serves this application."""
        return self._bus.limit_monitor

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint."""
        return self._endpoint

    @property
    def bus(self) -> Hub:
        """The bus."""
        return self._bus

    @property
    def path(self) -> str:
        """Where the endpoint is, below the mount point."""
        return self._endpoint.options.path

    def direct(self, path: str) -> Endpoint | None:
        """Return the endpoint itself, for a server that hands in HTTP requests without ASGI; None for paths of another application."""
        return self._endpoint if self._beside is None or self._endpoint.has_path(path) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope, as ASGI 3.0 has it."""
        if scope["type"] == "lifespan":
            await _pass_lifespan(receive, send)
            return
        request: _AsgiRequest | None = None
        try:
            if (
                self._beside is not None
                and scope["type"] == "http"
                and not self._endpoint.has_path(_path(scope))
            ):
                await self._serve_beside(self._beside, scope, receive, send)
            elif scope["type"] == "http":
                # Here, and not in a coroutine of its own, which each wait for the server would go through.
                request = _AsgiRequest(self._read(scope), scope, receive, send, self)
                with WrapBaseExceptions("a request"):
                    # A short body is read first, as in turns of our own server, unless a function of the author's is to know the sender
                    # before. The endpoint asks for other bodies.
                    body = await request.read_short() if request.inline and self._reads_first else None
                    await request.serve(self._endpoint.respond, body)
            else:
                websocket = AsgiWebSocketServer(self._endpoint.websockets, scope, receive, send)
                await websocket.serve(_head(scope, "GET", scope["headers"]), _peer(scope))
        except* trio.BrokenResourceError:
            pass  # a client that goes away in the middle of its request, or does not take its answer, is nobody's fault
        if request is not None and request.unfinished:
            await request.end()

    async def _serve_beside(self, beside: Beside, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application beside, unless its Host or Origin is refused."""
        head = _head(scope, scope["method"], scope["headers"])
        refused = None if is_well_known(head.path) else self._endpoint.heads.validate_caller(head)
        if refused is None:
            await beside(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": refused.status, "headers": refused.headers})
        await send({"type": "http.response.body", "body": refused.body})

    def recall_inline(self, scope: Scope) -> "RecalledHead | None":
        """Return the head of a request if `Endpoint.respond` can serve it, its body being short; None otherwise. No schedule point."""
        if scope["type"] != "http" or (
            self._beside is not None and not self._endpoint.has_path(_path(scope))
        ):
            return None
        recalled = self._read(scope)
        return recalled if recalled.inline else None

    def peer_of(self, scope: Scope) -> Peer:
        """Return from where a request came."""
        return _peer(scope)

    async def answer_in_task(
        self,
        recalled: "RecalledHead",
        scope: Scope,
        receive: Receive,
        send: Send,
        answer: Callable[[TaskResponse], Awaitable[None]],
    ) -> None:
        """Have a request answered that `Endpoint.respond` has begun to serve."""
        request = _AsgiRequest(recalled, scope, receive, send, self)
        try:
            with WrapBaseExceptions("a request"):
                await answer(request)
        except* trio.BrokenResourceError:
            pass  # as above
        if request.unfinished:
            await request.end()

    def _read(self, scope: Scope) -> "RecalledHead":
        """Read the head of a request, or recall it: clients send the same few for ever."""
        fields = tuple(scope["headers"])
        key = (scope["method"], scope["path"], scope.get("query_string"), scope.get("root_path"), fields)
        try:
            known = self._remembered.get(key)
        except TypeError:  # its fields are lists, as ASGI admits
            return self._validate(scope, fields)
        if known is None:
            known = self._validate(scope, fields)
            texts = (
                scope["method"],
                scope["path"],
                scope.get("query_string") or b"",
                *(text for field in fields for text in field),
            )
            if sum(map(len, texts)) <= LONGEST_RECALLED:
                self._remembered.keep(key, known)
        return known

    def _validate(self, scope: Scope, fields: Fields) -> "RecalledHead":
        head = _head(scope, scope["method"], fields)
        endpoint, cleared = self._endpoint, self._endpoint.is_head_valid(head)
        length = head.headers.raw(b"content-length")
        short = length is None or (
            isinstance(length, bytes) and length.isdigit() and int(length) <= LARGE_BYTES
        )
        return RecalledHead(head, endpoint.cors_headers(head), cleared, inline=cleared and short)

    def announce_drain(self) -> None:
        """Say at once that the server ends, as `Bus.announce_drain`."""
        self._bus.announce_drain()

    async def drain(self, seconds: float) -> None:
        """End all that goes on, as `Bus.drain`."""
        await self._bus.drain(seconds)


class RecalledHead(msgspec.Struct, frozen=True):
    """What is known of all requests that have one head.

    Attributes:
        head: The head.
        cors: What CORS adds to each answer.
        cleared: Whether the head is in order, and that of a POST.
        inline: Whether, besides, the body may be short.
    """

    head: RequestHead
    cors: HeaderList
    cleared: bool
    inline: bool


def _head(scope: Scope, verb: str, fields: Fields) -> RequestHead:
    root = scope.get("root_path", "")
    return RequestHead(
        verb, _path(scope), Headers(fields), (scope.get("query_string") or b"").decode("latin-1"), root
    )


def _path(scope: Scope) -> str:
    return plain_path(scope["path"].removeprefix(scope.get("root_path", "")) or "/")


def _peer(scope: Scope) -> Peer:
    client = scope.get("client")
    return Peer.at(client[0] if client else None)


class _AsgiRequest(HttpTaskSink):
    """A request of the ASGI shell, and the sink of its response.

    Attributes:
        inline: Whether its head is in order, and its body may be short.
        unfinished: Whether an event stream has begun, and its end was not sent.
    """

    __slots__ = (
        "_arrived",
        "_begun",
        "_body",
        "_bus",
        "_cors",
        "_ending",
        "_more",
        "_receive",
        "_received",
        "_send",
        "_until",
        "_version",
        "inline",
        "unfinished",
    )

    def __init__(self, known: RecalledHead, scope: Scope, receive: Receive, send: Send, app: AsgiApp) -> None:
        # A host tells nothing of how much its client takes, so that it does not bound writes.
        super().__init__(app.endpoint, known.head, _peer(scope), cleared=known.cleared)
        self.inline = known.inline
        self._cors = known.cors
        self._bus = app.bus
        self._version = scope.get("http_version")
        self._receive = receive
        self._arrived = arrived_in(receive)
        self._send = send
        self._ending = False
        self._begun = False
        self._body = b""
        self._more = True
        self._received = 0
        self._until = -math.inf
        self.unfinished = False

    async def read_short(self) -> bytes | None:
        """Read the body if it is short and comes soon; None if `read_body` has to read on.

        - What has arrived is taken, without a scope: plain hypercorn lets us see that.
        - What comes in two messages, the second one empty as a rule, is waited for in one scope, which bounds both.
        """
        self._begun = True
        rate = self._bus.limits.body_rate
        self._until = until = rate.begin(trio.current_time())
        await self._read_arrived()
        self._received = len(self._body)
        if self._more and not self._body:
            with trio.CancelScope(deadline=until):
                self._body, self._more = await self._read_piece()
                self._received = len(self._body)
                if self._more and self._received < LARGE_BYTES:
                    # So little is not counted while it waits for its end, which is a message of its own as a rule. Nor is the
                    # scope moved: if that does not come before its deadline, which is rare, it is waited for by `read_body`.
                    self._until = rate.next_read(until, trio.current_time(), self._received)
                    self._received = 0
                    rest, self._more = await self._read_piece()
                    self._body += rest
                    self._received = len(rest)
        return None if self._more or len(self._body) >= LARGE_BYTES else self._body

    async def read_body(self, limit: int) -> bytes | None:
        """Read the whole body. The rest of one that is long, or slow, is counted while it comes, in a scope for each piece."""
        short = None if self._begun else await self.read_short()
        if short is not None:
            return short if len(short) <= limit else None
        budget, body, self._body = self._bus.budget, self._body, b""
        if not self._more and (len(body) < LARGE_BYTES or not budget.line.locked()):
            if len(body) >= LARGE_BYTES:
                await budget.take_turn()
            return body if len(body) <= limit else None
        rate, until = self._bus.limits.body_rate, self._until
        if self._received:
            until = rate.next_read(until, trio.current_time(), self._received)
        return await read_unfinished(
            body,
            self._read_piece_until,
            limit=limit,
            rate=rate,
            until=until,
            budget=budget,
            peer=self.peer,
            ended=not self._more,
        )

    async def _read_arrived(self) -> None:
        """Take what is there of the body: nothing has to bound a wait of one turn of the scheduler."""
        waited, arrived = False, self._arrived
        if arrived is None:
            return
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._more and len(self._body) < LARGE_BYTES:
            try:
                piece, self._more = _piece(arrived.receive_nowait())
            except trio.WouldBlock:
                if waited or not self._body:
                    break
                # Who reads the connection has passed on a piece, and passes on the end in its next turn.
                await trio.lowlevel.checkpoint()
                waited = True
            else:
                self._body += piece

    async def _read_piece(self) -> tuple[bytes, bool]:
        return _piece(await self._receive())

    async def _read_piece_until(self, until: float) -> tuple[bytes, bool]:
        with trio.CancelScope(deadline=until):
            piece, more = await self._read_piece()
            return piece, not more
        with last_look(until):
            piece, more = await self._read_piece()
            return piece, not more
        self._bus.limit_monitor.note("body_timeout", self.peer, "a request was answered 408")
        await self.answer(_TOO_SLOW)
        raise trio.BrokenResourceError("the body of the request did not come in time")

    async def answer(self, reply: HttpResponse) -> None:
        """See `TaskResponse`.

        Hypercorn writes to an HTTP/1.1 connection in a scope that it shields: none around it ends that, and one whose time is over
        ends what was written by then. So a short answer is spared it; to a long one it costs little.
        """
        headers = [*reply.headers, *self._cors]
        if reply.body and b"content-length" not in dict(headers):
            headers.append((b"content-length", b"%d" % len(reply.body)))  # else it goes out in chunks
        deadline = self._bus.limits.write_deadline
        shielded = self._arrived is not None and self._version in _HTTP1 and len(reply.body) <= SHORT_BYTES
        try:
            with _NO_BOUND if shielded else self._bus.limit_monitor.writing(deadline, self.peer):
                await self._send({"type": "http.response.start", "status": reply.status, "headers": headers})
                self._ending = True
                await self._send({"type": "http.response.body", "body": reply.body})
                return
        except OSError as error:
            raise trio.BrokenResourceError(GONE) from error
        raise trio.BrokenResourceError(f"the client accepted nothing for {deadline:g} s")

    async def start_stream(self, headers: HeaderList) -> None:
        headers = [*headers, *self._cors]
        await say(self._send, {"type": "http.response.start", "status": 200, "headers": headers})
        self.unfinished = EVENT_STREAM in headers

    async def write(self, data: bytes, *, more: bool) -> None:
        # The end by itself: a client that has gone while the last of it was written is noticed before it.
        try:
            if more or data:
                await say(self._send, {"type": "http.response.body", "body": data, "more_body": True})
            if not more:
                self._ending = True
                self.unfinished = False
                await say(self._send, {"type": "http.response.body", "body": b"", "more_body": False})
        except trio.BrokenResourceError:
            self.unfinished = False  # the client has gone
            raise

    async def end(self) -> None:
        """End an event stream that was ended in the middle: servers take a response without an end for a fault of the application.

        A client that accepts nothing is given a second for that.
        """
        with trio.move_on_after(_ENDING_SECONDS), suppress(trio.BrokenResourceError):
            await self.write(b"", more=False)

    def give_up(self) -> None:
        """See `TaskResponse`. A write can be cancelled."""

    async def disconnected(self) -> None:
        """See `TaskResponse`. Plain hypercorn says so too of an answer that has ended, while it still makes the connection ready or closes it."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.unfinished = False
        if self._ending:
            await trio.sleep(_ENDING_SECONDS)


def _piece(message: Message) -> tuple[bytes, bool]:
    """Return what a message brings of a body, and whether more comes."""
    if message["type"] == "http.disconnect":
        raise trio.BrokenResourceError("the client went away while its request was read")
    return message.get("body", b""), message.get("more_body", False)


async def _pass_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
