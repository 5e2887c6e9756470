"""What keeps in touch with the other server: it knows what is offered there, and hears of changes, for as long as the proxy is open.

A process of an older revision that nobody uses is not kept for that: what it offers is looked at when it is started, and again with
each process that is started for a client. For as long as a client wants to hear of a resource, there is one.
"""

import logging
from collections.abc import Callable, Collection, Hashable
from typing import Any

import trio

from mcpbus.client.client import Client, ServerDescription
from mcpbus.client.errors import ClientError, DisconnectedError
from mcpbus.core.nursery import background, cancel_at
from mcpbus.core.reached_limits import LimitMonitor
from mcpbus.protocol.errors import ProtocolError
from mcpbus.upstream.errors import NotYetError, UpstreamError, told
from mcpbus.upstream.mirror import FeatureMirror
from mcpbus.upstream.pauses import Pauses
from mcpbus.upstream.pipe import UpstreamConnection
from mcpbus.upstream.pool import UpstreamPool
from mcpbus.upstream.subscriptions import Subscriptions
from mcpbus.upstream.target import Upstream
from mcpbus.upstream.wishes import SubscriptionSelector

_log = logging.getLogger("mcpbus")


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
