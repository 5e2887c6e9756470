"""The requests of one client to its server over HTTP: each message is a POST, and a session that has ended is followed by a new one.

What a client of revision 2026-07-28 over HTTP knows of tools: which of their parameters it repeats in headers.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
import msgspec
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import (
    ClientError,
    DisconnectedError,
    MalformedAnswerError,
    SessionLostError,
    redact_url,
)
from mcpbus.client.get_stream import GetStream
from mcpbus.client.http_library import httpx2
from mcpbus.client.http_requests import HttpRequests
from mcpbus.client.http_responses import (
    Refusal,
    check_encoding,
    explain,
    media_type,
    read_body,
    read_error_body,
    read_messages,
    status_error,
    validate_error,
)
from mcpbus.client.outgoing import SendQueue
from mcpbus.client.pending import PendingRequest
from mcpbus.client.session import Message
from mcpbus.client.session_id import MOST_REFUSALS, SessionId
from mcpbus.client.stream_position import StreamPosition
from mcpbus.client.wire import encode_message
from mcpbus.client.yielding import LONG_WORK_BYTES, long_work
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.mirrored_headers import repeat_request
from mcpbus.protocol.http.mirrored_parameters import KEY, MirroredParameter, mirrored_parameters
from mcpbus.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, Undecodable
from mcpbus.protocol.meta import read_routing
from mcpbus.protocol.revisions import Era, Revision

_log = logging.getLogger(__name__)


class MirroredTools:
    """The tools whose parameters are repeated in headers, as far as they were listed."""

    def __init__(self) -> None:
        self._mirrored: dict[str, Sequence[MirroredParameter]] = {}
        # What was listed since the last page of a list: what is not, is not there any more.
        self._listed: dict[str, Sequence[MirroredParameter]] = {}

    def headers(self, request: JsonRpcRequest, revision: Revision) -> dict[str, str]:
        """Return the header fields of a request."""
        mirrored: Sequence[MirroredParameter] = ()
        if request.method == "tools/call" and self._mirrored:
            mirrored = self._mirrored.get(read_routing(request.params).name or "", ())
        return repeat_request(request, revision.name, mirrored)

    def learn(self, data: bytes | str) -> bytes | str:
        """Take an answer to ``tools/list``; return it without the tools whose headers would be wrong (rule X-43).

        A page without such a parameter is not decoded.
        """
        try:
            page = msgspec.json.decode(data, type=_ListResponse).result
        except (msgspec.DecodeError, RecursionError):
            return data  # whoever reads the answer tells what is wrong
        if page is None or page.tools is msgspec.UNSET:
            return data
        if (KEY in data) if isinstance(data, str) else (KEY.encode() in data):
            message = msgspec.json.decode(data)
            tools = message["result"]["tools"]
            if isinstance(tools, list):
                message["result"]["tools"] = [tool for tool in tools if self._learn(tool)]
                data = msgspec.json.encode(message)
        self._mirrored |= self._listed
        if page.next_cursor is None:
            self._mirrored, self._listed = self._listed, {}
        return data

    def _learn(self, tool: Any) -> bool:
        try:
            name, schema = msgspec.convert(tool, _Named).name, tool.get("inputSchema")
            self._listed[name] = mirrored_parameters(schema) if isinstance(schema, dict) else ()
        except msgspec.ValidationError:
            return True  # whoever lists the tools tells what is wrong
        except ValueError as fault:
            _log.warning("the tool %r is left out: %s", name, fault)
            return False
        return True


class _Named(msgspec.Struct):
    name: str


class _Page(msgspec.Struct, rename="camel"):
    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    next_cursor: Any = None


class _ListResponse(msgspec.Struct):
    result: _Page | None = None


_TELL_SECONDS: Final = 30
"""How long a server may take to accept what it owes no answer."""
_MOST_APART: Final = 1_000
"""How many answers and cancellations are on their way at once, before others wait for them."""
_PING_SECONDS: Final = 5.0
_LEFT_SECONDS: Final = 5.0
"""How long an answer may come in a session that another request has found to have ended."""
_LOST_EACH: Final = (
    "{url} has refused the request in {times} sessions that it had just opened: do several replicas answer there that do not share "
    "their sessions? Route by Mcp-Session-Id, or use revision 2026-07-28, which has none"
)


@attrs.frozen(eq=False)
class _Outgoing:
    """A message to post, with the request whose it is."""

    message: Message
    pending: PendingRequest | None

    @property
    def request(self) -> PendingRequest | None:
        return self.pending if isinstance(self.message, JsonRpcRequest) else None

    @property
    def size(self) -> int:
        message = self.message
        return len((message.result or b"") if isinstance(message, JsonRpcResponse) else message.params)


@attrs.frozen
class _Post:
    """A request that was posted, and in which session."""

    scope: trio.CancelScope
    pending: PendingRequest
    session: str | None


class _RefusedError(Exception):
    """The session of a post has ended: nobody has looked at its request."""


class HttpConnection:
    """The posts of one client.

    Args:
        requests: Sends them.
        url: The endpoint.
        nursery: For their answers.

    Attributes:
        client: Whose they are; set once it is there.
        stream: Where the server says what belongs to none of them.
    """

    client: Client

    def __init__(self, requests: HttpRequests, url: str, nursery: trio.Nursery) -> None:
        self._requests = requests
        self._url = url
        self._nursery = nursery
        self.stream = GetStream(requests, url, nursery, self._session_headers)
        self._tools = MirroredTools()
        self._posts: dict[int | str, _Post] = {}
        # Posts in the order in which they were sent; see `run`.
        self.waiting: SendQueue[_Outgoing] = SendQueue("the server")
        self._session = SessionId(nursery, self.waiting, self._leave_session)
        self._posted = trio.Event()

    def send(self, message: Message, pending: PendingRequest | None) -> None:
        """Send a message; a cancellation closes the answer of its request, too."""
        if isinstance(message, JsonRpcNotification) and message.method == "notifications/cancelled":
            post = self._posts.get(msgspec.json.decode(message.params)["requestId"])
            if post is not None:
                post.scope.cancel()
            if self.client.revision.era is Era.MODERN:
                return
        self.waiting.put(_Outgoing(message, pending))

    async def run(self) -> None:
        """Post what is sent.

        A notification holds up what comes behind it until the server has accepted it, or for 30 s: what is asked for after
        it may rest on it. Answers, and what takes a request back, hold nothing up.
        """
        try:
            async with trio.open_nursery() as apart:
                while (outgoing := await self.waiting.take()) is not None:
                    message, pending = outgoing.message, outgoing.pending
                    if not isinstance(message, JsonRpcRequest):
                        if _opens_session(message):
                            self._session.enter()
                        if _stands_alone(message) and len(apart.child_tasks) < _MOST_APART:
                            apart.start_soon(self._tell, outgoing, self._session.id)
                        else:
                            await self._tell(outgoing, self._session.id)
                        if _opens_session(message):
                            self.stream.enter(self.client, self._session.id)
                            await self.stream.soon()
                    elif pending is None:
                        self.waiting.written(outgoing)
                    elif self._session.renewing and message.method != "initialize":
                        self.waiting.park(outgoing)
                    else:
                        self.stream.asked(message.method)
                        pending.begun = True
                        self._nursery.start_soon(self._ask, outgoing, message, pending)
        finally:
            self._posted.set()

    def _leave_session(self, ended: str) -> None:
        """Expect nothing more of a session that has ended, but for answers that come soon: a replica that knows the session may give them."""
        self.stream.leave()
        self.client.sessions_lost += 1
        self.client.withdraw_questions()
        self.client.unheard("the server ended the session, and has forgotten what was subscribed to")
        for post in self._posts.values():
            if post.session == ended:
                post.scope.deadline = trio.current_time() + _LEFT_SECONDS

    async def close(self) -> None:
        """Post what is left, and end the session."""
        self.waiting.close()
        await self._posted.wait()
        while (outgoing := self.waiting.take_nowait()) is not None:  # which a cancellation has left
            if not isinstance(outgoing.message, JsonRpcRequest):
                await self._tell(outgoing, self._session.id)
        if self._session.id is not None:
            headers = self._session_headers(self._session.id)
            with suppress(httpx2.HTTPError, ClientError):  # the server ends it by itself, in time
                async with self._requests.send("DELETE", headers):
                    pass

    async def _tell(self, outgoing: _Outgoing, session: str | None) -> None:
        """Post what is owed no answer. A call whose question stays unanswered for it, fails."""
        message, problem = outgoing.message, "the server accepts nothing"
        with trio.move_on_after(_TELL_SECONDS):
            try:
                headers = self._post_headers(message, session)
                body = encode_message(message)
                async with self._requests.send(
                    "POST", headers, body, may_ask=_opens_session(message)
                ) as answer:
                    if answer.is_success:
                        return
                    if session is not None and not _opens_session(message):
                        body = await read_error_body(answer, self.client.readings)
                        if validate_error(answer.status_code, body, None) is Refusal.OF_SESSION:
                            self._session.ended(session, self.client)
                            return
                    problem = str(status_error(self._url, answer))
            except httpx2.HTTPError as error:
                problem = explain(self._url, error)
            except ClientError as error:
                problem = str(error)
            finally:
                self.waiting.written(outgoing)
        if not isinstance(message, JsonRpcNotification):
            self.client.unanswered(outgoing.pending, problem)

    async def _ask(self, outgoing: _Outgoing, request: JsonRpcRequest, pending: PendingRequest) -> None:
        session = None if request.method == "initialize" else self._session.id
        refused = False
        with trio.CancelScope() as scope:
            self._posts[request.id] = _Post(scope, pending, session)
            try:
                await self._exchange(request, pending, session)
            except _RefusedError:
                refused = True
            except httpx2.HTTPError as error:
                pending.settle(DisconnectedError(explain(self._url, error)))
            except ClientError as error:
                pending.settle(error)
            except (Undecodable, ValueError, RecursionError) as error:
                pending.settle(
                    MalformedAnswerError(f"what {redact_url(self._url)} answers is no MCP: {error}")
                )
            finally:
                del self._posts[request.id]
                if not refused:
                    self.waiting.written(outgoing)
        if scope.cancelled_caught:  # else it is settled
            pending.settle(DisconnectedError("the server ended the session before the answer came"))
        if refused and session is not None:
            pending.begun = False
            pending.refusals += 1
            if pending.refusals > MOST_REFUSALS:
                pending.settle(
                    SessionLostError(_LOST_EACH.format(url=redact_url(self._url), times=pending.refusals))
                )
            self.waiting.park(outgoing)
            self._session.ended(session, self.client)

    async def _exchange(self, request: JsonRpcRequest, pending: PendingRequest, session: str | None) -> None:
        place = StreamPosition(session)
        headers = self._post_headers(request, session)
        said = encode_message(request)
        async with self._requests.send("POST", headers, said, may_ask=True) as answer:
            if session is not None and answer.is_error:
                await self._read_error(answer, request, pending, session)
                return
            check_encoding(self._url, answer)
            kind = media_type(answer)
            if request.method == "initialize":
                opened = answer.headers.get("mcp-session-id")
                self._session.offered(opened)
                self.client.stateless = opened is None
            if kind == "text/event-stream" and answer.is_success:
                await self._follow(answer, request, pending, place)
            elif kind == "application/json" and answer.status_code not in {401, 403}:
                await self._read_json(answer, request, pending)
            else:
                raise status_error(self._url, answer)
        while pending.result is None:
            await self._return(request, pending, place)

    async def _read_error(
        self, answer: httpx2.Response, request: JsonRpcRequest, pending: PendingRequest, session: str
    ) -> None:
        """Read an error that came in a session.

        Raises:
            _RefusedError: The session has ended.
            ClientError: The error is nothing of the protocol's.
        """
        body = await read_error_body(answer, self.client.readings)
        refusal = validate_error(answer.status_code, body, request)
        if refusal is Refusal.UNCLEAR:
            # A request without an effect tells whether it is the session. If so, that request has a new one opened, and this one
            # does not end with the old one.
            self._posts[request.id] = attrs.evolve(self._posts[request.id], session=None)
            with trio.move_on_after(_PING_SECONDS), suppress(ClientError, ProtocolError):
                await self.client.request("ping")
            if self._session.id != session and answer.is_client_error:
                refusal = Refusal.OF_SESSION
        if refusal is Refusal.OF_SESSION:
            raise _RefusedError
        check_encoding(self._url, answer)
        if media_type(answer) == "application/json" and answer.status_code not in {401, 403}:
            with suppress(Undecodable, ValueError):
                self._receive(body, request, pending)
        if pending.result is None:
            raise status_error(self._url, answer)

    async def _read_json(
        self, answer: httpx2.Response, request: JsonRpcRequest, pending: PendingRequest
    ) -> None:
        body = await read_body(answer, self.client.readings)
        try:
            if len(body) < LONG_WORK_BYTES:
                self._receive(body, request, pending)
            else:
                async with long_work():
                    self._receive(body, request, pending)
        except (Undecodable, ValueError):
            if answer.is_success:
                raise
        if pending.result is None:
            raise status_error(self._url, answer)

    async def _follow(
        self, answer: httpx2.Response, request: JsonRpcRequest, pending: PendingRequest, place: StreamPosition
    ) -> None:
        """Read a stream until the answer has come, or it ends."""

        def take(message: str) -> bool:
            self._receive(message, request, pending)
            return pending.result is None

        try:
            await read_messages(answer, place, take, self.client.readings)
        except httpx2.HTTPError:
            if not place.id:
                raise

    async def _return(self, request: JsonRpcRequest, pending: PendingRequest, place: StreamPosition) -> None:
        """Come back to a stream that ended before the answer came, as older revisions have it."""
        if self.client.revision.era is Era.MODERN or not place.id or not place.reconnect():
            raise DisconnectedError("the stream ended before the answer came")
        await trio.sleep(place.pause)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": place.id}
        headers |= self._session_headers(place.session)
        try:
            async with self._requests.send("GET", headers, may_ask=True) as answer:
                if place.session is not None and answer.is_error:
                    body = await read_error_body(answer, self.client.readings)
                    if validate_error(answer.status_code, body, None) is Refusal.OF_SESSION:
                        self._session.ended(place.session, self.client)
                check_encoding(self._url, answer)
                if media_type(answer) != "text/event-stream" or not answer.is_success:
                    raise status_error(self._url, answer)
                await self._follow(answer, request, pending, place)
        except httpx2.TransportError:
            if place.is_last_return:
                raise

    def _receive(self, data: bytes | str, request: JsonRpcRequest, pending: PendingRequest) -> None:
        if request.method == "tools/list" and self.client.revision.era is Era.MODERN:
            data = self._tools.learn(data)
        self.client.receive(data, pending)

    def _post_headers(self, message: Message, session: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if isinstance(message, JsonRpcRequest) and self.client.revision.era is Era.MODERN:
            return headers | self._tools.headers(message, self.client.revision)
        if isinstance(message, JsonRpcRequest) and message.method == "initialize":
            return headers
        return headers | self._session_headers(session)

    def _session_headers(self, session: str | None) -> dict[str, str]:
        named = {} if session is None else {"Mcp-Session-Id": session}
        return {"MCP-Protocol-Version": self.client.revision.name, **named}


def _stands_alone(message: Message) -> bool:
    """Whether nothing that is sent later rests on it: an answer, or a cancellation."""
    return not isinstance(message, JsonRpcNotification) or message.method == "notifications/cancelled"


def _opens_session(message: Message) -> bool:
    return isinstance(message, JsonRpcNotification) and message.method == "notifications/initialized"
