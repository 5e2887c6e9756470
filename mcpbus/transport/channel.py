"""A shared channel: one connection that carries everything, as on stdio and in process.

Legacy requests belong to the connection's session from its initialize on; modern ones carry what they need in
their own ``_meta``. Both may be in flight at once, and their ids are unique across both.
"""

from collections.abc import AsyncIterable, Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from mcpbus import dispatch
from mcpbus.dispatch import INITIALIZE, LISTEN, Inbound
from mcpbus.handshake import Registration
from mcpbus.outbox import Outgoing
from mcpbus.protocol.errors import (
    ProtocolError,
    invalid_request,
    method_not_found,
    unsupported_protocol_version,
)
from mcpbus.protocol.jsonrpc import (
    Notification,
    Request,
    RequestId,
    Undecodable,
    decode,
    encode_error,
    encode_result,
)
from mcpbus.protocol.messages import InitializeParams, decode_params
from mcpbus.protocol.meta import Routing, read_claim, read_routing
from mcpbus.protocol.revisions import ASSUMED, MODERN_VERSIONS, Era, Revision, modern, negotiate
from mcpbus.routing import Kind, Line, Setting
from mcpbus.session import Close, Session, Stage
from mcpbus.stream import Stream

if TYPE_CHECKING:
    from mcpbus.bus import Bus

# Requests that only a modern client makes: without its claim they are told what is missing, not to initialize.
_MODERN_METHODS = frozenset({"server/discover", LISTEN})

Send = Callable[[bytes], Awaitable[None]]


async def run_channel(
    bus: "Bus", messages: AsyncIterable[bytes], send: Send, principal: object = None
) -> None:
    """Serve one connection until its client ends it, or the bus does.

    Args:
        bus: The bus to attach to.
        messages: What the client sends, one JSON-RPC message each; its end is the end of the connection.
        send: Writes one or several messages, each followed by a line break.
        principal: Who the client is, if that is known.

    Requests in flight when the client ends the connection are cancelled; what waits to be written is written.
    """
    stream = bus.open_stream(Line.SHARED)
    session = bus.open_session(Setting.SHARED, principal, stream)
    channel = _Channel(bus, session, stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write, bus, stream, send, nursery.cancel_scope)
        async for message in messages:
            channel.receive(message)
        session.address.tell(Close(None))
        nursery.cancel_scope.deadline = trio.current_time() + bus.limits.write_deadline


async def _write(bus: "Bus", stream: Stream, send: Send, connection: trio.CancelScope) -> None:
    with stream.attach(connection) as writer:
        while (batch := await writer.take()) is not None:
            data = b"".join(b"%b\n" % message.data for message in batch)
            with trio.move_on_after(bus.limits.write_deadline) as scope:
                try:
                    await send(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    break
            if scope.cancelled_caught:
                break
            writer.written()
    connection.cancel()


class _Channel:
    """The reading end of one connection."""

    def __init__(self, bus: "Bus", session: Session, stream: Stream) -> None:
        self._bus = bus
        self._session = session
        self._stream = stream

    def receive(self, data: bytes) -> None:
        """Take one message of the client."""
        try:
            message = decode(data)
        except Undecodable as fault:
            self._answer(None, ASSUMED, encode_error(fault.id, fault.error))
            return
        if isinstance(message, Request):
            self._request(message)
        elif isinstance(message, Notification):
            dispatch.notify(message, self._session)
        else:
            dispatch.answer(message, self._session)

    def _request(self, request: Request) -> None:
        revision = self._session.revision or ASSUMED
        try:
            routing = read_routing(request.params)
            if routing.meta.claims_modern or request.method in _MODERN_METHODS:
                claim = read_claim(routing.meta)
                claimed = modern(claim.protocol_version)
                if claimed is None:
                    raise unsupported_protocol_version(claim.protocol_version, MODERN_VERSIONS)
                revision = claimed
                if not self._bus.offers(request.method, Era.MODERN):
                    raise method_not_found(request.method)
                inbound = Inbound(
                    request, routing, revision, Setting.SHARED, claim, self._session, self._session.principal
                )
                result = dispatch.serve(self._bus, inbound, self._open)
            elif request.method == INITIALIZE:
                result = self._initialize(request, routing)
            else:
                result = self._legacy(request, routing, revision)
        except ProtocolError as error:
            self._answer(request, revision, encode_error(request.id, revision.admissible(error)))
            return
        if isinstance(result, bytes):
            self._answer(request, revision, encode_result(request.id, result))

    def _legacy(self, request: Request, routing: Routing, revision: Revision) -> bytes | Stream:
        if self._session.stage in {Stage.CONNECTED, Stage.REGISTERING} and request.method != "ping":
            raise invalid_request(
                f"{request.method} came before initialize was answered; begin with initialize, "
                f"or send what {MODERN_VERSIONS[-1]} wants in `params._meta`"
            )
        principal = self._session.principal
        inbound = Inbound(request, routing, revision, Setting.SHARED, None, self._session, principal)
        return dispatch.serve(self._bus, inbound, self._open)

    def _initialize(self, request: Request, routing: Routing) -> bytes | Stream:
        if self._session.stage is not Stage.CONNECTED:
            raise invalid_request("this connection has been initialized; a session is initialized once")
        params = decode_params(InitializeParams, request.params)
        revision = negotiate(params.protocol_version)
        inbound = Inbound(
            request, routing, revision, Setting.SHARED, None, self._session, self._session.principal
        )
        registration = Registration(self._bus, self._session, params, revision)
        return dispatch.register(self._bus, inbound, registration, self._open)

    def _open(self, _line: Line) -> Stream:
        return self._stream

    def _answer(self, request: Request | None, revision: Revision, data: bytes) -> None:
        method = "" if request is None else request.method
        request_id: RequestId | None = None if request is None else request.id
        receipt = self._bus.ledger.enter(method)
        self._stream.send(Outgoing(Kind.REPLY, revision.era, data, receipt, request_id=request_id))
