"""The replies that a client is still owed for what it has posted, should the process that serves it be lost."""

from typing import Final

import msgspec

from mcpbus.cluster.mentions import read_messages
from mcpbus.protocol.errors import INTERNAL_ERROR, process_lost
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, answer, status_of
from mcpbus.protocol.http.mirrored_headers import claims_modern
from mcpbus.protocol.http.sse import HEADERS, EventDecoder, encode_events
from mcpbus.protocol.jsonrpc import (
    JsonRpcRequest,
    JsonRpcResponse,
    RequestId,
    Undecodable,
    decode,
    encode_error,
    is_batch,
)
from mcpbus.protocol.revisions import LATEST, LATEST_LEGACY
from mcpbus.transports import answers

_MOST_BYTES: Final = 256 * 1024 * 1024
_READS: Final = frozenset(
    {
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "tasks/get",
    }
)
"""The methods that have no effect, since no handler runs for them: they may be asked again."""
_split_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class UnsentResponses:
    """The replies to one POST, of which some may have been said.

    Only of a batch it is read what was said: the reply of a single request is the end of its answer.

    Args:
        head: What comes before its body.
        body: Its body.
    """

    __slots__ = ("_body", "_events", "_head", "_is_batch", "_said")

    def __init__(self, head: RequestHead, body: bytes) -> None:
        self._head = head
        self._body = body
        self._is_batch = is_batch(body)
        self._said: list[RequestId | None] = []
        self._events = EventDecoder(_MOST_BYTES)

    def note_events(self, piece: bytes) -> None:
        """Note what a piece of a stream of events says."""
        if self._is_batch:
            for event in self._events.feed(piece):
                if event.data:
                    self._said += _replies_to(event.data.encode())

    def note_elements(self, piece: bytes) -> None:
        """Note what a piece of an array says: a bracket or a comma, then whole elements."""
        for element in _split_array(b"[%b]" % piece[1:]):
            self._said += _replies_to(bytes(element))

    def whole(self) -> HttpResponse | None:
        """Return an answer that says of each request that it is lost; None if none had an effect, so that all may be asked again."""
        lost = self._lost()
        if not lost or all(method in _READS for method in self._methods()):
            return None
        if not self._head.headers.accepted.json:
            return HttpResponse(200, HEADERS, encode_events(lost))
        if self._is_batch:
            return answers.whole(b"[%b]" % b",".join(lost))
        revision = LATEST if claims_modern(self._head.headers) else LATEST_LEGACY
        return answer(status_of(INTERNAL_ERROR, revision), b"application/json", lost[0])

    def last_events(self) -> bytes:
        """Return the end of a stream of events, which says the same of those that had no reply; empty if there are none."""
        return encode_events(self._lost())

    def last_elements(self) -> bytes:
        """Return the end of an array, likewise."""
        lost = self._lost()
        begin = b"," if self._said else b"["
        return (begin if lost or not self._said else b"") + b",".join(lost) + b"]"

    def _lost(self) -> list[bytes]:
        """Return the errors for what has had no reply."""
        return [encode_error(owed, process_lost()) for owed in self._owed()]

    def _methods(self) -> list[str]:
        return [each.method for each in read_messages(self._body) if isinstance(each, JsonRpcRequest)]

    def _owed(self) -> list[RequestId | None]:
        """Return the ids of what has had no reply."""
        messages = read_messages(self._body)
        owed = [each.id for each in messages if isinstance(each, JsonRpcRequest | Undecodable)]
        if not any(isinstance(each, JsonRpcRequest) for each in messages):
            return []  # nothing has begun
        for said in self._said:
            if said in owed:
                owed.remove(said)
        return owed


def _replies_to(message: bytes) -> list[RequestId | None]:
    """Return the id of the request to which a message is the reply."""
    said = decode(message)
    return [said.id] if isinstance(said, JsonRpcResponse) else []
