"""The session of an older revision in which a client speaks over HTTP, and the next one, once its server has ended it (rule W-34).

A message that is answered 404 was not looked at: its session is over, unless a request is told that its method, or resource, was not
found; `validate_error` knows other answers of this kind. The first one has a new session opened, in the same revision; requests that are
refused or made meanwhile wait for it. It is entered as ``notifications/initialized`` is posted: what was sent before that belongs to the
old one, and all else comes behind it.

Several replicas without shared sessions answer in turn at some addresses. There a request is refused by each replica but the one that
opened the session, so it may be refused a few times in a row.
"""

from collections.abc import Callable
from typing import Final, Protocol

import attrs
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError, DisconnectedError
from mcpbus.protocol.errors import ProtocolError

MOST_REFUSALS: Final = 10
"""How many sessions in a row may refuse one request: with two replicas in random order, one request in a thousand fails."""
OPEN_SECONDS: Final = 30.0
"""How long the server may take to open a new session, for which requests wait."""


class _Parking(Protocol):
    """The queue in which requests wait for a new session."""

    def release(self) -> None:
        """Send the requests that are parked."""

    def fail_parked(self, error: ClientError) -> None:
        """Fail the requests that are parked."""


@attrs.define
class SessionId:
    """The session of one client.

    Args:
        nursery: For the opening of a new one.
        parking: The queue in which requests wait for a new one.
        leave: Told which session has ended, once another one is entered, or none can be opened: nothing more is to be expected of it.

    Attributes:
        id: What names it in each message; None where there is none.
        renewing: Whether a new one is being opened, so that requests are to be parked: the old one would refuse them.
    """

    _nursery: trio.Nursery
    _parking: _Parking
    _leave: Callable[[str], None]
    id: str | None = None
    renewing: bool = False
    _offered: str | None = None

    def offered(self, session: str | None) -> None:
        """Note what the answer to ``initialize`` calls the session that it opens."""
        self._offered = session

    def enter(self) -> None:
        """Speak in the session that was offered, and ask there what has waited for it; leave the last one, if that is another."""
        ended, self.id = self.id, self._offered
        self.renewing = False
        self._parking.release()
        if ended is not None and ended != self.id:
            self._leave(ended)

    def ended(self, session: str, client: Client) -> None:
        """Note that a session was refused: open a new one, unless that is done. The requests that it refused are parked, and repeated then."""
        if self.renewing:
            return
        if self.id != session:
            self._parking.release()
            return
        self.renewing = True
        self._nursery.start_soon(self._renew, client, session)

    async def _renew(self, client: Client, ended: str) -> None:
        revision = client.revision
        try:
            with trio.move_on_after(OPEN_SECONDS) as patience:
                await client.initialize()
            if patience.cancelled_caught:
                raise DisconnectedError(f"it did not answer within {OPEN_SECONDS:g} s")
        except (ClientError, ProtocolError) as error:
            # Who sent nothing but a notification hears it with the next request, which tries again.
            self.renewing = False
            self._leave(ended)
            self._parking.fail_parked(
                DisconnectedError(f"the server has ended the session, and opens no new one: {error}")
            )
        else:
            if client.revision is not revision:
                client.disconnected(
                    f"the server has ended the session, and no longer speaks {revision.name}: "
                    f"it offers {client.revision.name}"
                )
