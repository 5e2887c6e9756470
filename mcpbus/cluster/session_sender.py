"""What is told to one session that another process has: in order, within bounds, and wherever the session goes meanwhile.

The sessions of the processes that serve as one, as each speaks to those of the others.
"""

import logging
from bisect import insort
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec
import trio

from mcpbus.cluster.directory import SessionClaim, StoredSession, is_released
from mcpbus.cluster.link import Link
from mcpbus.cluster.messages import FrameKind, SendFate, SendToSession, decode_tell, decode_told, encode
from mcpbus.cluster.session_records import Records, decode_record
from mcpbus.cluster.signed_ids import SignedIds
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.concurrency import ActiveCounter, ReportErrors
from mcpbus.core.hub import Hub
from mcpbus.core.memory_budget import MemoryAccount
from mcpbus.core.outbound import RESOURCE_UPDATED, OutboundNotification
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.core.receipt import DELIVERED, LOST, MOVED, STORED, Fate, Location, Receipt
from mcpbus.core.sessions.remote import RemoteSession
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.principals import digest_of
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.protocol.routes import MessageKind as Said
from mcpbus.protocol.routes import Reason

_log = logging.getLogger("mcpbus")

_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
"""Between two looks for who has the session: each pause is twice the last one."""

_KINDS: Final = {kind.value: kind for kind in Said}
_FATES: Final = {str(fate): fate for fate in (DELIVERED, STORED, MOVED, *map(Fate.discarded, Reason))}


def encode_fate(fate: Fate) -> bytes:
    """Write a fate down."""
    return encode(SendFate(fate.kind.value, None if fate.reason is None else fate.reason.value))


def decode_fate(payload: bytes) -> Fate:
    """Return the fate of something; lost if it is one that is not known here."""
    told = decode_told(payload)
    return fate_of(told.verdict, told.reason)


def fate_of(verdict: str, reason: str | None) -> Fate:
    """Return the fate of that name; likewise."""
    return _FATES.get(verdict if reason is None else f"{verdict}: {reason}", LOST)


def say(session: Session, told: SendToSession, receipt: Receipt) -> None:
    """Say to a session that is here what it is told from elsewhere, unless it is of a kind that only newer processes have."""
    if told.kind is not None:
        kind = _KINDS.get(told.kind)
        if kind is None:
            receipt.discard(Reason.UNREACHABLE)
            return
        key = None if told.uri is None else (RESOURCE_UPDATED, told.uri)
        session.say_now(OutboundNotification(kind, receipt, told.data, key, told.level, told.uri))
    elif session.address.stopped:
        receipt.discard(Reason.SESSION_ENDED)
    else:
        session.close()
        receipt.settle(DELIVERED)


class PeerNodes(Protocol):
    """Leads to the other processes that serve as one; see `mcpbus.cluster.node.Node`."""

    @property
    def home(self) -> str:
        """This process."""

    def link(self, home: str, /) -> Link | None:
        """Return the link to a process, if there is one now."""

    async def reach(self, home: str, /) -> Link | None:
        """Return a link to a process; None if it has ended."""

    async def look(self, session: str, /) -> StoredSession | None:
        """Return what is kept of a session."""

    def start(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a task until this process ends."""


class OrderedSessionSender:
    """Tells things to one session; a `mcpbus.core.sessions.remote.RemoteSessionSender`.

    Where the session is, it is said at once, and the link carries it in order. While that is not known, or cannot be reached, it waits here; so
    does what comes back since the session was not there any more, and what has crossed the goodbye of that process, which has not looked at it.
    Where there is no memory for what is on its way until it is known what became of that, it is not told again.

    Args:
        others: Leads to them.
        bus: The bus of this process.
        patience: Seconds for which something is tried to be told.
        name: The session.
        home: Where it was last.
    """

    def __init__(self, others: PeerNodes, bus: Hub, patience: float, name: str, home: str) -> None:
        self._others = others
        self._bus = bus
        self._patience = patience
        self._name = name
        self._home = home
        self._count = self._items = self._bytes = 0
        self._waiting: list[_Delivery] = []
        self._kept: set[_Delivery] = set()  # those whose text is still here
        self._runs = ActiveCounter()  # one at most
        self._account = self._open_account()

    @property
    def busy(self) -> bool:
        """Whether the fate of something that was told is not known yet: it may come back, and be told again."""
        return self._items > 0

    def tell(self, said: OutboundNotification) -> None:
        """See `RemoteSessionSender`."""
        told = SendToSession(
            self._name, said.kind.value, said.receipt.method, said.data, said.level, said.uri
        )
        self._send(said.receipt, told)

    def pass_on(self, message: OutboundMessage, held: tuple[int, str] | None) -> None:
        """Tell what was to be said to the session while it was here; see `SendToSession`."""
        key = message.key
        uri = key[1] if message.kind is Said.RESOURCE_UPDATED and isinstance(key, tuple) else None
        told = SendToSession(
            self._name, message.kind.value, message.receipt.method, message.data, None, uri, held
        )
        self._send(message.receipt, told)

    def close(self, receipt: Receipt) -> None:
        """See `RemoteSessionSender`."""
        self._send(receipt, SendToSession(self._name, None, receipt.method, b"", None, None))

    def _send(self, receipt: Receipt, told: SendToSession) -> None:
        limits, payload = self._bus.limits, encode(told)
        size = len(payload) + OVERHEAD_BYTES
        receipt.move(Location.REMOTE)
        if self._bus.system.closed:
            receipt.discard(Reason.UNREACHABLE)
        elif self._items >= limits.outbox_items:
            self._refuse(receipt, "outbox_items")
        elif self._bytes + size > limits.outbox_bytes:
            self._refuse(receipt, "outbox_bytes")
        else:
            self._count += 1
            self._items += 1
            self._bytes += size
            delivery = _Delivery(self, self._count, receipt, payload, trio.current_time() + self._patience)
            link = None if self._waiting else self._others.link(self._home)
            if link is None:
                self.wait(delivery)
            else:
                self._send_over(link, delivery)

    def _send_over(self, link: Link, delivery: "_Delivery") -> None:
        delivery.send(link)
        self._keep(delivery)

    def _refuse(self, receipt: Receipt, full: str) -> None:
        receipt.discard(Reason.OVERFLOW)
        self._bus.limit_monitor.note(full, None, "what was said to a session elsewhere was discarded")

    def wait(self, delivery: "_Delivery") -> None:
        """Have something wait, before what was said after it."""
        insort(self._waiting, delivery, key=lambda waiting: waiting.number)
        if not self._runs:
            self._runs.opened()
            self._others.start(self._run)
        self._keep(delivery)

    def _keep(self, delivery: "_Delivery") -> None:
        """Count the text of something, which is kept for the case that it has to be told again. It may be gone when this returns."""
        if delivery not in self._kept:
            self._kept.add(delivery)
            self._account.hold(delivery.size)

    def _drop(self, delivery: "_Delivery") -> None:
        if delivery in self._kept:
            self._kept.remove(delivery)
            self._account.release(delivery.size)

    async def wait_told(self) -> None:
        """Wait until nothing waits any more for who has the session to be found."""
        await self._runs.wait_none()

    def let_go(self, delivery: "_Delivery") -> None:
        """Count something no longer."""
        self._items -= 1
        self._bytes -= delivery.size
        self._drop(delivery)

    def settle(self, delivery: "_Delivery", fate: Fate) -> None:
        """Note what became of something."""
        self.let_go(delivery)
        delivery.receipt.settle(fate)

    def _open_account(self) -> MemoryAccount:
        return self._bus.budget.account("what is told to a session elsewhere", self._make_room)

    def _make_room(self) -> None:
        self._discard_all(Reason.OVERFLOW)
        for delivery in tuple(self._kept):
            self._drop(delivery)
            delivery.forget()
        self._account = self._open_account()  # the old one has ended

    def _discard_all(self, reason: Reason) -> None:
        for delivery in self._take():
            self.settle(delivery, Fate.discarded(reason))

    def _take(self, count: int | None = None) -> "list[_Delivery]":
        """Take what has waited for longest; all of it, unless told otherwise. It is to be told at once, and its text not forgotten before."""
        taken, self._waiting[:count] = self._waiting[:count], []
        for delivery in taken:
            self._drop(delivery)
        return taken

    async def _run(self) -> None:
        """Find the session, and tell it what waits, until nothing does."""
        try:
            with ReportErrors(_report):
                while self._waiting:
                    await self._carry(self._waiting[0])
        finally:
            self._runs.ended()
            self._discard_all(Reason.UNREACHABLE)  # this process ends, or it cannot be found out

    async def _carry(self, first: "_Delivery") -> None:
        found: Link | Session | Reason = Reason.UNREACHABLE
        with trio.move_on_at(first.deadline):
            found = await self._find(first.attempts)
        if found is Reason.UNREACHABLE:
            if self._waiting[:1] == [first]:
                self._take(1)
                self.settle(first, Fate.discarded(found))
        elif isinstance(found, Reason):
            self._discard_all(found)
        elif isinstance(found, Session):
            for delivery in self._take():
                delivery.say(found)
        else:
            for delivery in self._take():
                self._send_over(found, delivery)

    async def _find(self, attempts: int) -> Link | Session | Reason:
        """Find who has the session; why it can be told nothing, if nobody will.

        Args:
            attempts: How often what waits has been told to a process that did not have it.
        """
        pause = min(_PAUSE_SECONDS * 2**attempts, _LONGEST_PAUSE)
        if attempts:
            await trio.sleep(pause)
        while True:
            found: Link | Session | Reason | None = None
            with suppress(ServerOverloaded):
                found = await self._look()
            if found is not None:
                return found
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _look(self) -> Link | Session | Reason | None:
        """Look once; None if somebody may have it soon.

        Raises:
            ServerOverloaded: It cannot be known now; or who has it cannot be reached.
        """
        kept = await self._others.look(self._name)
        session = self._bus.sessions.get(self._name)
        if session is not None:
            return session
        if kept is None:
            return Reason.SESSION_ENDED
        home = kept.ownership.home
        if home == self._others.home or is_released(home):
            return None
        self._home = home
        link = await self._others.reach(home)
        return None if link is None or link.closed else link


def _report(failure: BaseException) -> None:
    _log.error("it could not be found out which process has a session", exc_info=failure)


class _Delivery:
    """One thing that is told; a `mcpbus.cluster.link.LinkChannel` while it is.

    Attributes:
        number: Those with lower ones were said before.
        receipt: Its receipt here.
        size: How many bytes it counts for.
        deadline: Until when it is tried to be told.
        attempts: How often it was told to a process that did not have the session.
    """

    def __init__(
        self, courier: OrderedSessionSender, number: int, receipt: Receipt, payload: bytes, deadline: float
    ) -> None:
        self.number = number
        self.receipt = receipt
        self.size = len(payload) + OVERHEAD_BYTES
        self.deadline = deadline
        self.attempts = 0
        self._courier = courier
        self._payload = payload
        self._link: Link | None = None
        self._channel = -1

    def send(self, link: Link) -> None:
        """Tell it over a link, which has it from now on."""
        self._link = link
        self._channel = link.open(self, self._payload, FrameKind.TELL)

    def forget(self) -> None:
        """Keep no longer what is told, and is on its way."""
        self._payload = b""

    def say(self, session: Session) -> None:
        """Say it to a session that is here now."""
        told = decode_tell(self._payload)
        if told.held is not None:  # between then and now another process had it
            self._courier.settle(self, LOST)
        else:
            self._courier.let_go(self)
            self.receipt.move(Location.MAILBOX)
            say(session, told, self.receipt)

    def take(self, kind: int, payload: bytes) -> None:
        """See `LinkChannel`."""
        assert self._link is not None  # noqa: S101 - it has come over one
        if kind == FrameKind.TOLD:
            self._link.leave(self._channel)
            self._courier.settle(self, decode_fate(payload))
        elif kind == FrameKind.ELSEWHERE:
            self._link.leave(self._channel)
            self._again(payload)
        elif kind == FrameKind.GOODBYE:
            self._link.leave(self._channel)  # that it is lost, too, is for others
            if self._payload:
                self._again(self._payload)
            else:
                self.lose()

    def _again(self, payload: bytes) -> None:
        self._payload = payload
        self.attempts += 1
        self._courier.wait(self)

    def lose(self) -> None:
        """See `LinkChannel`."""
        self._courier.settle(self, LOST)


_SETTLE_SECONDS: Final = 1.0
"""How long a process that ends waits for its sessions to be taken over to which something is still to be said."""


class ClusterSessions:
    """See `mcpbus.core.sessions.remote.RemoteSessionLookup`.

    Args:
        others: Leads to them.
        names: Reads those of all of their sessions.
        bus: The bus of this process.
        records: Its sessions, as they are kept.
        patience: Seconds for which something is tried to be told.
    """

    def __init__(
        self, others: PeerNodes, names: SignedIds, bus: Hub, records: Records, patience: float
    ) -> None:
        self._others = others
        self._names = names
        self._bus = bus
        self._records = records
        self._patience = patience
        self._couriers: WeakValueDictionary[str, OrderedSessionSender] = WeakValueDictionary()

    async def find(self, session_id: str, principal: object) -> Session | RemoteSession | None:
        """See `mcpbus.core.sessions.remote.RemoteSessionLookup`."""
        await trio.lowlevel.checkpoint()
        if self._names.home_of(session_id) is None:
            return None
        kept = await self._others.look(session_id)
        if session_id in self._bus.sessions:  # it was taken over meanwhile
            return await self._bus.find_session(session_id, principal)
        if kept is None:
            return None
        try:
            record = decode_record(kept.record)
            revision = REVISIONS[record.revision]
        except (msgspec.DecodeError, UnicodeError, KeyError) as error:
            raise ServerOverloaded("The process that has this session is of another version") from error
        if record.principal != digest_of(principal):
            return None
        courier = self._courier(session_id, kept.ownership.home)
        return RemoteSession(self._bus, session_id, revision, courier)

    def pass_on(self, ownership: SessionClaim, message: OutboundMessage, name: str | None) -> None:
        """Have a message said by who has a session now that was here; see `Records`."""
        held = None if name is None else (ownership.epoch, name)
        self._courier(ownership.name, ownership.home).pass_on(message, held)

    def say_in_order(self, session_id: str, said: OutboundNotification) -> bool:
        """See `mcpbus.core.bus_services.BusServices`: a session that was elsewhere has come here, and something is still on its way to it."""
        courier = self._couriers.get(session_id)
        if courier is None or not courier.busy:
            return False
        courier.tell(said)
        return True

    async def settle(self) -> None:
        """Wait until nothing waits any more for who has a session that was here, or for so long that nobody may come for it soon."""
        with trio.move_on_after(_SETTLE_SECONDS):
            for courier in [*self._couriers.values()]:
                await courier.wait_told()

    def _courier(self, session_id: str, home: str) -> OrderedSessionSender:
        courier = self._couriers.get(session_id)
        if courier is None:
            courier = OrderedSessionSender(self._others, self._bus, self._patience, session_id, home)
            self._couriers[session_id] = courier
        return courier

    def tell(self, link: Link, channel: int, payload: bytes) -> None:
        """See `mcpbus.cluster.link.LinkHandler`. Who tells something to a session that is not here has it back, to tell it elsewhere."""
        told = decode_tell(payload)
        session = self._bus.sessions.get(told.session)
        if session is None:
            link.send(FrameKind.ELSEWHERE, channel, payload)
            return
        fate = None if told.held is None else self._records.fate_of_held(told.session, *told.held)
        if fate is not None:
            link.send(FrameKind.TOLD, channel, encode_fate(fate))
            return
        receipt = self._bus.ledger.adopt(told.method)
        say(session, told, receipt)
        self._others.start(_tell_fate, link, channel, receipt)


async def _tell_fate(link: Link, channel: int, receipt: Receipt) -> None:
    """Tell what became of a message, once it is known; there are no more of these than messages that wait."""
    link.send(FrameKind.TOLD, channel, encode_fate(await receipt.settled()))
