"""A session that another process has, as the rest of the program holds it: it can be spoken to, and that is all.

What is said to it is in the books here, in `Location.REMOTE`, until that process has told what became of it.
"""

from typing import Any, Final, Protocol

from mcpbus.core import notification
from mcpbus.core.notification import OutboundNotification, Params
from mcpbus.core.receipt import Receipt
from mcpbus.core.services import BusServices
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import MessageKind, Reason

_CLOSE: Final = "close"


class RemoteSessionSender(Protocol):
    """Leads to a session."""

    def tell(self, said: OutboundNotification, /) -> None:
        """Have something said to its client, after what was said before, and see to it that the receipt is settled."""

    def close(self, receipt: Receipt, /) -> None:
        """Have it end, likewise."""


class RemoteSession:
    """A legacy client that another process serves. Only the bus makes them, for `Bus.find_session`.

    It has those methods of `Session` that say something, and each of them does what it does there, where the session is. A receipt
    is `LOST` if the connection to that process ends before it has told the fate: the client may have been told nevertheless.

    Attributes:
        id: As of the `Session`.
    """

    __slots__ = ("_bus", "_revision", "_teller", "id")

    def __init__(
        self, bus: BusServices, session_id: str, revision: Revision, teller: RemoteSessionSender
    ) -> None:
        self.id = session_id
        self._bus = bus
        self._revision = revision
        self._teller = teller

    def log(self, level: str, data: Any, logger: str | None = None) -> Receipt:
        """Send a log line; see `Session.log`."""
        self._bus.check_thread("session.log")
        return self._say(notification.log(self._bus.ledger, MessageKind.SESSION_LOG, level, data, logger))

    def notify(self, method: str, params: Params = None) -> Receipt:
        """Send a notification of an extension; see `Session.notify`."""
        self._bus.check_thread("session.notify")
        return self._say(notification.custom(self._bus.ledger, MessageKind.SESSION_CUSTOM, method, params))

    def resource_updated(self, uri: str) -> Receipt:
        """Tell this client alone that a resource has changed; see `Session.resource_updated`."""
        self._bus.check_thread("session.resource_updated")
        return self._say(notification.resource_updated(self._bus.ledger, uri))

    def elicitation_complete(self, elicitation_id: str) -> Receipt:
        """Tell the client that what an elicitation by URL was for has been done; see `Session.elicitation_complete`."""
        self._bus.check_thread("session.elicitation_complete")
        said = notification.elicitation_complete(self._bus.ledger, elicitation_id)
        if not self._revision.elicitation_ids:
            said.receipt.emit()
            said.receipt.discard(Reason.NOT_IN_REVISION)
            return said.receipt
        return self._say(said)

    def close(self) -> Receipt:
        """End the session; see `Session.close`.

        Returns:
            A receipt that is delivered once the process that has the session ends it.
        """
        self._bus.check_thread("session.close")
        receipt = self._bus.ledger.emit(_CLOSE)
        self._teller.close(receipt)
        return receipt

    def _say(self, said: OutboundNotification) -> Receipt:
        said.receipt.emit()
        self._teller.tell(said)
        return said.receipt

    def __repr__(self) -> str:
        return f"<RemoteSession {self.id[:8]}, {self._revision.name}>"
