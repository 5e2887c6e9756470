"""Batches over HTTP, which revision 2025-03-26 has: several messages in one POST.

All its requests are answered on one stream, which ends with the last reply; their replies are one JSON array where
none of them said anything before. Each is a request like any other: it is cancelled, and crashes, by itself.

A batch is short, and what it is answered may be long: so its requests are served some at a time, and no further ones while much waits
to be written.
"""

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, ClassVar, Final

import attrs
from mcpbus_actors import ActorContext, Failed, Stopped, TaskEnded

from mcpbus.core.hub import Hub
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.core.signals import Abort, Ending
from mcpbus.dispatch import dispatcher
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.messages import (
    ACCEPTED,
    AcceptNotification,
    Batch,
    DeliverResponse,
    HttpResponse,
    Serve,
    answer,
)
from mcpbus.protocol.jsonrpc import RequestId, Undecodable, encode_error
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason, StreamKind, TransportKind

_AT_ONCE: Final = 16
"""How many requests of a batch are served at once."""


def begin_batch(
    bus: Hub, batch: Batch[Session], transport: TransportKind, principal: object, peer: Peer
) -> MessageStream | HttpResponse:
    """Deal with all messages of a batch, in their order; requests after the first few are begun as those are answered.

    Args:
        bus: The bus.
        batch: The messages, judged.
        transport: How the client is connected.
        principal: Whom `authenticate` found.
        peer: From where it came.

    Returns:
        The stream on which all requests are answered; without any, what to answer at once.
    """
    origin = None
    if any(isinstance(member, Serve) for member in batch.members):
        stream = bus.open_stream(StreamKind.RESPONSE, batch.session)
        stream.replies_pending = sum(isinstance(member, Serve | Undecodable) for member in batch.members)
        origin = _Origin(bus, transport, principal, peer, stream)
    faults = []
    for member in batch.members:
        match member:
            case AcceptNotification():
                dispatcher.handle_notification(bus, member.notification, member.session, principal, peer)
            case DeliverResponse(response=response, session=session):
                dispatcher.deliver_input_response(response, session)
                faults += [] if response.refusal is None else [encode_error(None, response.refusal)]
            case Undecodable() if origin is None:
                faults.append(encode_error(member.id, member.error))
            case _ if origin is not None:
                origin.take(member)
    if origin is not None:
        if origin.later:
            bus.system.spawn(BatchActor, origin, batch.session)
        return origin.stream
    return answer(400, b"application/json", b"[%b]" % b",".join(faults)) if faults else ACCEPTED


@attrs.define
class _Origin:
    """Where the requests of a batch come from, and where they are answered.

    Attributes:
        bus: The bus.
        transport: How the client is connected.
        principal: Whom `authenticate` found.
        peer: From where it came.
        stream: Where all of them are answered.
        later: Those that have not begun, in order.
    """

    bus: Hub
    transport: TransportKind
    principal: object
    peer: Peer
    stream: MessageStream
    later: deque[Serve[Session]] = attrs.field(factory=deque)
    _begun: int = 0

    def take(self, member: Serve[Session] | Undecodable) -> None:
        """Begin a request if it is one of the first, and answer what is none."""
        if isinstance(member, Undecodable):
            self.answer(member.id, "", encode_error(member.id, member.error))
        elif self._begun < _AT_ONCE:
            self._begun += 1
            self.begin(member)
        else:
            self.later.append(member)

    def begin(self, member: Serve[Session]) -> None:
        """Begin one request; what is answered at once joins the replies of the others on their stream."""
        request, revision, transport = member.request, member.revision, self.transport
        context = RequestContext(
            request, member.routing, revision, transport, self.peer, None, member.session, self.principal
        )
        result: bytes | MessageStream | ProtocolError
        try:
            result = dispatcher.serve(self.bus, context, lambda _kind, _session: self.stream)
        except ProtocolError as error:
            result = error
        if isinstance(result, bytes | ProtocolError):
            self.answer(request.id, request.method, revision.encode_reply(request.id, result), context)

    def answer(
        self, request_id: RequestId | None, method: str, data: bytes, context: RequestContext | None = None
    ) -> None:
        """Put a reply that is there at once among the others."""
        receipt = self.bus.ledger.emit(method, context)
        reply = OutboundMessage(
            MessageKind.REPLY, Era.LEGACY, data, receipt, request_id=request_id, final=True
        )
        self.stream.send(reply)


class BatchActor:
    """Has those requests of a batch begun that were not begun with the first, as these are answered.

    Args:
        cell: Its cell.
        origin: Where they come from.
        session: The session in which they came; None in stateless serving.
    """

    __slots__ = ("_cell", "_stream")

    def __init__(self, cell: ActorContext[object], origin: _Origin, session: Session | None) -> None:
        self._cell = cell
        self._stream = origin.stream
        if session is not None:
            cell.watch(session.address)
        cell.start_task(_begin_all, origin, context=copy_context())

    def handle(self, message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    def _all_begun(self, message: TaskEnded) -> None:
        if isinstance(message.outcome, Failed):
            self._stream.address.tell(Abort(Ending.CLOSED, Reason.INTERNAL_ERROR))
        self._cell.stop()

    def _session_ended(self, _message: Stopped) -> None:
        # Those that were begun have ended with their session. Nobody else would end the answer for the others.
        self._stream.address.tell(Abort(Ending.SESSION_ENDED, Reason.SESSION_ENDED))
        self._cell.stop()

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        TaskEnded: _all_begun,
        Stopped: _session_ended,
    }


async def _begin_all(origin: _Origin) -> None:
    stream, later = origin.stream, origin.later
    while later:
        # A lost connection is not a cancellation: where nobody waits for answers, none waits to be written.
        if not stream.stopped and (
            stream.replies_pending - len(later) >= _AT_ONCE or stream.above_high_water
        ):
            await stream.wait_writable()
        else:
            origin.begin(later.popleft())
