"""Writes to a client what the process that serves its request says."""

import enum
from collections.abc import Callable

import trio

from mcpbus.cluster.forwarding import ForwardedRequest, LinkLostError, RedirectToNodeError
from mcpbus.cluster.frames import FrameKind
from mcpbus.cluster.messages import decode_answered, decode_said, decode_started
from mcpbus.cluster.owed_replies import UnsentResponses
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.budget import MemoryBudget
from mcpbus.core.limits import SLICE_BYTES
from mcpbus.core.reached_limits import LimitMonitor
from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.http.messages import HttpResponse, refusal
from mcpbus.protocol.http.sse import EVENT_STREAM
from mcpbus.transports import answers
from mcpbus.transports.entered import RecordedResponse
from mcpbus.transports.outlets import HttpRequest
from mcpbus.transports.response import bounded


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
    http: HttpRequest,
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
        await http.answer(answers.overload(ServerOverloaded(why)))
        return RelayProgress.WHOLE
    raise trio.BrokenResourceError("too much is kept in memory, and for this request the most")


async def _relay(  # noqa: PLR0917 - called in one place
    http: HttpRequest,
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
    http: HttpRequest,
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
    http: HttpRequest, data: bytes, more: bool, reached: LimitMonitor, write_deadline: float
) -> None:
    with bounded(http, reached, write_deadline, http.peer) as deadline:
        await http.write(data, more=more)
    if deadline.cancelled_caught:
        raise trio.BrokenResourceError("the client takes too little")
