"""What an HTTP request is answered, and in which form: pure functions of what came of it."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.signals import Ending
from mcpbus.protocol.errors import ProtocolError, internal_error
from mcpbus.protocol.http.headers import AcceptHeader
from mcpbus.protocol.http.messages import NO_STORE, HttpResponse, answer, refusal, status_of
from mcpbus.protocol.http.sse import HEADERS
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import StreamKind, TransportKind

HeaderList: TypeAlias = Sequence[tuple[bytes, bytes]]

_JSON = b"application/json"
JSON_HEADERS: Final[HeaderList] = ((b"content-type", _JSON), NO_STORE)
RETRY_AFTER: Final = (b"retry-after", b"1")
"""What goes with each 503 and each 429 (RFC 9110, section 10.2.3): what is refused for want of room costs next to nothing."""


@attrs.frozen
class ResponseFormat:
    """What form an answer may take.

    Attributes:
        json: Whether it may be JSON.
        sse: Whether it may be an SSE stream.
        early: Whether the stream begins before there is anything to say.
        patient: Whether it waits for its first message however long that takes, with no keep-alive before.
        array: Whether it has several replies, which are an array in JSON.
        address: What the first event of the stream says, `endpoint`, if it is one of HTTP+SSE; all others are of the type `message`.
    """

    json: bool = True
    sse: bool = True
    early: bool = False
    patient: bool = False
    array: bool = False
    address: bytes = b""

    def transport(self, *, stateless: bool) -> TransportKind:
        """Return how a client with such answers is connected, for routing."""
        return _TRANSPORTS[stateless, self.sse]

    def narrow(self, accepted: AcceptHeader) -> "ResponseFormat":
        """Return this form as far as the client takes it; where nothing is left, what the client takes."""
        sse = accepted.sse and (self.sse or not accepted.json)
        return attrs.evolve(self, json=accepted.json and (self.json or not sse), sse=sse)


_TRANSPORTS: Final = {
    (False, False): TransportKind.HTTP_JSON,
    (False, True): TransportKind.HTTP,
    (True, False): TransportKind.STATELESS_JSON,
    (True, True): TransportKind.STATELESS,
}

# What a client cancelled gets no reply, yet its POST needs an answer: a stream with nothing in it. So does what was in flight when
# a client ended its session: a 404 is for who does not know yet that it has ended, and clients that leave it fail on one (rule W-46).
_UNANSWERED: Final = frozenset({Ending.CANCELLED, Ending.SESSION_ENDED})

LISTEN_FORMAT = ResponseFormat(json=False)
"""A listen is a stream whatever else is preferred."""
GET_FORMAT = ResponseFormat(json=False, early=True)
"""A GET stream may be quiet for long; its client waits for the head."""


def session_header(session_id: str | None) -> HeaderList:
    """Return the header that tells a client its new session's id."""
    return [] if session_id is None else [(b"mcp-session-id", session_id.encode())]


def stream_headers(first: list[OutboundMessage]) -> HeaderList:
    """Return the headers of an SSE stream whose first messages these are."""
    return [*HEADERS, *session_header(first[0].session_id if first else None)]


def whole(data: bytes, session_id: str | None = None) -> HttpResponse:
    """Return a successful reply as JSON."""
    return answer(200, _JSON, data, *session_header(session_id))


def whole_reply(reply: OutboundMessage, revision: Revision | None) -> HttpResponse:
    """Return the answer of a request that said nothing before its reply."""
    if reply.error is None or revision is None:
        return whole(reply.data, reply.session_id)
    return _error(reply.error, reply.data, revision)


def whole_batch(replies: list[OutboundMessage]) -> HttpResponse:
    """Return the answer of a batch whose requests said nothing before their replies."""
    return whole(b"[%b]" % b",".join([reply.data for reply in replies]))


def error_reply(error: ProtocolError, request_id: RequestId, revision: Revision) -> HttpResponse:
    """Return the answer of a request that was refused, or failed before it said anything."""
    return _error(error, revision.encode_reply(request_id, error), revision)


def _error(error: ProtocolError, body: bytes, revision: Revision) -> HttpResponse:
    if isinstance(error, ServerOverloaded):
        return answer(error.status, _JSON, body, RETRY_AFTER)
    return answer(status_of(revision.admissible(error).code, revision), _JSON, body)


def overload(error: ServerOverloaded) -> HttpResponse:
    """Return the answer of a client that there was no room for, whatever it asked."""
    return refusal(error.status, error, None, RETRY_AFTER)


def unanswered(stream: MessageStream) -> HttpResponse:
    """Return the answer of a request that ended without a reply, before anything was said."""
    if stream.end_reason in _UNANSWERED or stream.kind is StreamKind.STANDALONE:
        return HttpResponse(200, HEADERS)
    return refusal(500, internal_error())
