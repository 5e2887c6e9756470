"""The request actor: one JSON-RPC request of a client, from its admission to its reply.

It decides what a handler's emissions become, and sends the reply. A reply that is in its stream's outbox ends
the request: a cancel that comes later finds nobody. Whatever ends a request, its call is cancelled and its
place at admission is given back.
"""

import contextvars
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import attrs
import msgspec

from actors import Address, Cell, Permit, Stopped, StopReason
from mcpbus.admission import Slot
from mcpbus.call import CallActor, CancelCall, Carrier, Finished
from mcpbus.emission import PROGRESS, Emission, Progress
from mcpbus.fate import Ledger, Reason
from mcpbus.outbox import Outgoing
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, internal_error
from mcpbus.protocol.jsonrpc import RequestId, encode_error, encode_notification, encode_result
from mcpbus.protocol.levels import LogLevel
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.routing import Kind, Line, Setting, Situation, absent, route
from mcpbus.stream import Abort, Ending, Purge, Stream

_log = logging.getLogger("mcpbus")


class Cancel(msgspec.Struct, frozen=True):
    """The client cancelled the request: it is not answered."""


class End(msgspec.Struct, frozen=True):
    """The server ends the request, and answers it with an internal error.

    Attributes:
        why: For the client, in the error's message.
    """

    why: str


class Drop(msgspec.Struct, frozen=True):
    """The client ended its session: the request is not answered."""


class _Abandoned(msgspec.Struct, frozen=True):
    """Nobody came back for the answer of a legacy request."""


@attrs.define(eq=False)
class Ticket:
    """What is known of a request when it begins.

    Attributes:
        id: Its JSON-RPC id.
        method: Its method.
        revision: The revision that it is served under.
        setting: How its client is connected.
        stream: Where its reply goes.
        slot: Its place at admission.
        progress_token: The client's token, or None if it wants no progress.
        log_level: From which level it wants log lines; None for none. Asked at each line, since a legacy
            client may change it meanwhile.
        abandoned_timeout: Seconds that a legacy request runs on without a stream.
        context: The contextvars that its handler runs in: those of when it arrived.
        session_id: The id of the session that its success opens, if it is an HTTP initialize.
    """

    id: RequestId
    method: str
    revision: Revision
    setting: Setting
    stream: Stream
    slot: Slot
    progress_token: RequestId | None
    log_level: "LogThreshold"
    abandoned_timeout: float
    context: contextvars.Context
    session_id: str | None = None


class LogThreshold:
    """From which level a client wants log lines: None for none at all."""

    __slots__ = ("level",)

    def __init__(self, level: LogLevel | None) -> None:
        self.level = level


class RequestActor:
    """See the module."""

    def __init__(
        self,
        cell: Cell[object],
        ticket: Ticket,
        ledger: Ledger,
        carrier: Carrier,
        run: Callable[[], Awaitable[bytes]],
    ) -> None:
        self._cell = cell
        self._ticket = ticket
        self._ledger = ledger
        self._carrier = carrier
        self._progress = float("-inf")
        self._situation: Situation | None = None
        self._room = ticket.stream.address.permit()
        carrier.address = cell.address
        ticket.slot.occupy(cell.address)
        cell.on_stop(self._ended)
        cell.watch(ticket.stream.address)
        self._call: Address[object] = cell.system.spawn(CallActor, carrier, run, ticket.context, name="call")

    def handle(self, message: object) -> None:
        """Handle one message; see `actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    def _emit(self, emission: Emission) -> None:
        threshold = self._ticket.log_level.level
        if emission.level is not None and (threshold is None or emission.level < threshold):
            emission.receipt.discard(Reason.FILTERED)
            return
        self._send(Outgoing(emission.kind, self._ticket.revision.era, emission.data, emission.receipt))

    def _emit_progress(self, emission: Progress) -> None:
        ticket = self._ticket
        if ticket.progress_token is None:
            emission.receipt.discard(Reason.NO_TOKEN)
            return
        if emission.progress <= self._progress:
            emission.receipt.discard(Reason.NOT_INCREASING)
            return
        self._progress = emission.progress
        params: dict[str, object] = {"progressToken": ticket.progress_token, "progress": emission.progress}
        if emission.total is not None:
            params["total"] = emission.total
        if emission.message is not None and ticket.revision.progress_message:
            params["message"] = emission.message
        data = encode_notification(PROGRESS, params)
        key = (PROGRESS, ticket.id)
        self._send(Outgoing(Kind.PROGRESS, ticket.revision.era, data, emission.receipt, key=key))

    def _send(self, message: Outgoing, permit: Permit[object] | None = None) -> None:
        ticket = self._ticket
        way = route(message.kind, message.era, ticket.setting)
        if self._situation is not None and isinstance(way, Line):
            way = absent(message.kind, message.era, self._situation)
        if isinstance(way, Reason):
            message.receipt.discard(way)
            return
        message.request_id = ticket.id
        ticket.stream.send(message, permit)

    def _finished(self, message: Finished) -> None:
        self._reply(message.result)

    def _end(self, message: End) -> None:
        self._reply(ProtocolError(INTERNAL_ERROR, message.why))

    def _reply(self, result: bytes | ProtocolError) -> None:
        ticket = self._ticket
        code = None
        if isinstance(result, ProtocolError):
            data = encode_error(ticket.id, result)
            code = result.code
        else:
            data = encode_result(ticket.id, result)
        message = Outgoing(
            Kind.REPLY,
            ticket.revision.era,
            data,
            self._ledger.enter(ticket.method),
            final=ticket.stream.line is Line.OWN,
            error_code=code,
            session_id=None if code is not None else ticket.session_id,
        )
        self._send(message, self._room)
        self._stop(Reason.FINISHED)

    def _cancel(self, _message: Cancel) -> None:
        self._silence(Ending.CANCELLED, Reason.CANCELLED)

    def _drop(self, _message: Drop) -> None:
        self._silence(Ending.SESSION_ENDED, Reason.SESSION_ENDED)

    def _silence(self, ending: Ending, reason: Reason) -> None:
        stream = self._ticket.stream
        if stream.line is Line.OWN:
            stream.address.tell(Abort(ending, reason))
        else:
            stream.address.tell(Purge(self._ticket.id))
        self._stop(reason)

    def _stream_stopped(self, _message: Stopped) -> None:
        if self._ticket.revision.era is Era.MODERN:
            self._stop(Reason.CANCELLED)
        elif self._ticket.stream.line is Line.SHARED:
            self._stop(Reason.SESSION_ENDED)
        else:
            # A lost connection is not a cancellation (2025-11-25, Transports, "Sending Messages", 6).
            self._situation = Situation.DROPPED
            self._cell.after(self._ticket.abandoned_timeout, _Abandoned())

    def _abandoned(self, _message: _Abandoned) -> None:
        _log.warning(
            "%s %r was abandoned: its stream was lost %g s ago",
            self._ticket.method,
            self._ticket.id,
            self._ticket.abandoned_timeout,
        )
        self._stop(Reason.CANCELLED)

    def _stop(self, reason: Reason) -> None:
        self._carrier.ended = reason
        self._cell.stop()

    def _ended(self, reason: StopReason) -> None:
        self._ticket.slot.release()
        if self._room is not None:
            self._room.release()
        if not self._call.stopped:
            self._call.tell(CancelCall())
        if self._carrier.ended is None:
            self._carrier.ended = Reason.FAILED
            if reason is StopReason.FAILED:
                self._reply(internal_error())

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Emission: _emit,
        Progress: _emit_progress,
        Finished: _finished,
        Cancel: _cancel,
        Drop: _drop,
        End: _end,
        Stopped: _stream_stopped,
        _Abandoned: _abandoned,
    }
