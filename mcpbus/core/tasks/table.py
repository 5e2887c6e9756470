"""The tasks of one bus as their actors see them: found, kept in the store, counted, and told about.

How it is found out which tasks another process has reported failed, since it took this one for ended.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextvars import Context
from functools import partial
from secrets import token_urlsafe
from typing import Final

import attrs
import msgspec
import trio
from mcpbus_actors import ActorContext, ActorSystem, Address, Failed, Succeeded, TaskEnded

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.bus_services import BusServices
from mcpbus.core.call import CallActor
from mcpbus.core.outbound import TASK_STATUS, OutboundNotification
from mcpbus.core.shares import Shares
from mcpbus.core.stores.circuit_breaker import CircuitBreaker, StoreDownError
from mcpbus.core.stores.protocol import LeasedTaskStore, TaskClaimedError, TaskStore
from mcpbus.core.tasks.messages import TaskTakenOver
from mcpbus.core.tasks.record import TaskRecord
from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.extensions import unknown_task
from mcpbus.protocol.jsonrpc import encode_notification
from mcpbus.protocol.principals import BoundPrincipal
from mcpbus.protocol.routes import MessageKind

_PAUSE: Final = 1.0
"""Seconds until it is looked once more at what was not known."""


class _CheckAgain:
    """Look once more."""


class TakeoverCheck:
    """A look at all tasks that run here, whoever has noticed that some may have been taken. There is an actor for as long as one is due.

    Args:
        system: Where that lives.
        look: Looks at them; whether all was known.
    """

    def __init__(self, system: ActorSystem, look: Callable[[], Awaitable[bool]]) -> None:
        self.look = look
        self.due = False
        self.busy = False
        self._system = system

    def ask(self) -> None:
        """Have a look that begins from now on."""
        self.due = True
        if not self.busy and not self._system.closed:
            self.busy = True
            self._system.spawn(_Reviewer, self)


class _Reviewer:
    """Looks until all is known, and stops."""

    def __init__(self, cell: ActorContext[TaskEnded | _CheckAgain], review: TakeoverCheck) -> None:
        self._cell = cell
        self._review = review
        cell.on_stop(lambda _: self._leave())
        self._look()

    def handle(self, message: TaskEnded | _CheckAgain) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        if isinstance(message, _CheckAgain):
            self._look()
            return
        if isinstance(message.outcome, Failed):
            raise message.outcome.exception  # the fault is the look's own: that of a store is no failure
        if not (isinstance(message.outcome, Succeeded) and message.outcome.value):
            self._cell.after(_PAUSE, _CheckAgain())
        elif self._review.due:
            self._look()
        else:
            self._cell.stop()

    def _look(self) -> None:
        self._review.due = False
        self._cell.start_task(self._review.look, context=Context())

    def _leave(self) -> None:
        self._review.busy = False


_log = logging.getLogger("mcpbus")


@attrs.define(eq=False)
class TaskEntry:
    """One task, as the directory knows it.

    Attributes:
        record: What is known of it now.
        owner: Whose it is.
        ttl: Seconds that it has, and then its result.
        counted_to: Who has one task more with it.
        address: Its actor.
        payload: The encoded questions, result or error that belong to its status; None if there are none, or if
            the store has them.
        before: The record and the payload that it had before its handler ended, until the store has kept how it ended; None if there is nothing
            to be kept.
        call: Its call, while the handler runs here.
    """

    record: TaskRecord
    owner: BoundPrincipal
    ttl: float
    counted_to: Hashable
    address: Address[object] = attrs.field(init=False, repr=False)
    payload: bytes | None = attrs.field(default=None, repr=False)
    before: tuple[TaskRecord, bytes | None] | None = attrs.field(default=None, repr=False)
    call: CallActor | None = attrs.field(default=None, repr=False)

    @property
    def shown(self) -> tuple[TaskRecord, bytes | None]:
        """What clients are shown of it: an end only when the store has kept it, so that nobody can report another one."""
        return self.before or (self.record, self.payload)

    @property
    def settled(self) -> bool:
        """Whether it has ended, and everybody knows how."""
        return self.record.status.final and self.before is None

    def idle_since(self) -> float | None:
        """Tell since when its result is there, in seconds since 1970; None while its handler runs."""
        return self.record.updated if self.record.status.final else None


class TaskTable:
    """The tasks of one bus by id: those that run, and those whose result is kept.

    Args:
        bus: What the bus has for them.
        store: Where they are kept.

    Attributes:
        bus: What the bus has for them.
        store: Where they are kept.
        name: By which the store knows whose they are.
        closed: Why no task begins any more, or may wait for its client; None as long as they may.
        shared: Whether other processes may report tasks failed that are here, as what they take for ended has left them.
    """

    def __init__(self, bus: BusServices, store: TaskStore) -> None:
        limits = bus.limits
        self.bus = bus
        self.store = store
        self.closed: str | None = None
        self.name = bus.process or token_urlsafe(12)
        self.shared = bus.process is not None or isinstance(store, LeasedTaskStore)
        self._breaker = CircuitBreaker("task store", limits, bus.limit_monitor)
        self._tasks: dict[str, TaskEntry] = {}
        self._kept = Shares(limits.max_tasks, TaskEntry.idle_since)
        self._running = Shares(limits.max_running_tasks, _is_at_work)
        self._sizes: dict[Hashable, int] = {}
        self._size = 0
        self._changed = trio.Event()
        self._review = TakeoverCheck(bus.system, self._look_for_taken)

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[TaskEntry]:
        """Iterate over the tasks, oldest first."""
        return iter(tuple(self._tasks.values()))

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._tasks

    @property
    def running(self) -> int:
        """How many of them have a handler that has not ended."""
        return len(self._running)

    async def detail(self, task: TaskEntry) -> bytes:
        """Return the JSON object of a task with what belongs to its status.

        Raises:
            ServerOverloaded: The store is down.
            ProtocolError: It has lost what came of the task, or the task's time is over.
        """
        record, payload = task.shown
        if record.size and payload is None:
            try:
                payload = await self._breaker.call(partial(self.store.payload, record.id))
            except StoreDownError as down:
                raise store_down() from down
            if self._tasks.get(record.id) is not task:
                raise unknown_task()
            if payload is None:
                _log.error("the task store has lost what came of a task")
                raise internal_error()
        return record.encode(payload)

    async def put(self, record: TaskRecord, payload: bytes | None) -> None:
        """Have the store keep a task.

        Raises:
            TaskClaimedError: Another bus has it now.
            StoreDownError: It did not, or not in time; the log has said so.
        """
        if not await self._breaker.call(partial(self._put, record, payload)):
            raise TaskClaimedError

    async def _put(self, record: TaskRecord, payload: bytes | None) -> bool:
        """Return whether it is kept; that another bus has it is no failure of the store."""
        try:
            await self.store.put(record, payload)
        except TaskClaimedError:
            return False
        return True

    async def delete(self, task_id: str) -> None:
        """Have the store forget a task; raises as `put`."""
        await self._breaker.call(partial(self.store.delete, task_id))

    def review(self) -> None:
        """Have it looked at soon whether another process has reported failed what runs here: this one may have been taken for ended."""
        self._review.ask()

    async def _look_for_taken(self) -> bool:
        """Tell the actors of what runs here what another process has reported of it.

        Returns:
            Whether all is known: if not, it is to be looked at once more.
        """
        known = True
        for task in [task for task in self._tasks.values() if not task.settled]:
            task_id = task.record.id
            try:
                record = await self._breaker.call(partial(self.store.claim, task_id, self.name, self.name))
                if record is None or record.bus == self.name or self._tasks.get(task_id) is not task:
                    continue
                payload = await self._breaker.call(partial(self.store.payload, task_id))
            except StoreDownError:
                return False
            if record.status.final:
                task.address.tell(TaskTakenOver(record, payload))
            else:
                known = False  # who has it is about to report it
        return known

    def enter(self, task: TaskEntry) -> None:
        """Enter a task. One that begins has its place already."""
        self._tasks[task.record.id] = task
        self._add(task, task.record.size)
        if task not in self._kept:
            self._kept.enter(task.counted_to, task)

    def overdue(self, task: TaskEntry) -> None:
        """Note that a task did not end in time."""
        self.bus.limit_monitor.note("task_ttl", task.counted_to, "a task that still ran was ended")

    def finished(self, task: TaskEntry) -> None:
        """Note that a task's handler has ended."""
        self._running.leave(task)
        self._wake()

    def changed(self, task: TaskEntry, size: int) -> None:
        """Count what is kept of a task from now on, in bytes, and tell those who listen how it is, if they may know."""
        self._add(task, size)
        if task.before is None:
            self.show(task)

    def show(self, task: TaskEntry) -> None:
        """Tell those who listen how a task is now."""
        listeners = self.bus.topics.in_task(task.record.id)
        if listeners:
            self.tell(listeners, task.record.id, task.record.encode(task.payload))

    def tell(self, listeners: Iterable[Address[object]], task_id: str, detail: bytes) -> None:
        """Tell some listens how a task is."""
        data = encode_notification(TASK_STATUS, msgspec.Raw(detail))
        key = (TASK_STATUS, task_id)
        for listener in listeners:
            listener.tell(
                OutboundNotification(MessageKind.TASK, self.bus.ledger.emit(TASK_STATUS), data, key)
            )

    def leave(self, task: TaskEntry) -> None:
        """Take out a task whose actor has ended."""
        del self._tasks[task.record.id]
        if task in self._kept:
            self._add(task, -task.record.size)
        self._forget(task)

    def _forget(self, task: TaskEntry) -> None:
        self._kept.leave(task)
        self._running.leave(task)
        self._wake()

    def _add(self, task: TaskEntry, size: int) -> None:
        """Count so many bytes more of a task's result."""
        self._size += size
        total = self._sizes.pop(task.counted_to, 0) + size
        if total:
            self._sizes[task.counted_to] = total

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _is_at_work(_task: TaskEntry) -> None:
    """Say that a task whose handler runs is never idle."""


def store_down() -> ServerOverloaded:
    """Return why a request is not served that needs the store, while that is down: it may be sent again."""
    return ServerOverloaded("The store of tasks cannot be reached; try again later")
