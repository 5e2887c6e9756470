"""How a legacy client comes back to a stream that it lost: replay of what it missed, then on from there.

Replay never holds another stream's events. A stream that is unknown, or whose missed part was dropped, is
refused: opened anew in its place it would leave its client waiting for a reply that cannot come. So is one with a gap, where
the event store failed, also while an older connection of it seems to be open.

What a request's stream said before it ended is replayed, and the connection closed. A client that has it all, up to
the reply or to the end that it asked for, gets 204, which ends the reconnecting of an `EventSource` (HTML, 9.2.2) and of the official clients. An empty stream
would not: they come back to it for ever, the TypeScript one without the id, as if for the session's GET stream,
whose place it then takes. A request whose process has ended, and which nobody will answer, is answered with that. One whose stream went without a reply, since nobody came back to it in time, is refused: it
must not take that for the end of its request. A GET stream that has ended goes on as a new one, since the session has.
"""

import logging

import trio

from mcpbus.core.concurrency import WrapBaseExceptions
from mcpbus.core.event_log import is_get_stream, lost_request, parse_event_id
from mcpbus.core.hub import Hub
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.sessions.messages import OpenGet
from mcpbus.core.sessions.session import Session
from mcpbus.core.stores.protocol import Replay
from mcpbus.core.writer import Writer
from mcpbus.protocol.errors import invalid_request, process_lost
from mcpbus.protocol.http.messages import NO_CONTENT, HttpResponse, refusal
from mcpbus.protocol.http.sse import COMMENT, HEADERS, encode_event, encode_numbered
from mcpbus.protocol.jsonrpc import encode_error
from mcpbus.protocol.routes import StreamKind
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import TaskResponse
from mcpbus.transports.response_writer import ResponseWriter, bounded, watch
from mcpbus.transports.responses import GET_FORMAT

_log = logging.getLogger("mcpbus")
_NOTHING = Replay((), finished=False)
_ENDED = Replay((), finished=True)


async def resume(
    bus: Hub, session: Session, last_event_id: str, principal: object, http: TaskResponse
) -> None:
    """Answer a GET that names the last event its client has seen."""
    named = parse_event_id(last_event_id)
    if named is None or bus.event_store is None:
        await http.answer(_unknown())
        return
    name, after = named
    live = session.streams.find(name)
    if live is not None and not _is_whole(live):
        # Whatever the host reports of the older connection: what the client has missed of the gap cannot be known.
        await http.answer(_unknown())
        return
    async with trio.open_nursery() as nursery:
        connection = nursery.cancel_scope
        nursery.start_soon(watch, http, connection)
        writer = None if live is None else await live.resume(connection)
        if live is None or writer is None:
            await _follow_up(bus, http, session, connection, named, principal=principal)
        else:
            live.expire_in(bus.seconds_left(principal))
            with writer:
                # A stream that has told its client no more than where it begins is not in the store yet.
                up_to_date = writer.dismissed or (live.log is not None and live.log.last == after)
                missed = _NOTHING if up_to_date else await _fetch(bus, session, name, after)
                if writer.dismissed:  # the client has come back on another connection
                    missed = _ENDED
                elif not _is_whole(live):  # the store has failed since
                    missed = None
                if await _replay(bus, http, session, named, missed, more=True):
                    await _go_on(bus, http, live, writer, connection)
        connection.cancel()


def _is_whole(stream: MessageStream) -> bool:
    """Tell whether the event store has all that was sent on a stream: it never failed."""
    return stream.log is not None and stream.log.resumable


async def _follow_up(
    bus: Hub,
    http: TaskResponse,
    session: Session,
    connection: trio.CancelScope,
    named: tuple[str, int],
    *,
    principal: object,
) -> None:
    """Answer a client that comes back to a stream that has ended."""
    name, after = named
    streams = session.streams
    if streams.has_gap(name):
        await http.answer(_unknown())
        return
    complete = streams.ended_with(name, after)
    missed = _NOTHING if complete else await _fetch(bus, session, name, after)
    lost = None if missed is not None and missed.finished else lost_request(name, bus.process, session.id)
    if lost is not None:
        reply = encode_event(encode_error(lost, process_lost()))
        await _write_missed(bus, http, session, named, missed or _NOTHING, end=reply)
    elif not is_get_stream(name):
        if missed is not None and not missed.events:
            await http.answer(NO_CONTENT if complete or missed.finished else _unknown())
        else:
            await _replay(bus, http, session, named, missed, more=False)
    elif await _replay(bus, http, session, named, missed, more=True):
        stream = bus.open_stream(StreamKind.STANDALONE, session)
        stream.expire_in(bus.seconds_left(principal))
        session.address.tell(OpenGet(stream))
        with stream.attach(connection) as writer:
            await _go_on(bus, http, stream, writer, connection)


async def _go_on(
    bus: Hub, http: TaskResponse, stream: MessageStream, writer: Writer, connection: trio.CancelScope
) -> None:
    """Write what is said from now on."""
    response = ResponseWriter(http, StreamedResponse(stream, writer, GET_FORMAT, None), started=True)
    while await response.step(connection, bus.limits):
        pass


async def _replay(
    bus: Hub,
    http: TaskResponse,
    session: Session,
    named: tuple[str, int],
    missed: Replay | None,
    *,
    more: bool,
) -> bool:
    """Write what followed an event, and return whether the stream may go on."""
    if missed is None:
        await http.answer(_unknown())
        return False
    more = more and not missed.finished
    # The head goes out with the first bytes, and a client that has missed nothing waits for it all the same.
    return await _write_missed(bus, http, session, named, missed, end=None if more else b"")


async def _write_missed(
    bus: Hub,
    http: TaskResponse,
    session: Session,
    named: tuple[str, int],
    missed: Replay,
    *,
    end: bytes | None,
) -> bool:
    """Write what followed an event, and what ends the answer; if that is None, return whether it may go on."""
    name, after = named
    events = encode_numbered(missed.events, name, after + 1)
    with bounded(http, bus.limit_monitor, bus.limits.write_deadline, session.owner) as deadline:
        await http.start_stream([*HEADERS])
        await http.write(events or COMMENT if end is None else events + end, more=end is None)
    return end is None and not deadline.cancelled_caught


async def _fetch(bus: Hub, session: Session, name: str, after: int) -> Replay | None:
    assert bus.event_store is not None  # noqa: S101 - the caller looked
    if bus.event_breaker.open:
        return None  # which ends only that stream; to wait for the store would end nothing else
    try:
        with trio.fail_after(bus.limits.write_deadline), WrapBaseExceptions("the event store"):
            return await bus.event_store.replay(session.id, name, after)
    except Exception:  # noqa: BLE001 - a store is somebody else's code; whoever waits for it gets an answer
        _log.exception("the event store failed; stream %s cannot be resumed", name)
        return None


def _unknown() -> HttpResponse:
    fault = (
        "Last-Event-ID names no event that can be gone on from; open a new stream without it, or ask again"
    )
    return refusal(400, invalid_request(fault))
