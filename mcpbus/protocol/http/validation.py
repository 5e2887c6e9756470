"""The judgement of one HTTP request: what to do with it, or what to answer at once.

A pure function of the request, the options and a directory that is only asked, in the order in which faults are judged:

1. `judge_head`: Host and Origin (403), CORS preflight, path (404), verb (405). Then the shell authorizes (400, 401, 403, 503).
2. `judge_post`: body cap (413), Content-Type (415), Accept (406). Then the shell reads the body.
3. `judge_body`: JSON (400), era; then the modern claim and its headers, or the legacy session.
   `judge_get` and `judge_delete` for these verbs.

Nothing is allocated for a request that is refused, because nothing here allocates. A refusal before the era is known carries
-32600, which both eras define; a legacy refusal of the transport carries -32000, as the official SDKs have it.
"""

from typing import Final, Generic

from mcpbus.protocol.errors import PARSE_ERROR, ProtocolError, invalid_request, method_not_found, quoted
from mcpbus.protocol.http import mirrored_headers, origin
from mcpbus.protocol.http.announcement import VERSION_HEADER
from mcpbus.protocol.http.headers import Headers, is_json
from mcpbus.protocol.http.messages import (
    ACCEPTED,
    AcceptNotification,
    Answer,
    Batch,
    DeliverResponse,
    Directory,
    EndSession,
    Head,
    Initialize,
    NeedsBody,
    OpenStream,
    Proceed,
    Serve,
    SessionT,
    answer,
    refusal,
    status_of,
)
from mcpbus.protocol.http.origin import HttpOptions
from mcpbus.protocol.http.proxies import Proxies
from mcpbus.protocol.http.resource_metadata import ResourceMetadata
from mcpbus.protocol.http.session_rules import (
    SESSION_HEADER,
    Refused,
    find_session,
    judge_batch,
    judge_initialize,
    legacy_revision,
)
from mcpbus.protocol.jsonrpc import (
    Notification,
    Request,
    RequestId,
    Response,
    Undecodable,
    decode,
)
from mcpbus.protocol.meta import Routing, guess_tool, read_request, read_routing
from mcpbus.protocol.owners import Peer
from mcpbus.protocol.revisions import LATEST, Era

JUDGED: Final = frozenset(
    {
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"access-control-request-method",
        b"access-control-request-headers",
        b"content-length",
        b"content-type",
        b"accept",
        b"last-event-id",
        VERSION_HEADER,
    }
)
"""The fields by which the head of a request is judged, in lower case. What the others say is not looked at before it is authorized."""

_CALL: Final = "tools/call"
_MODERN: Final = Era.MODERN
_LISTEN: Final = "subscriptions/listen"
_DIGITS: Final = frozenset("0123456789")
_POST: Final = Proceed("POST")
_LONG: Final = 2048
"""From how many bytes on a body takes longer to be looked through than the tool that is called to be looked up."""
# Of the heads that were in order: so many, and none that is longer. Nobody can fill memory with them.
_REMEMBERED: Final = 256


def health(status: str, code: int = 200, *extra: tuple[bytes, bytes]) -> Answer:
    """What `/health` and `/healthz` answer, for whoever decides where to send traffic.

    Args:
        status: one word, such as `ok` or `draining`.
        code: the HTTP status, which is all that most probes look at.
        *extra: header fields.
    """
    body = b'{"status":"%b"}' % status.encode()
    return answer(code, b"application/json", body, *extra)


class Exchange(Generic[SessionT]):
    """The judge of the requests to one endpoint.

    Clients say the same few things for ever; what was found in order once is in order the next time.

    Attributes:
        options: how it is served.
        proxies: whom to believe from where requests come; None for nobody.
        directory: who knows its sessions and methods.
        metadata: tells who issues tokens; None where there are no tokens.
        needs_body: what `judge_post` finds of a POST that is in order.
        too_large: what it finds, and what to answer, of one whose body is longer than it may be.
    """

    __slots__ = (
        "_accepted",
        "_health_paths",
        "directory",
        "metadata",
        "needs_body",
        "options",
        "proxies",
        "too_large",
    )

    def __init__(
        self, options: HttpOptions, directory: Directory[SessionT], metadata: ResourceMetadata | None = None
    ) -> None:
        self.options = options
        self.directory = directory
        self.metadata = metadata
        self._health_paths = set(options.health_paths) - {options.path}
        self.proxies = Proxies(options.trusted_proxies) if options.trusted_proxies else None
        self.needs_body: Final = NeedsBody(options.max_body_bytes)
        fault = f"the body is longer than {options.max_body_bytes} bytes, the option max_body_bytes"
        self.too_large: Final = refusal(413, invalid_request(fault))
        self._accepted: set[tuple[str | bytes | tuple[bytes, ...] | None, ...]] = set()

    # -- the head ------------------------------------------------------------------------------------------------------

    def judge_head(self, head: Head) -> Answer | Proceed:
        """Judge what is judged before authorization."""
        raw = head.headers.raw
        stated = (head.path, raw(b"host"), raw(b"origin"), raw(b"sec-fetch-site"))
        if head.verb == "POST" and stated in self._accepted:
            return _POST
        verdict = self._answer_head(head) or self._judge_verb(head)
        if verdict is _POST:
            if len(self._accepted) < _REMEMBERED and len(repr(stated)) < _REMEMBERED:
                self._accepted.add(stated)
        elif isinstance(verdict, Answer) and head.verb == "HEAD":
            return Answer(verdict.status, verdict.headers)  # RFC 9110, section 9.3.2
        return verdict

    def _answer_head(self, head: Head) -> Answer | None:
        if self.is_health(head):
            # Before Host is looked at: a probe names the machine as it pleases, and the answer is no secret.
            return health("ok")
        if self.metadata is not None and self.metadata.is_place(head):
            return self.metadata.answer(head)  # likewise: it is for everybody, from wherever they come
        refused = self.judge_caller(head)
        if refused is not None:
            return refused
        if origin.is_preflight(head):
            verbs = self._verbs_at(head)
            if verbs is not None:
                return origin.preflight(head, verbs)
        if head.path != self.options.path:
            # Not a JSON-RPC body: by that, a client tells a wrong address from an unknown method (rule D-15).
            return answer(
                404, b"text/plain", b"Not found: the MCP endpoint is %b\n" % self.options.path.encode()
            )
        return None

    def _verbs_at(self, head: Head) -> bytes | None:
        """The verbs for a page to use at an address, also where it may find nothing; None where nobody looks for anything.

        A page that looks for metadata with headers of MCP's own has to read a 404, which without a preflight is an error to it.
        """
        if head.path == self.options.path:
            return self._verbs(head.headers)
        return b"GET, HEAD" if head.path in self._health_paths or origin.is_well_known(head.path) else None

    def origin(self, head: Head, peer: Peer) -> Peer:
        """From where a request really comes that came from this peer."""
        return peer if self.proxies is None else self.proxies.client(peer, head.headers)

    def judge_caller(self, head: Head) -> Answer | None:
        """Why this Host or this Origin is refused, if it is: the first question to whoever connects, over any transport."""
        fault = origin.judge_host(head.headers, self.options) or origin.judge_origin(
            head.headers, self.options
        )
        return None if fault is None else refusal(403, fault)

    def _judge_verb(self, head: Head) -> Answer | Proceed:
        if head.verb == "POST":
            return _POST
        verbs = self._verbs(head.headers)
        match head.verb:
            case "GET" if b"GET" in verbs:
                return Proceed("GET")
            case "DELETE" if b"DELETE" in verbs:
                return Proceed("DELETE")
        fault = invalid_request(f"{quoted(head.verb)} is not offered here; use {verbs.decode()}")
        return refusal(405, fault, None, (b"allow", verbs))

    def is_health(self, head: Head) -> bool:
        """Whether this is a probe of `/health`, beside the endpoint; `judge_head` answers that all is well."""
        return head.path in self._health_paths and head.verb in {"GET", "HEAD"}

    def cors_headers(self, head: Head) -> list[tuple[bytes, bytes]]:
        """What to add to the answer, whatever it is, so that a page of an allowed origin can read it."""
        if self.metadata is not None and self.metadata.is_place(head):
            return []  # it says itself that everybody may read it
        return origin.cors_headers(head, self.options)

    def _verbs(self, headers: Headers) -> bytes:
        """The verbs to offer: GET and DELETE belong to legacy sessions (rules D-9, W-48, X-29)."""
        if self.options.sessions == "stateless" or mirrored_headers.claims_modern(headers):
            return b"POST"
        return b"POST, GET, DELETE" if self.options.get_streams else b"POST, DELETE"

    # -- POST ----------------------------------------------------------------------------------------------------------

    def judge_post(self, head: Head) -> Answer | NeedsBody:
        """Judge the form of a POST that is authorized, before its body is read."""
        content = self.judge_content(head)
        if isinstance(content, Answer):
            return content
        accepted = head.headers.accepted
        if not accepted.json and not accepted.sse:
            return refusal(
                406, invalid_request("Accept must name application/json, text/event-stream, or both")
            )
        return content

    def judge_content(self, head: Head) -> Answer | NeedsBody:
        """Judge what a POST says of its body."""
        length = head.headers.get(b"content-length")
        if length is not None:
            if not length or not _DIGITS.issuperset(length):
                return refusal(
                    400, invalid_request(f"Content-Length {quoted(length)} is not a number of bytes")
                )
            # The count of digits first: int() is slow on, and then refuses, what is absurdly long.
            if len(length) > 18 or int(length) > self.options.max_body_bytes:
                return self.too_large
        if not is_json(head.headers):
            stated = quoted(head.headers.get(b"content-type") or "")
            return refusal(415, invalid_request(f"Content-Type {stated} is not application/json in UTF-8"))
        return self.needs_body

    def judge_body(
        self, head: Head, body: bytes, principal: object
    ) -> (
        Answer
        | Serve[SessionT]
        | Initialize
        | AcceptNotification[SessionT]
        | DeliverResponse[SessionT]
        | Batch[SessionT]
    ):
        """Judge a POST whose head, authorization and form are in order.

        Args:
            head: which `judge_head` and `judge_post` let pass.
            body: the whole of it.
            principal: whom authorization found; None without authorization.
        """
        identity: RequestId | None = None
        try:
            message: Request | Notification | Response
            read = read_request(body) if len(body) < _LONG else self._read_long(head.headers, body)
            if read is not None:
                message, routing = read
                identity = message.id
            else:
                message = decode(body)
                if isinstance(message, Request):
                    identity = message.id
                elif isinstance(message, Response):
                    return self._judge_response(head.headers, message, principal)
                routing = read_routing(message.params)
            headers = head.headers
            if routing.meta.claims_modern or mirrored_headers.claims_modern(headers):
                return self._judge_modern(headers, message, routing, principal)
            return self._judge_legacy(headers, message, routing, principal)
        except Undecodable as fault:
            return self._judge_unreadable(head.headers, body, fault, principal)
        except Refused as refused:
            return refusal(refused.status, refused.error, identity)
        except ProtocolError as error:  # `_meta`, in any era, or what makes a claim modern
            return refusal(status_of(error.code, LATEST), error, identity)

    def _read_long(self, headers: Headers, body: bytes) -> tuple[Request, Routing] | None:
        """Read a long body in one go where it is plain which tool is called, and not first to see where its arguments end.

        Whatever is wrong with it is said by those who read it in parts; that it calls this tool is found out in its turn.
        """
        tool = mirrored_headers.called_tool(headers) or guess_tool(body)
        reader = None if tool is None else self.directory.call_reader(tool)
        read = None if reader is None else read_request(body, reader)
        return read_request(body) if read is None else read

    def _judge_unreadable(
        self, headers: Headers, body: bytes, fault: Undecodable, principal: object
    ) -> Answer | Batch[SessionT]:
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
        return judge_batch(directory, headers, body, fault, principal)

    def _judge_response(
        self, headers: Headers, response: Response, principal: object
    ) -> Answer | DeliverResponse[SessionT]:
        if mirrored_headers.claims_modern(headers):
            raise invalid_request("a client of this revision sends requests and notifications, no responses")
        if self.options.sessions == "stateless":
            return ACCEPTED  # no request of ours can be waiting for it (rule W-49)
        session = find_session(self.directory, headers, principal)
        legacy_revision(headers, session)
        return DeliverResponse(response, session)

    def _judge_modern(
        self, headers: Headers, message: Request | Notification, routing: Routing, principal: object
    ) -> Answer | Serve[SessionT] | AcceptNotification[SessionT]:
        if isinstance(message, Notification):
            mirrored_headers.judge_notification(headers, message, routing)
            return AcceptNotification(message, None)
        claim, revision = mirrored_headers.judge_request(headers, message, routing)
        method, directory, accepted = message.method, self.directory, headers.accepted
        if not directory.offers(method, _MODERN):
            raise method_not_found(method)
        if method == _CALL:
            name = routing.name
            mirrored = None if name is None else directory.mirrored_parameters(name, principal)
            if mirrored:
                required = self.options.param_headers == "required"
                mirrored_headers.judge_parameters(headers, mirrored, message.params, required=required)
        elif method == _LISTEN and not accepted.sse:
            raise Refused(
                406, invalid_request(f"{_LISTEN} is answered as text/event-stream; Accept must name it")
            )
        return Serve(message, routing, revision, None, claim, accepted)

    def _judge_legacy(
        self, headers: Headers, message: Request | Notification, routing: Routing, principal: object
    ) -> Serve[SessionT] | Initialize | AcceptNotification[SessionT]:
        """Whether the method exists is not judged here: a session may have features of its own, and answers in-band."""
        stateless = self.options.sessions == "stateless"
        if isinstance(message, Request) and message.method == "initialize":
            if not stateless and headers.all(SESSION_HEADER):
                find_session(self.directory, headers, principal)
                raise Refused(
                    400,
                    invalid_request(
                        "this session has been initialized; a new one opens without Mcp-Session-Id"
                    ),
                )
            return judge_initialize(headers, message, routing)
        session = None if stateless else find_session(self.directory, headers, principal)
        revision = legacy_revision(headers, session)
        if isinstance(message, Notification):
            return AcceptNotification(message, session)
        return Serve(message, routing, revision, session, None, headers.accepted)

    # -- GET and DELETE ------------------------------------------------------------------------------------------------

    def judge_get(self, head: Head, principal: object) -> Answer | OpenStream[SessionT]:
        """Judge a GET whose head and authorization are in order."""
        if not head.headers.accepted.sse:
            return refusal(406, invalid_request("a GET opens a stream; Accept must name text/event-stream"))
        try:
            session = find_session(self.directory, head.headers, principal)
            legacy_revision(head.headers, session)
        except Refused as refused:
            return refusal(refused.status, refused.error)
        # An empty id is what EventSource has after a reset: it has seen nothing to go on from.
        return OpenStream(session, head.headers.get(b"last-event-id") or None)

    def judge_delete(self, head: Head, principal: object) -> Answer | EndSession[SessionT]:
        """Judge a DELETE whose head and authorization are in order."""
        try:
            session = find_session(self.directory, head.headers, principal)
            legacy_revision(head.headers, session)
        except Refused as refused:
            return refusal(refused.status, refused.error)
        return EndSession(session)
