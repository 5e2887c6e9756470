"""What keeps in touch with the other server: it knows what is offered there, and hears of changes, for as long as the proxy is open.

A process of an older revision that nobody uses is not kept for that: what it offers is looked at when it is started, and again with
each process that is started for a client. For as long as a client wants to hear of a resource, there is one.
"""

import logging
import math
from collections.abc import Callable, Collection, Hashable, Iterable
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final

import trio

from mcpbus.client.client import Client, ServerDescription
from mcpbus.client.errors import ClientError, Disconnected
from mcpbus.client.session_listens import tells
from mcpbus.core.nursery import background, cancel_at
from mcpbus.core.reached_limits import ReachedLimits
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.uris import UriSet
from mcpbus.upstream.errors import NotYetError, UpstreamError, told
from mcpbus.upstream.mirror import Mirror
from mcpbus.upstream.pipe import Pipe
from mcpbus.upstream.pool import Pool
from mcpbus.upstream.target import Upstream
from mcpbus.upstream.wishes import Wishes

_log = logging.getLogger("mcpbus")

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds before another attempt, after the other server was lost, or could not be reached; twice as many each time."""
_LASTING_SECONDS: Final = 60.0
"""Who was in touch with the other server for so long, has not merely seen it come and go."""
_HEARD_SECONDS: Final = 5.0
"""How long a subscription is not confirmed because changes are not heard of yet."""
_TOGETHER_SECONDS: Final = 0.05
"""How long is waited for more, before what a listen is for is changed."""
_CONFIRM_SECONDS: Final = 30.0
"""How long the other server may take to confirm a listen."""


class Watch:
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
    """

    def __init__(
        self,
        upstream: Upstream,
        pool: Pool,
        mirror: Mirror,
        *,
        knows: Callable[[str], bool],
        spelled: Callable[[str], str],
        learned: Callable[[ServerDescription], object],
        heard: Callable[[Pipe, str, dict[str, Any]], object],
        updated: Callable[[str], object],
    ) -> None:
        self._upstream = upstream
        self._pool = pool
        self._mirror = mirror
        self._spelled = spelled
        self._learned = learned
        self._heard = heard
        self._updated = updated
        self._reached = ReachedLimits()
        self._wishes = Wishes(knows)
        self._heard_of = UriSet()
        self._refused = UriSet()
        # What was heard of until the connection was lost, and is not again yet.
        self._missed = UriSet()
        # It tells nobody of changes of resources.
        self._mute = False
        self._stirred = trio.Event()
        self._news = trio.Event()

    def want(self, uri: str, owner: Hashable, wanted: bool) -> None:
        """Note that an owner wants to hear of a resource, or does no more."""
        if wanted:
            self._wishes.add(uri, owner)
        else:
            self._wishes.discard(uri, owner)
            if not self._wishes.wanted(uri):
                self._refused.discard(uri)
                self._missed.discard(uri)
        self._stirred.set()

    def relisted(self) -> None:
        """Note that the other server has listed what it has: it may be what clients wanted to hear of before."""
        self._wishes.look_again()
        self._stirred.set()

    @property
    def _wanted(self) -> AbstractSet[str]:
        """What changes are to be heard of."""
        return self._wishes.chosen - self._refused

    async def until_heard(self, uris: Collection[str]) -> None:
        """Wait until changes of these resources are heard of, as far as they are wanted; not longer than that is worth."""
        with trio.move_on_after(_HEARD_SECONDS):
            while not (self._mute or self._wishes.among(uris) <= self._heard_of | self._refused):
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
        for uri in missed & self._wanted:
            self._updated(uri)
        self._news.set()
        self._news = trio.Event()

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
        pause, begun, since = _FIRST_PAUSE, False, math.inf
        while True:
            try:
                async with self._pool.lend_plain(self._reached) as pipe:
                    await self._learn(pipe.client, turn)
                    if not begun:
                        task_status.started()
                    begun, since = True, trio.current_time()
                    await self._stay(pipe)
            except (UpstreamError, ClientError, ProtocolError) as error:
                waits = self._upstream.person_seconds > 0 and isinstance(error, NotYetError)
                if not begun:
                    self._begin_without(error, optional=optional, waits=waits)
                    task_status.started()
                if trio.current_time() - since >= _LASTING_SECONDS:
                    pause = _FIRST_PAUSE
                begun, since = True, math.inf
                if not waits:
                    name = self._upstream.name
                    _log.warning(
                        "%s cannot be reached; it is tried again in %g s: %s", name, pause, told(error)
                    )
                    await trio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                pause = _FIRST_PAUSE
                while not self._wanted:
                    await self._stir()

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
        self.relisted()

    async def _stir(self) -> None:
        """Wait until somebody wants to hear of something else."""
        await self._stirred.wait()
        self._stirred = trio.Event()

    async def _stay(self, pipe: Pipe) -> None:
        """Hear of changes for as long as the connection is there; or until nobody wants to, if it is a process that is not kept for that.

        Raises:
            Disconnected: It was lost.
        """
        for_clients = self._upstream.program and not pipe.modern
        if for_clients and not self._wanted:
            return
        try:
            async with background() as nursery:
                nursery.start_soon(cancel_at, pipe.ended, nursery.cancel_scope)
                await (self._listen(pipe) if pipe.modern else self._subscribe(pipe))
                nursery.cancel_scope.cancel()
        finally:
            self._missed |= self._heard_of
            self._tell(())
        if (pipe.closing and not pipe.was_left) or not for_clients:
            raise Disconnected("it was lost")

    async def _subscribe(self, pipe: Pipe) -> None:
        """Subscribe to what clients want to hear of; it is told as all else that belongs to no call."""
        offered = (await pipe.client.describe()).capabilities
        if not tells(offered, "resources", "subscribe"):
            self._tell((), mute=True)
            await trio.sleep_forever()
        while True:
            for uri in self._wanted - self._heard_of:
                await self._ask(pipe, "resources/subscribe", uri)
                self._tell({*self._heard_of, uri})
            for uri in self._heard_of - self._wanted:
                self._tell(self._heard_of - {uri})
                await self._ask(pipe, "resources/unsubscribe", uri)
            if self._upstream.program and not self._wanted:
                return
            if self._wanted == self._heard_of:
                await self._stir()

    async def _ask(self, pipe: Pipe, method: str, uri: str) -> None:
        why = f"no answer within {_HEARD_SECONDS:g} s"
        with trio.move_on_after(_HEARD_SECONDS):
            try:
                await pipe.client.request(method, {"uri": self._spelled(uri)})
            except ProtocolError as error:
                why = told(error)
            else:
                return
        _log.warning("%r: %s was refused by %s: %s", uri, method, self._upstream.name, why)

    async def _listen(self, pipe: Pipe) -> None:
        """Listen for what clients want to hear of.

        One that says that it tells of none is not asked, and one that refuses, be it for its lists alone, is asked no more.
        """
        try:
            if await _tells_of_some(pipe.client):
                await self._listen_on(pipe)
                return
        except ProtocolError as error:
            _log.warning("%s tells of no changes: %s", self._upstream.name, told(error))
        self._tell((), mute=True)
        await trio.sleep_forever()

    async def _listen_on(self, pipe: Pipe) -> None:
        """Have one listen follow another, which is there before that one ends, so that nothing is missed.

        Where resources are refused together, it is found out for which of them that is: what one client wants is not another's loss.
        """
        self._refused.clear()
        async with background() as nursery:
            last = await self._begin_listen(nursery, pipe, UriSet())
            tried: list[AbstractSet[str]] = []
            while True:
                while not tried and self._wanted == self._heard_of:
                    await self._stir()
                    await trio.sleep(_TOGETHER_SECONDS)
                more = self._wanted & (tried.pop() if tried else self._wanted - self._heard_of)
                try:
                    scope = await self._begin_listen(nursery, pipe, more | self._heard_of & self._wanted)
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
            _log.warning(
                "%r is not subscribed to: %s refused that: %s", uri, self._upstream.name, told(error)
            )
        self._refused |= more
        self._tell(self._heard_of)
        return []

    async def _begin_listen(
        self, nursery: trio.Nursery, pipe: Pipe, uris: AbstractSet[str]
    ) -> trio.CancelScope:
        """Begin one, and return what ends it.

        Raises:
            ProtocolError: It was refused.
            Disconnected: There is no answer.
        """
        with trio.move_on_after(_CONFIRM_SECONDS):
            scope: trio.CancelScope = await nursery.start(
                self._listen_to, pipe, [*uris], nursery.cancel_scope
            )
            return scope
        raise Disconnected(f"it did not confirm within {_CONFIRM_SECONDS:g} s that it tells of changes")

    async def _listen_to(
        self,
        pipe: Pipe,
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
