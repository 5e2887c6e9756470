# ruff: noqa: SLF001 - a ledger and its receipts are one set of books
"""What becomes of a message to a client: its fate, and the receipt by which its sender knows it.

Every message that the server makes for a client is entered in a `Ledger` and gets a `Receipt`. It is pending
in one `Location` after another until it has exactly one `Fate`. A reply whose fate is there as soon as it is written is
entered together with that, and needs no receipt. The books balance at every moment::

    emitted + adopted == delivered + stored + discarded + refused + moved + pending

`DELIVERED` means that the write of the bytes returned and no disconnect had been seen. It does not mean that
the client read them: no protocol revision acknowledges a notification.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, overload

import msgspec
import trio

from mcpbus.protocol.enums import IdentityEnum
from mcpbus.protocol.routes import Reason


class FateKind(IdentityEnum):
    """The kinds of fate."""

    DELIVERED = "delivered"
    STORED = "stored"
    """In the log of its stream, from which its client may still fetch it; final."""
    DISCARDED = "discarded"
    REFUSED = "refused"
    """Of a question to the client, whose sender was told at once: it must not wait for ever."""
    MOVED = "moved"
    """Handed over to another process, together with its session; it is in the books of that one from now on."""


class Fate(msgspec.Struct, frozen=True):
    """The end of a message.

    Attributes:
        kind: What became of the message.
        reason: Why it was discarded or refused; None for any other message.
    """

    kind: FateKind
    reason: Reason | None = None

    @classmethod
    def discarded(cls, reason: Reason) -> "Fate":
        """Return the one fate of messages discarded for `reason`."""
        return _DISCARDED[reason]

    def __str__(self) -> str:
        return self.kind.value if self.reason is None else f"{self.kind.value}: {self.reason.value}"


DELIVERED = Fate(FateKind.DELIVERED)
LOST = Fate(FateKind.DISCARDED, Reason.LOST)
STORED = Fate(FateKind.STORED)
MOVED = Fate(FateKind.MOVED)
_REFUSED = {reason: Fate(FateKind.REFUSED, reason) for reason in Reason}
_DISCARDED = {reason: Fate(FateKind.DISCARDED, reason) for reason in Reason} | {Reason.LOST: LOST}


class Location(IdentityEnum):
    """Where a message without a fate is."""

    MAILBOX = "mailbox"
    """On its way to its stream: in some actor's mailbox, or with its request for as long as it may go out together with the answer."""
    HELD = "held"
    """Kept by its session until a stream opens that may carry it."""
    REPLICATED = "kept"
    """Likewise, and where another process finds it that goes on with the session, should this one end."""
    OUTBOX = "outbox"
    """In the outbox of its stream."""
    WRITING = "writing"
    """Taken by the stream's writer; the write has not returned."""
    REMOTE = "away"
    """On its way to the process that has its session, or there, which tells its fate."""


# The members that are named for every message; before Python 3.12 each look-up by a class's name is a search.
_MAILBOX = Location.MAILBOX
_VERDICT_DELIVERED = FateKind.DELIVERED


class Ledger:
    """The books of one bus: how many messages were made or taken over, and what became of them."""

    __slots__ = (
        "adopted",
        "delivered",
        "discarded",
        "emitted",
        "moved",
        "pending",
        "refused",
        "stored",
    )

    receipt: "ClassVar[type[Receipt]]"
    """The class of the receipts of drafts: ``ledger.receipt(method, ledger)``."""
    recorder: "MessageRecorder | None" = None
    """Records its messages, where a watch does."""

    def __init__(self) -> None:
        self.emitted = 0
        self.adopted = 0
        self.moved = 0
        self.delivered = 0
        self.discarded = dict.fromkeys(Reason, 0)
        self.refused = 0
        self.stored = 0
        self.pending = dict.fromkeys(Location, 0)

    def emit(self, method: str, _context: object = None, _recipient: object = None) -> "Receipt":
        """Enter a new message in the books and return its receipt.

        Args:
            method: Its method; of a reply, that of the request.
            _context: Of a reply, the `RequestContext` of the request. Only a watch looks at it, and at the next.
            _recipient: The address of the session or the listen that it is for.
        """
        self.emitted += 1
        self.pending[_MAILBOX] += 1
        return Receipt(method, self)

    def adopt(self, method: str) -> "Receipt":
        """Enter a message that another process has made, and return its receipt here."""
        self.adopted += 1
        self.pending[_MAILBOX] += 1
        return Receipt(method, self)

    def draft_reply(self, method: str, _context: object) -> "Receipt":
        """Return the receipt of a reply that is drafted; see `emit`."""
        return Receipt(method, self)

    def emit_settled(self, fate: Fate, _context: object = None) -> None:
        """Enter a reply that nobody needs a receipt of, since its fate is known already; see `emit`."""
        self.emitted += 1
        if fate is DELIVERED:
            self.delivered += 1
        else:
            self.count(fate)

    def count(self, fate: Fate, times: int = 1) -> None:
        """Count messages that have got this fate; for their receipts."""
        if fate.kind is _VERDICT_DELIVERED:
            self.delivered += times
        elif fate.kind is FateKind.STORED:
            self.stored += times
        elif fate.kind is FateKind.REFUSED:
            self.refused += times
        elif fate.kind is FateKind.MOVED:
            self.moved += times
        elif fate.reason is not None:
            self.discarded[fate.reason] += times

    def balance(self) -> int:
        """Return what is missing from the books, in messages: zero, always."""
        settled = self.delivered + self.stored + sum(self.discarded.values()) + self.refused + self.moved
        return self.emitted + self.adopted - settled - sum(self.pending.values())


class Receipt(msgspec.Struct, eq=False, gc=False):
    """What the sender of a message holds: where the message is, and in the end what became of it.

    One that is just made is that of a draft, in any thread. Who takes what was said, in trio's, enters it in the books.

    Attributes:
        method: The message's method; for a reply, the method of the request that it answers.
    """

    method: str
    _ledger: Ledger
    _place: Location = _MAILBOX
    _fate: Fate | None = None
    _event: trio.Event | None = None

    @property
    def fate(self) -> Fate | None:
        """The message's fate, or None while it is pending."""
        return self._fate

    @property
    def location(self) -> Location | None:
        """Where the message is pending, or None once it has a fate."""
        return self._place if self._fate is None else None

    async def settled(self, timeout: float | None = None) -> Fate:  # noqa: ASYNC109 - see Raises
        """Wait until the message has its fate, and return it.

        A cancellation leaves the message as it is.

        Args:
            timeout: How long to wait at most, in seconds; None waits as long as it takes. A message that is
                held or in an outbox always ends, by delivery, expiry or the end of its stream.

        Raises:
            trio.TooSlowError: The message is still pending after `timeout` seconds.
        """
        if self._fate is None:
            if self._event is None:
                self._event = trio.Event()
            with trio.fail_after(float("inf") if timeout is None else timeout):
                await self._event.wait()
        else:
            await trio.lowlevel.checkpoint()
        assert self._fate is not None  # noqa: S101 - the event is set with the fate
        return self._fate

    def aim(self, recipient: object) -> None:
        """Note the address of the session that the message is for. Only a watch does."""

    def move(self, place: Location) -> None:
        """Note that the message is now in `location`. For the bus's own actors."""
        pending = self._ledger.pending
        pending[self._place] -= 1
        self._place = place
        pending[place] += 1

    def emit(self, place: Location = _MAILBOX) -> None:
        """Enter the message in the books, which is drafted, in `location`. For the bus's own actors."""
        ledger = self._ledger
        ledger.emitted += 1
        ledger.pending[place] += 1
        self._place = place

    def emit_delivered(self) -> None:
        """Enter the message in the books, which is drafted and written already. For the bus's own actors."""
        ledger = self._ledger
        ledger.emitted += 1
        ledger.delivered += 1
        self._fate = DELIVERED

    def settle(self, fate: Fate) -> None:
        """Give the message its fate. For the bus's own actors.

        Raises:
            RuntimeError: It has one already; a message has exactly one fate.
        """
        settle_all((self,), fate)

    def discard(self, reason: Reason) -> None:
        """Settle the message as discarded for `reason`. For the bus's own actors."""
        self.settle(_DISCARDED[reason])

    def refuse(self, reason: Reason) -> None:
        """Settle a question to the client as refused for `reason`. For the bus's own actors."""
        self.settle(_REFUSED[reason])

    def __repr__(self) -> str:
        return f"<Receipt {self.method}: {self._fate or self._place.value}>"


Ledger.receipt = Receipt  # it has no class of its own before that is defined


def enter_all(receipts: Sequence[Receipt], place: Location) -> None:
    """Enter drafted messages of one bus in the books, in `place`; as `Receipt.enter` for each."""
    if receipts:
        ledger = receipts[0]._ledger
        ledger.emitted += len(receipts)
        ledger.pending[place] += len(receipts)
        for receipt in receipts:
            receipt._place = place
        if ledger.recorder is not None:
            ledger.recorder.messages_emitted(receipts)


def enter_settled(receipts: Sequence[Receipt], fate: Fate) -> None:
    """Enter drafted messages of one bus in the books together with their fate, which they have in common."""
    ledger = receipts[0]._ledger
    ledger.emitted += len(receipts)
    ledger.count(fate, len(receipts))
    for receipt in receipts:
        receipt._fate = fate
        if receipt._event is not None:
            receipt._event.set()
    if ledger.recorder is not None:
        ledger.recorder.messages_emitted(receipts)
        ledger.recorder.messages_settled(receipts, fate)


def move_all(receipts: Sequence[Receipt], place: Location) -> None:
    """Note that pending messages of one bus, all of one place, are now in another; as `Receipt.move` for each."""
    if receipts:
        pending = receipts[0]._ledger.pending
        pending[receipts[0]._place] -= len(receipts)
        pending[place] += len(receipts)
        for receipt in receipts:
            receipt._place = place


def settle_all(receipts: Sequence[Receipt], fate: Fate) -> None:
    """Give messages of one bus, all of one place, their fate; as `Receipt.settle` for each.

    Raises:
        RuntimeError: One has a fate already; those before it have this one now, and those after it none.
    """
    settled = len(receipts)
    try:
        for receipt in receipts:
            if receipt._fate is not None:
                settled = receipts.index(receipt)
                raise RuntimeError(f"{receipt.method}: settled as {receipt._fate}, cannot become {fate}")
            receipt._fate = fate
            if receipt._event is not None:
                receipt._event.set()
    finally:
        if settled:
            ledger = receipts[0]._ledger
            ledger.pending[receipts[0]._place] -= settled
            ledger.count(fate, settled)
            if ledger.recorder is not None:
                ledger.recorder.messages_settled(receipts[:settled], fate)


class MessageRecorder(Protocol):
    """Records messages. Nothing here waits or raises."""

    def messages_emitted(self, receipts: Sequence[Receipt], /) -> None:
        """Record messages that the ledger counts from now on."""

    def messages_settled(self, receipts: Sequence[Receipt], fate: Fate, /) -> None:
        """Record the fate that messages have in common."""


class RemoteFates(Protocol):
    """The same event in the other processes that serve."""

    async def settled(self) -> Mapping[Fate, int]:
        """Wait until every copy there has its fate, and return how many have which."""


class Broadcast(Sequence[Receipt]):
    """The receipts of one event that was sent to many: one for each recipient that there was at the call in this process.

    Attributes:
        elsewhere: What tells of those in the other processes that serve; empty if there are none. For the bus.
    """

    __slots__ = ("_receipts", "elsewhere")

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self._receipts = tuple(receipts)
        self.elsewhere: tuple[RemoteFates, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | Sequence[Receipt]:
        return self._receipts[index]

    def __len__(self) -> int:
        return len(self._receipts)

    def __iter__(self) -> Iterator[Receipt]:
        return iter(self._receipts)

    @property
    def fates(self) -> Mapping[Fate | None, int]:
        """How many copies have which fate; pending ones count under None."""
        counts: dict[Fate | None, int] = {}
        for receipt in self._receipts:
            counts[receipt.fate] = counts.get(receipt.fate, 0) + 1
        return counts

    async def settled(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        everywhere: bool = False,
    ) -> Mapping[Fate | None, int]:
        """Wait until every copy has its fate, and return how many have which.

        Args:
            timeout: How long to wait at most, in seconds; None waits as long as it takes.
            everywhere: Whether those in the other processes that serve count as well; ask soon, since they remember it for a while. A
                process that has ended, or cannot be reached, or has forgotten it counts as one copy, which is discarded as `UNREACHABLE`.

        Raises:
            trio.TooSlowError: Some are still pending after `timeout` seconds.
        """
        counts: dict[Fate | None, int] = {}

        async def add(elsewhere: RemoteFates) -> None:
            for fate, count in (await elsewhere.settled()).items():
                counts[fate] = counts.get(fate, 0) + count

        with trio.fail_after(float("inf") if timeout is None else timeout):
            async with trio.open_nursery() as nursery:
                for elsewhere in self.elsewhere if everywhere else ():
                    nursery.start_soon(add, elsewhere)
                for receipt in self._receipts:
                    await receipt.settled()
        for fate, count in self.fates.items():
            counts[fate] = counts.get(fate, 0) + count
        return counts

    def __repr__(self) -> str:
        return f"<Broadcast to {len(self)}>"
