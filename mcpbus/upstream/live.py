"""One opened proxy: its connections to the other server, and what is known of that."""

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from functools import partial

import attrs
import trio

from mcpbus.client.client import ServerDescription
from mcpbus.client.errors import Disconnected
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.nursery import background
from mcpbus.core.session import Session
from mcpbus.features.catalogue import Features
from mcpbus.protocol.messages import ListName
from mcpbus.upstream.errors import UpstreamError, told
from mcpbus.upstream.hearing import Hearing
from mcpbus.upstream.mirror import Mirror
from mcpbus.upstream.pipe import PLAIN, Pipe
from mcpbus.upstream.pool import Isolation, Pool
from mcpbus.upstream.relay import Relay
from mcpbus.upstream.target import Upstream
from mcpbus.upstream.watch import Watch

_log = logging.getLogger("mcpbus")


@attrs.frozen
class Terms:
    """How a proxy passes calls on.

    Attributes:
        connections: How many connections there may be at once.
        timeout: Seconds after which a call fails; None for no limit.
        scopes: What a token has to allow for all that it offers.
        optional: Whether it begins although the other server cannot be reached.
        isolation: The owner of each connection.
    """

    connections: int
    timeout: float | None
    scopes: tuple[str, ...]
    optional: bool
    isolation: Isolation = "client"


class Live:
    """One opened proxy.

    Args:
        upstream: The other server.
        features: What the proxy offers.
        terms: How it passes calls on.
        learned: Told what the other server says of itself.
        updated: Tells clients that a resource was updated.
    """

    def __init__(
        self,
        upstream: Upstream,
        features: Features,
        terms: Terms,
        *,
        learned: Callable[[ServerDescription], object],
        updated: Callable[[str], object],
    ) -> None:
        self._terms = terms
        self._turn = trio.Event()
        self._begun = trio.Event()
        self._failure: UpstreamError | None = None
        self._features = features
        self._upstream = upstream
        self._sorted: list[str] = []
        self._sorted_of = 0
        self._hearing = Hearing(self._look, updated, self._lost)
        self._pool = Pool(upstream, terms.connections, self._hear, terms.isolation)
        relay = Relay(upstream.name, self._pool, self._hearing)
        self._mirror = Mirror(upstream.name, features, relay, terms.scopes, terms.timeout)
        self._watch = Watch(
            upstream,
            self._pool,
            self._mirror,
            knows=self._knows,
            learned=learned,
            heard=self._hearing.hear,
            updated=updated,
        )

    async def run(self) -> None:
        """Be connected until cancelled; `begun` tells how that begins."""
        if self._terms.optional:
            self._mirror.declare_all()
        try:
            async with background() as nursery:
                nursery.start_soon(self._pool.run)
                nursery.start_soon(self._hearing.run)
                try:
                    await nursery.start(partial(self._watch.run, self._turn, optional=self._terms.optional))
                except UpstreamError as error:
                    self._failure = error
                self._begun.set()
                await trio.sleep_forever()
        finally:
            self._mirror.clear()

    async def begun(self) -> None:
        """Wait until it is known what the other server offers, or that this cannot be known now. That is offered when somebody waits.

        Raises:
            UpstreamError: The other server cannot be reached, and is not optional.
        """
        self._turn.set()
        await self._begun.wait()
        if self._failure is not None:
            raise self._failure

    # -- what clients do -------------------------------------------------------------------------

    def want(self, uri: str, wanted: bool) -> None:
        """Note that clients want to hear of a resource, or do not any more."""
        self._watch.want(uri, wanted)

    async def until_heard(self, uris: Collection[str]) -> None:
        """Wait until changes of these are heard of, as far as they are the other server's."""
        await self._watch.until_heard(uris)

    def _knows(self, uri: str) -> bool:
        """Whether the other server may have this resource, or some that lie below it: it is told of no others."""
        if self._features.find_resource(uri):
            return True
        place = bisect_left(uris := self._sorted_uris(), uri)
        return place < len(uris) and uris[place].startswith(uri)

    def _sorted_uris(self) -> list[str]:
        resources = self._features.resources
        if self._sorted_of != resources.version:
            self._sorted = sorted(entry.key for entry in resources.entries())
            self._sorted_of = resources.version
        return self._sorted

    def forget(self, session: Session) -> None:
        """Close the connections of a session that has ended."""
        self._pool.forget(session)

    async def tell_roots_changed(self, told: ClientNotification) -> None:
        """Tell the other server that the roots of a session have changed."""
        if told.session is not None:
            for pipe in self._pool.of_session(told.session):
                await pipe.opened()
                await pipe.client.notify(told.method)

    # -- what the other server says --------------------------------------------------------------

    async def _hear(self, pipe: Pipe) -> None:
        """Hear what is said on a connection outside of calls, where that may concern somebody, or tells of its end."""
        if pipe.session is None and pipe.client.scoped and pipe.use != PLAIN:
            await trio.sleep_forever()
        await self._hearing.listen(pipe, anew=self._upstream.program and self._mirror.is_old)

    async def _look(self, pipe: Pipe, lists: Iterable[ListName]) -> None:
        try:
            await self._mirror.look(pipe.client, lists)
        except (UpstreamError, Disconnected) as error:
            if not pipe.closing:
                _log.warning("lists of %s are left as they are: %s", self._upstream.name, told(error))
        self._watch.relisted()

    def _lost(self, pipe: Pipe) -> None:
        if pipe.use == PLAIN:
            self._watch.lost()
