"""How a legacy client comes back to a stream that it lost: replay of what it missed, then on from there.

Replay never holds another stream's events. A stream that has ended is replayed to its end and closed; one that
is unknown, or whose missed part was dropped, is refused: opened anew in its place it would leave its client
waiting for a reply that cannot come (routing notes 7 and 8).
"""

import logging
from typing import TYPE_CHECKING

import trio

from mcpbus.protocol.errors import invalid_request
from mcpbus.session import Session
from mcpbus.stores.log import parse_event_id
from mcpbus.stores.protocol import Replay
from mcpbus.transport.answering import Answering, HttpRequest, watch
from mcpbus.transport.answers import GET_FORM
from mcpbus.transport.decisions import Answer, refusal
from mcpbus.transport.sse import HEADERS, encode_event

if TYPE_CHECKING:
    from mcpbus.bus import Bus

_log = logging.getLogger("mcpbus")
_NOTHING = Replay((), finished=False)


async def resume(bus: "Bus", http: HttpRequest, session: Session, last_event_id: str) -> None:
    """Answer a GET that names the last event its client has seen."""
    named = parse_event_id(last_event_id)
    if named is None or bus.event_store is None:
        await http.answer(_unknown())
        return
    name, after = named
    async with trio.open_nursery() as nursery:
        connection = nursery.cancel_scope
        nursery.start_soon(watch, http, connection)
        live = session.streams.get(name)
        writer = None if live is None else await live.resume(connection)
        if live is None or writer is None:
            missed = await _fetch(bus, session, name, after)
            await _replay(bus, http, name, after, missed, more=False)
        else:
            with writer:
                # A stream that has told its client no more than where it begins is not in the store yet.
                up_to_date = live.log is not None and live.log.last == after
                missed = _NOTHING if up_to_date else await _fetch(bus, session, name, after)
                if await _replay(bus, http, name, after, missed, more=True):
                    answering = Answering(http, live, writer, GET_FORM, started=True)
                    while await answering.step(connection, bus.limits):
                        pass
        connection.cancel()


async def _replay(
    bus: "Bus", http: HttpRequest, name: str, after: int, missed: Replay | None, *, more: bool
) -> bool:
    """Write what followed an event, and return whether the stream may go on."""
    if missed is None:
        await http.answer(_unknown())
        return False
    more = more and not missed.finished
    numbered = enumerate(missed.events, after + 1)
    events = b"".join([encode_event(event, id=f"{name}.{number}") for number, event in numbered])
    with trio.move_on_after(bus.limits.write_deadline) as deadline:
        await http.start_stream([*HEADERS])
        if events or not more:
            await http.write(events, more=more)
    return more and not deadline.cancelled_caught


async def _fetch(bus: "Bus", session: Session, name: str, after: int) -> Replay | None:
    assert bus.event_store is not None  # noqa: S101 - the caller looked
    try:
        with trio.fail_after(bus.limits.write_deadline):
            return await bus.event_store.replay(session.id, name, after)
    except Exception:  # noqa: BLE001 - a store is somebody else's code; whoever waits for it gets an answer
        _log.exception("the event store failed; stream %s cannot be resumed", name)
        return None


def _unknown() -> Answer:
    fault = (
        "Last-Event-ID names no event that can be gone on from; open a new stream without it, or ask again"
    )
    return refusal(400, invalid_request(fault))
