"""One connection to the other server, open in a task of its own, and lent to calls: to one at a time, or to many."""

import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError
from mcpbus.client.pending import OnInputRequest
from mcpbus.core.fair_limiter import FairToken
from mcpbus.core.memory_budget import SHORT_BYTES, MemoryAccount, MemoryBudget
from mcpbus.core.sessions.session import Session
from mcpbus.features.elsewhere import Kind
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.errors import ProtocolError, method_not_found, sole_cause
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.revisions import LATEST_LEGACY, Era
from mcpbus.upstream.client_lists import ClientLists
from mcpbus.upstream.listed import Listed
from mcpbus.upstream.relayed_input_request import RelayedInputRequest
from mcpbus.upstream.target import OpenTimeoutError, Upstream, UpstreamError, told

_log = logging.getLogger("mcpbus")

OPEN_SECONDS: Final = 30.0
"""How long a connection may take to open, besides what somebody takes who has to log in."""
_LEVEL_SECONDS: Final = 5.0
"""How long a server may take to accept a level of log lines, for which a call waits."""
IDLE_SECONDS: Final = 300.0
"""After how long a connection is closed that nobody uses."""


Say: TypeAlias = Callable[[str, dict[str, Any]], object]
"""Says in a call what is said there: the method and the params of a notification."""


class OneCall:
    """The key of a connection for one call."""


@attrs.frozen
class ConnectionKey:
    """The owner of a connection, and what the connection declares. Those of equal uses are as good as each other.

    Attributes:
        who: The id of the session, or the key of the principal or peer address, that owns it; None if no client does.
        capabilities: What its client declares, encoded.
        shared: Whether calls of different clients may keep state on it, since the operator chose so.
    """

    who: Hashable = None
    capabilities: bytes = b"{}"
    shared: bool = False

    @property
    def owned(self) -> bool:
        """Whether all its calls are of one client."""
        return self.who is not None

    @property
    def lasts(self) -> bool:
        """Whether it belongs to one client for longer than a call."""
        return self.owned and not isinstance(self.who, OneCall)


PLAIN: Final = ConnectionKey()
"""The connection that belongs to no client: it shows what the server offers to all."""


class UpstreamConnection:
    """One connection.

    Args:
        use: What it is for.
        session: The session of ours whose own it is, if it is one's: what belongs to no call, is said there.
        capabilities: What its client declares.
        owner: To whom it is counted.
        legacy: Whether an older revision is spoken, though the server has 2026-07-28.
        info: The name and version of the client that it is opened for.

    Attributes:
        use: As given, or what it was adopted for.
        session: Likewise.
        capabilities: As given.
        owner: As given, or whose it was adopted for.
        legacy: As given.
        info: As given.
        calls: The calls that go over it now: what each says something by, and the session of ours that it is of.
        answerers: What has the clients of these calls answer, the newest last.
        lists: What its client sees otherwise than all do, once that has been asked for.
        borrow_count: How often it is lent now.
        used: Whether it was ever lent to a call.
        idle_since: When it was given back, in trio's time.
        failure: Why it could not be opened; None if it was, or nobody wanted it any more.
        ended: Set once it is closed, or could not be opened.
    """

    client: Client

    def __init__(
        self,
        use: ConnectionKey,
        session: Session | None,
        capabilities: dict[str, Any],
        owner: Hashable,
        *,
        legacy: bool = False,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.use = use
        self.session = session
        self.calls: dict[Say, Session | None] = {}
        self.answerers: list[OnInputRequest] = []
        self.lists: ClientLists | None = None
        self.borrow_count = 0
        self.capabilities = capabilities
        self.owner = owner
        self.legacy = legacy
        self.info = info
        self.used = False
        self.idle_since = 0.0
        self.failure: Exception | None = None
        self.ended = trio.Event()
        # From which level the server sends log lines, and how often it may have forgotten something until that was said.
        self._level: tuple[LogLevel, int] | None = None
        self._takes_level = True
        self._retired = False
        self._account: MemoryAccount | None = None
        self._place: FairToken | None = None
        self._scope = trio.CancelScope()
        self._opened = trio.Event()

    @property
    def is_open(self) -> bool:
        """Whether requests can go over it now."""
        return self._opened.is_set() and not self.closing

    @property
    def modern(self) -> bool:
        """Whether each request says all there is to say of its client."""
        return self.client.revision.era is Era.MODERN

    @property
    def guesses(self) -> bool:
        """Whether a message that names no call may be taken for one of the only call, or the only session, that the connection has.

        Over HTTP the stream tells. Elsewhere it may belong to a call of another client that was cancelled a moment ago.
        """
        return not (self.client.scoped or (not self.use.owned and self.client.ambiguous))

    def matches_revision(self, modern: bool | None) -> bool:
        """Whether it is `modern`, or not, as far as that matters, and is known yet."""
        return modern is None or not self._opened.is_set() or self.modern is modern

    @property
    def closing(self) -> bool:
        """Whether it is closed or lost, or about to be closed."""
        if self.ended.is_set() or self._scope.cancel_called or self._retired:
            return True
        return self._opened.is_set() and not self.client.connected

    @property
    def was_left(self) -> bool:
        """Whether it was closed from here."""
        return self._scope.cancel_called

    def adopt(self, use: ConnectionKey, session: Session | None, owner: Hashable) -> None:
        """Have it be for something else, which nothing that it was used for contradicts."""
        self.use, self.session, self.owner = use, session, owner

    def take(self) -> None:
        """Lend it once more."""
        self.borrow_count += 1
        self._scope.deadline = math.inf

    def give_back(self) -> None:
        """Lend it once less."""
        self.borrow_count -= 1
        if not self.borrow_count:
            self.idle_since = trio.current_time()
            self._scope.deadline = self.idle_since + (0 if self._retired else IDLE_SECONDS)

    def retire(self) -> None:
        """Lend it to no other call, and close it once the last one has given it back."""
        self._retired = True
        if not self.borrow_count:
            self.close()

    def close(self) -> None:
        """Close it, in its own task; calls that have it fail."""
        self._scope.cancel()

    async def wait_closed(self) -> None:
        """Close it, and wait until that is done."""
        self.close()
        await self.ended.wait()

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        """Return the client's answer to a question that names no call.

        Over HTTP such a question belongs to the session, as its stream shows. Elsewhere it may belong to any call of the client that owns
        the connection, and is asked on the stream of the newest one.

        Raises:
            ProtocolError: The question may belong to any of several clients, or the client gives no answer.
        """
        if self.session is None:
            sole = len(self.answerers) == 1 and not self.client.ambiguous
            if not self.answerers or not (self.use.owned or sole):
                raise method_not_found(method)
            return await self.answerers[-1](method, params)
        if self.answerers and not self.client.scoped:
            return await self.answerers[-1](method, params)
        [answer] = await self.session.relay_questions({None: RelayedInputRequest(method, params)})
        return answer

    async def opened(self) -> None:
        """Wait until it is open.

        Raises:
            UpstreamError: It could not be opened.
        """
        await self._opened.wait()
        if self.failure is not None:
            kind = OpenTimeoutError if isinstance(self.failure, OpenTimeoutError) else UpstreamError
            raise kind(str(self.failure)) from self.failure
        if self.closing:
            raise UpstreamError("the connection was closed")

    async def run(
        self,
        upstream: Upstream,
        make_room: Callable[["UpstreamConnection"], Awaitable[FairToken | None]],
        hear: Callable[["UpstreamConnection", Callable[[], None]], Awaitable[None]],
    ) -> None:
        """Open it, and keep it open until it is closed, or lost, or was idle for long.

        Args:
            upstream: To what.
            make_room: Waits until there may be one more; returns its place, if it takes one.
            hear: Hears what the server says outside of calls, until the connection is lost. It calls its second argument once it hears
                all that calls may cause.
        """
        patience = trio.CancelScope()
        try:
            with self._scope:
                self._place = await make_room(self)
                seconds = OPEN_SECONDS + upstream.person_seconds
                patience.deadline = trio.current_time() + seconds
                options: dict[str, Any] = {"revision": LATEST_LEGACY.name} if self.legacy else {}
                if self.info is not None and upstream.introduces:
                    options["client_info"] = self.info
                with patience:
                    async with upstream.connect(capabilities=self.capabilities, **options) as self.client:
                        patience.deadline = math.inf
                        self.client.answer(self.answer)
                        await hear(self, self._opened.set)
        except Exception as error:  # noqa: BLE001 - whoever waits for it is told, or it is logged
            self._fail(error)
        else:
            if patience.cancelled_caught:
                self._fail(OpenTimeoutError(f"it did not answer within {seconds:g} s"))
        finally:
            self.leave_place()
            if self._account is not None:
                self._account.close()
            if self.lists is not None:
                self.lists.close()
            self.ended.set()
            self._opened.set()

    def leave_place(self) -> None:
        """Take up none of the places that there are for connections any more."""
        if self._place is not None:
            self._place.release_on_behalf_of(self)
            self._place = None

    def _fail(self, error: Exception) -> None:
        cause = sole_cause(error)
        if not self._opened.is_set():
            self.failure = cause if isinstance(cause, Exception) else error
        if not isinstance(cause, ClientError | ProtocolError | UpstreamError):
            _log.error("a connection to another server failed", exc_info=error)

    async def want_log_lines(self, level: LogLevel | None) -> None:
        """Have a server of an older revision send log lines of this level and above from now on, if it sends any.

        While calls without a session run, the level only becomes more verbose: each call leaves out the lines below its own.

        Raises:
            ClientError: The connection was lost.
        """
        if level is None or self.modern:
            return
        if self.session is None and self.calls and self._level is not None:
            level = min(level, self._level[0])
        if (level, self.client.losses) == self._level:
            return
        if self._takes_level and "logging" in (await self.client.describe()).capabilities:
            await self._set_level(level)
        self._level = level, self.client.losses

    async def _set_level(self, level: LogLevel) -> None:
        """Ask for log lines of a level. A server that declares logging and rejects that is not asked again."""
        why = f"no answer within {_LEVEL_SECONDS:g} s"
        with trio.move_on_after(_LEVEL_SECONDS):
            try:
                await self.client.request("logging/setLevel", {"level": level.value})
            except ProtocolError as error:
                why = told(error)
            else:
                return
        self._takes_level = False
        _log.info(
            "an upstream server rejects logging/setLevel, and sends the log lines that it likes: %s", why
        )

    def count_in(self, budget: MemoryBudget) -> None:
        """Count what waits to be written to the server, and what is read of it, in the budget of the bus that its calls come from."""
        if self._account is None:
            self._account = self._open_account(budget)
            self.client.count_waiting(partial(self._count, budget))
            self.client.count_reading(partial(self._count_reading, budget))

    async def take_list(
        self,
        name: ListName,
        listed: Sequence[Sequence[dict[str, Any]]],
        shared: Mapping[Kind, Listed],
        budget: MemoryBudget,
    ) -> None:
        """Take what the server lists to the client that owns the connection, and count it in a budget. Other tasks run in between."""
        if self.ended.is_set():
            return
        if self.lists is None:
            open_account = partial(budget.account, "what an upstream server lists", owner=self.owner)
            self.lists = ClientLists(shared, open_account)
        await self.lists.take(name, listed)

    def _count_reading(self, budget: MemoryBudget, give_up: Callable[[], object]) -> MemoryAccount:
        return budget.account("a message of an upstream server", give_up, owner=self.owner)

    def _count(self, budget: MemoryBudget, size: int) -> None:
        account = self._account
        if account is None or (size < SHORT_BYTES and not account.held):
            return
        if account.leaving:
            # It was told to end, and has withdrawn what waits. The message that is being written stays, and may stay for long.
            account.close()
            account = self._account = self._open_account(budget)
        # It is there twice: as arguments, and as it is written.
        account.hold_now(2 * size if size >= SHORT_BYTES else 0)

    def _open_account(self, budget: MemoryBudget) -> MemoryAccount:
        return budget.account("what waits for an upstream server", self._withdraw, owner=self.owner)

    def _withdraw(self) -> None:
        self.client.withdraw_waiting("too much waits for clients and upstream servers that do not read")
