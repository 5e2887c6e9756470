"""The sessions of the processes that serve as one, as each speaks to those of the others."""

from typing import Final
from weakref import WeakValueDictionary

import msgspec
import trio

from mcpbus.cluster.courier import OrderedSessionSender, PeerNodes, encode_fate, say
from mcpbus.cluster.directory import SessionClaim
from mcpbus.cluster.frames import FrameKind
from mcpbus.cluster.link import Link
from mcpbus.cluster.messages import decode_tell
from mcpbus.cluster.names import SignedIds
from mcpbus.cluster.records import Records, decode_record
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.hub import Hub
from mcpbus.core.notification import OutboundNotification
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.receipt import Receipt
from mcpbus.core.remote_session import RemoteSession
from mcpbus.core.session import Session
from mcpbus.protocol.principals import digest_of
from mcpbus.protocol.revisions import REVISIONS

_SETTLE_SECONDS: Final = 1.0
"""How long a process that ends waits for its sessions to be taken over to which something is still to be said."""


class ClusterSessions:
    """See `mcpbus.core.other_processes.RemoteSessionLookup`.

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
        """See `mcpbus.core.other_processes.RemoteSessionLookup`."""
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
        """See `mcpbus.core.services.BusServices`: a session that was elsewhere has come here, and something is still on its way to it."""
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
