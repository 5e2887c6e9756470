"""Keeps in touch with an upstream server: knows what it offers, and subscribes to the resources that clients want to know of.

A program of an older revision does not run for that alone: its offers are read when it starts, and again with each process for a client.
While a client wants to know of a resource, one process runs.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Final

import trio

from mcpbus.client.client import Client, ServerDescription
from mcpbus.client.errors import ClientError, DisconnectedError
from mcpbus.core.concurrency import background, cancel_at
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.shares import NoRoomError, Shares
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.uris import UriSet
from mcpbus.upstream.connection import UpstreamConnection
from mcpbus.upstream.connection_pool import UpstreamPool
from mcpbus.upstream.feature_mirror import FeatureMirror
from mcpbus.upstream.pauses import Pauses
from mcpbus.upstream.subscriptions import Subscriptions
from mcpbus.upstream.target import NotYetError, Upstream, UpstreamError, told

_log = logging.getLogger("mcpbus")

MOST_URIS: Final = 1_000
"""Resources of one upstream server to which mcpbus subscribes at once. Owners share them, see `Shares`."""


class SubscriptionSelector:
    """The wishes of all clients of one opened proxy.

    Each subscription is counted to one of the owners that want it. At the bound, an owner with fewer of them takes the place of one of
    the owner that has most.

    Args:
        knows: Tells whether the upstream server may have a resource, as far as it is known now.

    Attributes:
        chosen: The resources to subscribe to.
    """

    def __init__(self, knows: Callable[[str], bool]) -> None:
        self._knows = knows
        self.chosen = UriSet()
        self._shares: Shares[str] = Shares(MOST_URIS)
        # The owners that want a resource, the one first to which its subscription is counted.
        self._owners: dict[str, OrderedDict[Hashable, None]] = {}
        # Resources beyond the bound, by owner. Owners take turns.
        self._beyond: OrderedDict[Hashable, dict[str, None]] = OrderedDict()
        # Resources that the upstream server does not have, or not yet.
        self._unknown: dict[str, None] = {}

    def wanted(self, uri: str) -> bool:
        """Tell whether any owner wants to hear of a resource."""
        return uri in self._owners

    def add(self, uri: str, owner: Hashable) -> None:
        """Note that an owner wants to hear of a resource."""
        self._owners.setdefault(uri, OrderedDict())[owner] = None
        if uri not in self.chosen:
            self._consider(uri)

    def discard(self, uri: str, owner: Hashable) -> None:
        """Note that an owner wants to hear of a resource no more. Another one takes its place."""
        owners = self._owners.get(uri, OrderedDict())
        if owner not in owners:
            return
        counted = uri in self.chosen and next(iter(owners)) == owner
        del owners[owner]
        self._leave_line(uri, owner)
        if counted:
            self._shares.leave(uri)
            self.chosen.discard(uri)
        if not owners:
            del self._owners[uri]
            self._unknown.pop(uri, None)
        elif counted:
            self._consider(uri)
        while self._beyond and len(self.chosen) < MOST_URIS:
            owner, uris = self._beyond.popitem(last=False)
            self._beyond[owner] = uris
            self._choose(next(iter(uris)), owner)

    def look_again(self) -> None:
        """Choose among what the upstream server had not, now that it may have something else."""
        unknown, self._unknown = self._unknown, {}
        for uri in unknown:
            self._consider(uri)

    def selected(self, uris: Iterable[str]) -> UriSet:
        """Return which of these are subscribed to, or about to be."""
        return UriSet(uri for uri in uris if uri in self.chosen)

    def _consider(self, uri: str) -> None:
        """Subscribe to a resource that is known, on the account of the first owner that has a place for it."""
        if not self._knows(uri):
            self._unknown[uri] = None
            return
        for owner in [*self._owners[uri]]:
            try:
                displaced = self._shares.make_room(owner, of_its_own=False)
            except NoRoomError:
                if not self._beyond:
                    _log.warning("%r is not subscribed to: %s other resources are", uri, MOST_URIS)
                self._beyond.setdefault(owner, {})[uri] = None
                continue
            if displaced is not None:
                self.chosen.discard(displaced)
                for other in self._owners[displaced]:
                    self._beyond.setdefault(other, {})[displaced] = None
            self._choose(uri, owner)
            return

    def _choose(self, uri: str, owner: Hashable) -> None:
        self._shares.enter(owner, uri)
        self.chosen.add(uri)
        owners = self._owners[uri]
        owners.move_to_end(owner, last=False)
        for each in owners:
            self._leave_line(uri, each)

    def _leave_line(self, uri: str, owner: Hashable) -> None:
        uris = self._beyond.get(owner)
        if uris is not None:
            uris.pop(uri, None)
            if not uris:
                del self._beyond[owner]


class UpstreamMonitor:
    """Keeps in touch with the other server of one opened proxy.

    Args:
        upstream: The other server.
        pool: The connections to it.
        mirror: What it offers.
        knows: Tells whether it may have a resource, as far as its lists are known.
        spelled: Returns a URI as the other server lists it, which may know no other spelling.
        learned: Told what it says of itself, each time.
        heard: Hears of a change that it tells of.
        updated: Tells clients that a resource was updated, or may have been.
        lists_refreshed: Called once the upstream server has listed what it has.

    Attributes:
        knows_server: Whether the upstream server has ever listed what it has.
    """

    def __init__(
        self,
        upstream: Upstream,
        pool: UpstreamPool,
        mirror: FeatureMirror,
        *,
        knows: Callable[[str], bool],
        spelled: Callable[[str], str],
        learned: Callable[[ServerDescription], object],
        heard: Callable[[UpstreamConnection, str, dict[str, Any]], object],
        updated: Callable[[str], object],
        relisted: Callable[[], object],
    ) -> None:
        self._upstream = upstream
        self._pool = pool
        self._mirror = mirror
        self._learned = learned
        self._on_relisted = relisted
        self.knows_server = False
        self._reached = LimitMonitor()
        self._wishes = SubscriptionSelector(knows)
        self._subscriptions = Subscriptions(
            upstream.name,
            lambda: self._wishes.chosen,
            keeps=lambda pipe: pipe.modern or not upstream.program,
            heard=heard,
            updated=updated,
            spelled=spelled,
        )

    def want(self, uri: str, owner: Hashable, wanted: bool) -> None:
        """Note that an owner wants to hear of a resource, or does no more."""
        if wanted:
            self._wishes.add(uri, owner)
        else:
            self._wishes.discard(uri, owner)
            if not self._wishes.wanted(uri):
                self._subscriptions.forget(uri)
        self._subscriptions.changed()

    def lists_refreshed(self) -> None:
        """Note that the other server has listed what it has: it may be what clients wanted to hear of before."""
        self._wishes.look_again()
        self._subscriptions.changed()
        self._on_relisted()

    async def until_heard(self, uris: Collection[str]) -> None:
        """Wait until changes of these resources are heard of, as far as they are wanted; not longer than that is worth."""
        await self._subscriptions.until_heard(uris)

    def lost(self) -> None:
        """Note that what was subscribed to is forgotten there."""
        self._subscriptions.lost()

    async def run(
        self,
        turn: trio.Event,
        *,
        optional: bool,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep in touch until cancelled.

        Args:
            turn: Set once what is there may be offered: of several servers, the first one has what several have.
            optional: Whether it begins although the other server cannot be reached.
            task_status: Told once it is known what is offered there, or that this cannot be known now.

        Raises:
            UpstreamError: The other server cannot be reached at the beginning, and is not optional. Where somebody may have to log in it is
                begun without it after half a minute.
        """
        pauses, begun = Pauses(), False
        while True:
            try:
                async with self._pool.borrow_shared(self._reached) as pipe:
                    await self._learn(pipe.client, turn)
                    if not begun:
                        task_status.started()
                    begun = True
                    pauses.began()
                    await self._stay(pipe)
            except (UpstreamError, ClientError, ProtocolError) as error:
                waits = self._upstream.person_seconds > 0 and isinstance(error, NotYetError)
                if not begun:
                    self._begin_without(error, optional=optional, waits=waits)
                    task_status.started()
                begun = True
                if not waits:
                    name, pause = self._upstream.name, pauses.next()
                    _log.warning(
                        "%s cannot be reached; it is tried again in %g s: %s", name, pause, told(error)
                    )
                    await trio.sleep(pause)
            else:
                pauses = Pauses()
                while not self._subscriptions.wanted:
                    await self._subscriptions.stir()

    def _begin_without(self, error: Exception, *, optional: bool, waits: bool) -> None:
        """Refuse to begin without the other server, unless it is optional, or somebody has yet to log in there.

        Raises:
            UpstreamError: It cannot be reached.
        """
        name = self._upstream.name
        if waits:
            # Who has started this does not wait for as long as a person takes.
            self._mirror.declare_all()
            _log.warning("%s is waited for, and what it offers is told once it is there", name)
        elif not optional:
            raise UpstreamError(f"{name} cannot be reached: {error}") from None

    async def _learn(self, client: Client, turn: trio.Event) -> None:
        description = await client.describe()
        self._mirror.declare(description.capabilities)
        self._learned(description)
        await self._mirror.look(client, turn=turn)
        self.knows_server = True
        self.lists_refreshed()

    async def _stay(self, pipe: UpstreamConnection) -> None:
        """Hear of changes for as long as the connection is there; or until nobody wants to, if it is a process that is not kept for that.

        Raises:
            DisconnectedError: It was lost.
        """
        for_clients = self._upstream.program and not pipe.modern
        if for_clients and not self._subscriptions.wanted:
            return
        async with background() as nursery:
            nursery.start_soon(cancel_at, pipe.ended, nursery.cancel_scope)
            await self._subscriptions.stay(pipe)
            nursery.cancel_scope.cancel()
        if (pipe.closing and not pipe.was_left) or not for_clients:
            raise DisconnectedError("it was lost")
