"""Several buses in one process that serve as one, with links in memory."""

import math
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

import attrs
import trio
import trio.testing

from mcpbus.cluster.directory import (
    Accept,
    Cluster,
    DeadNodes,
    FencedError,
    SessionClaim,
    StoredHeldMessage,
    StoredSession,
    released_home,
)
from mcpbus.core.lease import Lease
from mcpbus.protocol.keywords import explained


@explained
class MemoryDirectory:
    """Knows buses of one process by their homes; a `ClusterDirectory`.

    What happens to links can be made to happen: `cut` ends them, and `unreachable` are homes that nobody can connect to. So can what happens
    to a process that is cut off or stopped: `lapse` has it be taken for ended, and `renew` no longer.

    Attributes:
        unreachable: They are there, and cannot be dialled.
    """

    def __init__(self) -> None:
        self.unreachable: set[str] = set()
        self._kept: dict[str, StoredSession] = {}
        self._rounds: dict[str, tuple[str, float]] = {}
        self._orphans = DeadNodes()
        self._key = secrets.token_bytes(32)
        self._living: dict[str, Callable[[trio.abc.Stream], None]] = {}
        self._lapsed: dict[str, Callable[[trio.abc.Stream], None]] = {}
        self._leases: dict[str, Lease] = {}
        self._connections: list[trio.abc.Stream] = []

    def cluster(self, keys: Sequence[bytes] = ()) -> Cluster:
        """Return what makes another bus one of them: ``open_bus(server, cluster=directory.cluster())``.

        Args:
            keys: Its secrets, as those of a `Cluster`; if there are none, the one that all have whom nothing else was told.
        """
        return Cluster(directory=self, keys=keys or [self._key])

    async def cut(self) -> None:
        """End all links."""
        connections, self._connections = self._connections, []
        for stream in connections:
            await trio.aclose_forcefully(stream)

    def lapse(self, home: str) -> None:
        """Have a process, which lives, be taken for ended: its lease was not renewed, and others may take its sessions over."""
        self._lapsed[home] = self._living.pop(home)
        self._leases[home].until = -math.inf

    def renew(self, home: str) -> None:
        """Have it be there again. It knows that of its sessions once it has asked whose they are."""
        self._living[home] = self._lapsed.pop(home)

    async def create(self, ownership: SessionClaim, record: bytes) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        if ownership.name in self._kept:
            self._check(ownership)
        self._kept[ownership.name] = StoredSession(ownership, record)

    async def update(self, ownership: SessionClaim, record: bytes) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        kept = self._check(ownership)
        self._kept[ownership.name] = attrs.evolve(kept, record=record)

    async def remove(self, ownership: SessionClaim) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        if ownership.name in self._kept:
            self._check(ownership)
            del self._kept[ownership.name]

    async def append_held(
        self, ownership: SessionClaim, held: Mapping[str, StoredHeldMessage], gone: Collection[str]
    ) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        kept, now = self._check(ownership), trio.current_time()
        due = {name: attrs.evolve(each, seconds=now + each.seconds) for name, each in held.items()}
        self._hold(kept, {**kept.held, **due}, gone)

    async def pop_held(self, ownership: SessionClaim, names: Collection[str]) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        kept = self._check(ownership)
        self._hold(kept, kept.held, names)

    async def release(self, ownerships: Sequence[SessionClaim]) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        for ownership in ownerships:
            with suppress(FencedError):
                kept = self._check(ownership)
                free = SessionClaim(ownership.name, released_home(ownership.home), ownership.epoch + 1)
                self._kept[ownership.name] = attrs.evolve(kept, ownership=free)

    def _hold(
        self, kept: StoredSession, held: Mapping[str, StoredHeldMessage], gone: Collection[str]
    ) -> None:
        left = {name: each for name, each in held.items() if name not in gone}
        self._kept[kept.ownership.name] = attrs.evolve(kept, held=left)

    def _check(self, ownership: SessionClaim) -> StoredSession:
        kept = self._kept.get(ownership.name)
        if kept is None or kept.ownership != ownership:
            raise FencedError
        return kept

    async def get(self, name: str) -> StoredSession | None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        return self._told(self._kept.get(name))

    @staticmethod
    def _told(kept: StoredSession | None) -> StoredSession | None:
        """Return what is told of a session: for how long messages are of use, and not, as it is kept here, until when."""
        if kept is None:
            return None
        now = trio.current_time()
        left = {name: attrs.evolve(each, seconds=each.seconds - now) for name, each in kept.held.items()}
        return attrs.evolve(kept, held=left)

    async def claim(self, name: str, ended: str, home: str) -> StoredSession | None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        kept = self._kept.get(name)
        if kept is not None and kept.ownership.home == ended != home and ended not in self._living:
            claimed = SessionClaim(name, home, kept.ownership.epoch + 1)
            kept = self._kept[name] = attrs.evolve(kept, ownership=claimed)
        return self._told(kept)

    async def claim_round(self, name: str, user: str, seconds: float) -> bool:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        self._rounds = {key: used for key, used in self._rounds.items() if used[1] > now}
        return self._rounds.setdefault(name, (user, now + seconds))[0] == user

    async def maintain(self, sessions: Collection[SessionClaim], seconds: float) -> Collection[str]:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        homes = {kept.ownership.home for kept in self._kept.values()}
        left = self._orphans.left(homes.difference(self._living), seconds)
        self._kept = {name: kept for name, kept in self._kept.items() if kept.ownership.home not in left}
        kept = {each.ownership for each in self._kept.values()}
        doubtful = [session.name for session in sessions if session not in kept]
        if sessions and not doubtful:
            self._confirm(next(iter(sessions)).home)
        return doubtful

    def _confirm(self, home: str) -> None:
        if home in self._living:
            self._leases[home].extend(math.inf)

    async def listen(
        self,
        home: str,
        accept: Accept,
        lease: Lease,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `ClusterDirectory`."""
        self._leases[home] = lease
        async with trio.open_nursery() as nursery:
            self._living[home] = lambda stream: nursery.start_soon(accept, stream)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._living.pop(home, None)
                self._lapsed.pop(home, None)

    async def homes(self) -> Collection[str]:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        return tuple(self._living)

    async def dial(self, home: str) -> trio.abc.Stream | None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        if home in self.unreachable:
            raise OSError("it cannot be reached")
        accept = self._living.get(home)
        if accept is None:
            return None
        ours, theirs = trio.testing.memory_stream_pair()
        self._connections.append(ours)
        accept(theirs)
        return ours
