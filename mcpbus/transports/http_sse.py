"""HTTP+SSE of 2024-11-05: one GET carries everything that the server says, and POSTs what its client says.

The GET's first event names the address of the POSTs, with the session's id in its query. The session is the
connection: when the stream drops, all that is in flight is cancelled, nothing is kept, and the id is unknown. Every
legacy revision may be negotiated over it, and a request that brings the ``_meta`` of a modern one is served as on any
shared channel. An error that names no request has no place on the stream: it is the body of its POST's 400.

A POST is answered as soon as what it says is taken, and its connection goes on; what it asks for belongs to the session.
"""

from contextlib import nullcontext
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, quote

import attrs
import trio

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.hub import Hub
from mcpbus.protocol.errors import SERVER_ERROR, ProtocolError, invalid_request
from mcpbus.protocol.http import options as origin
from mcpbus.protocol.http.head_validation import HeadValidator
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, answer, refusal
from mcpbus.protocol.jsonrpc import encode_error, is_batch
from mcpbus.protocol.principals import Peer, is_same
from mcpbus.transports import responses
from mcpbus.transports.access_control import AccessControl
from mcpbus.transports.deferred import Served, serve_when_read
from mcpbus.transports.duplex import DuplexChannel
from mcpbus.transports.ledger_responses import RecordedResponse
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import ResponseSink, TaskResponse
from mcpbus.transports.response_writer import watch
from mcpbus.transports.responses import GET_FORMAT

_VERBS: Final = b"GET, POST"
_NAME: Final = "session_id"
# What both official SDKs answer; the transport's text leaves it open (rule H-4).
_ACCEPTED: Final = answer(202, b"text/plain", b"Accepted")
_NO_STREAM: Final = refusal(406, invalid_request("a GET opens a stream; Accept must name text/event-stream"))


class HttpSse:
    """The address of HTTP+SSE, beside the endpoint of an open bus.

    Args:
        bus: The bus.
        heads: The endpoint's own judge of what every client sends.
        access: The endpoint's own.
    """

    def __init__(self, bus: Hub, heads: HeadValidator, access: AccessControl) -> None:
        self._bus = bus
        self._heads = heads
        self._access = access
        self._channels: dict[str, DuplexChannel] = {}  # by the query that names it

    def clears(self, head: RequestHead) -> bool:
        """Whether this is the head of a POST in which everything is in order; see `Endpoint.is_head_valid`."""
        if head.verb != "POST" or self.judge(head) is not None:
            return False
        return not isinstance(self._heads.validate_content(head), HttpResponse)

    def judge(self, head: RequestHead) -> HttpResponse | None:
        """Return why a request is refused, whoever sends it."""
        refused = self._heads.validate_caller(head)
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

    def respond(self, head: RequestHead, body: bytes | None, principal: Any, sink: ResponseSink) -> Served:
        """Serve a request that `judge` lets pass, and whose sender is known; see `Endpoint.respond`."""
        if head.verb == "GET":
            opened = self._open(head, principal, sink.peer)
            if isinstance(opened, HttpResponse):
                return opened
            try:
                sink.open(opened)
            except BaseException:  # there is no memory for it, say
                opened.writer.__exit__()
                raise
            return None
        content = self._heads.validate_content(head)
        if not isinstance(content, HttpResponse) and body is not None and len(body) > content.limit:
            content = self._heads.too_large
        if isinstance(content, HttpResponse):
            return self._access.refuse_body(content, head, principal, sink.peer)
        return self.receive(head, body, principal, sink)

    def receive(self, head: RequestHead, body: bytes | None, principal: Any, sink: ResponseSink) -> Served:
        """Serve a POST whose head and length are in order."""
        channel = self._admit(head, body or b"", principal, sink.peer)
        if isinstance(channel, HttpResponse):
            return channel
        if body is None:
            limit = self._heads.options.max_body_bytes
            return serve_when_read(sink, limit, partial(self._receive_read, head, principal, sink))
        scope = sink.scope
        if scope is None or channel.has_waiters or is_batch(body):
            sink.respond_in_task(partial(self._take_apart, channel, body, principal))
            return None
        faults: list[bytes] = []
        eager = channel.take_now(body, scope, faults, principal)
        if eager is None:
            return _accepted(faults)
        sink.finish(_ACCEPTED)
        return eager

    def _receive_read(
        self, head: RequestHead, principal: Any, sink: ResponseSink, body: bytes | None
    ) -> Served:
        if body is None:
            return self._access.refuse_body(self._heads.too_large, head, principal, sink.peer)
        return self.receive(head, body, principal, sink)  # the session may have ended while the body came

    # -- GET -------------------------------------------------------------------------------------

    def _open(self, head: RequestHead, principal: Any, peer: Peer) -> HttpResponse | StreamedResponse:
        """Open a session, which is the connection; its stream has to be written, or left."""
        refused = self._access.lacking(principal)
        if refused is not None:
            return self._access.refuse(refused, head, peer)
        if not head.headers.accepted.sse:
            return _NO_STREAM
        try:
            channel = DuplexChannel(self._bus, principal, self._heads.origin(head, peer))
        except ServerOverloaded as error:
            return responses.overload(error)
        options, query = self._heads.options, f"{_NAME}={channel.session.id}"
        self._channels[query] = channel
        channel.writer.left = partial(self._channels.pop, query)
        address = f"{quote(options.root_path or head.root)}{options.sse_path}?{query}"
        form = attrs.evolve(GET_FORMAT, address=address.encode())
        return StreamedResponse(channel.stream, channel.writer, form, None)

    # -- POST ------------------------------------------------------------------------------------

    def _admit(
        self, head: RequestHead, body: bytes, principal: Any, peer: Peer
    ) -> HttpResponse | DuplexChannel:
        """Find the channel for which a message is, or return why it is refused."""
        channel = self._find(head.query, principal)
        refused = self._access.lacking(principal, () if channel is None else channel.requests.asked(body))
        if refused is None and channel is not None:
            return channel
        return self._access.refuse(refused or _unknown(), head, peer)

    async def _take_apart(
        self, channel: DuplexChannel, body: bytes, principal: Any, http: TaskResponse
    ) -> None:
        """Answer a POST that has to wait for room, or whose parts may have to; its handlers have tasks of their own."""
        reply = await self._take_in(channel, body, principal, http)
        with RecordedResponse(None, self._bus.budget, len(reply.body), http.give_up):
            await http.answer(reply)

    async def _take_in(
        self, channel: DuplexChannel, body: bytes, principal: Any, http: TaskResponse
    ) -> HttpResponse:
        faults: list[bytes] = []
        turn = channel.turn(len(body), partial(watch, http)) if channel.has_waiters else nullcontext()
        try:
            async with turn:
                if channel.session.address.stopped:
                    return _unknown()
                await channel.take(body, faults, principal)
                # Its notifications may be too much already for the next message.
                await trio.lowlevel.checkpoint()
        except ServerOverloaded as error:
            return responses.overload(error)
        return _accepted(faults)

    def _find(self, query: str, principal: Any) -> DuplexChannel | None:
        channel = self._channels.get(query)
        if channel is None:  # it may say something else, too
            named = parse_qs(query).get(_NAME, ())
            channel = self._channels.get(f"{_NAME}={named[0]}") if len(named) == 1 else None
        if channel is None or channel.session.address.stopped:
            return None
        return channel if is_same(channel.session.principal, principal) else None


def _accepted(faults: list[bytes]) -> HttpResponse:
    """The answer to a message that was taken, or not."""
    if not faults:
        return _ACCEPTED
    # Several can only be parts of one batch, whose other parts have been taken.
    fault = faults[0] if len(faults) == 1 else b"[%b]" % b",".join(faults)
    return answer(400, b"application/json", fault)


def _unknown() -> HttpResponse:
    fault = "Session not found: its stream has ended or never was; open another one with GET"
    return answer(404, b"application/json", encode_error(None, ProtocolError(SERVER_ERROR, fault)))
