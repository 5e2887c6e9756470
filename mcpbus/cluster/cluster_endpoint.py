"""An endpoint of one process among several: it serves what is here, and has the others serve what is theirs.

Whose something is, its `Affinity` tells; if it is not there any more, its `Locator` finds it. Who serves it judges it, asks who it is,
and counts it; here it is only read, and what comes back is written.

Requests of which a part is over already, as whoever goes on with them has them.
"""

from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final

import trio

from mcpbus.cluster.affinity import Affinity, has_no_target, session_of
from mcpbus.cluster.directory import released_home
from mcpbus.cluster.forwarded_request import ForwardedRequest
from mcpbus.cluster.inline_forward import InlineForward
from mcpbus.cluster.link import Link
from mcpbus.cluster.link_pool import unreachable
from mcpbus.cluster.locator import Locator
from mcpbus.cluster.messages import Open, encode
from mcpbus.cluster.node import Node
from mcpbus.cluster.remote_request import ForwardTo, RemoteRequest
from mcpbus.cluster.response_relay import RelayProgress, UnsentResponses, relay
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.hub import Hub
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.sessions.messages import Reconnect
from mcpbus.core.sessions.remote import SessionMovedError
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.http.mirrored_headers import claims_modern
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.principals import Peer
from mcpbus.transports import responses
from mcpbus.transports.deferred import Served, serve_when_read
from mcpbus.transports.endpoint import Endpoint, Serving
from mcpbus.transports.request_handler import ResponseMode
from mcpbus.transports.response_sinks import ResponseSink, TaskResponse
from mcpbus.transports.response_writer import watch
from mcpbus.transports.responses import HeaderList
from mcpbus.transports.task_sink import HttpTaskSink, ResponseWriting, write_whole


class BufferedRequest(HttpTaskSink):
    """A request whose body has been read, and that is answered through another request.

    Args:
        endpoint: Writes responses.
        http: The request.
        body: Its body; None if that is too long.
    """

    def __init__(self, endpoint: ResponseWriting, http: TaskResponse, body: bytes | None) -> None:
        super().__init__(endpoint, http.head, http.peer, bounds_writes=http.bounds_writes)
        self._http = http
        self._body = body

    async def read_body(self, limit: int) -> bytes | None:
        """Return the whole body; None if it is too long."""
        await trio.lowlevel.checkpoint()
        return None if self._body is None or len(self._body) > limit else self._body

    async def answer(self, reply: HttpResponse) -> None:
        """Send a whole response; see `TaskResponse`."""
        await self._http.answer(reply)

    async def start_stream(self, headers: HeaderList) -> None:
        """Begin a response in pieces; see `TaskResponse`."""
        await self._http.start_stream(headers)

    async def write(self, data: bytes, *, more: bool) -> None:
        """Write a piece of the response; see `TaskResponse`."""
        await self._http.write(data, more=more)

    def give_up(self) -> None:
        """End a write that is shielded from cancellation; see `TaskResponse`."""
        self._http.give_up()

    async def disconnected(self) -> None:
        """Return when the client has gone; see `TaskResponse`."""
        await self._http.disconnected()


class ContinuedRequest(BufferedRequest):
    """A request whose response has begun, and is a stream that another process goes on with.

    Args:
        endpoint: Writes responses.
        http: The request, which has no body.
    """

    def __init__(self, endpoint: ResponseWriting, http: TaskResponse) -> None:
        super().__init__(endpoint, http, b"")

    async def answer(self, reply: HttpResponse) -> None:  # noqa: ARG002 - as `TaskResponse` has it
        """Fail: the response has begun."""
        raise trio.BrokenResourceError("no process can go on with this stream")

    async def start_stream(self, headers: HeaderList) -> None:  # noqa: ARG002
        """Go on with the stream that has begun."""
        await trio.lowlevel.checkpoint()


_ATTEMPTS: Final = 8


class ClusterEndpoint(Endpoint):
    """The endpoint of a bus that is one of several; see `Endpoint`.

    Args:
        node: Leads to the others.
        bus: The bus.
        options: How the endpoint is served.
        response: The form of answers.
    """

    def __init__(self, node: Node, bus: Hub, options: HttpOptions, response: ResponseMode) -> None:
        super().__init__(bus, options, response)
        self._node = node
        self._number = node.enter(self)
        self._affinity = Affinity(node, bus, self.options)
        self._locator = Locator(node, bus, self._affinity, self.heads)

    def respond(
        self, head: RequestHead, body: bytes | None, sink: ResponseSink, *, cleared: bool = False
    ) -> Served:
        """Serve a request, or forward it; see `Endpoint.respond`."""
        if body is None:
            return self._respond_unread(head, sink, cleared=cleared)
        if cleared and head.path == self.options.path and has_no_target(head.headers, body):
            return super().respond(head, body, sink, cleared=cleared)
        home = self._affinity.destination(head, body)
        if home is None:
            return super().respond(head, body, sink, cleared=cleared)
        link = self._node.link(home)
        go_on = partial(self._forward, body=body, home=home)
        if link is None or len(body) > SHORT_BYTES:
            sink.respond_in_task(go_on)
        else:
            InlineForward(link, self._ask(head, sink.peer, body), go_on).ask(sink)
        return None

    def _respond_unread(self, head: RequestHead, sink: ResponseSink, *, cleared: bool) -> Served:
        """Serve a request whose body still arrives; it is read first if another process may be its destination."""
        home = self._affinity.home_of(head)
        if head.verb != "POST":
            if home is None and not self._affinity.next_node(head, b""):
                return super().respond(head, None, sink, cleared=cleared)
            return self.respond(head, b"", sink, cleared=cleared)
        asks = session_of(head) is not None or self._node.hand_over.begun or claims_modern(head.headers)
        if home is None and not asks and not self._affinity.next_node(head, b""):
            return super().respond(head, None, sink, cleared=cleared)
        content = self.heads.validate_content(head)
        if isinstance(content, HttpResponse):
            return super().respond(head, None, sink, cleared=cleared)
        return serve_when_read(sink, content.limit, partial(self._respond_read, head, sink, cleared))

    def _respond_read(
        self, head: RequestHead, sink: ResponseSink, cleared: bool, body: bytes | None
    ) -> Served:
        if body is not None:
            return self.respond(head, body, sink, cleared=cleared)
        sink.respond_in_task(self._refuse_too_long)
        return None

    async def _refuse_too_long(self, http: TaskResponse) -> None:
        await self._serve_local(BufferedRequest(self, http, None))

    def _serve_after_wait(
        self, serve: Serving, head: RequestHead, body: bytes | None, principal: Any, sink: ResponseSink
    ) -> Served:
        """Serve a request, unless another process has its session since it began to wait."""
        try:
            return super()._serve_after_wait(serve, head, body, principal, sink)
        except SessionMovedError:
            if isinstance(sink, BufferedRequest):
                raise
            if isinstance(sink, RemoteRequest):
                self._node.start(sink.serve)
            else:
                sink.respond_in_task(partial(self._forward, body=body or b"", home=self._node.home))
            return None

    async def _serve_local(self, http: BufferedRequest) -> None:
        """Serve a request in this process.

        Raises:
            SessionMovedError: Another process has its session.
        """
        await http.serve(super().respond, None)

    def is_here(self, head: RequestHead) -> bool:
        """See `mcpbus.cluster.remote_request.ClusterServedEndpoint`."""
        session = session_of(head)
        if session is None:
            return True
        lease = self._bus.lease
        lasts = lease is None or lease.is_valid or head.verb == "GET"
        return lasts and session in self._bus.sessions and not self._node.hand_over.has(session)

    respond_here = Endpoint.respond
    """Serve a request that another process has forwarded, and whose session is here."""

    async def serve_here(self, sink: RemoteRequest, body: bytes) -> Served | ForwardTo:
        """Serve a request that another process has forwarded, unless its session is elsewhere."""
        session = session_of(sink.head)
        if session is None:
            return super().respond(sink.head, body, sink)
        if self._affinity.next_node(sink.head, body) is not None:
            await self._node.hand_over.wait_gone(session)
        for _ in range(_ATTEMPTS):
            with suppress(SessionMovedError):
                return await self._serve_if_here(sink, session, body)
        return responses.overload(unreachable())

    async def _serve_if_here(self, sink: RemoteRequest, session: str, body: bytes) -> Served | ForwardTo:
        if session not in self._bus.sessions or self._affinity.may_be_elsewhere(sink.head, body):
            try:
                owner = await self._locator.find(sink, body, self._node.home)
            except ServerOverloaded as error:
                return responses.overload(error)
            if owner is not None:
                return ForwardTo(owner) if isinstance(owner, str) else owner
        return super().respond(sink.head, body, sink)

    # -- what is elsewhere -----------------------------------------------------------------------

    def _ask(self, head: RequestHead, peer: Peer, body: bytes) -> bytes:
        """Write a request down, to be sent over a link."""
        heads = self._node.heads
        return encode(Open(heads.write(self._number, head), heads.address(peer), body))

    async def _forward(
        self, http: TaskResponse, *, body: bytes, home: str, forwarded: ForwardedRequest | None = None
    ) -> None:
        """Have another process serve a request; if it has ended, this one, where the state of that process is unknown.

        Args:
            http: The request.
            body: Its body.
            home: The process.
            forwarded: The same request, if it is on its way there already.
        """
        request = BufferedRequest(self, http, body)
        attempts, asked = _ATTEMPTS, [self._node.home]
        while attempts:
            attempts -= 1
            try:
                link: Link | ForwardedRequest | None = forwarded
                if forwarded is None and home != self._node.home:
                    link = await self._node.reach(home)
                if link is None:
                    asks = await self._serve_instead(request, body, home, asked)
                    if asks is None:
                        return
                    home = asks
                    continue
            except ServerOverloaded as error:
                await write_whole(self, responses.overload(error), request)
                return
            relayed, elsewhere = await self._relay(request, body, link)
            home, forwarded = elsewhere or home, None
            match relayed:
                case RelayProgress.WHOLE:
                    self._affinity.note_home(request.head, home)
                    return
                case RelayProgress.BEGUN:
                    request, attempts = ContinuedRequest(self, request), _ATTEMPTS
                case RelayProgress.UNSAID:
                    lost = UnsentResponses(request.head, body).whole()
                    if lost is not None:
                        await write_whole(self, lost, request)
                        return
        await write_whole(self, responses.overload(unreachable()), request)

    async def _serve_instead(
        self, http: BufferedRequest, body: bytes, home: str, asked: list[str]
    ) -> str | None:
        """Serve a request whose process has ended; or return the process to ask next.

        Raises:
            ServerOverloaded: There is no capacity for its session; or the directory does not answer.
        """
        owner = await self._locator.find(http, body, home)
        if isinstance(owner, str):
            return self._locator.next_home(owner, home, asked)
        try:
            if owner is None:
                await self._serve_local(http)
            else:
                await write_whole(self, owner, http)
        except SessionMovedError:
            return home
        return None

    # -- GET streams that do not end with this process -------------------------------------------

    def passes_on(self, head: RequestHead) -> bool:
        """See `mcpbus.cluster.remote_request.ClusterServedEndpoint`."""
        session = session_of(head)
        return head.verb == "GET" and session is not None and self._node.hand_over.has(session)

    async def passed_on(self, head: RequestHead) -> ForwardTo:
        """See `mcpbus.cluster.remote_request.ClusterServedEndpoint`."""
        await self._node.hand_over.wait_gone(session_of(head) or "")
        return ForwardTo(released_home(self._node.home))

    def reconnect(self, head: RequestHead) -> None:
        """See `mcpbus.cluster.remote_request.ClusterServedEndpoint`."""
        session = self._bus.sessions.get(session_of(head) or "")
        if session is not None and head.verb == "GET":
            session.address.tell(Reconnect())

    # -- what is asked of others -----------------------------------------------------------------

    async def _relay(
        self, http: TaskResponse, body: bytes, link: Link | ForwardedRequest
    ) -> tuple[RelayProgress, str | None]:
        """Have a request served over a link, unless it is on its way there already.

        Returns:
            How far that got, and which process is to go on if that is another one.
        """
        relayed, head = RelayProgress.WHOLE, http.head  # if its client has gone
        if isinstance(link, Link):
            link = ForwardedRequest(link, self._ask(head, http.peer, body))
        is_get_stream = head.verb == "GET" and head.path == self.options.path
        goes_on = is_get_stream and head.headers.raw(b"last-event-id") is None
        with (
            link as forwarded,
            self._node.hand_over.relaying(forwarded) if is_get_stream else nullcontext(),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch, http, nursery.cancel_scope)
                relayed = await relay(
                    http,
                    body,
                    forwarded,
                    self.budget,
                    goes_on=goes_on,
                    write_deadline=self.limits.write_deadline,
                )
                nursery.cancel_scope.cancel()
        return relayed, forwarded.elsewhere
