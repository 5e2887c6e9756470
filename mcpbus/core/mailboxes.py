"""What the mailboxes of a bus refuse, and what becomes of a message that no actor handled.

A full mailbox refuses only what handlers and programs say, of which there is no end: somebody gets its receipt, and it has
its fate. All else is accepted however much waits, because somebody would wait for ever where it was lost: a client for its
reply, a handler for an answer, a session for its end. It needs no bound of its own, since something else is its bound:

- replies, ends, cancels, and what calls and questions say to their requests: the requests that are admitted;
- what a connection's writer says: one connection for each stream, and one batch that is being written;
- what a client says beside requests: the bytes that are read in one turn of the scheduler, after which the rest waits in
  its connection until the mailboxes have been worked off; see `mcpbus_actors.Address.tell`.
"""

from mcpbus_actors import DeadLetter, DeadLetterReason

from mcpbus.core.notification import OutboundNotification, Progress, UnencodableNotification
from mcpbus.core.outbox import BOUNDED, OutboundMessage
from mcpbus.core.pending_questions import InputRound
from mcpbus.core.session_messages import YieldSession
from mcpbus.core.stream import UnsentReturned
from mcpbus.core.writer import WriterTakeOver
from mcpbus.features.input_requests.errors import cannot_ask
from mcpbus.protocol.routes import Reason

_LOSSES = {
    DeadLetterReason.FULL: Reason.OVERFLOW,
    DeadLetterReason.STOPPED: Reason.FINISHED,
    DeadLetterReason.FAILED: Reason.INTERNAL_ERROR,
    DeadLetterReason.CLOSED: Reason.SESSION_ENDED,
    DeadLetterReason.LATE: Reason.FINISHED,
}


def may_drop(message: object) -> bool:
    """Tell whether a full mailbox may refuse a message; see the module."""
    if isinstance(message, OutboundMessage):
        return message.kind in BOUNDED
    return isinstance(message, OutboundNotification | Progress)


def settle(letter: DeadLetter) -> None:
    """Let whoever waits for a message know that no actor of the bus will handle it, and give its fate to what it carries."""
    message, reason = letter.message, _LOSSES[letter.reason]
    match message:
        case OutboundNotification() | Progress():
            if message.receipt.fate is None:
                message.receipt.discard(reason)
        case UnencodableNotification() if message.said.receipt.fate is None:
            message.said.receipt.discard(reason)
        case InputRound():
            message.fail(cannot_ask("its request, or its session, has ended"))
        case WriterTakeOver():
            message.writer.grant()
        case YieldSession():
            message.done()
    for unsent in message.waiting if isinstance(message, UnsentReturned) else [message]:
        if isinstance(unsent, OutboundMessage) and unsent.receipt.fate is None:
            unsent.discard(reason)
