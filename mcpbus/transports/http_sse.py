"""HTTP+SSE of 2024-11-05: one GET carries everything that the server says, and POSTs what its client says.

The GET's first event names the address of the POSTs, with the session's id in its query. The session is the
connection: when the stream drops, all that is in flight is cancelled, nothing is kept, and the id is unknown. Every
legacy revision may be negotiated over it, and a request that brings the ``_meta`` of a modern one is served as on any
shared channel. An error that names no request has no place on the stream: it is the body of its POST's 400.
"""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qs, quote

import trio

from mcpbus.core.admission import Overloaded
from mcpbus.core.hub import Hub
from mcpbus.core.session import Session
from mcpbus.protocol.errors import SERVER_ERROR, ProtocolError, invalid_request
from mcpbus.protocol.http import origin
from mcpbus.protocol.http.messages import Answer, Head, answer, refusal
from mcpbus.protocol.http.sse import COMMENT, HEADERS, encode_event
from mcpbus.protocol.http.validation import Exchange
from mcpbus.protocol.jsonrpc import encode_error
from mcpbus.protocol.owners import owner_of
from mcpbus.protocol.principals import is_same
from mcpbus.transports import answers
from mcpbus.transports.authorizing import authorize, refuse_lacking
from mcpbus.transports.duplex import Channel
from mcpbus.transports.needed_scopes import Asked, lacking
from mcpbus.transports.refusals import Refusals
from mcpbus.transports.response import HttpRequest, watch

_VERBS: Final = b"GET, POST"
_NAME: Final = "session_id"
# What both official SDKs answer; the transport's text leaves it open (rule H-4).
_ACCEPTED: Final = answer(202, b"text/plain", b"Accepted")
_NO_STREAM: Final = refusal(406, invalid_request("a GET opens a stream; Accept must name text/event-stream"))


class HttpSse:
    """The address of HTTP+SSE, beside the endpoint of an open bus.

    Args:
        bus: The bus.
        exchange: The endpoint's own judge, for what is asked of every client.
        refusals: Is told what is refused.
    """

    def __init__(self, bus: Hub, exchange: Exchange[Session], refusals: Refusals) -> None:
        self._bus = bus
        self._exchange = exchange
        self._refusals = refusals
        self._channels: dict[str, Channel] = {}

    async def serve(self, http: HttpRequest) -> None:
        """Serve one request, to its end.

        Raises:
            trio.BrokenResourceError: The client went away before its request was complete.
        """
        principal, refused = None, self._judge_head(http.head)
        if refused is None:
            principal, refused = await authorize(self._bus.backend, http.head, http.peer)
            refused = refused or self._lacking(principal)
        if refused is not None:
            await self._answer(http, refused)
            return
        if http.head.verb == "GET":
            await self._open(http, principal)
        else:
            try:
                reply = await self._receive(http, principal)
            except Overloaded as error:
                await http.answer(answers.overload(error))
                return
            if reply is self._exchange.too_large:
                owner = owner_of(principal, self._exchange.origin(http.head, http.peer))
                self._bus.reached.note("max_body_bytes", owner, "a message was refused")
            await self._answer(http, reply)

    async def _answer(self, http: HttpRequest, reply: Answer) -> None:
        """Send an answer, and tell the log of it if it is a refusal."""
        peer = self._exchange.origin(http.head, http.peer)
        await http.answer(self._refusals.note(reply, http.head, peer))

    def _judge_head(self, head: Head) -> Answer | None:
        refused = self._exchange.judge_caller(head)
        if refused is not None:
            return refused
        if origin.is_preflight(head):
            return origin.preflight(head, _VERBS)
        if head.verb == "POST" and not head.query:
            # A client that tries newer transports first goes on to GET when it is told so, and not in JSON-RPC (rule D-13).
            return answer(405, b"text/plain", b"Open a session with GET.\n", (b"allow", b"GET"))
        if head.verb not in {"GET", "POST"}:
            return answer(405, b"text/plain", b"GET or POST.\n", (b"allow", _VERBS))
        return None

    # -- GET -------------------------------------------------------------------------------------

    async def _open(self, http: HttpRequest, principal: Any) -> None:
        if not http.head.headers.accepted.sse:
            await http.answer(_NO_STREAM)
            return
        try:
            channel = Channel(self._bus, principal, self._exchange.origin(http.head, http.peer))
        except Overloaded as error:
            await http.answer(answers.overload(error))
            return
        session_id = channel.session.id
        self._channels[session_id] = channel
        try:
            with channel:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watch, http, nursery.cancel_scope)
                    await self._write(http, channel)
                    nursery.cancel_scope.cancel()
        finally:
            del self._channels[session_id]

    async def _write(self, http: HttpRequest, channel: Channel) -> None:
        async def send(messages: list[bytes]) -> None:
            events = [encode_event(message, event="message") for message in messages]
            await http.write(b"".join(events) or COMMENT, more=True)

        options, limits, owner = self._exchange.options, self._bus.limits, channel.session.owner
        root = options.root_path or http.head.root
        address = f"{quote(root)}{options.sse_path}?{_NAME}={channel.session.id}"
        with self._bus.reached.writing(limits.write_deadline, owner) as deadline:
            await http.start_stream([*HEADERS])
            await http.write(encode_event(address.encode(), event="endpoint"), more=True)
        if not deadline.cancelled_caught and await channel.write(send, limits.keep_alive):
            with self._bus.reached.writing(limits.write_deadline, owner):
                await http.write(b"", more=False)

    # -- POST ------------------------------------------------------------------------------------

    async def _receive(self, http: HttpRequest, principal: Any) -> Answer:
        content = self._exchange.judge_content(http.head)
        if isinstance(content, Answer):
            return content
        channel = self._find(http.head, principal)
        if channel is None:
            return _unknown()
        await channel.room()  # before there is a body to keep
        body = await http.read_body(content.limit)
        if body is None:
            return self._exchange.too_large
        if self._find(http.head, principal) is None:
            return _unknown()  # it ended while the body came
        return self._lacking(principal, channel.requests.asked(body)) or await self._take(
            channel, body, principal
        )

    async def _take(self, channel: Channel, body: bytes, principal: Any) -> Answer:
        faults: list[bytes] = []
        await channel.take(body, faults, principal)
        if not faults:
            return _ACCEPTED
        # Several can only be parts of one batch, whose other parts have been taken.
        fault = faults[0] if len(faults) == 1 else b"[%b]" % b",".join(faults)
        return answer(400, b"application/json", fault)

    def _lacking(self, principal: Any, requests: Iterable[Asked] = ()) -> Answer | None:
        backend = self._bus.backend
        return refuse_lacking(backend, lacking(backend, principal, requests))

    def _find(self, head: Head, principal: Any) -> Channel | None:
        named = parse_qs(head.query).get(_NAME, ())
        channel = self._channels.get(named[0]) if len(named) == 1 else None
        if channel is None or channel.session.address.stopped:
            return None
        return channel if is_same(channel.session.principal, principal) else None


def _unknown() -> Answer:
    fault = "Session not found: its stream has ended or never was; open another one with GET"
    return answer(404, b"application/json", encode_error(None, ProtocolError(SERVER_ERROR, fault)))
