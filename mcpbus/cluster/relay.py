"""Writes to a client what the process that serves its request says."""

import enum
from collections.abc import Callable

import trio

from mcpbus.cluster.forwarding import ElsewhereError, ForwardedRequest, LinkLostError
from mcpbus.cluster.frames import Kind
from mcpbus.cluster.messages import decode_answered, decode_said, decode_started
from mcpbus.cluster.owed_replies import OwedReplies
from mcpbus.core.admission import Overloaded
from mcpbus.core.budget import Budget
from mcpbus.core.limits import SLICE_BYTES
from mcpbus.core.reached_limits import ReachedLimits
from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.http.messages import Answer, refusal
from mcpbus.protocol.http.sse import EVENT_STREAM
from mcpbus.transports import answers
from mcpbus.transports.entered import Entered
from mcpbus.transports.outlets import HttpRequest
from mcpbus.transports.response import bounded


class Relayed(enum.Enum):
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
    budget: Budget,
    *,
    goes_on: bool,
    write_deadline: float,
) -> Relayed:
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
    with Entered(None, budget, len(body)):  # it is held until the answer has ended
        try:
            first = await forwarded.next()
        except LinkLostError:
            return Relayed.UNSAID
        except ElsewhereError:
            return Relayed.ELSEWHERE
        relayed = await _relay(http, body, forwarded, budget, first, goes_on, write_deadline)
    if relayed is not None:
        return relayed
    if first is None:
        why = "Too much is kept in memory, and this request would be the largest; try again later"
        await http.answer(answers.overload(Overloaded(why)))
        return Relayed.WHOLE
    raise trio.BrokenResourceError("too much is kept in memory, and for this request the most")


async def _relay(  # noqa: PLR0917 - called in one place
    http: HttpRequest,
    body: bytes,
    forwarded: ForwardedRequest,
    budget: Budget,
    first: tuple[int, bytes],
    goes_on: bool,
    write_deadline: float,
) -> Relayed:
    kind, payload = first
    if kind == Kind.ANSWER:
        said = decode_answered(payload)
        with Entered(None, budget, len(said.body)):
            await http.answer(Answer(said.status, said.headers, said.body))
            forwarded.written(more=False)
    elif kind == Kind.START:
        headers = decode_started(payload).headers
        await http.start_stream(headers)
        owed = OwedReplies(http.head, body)
        is_stream = EVENT_STREAM in headers
        try:
            note = owed.note_events if is_stream else owed.note_elements
            await _write_pieces(http, forwarded, note, budget.reached, write_deadline)
        except (LinkLostError, ElsewhereError):
            if goes_on:
                return Relayed.BEGUN
            end = owed.last_events() if is_stream else owed.last_elements()
            if not end:
                raise trio.BrokenResourceError("who served it was lost in the middle of the answer") from None
            await http.write(end, more=False)
    else:
        await http.answer(refusal(502, internal_error()))
    return Relayed.WHOLE


async def _write_pieces(
    http: HttpRequest,
    forwarded: ForwardedRequest,
    note: Callable[[bytes], None],
    reached: ReachedLimits,
    write_deadline: float,
) -> None:
    more = True
    while more:
        kind, payload = await forwarded.next()
        if kind != Kind.DATA:
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
    http: HttpRequest, data: bytes, more: bool, reached: ReachedLimits, write_deadline: float
) -> None:
    with bounded(http, reached, write_deadline, http.peer) as deadline:
        await http.write(data, more=more)
    if deadline.cancelled_caught:
        raise trio.BrokenResourceError("the client takes too little")
