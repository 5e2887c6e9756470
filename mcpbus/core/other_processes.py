"""What a hub asks of the other processes that serve the same, where there are any."""

from typing import Protocol

from mcpbus.core.remote_session import RemoteSession
from mcpbus.core.session import Session
from mcpbus.core.stash import SessionHeldStore
from mcpbus.protocol.request_state import RoundState


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
