"""One opened proxy: its connections to the other server, and what is known of that."""

import logging
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Final

import attrs
import trio

from mcpbus.client.client import ServerDescription
from mcpbus.client.errors import ClientError, DisconnectedError
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.concurrency import ActiveCounter, background
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.core.subscriber import Subscriber
from mcpbus.features.catalogue import FeatureSet
from mcpbus.features.elsewhere import Difference
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.uris import canonical_uri
from mcpbus.upstream.client_lists import KINDS_OF, WAIT_SECONDS, Inquiry
from mcpbus.upstream.client_subscriptions import ClientSubscriptions
from mcpbus.upstream.connection import PLAIN, ConnectionKey, UpstreamConnection
from mcpbus.upstream.connection_pool import Isolation, PoolState, Requester, UpstreamPool
from mcpbus.upstream.feature_mirror import LOOK_SECONDS, FeatureMirror
from mcpbus.upstream.monitor import UpstreamMonitor
from mcpbus.upstream.notification_relay import NotificationRelay
from mcpbus.upstream.pauses import Pauses
from mcpbus.upstream.relay import CallRelay
from mcpbus.upstream.subscriptions import Subscriptions
from mcpbus.upstream.target import Upstream, UpstreamError, told
from mcpbus.upstream.tool_filter import ToolFilter

_log = logging.getLogger("mcpbus")

_MOST_INQUIRIES: Final = 1_000
"""The number of lists and clients for which it is kept how fresh they are."""
START_SECONDS: Final = ContextVar("START_SECONDS", default=1.5)
"""Seconds that the start waits for optional upstream servers, all together. Their features appear later with ``list_changed``.

A command that lists or calls once, and then ends, waits longer."""


@attrs.frozen
class ProxyOptions:
    """How a proxy passes calls on.

    Attributes:
        connections: How many connections there may be at once.
        timeout: Seconds after which a call fails; None for no limit.
        scopes: What a token has to allow for all that it offers.
        optional: Whether it begins although the other server cannot be reached.
        isolation: The owner of each connection.
        tools: The tools that it offers.
    """

    connections: int
    timeout: float | None
    scopes: tuple[str, ...]
    optional: bool
    isolation: Isolation = "client"
    tools: ToolFilter = attrs.field(factory=ToolFilter)


@attrs.frozen
class Clients:
    """The clients of an opened proxy, on all buses that reach them.

    Attributes:
        updated: Tells all of them that a resource was updated.
        updated_for: Tells one of them, by its `Subscriber.key`.
        changed_for: Tells one, by its `RequestContext.state_key`, that a list has changed; and its sessions, if they share that list.
    """

    updated: Callable[[str], object]
    updated_for: Callable[[Hashable, str], object]
    changed_for: Callable[[Hashable, ListName, bool], object]


class ProxyRuntime:
    """One opened proxy.

    Args:
        upstream: The other server.
        features: What the proxy offers.
        terms: How it passes calls on.
        learned: Told what the other server says of itself.
        clients: The clients of the proxy, which it tells of changes.

    Attributes:
        calls: The requests that are passed on now.
    """

    def __init__(
        self,
        upstream: Upstream,
        features: FeatureSet,
        terms: ProxyOptions,
        *,
        learned: Callable[[ServerDescription], object],
        clients: Clients,
    ) -> None:
        self._clients = clients
        self._terms = terms
        self._turn = trio.Event()
        self._begun = trio.Event()
        self._failure: UpstreamError | None = None
        self._waits_until = trio.current_time() + START_SECONDS.get() if terms.optional else math.inf
        self._features = features
        self._upstream = upstream
        self._sorted: list[str] = []
        self._sorted_of = 0
        self._reached = LimitMonitor()
        self._nursery: trio.Nursery | None = None
        self._started = 0.0
        self._inquiries: dict[tuple[ConnectionKey, ListName], Inquiry] = {}
        # Which subscriptions of which clients go over connections of their own, and how many of an owner do not.
        self._subscribed: dict[tuple[Hashable, str], bool] = {}
        self._client_subscriptions: dict[Hashable, ClientSubscriptions] = {}
        self._owners: dict[str, Counter[Hashable]] = {}
        self._hearing = NotificationRelay(self._look, self._announced, self._told_updated, self._lost)
        self._pool = UpstreamPool(upstream, terms.connections, self._hear, terms.isolation)
        self.calls = ActiveCounter()
        self._relay = CallRelay(upstream.name, self._pool, self._hearing, terms.tools, self.calls)
        self._mirror = FeatureMirror(
            upstream.name, features, self._relay, terms.scopes, terms.timeout, tools=terms.tools
        )
        self._watch = UpstreamMonitor(
            upstream,
            self._pool,
            self._mirror,
            knows=self._knows,
            spelled=self._spelled,
            learned=learned,
            heard=self._hearing.hear,
            updated=clients.updated,
            relisted=self._relisted,
        )

    def state(self) -> PoolState:
        """Return the state of its connections."""
        return self._pool.state()

    async def run(self) -> None:
        """Be connected until cancelled; `begun` tells how that begins."""
        if self._terms.optional:
            self._mirror.declare_all()
        try:
            async with background() as nursery:
                self._nursery, self._started = nursery, trio.current_time()
                nursery.start_soon(self._pool.run)
                nursery.start_soon(self._hearing.run)
                for key, subscriptions in self._client_subscriptions.items():  # from before
                    nursery.start_soon(self._run_subscriptions, key, subscriptions)
                try:
                    await nursery.start(partial(self._watch.run, self._turn, optional=self._terms.optional))
                except UpstreamError as error:
                    self._failure = error
                self._begun.set()
                await trio.sleep_forever()
        finally:
            self._nursery = None
            self._mirror.clear()

    async def begun(self) -> None:
        """Wait until it is known what the other server offers, or that this cannot be known now. That is offered when somebody waits.

        An optional server that is slow holds nothing up: after a second and a half it is left out until it is there.

        Raises:
            UpstreamError: The other server cannot be reached, and is not optional.
        """
        self._turn.set()
        with trio.move_on_at(self._waits_until) as patience:
            await self._begun.wait()
        if patience.cancelled_caught:
            _log.warning(
                "%s does not answer yet; what it offers is added once it is there", self._upstream.name
            )
        if self._failure is not None:
            raise self._failure

    # -- what clients do -------------------------------------------------------------------------

    def want(self, uri: str, subscriber: Subscriber, wanted: bool) -> None:
        """Note that a client has subscribed to a resource, or does no more: over its own connection, if it has one."""
        at = subscriber.key, uri
        if not wanted:
            is_own = self._subscribed.pop(at, False)
        else:
            is_own = self._subscribed[at] = self._pool.use_of(self._requester(subscriber)) is not None
        if is_own:
            self._own_subscriptions(subscriber).want(uri, wanted)
            return
        owners = self._owners.setdefault(uri, Counter())
        owners[subscriber.owner] += 1 if wanted else -1
        if owners[subscriber.owner] == (1 if wanted else 0):
            self._watch.want(uri, subscriber.owner, wanted)
        if not any(owners.values()):
            del self._owners[uri]

    def _requester(self, subscriber: Subscriber) -> Requester:
        assert isinstance(subscriber.client, Session | RequestContext)  # noqa: S101 - there are no others
        return Requester.of(subscriber.client, self._reached)

    def _own_subscriptions(self, subscriber: Subscriber) -> ClientSubscriptions:
        found = self._client_subscriptions.get(subscriber.key)
        if found is None:
            requester = self._requester(subscriber)
            found = self._client_subscriptions[subscriber.key] = ClientSubscriptions(
                self._upstream.name,
                self._pool,
                requester,
                partial(self._knows_for, requester),
                self._hearing.hear,
                partial(self._clients.updated_for, subscriber.key),
                self._spelled,
            )
            if self._nursery is not None:
                self._nursery.start_soon(self._run_subscriptions, subscriber.key, found)
        return found

    async def _run_subscriptions(self, key: Hashable, subscriptions: ClientSubscriptions) -> None:
        try:
            await subscriptions.run()
        finally:
            del self._client_subscriptions[key]

    async def until_heard(self, uris: Collection[str], key: Hashable) -> None:
        """Wait until changes of these are heard of, as far as they are the other server's.

        Args:
            uris: The resources.
            key: The `Subscriber.key` of the client that waits.
        """
        own = self._client_subscriptions.get(key)
        if own is not None:
            await own.until_heard(uris)
        await self._watch.until_heard(uris)

    def _knows_for(self, requester: Requester, uri: str) -> bool:
        """Whether the other server may have this resource, be it for one client alone."""
        use = self._pool.use_of(requester)
        pipe = None if use is None else self._pool.opened(use)
        alone = pipe is not None and pipe.lists is not None and uri in pipe.lists.difference.new["resources"]
        return alone or self._knows(uri)

    def _knows(self, uri: str) -> bool:
        """Whether the other server may have this resource, or some that lie below it: it is told of no others."""
        if self._features.lists_resource(uri):
            return True
        above = canonical_uri(uri)
        place = bisect_left(uris := self._sorted_uris(), above)
        return place < len(uris) and uris[place].startswith(above)

    def _spelled(self, uri: str) -> str:
        """Return a URI as the other server lists it, or as it is given if it is in no list."""
        listed = self._features.resources.get(uri)
        return uri if listed is None else listed.uri

    def _sorted_uris(self) -> list[str]:
        resources = self._features.resources
        if self._sorted_of != resources.version:
            self._sorted = sorted(resources.place(entry.key) for entry in resources.entries())
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

    # -- what the lists do not show ---------------------------------------------------------------

    @property
    def unlisted(self) -> FeatureMirror:
        """What makes features of names that are in no list."""
        return self._mirror

    async def refresh(self, client: RequestContext, name: ListName, budget: MemoryBudget) -> None:
        """Ask for a list for a client: over its own connection, if it has one. What it alone sees counts in the memory budget.

        It waits for no longer than `WAIT_SECONDS`, and not at all for a server that is late with another list. For a server that was never
        there it waits for no longer than that after the start.
        """
        if self._nursery is None:
            return
        requester = Requester.of(client, self._reached)
        use = self._pool.use_of(requester)
        key = PLAIN if use is None else use
        inquiry = self._inquiries.get((key, name))
        if inquiry is None:
            self._forget_inquiries()
            ask = (
                partial(self._ask_shared, name)
                if use is None
                else partial(self._ask_own, requester, name, budget)
            )
            tell_late = partial(self._tell_late, key, name)
            inquiry = Inquiry(ask, tell_late, lambda: self._relay.passed_on)
            self._inquiries[key, name] = inquiry
        late = any(each.late for kind in KINDS_OF if (each := self._inquiries.get((key, kind))) is not None)
        if late:
            seconds = 0.0
        elif self._watch.knows_server:
            seconds = WAIT_SECONDS
        else:
            seconds = self._started + WAIT_SECONDS - trio.current_time()
        await inquiry.fresh(self._nursery, seconds)

    def difference(self, client: RequestContext) -> Difference | None:
        """Return what a client sees otherwise than all do, over a connection of its own."""
        use = self._pool.use_of(Requester.of(client, self._reached))
        pipe = None if use is None else self._pool.opened(use)
        return None if pipe is None or pipe.lists is None else pipe.lists.difference

    def _forget_inquiries(self) -> None:
        if len(self._inquiries) >= _MOST_INQUIRIES:
            self._inquiries = {key: each for key, each in self._inquiries.items() if not each.idle}

    async def _ask_shared(self, name: ListName) -> float:
        pipe, began = self._pool.opened_shared(), trio.current_time()
        if pipe is not None:
            await self._look(pipe, [name])
        return trio.current_time() - began

    async def _ask_own(self, requester: Requester, name: ListName, budget: MemoryBudget) -> float:
        began = trio.current_time()
        try:
            async with self._pool.borrow(requester) as pipe:
                began = trio.current_time()
                if pipe.use.owned:
                    await self._list_own(pipe, name, budget)
        except (UpstreamError, ClientError, ProtocolError, trio.TooSlowError) as error:
            _log.warning(
                "%s of %s cannot be listed for one client: %s", name, self._upstream.name, told(error)
            )
        return trio.current_time() - began

    async def _list_own(self, pipe: UpstreamConnection, name: ListName, budget: MemoryBudget) -> None:
        pipe.count_in(budget)
        has = (await pipe.client.describe()).capabilities
        with trio.fail_after(LOOK_SECONDS):
            lists = (
                await self._mirror.list_there(pipe.client, name)
                if name in has
                else [()] * len(KINDS_OF[name])
            )
        await pipe.take_list(name, lists, self._mirror.lists, budget)
        self._relisted()

    def _tell_late(self, use: ConnectionKey, name: ListName) -> None:
        """Have a client ask again that did not wait for its list."""
        pipe = self._pool.opened(use)
        if pipe is not None and pipe.lists is not None and pipe.lists.difference:
            self._changed(pipe, [name])

    # -- what the other server says --------------------------------------------------------------

    async def _hear(self, pipe: UpstreamConnection, ready: Callable[[], None]) -> None:
        """Hear the messages of no call on a connection until its end. `ready` is called before the first call goes over it."""
        if not (pipe.modern and pipe.use.lasts):
            ready()
            await self._hearing.listen(pipe)
            return
        async with background() as nursery:
            # A server of 2026-07-28 reports changes of a client's lists to a listen alone.
            own = Subscriptions(
                self._upstream.name,
                lambda: (),
                keeps=lambda _: True,
                heard=self._hearing.hear,
                updated=lambda _: None,
                spelled=self._spelled,
            )
            nursery.start_soon(self._hear_lists, pipe, own)
            await own.begun()
            ready()
            await self._hearing.listen(pipe)
            nursery.cancel_scope.cancel()

    async def _hear_lists(self, pipe: UpstreamConnection, own: Subscriptions) -> None:
        """Listen for changes of the lists of a client; again, if the server ends the listen."""
        pauses = Pauses()
        async with trio.open_nursery() as nursery:
            while not pipe.closing:
                pauses.began()
                with suppress(ClientError):
                    await own.stay(pipe)
                await trio.sleep(pauses.next())
                nursery.start_soon(self._tell_missed, pipe, own)

    async def _tell_missed(self, pipe: UpstreamConnection, own: Subscriptions) -> None:
        """Tell a client that its lists may have changed while no listen was there."""
        await own.begun()
        self._changed(pipe, KINDS_OF)

    async def _look(self, pipe: UpstreamConnection, lists: Iterable[ListName]) -> None:
        """Look at the shared lists, over a connection that no client owns."""
        try:
            await self._mirror.look(pipe.client, lists)
        except (UpstreamError, DisconnectedError) as error:
            if not pipe.closing:
                _log.warning("lists of %s are left as they are: %s", self._upstream.name, told(error))
        self._watch.lists_refreshed()

    def _relisted(self) -> None:
        """Have clients' own subscriptions look again at what the upstream server has."""
        for own in self._client_subscriptions.values():
            own.changed()

    def _announced(self, pipe: UpstreamConnection, lists: Iterable[ListName]) -> None:
        """Take that the upstream server announces changes of a client's lists: the client asks for them, and gets the new ones."""
        names = list(lists)
        for name in names:
            inquiry = self._inquiries.get((pipe.use, name))
            if inquiry is not None:
                inquiry.announced()
        self._changed(pipe, names)

    def _changed(self, pipe: UpstreamConnection, lists: Iterable[ListName]) -> None:
        """Tell the client that owns a connection that its lists have changed; it asks for them if it wants to know."""
        for name in lists:
            if pipe.session is not None:
                pipe.session.list_changed(name)
            else:
                # Legacy sessions share it at a server of 2026-07-28. At any other, they have connections of their own.
                self._clients.changed_for(pipe.use.who, name, pipe.modern)

    def _told_updated(self, pipe: UpstreamConnection, uri: str) -> None:
        """Notify the clients of an owned connection of an update, or the clients that subscribe over the shared one."""
        uses = {
            key: self._pool.use_of(subscriptions.requester)
            for key, subscriptions in self._client_subscriptions.items()
        }
        if pipe.use.owned:
            for key in [key for key, use in uses.items() if use == pipe.use] or [pipe.use.who]:
                self._clients.updated_for(key, uri)
            return
        own = {key for key, use in uses.items() if use is not None and use.owned}
        if not own:
            self._clients.updated(uri)
            return
        # A client with its own connection is notified over that one.
        for key in {key for key, _ in self._subscribed} - own:
            self._clients.updated_for(key, uri)

    def _lost(self, pipe: UpstreamConnection) -> None:
        if pipe.use == PLAIN:
            self._watch.lost()
        for own in self._client_subscriptions.values():
            if self._pool.use_of(own.requester) == pipe.use:
                own.lost()
