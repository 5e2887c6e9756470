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
from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.http.messages import Answer, refusal
from mcpbus.protocol.http.sse import EVENT_STREAM
from mcpbus.transports import answers
from mcpbus.transports.entered import Entered
from mcpbus.transports.outlets import HttpRequest


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
    http: HttpRequest, body: bytes, forwarded: ForwardedRequest, budget: Budget, *, goes_on: bool
) -> Relayed:
    """Write an answer to its client as it comes.

    Args:
        http: The request.
        body: Its body.
        forwarded: The same, on its way to who serves it.
        budget: Where it is counted what waits for that, and for the client.
        goes_on: Whether who serves it next can go on where the answer was lost.

    Raises:
        trio.BrokenResourceError: The client has gone; or the link was lost in the middle, and that cannot be said.
    """
    first = relayed = None
    with Entered(None, budget, len(body)):  # it is held until the answer has ended
        try:
            first = await forwarded.next()
        except LinkLostError:
            return Relayed.UNSAID
        except ElsewhereError:
            return Relayed.ELSEWHERE
        relayed = await _relay(http, body, forwarded, budget, first, goes_on)
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
            await _write_pieces(http, forwarded, owed.note_events if is_stream else owed.note_elements)
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
    http: HttpRequest, forwarded: ForwardedRequest, note: Callable[[bytes], None]
) -> None:
    more = True
    while more:
        kind, payload = await forwarded.next()
        if kind != Kind.DATA:
            raise trio.BrokenResourceError("who serves it has left it in the middle of the answer")
        said = decode_said(payload)
        more = said.more
        await http.write(said.data, more=more)
        if more:
            note(said.data)
        forwarded.written(more=more)
