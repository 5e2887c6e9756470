"""The notifications of a request: made for its revision, and only those that its client wants.

Notifications before the first await are kept together and go out with the response. No other task runs meanwhile, so no other task needs
to know of them. They enter the ledger at once when it is known where they go.
"""

from collections.abc import Callable
from typing import Any

from mcpbus.core.call import CallActor
from mcpbus.core.limits import Limits
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.message_sinks import MessageSink
from mcpbus.core.outbound import PROGRESS, OutboundNotification, Progress
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import LogThreshold
from mcpbus.protocol.jsonrpc import encode_id
from mcpbus.protocol.routes import MessageKind, Reason, route

_PROGRESS_OPENING = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b,'
# Before Python 3.12 each look-up by a class's name is a search.
_PROGRESS = MessageKind.PROGRESS


class MessageBuilder(MessageSink, kw_only=True, eq=False):
    """A request as far as it makes messages of what is said.

    Attributes:
        context: The request as its transport handed it over.
        call: The run of its handler.
    """

    context: RequestContext
    call: CallActor
    _threshold: LogThreshold | None = None
    _progress: float = float("-inf")
    _progress_opening: bytes | None = None

    def _draw_up_notification(self, said: OutboundNotification) -> OutboundMessage | Reason:
        """Make the message for the stream; or tell why what is said goes nowhere."""
        context = self.context
        kind, era = said.kind, context.revision.era
        way = route(kind, era, context.transport)
        if said.level is not None:
            if self._threshold is None:
                self._threshold = context.threshold(self.call.bus.limits.log_level)
            least = self._threshold.level
            if least is None or said.level.severity < least.severity:
                way = Reason.FILTERED
        if isinstance(way, Reason):
            return way
        return OutboundMessage(kind, era, said.data, said.receipt, said.key, context.request.id)

    def _draw_up_progress(self, said: Progress) -> OutboundMessage | Reason:
        """Likewise, of a report of progress."""
        context, opening = self.context, self._progress_opening
        if opening is None:
            way = self._open_progress()
            if isinstance(way, Reason):
                return way
            opening = self._progress_opening = way
        if said.progress <= self._progress:
            return Reason.NOT_INCREASING
        self._progress = said.progress
        revision = context.revision
        members = said.data if revision.progress_message else said.mute_data
        return OutboundMessage(
            _PROGRESS, revision.era, opening + members + b"}", said.receipt, PROGRESS, context.request.id
        )

    def _open_progress(self) -> bytes | Reason:
        """Make what all reports begin with; or tell why there are none."""
        context = self.context
        token = context.routing.meta.progress_token
        if token is None:
            return Reason.NO_TOKEN
        way = route(_PROGRESS, context.revision.era, context.transport)
        return way if isinstance(way, Reason) else _PROGRESS_OPENING % encode_id(token)


DRAWN_UP: dict[type, Callable[[Any, Any], OutboundMessage | Reason]] = {
    OutboundNotification: MessageBuilder._draw_up_notification,  # noqa: SLF001 - its own
    Progress: MessageBuilder._draw_up_progress,  # noqa: SLF001 - its own
}
"""What makes a message for the stream of what a handler says; or tells why that goes nowhere."""


class InlineNotifications:
    """Drafted notifications: few, and less than half of what may wait for a client.

    Args:
        limits: How much may.

    Attributes:
        messages: They, in order.
        held: How many bytes they take.
    """

    __slots__ = ("_most", "held", "messages")

    def __init__(self, limits: Limits) -> None:
        self._most = min(SHORT_BYTES, limits.outbox_bytes // 2, limits.outbox_items * OVERHEAD_BYTES // 2)
        self.messages: list[OutboundMessage] = []
        self.held = 0

    def join(self, message: OutboundMessage) -> bool:
        """Add a notification, if there is room; return whether there was."""
        held = self.held + len(message.data) + OVERHEAD_BYTES
        if held >= self._most:
            return False
        self.held = held
        self.messages.append(message)
        return True
