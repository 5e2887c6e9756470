"""The subscriptions of one client over the connection that belongs to it."""

import logging
from collections.abc import Callable, Collection
from typing import Any

import trio

from mcpbus.client.errors import ClientError
from mcpbus.core.concurrency import background, cancel_at
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.uris import UriSet
from mcpbus.upstream.connection import UpstreamConnection
from mcpbus.upstream.connection_pool import Requester, UpstreamPool
from mcpbus.upstream.pauses import Pauses
from mcpbus.upstream.subscriptions import Subscriptions
from mcpbus.upstream.target import UpstreamError, told

_log = logging.getLogger("mcpbus")


class ClientSubscriptions:
    """The subscriptions of one client. Its connection stays open for as long as there are any.

    Args:
        server: The name of the upstream server, for the log.
        pool: The connections to it.
        requester: The client.
        knows: Tells whether the upstream server may have a resource, as far as its lists are known.
        heard: Takes a change that the upstream server reports.
        updated: Takes a resource that was updated, or may have been.
        spelled: Returns a URI as the upstream server lists it.

    Attributes:
        requester: As given.
        uris: The resources that the client has subscribed to.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        server: str,
        pool: UpstreamPool,
        requester: Requester,
        knows: Callable[[str], bool],
        heard: Callable[[UpstreamConnection, str, dict[str, Any]], object],
        updated: Callable[[str], object],
        spelled: Callable[[str], str],
    ) -> None:
        self._server = server
        self._pool = pool
        self.requester = requester
        self._knows = knows
        self.uris = UriSet()
        self._over = Subscriptions(
            server,
            self._known,
            keeps=lambda _: bool(self._known()),
            heard=heard,
            updated=updated,
            spelled=spelled,
        )

    def _known(self) -> list[str]:
        return [uri for uri in self.uris if self._knows(uri)]

    def want(self, uri: str, wanted: bool) -> None:
        """Note that the client has subscribed to a resource, or does no more."""
        if wanted:
            self.uris.add(uri)
        else:
            self.uris.discard(uri)
            self._over.forget(uri)
        self.changed()

    def changed(self) -> None:
        """Note that the upstream server may know other resources now."""
        self._over.changed()

    def lost(self) -> None:
        """Note that the upstream server has forgotten the subscriptions, or that changes may have been missed."""
        self._over.lost()

    async def until_heard(self, uris: Collection[str]) -> None:
        """Wait until changes of these resources are reported, as far as the client has subscribed to them, but not for long."""
        await self._over.until_heard(uris)

    async def run(self) -> None:
        """Be subscribed until the client has subscribed to nothing any more."""
        pauses = Pauses()
        while self.uris:
            if not self._known():
                await self._over.stir()
                continue
            try:
                async with self._pool.borrow(self.requester) as pipe:
                    pauses.began()
                    await self._stay(pipe)
            except (UpstreamError, ClientError, ProtocolError) as error:
                pause = pauses.next()
                _log.warning(
                    "subscriptions of one client at %s rest for %g s: %s", self._server, pause, told(error)
                )
                await trio.sleep(pause)

    async def _stay(self, pipe: UpstreamConnection) -> None:
        async with background() as nursery:
            nursery.start_soon(cancel_at, pipe.ended, nursery.cancel_scope)
            await self._over.stay(pipe)
            nursery.cancel_scope.cancel()
        if self._known() and not pipe.was_left:
            raise UpstreamError("the connection was lost" if pipe.closing else "it reports no more changes")
