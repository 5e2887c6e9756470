"""The resources to which mcpbus subscribes over one connection, whichever revision that speaks."""

import logging
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final

import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import DisconnectedError
from mcpbus.client.notifications import tells
from mcpbus.core.concurrency import background
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.uris import UriSet
from mcpbus.upstream.connection import UpstreamConnection
from mcpbus.upstream.target import told

_log = logging.getLogger("mcpbus")

_HEARD_SECONDS: Final = 5.0
"""How long a subscription is not confirmed because changes are not heard of yet."""
_TOGETHER_SECONDS: Final = 0.05
"""How long is waited for more, before what a listen is for is changed."""
_CONFIRM_SECONDS: Final = 30.0
"""How long the other server may take to confirm a listen."""


class Subscriptions:
    """The subscriptions over one connection, and over those that follow it.

    Args:
        server: The name of the upstream server, for the log.
        wishes: Returns the resources to subscribe to.
        keeps: Whether they are waited for where there are none.
        heard: Takes a change that the upstream server reports.
        updated: Takes a resource that was updated, or may have been.
        spelled: Returns a URI as the upstream server lists it, which may know no other spelling.
    """

    def __init__(
        self,
        server: str,
        wishes: Callable[[], Collection[str]],
        *,
        keeps: Callable[[UpstreamConnection], bool],
        heard: Callable[[UpstreamConnection, str, dict[str, Any]], object],
        updated: Callable[[str], object],
        spelled: Callable[[str], str],
    ) -> None:
        self._server = server
        self._wishes = wishes
        self._keeps = keeps
        self._heard = heard
        self._updated = updated
        self._spelled = spelled
        self._heard_of = UriSet()
        self._refused = UriSet()
        # What was heard of until the connection was lost, and is not again yet.
        self._missed = UriSet()
        # It tells nobody of changes of resources.
        self._mute = False
        self._stirred = trio.Event()
        self._news = trio.Event()

    @property
    def wanted(self) -> AbstractSet[str]:
        """The resources whose changes are to be reported."""
        return UriSet(self._wishes()) - self._refused

    def changed(self) -> None:
        """Note that other resources are wanted."""
        self._stirred.set()

    def forget(self, uri: str) -> None:
        """Note that a resource is wanted no more."""
        self._refused.discard(uri)
        self._missed.discard(uri)

    async def until_heard(self, uris: Collection[str]) -> None:
        """Wait until changes of these resources are heard of, as far as they are wanted; not longer than that is worth."""
        with trio.move_on_after(_HEARD_SECONDS):
            while not (self._mute or UriSet(uris) & UriSet(self._wishes()) <= self._heard_of | self._refused):
                await self._news.wait()

    async def begun(self) -> None:
        """Wait until the first listen is confirmed, or it is known that there is none, but not for long."""
        with trio.move_on_after(_HEARD_SECONDS):
            await self._news.wait()

    def lost(self) -> None:
        """Note that what was subscribed to is forgotten there."""
        self._missed |= self._heard_of
        self._heard_of.clear()
        self._stirred.set()

    def _tell(self, heard_of: Iterable[str], *, mute: bool = False) -> None:
        """Tell who waits for it of which resources changes are heard; and clients that those may have changed meanwhile that were lost."""
        self._heard_of, self._mute = UriSet(heard_of), mute
        missed = self._missed & self._heard_of
        self._missed -= missed
        for uri in missed & self.wanted:
            self._updated(uri)
        self._news.set()
        self._news = trio.Event()

    async def stir(self) -> None:
        """Wait until somebody wants to hear of something else."""
        await self._stirred.wait()
        self._stirred = trio.Event()

    async def stay(self, pipe: UpstreamConnection) -> None:
        """Be subscribed until the connection is lost, or nothing is wanted where that is not waited for."""
        try:
            await (self._listen(pipe) if pipe.modern else self._subscribe(pipe))
        finally:
            self._missed |= self._heard_of
            self._tell(())

    async def _rest(self, pipe: UpstreamConnection) -> None:
        """Be there where the upstream server reports no changes of resources."""
        self._tell((), mute=True)
        while self._keeps(pipe) or self._wishes():
            await self.stir()

    async def _subscribe(self, pipe: UpstreamConnection) -> None:
        """Subscribe to what clients want to hear of; it is told as all else that belongs to no call."""
        offered = (await pipe.client.describe()).capabilities
        if not tells(offered, "resources", "subscribe"):
            await self._rest(pipe)
            return
        while True:
            for uri in self.wanted - self._heard_of:
                await self._ask(pipe, "resources/subscribe", uri)
                self._tell({*self._heard_of, uri})
            for uri in self._heard_of - self.wanted:
                self._tell(self._heard_of - {uri})
                await self._ask(pipe, "resources/unsubscribe", uri)
            if not self.wanted and not self._keeps(pipe):
                return
            if self.wanted == self._heard_of:
                await self.stir()

    async def _ask(self, pipe: UpstreamConnection, method: str, uri: str) -> None:
        why = f"no answer within {_HEARD_SECONDS:g} s"
        with trio.move_on_after(_HEARD_SECONDS):
            try:
                await pipe.client.request(method, {"uri": self._spelled(uri)})
            except ProtocolError as error:
                why = told(error)
            else:
                return
        _log.warning("%r: %s was refused by %s: %s", uri, method, self._server, why)

    async def _listen(self, pipe: UpstreamConnection) -> None:
        """Listen for what clients want to hear of.

        One that says that it tells of none is not asked, and one that refuses, be it for its lists alone, is asked no more.
        """
        try:
            if await _tells_of_some(pipe.client):
                await self._listen_on(pipe)
                return
        except ProtocolError as error:
            _log.warning("%s tells of no changes: %s", self._server, told(error))
        await self._rest(pipe)

    async def _listen_on(self, pipe: UpstreamConnection) -> None:
        """Have one listen follow another, which is there before that one ends, so that nothing is missed.

        Where resources are refused together, it is found out for which of them that is: what one client wants is not another's loss.
        """
        self._refused.clear()
        async with background() as nursery:
            last = await self._begin_listen(nursery, pipe, UriSet())
            tried: list[AbstractSet[str]] = []
            while True:
                while not tried and self.wanted == self._heard_of:
                    if not self.wanted and not self._keeps(pipe):
                        last.cancel()
                        return
                    await self.stir()
                    await trio.sleep(_TOGETHER_SECONDS)
                more = self.wanted & (tried.pop() if tried else self.wanted - self._heard_of)
                try:
                    scope = await self._begin_listen(nursery, pipe, more | self._heard_of & self.wanted)
                except ProtocolError as error:
                    if not more:
                        raise
                    tried += self._judge(more, error)
                else:
                    last.cancel()
                    last = scope

    def _judge(self, more: AbstractSet[str], error: ProtocolError) -> list[AbstractSet[str]]:
        """Return which parts of what was refused are to be tried by themselves; a single resource is not any more."""
        if len(more) > 1:
            half = UriSet(islice(more, len(more) // 2))
            return [half, more - half]
        for uri in more:
            _log.warning("%r is not subscribed to: %s refused that: %s", uri, self._server, told(error))
        self._refused |= more
        self._tell(self._heard_of)
        return []

    async def _begin_listen(
        self, nursery: trio.Nursery, pipe: UpstreamConnection, uris: AbstractSet[str]
    ) -> trio.CancelScope:
        """Begin one, and return what ends it.

        Raises:
            ProtocolError: It was refused.
            DisconnectedError: There is no answer.
        """
        with trio.move_on_after(_CONFIRM_SECONDS):
            scope: trio.CancelScope = await nursery.start(
                self._listen_to, pipe, [*uris], nursery.cancel_scope
            )
            return scope
        raise DisconnectedError(f"it did not confirm within {_CONFIRM_SECONDS:g} s that it tells of changes")

    async def _listen_to(
        self,
        pipe: UpstreamConnection,
        uris: list[str],
        whole: trio.CancelScope,
        task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        offered = (await pipe.client.describe()).capabilities
        with trio.CancelScope() as scope:
            async with pipe.client.listen(
                tools=tells(offered, "tools"),
                prompts=tells(offered, "prompts"),
                resources=tells(offered, "resources"),
                uris=[self._spelled(uri) for uri in uris] if "resources" in offered else (),
            ) as changes:
                self._tell(uris)
                task_status.started(scope)
                async for method, params in changes:
                    self._heard(pipe, method, params)
        if not scope.cancelled_caught:
            whole.cancel()  # it tells of changes no more


async def _tells_of_some(client: Client) -> bool:
    offered = (await client.describe()).capabilities
    lists = any(tells(offered, name) for name in ("tools", "prompts", "resources"))
    return lists or tells(offered, "resources", "subscribe")
