"""The lists of one connection that belongs to one client, and the questions for lists of many clients at once."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import trio

from mcpbus.client.yielding import Yielder
from mcpbus.features.elsewhere import KINDS, Difference, Kind
from mcpbus.protocol.messages import ListName
from mcpbus.upstream.listed import Listed

WAIT_SECONDS: Final = 5.0
"""For how long a client that asks for a list waits for the upstream server; then it gets what is known."""
_RESTS: Final = 9.0
"""For how many times as long as a list took it is not asked for again, unless something has happened."""
_HEAVY_SECONDS: Final = 1.0
"""A list that takes longer than this rests whatever has happened."""
KINDS_OF: Final[dict[ListName, tuple[Kind, ...]]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "templates"),
}


class ClientLists:
    """The lists of a connection that belongs to one client, as they differ from the shared ones.

    Args:
        shared: The shared lists.
    """

    def __init__(self, shared: Mapping[Kind, Listed]) -> None:
        self._shared = shared
        self._read: dict[Kind, dict[str, tuple[bytes, Any]]] = {}
        self._made: dict[Kind, dict[str, tuple[bytes, Any]]] = {kind: {} for kind in KINDS}
        self._difference: Difference | None = None
        self._of: tuple[int, ...] = ()

    async def take(self, name: ListName, lists: Sequence[Sequence[dict[str, Any]]]) -> bool:
        """Take what the connection lists under a name; return whether the client now sees something else. Other tasks run in between."""
        before = self.difference
        for kind, described in zip(KINDS_OF[name], lists, strict=True):
            read = await self._shared[kind].read(described)
            await self._make(kind, read)
            self._read[kind] = read
        self._of = ()
        after = self.difference
        kinds = KINDS_OF[name]
        return any(
            before.new[kind] != after.new[kind] or before.gone[kind] != after.gone[kind] for kind in kinds
        )

    async def _make(self, kind: Kind, read: Mapping[str, tuple[bytes, Any]]) -> None:
        """Make what the shared list does not have, so that it is there when the difference is wanted."""
        listed, turn = self._shared[kind], Yielder()
        for key, (text, described) in read.items():
            known = self._made[kind].get(key)
            if listed.taken.get(key) != text and not (known and known[0] == text):
                self._made[kind][key] = text, listed.make(described)
            await turn.pause()

    @property
    def difference(self) -> Difference:
        """The difference from the shared lists as they are now."""
        versions = tuple(self._shared[kind].version for kind in KINDS)
        if self._difference is None or versions != self._of:
            self._of = versions
            self._difference = Difference(
                {kind: self._new(kind) for kind in KINDS}, {kind: self._gone(kind) for kind in KINDS}
            )
        return self._difference

    def _new(self, kind: Kind) -> dict[str, Any]:
        listed, before, made = self._shared[kind], self._made[kind], {}
        for key, (text, described) in self._read.get(kind, {}).items():
            if listed.taken.get(key) != text:
                known = before.get(key)
                made[key] = known if known and known[0] == text else (text, listed.make(described))
        self._made[kind] = made
        return {key: item for key, (_, item) in made.items() if item is not None}

    def _gone(self, kind: Kind) -> frozenset[str]:
        read = self._read.get(kind)
        return frozenset() if read is None else frozenset(self._shared[kind].taken.keys() - read.keys())


class Inquiry:
    """One list of one connection, asked for once for all clients' requests that wait for it at the same time.

    Args:
        ask: Asks for it; returns the seconds that the upstream server took for the list, a connection apart. It raises nothing.
        late: Called where the last request did not wait for its end.
        stirred: Returns another value once something has happened that may have changed the list.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[float]], late: Callable[[], object], stirred: Callable[[], object]
    ) -> None:
        self._ask = ask
        self._late = late
        self._stirred = stirred
        self._asked = 0
        self._answered = 0
        self._since: float | None = None
        self._rests_until = -math.inf
        self._heavy = False
        self._was_late = False
        self._stirred_at: object = None
        self._waiting = 0
        self._given_up = False
        self._done = trio.Event()

    @property
    def idle(self) -> bool:
        """Whether nothing is lost with it."""
        return self._since is None and trio.current_time() >= self._rests_until

    @property
    def late(self) -> bool:
        """Whether the upstream server has not sent it in time, now or the last time, while that is remembered."""
        now = trio.current_time()
        if self._since is not None and now - self._since >= WAIT_SECONDS:
            return True
        return self._was_late and now < self._rests_until

    def announced(self) -> None:
        """Note that the upstream server announces another list: it is asked for again, however long it took."""
        self._heavy = self._was_late = False
        self._rests_until = -math.inf

    async def fresh(self, nursery: trio.Nursery, *, waits: bool = True) -> None:
        """Wait until the list is as new as this request, but not for long.

        Args:
            nursery: Where it is asked for, also once the request waits no more.
            waits: Whether the request waits at all. If it does not, and the list differs, the client is notified later.
        """
        now = trio.current_time()
        rests = self._since is None and now < self._rests_until
        if rests and (self._heavy or self._stirred() == self._stirred_at):
            return
        self._asked += 1
        mine = self._asked
        if self._since is None:
            self._since = now
            nursery.start_soon(self._run)
        if not waits:
            self._given_up = True
            return
        self._waiting += 1
        try:
            with trio.move_on_after(WAIT_SECONDS):
                while self._answered < mine:
                    await self._done.wait()
                return
        finally:
            self._waiting -= 1
        self._given_up = True

    async def _run(self) -> None:
        again = True
        while again:
            through, began = self._asked, trio.current_time()
            self._since, self._stirred_at = began, self._stirred()
            took = await self._ask()
            self._heavy, self._was_late = took > _HEAVY_SECONDS, took > WAIT_SECONDS
            self._rests_until = trio.current_time() + _RESTS * took
            self._answered = through
            self._done.set()
            self._done = trio.Event()
            if self._given_up:
                self._given_up = False
                self._late()
            again = self._waiting > 0 and through < self._asked
        self._since = None
