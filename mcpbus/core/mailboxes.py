"""What the mailboxes of a bus refuse, and what becomes of a message that no actor handled.

A full mailbox refuses only what handlers and programs say, of which there is no end: somebody gets its receipt, and it has
its fate. All else is accepted however much waits, because somebody would wait for ever where it was lost: a client for its
reply, a handler for an answer, a session for its end. It needs no bound of its own, since something else is its bound:

- replies, ends, cancels, and what calls and questions say to their requests: the requests that are admitted;
- what a connection's writer says: one connection for each stream, and one batch that is being written;
- what a client says beside requests: the bytes that are read in one turn of the scheduler, after which the rest waits in
  its connection until the mailboxes have been worked off; see `mcpbus_actors.Address.tell`.
"""

from mcpbus_actors import DeadLetter, Discard

from mcpbus.core.notification import OutboundNotification, Progress, Unsaid
from mcpbus.core.outbox import BOUNDED, OutboundMessage
from mcpbus.core.pending_questions import Ask
from mcpbus.core.session_messages import Leave
from mcpbus.core.stream import Returned
from mcpbus.core.writer import TakeOver
from mcpbus.features.asking.errors import cannot_ask
from mcpbus.protocol.routes import Reason

_LOSSES = {
    Discard.FULL: Reason.OVERFLOW,
    Discard.STOPPED: Reason.FINISHED,
    Discard.FAILED: Reason.FAILED,
    Discard.CLOSED: Reason.SESSION_ENDED,
    Discard.LATE: Reason.FINISHED,
}


def expendable(message: object) -> bool:
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
        case Unsaid() if message.said.receipt.fate is None:
            message.said.receipt.discard(reason)
        case Ask():
            message.fail(cannot_ask("its request, or its session, has ended"))
        case TakeOver():
            message.writer.grant()
        case Leave():
            message.done()
    for unsent in message.waiting if isinstance(message, Returned) else [message]:
        if isinstance(unsent, OutboundMessage) and unsent.receipt.fate is None:
            unsent.discard(reason)
