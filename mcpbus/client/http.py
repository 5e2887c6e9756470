"""A client over Streamable HTTP: each message is a POST, whose answer is JSON or a stream of events.

Of older revisions the session is kept, and a stream that the server left is come back to. Not there is their GET stream for what
belongs to no request, and HTTP+SSE of 2024-11-05.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import attrs
import msgspec
import trio

try:
    import httpx2
except ImportError as error:
    raise ImportError(
        "a client over HTTP needs httpx2, which mcpbus itself does without: pip install 'mcpbus-server[client]'",
        name=error.name,
    ) from error

from mcpbus.client.client import Client
from mcpbus.client.conversation import Message, OnQuestion
from mcpbus.client.errors import ClientError, Disconnected, MalformedAnswerError, StatusError
from mcpbus.client.mirroring import MirroredTools
from mcpbus.client.negotiation import negotiate
from mcpbus.client.pending import Pending
from mcpbus.client.wire import MOST_MESSAGE_BYTES, encode_message
from mcpbus.protocol.http.sse import EventDecoder
from mcpbus.protocol.jsonrpc import Notification, Request, Undecodable
from mcpbus.protocol.revisions import LATEST, Era, Revision

_CONNECT_SECONDS: Final = 10
_PORTS: Final = 2**16
_TELL_SECONDS: Final = 30
"""How long a server may take to accept what it owes no answer."""
_CLOSE_SECONDS: Final = 2
_LEAVE_SECONDS: Final = 0.1
"""How long a server has to end a stream by itself once the answer has come, so that the connection can be used again."""
_RETURN_SECONDS: Final = 1.0
_LONGEST_RETURN_SECONDS: Final = 30.0
_MOST_RETURNS: Final = 5
"""How often in a row a client comes back to a stream that says nothing new."""


@asynccontextmanager
async def connect_http(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    revision: Revision | None = None,
    capabilities: dict[str, Any] | None = None,
    on_question: OnQuestion | None = None,
) -> AsyncIterator[Client]:
    """Connect a client to an endpoint.

    What the block raises, comes in a group.

    Args:
        url: The endpoint.
        headers: Header fields of each request, such as ``Authorization``.
        revision: The only revision that will do; None for the newest that both know.
        capabilities: What the client declares.
        on_question: Answers what the server asks.

    Raises:
        ProtocolError: The server refused.
        ClientError: There is no answer.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as fault:
        raise ClientError(f"{url!r} is no URL: {fault}") from None
    if not parsed.host:
        raise ClientError(f"{url!r} names no host")
    if parsed.port is not None and not 0 < parsed.port < _PORTS:
        raise ClientError(f"{url!r} names no port: they go from 1 to {_PORTS - 1}")
    fields = {"Accept-Encoding": "identity", **(headers or {})}
    timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
    async with httpx2.AsyncClient(headers=fields, timeout=timeout) as http, trio.open_nursery() as nursery:
        connection = _HttpConnection(http, url, nursery)
        client = connection.client = Client(
            revision or LATEST,
            connection.send,
            nursery,
            capabilities=capabilities or {},
            on_question=on_question,
        )
        nursery.start_soon(connection.run)
        try:
            await negotiate(client, revision)
            yield client
        finally:
            client.disconnected("the client was closed")
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await connection.close()
            nursery.cancel_scope.cancel()


@attrs.define
class _Place:
    """How far a stream of events was read."""

    id: str | None = None
    seconds: float = _RETURN_SECONDS
    returns: int = 0


class _HttpConnection:
    """The posts of one client."""

    client: Client

    def __init__(self, http: httpx2.AsyncClient, url: str, nursery: trio.Nursery) -> None:
        self._http = http
        self._url = url
        self._nursery = nursery
        self._session: str | None = None
        self._tools = MirroredTools()
        self._posts: dict[int | str, trio.CancelScope] = {}
        # Posts in the order in which they were sent: what is owed no answer must have arrived before the next.
        self._sender, self._receiver = trio.open_memory_channel[tuple[Message, Pending | None]](1024)

    def send(self, message: Message, pending: Pending | None) -> None:
        """Send a message; a cancellation closes the answer of its request, too."""
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            scope = self._posts.get(msgspec.json.decode(message.params)["requestId"])
            if scope is not None:
                scope.cancel()
            if self.client.revision.era is Era.MODERN:
                return
        try:
            self._sender.send_nowait((message, pending))
        except trio.WouldBlock:
            raise Disconnected("the server accepts nothing") from None

    async def run(self) -> None:
        """Post what is sent."""
        async for message, pending in self._receiver:
            if not isinstance(message, Request):
                await self._tell(message)
            elif pending is not None and pending.result is None:  # else it was given up meanwhile
                pending.begun = True
                self._nursery.start_soon(self._ask, message, pending)

    async def close(self) -> None:
        """Post what is left, and end the session."""
        self._sender.close()
        async for message, _ in self._receiver:
            if not isinstance(message, Request):
                await self._tell(message)
        if self._session is not None:
            with suppress(httpx2.HTTPError):  # the server ends it by itself, in time
                async with self._http.stream("DELETE", self._url, headers=self._session_headers()):
                    pass

    async def _tell(self, message: Message) -> None:
        """Post what is owed no answer. A call whose question stays unanswered for it, fails."""
        problem = "the server accepts nothing"
        with trio.move_on_after(_TELL_SECONDS):
            try:
                headers = self._post_headers(message)
                body = encode_message(message)
                async with self._http.stream("POST", self._url, content=body, headers=headers) as answer:
                    if answer.is_success:
                        return
                    problem = str(_status(self._url, answer))
            except httpx2.HTTPError as error:
                problem = _explain(self._url, error)
        if not isinstance(message, Notification):
            self.client.disconnected(problem)

    async def _ask(self, request: Request, pending: Pending) -> None:
        with trio.CancelScope() as scope:
            self._posts[request.id] = scope
            try:
                await self._exchange(request, pending)
            except httpx2.HTTPError as error:
                pending.settle(Disconnected(_explain(self._url, error)))
            except ClientError as error:
                pending.settle(error)
            except (Undecodable, ValueError, RecursionError) as error:
                pending.settle(MalformedAnswerError(f"what {self._url} answers is no MCP: {error}"))
        del self._posts[request.id]

    async def _exchange(self, request: Request, pending: Pending) -> None:
        place = _Place()
        async with self._http.stream(
            "POST", self._url, content=encode_message(request), headers=self._post_headers(request)
        ) as answer:
            _check_encoding(self._url, answer)
            kind = _media_type(answer)
            if request.method == "initialize":
                self._session = answer.headers.get("mcp-session-id")
            if kind == "text/event-stream" and answer.is_success:
                await self._follow(answer, request, pending, place)
            elif kind == "application/json" and answer.status_code not in {401, 403}:
                await self._read_json(answer, request, pending)
            else:
                raise _status(self._url, answer)
        while pending.result is None:
            await self._return(request, pending, place)

    async def _read_json(self, answer: httpx2.Response, request: Request, pending: Pending) -> None:
        body = bytearray()

        def take(piece: bytes) -> bool:
            body.extend(piece)
            if len(body) > MOST_MESSAGE_BYTES:
                raise MalformedAnswerError(f"the answer has more than {MOST_MESSAGE_BYTES:,} bytes")
            return True

        await _read(answer, take)
        try:
            self._receive(bytes(body), request, pending)
        except (Undecodable, ValueError):
            if answer.is_success:
                raise
        if pending.result is None:
            raise _status(self._url, answer)

    async def _follow(
        self, answer: httpx2.Response, request: Request, pending: Pending, place: _Place
    ) -> None:
        """Read a stream until the answer has come, or it ends."""
        decoder = EventDecoder(MOST_MESSAGE_BYTES)

        def take(piece: bytes) -> bool:
            for event in decoder.feed(piece):
                place.id = place.id if event.id is None else event.id
                if event.retry is not None:
                    place.seconds = min(event.retry / 1000, _LONGEST_RETURN_SECONDS)
                if event.type == "message" and event.data:
                    place.returns = 0
                    self._receive(event.data, request, pending)
            return pending.result is None

        try:
            await _read(answer, take)
        except httpx2.HTTPError:
            if not place.id:
                raise

    async def _return(self, request: Request, pending: Pending, place: _Place) -> None:
        """Come back to a stream that ended before the answer came, as older revisions have it (rules W-14, W-24)."""
        place.returns += 1
        if not place.id or self.client.revision.era is Era.MODERN or place.returns > _MOST_RETURNS:
            raise Disconnected("the stream ended before the answer came")
        await trio.sleep(place.seconds)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": place.id, **self._session_headers()}
        try:
            async with self._http.stream("GET", self._url, headers=headers) as answer:
                _check_encoding(self._url, answer)
                if _media_type(answer) != "text/event-stream" or not answer.is_success:
                    raise _status(self._url, answer)
                await self._follow(answer, request, pending, place)
        except httpx2.TransportError:
            if place.returns == _MOST_RETURNS:
                raise

    def _receive(self, data: bytes | str, request: Request, pending: Pending) -> None:
        if request.method == "tools/list" and self.client.revision.era is Era.MODERN:
            message = msgspec.json.decode(data)
            if isinstance(message, dict) and isinstance(message.get("result"), dict):
                data = msgspec.json.encode({**message, "result": self._tools.learn(message["result"])})
        self.client.receive(data, pending)

    def _post_headers(self, message: Message) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if isinstance(message, Request) and self.client.revision.era is Era.MODERN:
            return headers | self._tools.headers(message, self.client.revision)
        if isinstance(message, Request) and message.method == "initialize":
            return headers
        return headers | self._session_headers()

    def _session_headers(self) -> dict[str, str]:
        session = {} if self._session is None else {"Mcp-Session-Id": self._session}
        return {"MCP-Protocol-Version": self.client.revision.name, **session}


async def _read(answer: httpx2.Response, take: Callable[[bytes], bool]) -> None:
    """Read a body piece by piece, until it ends, or `take` wants no more of it or fails.

    It is left by a cancellation then: an iteration that is merely given up is closed nobody knows when.
    """
    failure: Exception | None = None
    with trio.CancelScope() as scope:
        async for piece in answer.aiter_raw():
            try:
                if failure is None and not take(piece):
                    scope.deadline = min(scope.deadline, trio.current_time() + _LEAVE_SECONDS)
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = error
                scope.cancel()
    if failure is not None:
        raise failure


def _media_type(answer: httpx2.Response) -> str:
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _check_encoding(url: str, answer: httpx2.Response) -> None:
    encoding = answer.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise MalformedAnswerError(f"{url} answers in {encoding}, which was not asked for")


def _status(url: str, answer: httpx2.Response) -> ClientError:
    """What to tell of an answer that has nothing of the protocol's."""
    if answer.is_success:
        kind = _media_type(answer) or "nothing"
        return MalformedAnswerError(f"what {url} answers is no MCP: its content type is {kind}")
    where = answer.headers.get("location")
    moved = f", and names {where} instead" if answer.is_redirect and where else ""
    return StatusError(
        answer.status_code, f"{url} answered {answer.status_code} {answer.reason_phrase}".rstrip() + moved
    )


def _explain(url: str, error: httpx2.HTTPError) -> str:
    detail = (not isinstance(error, httpx2.TimeoutException) and _reason(error)) or type(error).__name__
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return f"cannot connect to {url}: {detail}"
    return f"the connection to {url} failed: {detail}"


def _reason(error: BaseException | None) -> str:
    """What happened first: of the errors that became one another, the text of the innermost that has one."""
    text = ""
    while error is not None:
        text = str(error) or text
        error = (
            error.exceptions[0]
            if isinstance(error, BaseExceptionGroup)
            else error.__cause__ or error.__context__
        )
    return text
