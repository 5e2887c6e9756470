"""A process among those that serve as one: its links to the others, what it serves for them, and what it tells them.

The rounds of calls, each used in one process alone.
"""

import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from time import perf_counter
from typing import Any, Final, get_args

import trio
from mcpbus_actors import EagerTask

from mcpbus.cluster.background_tasks import BackgroundTasks
from mcpbus.cluster.change_fates import ChangeFates, RemoteChangeFates
from mcpbus.cluster.directory import Cluster, ClusterDirectory, JoinError, StoredSession
from mcpbus.cluster.forwarded_heads import ForwardedHeads
from mcpbus.cluster.link import Link
from mcpbus.cluster.link_pool import LinkPool
from mcpbus.cluster.messages import Changed, FrameKind, decode_changed, decode_open, encode
from mcpbus.cluster.remote_request import ClusterServedEndpoint, RemoteRequest
from mcpbus.cluster.session_records import Records
from mcpbus.cluster.session_sender import ClusterSessions
from mcpbus.cluster.signed_ids import SignedIds
from mcpbus.cluster.takeover import SessionHandoffs, SessionTakeover
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.concurrency import background
from mcpbus.core.hub import Hub
from mcpbus.core.lease import Lease
from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.core.outbound import ChangeEvent
from mcpbus.core.receipt import Broadcast
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.request_state import RoundState, StateSealer
from mcpbus.transports.refusal_log import sanitize_for_log


class DirectoryRounds:
    """Uses rounds up in the directory; see `mcpbus.core.sessions.remote.RoundRegistry`.

    Args:
        directory: Knows which were used.
        records: How it is asked.
        sealer: Tells the time as states have it.
        chores: Where it is written what nobody waits for.
    """

    def __init__(
        self, directory: ClusterDirectory, records: Records, sealer: StateSealer, chores: BackgroundTasks
    ) -> None:
        self._directory = directory
        self._records = records
        self._sealer = sealer
        self._chores = chores

    async def use(self, state: RoundState) -> bool:
        """See `RoundRegistry`."""
        user = secrets.token_urlsafe(8)
        with self._records.asking():
            return await self._directory.claim_round(
                state.round.hex(), user, max(1.0, state.expires - self._sealer.now())
            )

    def note(self, state: RoundState) -> None:
        """See `RoundRegistry`."""
        self._chores.start_soon(self._note, state)

    async def _note(self, state: RoundState) -> None:
        with suppress(ServerOverloaded):  # the log has it
            await self.use(state)


_log = logging.getLogger("mcpbus")

LOOK_SECONDS: Final = 1.0
"""How often it is looked whether there are others."""
_LISTS: Final[Mapping[str, ListName]] = {name: name for name in get_args(ListName)}


class Node:
    """A process among those that serve as one. Made by `open_node`.

    Args:
        cluster: What makes it one of them.
        nursery: Where its links run.

    Attributes:
        home: The process.
        names: Makes the names of its sessions, calls and tasks.
        records: Its sessions, as they are kept.
        adoptions: The sessions of processes that have ended, which it takes over.
        hand_over: Its own, once it ends itself.
        remote_sessions: Those of the others, to which this one may say something.
        heads: Writes and reads what is forwarded.
        links: Its links to the others.
    """

    adoptions: SessionTakeover
    hand_over: SessionHandoffs
    remote_sessions: ClusterSessions

    def __init__(self, cluster: Cluster, nursery: trio.Nursery) -> None:
        self.home = cluster.home
        self.names = SignedIds(cluster.home, cluster.keys)
        self._chores = BackgroundTasks(nursery)
        self.records = Records(cluster.directory, cluster.home, self._chores)
        self._cluster = cluster
        self._nursery = nursery
        self._bus: Hub | None = None
        self._endpoints: list[ClusterServedEndpoint] = []
        self.heads = ForwardedHeads(self._endpoints)
        self._context = copy_context()
        self._complaints = RateLimitedLogger(_log)
        self.links = LinkPool(cluster, nursery, self, self._complaints)
        self._told_changes = ChangeFates(self)
        self._homes: frozenset[str] = frozenset()
        self._serves = False
        self._work: trio.Nursery | None = None  # what runs for the others
        self._abandoned = trio.Event()

    async def join(self, bus: Hub) -> None:
        """Serve a bus together with the others; returns when it is linked to all that are there.

        Raises:
            JoinError: The others cannot be found.
        """
        self._bus = bus
        bus.new_name = self.names.new
        bus.tell_elsewhere = self._tell_elsewhere
        directory = self._cluster.directory
        bus.session_directory.records = self.records
        bus.rounds = DirectoryRounds(directory, self.records, bus.parked_calls.sealer, self._chores)
        self.adoptions = SessionTakeover(directory, self.records, self.home, bus)
        self.hand_over = bus.session_directory.successors = SessionHandoffs(self.records, bus, self._chores)
        self.remote_sessions = bus.remote_sessions = ClusterSessions(
            self, self.names, bus, self.records, self._cluster.patience
        )
        bus.say_in_order = self.remote_sessions.say_in_order
        self.records.pass_on = self.remote_sessions.pass_on
        bus.abort_remote_requests = self.abandon
        bus.lease = Lease()
        await self._nursery.start(self._open_work)
        await self._nursery.start(partial(directory.listen, self.home, self.links.accept, bus.lease))
        try:
            await self._look()
        except OSError as error:
            raise JoinError(str(error)) from error
        self._serves = True
        self._nursery.start_soon(self._keep_looking)

    def enter(self, endpoint: ClusterServedEndpoint) -> int:
        """Enter an endpoint, and return the number by which the others know it; they all make the same ones in the same order."""
        self._endpoints.append(endpoint)
        return len(self._endpoints) - 1

    async def abandon(self) -> None:
        """End what runs for the others, as cancelled, and take nothing more; returns when it has ended."""
        self.links.closed = True
        if self._work is not None:
            self._work.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await self._abandoned.wait()

    async def _open_work(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            async with trio.open_nursery() as self._work:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._work = None
            self._abandoned.set()

    # -- links -----------------------------------------------------------------------------------

    def link(self, home: str) -> Link | None:
        """Return the link to a process, if there is one now."""
        return self.links.find(home)

    async def reach(self, home: str) -> Link | None:
        """Return a link to a process; see `LinkPool.reach`."""
        return await self.links.reach(home)

    def on_linked(self, link: Link) -> None:
        """See `mcpbus.cluster.link_pool.LinkedService`."""
        self._homes |= {link.home}
        if self._serves and link.home != self.home:
            link.send(FrameKind.SERVING, 0)

    def on_link_lost(self, link: Link) -> None:
        """See `mcpbus.cluster.link_pool.LinkedService`."""
        if link.home != self.home and self.link(link.home) is not None:
            self._tell_all_here()  # what the other end has said may have been lost with this one

    async def _keep_looking(self) -> None:
        while True:
            await trio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except OSError as error:
                self._complaints.warn("it cannot be seen which other processes serve: %s", error)

    async def _look(self) -> None:
        """Link to those that are there; what changes is told to them, whoever dialled."""
        directory = self._cluster.directory
        homes = self._homes = frozenset(await directory.homes())
        if self._bus is not None:
            lease, seconds = self._bus.lease, self._bus.limits.idle_timeout
            # Who was not heard of for so long may have been taken for ended.
            lapsed = lease is not None and not lease.is_valid
            for name in await directory.maintain(self.records.ownerships, seconds):
                if name in self._bus.sessions:
                    self.records.note(self._bus.sessions[name])
            if lapsed:
                self._bus.tasks.review()
        async with trio.open_nursery() as nursery:
            for home in homes:
                if home != self.home and self.link(home) is None:
                    nursery.start_soon(self._try_to_reach, home)

    async def _try_to_reach(self, home: str) -> None:
        with suppress(ServerOverloaded):  # the log has it
            await self.reach(home)

    # -- sessions of processes that have ended ---------------------------------------------------

    async def look(self, session: str) -> StoredSession | None:
        """Return what is kept of a session; None if there is no such session, or it has just ended here.

        Raises:
            ServerOverloaded: The directory does not answer.
        """
        with self.records.asking():
            kept = await self._cluster.directory.get(session)
        return None if self.records.is_leaving(session) else kept

    # -- requests of others ----------------------------------------------------------------------

    def opened(self, link: Link, channel: int, payload: bytes) -> EagerTask | None:
        """See `mcpbus.cluster.link.LinkHandler`."""
        asked = decode_open(payload)
        known = self.heads.read(asked.head)
        peer, pace = Peer.at(asked.peer), known.pace
        request = RemoteRequest(
            self, known.endpoint, link, channel, asked.body, pace, known.head, peer, link.scope
        )
        link.enter(channel, request)
        if known.endpoint.is_here(known.head):
            if pace.slow:
                link.write_now()  # answers that are there do not wait for it
            begun = perf_counter()
            # What one request sets among the context variables, such as a principal, is not for the next one.
            eager = self._context.copy().run(request.respond, cleared=known.cleared)
            pace.took(perf_counter() - begun)
            return eager
        self.start(request.serve)
        return None

    def start(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task until the process ends, unless it has."""
        if self._work is not None:
            self._work.start_soon(function, *args)

    def report(self, head: RequestHead, failure: BaseException) -> None:
        """Tell that the application failed."""
        verb, path = sanitize_for_log(head.verb), sanitize_for_log(head.path)
        _log.error("the application raised while it served %s %s", verb, path, exc_info=failure)

    def anybody(self, *, but: Collection[str]) -> str:
        """Return any process but some.

        Raises:
            ServerOverloaded: None can be reached.
        """
        homes = [home for home in self.links.by_home if home not in but and self.link(home) is not None]
        if not homes:
            raise ServerOverloaded("The server is shutting down")
        return random.choice(homes)  # noqa: S311 - it is no secret

    def tell(self, link: Link, channel: int, payload: bytes) -> None:
        """See `mcpbus.cluster.link.LinkHandler`."""
        self.remote_sessions.tell(link, channel, payload)

    # -- changes ---------------------------------------------------------------------------------

    def _tell_elsewhere(self, change: ChangeEvent) -> RemoteChangeFates:
        number = self._told_changes.next_number()
        payload = encode(Changed(change.list, change.uri, number))
        told: dict[str, Link] = {}
        for home in self.links.by_home:
            link = self.link(home)
            if link is not None and home != self.home:
                link.send(FrameKind.CHANGED, 0, payload)
                told[home] = link
        untold = self._homes.difference(told, [self.home])
        return self._told_changes.elsewhere(number, told, len(untold))

    def changed(self, link: Link, payload: bytes) -> None:
        """See `mcpbus.cluster.link.LinkHandler`."""
        if self._bus is not None:
            said = decode_changed(payload)
            name = None if said.list is None else _LISTS.get(said.list)
            # Newer processes may have more lists, of which nobody here wants to hear.
            broadcast = (
                self._bus.publish_local(ChangeEvent(name, said.uri)) if name == said.list else Broadcast(())
            )
            self._told_changes.keep(link.home, said.number, broadcast)

    def asked(self, link: Link, channel: int, payload: bytes) -> None:
        """See `mcpbus.cluster.link.LinkHandler`."""
        self._told_changes.asked(link, channel, payload)

    def serving(self, link: Link) -> None:
        """See `mcpbus.cluster.link.LinkHandler`. With another link to the same process nothing was missed, as long as that lasts."""
        if self._serves and self.link(link.home) is link:
            self._tell_all_here()

    def _tell_all_here(self) -> None:
        """Tell every change that may have been missed."""
        bus = self._bus
        if bus is not None:
            for name in _LISTS.values():
                bus.publish_local(ChangeEvent(name))
            for uri in bus.topics.uris:
                bus.publish_local(ChangeEvent(None, uri))


@asynccontextmanager
async def open_node(cluster: Cluster) -> AsyncIterator[Node]:
    """Open a process's part of a cluster; it is to be closed after its bus."""
    async with background() as nursery:
        node = Node(cluster, nursery)
        try:
            yield node
            await node.records.settle()
            await node.remote_sessions.settle()
            await node.links.leave()
            nursery.cancel_scope.cancel()
        finally:
            node.links.end()
