"""Writes to a client what the process that serves its request says.

The replies that a client is still owed for what it has posted, should the process that serves it be lost.
"""

import enum
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from mcpbus.cluster.affinity import read_messages
from mcpbus.cluster.forwarded_request import ForwardedRequest, LinkLostError, RedirectToNodeError
from mcpbus.cluster.messages import FrameKind, decode_answered, decode_said, decode_started
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.limits import SLICE_BYTES
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.protocol.errors import INTERNAL_ERROR, internal_error, process_lost
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, answer, refusal, status_of
from mcpbus.protocol.http.mirrored_headers import claims_modern
from mcpbus.protocol.http.sse import EVENT_STREAM, HEADERS, EventDecoder, encode_events
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
from mcpbus.transports import responses
from mcpbus.transports.ledger_responses import RecordedResponse
from mcpbus.transports.response_sinks import TaskResponse
from mcpbus.transports.response_writer import bounded

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
            return responses.whole(b"[%b]" % b",".join(lost))
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


class RelayProgress(enum.Enum):
    """How far an answer has got."""

    WHOLE = "whole"
    UNSAID = "unsaid"
    """The link was lost before anything was said."""
    ELSEWHERE = "elsewhere"
    """Another process is to be asked; nothing was said or done."""
    BEGUN = "begun"
    """The link was lost, or another process has what it is about; that one can go on."""


async def relay(
    http: TaskResponse,
    body: bytes,
    forwarded: ForwardedRequest,
    budget: MemoryBudget,
    *,
    goes_on: bool,
    write_deadline: float,
) -> RelayProgress:
    """Write an answer to its client as it comes.

    Args:
        http: The request.
        body: Its body.
        forwarded: The same, on its way to who serves it.
        budget: Where it is counted what waits for that, and for the client.
        goes_on: Whether who serves it next can go on where the answer was lost.
        write_deadline: The seconds within which the client must take 16 KiB.

    Raises:
        trio.BrokenResourceError: The client has gone, or takes too little; or the link was lost in the middle, and that cannot be said.
    """
    first = relayed = None
    with RecordedResponse(None, budget, len(body)):  # it is held until the answer has ended
        try:
            first = await forwarded.next()
        except LinkLostError:
            return RelayProgress.UNSAID
        except RedirectToNodeError:
            return RelayProgress.ELSEWHERE
        relayed = await _relay(http, body, forwarded, budget, first, goes_on, write_deadline)
    if relayed is not None:
        return relayed
    if first is None:
        why = "Too much is kept in memory, and this request would be the largest; try again later"
        await http.answer(responses.overload(ServerOverloaded(why)))
        return RelayProgress.WHOLE
    raise trio.BrokenResourceError("too much is kept in memory, and for this request the most")


async def _relay(  # noqa: PLR0917 - called in one place
    http: TaskResponse,
    body: bytes,
    forwarded: ForwardedRequest,
    budget: MemoryBudget,
    first: tuple[int, bytes],
    goes_on: bool,
    write_deadline: float,
) -> RelayProgress:
    kind, payload = first
    if kind == FrameKind.ANSWER:
        said = decode_answered(payload)
        with RecordedResponse(None, budget, len(said.body)):
            await http.answer(HttpResponse(said.status, said.headers, said.body))
            forwarded.written(more=False)
    elif kind == FrameKind.START:
        headers = decode_started(payload).headers
        await http.start_stream(headers)
        owed = UnsentResponses(http.head, body)
        is_stream = EVENT_STREAM in headers
        try:
            note = owed.note_events if is_stream else owed.note_elements
            await _write_pieces(http, forwarded, note, budget.reached, write_deadline)
        except (LinkLostError, RedirectToNodeError):
            if goes_on:
                return RelayProgress.BEGUN
            end = owed.last_events() if is_stream else owed.last_elements()
            if not end:
                raise trio.BrokenResourceError("who served it was lost in the middle of the answer") from None
            await http.write(end, more=False)
    else:
        await http.answer(refusal(502, internal_error()))
    return RelayProgress.WHOLE


async def _write_pieces(
    http: TaskResponse,
    forwarded: ForwardedRequest,
    note: Callable[[bytes], None],
    reached: LimitMonitor,
    write_deadline: float,
) -> None:
    more = True
    while more:
        kind, payload = await forwarded.next()
        if kind != FrameKind.DATA:
            raise trio.BrokenResourceError("who serves it has left it in the middle of the answer")
        said = decode_said(payload)
        more = said.more
        # In slices, so that a client that is slow but steady has the time that it needs.
        ends = range(SLICE_BYTES, len(said.data), SLICE_BYTES)
        for end in ends:
            await _write_slice(http, said.data[end - SLICE_BYTES : end], True, reached, write_deadline)
        await _write_slice(http, said.data[SLICE_BYTES * len(ends) :], more, reached, write_deadline)
        if more:
            note(said.data)
        forwarded.written(more=more)


async def _write_slice(
    http: TaskResponse, data: bytes, more: bool, reached: LimitMonitor, write_deadline: float
) -> None:
    with bounded(http, reached, write_deadline, http.peer) as deadline:
        await http.write(data, more=more)
    if deadline.cancelled_caught:
        raise trio.BrokenResourceError("the client takes too little")
