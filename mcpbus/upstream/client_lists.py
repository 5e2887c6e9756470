"""The lists of one connection that belongs to one client, and the questions for lists of many clients at once."""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import trio

from mcpbus.client.yielding import Yielder
from mcpbus.core.memory_budget import MemoryAccount
from mcpbus.features.elsewhere import KINDS, Difference, Kind
from mcpbus.features.left_out import LeftOut
from mcpbus.protocol.large import weigh
from mcpbus.protocol.messages import ListName
from mcpbus.upstream.listed import Listed

_log = logging.getLogger("mcpbus")

WAIT_SECONDS: Final = 5.0
"""For how long a client that asks for a list waits for the upstream server; then it gets what is known."""
_RESTS: Final = 9.0
"""For how many times as long as a list took it is not asked for again, unless something has happened."""
_HEAVY_SECONDS: Final = 1.0
"""A list that takes longer than this rests whatever has happened."""
_ENTRY_BYTES: Final = 100
"""Bytes of memory of a key that stands in a dict or set."""
_ITEM_BYTES: Final = 4000
"""Bytes of memory of a tool, prompt or resource, its description apart; and of the one that a server above makes of it."""
_NO_DIFFERENCE: Final = Difference({kind: {} for kind in KINDS}, {kind: frozenset() for kind in KINDS})
KINDS_OF: Final[dict[ListName, tuple[Kind, ...]]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "templates"),
}


class _OwnItem(NamedTuple):
    """An item that the shared list does not have.

    Attributes:
        text: Its description.
        item: What is offered.
        size: The bytes of memory that the two take, roughly.
    """

    text: bytes
    item: Any
    size: int


class ClientLists:
    """The lists of a connection that belongs to one client, as they differ from the shared ones.

    What it keeps beside the shared lists counts in the memory budget. If that is full, it is forgotten: the client sees the shared lists until
    it asks for its own again.

    Args:
        shared: The shared lists.
        open_account: Opens an account in the memory budget of the client, and takes what is called if it has to go.
    """

    def __init__(
        self,
        shared: Mapping[Kind, Listed],
        open_account: Callable[[Callable[[], object]], MemoryAccount],
    ) -> None:
        self._shared = shared
        self._open_account = open_account
        self._account: MemoryAccount | None = None
        self._closed = False
        self.forget()

    def forget(self) -> None:
        """Keep nothing until the client asks again."""
        account, self._account = self._account, None
        self._read: dict[Kind, Mapping[str, bytes]] = {}
        self._own: dict[Kind, dict[str, _OwnItem]] = {kind: {} for kind in KINDS}
        self._difference: Difference | None = None
        self._of: tuple[int, ...] = ()
        if account is not None:
            account.close()

    def close(self) -> None:
        """Keep nothing any more: the connection has ended."""
        self._closed = True
        self.forget()

    async def take(self, name: ListName, lists: Sequence[Sequence[dict[str, Any]]]) -> bool:
        """Take what the connection lists under a name; return whether the client now sees something else. Other tasks run in between."""
        before = self.difference
        for kind, described in zip(KINDS_OF[name], lists, strict=True):
            await self._take(kind, await self._shared[kind].read(described))
        after = self.difference
        kinds = KINDS_OF[name]
        return any(
            before.new[kind] != after.new[kind] or before.gone[kind] != after.gone[kind] for kind in kinds
        )

    async def _take(self, kind: Kind, read: Mapping[str, bytes]) -> None:
        """Make what the shared list does not have, so that it is there when the difference is wanted."""
        if self._closed:
            return
        account = self._account = self._account or self._open_account(self.forget)
        listed, turn, left_out = self._shared[kind], Yielder(), LeftOut(_log)
        bad: set[str] = set()
        for key, text in read.items():
            known = self._own[kind].get(key)
            if listed.taken.get(key) != text and not (known and known.text == text):
                own = _make(listed, text, left_out)
                if own is None:
                    bad.add(key)
                else:
                    account.hold(own.size)
                    if not self._holds(account):  # that was too much
                        break
                    self._own[kind][key] = own
            await turn.pause()
            if not self._holds(account):
                break
        left_out.log()
        if self._holds(account):
            self._read[kind] = {key: text for key, text in read.items() if key not in bad} if bad else read
            self._of = ()

    def _holds(self, account: MemoryAccount) -> bool:
        """Whether nothing was forgotten since it took this account."""
        return self._account is account

    @property
    def difference(self) -> Difference:
        """The difference from the shared lists as they are now."""
        versions = tuple(self._shared[kind].version for kind in KINDS)
        difference, account = self._difference, self._account
        if difference is None or versions != self._of:
            difference = Difference(
                {kind: self._new(kind) for kind in KINDS}, {kind: self._gone(kind) for kind in KINDS}
            )
            self._of, self._difference = versions, difference
            if account is not None:
                account.hold_now(self._size(difference))
                if not self._holds(account):
                    return _NO_DIFFERENCE
        return difference

    def _new(self, kind: Kind) -> dict[str, Any]:
        listed, before, own = self._shared[kind], self._own[kind], {}
        left_out, bad = LeftOut(_log), set()
        read = self._read.get(kind, {})
        for key, text in read.items():
            if listed.taken.get(key) != text:
                known = before.get(key)
                made = known if known and known.text == text else _make(listed, text, left_out)
                if made is None:
                    bad.add(key)
                else:
                    own[key] = made
        left_out.log()
        if bad:
            self._read[kind] = {key: text for key, text in read.items() if key not in bad}
        self._own[kind] = own
        return {key: made.item for key, made in own.items()}

    def _gone(self, kind: Kind) -> frozenset[str]:
        read = self._read.get(kind)
        return frozenset() if read is None else frozenset(self._shared[kind].taken.keys() - read.keys())

    def _size(self, difference: Difference) -> int:
        """Return the bytes of memory that is kept beside the shared lists."""
        entries = sum(map(len, difference.gone.values()))
        entries += sum(len(read) for kind, read in self._read.items() if read is not self._shared[kind].taken)
        return _ENTRY_BYTES * entries + sum(own.size for each in self._own.values() for own in each.values())


def _make(listed: Listed, text: bytes, left_out: LeftOut) -> _OwnItem | None:
    """Make an item of its description; None if it cannot be offered."""
    item = listed.make(text, left_out)
    # The description is there as a text, decoded, and encoded in part.
    return None if item is None else _OwnItem(text, item, _ITEM_BYTES + 2 * len(text) + weigh(text))


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

    async def fresh(self, nursery: trio.Nursery, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the list is as new as this request, but not for long.

        Args:
            nursery: Where it is asked for, also once the request waits no more.
            seconds: How long the request waits at most. If the list comes later and differs, the client is notified.
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
        if seconds <= 0:
            self._given_up = True
            return
        self._waiting += 1
        try:
            with trio.move_on_after(seconds):
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
