"""A session of another process, to which the rest of the program can send, and what a hub asks of other processes.

A message to such a session is in the ledger here, in `Location.REMOTE`, until the other process has reported its fate.
"""

from typing import Any, Final, Protocol

from mcpbus.core import outbound
from mcpbus.core.bus_services import BusServices
from mcpbus.core.outbound import OutboundNotification, Params
from mcpbus.core.receipt import Receipt
from mcpbus.core.sessions.held_queue import SessionHeldStore
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.request_state import RoundState
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
        return self._say(outbound.log(self._bus.ledger, MessageKind.SESSION_LOG, level, data, logger))

    def notify(self, method: str, params: Params = None) -> Receipt:
        """Send a notification of an extension; see `Session.notify`."""
        self._bus.check_thread("session.notify")
        return self._say(outbound.custom(self._bus.ledger, MessageKind.SESSION_CUSTOM, method, params))

    def resource_updated(self, uri: str) -> Receipt:
        """Tell this client alone that a resource has changed; see `Session.resource_updated`."""
        self._bus.check_thread("session.resource_updated")
        return self._say(outbound.resource_updated(self._bus.ledger, uri))

    def elicitation_complete(self, elicitation_id: str) -> Receipt:
        """Tell the client that what an elicitation by URL was for has been done; see `Session.elicitation_complete`."""
        self._bus.check_thread("session.elicitation_complete")
        said = outbound.elicitation_complete(self._bus.ledger, elicitation_id)
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


class SessionMovedError(Exception):
    """Another process goes on with a session, which was here when it was begun to look into a request for it."""


class SessionStore(Protocol):
    """Keeps what others need to go on with sessions over HTTP."""

    async def keep(self, session: Session, /) -> None:
        """Keep what is known of a session; returns when it is kept.

        Raises:
            Overloaded: It cannot be kept now.
        """

    def note(self, session: Session, /) -> None:
        """Keep what is known of a session that is kept already, as soon as that can be. Raises nothing."""

    def drop(self, session: Session, /) -> bool:
        """Forget a session, and return whether it was kept: if not, another process has it. Raises nothing."""

    def stash_of(self, session: Session, /) -> SessionHeldStore | None:
        """Return where what is held for a session's client is kept; None if the session is not kept."""


class RoundRegistry(Protocol):
    """Knows which rounds of calls were used, in whatever process."""

    async def use(self, state: RoundState, /) -> bool:
        """Use a round up, and return whether it was not.

        Raises:
            Overloaded: It cannot be known now.
        """

    def note(self, state: RoundState, /) -> None:
        """Use a round up, as soon as that can be: its call goes on here. Raises nothing."""


class SessionHandoff(Protocol):
    """Other processes, which go on with sessions over HTTP when this one ends."""

    def begin(self) -> None:
        """Hand each session over as soon as it has no request in flight."""

    def hurry(self) -> None:
        """Do so without waiting for clients that do not read."""

    async def wait_none(self) -> None:
        """Wait until all are handed over."""

    def has(self, session_id: str, /) -> bool:
        """Whether a session is theirs: it is handed over as soon as it has no request in flight, or has been."""


class RemoteSessionLookup(Protocol):
    """The sessions over HTTP that other processes have."""

    async def find(self, session_id: str, principal: object, /) -> Session | RemoteSession | None:
        """See `Hub.find_session`; the session is not here, or about to be."""
