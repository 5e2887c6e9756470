"""How a process goes on with a session of one that has ended: the handshake is made once more, from what is kept of it."""

import logging
from typing import Any, get_args

import msgspec
import trio

from mcpbus.cluster.directory import Directory
from mcpbus.cluster.records import SessionRecord, decode_record
from mcpbus.core.hub import Hub
from mcpbus.core.session import Close, Initialized, Session
from mcpbus.dispatch.handshake import Registration
from mcpbus.protocol.messages import InitializeParams, ListName
from mcpbus.protocol.owners import Peer
from mcpbus.protocol.principals import digest_of
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.protocol.routes import TransportKind

_log = logging.getLogger("mcpbus")


class _Result(msgspec.Struct):
    """What initialize is answered."""

    capabilities: dict[str, dict[str, Any]]


_decode_result = msgspec.json.Decoder(_Result).decode


class Adoptions:
    """The sessions that one process takes over.

    Args:
        directory: Where they are kept.
        home: The process.
        bus: Its bus.
    """

    def __init__(self, directory: Directory, home: str, bus: Hub) -> None:
        self._directory = directory
        self._home = home
        self._bus = bus
        self._going_on: dict[str, trio.Event] = {}

    async def settled(self, name: str) -> None:
        """Wait until a session is here that is being taken over."""
        while name in self._going_on:
            await self._going_on[name].wait()

    async def adopt(self, name: str, owner: str, principal: Any, peer: Peer) -> None:
        """Take a session over, if it is this principal's and nobody else does.

        Args:
            name: The session.
            owner: The process that had it, which has ended.
            principal: Who asks for it.
            peer: From where they come.

        Raises:
            Overloaded: There is no room for it.
        """
        await self.settled(name)
        encoded = self._directory.record(owner, name)
        if encoded is None:
            return
        record = decode_record(encoded)
        if record.principal != digest_of(principal):
            return
        session = self._bus.open_session(TransportKind[record.transport], principal, peer, name)
        done = self._going_on[name] = trio.Event()
        try:
            if not self._directory.claim(name, owner, self._home):
                session.address.tell(Close(None))
                return
            with trio.CancelScope(shield=True):  # it is ours now, whether this client waits for it or not
                registered = await self._register(session, record)
            if not registered:
                self._directory.drop(self._home, name)
        finally:
            del self._going_on[name]
            done.set()

    async def _register(self, session: Session, record: SessionRecord) -> bool:
        """Make the handshake, and return whether that went well."""
        said = {
            "protocolVersion": record.revision,
            "capabilities": record.client_capabilities,
            "clientInfo": record.client_info,
        }
        params = msgspec.convert(said, InitializeParams)
        registration = Registration(self._bus, session, params, REVISIONS[record.revision])
        prepared = False
        try:
            await registration.prepare()
            prepared = True
        except Exception:  # noqa: BLE001 - the author's own code
            _log.exception("a session of a process that has ended could not be taken over, and ends")
        finally:
            if not prepared:
                registration.abandon()
        if prepared:
            self._restore(session, record, registration.complete())
        return prepared

    def _restore(self, session: Session, record: SessionRecord, result: bytes) -> None:
        """Have a session be as it was, and hear of what may have changed while nobody had it."""
        session.threshold.level = record.level
        for uri in record.subscriptions:
            session.subscribe(uri)
        if record.initialized:
            session.address.tell(Initialized())
        self._bus.changed(session)
        capabilities = _decode_result(result).capabilities
        for name in get_args(ListName):
            if capabilities.get(name, {}).get("listChanged"):
                session.list_changed(name)
        for uri in record.subscriptions:
            self._bus.tell_update(uri, [session.address])
