"""What the judgement of legacy requests shares: their session, their revision, their handshake, and their batches."""

from collections.abc import Mapping
from typing import Final

from mcpbus.protocol.errors import SERVER_ERROR, ProtocolError, invalid_request, quoted
from mcpbus.protocol.http import mirrored_headers
from mcpbus.protocol.http.announcement import VERSION_HEADER
from mcpbus.protocol.http.headers import AcceptHeader, Headers
from mcpbus.protocol.http.messages import (
    AcceptNotification,
    Batch,
    DeliverResponse,
    HttpResponse,
    Initialize,
    Serve,
    ServerLookup,
    SessionT,
    refusal,
    status_of,
)
from mcpbus.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    Undecodable,
    decode_batch,
)
from mcpbus.protocol.messages import decode_initialize
from mcpbus.protocol.meta import Routing, read_routing
from mcpbus.protocol.revisions import ASSUMED, LATEST, REVISIONS, Revision, negotiate

SESSION_HEADER: Final = b"mcp-session-id"

_STATED: Final[Mapping[bytes | tuple[bytes, ...], Revision]] = {
    name.encode(): revision for name, revision in REVISIONS.items()
}


class Refused(Exception):  # noqa: N818 - control flow inside the exchange
    """A request is answered with an error, for which its id is known elsewhere."""

    def __init__(self, status: int, error: ProtocolError) -> None:
        self.status = status
        self.error = error


def named_session(headers: Headers) -> str | None:
    """Return the session that a request names, if it names exactly one."""
    named = headers.raw(SESSION_HEADER)
    return named.decode("latin-1").strip(" \t") if isinstance(named, bytes) else None


def find_local_session(directory: ServerLookup[SessionT], headers: Headers, principal: object) -> SessionT:
    """The session that a request names (rules W-32, W-33, W-46).

    Raises:
        Refused: It names none, or none that is there for this principal.
    """
    named = named_session(headers)
    if named is None:
        count = len(headers.all(SESSION_HEADER))
        fault = f"exactly one header Mcp-Session-Id is needed, got {count}; initialize opens a session"
        raise Refused(400, ProtocolError(SERVER_ERROR, f"Bad request: {fault}"))
    session = directory.find_local_session(named, principal)
    if session is None:
        # Without its id: who logs the text, or caches it, is not to know the session by it.
        fault = "it has ended or never was; initialize again, without Mcp-Session-Id"
        raise Refused(404, ProtocolError(SERVER_ERROR, f"Session not found: {fault}"))
    return session


def legacy_revision(headers: Headers, session: SessionT | None) -> Revision:
    """What governs a legacy request: its session's revision, else the header's, else the assumed one (rules W-38 to W-40).

    Raises:
        Refused: The header names no revision.
    """
    raw = headers.raw(VERSION_HEADER)
    stated = None if raw is None else _STATED.get(raw) or _read_revision(headers)
    settled = None if session is None else session.revision
    return settled or stated or ASSUMED


def _read_revision(headers: Headers) -> Revision:
    """Read the version header, which is not to the letter what one of them is called."""
    stated = headers.all(VERSION_HEADER)
    revision = REVISIONS.get(stated[0]) if len(stated) == 1 else None
    if revision is None:
        served = ", ".join(REVISIONS)
        fault = f"MCP-Protocol-Version {quoted(', '.join(stated))} is not one of {served}"
        raise Refused(400, ProtocolError(SERVER_ERROR, f"Bad request: {fault}"))
    return revision


def validate_initialize(headers: Headers, request: JsonRpcRequest, routing: Routing) -> Initialize:
    """The version header is not looked at: it is for what follows the handshake (rules L-3, W-37).

    Raises:
        Refused: Its params are not those of initialize.
    """
    try:
        params = decode_initialize(request.params)
    except ProtocolError as error:
        raise Refused(status_of(error.code, ASSUMED), error) from None
    return Initialize(request, routing, params, negotiate(params.protocol_version), headers.accepted)


def validate_batch(
    directory: ServerLookup[SessionT] | None,
    headers: Headers,
    body: bytes,
    array: Undecodable,
    principal: object,
) -> HttpResponse | Batch[SessionT]:
    """Judge a POST of an array (rules J-22 to J-28, W-45). What refuses it as a whole is said once, without an id.

    Args:
        directory: Who knows the sessions; None in stateless serving.
        headers: Of the POST.
        body: The array.
        array: Why it is no message.
        principal: Whom authorization found.
    """
    if mirrored_headers.claims_modern(headers):
        return refusal(400, array.error)
    try:
        members = decode_batch(body)
        if any(isinstance(member, JsonRpcRequest) and member.method == "initialize" for member in members):
            return refusal(400, invalid_request("initialize is never in a batch; send it by itself"))
        session = None if directory is None else find_local_session(directory, headers, principal)
        revision = legacy_revision(headers, session)
    except Undecodable as fault:
        return refusal(400, fault.error)
    except Refused as refused:
        return refusal(refused.status, refused.error)
    if not revision.batches:
        return refusal(400, array.error)
    accepted = headers.accepted
    judged = [_validate_member(member, revision, session, accepted) for member in members]
    return Batch([one for one in judged if one is not None], session, accepted)


def _validate_member(
    member: JsonRpcRequest | JsonRpcNotification | JsonRpcResponse | Undecodable,
    revision: Revision,
    session: SessionT | None,
    accepted: AcceptHeader,
) -> Serve[SessionT] | AcceptNotification[SessionT] | DeliverResponse[SessionT] | Undecodable | None:
    """Judge a message of a batch; None for a response where no request of ours can be waiting for it."""
    if isinstance(member, Undecodable):
        return member
    if isinstance(member, JsonRpcResponse):
        return None if session is None else DeliverResponse(member, session)
    if isinstance(member, JsonRpcNotification):
        return AcceptNotification(member, session)
    try:
        routing = read_routing(member.params)
        if routing.meta.claims_modern:
            raise invalid_request(f"a request of {LATEST.name} is never in a batch; send it by itself")
    except ProtocolError as error:
        return Undecodable(error, member.id)
    return Serve(member, routing, revision, session, None, accepted)
