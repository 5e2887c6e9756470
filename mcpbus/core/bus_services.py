"""What all actors of one bus have in common, whatever they are: its limits and books, its clock, and whom a change concerns."""

import logging
import math
import secrets
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any, Protocol

import trio
from mcpbus_actors import ActorSystem, Address

from mcpbus.core.admission import Admission
from mcpbus.core.from_thread import FromThread
from mcpbus.core.lease import Lease
from mcpbus.core.limit_monitor import LimitMonitor, RateLimitedLogger
from mcpbus.core.limits import Limits
from mcpbus.core.memory_budget import SHORT_BYTES, MemoryBudget
from mcpbus.core.outbound import LIST_CHANGED, ChangeEvent, OutboundNotification
from mcpbus.core.receipt import Broadcast, Ledger, RemoteFates
from mcpbus.core.state import NO_STATE
from mcpbus.core.suspended_calls import SuspendedCalls
from mcpbus.core.topics import Topics
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.jsonrpc import encode_notification
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.request_state import StateSealer
from mcpbus.protocol.results import Tail
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import MessageKind

_log = logging.getLogger("mcpbus")


class BusWatch(Protocol):
    """Records what a bus does; see `mcpbus.core.watching`."""

    def make_ledger(self) -> Ledger:
        """Make the ledger of a bus."""

    def make_admission(self, limit: int, budget: MemoryBudget, **options: Any) -> Admission:
        """Make the admission of a bus; as `Admission`."""

    def watch_backend(self, backend: Any, /) -> Callable[[Any], Any]:
        """Return what records a request, and begins it as `Backend.begin` does."""

    def attach(self, bus: "BusServices", /) -> None:
        """Record what this bus does from now on."""

    def opened(self, address: Address[object], described: Any, /) -> None:
        """Record a session or a listen, which is opened.

        Args:
            address: Its address.
            described: The `Session`, or the `RequestContext` of the listen.
        """

    def progress_of(self, request: Any, /) -> str:
        """Return how long a `RequestActor` has run, and where it waits: ``for 64 s at shop.py:17 in poll_shelf``; empty if unknown."""

    def limit_reached(self, limit: str, whom: object, consequence: str, /) -> None:
        """See `LimitRecorder`."""

    def refused(self, context: Any, error: ProtocolError, /) -> None:
        """Record that a request was refused before its handler ran; see `RequestContext`."""

    def asking(self, life: Any, asked: Any, /) -> AbstractContextManager[None]:
        """Record that a call waits within the block for the answers to an `InputRound`; entered in the context of its handler."""

    def closed(self, address: Address[object], /) -> None:
        """Record that a session or a listen has ended."""


class BusServices:
    """What every actor of a bus may use. It knows no session, no call and no stream; see `Hub` for those.

    Attributes:
        auth: The resource server that lets clients in; None if there is none.
        result_suffixes: What ends each result, by revision.
        lifespan_state: What the lifespan of what is served yielded; `NO_STATE` if it has none.
        mounted_states: What the lifespans of the servers yielded that are mounted in it, by server.
        limits: What clients may use.
        system: Where the actors live.
        now: Tells trio's time, as `trio.current_time`, which takes two calls more.
        clock: Tells handlers how long they have kept others waiting, in seconds; a test may give it virtual time.
        from_thread: Does what worker threads want done in the thread that trio runs in.
        ledger: The books of all that is said.
        client_log: What the log says of clients that cannot be served as they could be.
        limit_monitor: Which of the limits were reached, and how often.
        budget: What is kept in memory for clients, in bytes.
        admission: The requests in flight.
        listens: The listens, which are admitted apart.
        topics: Who wants to hear of what.
        parked_calls: The calls that wait for their client to come back.
        new_name: Names a session, a call or a task: unguessable, and where several processes serve, telling in which it is.
        process: Names this process among those that serve with it; None if there are no others.
        tell_elsewhere: Tells a change to the other processes that serve, if there are any.
        say_in_order: Takes what is said to a session of this process, if older messages to it are still on their way through others;
            returns whether it does.
        lease: By which this process has its sessions; None if there are no others.
        recorder: Records what the bus does; None where nothing watches it.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        auth: Authorizer | None,
        tails: Mapping[Revision, Tail],
        sealer: StateSealer,
        system: ActorSystem,
        limits: Limits,
        yielded: Any,
        process: str | None,
        token_seconds_left: Callable[[Any], float],
        watch: BusWatch | None = None,
    ) -> None:
        self.recorder = watch

        self.auth = auth
        self._token_seconds_left = token_seconds_left
        self.result_suffixes = tails
        self.lifespan_state = yielded
        self.mounted_states: dict[object, Any] = {}
        self.limits = limits
        self.system = system
        self.now = trio.lowlevel.current_clock().current_time
        self.clock: Callable[[], float] = time.perf_counter
        self._thread = get_ident()
        self.from_thread = FromThread()
        self.ledger = Ledger() if watch is None else watch.make_ledger()
        self.client_log = RateLimitedLogger(_log)
        self.limit_monitor = LimitMonitor()
        self.limit_monitor.recorder = watch
        self.budget = MemoryBudget(limits.memory_bytes, self.limit_monitor)
        admission = Admission if watch is None else watch.make_admission
        self.admission = admission(limits.max_requests, self.budget, reached=self.limit_monitor, now=self.now)
        self.listens = Admission(
            limits.max_listens,
            self.budget,
            option="max_listens",
            what="listens",
            reached=self.limit_monitor,
            now=self.now,
        )
        self.topics = Topics()
        self.parked_calls: SuspendedCalls[Any] = SuspendedCalls(
            sealer, limits.max_suspended_calls, limits.suspended_timeout, self.limit_monitor
        )
        self.new_name: Callable[[], str] = random_name
        self.process = process
        self.tell_elsewhere: Callable[[ChangeEvent], RemoteFates] | None = None
        self.say_in_order: Callable[[str, OutboundNotification], bool] | None = None
        self.lease: Lease | None = None

    def note_refusal(self, context: Any, error: BaseException) -> None:
        """Note for the watch, if there is one, that a request was refused before its handler ran."""
        if self.recorder is not None and isinstance(error, ProtocolError):
            self.recorder.refused(context, error)

    @property
    def state(self) -> Any:
        """What the lifespan yielded; None also if there is none."""
        return None if self.lifespan_state is NO_STATE else self.lifespan_state

    def seconds_left(self, principal: Any) -> float:
        """Return how long a client may go on listening, whose token expires perhaps."""
        if principal is None or self.limits.stream_outlives_token:
            return math.inf
        return self._token_seconds_left(principal)

    def check_thread(self, call: str) -> None:
        """Refuse a call from a thread that trio does not run in, before anything is counted or changed.

        Args:
            call: What was called, as people write it.

        Raises:
            RuntimeError: Always, in such a thread; it says what to write instead.
        """
        if get_ident() != self._thread:
            plain = f"in a handler that is a plain function, write ctx.{call}(...) with ctx: SyncContext; "
            raise RuntimeError(
                f"{call}() belongs to the thread that trio runs in: {plain if call.startswith('bus.') else ''}from another one, "
                f"write trio.from_thread.run_sync({call}, ...), with trio_token= where trio did not start that thread"
            )

    def check_handler_thread(self) -> None:
        """Refuse what a handler does with its `Context` in a thread that trio does not run in, such as that of an asyncio loop, before it harms the request.

        Raises:
            RuntimeError: Always, in such a thread; it says what to write instead.
        """
        if get_ident() != self._thread:
            raise RuntimeError(
                "a Context belongs to the thread that trio runs in: a handler that is a plain function takes ctx: SyncContext; what runs "
                "in asyncio writes await mcpbus.asyncio.to_trio(ctx.info, ...); any other thread trio.from_thread.run(ctx.info, ...), "
                "with trio_token= where trio did not start it"
            )

    def flush_mailbox(self, data: bytes) -> None:
        """Have all that was told so far be handled before something long is told: that is counted where it arrives, and not before. For the bus.

        So while actors are behind one long message waits for them at most, whoever speaks.
        """
        if len(data) > SHORT_BYTES:
            self.system.catch_up()

    def publish(  # noqa: PLR0917 - what a notification is made of
        self,
        recipients: Iterable[Address[object]],
        method: str,
        kind: MessageKind,
        data: bytes,
        key: Hashable,
        uri: str | None = None,
    ) -> Broadcast:
        """Tell a change to sessions and subscriptions, each of which decides what becomes of it. For the bus."""
        receipts = []
        for recipient in recipients:
            receipt = self.ledger.emit(method, None, recipient)
            recipient.tell(OutboundNotification(kind, receipt, data, key, None, uri))
            receipts.append(receipt)
        return Broadcast(receipts)

    def publish_list(self, name: ListName, recipients: Iterable[Address[object]]) -> Broadcast:
        """Tell that a list has changed. For the bus."""
        method = LIST_CHANGED[name]
        return self.publish(recipients, method, MessageKind.LIST_CHANGED, encode_notification(method), method)


def random_name() -> str:
    """Return a name that nobody can guess."""
    return secrets.token_urlsafe(24)
