"""The tasks of one bus: admitted, found, told about, and brought back after a restart."""

import logging
import secrets
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from mcpbus_actors import Address

from mcpbus.admission import Overloaded, overloaded
from mcpbus.call import Call, HandOver, Park
from mcpbus.emission import TASK_STATUS, Emission
from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.jsonrpc import encode_notification
from mcpbus.protocol.owners import owner_stored
from mcpbus.protocol.principals import Owner
from mcpbus.protocol.routes import Kind
from mcpbus.protocol.task_extension import TaskSupport, declares, unknown_task
from mcpbus.shares import NoRoomError, Shares
from mcpbus.stores.breaker import Breaker, StoreDownError
from mcpbus.tasks.record import TaskRecord, TaskStatus
from mcpbus.tasks.stores.protocol import TaskStore
from mcpbus.tasks.task import Close, Expire, Follow, Say, Task, TaskActor

if TYPE_CHECKING:
    from mcpbus.bus import Bus

_log = logging.getLogger("mcpbus")
_SHUTDOWN = "The server is shutting down"
_STILL_KEPT = "Too many tasks: the results of earlier ones are still kept"


class TaskDirectory:
    """The tasks of one bus by id: those that run, and those whose result is kept.

    Args:
        bus: The bus.
        store: Where they are kept.

    Attributes:
        store: Where they are kept.
        store_pause: Seconds after which it is tried again where it failed.
    """

    def __init__(self, bus: "Bus", store: TaskStore) -> None:
        self.store = store
        self.store_pause = bus.limits.store_pause
        self._breaker = Breaker("task store", bus.limits, bus.reached)
        self._bus = bus
        self._name = secrets.token_urlsafe(12)
        limits = bus.limits
        self._tasks: dict[str, Task] = {}
        self._kept = Shares(limits.max_tasks, Task.idle_since)
        self._running = Shares(limits.max_running_tasks, _is_at_work)
        self._sizes: dict[Hashable, int] = {}
        self._size = 0
        self._closed = False
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def running(self) -> int:
        """How many of them have a handler that has not ended."""
        return len(self._running)

    def find(self, task_id: str, principal: Any) -> Task | None:
        """Return the task of that id, if it is `principal`'s own; None is the answer for both faults."""
        task = self._tasks.get(task_id)
        return task if task is not None and task.owner.admits(principal) else None

    async def detail(self, task: Task) -> bytes:
        """Return the JSON object of a task with what belongs to its status.

        Raises:
            ProtocolError: The store failed, or the task's time is over.
        """
        record, payload = task.record, task.payload
        if record.size and payload is None:
            try:
                payload = await self._breaker.call(partial(self.store.payload, record.id))
            except StoreDownError as down:
                raise internal_error() from down
            if self._tasks.get(record.id) is not task:
                raise unknown_task()
            if payload is None:
                _log.error("the task store has lost what came of a task")
                raise internal_error()
        return record.encode(payload)

    async def recover(self) -> None:
        """Take up what the store has for this bus. What was running when it was left is reported failed."""
        for record in await self.store.take_up(self._name):
            ttl, counted_to = record.ttl_ms / 1000, owner_stored(record.owner)
            task = Task(record, Owner.stored(record.owner), ttl, counted_to)
            self._bus.system.spawn(
                TaskActor, task, self, None, "The server stopped while the task was running"
            )

    async def leave_store(self) -> None:
        """Leave what is in the store to whoever opens it next."""
        try:
            with trio.CancelScope(shield=True), trio.fail_after(self._bus.limits.store_deadline):
                await self.store.leave(self._name)
        except Exception:  # noqa: BLE001 - a store is somebody else's code, and the bus has closed
            _log.exception("the task store failed when the server left it")

    # -- the beginning ---------------------------------------------------------------------------

    async def begin(self, call: Call) -> bool:
        """Make a call a task, if it may become one: durable in the store before its client hears of it (TX-4).

        Returns:
            Whether it is one now.

        Raises:
            RuntimeError: The call waits for its client elsewhere, or begins already.
            Overloaded: There is no room for it, and the tool does without no task.
            ProtocolError: The store is down, and likewise.
        """
        support = call.handler.task_support
        if call.task_id is not None:
            return True
        if support is None or not declares(call.context.client_capabilities, call.context.revision):
            return False
        if call.speechless or call.beginning:
            await trio.lowlevel.checkpoint_if_cancelled()  # a request that was cancelled has ended as well
            raise RuntimeError(
                "begin_task(): this call waits for its client, or begins already, in another of its tasks"
            )
        owner = call.context.owner
        try:
            self._make_room(owner)
        except Overloaded:
            if support.required:
                raise
            return False
        task = self._make(call, support, owner)
        call.beginning = True
        self._kept.enter(owner, task)
        self._running.enter(owner, task)
        try:
            await self._keep(task)
        except BaseException as error:
            self._forget(task)
            call.beginning = False
            call.engage(Park())
            if not isinstance(error, StoreDownError):
                raise
            if support.required:
                raise internal_error() from error
            return False
        call.task_id = task.record.id
        created = task.record.encode()[:-1] + call.tail.task
        self._bus.system.spawn(TaskActor, task, self, call)
        call.address.tell(HandOver(task.address, created))
        return True

    def _make_room(self, owner: Hashable) -> None:
        """Make room for a task, if need be with results of whoever has most.

        Raises:
            Overloaded: There is none for one of this owner's.
        """
        if self._closed:
            raise Overloaded(_SHUTDOWN)
        limit = self._bus.limits.max_running_tasks
        with self._noted("max_running_tasks", owner, f"Too many tasks: at most {limit} run at once"):
            self._running.make_room(owner)
        with self._noted("task_bytes", owner, _STILL_KEPT):
            self._make_room_in_bytes(owner)
        with self._noted("max_tasks", owner, _STILL_KEPT):
            displaced = self._kept.make_room(owner, of_its_own=False)
        if displaced is not None:
            self._displaced("max_tasks", displaced)

    @contextmanager
    def _noted(self, option: str, owner: Hashable, why: str) -> Iterator[None]:
        try:
            yield
        except NoRoomError as full:
            self._bus.reached.note(option, owner, "a task was refused")
            raise overloaded(full, why) from None

    def _make_room_in_bytes(self, owner: Hashable) -> None:
        sizes, own = self._sizes, self._sizes.get(owner, 0)
        while self._size >= self._bus.limits.task_bytes:
            largest = max(sizes, key=sizes.__getitem__)
            displaced = self._kept.find_idle(largest) if sizes[largest] > own else None
            if displaced is None:
                raise NoRoomError(past_share=len(sizes) > (own > 0) and own * len(sizes) > self._size)
            self._kept.leave(displaced)
            self._displaced("task_bytes", displaced)

    def _displaced(self, option: str, task: Task) -> None:
        self._add(task, -task.record.size)
        self._bus.reached.note(option, task.counted_to, "the result of a task made room")
        task.address.tell(Expire())

    def _add(self, task: Task, size: int) -> None:
        """Count so many bytes more of a task's result."""
        self._size += size
        total = self._sizes.pop(task.counted_to, 0) + size
        if total:
            self._sizes[task.counted_to] = total

    def _make(self, call: Call, support: TaskSupport, counted_to: Hashable) -> Task:
        limits = self._bus.limits
        ttl = limits.task_ttl if support.ttl is None else support.ttl
        poll = limits.task_poll_interval if support.poll_interval is None else support.poll_interval
        owner, now = Owner(call.context.principal), time.time()
        task_id = secrets.token_urlsafe(24)
        record = TaskRecord(
            id=task_id,
            owner=owner.digest,
            status=TaskStatus.WORKING,
            message=None,
            created=now,
            updated=now,
            ttl_ms=round(ttl * 1000),
            poll_ms=round(poll * 1000),
            bus=self._name,
        )
        return Task(record, owner, ttl, counted_to)

    async def _keep(self, task: Task) -> None:
        # If the store keeps it only past the deadline, it is of a task that nobody heard of, and goes after the next restart.
        await self.put(task.record, None)
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            with suppress(StoreDownError):
                await self.delete(task.record.id)
            raise

    # -- for the actors --------------------------------------------------------------------------

    async def put(self, record: TaskRecord, payload: bytes | None) -> None:
        """Have the store keep a task.

        Raises:
            StoreDownError: It did not, or not in time; the log has said so.
        """
        await self._breaker.call(partial(self.store.put, record, payload))

    async def delete(self, task_id: str) -> None:
        """Have the store forget a task; raises as `put`."""
        await self._breaker.call(partial(self.store.delete, task_id))

    def enter(self, task: Task, *, running: bool) -> None:
        """Enter a task. For its actor."""
        self._tasks[task.record.id] = task
        self._add(task, task.record.size)
        if task not in self._kept:
            self._kept.enter(task.counted_to, task)
        if running and task not in self._running:
            self._running.enter(task.counted_to, task)

    def overdue(self, task: Task) -> None:
        """Note that a task did not end in time. For its actor."""
        self._bus.reached.note("task_ttl", task.counted_to, "a task that still ran was ended")

    def finished(self, task: Task) -> None:
        """Note that a task's handler has ended. For its actor."""
        self._running.leave(task)
        self._wake()

    def changed(self, task: Task, grown: int) -> None:
        """Tell those who listen how a task is now, and that `grown` more bytes are kept of it. For its actor."""
        self._add(task, grown)
        listeners = self._bus.interests.in_task(task.record.id)
        if listeners:
            self.tell(listeners, task.record.id, task.record.encode(task.payload))

    def follow(self, task_id: str, message: Follow) -> None:
        """Have a new listen told how a task is; harmless if the task has gone. For the listen."""
        task = self._tasks.get(task_id)
        if task is not None:
            task.address.tell(message)

    def tell(self, listeners: Iterable[Address[object]], task_id: str, detail: bytes) -> None:
        """Tell some listens how a task is. For its actor."""
        data = encode_notification(TASK_STATUS, msgspec.Raw(detail))
        key = (TASK_STATUS, task_id)
        for listener in listeners:
            listener.tell(Emission(Kind.TASK, self._bus.ledger.enter(TASK_STATUS), data, key))

    def leave(self, task: Task, *, failed: bool) -> None:
        """Take out a task whose actor has ended; if that failed, another one reports it. For its actor."""
        del self._tasks[task.record.id]
        if task in self._kept:
            self._add(task, -task.record.size)
        self._forget(task)
        if failed and not self._bus.system.closed:
            self._bus.system.spawn(TaskActor, task, self, None)

    def _forget(self, task: Task) -> None:
        self._kept.leave(task)
        self._running.leave(task)
        self._wake()

    def say(self, call: Call, message: str | None) -> None:
        """Show what a call that is a task is doing; harmless if it is none."""
        task = None if call.task_id is None else self._tasks.get(call.task_id)
        if task is not None:
            task.address.tell(Say(message))

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Begin no more tasks, and fail those that wait for their client, which can answer no more."""
        self._closed = True
        for task in tuple(self._tasks.values()):
            task.address.tell(Close(_SHUTDOWN, waiting=True))

    def end_all(self) -> None:
        """Fail all tasks that still run, and let go of the rest."""
        for task in tuple(self._tasks.values()):
            task.address.tell(Close(_SHUTDOWN))

    async def wait_idle(self) -> None:
        """Wait until no task has a handler that runs."""
        while self._running:
            await self._changed.wait()

    async def wait_none(self) -> None:
        """Wait until all tasks have left."""
        while self._tasks:
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _is_at_work(_task: Task) -> None:
    """Say that a task whose handler runs is never idle."""
