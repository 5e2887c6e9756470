"""The judgement of what one HTTP request asks for: what to do with it, or what to answer at once.

A pure function of the request, the options and a directory that is only asked, once its head is in order, and it is known who sends it:
`validate_body` judges a POST (JSON (400), era; then the modern claim and its headers, or the legacy session), `validate_get` and
`validate_delete` the other verbs. The order of all judgements is written down in `head_judge`.

What the judgement of legacy requests shares: their session, their revision, their handshake, and their batches.
"""

from collections.abc import Mapping
from typing import Final, Generic

from mcpbus.protocol.errors import (
    PARSE_ERROR,
    SERVER_ERROR,
    ProtocolError,
    invalid_request,
    method_not_found,
    quoted,
)
from mcpbus.protocol.http import mirrored_headers
from mcpbus.protocol.http.headers import AcceptHeader, Headers
from mcpbus.protocol.http.messages import (
    ACCEPTED,
    AcceptNotification,
    Batch,
    DeliverResponse,
    EndSession,
    HttpResponse,
    Initialize,
    OpenStream,
    RequestHead,
    Serve,
    ServerLookup,
    SessionT,
    refusal,
    status_of,
)
from mcpbus.protocol.http.mirrored_fields import VERSION_HEADER
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    RequestId,
    Undecodable,
    decode,
    decode_batch,
)
from mcpbus.protocol.messages import decode_initialize
from mcpbus.protocol.meta import Routing, guess_tool, read_request, read_routing
from mcpbus.protocol.nesting import SHORTEST_NESTED, nests_too_deeply
from mcpbus.protocol.revisions import ASSUMED, LATEST, REVISIONS, Era, Revision, negotiate

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


_CALL: Final = "tools/call"
_MODERN: Final = Era.MODERN
_LISTEN: Final = "subscriptions/listen"
_LONG: Final = 2048
"""From how many bytes on a body takes longer to be looked through than the tool that is called to be looked up."""


class RequestValidator(Generic[SessionT]):
    """The judge of what is asked at one endpoint, by somebody who may come in; before that, see `HeadValidator`.

    Attributes:
        options: how it is served.
        directory: who knows its sessions and methods.
    """

    __slots__ = ("directory", "options")

    def __init__(self, options: HttpOptions, directory: ServerLookup[SessionT]) -> None:
        self.options = options
        self.directory = directory

    # -- POST ----------------------------------------------------------------------------------------------------------

    def validate_body(
        self, head: RequestHead, body: bytes, principal: object
    ) -> (
        HttpResponse
        | Serve[SessionT]
        | Initialize
        | AcceptNotification[SessionT]
        | DeliverResponse[SessionT]
        | Batch[SessionT]
    ):
        """Judge a POST whose head, authorization and form are in order.

        Args:
            head: which the `HeadValidator` lets pass.
            body: the whole of it.
            principal: whom authorization found; None without authorization.
        """
        identity: RequestId | None = None
        try:
            message: JsonRpcRequest | JsonRpcNotification | JsonRpcResponse
            read = read_request(body) if len(body) < SHORTEST_NESTED else self._read_long(head.headers, body)
            if read is not None:
                message, routing = read
                identity = message.id
            else:
                message = decode(body)
                if isinstance(message, JsonRpcRequest):
                    identity = message.id
                elif isinstance(message, JsonRpcResponse):
                    return self._validate_response(head.headers, message, principal)
                routing = read_routing(message.params)
            headers = head.headers
            if routing.meta.claims_modern or mirrored_headers.claims_modern(headers):
                return self._validate_modern(headers, message, routing, principal)
            return self._validate_legacy(headers, message, routing, principal)
        except Undecodable as fault:
            return self._validate_unreadable(head.headers, body, fault, principal)
        except Refused as refused:
            return refusal(refused.status, refused.error, identity)
        except ProtocolError as error:  # `_meta`, in any era, or what makes a claim modern
            return refusal(status_of(error.code, LATEST), error, identity)

    def _read_long(self, headers: Headers, body: bytes) -> tuple[JsonRpcRequest, Routing] | None:
        """Read a long body in one go where it is plain which tool is called, and not first to see where its arguments end.

        Whatever is wrong with it is said by those who read it in parts; that it calls this tool is found out in its turn. What a
        tool is read with has no values within each other.
        """
        if len(body) >= _LONG:
            tool = mirrored_headers.called_tool(headers) or guess_tool(body)
            reader = None if tool is None else self.directory.call_reader(tool)
            read = None if reader is None else read_request(body, reader)
            if read is not None:
                return read
        return None if nests_too_deeply(body) else read_request(body)

    def _validate_unreadable(
        self, headers: Headers, body: bytes, fault: Undecodable, principal: object
    ) -> HttpResponse | Batch[SessionT]:
        if not fault.array:
            coding = headers.get(b"content-encoding")
            if coding and fault.error.code == PARSE_ERROR and coding.lower() != "identity":
                # Whoever says so of a body that can be read is none the worse for it; RFC 9110, sections 8.4 and 12.5.3.
                error = invalid_request(
                    f"Content-Encoding {quoted(coding)} is not decoded here: send the body as it is"
                )
                return refusal(415, error, None, (b"accept-encoding", b"identity"))
            return refusal(400, fault.error, fault.id)
        directory = None if self.options.sessions == "stateless" else self.directory
        return validate_batch(directory, headers, body, fault, principal)

    def _validate_response(
        self, headers: Headers, response: JsonRpcResponse, principal: object
    ) -> HttpResponse | DeliverResponse[SessionT]:
        if mirrored_headers.claims_modern(headers):
            raise invalid_request("a client of this revision sends requests and notifications, no responses")
        if self.options.sessions == "stateless":
            # No request of ours can be waiting for it (rule W-49).
            return ACCEPTED if response.refusal is None else refusal(400, response.refusal)
        session = find_local_session(self.directory, headers, principal)
        legacy_revision(headers, session)
        return DeliverResponse(response, session)

    def _validate_modern(
        self,
        headers: Headers,
        message: JsonRpcRequest | JsonRpcNotification,
        routing: Routing,
        principal: object,
    ) -> HttpResponse | Serve[SessionT] | AcceptNotification[SessionT]:
        if isinstance(message, JsonRpcNotification):
            mirrored_headers.validate_notification(headers, message, routing)
            return AcceptNotification(message, None)
        claim, revision = mirrored_headers.validate_request(headers, message, routing)
        method, directory, accepted = message.method, self.directory, headers.accepted
        if not directory.offers(method, _MODERN):
            raise method_not_found(method)
        if method == _CALL:
            name = routing.name
            mirrored = None if name is None else directory.mirrored_parameters(name, principal)
            if mirrored:
                required = self.options.param_headers == "required"
                mirrored_headers.validate_parameters(headers, mirrored, message.params, required=required)
        elif method == _LISTEN and not accepted.sse:
            raise Refused(
                406, invalid_request(f"{_LISTEN} is answered as text/event-stream; Accept must name it")
            )
        return Serve(message, routing, revision, None, claim, accepted)

    def _validate_legacy(
        self,
        headers: Headers,
        message: JsonRpcRequest | JsonRpcNotification,
        routing: Routing,
        principal: object,
    ) -> Serve[SessionT] | Initialize | AcceptNotification[SessionT]:
        """Whether the method exists is not judged here: a session may have features of its own, and answers in-band."""
        stateless = self.options.sessions == "stateless"
        if isinstance(message, JsonRpcRequest) and message.method == "initialize":
            if not stateless and headers.all(SESSION_HEADER):
                find_local_session(self.directory, headers, principal)
                raise Refused(
                    400,
                    invalid_request(
                        "this session has been initialized; a new one opens without Mcp-Session-Id"
                    ),
                )
            return validate_initialize(headers, message, routing)
        session = None if stateless else find_local_session(self.directory, headers, principal)
        revision = legacy_revision(headers, session)
        if isinstance(message, JsonRpcNotification):
            return AcceptNotification(message, session)
        return Serve(message, routing, revision, session, None, headers.accepted)

    # -- GET and DELETE ------------------------------------------------------------------------------------------------

    def validate_get(self, head: RequestHead, principal: object) -> HttpResponse | OpenStream[SessionT]:
        """Judge a GET whose head and authorization are in order."""
        if not head.headers.accepted.sse:
            return refusal(406, invalid_request("a GET opens a stream; Accept must name text/event-stream"))
        try:
            session = find_local_session(self.directory, head.headers, principal)
            legacy_revision(head.headers, session)
        except Refused as refused:
            return refusal(refused.status, refused.error)
        # An empty id is what EventSource has after a reset: it has seen nothing to go on from.
        return OpenStream(session, head.headers.get(b"last-event-id") or None)

    def validate_delete(self, head: RequestHead, principal: object) -> HttpResponse | EndSession[SessionT]:
        """Judge a DELETE whose head and authorization are in order."""
        try:
            session = find_local_session(self.directory, head.headers, principal)
            legacy_revision(head.headers, session)
        except Refused as refused:
            return refusal(refused.status, refused.error)
        return EndSession(session)
