"""Batches over HTTP, which revision 2025-03-26 has: several messages in one POST.

All its requests are answered on one stream, which ends with the last reply; their replies are one JSON array where
none of them said anything before. Each is a request like any other: it is cancelled, and crashes, by itself.
"""

from typing import TYPE_CHECKING

from mcpbus import dispatch
from mcpbus.inbound import Inbound
from mcpbus.outbox import Outgoing
from mcpbus.owners import Peer
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import Undecodable, encode_error, encode_result
from mcpbus.protocol.revisions import Era
from mcpbus.routing import Kind, Line, Setting
from mcpbus.session import Session
from mcpbus.stream import Stream
from mcpbus.transport.decisions import (
    ACCEPTED,
    AcceptNotification,
    Answer,
    Batch,
    DeliverResponse,
    Serve,
    answer,
)

if TYPE_CHECKING:
    from mcpbus.bus import Bus


def begin_batch(
    bus: "Bus", batch: Batch[Session], setting: Setting, principal: object, peer: Peer
) -> Stream | Answer:
    """Deal with all messages of a batch, in their order.

    Args:
        bus: The bus.
        batch: The messages, judged.
        setting: How the client is connected.
        principal: Whom `authenticate` found.
        peer: From where it came.

    Returns:
        The stream on which all requests are answered; without any, what to answer at once.
    """
    stream = None
    if any(isinstance(member, Serve) for member in batch.members):
        stream = bus.open_stream(Line.OWN, batch.session)
        stream.owed = sum(isinstance(member, Serve | Undecodable) for member in batch.members)
    faults = []
    for member in batch.members:
        match member:
            case AcceptNotification():
                dispatch.notify(member.notification, member.session)
            case DeliverResponse():
                dispatch.answer(member.response, member.session)
            case Undecodable() if stream is None:
                faults.append(encode_error(member.id, member.error))
            case _ if stream is not None:
                _begin(bus, member, setting, principal, peer, stream)
    if stream is not None:
        return stream
    return answer(400, b"application/json", b"[%b]" % b",".join(faults)) if faults else ACCEPTED


def _begin(  # noqa: PLR0917 - what a request is made of
    bus: "Bus",
    member: Serve[Session] | Undecodable,
    setting: Setting,
    principal: object,
    peer: Peer,
    stream: Stream,
) -> None:
    """Begin one request; what is answered at once joins the replies of the others on their stream."""
    if isinstance(member, Undecodable):
        request_id, method, data = member.id, "", encode_error(member.id, member.error)
    else:
        request, revision = member.request, member.revision
        request_id, method = request.id, request.method
        inbound = Inbound(request, member.routing, revision, setting, peer, None, member.session, principal)
        try:
            result = dispatch.serve(bus, inbound, lambda _line, _session: stream)
        except ProtocolError as error:
            data = encode_error(request.id, revision.admissible(error))
        else:
            if isinstance(result, Stream):
                return
            data = encode_result(request.id, result)
    receipt = bus.ledger.enter(method)
    stream.send(Outgoing(Kind.REPLY, Era.LEGACY, data, receipt, request_id=request_id, final=True))
