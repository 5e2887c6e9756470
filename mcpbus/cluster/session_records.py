"""What is kept of a session, so that another process can go on with it."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import msgspec
import trio

from mcpbus.cluster.background_tasks import BackgroundTasks
from mcpbus.cluster.directory import (
    ClusterDirectory,
    FencedError,
    SessionClaim,
    StoredHeldMessage,
    unreachable_directory,
)
from mcpbus.cluster.held_store import DirectoryHeldStore, restore
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.concurrency import ActiveCounter
from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.receipt import LOST, MOVED, Fate
from mcpbus.core.sessions.held_queue import SayElsewhere
from mcpbus.core.sessions.messages import SessionTakenOver
from mcpbus.core.sessions.session import Session, SessionStage
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.principals import digest_of

_log = logging.getLogger("mcpbus")


class SessionRecord(msgspec.Struct, array_like=True, frozen=True):
    """A session of Streamable HTTP, without what it has in flight; what is held for its client is kept beside it.

    Attributes:
        transport: How its client is connected.
        revision: The revision that it negotiated.
        client_info: What the client said of itself, in JSON, whose numbers are larger than those of this encoding.
        client_capabilities: Likewise.
        principal: A digest of whose it is.
        level: From which level it is sent log lines.
        subscriptions: The URIs that it subscribed to.
    """

    transport: str
    revision: str
    client_info: bytes
    client_capabilities: bytes
    principal: bytes
    level: LogLevel | None
    subscriptions: list[str]


_encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(SessionRecord).decode

DIRECTORY_SECONDS: Final = 1.0
"""How long a directory may take to answer."""


class _RecordEntry:
    """A session that is here.

    Attributes:
        ownership: By which this process has it.
        created: Whether anything may be kept of it.
        lock: One write of it at a time, each of what is so at its moment.
        due: Whether a write waits of which nobody waits for the end.
        leaving: Whether it is being let go of, so that what is held from now on is not kept: others may find it too late.
        held: What is held for its client; None if nothing ever was.
        writing: Whether that is being written.
        last: The highest number of what another process held for its client.
        found: The names of all that.
    """

    def __init__(self, ownership: SessionClaim, *, created: bool) -> None:
        self.ownership = ownership
        self.created = created
        self.lock = trio.Lock()
        self.due = False
        self.leaving = False
        self.held: DirectoryHeldStore | None = None
        self.writing = False
        self.last = 0
        self.found: Collection[str] = ()


class Records:
    """Keeps the sessions of one process in the directory; see `mcpbus.core.sessions.remote.SessionStore`.

    Args:
        directory: Keeps them.
        home: The process.
        chores: Where it is written what nobody waits for.

    Attributes:
        pass_on: Has a message said by who has a session now, given by what this process had it, the message, and its name if it may be kept.
    """

    pass_on: Callable[[SessionClaim, OutboundMessage, str | None], object]

    def __init__(self, directory: ClusterDirectory, home: str, chores: BackgroundTasks) -> None:
        self._directory = directory
        self._home = home
        self._chores = chores
        self._entries: dict[str, _RecordEntry] = {}
        self._leaving: dict[str, _RecordEntry] = {}
        self._writes = ActiveCounter()
        self._complaints = RateLimitedLogger(_log)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask the directory for something within the block.

        Raises:
            ServerOverloaded: It did not answer, or not in time.
        """
        try:
            with trio.fail_after(DIRECTORY_SECONDS):
                yield
        except (OSError, trio.TooSlowError) as error:
            why = str(error) or f"it has not answered for {DIRECTORY_SECONDS:g} s"
            self._complaints.warn("the directory of sessions cannot be asked: %s", why)
            raise unreachable_directory() from error

    @property
    def ownerships(self) -> list[SessionClaim]:
        """By what this process has its sessions."""
        return [entry.ownership for entry in self._entries.values()]

    def is_leaving(self, name: str) -> bool:
        """Whether a session has ended here, and is still to be forgotten."""
        return name in self._leaving

    def enter(self, ownership: SessionClaim) -> None:
        """Have a session that was taken over."""
        self._entries[ownership.name] = _RecordEntry(ownership, created=True)

    def restore(self, session: Session, held: Mapping[str, StoredHeldMessage]) -> None:
        """Have a session that was taken over hold what was held for its client."""
        entry = self._entries[session.id]
        entry.last, entry.found = max(map(int, held), default=0), frozenset(held)
        restore(session, session.bus.ledger, held)

    def stash_of(self, session: Session) -> DirectoryHeldStore | None:
        """See `SessionStore`."""
        entry = self._entries.get(session.id)
        if entry is None or entry.leaving:
            return None
        if entry.held is None:
            write = partial(self._write_soon, session, entry)
            entry.held = DirectoryHeldStore(session, self._directory, entry.ownership, write, entry.last)
        return entry.held

    def _write_soon(self, session: Session, entry: _RecordEntry, held: DirectoryHeldStore) -> None:
        if not entry.writing and self._entries.get(session.id) is entry:
            entry.writing = True
            self._chores.start_soon(self._write_held, session, entry, held)

    async def _write_held(self, session: Session, entry: _RecordEntry, held: DirectoryHeldStore) -> None:
        try:
            while held.is_due and self._entries.get(session.id) is entry:
                try:
                    async with entry.lock:
                        await held.write(self._ask)
                except FencedError:
                    self._lose(session)
                except ServerOverloaded:
                    await trio.sleep(DIRECTORY_SECONDS)
        finally:
            entry.writing = False

    async def release(self, sessions: Iterable[Session]) -> Mapping[str, SayElsewhere]:
        """Let go of sessions, of which nothing is said here any more; returns when other processes may take them over.

        Returns:
            What has a message said by who takes them over, by session; see `pass_on`. Some may not have been here any more.
        """
        leaving: list[SessionClaim] = []
        for session in sessions:
            entry = self._entries.get(session.id)
            if entry is not None:
                await self._complete(session, entry)
                leaving.append(entry.ownership)
        await _until_answered(self._let_go, leaving)
        for ownership in leaving:
            self._entries.pop(ownership.name, None)
        return {ownership.name: partial(self.pass_on, ownership) for ownership in leaving}

    async def _complete(self, session: Session, entry: _RecordEntry) -> None:
        """Write what is still to be kept of a session, if there is anything, and keep nothing more of it."""
        entry.leaving = True
        if entry.held is not None:
            entry.held.close()
        if entry.due or entry.lock.locked() or (entry.held is not None and entry.held.is_due):
            with suppress(FencedError):  # somebody else has it
                await _until_answered(self._write_rest, session, entry)

    async def _write_rest(self, session: Session, entry: _RecordEntry) -> None:
        if entry.due and self._entries.get(session.id) is entry:
            await self._keep_due(session, entry)
        async with entry.lock:
            if entry.held is not None and entry.held.is_due:
                await entry.held.write(self._ask)

    async def _let_go(self, ownerships: Sequence[SessionClaim]) -> None:
        with self.asking():
            await self._directory.release(ownerships)

    async def _ask(self, answer: Awaitable[None]) -> None:
        with self.asking():
            await answer

    async def keep(self, session: Session) -> None:
        """See `SessionStore`."""
        entry = self._entries.get(session.id)
        if entry is None and session.stage is not SessionStage.REGISTERING:
            raise _elsewhere()
        if entry is None:
            entry = _RecordEntry(SessionClaim(session.id, self._home), created=False)
            self._entries[session.id] = entry
        try:
            with self.asking():  # and waiting for who asks it already
                async with entry.lock:
                    entry.due = False
                    await self._write(entry, _encode(_describe(session)))
        except FencedError:
            self._lose(session)
            raise _elsewhere() from None

    async def _write(self, entry: _RecordEntry, record: bytes) -> None:
        if entry.created:
            await self._directory.update(entry.ownership, record)
        else:
            await self._directory.create(entry.ownership, record)
            entry.created = True

    def note(self, session: Session) -> None:
        """See `SessionStore`."""
        entry = self._entries.get(session.id)
        if entry is not None and not entry.due:
            entry.due = True
            self._chores.start_soon(self._keep_soon, session, entry)

    async def _keep_soon(self, session: Session, entry: _RecordEntry) -> None:
        while entry.due and self._entries.get(session.id) is entry:
            try:
                await self._keep_due(session, entry)
            except ServerOverloaded:
                await trio.sleep(DIRECTORY_SECONDS)

    async def _keep_due(self, session: Session, entry: _RecordEntry) -> None:
        try:
            await self.keep(session)
        except ServerOverloaded:
            entry.due = True
            raise

    def drop(self, session: Session) -> bool:
        """See `SessionStore`."""
        entry = self._entries.pop(session.id, None)
        if entry is None:
            return False
        self._leaving[session.id] = entry
        self._writes.opened()
        self._chores.start_soon(self._remove, session.id, entry)
        return True

    async def _remove(self, name: str, entry: _RecordEntry) -> None:
        try:
            async with entry.lock:
                with suppress(FencedError):
                    await _until_answered(self._forget, entry)
        finally:
            del self._leaving[name]
            self._writes.ended()

    async def _forget(self, entry: _RecordEntry) -> None:
        with self.asking():
            await self._directory.remove(entry.ownership)

    def fate_of_held(self, session_id: str, epoch: int, name: str) -> Fate | None:
        """Return what became of a message that another process has held for the client of a session that is here now.

        What was to be kept by that name is kept, or will never be, since this process has the session.

        Args:
            session_id: The session.
            epoch: That in which the other one had it.
            name: By which the message may have been kept.

        Returns:
            None if it is still to be said here; `MOVED` if it was found, and lost if yet another one may have found it.
        """
        entry = self._entries.get(session_id)
        if entry is None or entry.ownership.epoch != epoch + 1:
            return LOST
        return MOVED if name in entry.found else None

    def check_for_takeovers(self, session: Session, found: SessionClaim) -> None:
        """Take note of who has a session that is here, as the directory has it."""
        entry = self._entries.get(session.id)
        # The directory may have lost a later epoch.
        if entry is not None and found.epoch > entry.ownership.epoch:
            self._lose(session)

    def _lose(self, session: Session) -> None:
        """Another process has a session: it ends here, and that one is told what is still to be said."""
        entry = self._entries.pop(session.id, None)
        if entry is not None:
            if entry.held is not None:
                entry.held.close()
            # Once it is said to whoever asked for the write.
            self._chores.start_soon(_leave_to, session, partial(self.pass_on, entry.ownership))

    async def settle(self) -> None:
        """Wait until it is forgotten what has ended, or the directory does not answer."""
        with trio.move_on_after(DIRECTORY_SECONDS):
            await self._writes.wait_none()


def _elsewhere() -> ServerOverloaded:
    return ServerOverloaded("Another process has this session now; try again")


async def _until_answered(ask: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Ask the directory, again and again until it answers: nobody tells when it can be asked again."""
    while True:
        try:
            await ask(*args)
        except ServerOverloaded:
            await trio.sleep(DIRECTORY_SECONDS)
        else:
            return


async def _leave_to(session: Session, pass_on: SayElsewhere) -> None:
    await trio.lowlevel.checkpoint()
    session.address.tell(SessionTakenOver(pass_on))


def _describe(session: Session) -> SessionRecord:
    """Return what another process would have to know to go on with a session."""
    assert session.revision is not None  # noqa: S101 - it has begun
    return SessionRecord(
        session.transport.name,
        session.revision.name,
        msgspec.json.encode(session.client_info),
        msgspec.json.encode(session.client_capabilities),
        digest_of(session.principal),
        session.threshold.level,
        sorted(session.subscriptions),
    )
