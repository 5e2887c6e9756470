# ruff: noqa: SLF001 - a slot is part of the tables that it stands in
"""Who may come in: the requests in flight, counted and bounded before anything is allocated for them.

A `RequestSlot` is taken before a request's actors exist and given back by the request actor's end, however it ends.
An `InFlight` table belongs to each legacy session and to each shared channel, where ids are unique while in
flight; on modern and stateless HTTP every POST stands alone and two of them may carry the same id.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from contextvars import copy_context
from typing import ClassVar, Protocol

import msgspec
import trio
from mcpbus_actors import Address

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.core.shares import NoRoomError, check_room, kept
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, invalid_request
from mcpbus.protocol.jsonrpc import RequestId


class ServerOverloaded(ProtocolError):  # noqa: N818 - the state, not a fault of the request
    """A bound is reached, or the server is shutting down.

    Attributes:
        status: What that is over HTTP.
    """

    status: ClassVar[int] = 503

    def __init__(self, why: str) -> None:
        super().__init__(INTERNAL_ERROR, why)


class QuotaExceeded(ServerOverloaded):
    """There would be room for somebody else."""

    status: ClassVar[int] = 429


def overloaded(full: NoRoomError, why: str) -> ServerOverloaded:
    """Return what to refuse a client with for whom there is no room."""
    return QuotaExceeded(why) if full.past_share else ServerOverloaded(why)


class InFlight:
    """The requests in flight of one session, or of one shared channel, by id.

    Args:
        limit: How many there may be at once.

    Attributes:
        last_active: When the last of them ended, in trio's time.
    """

    __slots__ = ("_idle", "_limit", "_slots", "last_active")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots: dict[Hashable, RequestSlot] = {}
        self._idle: trio.Event | None = None
        self.last_active = float("-inf")

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, request_id: RequestId) -> Address[object] | None:
        """Return the actor of a request in flight; None if there is none with that id."""
        slot = self._slots.get(request_id)
        return None if slot is None else slot.address

    def addresses(self) -> list[Address[object]]:
        """Return the actors of all requests in flight, oldest first."""
        return [slot.address for slot in self._slots.values() if slot.address is not None]

    def check(self, request_id: Hashable) -> None:
        """Raise what `admit` would raise."""
        if request_id in self._slots:
            raise invalid_request(
                f"Request id {request_id!r} is still in flight; an id may be used again once it was answered"
            )
        if len(self._slots) >= self._limit:
            raise QuotaExceeded(f"Too many requests in flight: at most {self._limit} in one session")

    async def wait_idle(self) -> None:
        """Wait until none is in flight."""
        while self._slots:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()


class QuotaOwned(Protocol):
    """What is counted to somebody."""

    @property
    def owner(self) -> Hashable:
        """To whom."""


class QuotaKey(msgspec.Struct, frozen=True):
    """What is counted to somebody, and no more of it: for what lasts longer than its request is of use."""

    owner: Hashable


class HasAddress(Protocol):
    """What can be reached."""

    @property
    def address(self) -> Address[object]:
        """Where."""


class RequestSlot(msgspec.Struct, eq=False):
    """The place of one request in flight.

    Attributes:
        request: The request, as long as it has this place.
    """

    _admission: "Admission"
    _table: InFlight | None
    _id: Hashable
    _whose: QuotaOwned
    _counted_to: Hashable = None
    request: HasAddress | None = None

    copy_context = staticmethod(copy_context)
    """Return the context variables for the handler of the request."""

    @property
    def address(self) -> Address[object] | None:
        """Where the request can be reached."""
        return None if self.request is None else self.request.address

    def release(self) -> None:
        """Give the place back. Harmless when it was given back before."""
        admission, self.request = self._admission, None
        slots = admission._slots
        if self not in slots:
            return
        del slots[self]
        if admission._counts is not None:
            admission._discount(self._counted_to)
        table = self._table
        if table is not None:
            del table._slots[self._id]
            table.last_active = admission._now()
            if table._idle is not None:
                table._idle.set()
                table._idle = None
        if admission._idle is not None and not slots:
            admission._idle.set()
            admission._idle = None


class Admission:
    """The requests in flight on a whole bus; its listens, which end only when somebody ends them, have one of their own.

    Whose they are is counted only while they are many, for most of them are over before it matters.

    Args:
        limit: How many there may be at once.
        budget: Without room in it only owners that hold little may come in; None for no such bound.
        option: The name of the option that sets the limit.
        what: What they are, for people.
        reached: Where it is noted that somebody was refused.
        now: Tells trio's time.

    Attributes:
        closed: Whether new requests are refused, because the server is shutting down.
    """

    slot_class: ClassVar[type[RequestSlot]] = RequestSlot

    __slots__ = (
        "_budget",
        "_counts",
        "_few",
        "_idle",
        "_limit",
        "_many",
        "_now",
        "_option",
        "_reached",
        "_slots",
        "_what",
        "closed",
    )

    def __init__(
        self,
        limit: int,
        budget: MemoryBudget | None = None,
        *,
        option: str = "max_requests",
        what: str = "requests in flight",
        reached: LimitMonitor | None = None,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self._now = now
        self._limit = limit
        self._many = limit - kept(limit)
        self._few = self._many - kept(limit)
        self._option = option
        self._what = what
        self._reached = reached or LimitMonitor()
        self._budget = MemoryBudget(math.inf, self._reached) if budget is None else budget
        self._counts: dict[Hashable, int] | None = None
        self._slots: dict[RequestSlot, None] = {}
        self._idle: trio.Event | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[RequestSlot]:
        return iter(tuple(self._slots))

    def admit(self, request_id: Hashable, table: InFlight | None, whose: QuotaOwned) -> RequestSlot:
        """Take a place for a request.

        Args:
            request_id: Its id; of what has none, anything else.
            table: Among which ones its id must be unique.
            whose: Tells to whom it is counted.

        Raises:
            ServerOverloaded: There is none left for its owner, or nobody may come in; see `check`.
            ProtocolError: -32600: the id is in flight already.
        """
        if self.closed or self._budget.full:
            self.check(whose.owner)
        slots = self._slots
        if len(slots) >= self._many:
            self._check_share(whose.owner)
        if table is not None and (request_id in table._slots or len(table._slots) >= table._limit):
            self._check_table(table, request_id, whose)
        slot = self.slot_class(self, table, request_id, whose)
        slots[slot] = None
        if self._counts is not None:
            self._count(self._counts, slot)
        if table is not None:
            table._slots[request_id] = slot
        return slot

    def _check_share(self, owner: Hashable) -> None:
        if self._counts is None:
            self._counts = {}
            for slot in self._slots:
                self._count(self._counts, slot)
        own, owners = self._counts.get(owner, 0), len(self._counts)
        try:
            check_room(self._limit, len(self._slots), own, owners)
        except NoRoomError as full:
            self._reached.note(self._option, owner, "a request was refused")
            why = f"Too many {self._what}: at most {self._limit} on this server"
            raise overloaded(full, why) from None

    def _check_table(self, table: InFlight, request_id: Hashable, whose: QuotaOwned) -> None:
        try:
            table.check(request_id)
        except QuotaExceeded:
            self._reached.note("max_requests_per_session", whose.owner, "a request was refused")
            raise

    @staticmethod
    def _count(counts: dict[Hashable, int], slot: RequestSlot) -> None:
        owner = slot._counted_to = slot._whose.owner
        counts[owner] = counts.get(owner, 0) + 1

    def _discount(self, owner: Hashable) -> None:
        """Count one request less; no more at all once they are few again."""
        assert self._counts is not None  # noqa: S101 - whoever calls has looked
        if len(self._slots) < self._few:
            self._counts = None
            return
        left = self._counts.pop(owner, 1) - 1
        if left:
            self._counts[owner] = left

    def check(self, owner: Hashable) -> None:
        """Refuse whoever wants to come in while nobody may.

        Args:
            owner: Who does.

        Raises:
            ServerOverloaded: The server is shutting down, or keeps as much for its clients as it may, and not for others alone.
        """
        if self.closed:
            raise ServerOverloaded("The server is shutting down")
        if self._budget.refuses(owner):
            raise ServerOverloaded(self._budget.refusal(owner))

    async def wait_idle(self) -> None:
        """Wait until no request is in flight."""
        while self._slots:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()
