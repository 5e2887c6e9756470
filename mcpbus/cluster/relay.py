"""Writes to a client what the process that serves its request says."""

import enum

import trio

from mcpbus.cluster.forwarding import ElsewhereError, ForwardedRequest, LinkLostError
from mcpbus.cluster.frames import Kind
from mcpbus.cluster.messages import Fields, decode_answered, decode_said, decode_started
from mcpbus.core.admission import Overloaded
from mcpbus.core.budget import Budget
from mcpbus.protocol.errors import internal_error, process_lost
from mcpbus.protocol.http.messages import Answer, Head, refusal
from mcpbus.protocol.http.mirrored_headers import claims_modern
from mcpbus.protocol.http.sse import HEADERS, encode_event
from mcpbus.protocol.jsonrpc import Request, Undecodable, decode
from mcpbus.protocol.revisions import LATEST, LATEST_LEGACY
from mcpbus.transports import answers
from mcpbus.transports.endpoint import Entered
from mcpbus.transports.response import HttpRequest


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
        try:
            await _write_pieces(http, forwarded)
        except (LinkLostError, ElsewhereError):
            if goes_on:
                return Relayed.BEGUN
            await _say_lost(http, body, headers)
    else:
        await http.answer(refusal(502, internal_error()))
    return Relayed.WHOLE


async def _write_pieces(http: HttpRequest, forwarded: ForwardedRequest) -> None:
    more = True
    while more:
        kind, payload = await forwarded.next()
        if kind != Kind.DATA:
            raise trio.BrokenResourceError("who serves it has left it in the middle of the answer")
        said = decode_said(payload)
        more = said.more
        await http.write(said.data, more=more)
        forwarded.written(more=more)


async def _say_lost(http: HttpRequest, body: bytes, headers: Fields) -> None:
    """End an answer that was lost in the middle, with the reply that is still due if it can have one."""
    reply = lost_answer(http.head, body)
    if reply is None or (b"content-type", b"text/event-stream") not in headers:
        raise trio.BrokenResourceError("who served it was lost in the middle of the answer")
    event = reply.body if reply.headers is HEADERS else encode_event(reply.body)
    await http.write(event, more=False)


def lost_answer(head: Head, body: bytes) -> Answer | None:
    """Return what is answered to a request that was lost with who served it; None if it has no reply, and may be asked again."""
    try:
        message = decode(body)
    except Undecodable:
        return None
    if not isinstance(message, Request):
        return None
    revision = LATEST if claims_modern(head.headers, None) else LATEST_LEGACY
    failed = answers.error_reply(process_lost(), message.id, revision)
    return failed if head.headers.accepted.json else Answer(200, HEADERS, encode_event(failed.body))
