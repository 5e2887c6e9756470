"""An endpoint of one process among several: it serves what is here, and has the others serve what is theirs.

Whose something is, its `Affinity` tells; if it is not there any more, its `Locator` finds it. Who serves it judges it, asks who it is,
and counts it; here it is only read, and what comes back is written.

Requests of which a part is over already, as whoever goes on with them has them.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final

import trio
from mcpbus_actors import EagerTask

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
from mcpbus.core.budget import SHORT_BYTES
from mcpbus.core.hub import Hub
from mcpbus.core.other_processes import SessionMovedError
from mcpbus.core.session_messages import Reconnect
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.http.mirrored_headers import claims_modern
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.principals import Peer
from mcpbus.transports import answers
from mcpbus.transports.answers import HeaderList
from mcpbus.transports.endpoint import Endpoint
from mcpbus.transports.outlets import HttpRequest, InlineResponseSink, InlineRunner
from mcpbus.transports.responder import ResponseMode
from mcpbus.transports.response import watch


class BufferedRequest:
    """An `HttpRequest` whose body has been read.

    Args:
        http: The request.
        body: Its body; None if that is too long.
        host: Who runs its handler; see `HttpRequest`.
    """

    def __init__(self, http: HttpRequest, body: bytes | None, host: InlineRunner | None) -> None:
        self.head = http.head
        self.peer = http.peer
        self.bounds_writes = http.bounds_writes
        self.give_up = http.give_up
        self.head_validated = http.head_validated
        self.host = host
        self.answer = http.answer
        self.start_stream = http.start_stream
        self.write = http.write
        self.disconnected = http.disconnected
        self._body = body

    async def read_body(self, limit: int) -> bytes | None:
        """See `HttpRequest`."""
        await trio.lowlevel.checkpoint()
        return None if self._body is None or len(self._body) > limit else self._body


class ContinuedRequest(BufferedRequest):
    """An `HttpRequest` whose answer has begun, and is a stream that somebody else goes on with.

    Args:
        http: The request, which has no body.
    """

    def __init__(self, http: HttpRequest) -> None:
        super().__init__(http, b"", None)
        self.answer = self._answer
        self.start_stream = self._go_on

    async def _answer(self, reply: HttpResponse) -> None:  # noqa: ARG002 - as `HttpRequest` has it
        raise trio.BrokenResourceError("nobody can go on with this stream")

    async def _go_on(self, headers: HeaderList) -> None:  # noqa: ARG002
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
        self, head: RequestHead, body: bytes, outlet: InlineResponseSink, *, cleared: bool = False
    ) -> HttpResponse | EagerTask | None:
        """See `Endpoint.respond`. What is elsewhere has a task."""
        if cleared and head.path == self.options.path and has_no_target(head.headers, body):
            return super().respond(head, body, outlet, cleared=cleared)
        home = self._affinity.destination(head, body)
        if home is None:
            return super().respond(head, body, outlet, cleared=cleared)
        link = self._node.link(home)
        go_on = partial(self._answer_apart, body=body, home=home)
        if link is None or len(body) > SHORT_BYTES:
            outlet.respond_in_task(go_on)
        else:
            InlineForward(link, self._ask(head, outlet.peer, body), go_on).ask(outlet)
        return None

    async def _ask_and_serve(
        self,
        ask: Callable[[], Awaitable[tuple[Any, HttpResponse | None]]],
        serve: Callable[..., HttpResponse | EagerTask | None],
        head: RequestHead,
        body: bytes,
        outlet: InlineResponseSink,
    ) -> None:
        await super()._ask_and_serve(ask, partial(self._serve_unless_moved, serve), head, body, outlet)

    def _serve_unless_moved(
        self,
        serve: Callable[..., HttpResponse | EagerTask | None],
        head: RequestHead,
        body: bytes,
        principal: Any,
        outlet: InlineResponseSink,
    ) -> HttpResponse | EagerTask | None:
        """Serve a request, unless another process has its session since it was begun to ask who sends it."""
        try:
            return serve(head, body, principal, outlet)
        except SessionMovedError:
            if isinstance(outlet, RemoteRequest):
                self._node.start(outlet.serve)
            else:
                outlet.respond_in_task(partial(self._answer_apart, body=body, home=self._node.home))
            return None

    async def serve(self, http: HttpRequest) -> HttpResponse | None:
        """See `Endpoint.serve`."""
        head, body = http.head, b""
        home = self._affinity.home_of(head)
        # A body that is read is there also for the next one who is asked.
        asks = head.verb == "POST" and (
            session_of(head) is not None or self._node.hand_over.begun or claims_modern(head.headers)
        )
        if home is None and not asks and not self._affinity.next_node(head, body):
            return await self._serve_or_forward(http, body)
        if head.verb == "POST":
            content = self.heads.validate_content(head)
            if isinstance(content, HttpResponse):
                return await super().serve(http)
            try:
                read = await http.read_body(content.limit)
            except ServerOverloaded as error:
                return answers.overload(error)
            http = BufferedRequest(http, read, http.host)
            if read is None:
                return await super().serve(http)
            body = read
        home = home or self._affinity.destination(head, body)
        if home is None:
            return await self._serve_or_forward(http, body)
        return await self._forward(http, body, home)

    async def _serve_or_forward(self, http: HttpRequest, body: bytes) -> HttpResponse | None:
        try:
            return await super().serve(http)
        except SessionMovedError:
            return await self._forward(http, body, self._node.home)

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

    async def serve_here(self, http: HttpRequest) -> HttpResponse | ForwardTo | None:
        """Serve a request that another process has forwarded, unless its session is elsewhere; see `Endpoint.serve`."""
        session = session_of(http.head)
        if session is None:
            return await super().serve(http)
        body = await http.read_body(self.max_body_bytes)
        http = BufferedRequest(http, body, http.host)
        if self._affinity.next_node(http.head, body or b"") is not None:
            await self._node.hand_over.wait_gone(session)
        for _ in range(_ATTEMPTS):
            with suppress(SessionMovedError):
                return await self._serve_if_here(http, session, body or b"")
        return answers.overload(unreachable())

    async def _serve_if_here(
        self, http: HttpRequest, session: str, body: bytes
    ) -> HttpResponse | ForwardTo | None:
        if session not in self._bus.sessions or self._affinity.may_be_elsewhere(http.head, body):
            try:
                owner = await self._locator.find(http, body, self._node.home)
            except ServerOverloaded as error:
                return answers.overload(error)
            if owner is not None:
                return ForwardTo(owner) if isinstance(owner, str) else owner
        return await super().serve(http)

    # -- what is elsewhere -----------------------------------------------------------------------

    def _ask(self, head: RequestHead, peer: Peer, body: bytes) -> bytes:
        """Write a request down, to be sent over a link."""
        heads = self._node.heads
        return encode(Open(heads.write(self._number, head), heads.address(peer), body))

    async def _answer_apart(
        self, http: HttpRequest, *, body: bytes, home: str, forwarded: ForwardedRequest | None = None
    ) -> None:
        # A handler of this process, if it is to serve it after all, has a task of its own.
        answer = await self._forward(BufferedRequest(http, body, None), body, home, forwarded)
        if answer is not None:
            with self.entered(answer, http.give_up):
                await http.answer(answer)

    async def _forward(
        self, http: HttpRequest, body: bytes, home: str, forwarded: ForwardedRequest | None = None
    ) -> HttpResponse | None:
        """Have another process serve a request; if it has ended, this one, where what was there is not known any more.

        Args:
            http: The request.
            body: Its body.
            home: The process.
            forwarded: The same, if it is on its way there already.

        Returns:
            The whole answer; None if it has been written.
        """
        attempts, asked = _ATTEMPTS, [self._node.home]
        while attempts:
            attempts -= 1
            try:
                link: Link | ForwardedRequest | None = forwarded
                if forwarded is None and home != self._node.home:
                    link = await self._node.reach(home)
                if link is None:
                    owner = await self._locator.find(http, body, home)
                    if isinstance(owner, str):
                        home = self._locator.next_home(owner, home, asked)
                        continue
                    with suppress(SessionMovedError):
                        return _instead(http, owner or await super().serve(http))
                    continue
            except ServerOverloaded as error:
                return _instead(http, answers.overload(error))
            relayed, elsewhere = await self._relay(http, body, link)
            home, forwarded = elsewhere or home, None
            match relayed:
                case RelayProgress.WHOLE:
                    self._affinity.note_home(http.head, home)
                    return None
                case RelayProgress.BEGUN:
                    http, attempts = ContinuedRequest(http), _ATTEMPTS
                case RelayProgress.UNSAID:
                    lost = UnsentResponses(http.head, body).whole()
                    if lost is not None:
                        return lost
        return _instead(http, answers.overload(unreachable()))

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
        self, http: HttpRequest, body: bytes, link: Link | ForwardedRequest
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


def _instead(http: HttpRequest, answer: HttpResponse | None) -> HttpResponse | None:
    """Return a whole answer to be written, if nothing was said yet.

    Raises:
        trio.BrokenResourceError: Something was.
    """
    if answer is not None and isinstance(http, ContinuedRequest):
        raise trio.BrokenResourceError("nobody can go on with this stream")
    return answer
