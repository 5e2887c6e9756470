"""The connections to the upstream server, and the one that each call takes.

The state that an upstream server keeps for a connection belongs to one client. A legacy session has a connection of its own. A client
without a session has the connection of its principal, or of its peer address if it is anonymous, with the capabilities that it declares.
Only a server of 2026-07-28 at a URL keeps nothing between requests, and has one connection for all clients.

At a server that speaks both eras, clients of either one use a legacy revision, where the server opens sessions: its tools can ask, keep
state, and be there for one session alone. Without sessions, or where they get lost again and again, as behind a load balancer that does not
know them, clients use 2026-07-28 for a while. `Isolation` names the two other rules that an operator may choose.
"""

import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Literal, Self, TypeAlias

import attrs
import msgspec
import trio

from mcpbus.client.session import INFO
from mcpbus.core.fair_limiter import FairLimiter, FairToken
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.revisions import Revision
from mcpbus.upstream.connection import PLAIN, ConnectionKey, OneCall, UpstreamConnection
from mcpbus.upstream.target import NotYetError, OpenTimeoutError, Upstream, UpstreamError, told

_log = logging.getLogger("mcpbus")

WAIT_SECONDS: Final = 30.0
"""How long a call waits for a connection that others have, or that is being opened."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
"""Seconds in which no connection is tried, after one could not be opened; twice as many each time."""
_MODERN_SECONDS: Final = 300.0
"""For how long sessions go over what is everybody's, after one could have no connection of its own."""
_MOST_LOST: Final = 3
"""How many sessions of one connection may get lost, before clients use 2026-07-28 for a while."""
_MOST_LATE: Final = 3
"""How many connections with a session, one after the other, may not be there in time, before the same."""
_MOST_ERAS: Final = 3
"""For how many connections a call looks, each of which is for servers of another era than the one that it leads to."""

_ASKABLE: Final = {"elicitation": ("form", "url"), "roots": (), "sampling": ("tools", "context")}
"""What a client of ours can be asked, and so the other server may ask by way of this one, with the features of each."""


Isolation: TypeAlias = Literal["client", "call", "none"]
"""The owner of an upstream connection: one client, one call, or all clients that declare the same."""


@attrs.frozen
class Requester:
    """The client for which a request goes to the upstream server.

    Attributes:
        session: Its legacy session, or None.
        owner: The owner to which a new connection is counted.
        capabilities: The input requests that it accepts, see `asked_by_way`.
        reached: The counter of limits that were reached.
    """

    session: Session | None
    owner: Hashable
    capabilities: dict[str, Any]
    reached: LimitMonitor
    _client: RequestContext | Session

    @property
    def who(self) -> Hashable:
        """The key of its state at the upstream server, where that is not of its session."""
        return self._client.state_key

    @property
    def info(self) -> dict[str, Any] | None:
        """Its name and version; None if it has sent none."""
        return introduction(self._client)

    @classmethod
    def of(cls, client: RequestContext | Session, reached: LimitMonitor) -> Self:
        """Return the client that sent a request, or that has a session."""
        session = client if isinstance(client, Session) else client.legacy_session
        assert client.revision is not None  # noqa: S101 - a session that was registered has one
        declared = asked_by_way(client.client_capabilities, client.revision)
        return cls(session, client.owner, declared, reached, client)


@attrs.frozen
class _ConnectionRequest:
    """The connection that a call takes.

    Attributes:
        use: The owner of the connection, and what its client declares.
        session: The legacy session that owns it, if one does.
        capabilities: What its client declares.
        owner: The owner to which a new one is counted.
        reached: The counter of limits that were reached.
        modern: Whether the upstream server has to speak 2026-07-28 on it; None if that does not matter.
        legacy: Whether to speak a legacy revision although the server has 2026-07-28.
        requester: The client; None for the connection that belongs to none.
    """

    use: ConnectionKey
    session: Session | None
    capabilities: dict[str, Any]
    owner: Hashable
    reached: LimitMonitor
    modern: bool | None = None
    legacy: bool = False
    requester: Requester | None = None

    @property
    def info(self) -> dict[str, Any] | None:
        """The name and version of the client; None if it has sent none."""
        return None if self.requester is None else self.requester.info


@attrs.frozen
class _Failure:
    """Why there was no connection, for how many seconds none is tried, and until when."""

    why: Exception
    pause: float
    until: float


@attrs.frozen
class PoolState:
    """The connections to an upstream server at one moment.

    Attributes:
        open: How many are open.
        opening: How many are about to be.
        in_use: How many carry a call.
        waiting: How many calls wait until there may be one more.
        failure: Why the last one could not be opened, while none is tried.
        retry_seconds: In how many seconds one is tried again.
    """

    open: int
    opening: int
    in_use: int
    waiting: int
    failure: str | None
    retry_seconds: float | None


class UpstreamPool:
    """The connections of one opened proxy.

    Args:
        upstream: The other server.
        connections: How many there may be at once.
        hear: Hears what is said outside of calls on one of them, until it is lost; see `UpstreamConnection.run`.
        isolation: The owner of each connection.
    """

    def __init__(
        self,
        upstream: Upstream,
        connections: int,
        hear: Callable[[UpstreamConnection, Callable[[], None]], Awaitable[None]],
        isolation: Isolation = "client",
    ) -> None:
        self._upstream = upstream
        self._isolation = isolation
        self._hear = hear
        self._pipes: dict[ConnectionKey, list[UpstreamConnection]] = {}
        self._places = FairLimiter(
            connections, option="connections", waited=f"a call waited for a connection to {upstream.name}"
        )
        # Those that wait for room.
        self._waiting: set[UpstreamConnection] = set()
        self._modern: bool | None = None  # not known yet
        # From when on clients use a legacy revision at a server of 2026-07-28.
        self._legacy_from = -math.inf if upstream.negotiates else math.inf
        # The connections with a session that were not there in time, since one was, and when that was noticed last.
        self._late = 0
        self._late_at = -math.inf
        # By what the clients declared for whom there was no connection: another one may be let in. They are few, see `asked_by_way`.
        self._failures: dict[bytes, _Failure] = {}
        # Connections are opened by a task of the pool's own, not in the context of whichever call was first. There are no more than calls.
        self._sender, self._receiver = trio.open_memory_channel[
            tuple[UpstreamConnection, _ConnectionRequest]
        ](math.inf)

    async def run(self) -> None:
        """Open connections as they are wanted, until cancelled."""
        async with trio.open_nursery() as nursery:
            async for pipe, wanted in self._receiver:
                nursery.start_soon(self._run, pipe, wanted)

    def state(self) -> PoolState:
        """Return the state of the connections."""
        now = trio.current_time()
        pipes = [pipe for same in self._pipes.values() for pipe in same if not pipe.closing]
        failure = max(self._failures.values(), key=lambda each: each.until, default=None)
        if failure is not None and failure.until <= now:
            failure = None
        return PoolState(
            open=sum(pipe.is_open for pipe in pipes),
            opening=sum(not pipe.is_open for pipe in pipes),
            in_use=sum(pipe.borrow_count > 0 for pipe in pipes),
            waiting=self._places.waiting,
            failure=None if failure is None else told(failure.why),
            retry_seconds=None if failure is None else failure.until - now,
        )

    # -- lending ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def borrow(self, requester: Requester) -> AsyncIterator[UpstreamConnection]:
        """Lend a connection for a request of a client.

        Raises:
            UpstreamError: There is none, and none can be opened.
        """
        if self._modern is None:
            async with self.borrow_shared(requester.reached):
                pass
        patient = True
        for _ in range(_MOST_ERAS):
            wanted, began = self._wanted(requester, legacy=patient), trio.current_time()
            async with AsyncExitStack() as stack:
                try:
                    pipe = await stack.enter_async_context(self._lend(wanted, to_call=True))
                except UpstreamError as error:
                    if not wanted.legacy:
                        raise
                    if isinstance(error, OpenTimeoutError) and not self._is_often_late(began):
                        patient = False  # of this call alone: the next one may get a connection in time
                    else:
                        self.go_without(error)
                    continue
                if wanted.legacy and (fault := _useless(pipe)) is not None:
                    self.go_without(*fault, pipe)
                    continue
                if pipe.modern is wanted.modern:
                    yield pipe
                    return
        raise UpstreamError("it speaks another revision each time")

    @asynccontextmanager
    async def borrow_shared(self, reached: LimitMonitor) -> AsyncIterator[UpstreamConnection]:
        """Lend the connection that belongs to no client; as `borrow` in all else."""
        wanted = _ConnectionRequest(PLAIN, session=None, capabilities={}, owner=None, reached=reached)
        async with self._lend(wanted, to_call=False) as pipe:
            yield pipe

    def use_of(self, requester: Requester) -> ConnectionKey | None:
        """Return the use of the connection that belongs to a client alone, as far as is known; None if it has none for longer than a call."""
        use = self._wanted(requester).use
        return use if use.lasts else None

    def opened(self, use: ConnectionKey) -> UpstreamConnection | None:
        """Return an open connection of a use, if there is one."""
        return next((pipe for pipe in self._pipes.get(use, ()) if pipe.is_open), None)

    def opened_shared(self) -> UpstreamConnection | None:
        """Return an open connection that belongs to no client, if there is one; the one that shows what all see goes first."""
        shared = (
            pipe for use, pipes in self._pipes.items() for pipe in pipes if not use.owned and pipe.is_open
        )
        return min(shared, key=lambda pipe: pipe.use != PLAIN, default=None)

    def of_session(self, session: Session) -> list[UpstreamConnection]:
        """Return the connections that are a session's own."""
        return self._of(ConnectionKey(session.id))

    def _of(self, use: ConnectionKey) -> list[UpstreamConnection]:
        return [pipe for pipe in self._pipes.get(use, ()) if not pipe.closing]

    def forget(self, session: Session) -> None:
        """Close what was the own of a session that has ended."""
        for pipe in self.of_session(session):
            pipe.close()

    def _wanted(self, requester: Requester, *, legacy: bool = True) -> _ConnectionRequest:
        """Return the connection that a request takes, without a session at a server of 2026-07-28 unless `legacy`; see the module."""
        session, capabilities = requester.session, requester.capabilities
        owner, reached = requester.owner, requester.reached
        own = self._own(requester)
        legacy &= bool(self._modern) and self._isolation != "none" and self._may_be_legacy(own, owner)
        if self._modern and not legacy:
            use = ConnectionKey(requester.who) if self._upstream.program else PLAIN
            if self._isolation != "client":
                use = PLAIN if self._isolation == "none" else own
            return _ConnectionRequest(use, None, {}, owner, reached, modern=True, requester=requester)
        session = session if own.who == getattr(session, "id", None) else None
        return _ConnectionRequest(
            own, session, capabilities, owner, reached, modern=False, legacy=legacy, requester=requester
        )

    def _own(self, requester: Requester) -> ConnectionKey:
        """Return the connection on which a server with sessions keeps the state of a client."""
        capabilities = _encode(requester.capabilities)
        match self._isolation:
            case "call":
                return ConnectionKey(OneCall(), capabilities)
            case "none":
                return ConnectionKey(None, capabilities, shared=True)
            case "client":
                session = requester.session
                return (
                    ConnectionKey(requester.who, capabilities)
                    if session is None
                    else ConnectionKey(session.id)
                )

    def _may_be_legacy(self, own: ConnectionKey, owner: Hashable) -> bool:
        """Whether a client is to use a legacy revision at a server of 2026-07-28: it does, or may do so and takes no place from others."""
        if any(pipe.matches_revision(False) for pipe in self._of(own)):
            return True
        return trio.current_time() >= self._legacy_from and self._places.has_room(owner)

    def go_without(
        self, why: Exception, level: int = logging.WARNING, useless: UpstreamConnection | None = None
    ) -> None:
        """Have clients use 2026-07-28 for a while, which has no sessions. Connections that have one stay, unless it is `useless`."""
        now = trio.current_time()
        if now >= self._legacy_from:  # else that is known of another client's attempt
            _log.log(level, "%s is used without sessions for now: %s", self._upstream.name, told(why))
        self._legacy_from = max(self._legacy_from, now + _MODERN_SECONDS)
        if useless is not None:
            useless.retire()

    def _is_often_late(self, began: float) -> bool:
        """Note that a connection with a session was not there in time. Return whether several in a row were not.

        Those that were waited for at the same time count once: the machine was busy, perhaps.
        """
        if began >= self._late_at:
            self._late, self._late_at = self._late + 1, trio.current_time()
        return self._late >= _MOST_LATE

    @asynccontextmanager
    async def _lend(self, wanted: _ConnectionRequest, *, to_call: bool) -> AsyncIterator[UpstreamConnection]:
        pipe = self._find(wanted) or self._adopt(wanted) or self._open(wanted)
        pipe.used |= to_call  # from now on, be it that it is not open yet: it is nobody else's
        pipe.take()
        try:
            with trio.move_on_after(WAIT_SECONDS) as patience:
                await pipe.opened()
            if patience.cancelled_caught:
                raise NotYetError(f"there was no connection within {WAIT_SECONDS:g} seconds")
            yield pipe
        finally:
            pipe.give_back()
            once = pipe.use.owned and not pipe.use.lasts
            if not pipe.borrow_count and (once or pipe in self._waiting or self._is_wanted(pipe)):
                pipe.close()

    def _find(self, wanted: _ConnectionRequest) -> UpstreamConnection | None:
        for pipe in self._pipes.get(wanted.use, ()):
            if not pipe.closing and pipe.matches_revision(wanted.modern):
                return pipe
        return None

    def _adopt(self, wanted: _ConnectionRequest) -> UpstreamConnection | None:
        """Take the process that told what the server offers, and has served nobody, for a client of the same name that declares no more."""
        for pipe in () if wanted.modern or wanted.legacy else self._pipes.get(PLAIN, ()):
            same = pipe.capabilities == wanted.capabilities and (wanted.info or INFO) == INFO
            if self._is_new(pipe) and same:
                self._drop(pipe)
                pipe.adopt(wanted.use, wanted.session, wanted.owner)
                self._pipes.setdefault(pipe.use, []).append(pipe)
                return pipe
        return None

    def _is_new(self, pipe: UpstreamConnection) -> bool:
        """Whether it is a process that has served nobody."""
        return self._upstream.program and not (pipe.used or pipe.closing)

    # -- opening ---------------------------------------------------------------------------------

    def _open(self, wanted: _ConnectionRequest) -> UpstreamConnection:
        failure = self._failures.get(_encode(wanted.capabilities))
        if failure is not None and trio.current_time() < failure.until:
            raise UpstreamError(str(failure.why)) from failure.why
        pipe = UpstreamConnection(
            wanted.use,
            wanted.session,
            wanted.capabilities,
            wanted.owner,
            legacy=wanted.legacy,
            info=wanted.info,
        )
        self._sender.send_nowait((pipe, wanted))
        self._pipes.setdefault(wanted.use, []).append(pipe)
        return pipe

    async def _run(self, pipe: UpstreamConnection, wanted: _ConnectionRequest) -> None:
        async def make_room(pipe: UpstreamConnection) -> FairToken | None:
            return await self._make_room(pipe, wanted)

        try:
            await pipe.run(self._upstream, make_room, self._hear_first)
        finally:
            self._drop(pipe)
            if pipe.failure is not None and not pipe.legacy:
                self._note_failure(pipe, pipe.failure)

    def _drop(self, pipe: UpstreamConnection) -> None:
        same = self._pipes[pipe.use]
        same.remove(pipe)
        if not same:
            del self._pipes[pipe.use]

    async def _hear_first(self, pipe: UpstreamConnection, ready: Callable[[], None]) -> None:
        if pipe.legacy:
            self._late = 0
        else:
            self._modern = pipe.modern
            self._failures.pop(_encode(pipe.capabilities), None)
        if pipe.modern and pipe.use == PLAIN:
            pipe.leave_place()  # it is everybody's, and kept in touch with
            if self._upstream.negotiates:
                self._legacy_from = -math.inf
        await self._hear(pipe, ready)

    def _note_failure(self, pipe: UpstreamConnection, why: Exception) -> None:
        """Have nobody try for a while, where there cannot be a connection: each attempt may start a process."""
        key, now = _encode(pipe.capabilities), trio.current_time()
        last = self._failures.get(key)
        if last is None or last.until <= now:  # else it was tried at the same time
            pause = _FIRST_PAUSE if last is None else min(2 * last.pause, _LONGEST_PAUSE)
            self._failures[key] = _Failure(why, pause, now + pause)

    async def _make_room(self, new: UpstreamConnection, wanted: _ConnectionRequest) -> FairToken | None:
        """Wait until there may be one more connection; returns its place.

        None for what keeps in touch with a server at a URL, and is open all the time: it would be the last place of a few.
        """
        if new.use == PLAIN and not self._upstream.program:
            return None
        place = self._places.place(new.owner, wanted.reached)
        self._waiting.add(new)
        try:
            for spare in self._idle():
                if self._is_new(spare) and not spare.borrow_count:
                    # It may hold what the next process wants too: a port, a file, a browser.
                    await spare.wait_closed()
            if not self._places.has_room(new.owner):
                held = self._held()
                yielding = [pipe for pipe in self._idle() if _yields(pipe, new, held)]
                if yielding:
                    await max(yielding, key=lambda pipe: (held[pipe.owner], -pipe.idle_since)).wait_closed()
            await place.acquire_on_behalf_of(new)
        finally:
            self._waiting.discard(new)
        return place

    def _idle(self) -> list[UpstreamConnection]:
        """The connections that nobody uses."""
        return [
            pipe
            for pipes in self._pipes.values()
            for pipe in pipes
            if not (pipe.borrow_count or pipe.closing)
        ]

    def _held(self) -> Counter[Hashable]:
        """How many connections each owner has, or waits for."""
        return Counter(pipe.owner for pipes in self._pipes.values() for pipe in pipes)

    def _is_wanted(self, idle: UpstreamConnection) -> bool:
        """Whether a connection that nobody uses is to make room for one that is waited for."""
        if not self._waiting:
            return False
        held = self._held()
        return any(new is not idle and _yields(idle, new, held) for new in self._waiting)


def _yields(idle: UpstreamConnection, new: UpstreamConnection, held: Mapping[Hashable, int]) -> bool:
    """Whether a connection that nobody uses makes room for another one: for one of its owner's, or of who has no more than that."""
    return idle.owner == new.owner or held[idle.owner] >= held[new.owner]


def _useless(pipe: UpstreamConnection) -> tuple[UpstreamError, int] | None:
    """Return why a legacy connection to a server of 2026-07-28 is no better than one without sessions, with the level to log it."""
    if pipe.client.stateless:
        return UpstreamError("it opens none"), logging.INFO
    if pipe.client.sessions_lost >= _MOST_LOST:
        lost = f"it has lost {pipe.client.sessions_lost} of one client; do several replicas answer there that do not share them?"
        return UpstreamError(lost), logging.WARNING
    return None


def _encode(capabilities: Mapping[str, Any]) -> bytes:
    """Return the same for the same capabilities."""
    return msgspec.json.encode(capabilities, order="deterministic")


def introduction(client: RequestContext | Session) -> dict[str, Any] | None:
    """Return the name and version by which a client introduces itself; None if it does not."""
    info = client.client_info
    named = isinstance(info.get("name"), str) and isinstance(info.get("version"), str)
    return msgspec.to_builtins(info) if named else None


def asked_by_way(declared: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    """Return what the other server is told that a client of ours can be asked: what it declares, as far as the protocol and its revision have that.

    What a client writes beside that is not repeated: a server may choke on it, and for each of a thousand ways to write it there would be a
    connection.
    """
    told: dict[str, Any] = {}
    for name, members in _ASKABLE.items():
        given = declared.get(name)
        if isinstance(given, Mapping):
            told[name] = {member: {} for member in members if isinstance(given.get(member), Mapping)}
            if name == "roots" and given.get("listChanged") is True:
                told[name]["listChanged"] = True
    elicitation = told.get("elicitation")
    if elicitation and "url" not in revision.elicitation_modes:
        elicitation.pop("url", None)
    if not revision.elicitation_modes:
        told.pop("elicitation", None)
    if "sampling" in told and not revision.sampling_features:
        told["sampling"] = {}
    return told
