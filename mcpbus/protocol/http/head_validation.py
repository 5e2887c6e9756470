"""The judgement of one HTTP request by its head alone: where it may come from, and what may come there at all.

It comes first. Faults are judged in this order:

1. `validate_head`: Host and Origin (403), CORS preflight, path (404), verb (405). Then the shell authorizes (400, 401, 403, 503).
2. `validate_post`: body cap (413), Content-Type (415), Accept (406). Then the shell reads the body.
3. What is asked for, see `validation.Exchange`.

Nothing is allocated for a request that is refused, because nothing in these steps allocates. A refusal before the era is known carries
-32600, which both eras define; a legacy refusal of the transport carries -32000, as the official SDKs have it.
"""

from typing import Final

from mcpbus.protocol.errors import invalid_request, quoted
from mcpbus.protocol.http import mirrored_headers
from mcpbus.protocol.http import options as origin
from mcpbus.protocol.http.headers import Headers, is_json
from mcpbus.protocol.http.messages import HttpResponse, NeedsBody, Proceed, RequestHead, answer, refusal
from mcpbus.protocol.http.mirrored_fields import VERSION_HEADER
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.http.proxies import Proxies
from mcpbus.protocol.http.resource_metadata import ResourceMetadata
from mcpbus.protocol.principals import Peer

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

_DIGITS: Final = frozenset("0123456789")
_POST: Final = Proceed("POST")
# Of the heads that were in order: so many, and none that is longer. Nobody can fill memory with them.
_REMEMBERED: Final = 256


def health(status: str, code: int = 200, *extra: tuple[bytes, bytes]) -> HttpResponse:
    """What `/health` and `/healthz` answer, for whoever decides where to send traffic.

    Args:
        status: one word, such as `ok` or `draining`.
        code: the HTTP status, which is all that most probes look at.
        *extra: header fields.
    """
    body = b'{"status":"%b"}' % status.encode()
    return answer(code, b"application/json", body, *extra)


class HeadValidator:
    """The judge of the heads of requests to one endpoint, over whatever transport; it knows no session.

    Clients say the same few things for ever; what was found in order once is in order the next time.

    Attributes:
        options: how the endpoint is served.
        proxies: whom to believe from where requests come; None for nobody.
        metadata: tells who issues tokens; None where there are no tokens.
        needs_body: what `validate_post` finds of a POST that is in order.
        too_large: what it finds, and what to answer, of one whose body is longer than it may be.
    """

    __slots__ = ("_accepted", "_health_paths", "metadata", "needs_body", "options", "proxies", "too_large")

    def __init__(self, options: HttpOptions, metadata: ResourceMetadata | None = None) -> None:
        self.options = options
        self.metadata = metadata
        self._health_paths = set(options.health_paths) - {options.path}
        self.proxies = Proxies(options.trusted_proxies) if options.trusted_proxies else None
        self.needs_body: Final = NeedsBody(options.max_body_bytes)
        fault = f"the body is longer than {options.max_body_bytes} bytes, the option max_body_bytes"
        self.too_large: Final = refusal(413, invalid_request(fault))
        self._accepted: set[tuple[str | bytes | tuple[bytes, ...] | None, ...]] = set()

    def validate_head(self, head: RequestHead) -> HttpResponse | Proceed:
        """Judge what is judged before authorization."""
        raw = head.headers.raw
        stated = (head.path, raw(b"host"), raw(b"origin"), raw(b"sec-fetch-site"))
        if head.verb == "POST" and stated in self._accepted:
            return _POST
        verdict = self._answer_head(head) or self._validate_verb(head)
        if verdict is _POST:
            if len(self._accepted) < _REMEMBERED and len(repr(stated)) < _REMEMBERED:
                self._accepted.add(stated)
        elif isinstance(verdict, HttpResponse) and head.verb == "HEAD":
            return HttpResponse(verdict.status, verdict.headers)  # RFC 9110, section 9.3.2
        return verdict

    def _answer_head(self, head: RequestHead) -> HttpResponse | None:
        if self.is_health(head):
            # Before Host is looked at: a probe names the machine as it pleases, and the answer is no secret.
            return health("ok")
        if self.metadata is not None and self.metadata.is_place(head):
            return self.metadata.answer(head)  # likewise: it is for everybody, from wherever they come
        refused = self.validate_caller(head)
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

    def _verbs_at(self, head: RequestHead) -> bytes | None:
        """The verbs for a page to use at an address, also where it may find nothing; None where nobody looks for anything.

        A page that looks for metadata with headers of MCP's own has to read a 404, which without a preflight is an error to it.
        """
        if head.path == self.options.path:
            return self._verbs(head.headers)
        return b"GET, HEAD" if head.path in self._health_paths or origin.is_well_known(head.path) else None

    def origin(self, head: RequestHead, peer: Peer) -> Peer:
        """From where a request really comes that came from this peer."""
        return peer if self.proxies is None else self.proxies.client(peer, head.headers)

    def validate_caller(self, head: RequestHead) -> HttpResponse | None:
        """Why this Host or this Origin is refused, if it is: the first question to whoever connects, over any transport."""
        fault = origin.validate_host(head.headers, self.options) or origin.validate_origin(
            head.headers, self.options
        )
        return None if fault is None else refusal(403, fault)

    def _validate_verb(self, head: RequestHead) -> HttpResponse | Proceed:
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

    def is_health(self, head: RequestHead) -> bool:
        """Whether this is a probe of `/health`, beside the endpoint; `validate_head` answers that all is well."""
        return head.path in self._health_paths and head.verb in {"GET", "HEAD"}

    def cors_headers(self, head: RequestHead) -> list[tuple[bytes, bytes]]:
        """What to add to the answer, whatever it is, so that a page of an allowed origin can read it."""
        if self.metadata is not None and self.metadata.is_place(head):
            return []  # it says itself that everybody may read it
        return origin.cors_headers(head, self.options)

    def _verbs(self, headers: Headers) -> bytes:
        """The verbs to offer: GET and DELETE belong to legacy sessions (rules D-9, W-48, X-29)."""
        if self.options.sessions == "stateless" or mirrored_headers.claims_modern(headers):
            return b"POST"
        return b"POST, GET, DELETE" if self.options.get_streams else b"POST, DELETE"

    def validate_post(self, head: RequestHead) -> HttpResponse | NeedsBody:
        """Judge the form of a POST that is authorized, before its body is read."""
        content = self.validate_content(head)
        if isinstance(content, HttpResponse):
            return content
        accepted = head.headers.accepted
        if not accepted.json and not accepted.sse:
            return refusal(
                406, invalid_request("Accept must name application/json, text/event-stream, or both")
            )
        return content

    def validate_content(self, head: RequestHead) -> HttpResponse | NeedsBody:
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
