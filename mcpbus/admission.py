# ruff: noqa: SLF001 - a slot is part of the tables that it stands in
"""Who may come in: the requests in flight, counted and bounded before anything is allocated for them.

A `Slot` is taken before a request's actors exist and given back by the request actor's end, however it ends.
An `InFlight` table belongs to each legacy session and to each shared channel, where ids are unique while in
flight; on modern and stateless HTTP every POST stands alone and two of them may carry the same id.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import msgspec
import trio

from actors import Address
from mcpbus.budget import Budget
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, invalid_request
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.reached import ReachedLimits
from mcpbus.shares import NoRoomError

if TYPE_CHECKING:
    from mcpbus.brief import Brief


class Overloaded(ProtocolError):  # noqa: N818 - the state, not a fault of the request
    """A bound is reached, or the server is shutting down.

    Attributes:
        status: What that is over HTTP.
    """

    status: ClassVar[int] = 503

    def __init__(self, why: str) -> None:
        super().__init__(INTERNAL_ERROR, why)


class PastShare(Overloaded):
    """There would be room for somebody else."""

    status: ClassVar[int] = 429


def overloaded(full: NoRoomError, why: str) -> Overloaded:
    """Return what to refuse a client with for whom there is no room."""
    return PastShare(why) if full.past_share else Overloaded(why)


class InFlight:
    """The requests in flight of one session, or of one shared channel, by id.

    Args:
        limit: How many there may be at once.

    Attributes:
        last_active: When the last of them ended, in trio's time.
    """

    __slots__ = ("_limit", "_slots", "last_active")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots: dict[RequestId, Slot] = {}
        self.last_active = float("-inf")

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, request_id: RequestId) -> "Address[object] | None":
        """Return the actor of a request in flight; None if there is none with that id."""
        slot = self._slots.get(request_id)
        return None if slot is None else slot.address

    def addresses(self) -> list["Address[object]"]:
        """Return the actors of all requests in flight, oldest first."""
        return [slot.address for slot in self._slots.values() if slot.address is not None]

    def check(self, request_id: RequestId) -> None:
        """Raise what `admit` would raise."""
        if request_id in self._slots:
            raise invalid_request(
                f"Request id {request_id!r} is still in flight; an id may be used again once it was answered"
            )
        if len(self._slots) >= self._limit:
            raise Overloaded(f"Too many requests in flight: at most {self._limit} in one session")


class Slot(msgspec.Struct, eq=False, gc=False):
    """The place of one request in flight.

    Attributes:
        brief: The request, where it has no actor for as long as nobody asks for it.
        listens: Whether it is a listen, which ends only when somebody ends it.
    """

    _admission: "Admission"
    _table: InFlight | None
    _id: RequestId
    _address: "Address[object] | None" = None
    brief: "Brief | None" = None
    listens: bool = False

    @property
    def address(self) -> "Address[object] | None":
        """The request's actor, once there is one."""
        if self.brief is not None:
            self.brief.appear()
        return self._address

    def occupy(self, address: "Address[object]") -> None:
        """Say which actor the request has got."""
        self._address = address

    def release(self) -> None:
        """Give the place back. Harmless when it was given back before."""
        slots = self._admission._slots
        if self not in slots:
            return
        del slots[self]
        if self._table is not None:
            del self._table._slots[self._id]
            self._table.last_active = trio.current_time()
        if not slots and self._admission._idle is not None:
            self._admission._idle.set()


class Admission:
    """The requests in flight on a whole bus.

    Args:
        limit: How many there may be at once.
        budget: Without room in it nobody may come in; None for no such bound.

    Attributes:
        closed: Whether new requests are refused, because the server is shutting down.
    """

    __slots__ = ("_budget", "_idle", "_limit", "_slots", "closed")

    def __init__(self, limit: int, budget: Budget | None = None) -> None:
        self._limit = limit
        self._budget = Budget(math.inf, ReachedLimits()) if budget is None else budget
        self._slots: dict[Slot, None] = {}
        self._idle: trio.Event | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Slot]:
        return iter(tuple(self._slots))

    def admit(self, request_id: RequestId, table: InFlight | None) -> Slot:
        """Take a place for a request.

        Raises:
            Overloaded: There is none left, or nobody may come in; see `check`.
            ProtocolError: -32600: the id is in flight already.
        """
        if self.closed or self._budget.full:
            self.check()
        if len(self._slots) >= self._limit:
            raise Overloaded(f"Too many requests in flight: at most {self._limit} on this server")
        if table is not None:
            table.check(request_id)
        slot = Slot(self, table, request_id)
        self._slots[slot] = None
        if table is not None:
            table._slots[request_id] = slot
        return slot

    def check(self) -> None:
        """Refuse whoever wants to come in while nobody may.

        Raises:
            Overloaded: The server is shutting down, or keeps as much for its clients as it may.
        """
        if self.closed:
            raise Overloaded("The server is shutting down")
        if self._budget.full:
            raise Overloaded(self._budget.refusal())

    async def wait_idle(self) -> None:
        """Wait until no request is in flight."""
        while self._slots:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()
            self._idle = None
