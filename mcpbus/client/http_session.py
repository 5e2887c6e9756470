"""The session of an older revision in which a client speaks over HTTP, and the next one, once its server has ended it (rule W-34).

A message that is answered 404 was not looked at: its session is over, unless a request is told that its method, or resource, was not
found. The first one has a new session opened, in the same revision; requests that are refused or made meanwhile wait for it. It is
entered as ``notifications/initialized`` is posted: what was sent before that belongs to the old one, and all else comes behind it.
"""

from collections.abc import Callable

import attrs
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError, Disconnected
from mcpbus.client.pending import Pending
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import Request


@attrs.define
class HttpSession:
    """The session of one client.

    Args:
        nursery: For the opening of a new one.
        repeat: Sends a request in the session that was entered.
        leave: Told which session has ended, once another one is entered, or none can be opened: nothing more is to be expected of it.

    Attributes:
        id: What names it in each message; None where there is none.
    """

    _nursery: trio.Nursery
    _repeat: Callable[[Request, Pending], None]
    _leave: Callable[[str], None]
    id: str | None = None
    _offered: str | None = None
    _renewing: bool = False
    _waiting: list[tuple[Request, Pending]] = attrs.Factory(list)

    def offered(self, session: str | None) -> None:
        """Note what the answer to ``initialize`` calls the session that it opens."""
        self._offered = session

    def enter(self) -> None:
        """Speak in the session that was offered, and ask there what has waited for it; leave the last one, if that is another."""
        ended, self.id = self.id, self._offered
        self._renewing = False
        waiting, self._waiting = self._waiting, []
        for request, pending in waiting:
            self._repeat(request, pending)
        if ended is not None and ended != self.id:
            self._leave(ended)

    def hold(self, request: Request, pending: Pending) -> bool:
        """Keep a request for the session that is being opened, and tell whether one is: the old one would refuse it."""
        if self._renewing and request.method != "initialize":
            self._waiting.append((request, pending))
            return True
        return False

    def ended(self, session: str, client: Client, *refused: tuple[Request, Pending]) -> None:
        """Note that a session was answered 404: open a new one, if nobody has, and repeat there the requests that it refused."""
        if self.id != session:
            for request, pending in refused:
                self._repeat(request, pending)
            return
        self._waiting += refused
        if not self._renewing:
            self._renewing = True
            self._nursery.start_soon(self._renew, client, session)

    async def _renew(self, client: Client, ended: str) -> None:
        revision = client.revision
        try:
            await client.initialize()
        except (ClientError, ProtocolError) as error:
            # Who sent nothing but a notification hears it with the next request, which tries again.
            self._renewing = False
            self._leave(ended)
            waiting, self._waiting = self._waiting, []
            for _, pending in waiting:
                pending.settle(
                    Disconnected(f"the server has ended the session, and opens no new one: {error}")
                )
        else:
            if client.revision is not revision:
                client.disconnected(
                    f"the server has ended the session, and no longer speaks {revision.name}: "
                    f"it offers {client.revision.name}"
                )
