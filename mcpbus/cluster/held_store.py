"""What is held for the client of a session, written to the directory behind what is done meanwhile."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

import msgspec
import trio

from mcpbus.cluster.directory import ClusterDirectory, SessionClaim, StoredHeldMessage
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.receipt import Ledger
from mcpbus.core.sessions.messages import HeldMessagesReleased, RestoreHeldMessage, Stored
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind


class _HeldRecord(msgspec.Struct, array_like=True, frozen=True):
    """A message, as it is kept."""

    kind: str
    method: str
    data: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_HeldRecord).decode
_KINDS: Final[Mapping[str, MessageKind]] = MessageKind.__members__

_AT_ONCE: Final = 500
"""Messages that the directory is told at once to keep no longer; while it is away there are ever more."""


class DirectoryHeldStore:
    """Keeps what is held for one session; a `mcpbus.core.sessions.session.SessionHeldStore`.

    Each message has a number for a name, higher than those before it, whichever process held them. What was sent to the directory leaves it
    before it is written to the client, also where it did not answer: so no client is told the same by two processes.

    Args:
        session: The session.
        directory: Where it is kept.
        ownership: By which this process has it.
        write: Has `write_all` run soon.
        after: The highest number that was given.
    """

    def __init__(
        self,
        session: Session,
        directory: ClusterDirectory,
        ownership: SessionClaim,
        write: Callable[["DirectoryHeldStore"], object],
        after: int,
    ) -> None:
        self._session = session
        self._directory = directory
        self._ownership = ownership
        self._write = write
        self._last = after
        self._unwritten: dict[str, tuple[bytes, float]] = {}
        self._tried: set[str] = set()  # of those that are unwritten, those of which that is not known
        self._gone: set[str] = set()
        self._taking = False
        self._closed = False

    def hold(self, message: OutboundMessage, seconds: float) -> str | None:
        """See `SessionHeldStore`."""
        if self._closed:
            return None
        self._last += 1
        name = str(self._last)
        data = _encode(_HeldRecord(message.kind.name, message.receipt.method, message.data))
        self._unwritten[name] = (data, trio.current_time() + seconds)
        self._write(self)
        return name

    def forget(self, names: Collection[str]) -> None:
        """See `SessionHeldStore`."""
        for name in names:
            if self._unwritten.pop(name, None) is None or name in self._tried:
                self._gone.add(name)
        if self._gone:
            self._write(self)

    def take(self, names: Collection[str]) -> None:
        """See `SessionHeldStore`."""
        self._taking = True
        self.forget(names)
        self._write(self)

    def close(self) -> None:
        """Keep nothing that is held from now on."""
        self._closed = True

    @property
    def is_due(self) -> bool:
        """Whether there is something to be written."""
        return bool(self._unwritten or self._gone or self._taking)

    async def write(self, asking: Callable[[Awaitable[None]], Awaitable[None]]) -> None:
        """Write what is there to be written, and tell the session. One at a time.

        Args:
            asking: Waits for an answer of the directory.

        Raises:
            Overloaded: It did not answer. Nothing is lost of it.
            FencedError: Another process has the session.
        """
        unwritten, gone, taking = self._unwritten, self._gone, self._taking
        self._unwritten, self._gone, self._taking = {}, set(), False
        now = trio.current_time()
        held = {name: StoredHeldMessage(data, due - now) for name, (data, due) in unwritten.items()}
        names, written = [*gone], False
        try:
            while len(names) > _AT_ONCE:
                await asking(self._directory.pop_held(self._ownership, names[:_AT_ONCE]))
                del names[:_AT_ONCE]
            if held:
                await asking(self._directory.append_held(self._ownership, held, names))
            elif names:
                await asking(self._directory.pop_held(self._ownership, names))
            written = True
        finally:
            if not written:  # perhaps it was nevertheless
                still = {name: entry for name, entry in unwritten.items() if name not in self._gone}
                self._unwritten = still | self._unwritten
                self._tried = {*still}
                self._gone |= gone
                self._taking = self._taking or taking
        self._tried.clear()
        self._session.address.tell(Stored(held.keys()))
        if taking:
            self._session.address.tell(HeldMessagesReleased())


def restore(session: Session, ledger: Ledger, held: Mapping[str, StoredHeldMessage]) -> None:
    """Have a session hold what another process has held for it, but for what is of a kind that only newer ones have."""
    for name in sorted(held, key=int):
        message = _decode(held[name].data)
        kind = _KINDS.get(message.kind)
        if kind is None:
            continue
        receipt = ledger.adopt(message.method)
        outbound = OutboundMessage(kind, Era.LEGACY, message.data, receipt)
        session.address.tell(RestoreHeldMessage(outbound, name, held[name].seconds))
