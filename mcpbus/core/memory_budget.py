"""What a bus keeps in memory for its clients: counted in bytes in one place, and bounded together.

Each bound of one stream, one session or one request leaves open what ten thousand of them may keep. So whoever keeps
something for a client that waits, or makes others wait, has an `MemoryAccount` and says how much it is. Where all of it is more
than there may be, those that hold the most are told to end, until there is room again: nobody goes for being small. What
they hold counts until they have let go of it; should that be too much by itself, newcomers are refused meanwhile. A reserve
beyond the limit is kept for owners that hold next to nothing: they are not refused because others take long to let go.

Nothing is counted that does not wait: an answer that is written at once costs no account.
"""

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

import trio

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.protocol.errors import invalid_params
from mcpbus.protocol.large import PART_BYTES

SHORT_BYTES: Final = 4096
"""Of what one stream or answer has waiting that is not worth an account: most of it is written in the next moment."""

_SPARED: Final = 8
"""Which part of the limit is made free at once, so that the next byte does not begin the search anew."""

_RESERVED: Final = 4
"""Part of the limit that is there beyond it, for newcomers whose owners hold little."""

_LITTLE: Final = 10
"""An owner that holds less than this part of what is left of the reserve holds little."""

_TURNS_TO_LEAVE: Final = 20
"""Turns of all tasks in which an account that is told to end gives everything back, as a rule: its writer ends, and then its stream."""

_HEAVIEST: Final = 1 + PART_BYTES
"""What one byte of JSON comes to at most, as `weigh` has it."""


class MemoryAccount:
    """What one stream, session, call or body holds. Made by `MemoryBudget.account`; one that holds nothing can be forgotten.

    Attributes:
        held: Bytes.
        owner: For whom: a principal, or what else tells one client from the others; None if that is not known.
        leaving: Whether it was told to end. It goes on to count until it has given everything back.
    """

    __slots__ = ("_budget", "end", "held", "leaving", "owner", "what")

    def __init__(
        self, budget: "MemoryBudget", what: str, owner: Hashable, end: Callable[[], object] | None
    ) -> None:
        self._budget = budget
        self.held = 0
        self.what = what
        self.owner = owner
        self.end = end
        self.leaving = False

    def hold(self, size: int) -> None:
        """Hold so many bytes more. Others, and this one, may be told to end before this returns."""
        budget = self._budget
        if size and not self.held:
            budget._accounts[self] = None  # noqa: SLF001 - a budget and its accounts are one set of books
        self.held += size
        budget._add(self, size)  # noqa: SLF001

    def release(self, size: int) -> None:
        """Give so many bytes back.

        Raises:
            ValueError: It does not hold as many.
        """
        if size > self.held:
            raise ValueError(f"{self!r} cannot give back {size} bytes")
        budget = self._budget
        self.held -= size
        budget._add(self, -size)  # noqa: SLF001
        if size and not self.held:
            del budget._accounts[self]  # noqa: SLF001

    def hold_now(self, size: int) -> None:
        """Hold so many bytes from now on, however many it held before."""
        more = size - self.held
        if more > 0:
            self.hold(more)
        elif more < 0:
            self.release(-more)

    def close(self) -> None:
        """Give everything back, for good. Harmless once that was done."""
        self.release(self.held)
        self.end = None  # who holds it is held by this, and should not wait for the garbage collector

    def __repr__(self) -> str:
        return f"<MemoryAccount of {self.what}: {self.held} bytes>"


class MemoryBudget:
    """What all of it may be together.

    Args:
        limit: How many bytes.
        reached: Where it is noted that there were more.

    Attributes:
        limit: The same.
        held: How many bytes are held.
        full: Whether that is more than there may be: `refuses` tells which newcomers are refused.
        line: In which those wait who bring much: it is read one after the other, and everybody else has a turn in between.
    """

    __slots__ = ("_accounts", "_ending", "_holdings", "_leaving", "full", "held", "limit", "line", "reached")

    def __init__(self, limit: float, reached: LimitMonitor) -> None:
        self.limit = limit
        self.held = 0
        self.full = False
        self.line = trio.Lock()
        self.reached = reached
        self._accounts: dict[MemoryAccount, None] = {}  # those that hold something
        self._leaving = 0  # held by those that were told to end
        self._ending = False
        self._holdings: dict[Hashable, int] | None = None  # what each owner holds, once that matters

    async def take_turn(self) -> None:
        """Wait in the line of those that bring much. All other tasks have a turn between two of them.

        If the budget is full, those that were told to end have a few turns to give back what they hold.
        """
        async with self.line:
            for _ in range(_TURNS_TO_LEAVE):
                await trio.lowlevel.checkpoint()
                if not self.full:
                    break

    def account(
        self, what: str, end: Callable[[], object] | None = None, *, owner: Hashable = None
    ) -> MemoryAccount:
        """Open an account.

        Args:
            what: What holds it, for people: ``a stream``.
            end: Called once where it has to go: is to see to it, soon, that everything is given back, and does not wait. None
                for what is not to end for others' sake.
            owner: For whom it is held.
        """
        return MemoryAccount(self, what, owner, end)

    def check(self, size: int, owner: Hashable) -> None:
        """Refuse what would be too much by itself.

        Args:
            size: How many bytes it would take.
            owner: For whom it would be held.

        Raises:
            ProtocolError: -32602: it would.
        """
        if size > self.limit:
            self.reached.note("memory_bytes", owner, "a request that alone would need more was refused")
            raise invalid_params(
                f"what they hold would take about {size} bytes of memory, more than there may be"
            )

    def has_room(self, size: int) -> bool:
        """Whether JSON of so many bytes fits in, whatever it says: then nobody has to weigh what is over in a moment."""
        return self.held + _HEAVIEST * size <= self.limit

    def accounts(self) -> list[MemoryAccount]:
        """Return those that hold something."""
        return list(self._accounts)

    def refuses(self, owner: Hashable) -> bool:
        """Whether a newcomer of this owner's is refused: too much is held, and not by others alone, or the reserve is used up too."""
        if not self.full:
            return False
        if self._holdings is None:
            self._holdings = {}
            for account in self._accounts:
                self._holdings[account.owner] = self._holdings.get(account.owner, 0) + account.held
        left = self.limit + self.limit // _RESERVED - self.held
        own = 0 if owner is None else self._holdings.get(owner, 0)
        return left <= 0 or own * _LITTLE > left

    def refusal(self, owner: Hashable) -> str:
        """Note that a newcomer of this owner's is refused, and return what it is told."""
        self.reached.note("memory_bytes", owner, "a newcomer was refused")
        return "Too much waits for clients that do not read; try again later"

    def _add(self, account: MemoryAccount, size: int) -> None:
        self.held += size
        if account.leaving:
            self._leaving += size
        self.full = self.held > self.limit
        if not self.full:
            self._holdings = None
        elif self._holdings is not None:
            self._holdings[account.owner] = self._holdings.get(account.owner, 0) + size
        if self.full and not self._ending and self.held - self._leaving > self.limit:
            self._ending = True
            try:
                self._end_largest()
            finally:
                self._ending = False

    def _end_largest(self) -> None:
        """Tell those that hold the most to end: the largest of whoever has most in all, so that nobody goes for one who has more."""
        holdings: dict[Hashable, list[MemoryAccount]] = {}
        for account in self._accounts:
            if not account.leaving:
                holdings.setdefault(account if account.owner is None else account.owner, []).append(account)
        heap = [
            (-sum(account.held for account in held), at, held) for at, held in enumerate(holdings.values())
        ]
        for _, _, accounts in heap:
            accounts.sort(key=attrgetter("held"))
        heapify(heap)
        while heap and self.held - self._leaving > self.limit * (1 - 1 / _SPARED):
            total, at, accounts = heappop(heap)
            account = accounts.pop()
            if accounts:
                heappush(heap, (total if account.end is None else total + account.held, at, accounts))
            self._end(account)

    def _end(self, account: MemoryAccount) -> None:
        held = account.held
        if account.end is not None and not account.leaving and held:
            account.leaving = True
            self._leaving += held
            self.reached.note(
                "memory_bytes", account.owner, f"{account.what} that held {held} bytes was ended"
            )
            account.end()
