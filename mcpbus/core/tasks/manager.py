"""The tasks of one bus: admitted, found, told about, and brought back after a restart."""

import logging
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import trio

from mcpbus.core.admission import ServerOverloaded, overloaded
from mcpbus.core.bus_services import BusServices
from mcpbus.core.call import CallActor
from mcpbus.core.shares import NoRoomError
from mcpbus.core.signals import BecomeTask, Park
from mcpbus.core.stores.circuit_breaker import StoreDownError
from mcpbus.core.stores.protocol import LeasedTaskStore, TaskStore
from mcpbus.core.tasks.actor import TaskActor
from mcpbus.core.tasks.messages import CloseTask, Expire, Follow, SetTaskMessage
from mcpbus.core.tasks.record import TaskRecord, TaskStatus
from mcpbus.core.tasks.table import TaskEntry, TaskTable, store_down
from mcpbus.protocol.errors import process_lost
from mcpbus.protocol.extensions import TaskSupport, declares
from mcpbus.protocol.principals import BoundPrincipal, owner_stored

_log = logging.getLogger("mcpbus")
_SHUTDOWN = "The server is shutting down"
_STILL_KEPT = "Too many tasks: the results of earlier ones are still kept"


class TaskManager(TaskTable):
    """The tasks of one bus; see `TaskTable`.

    Args:
        bus: What the bus has for them.
        store: Where they are kept.
    """

    def __init__(self, bus: BusServices, store: TaskStore) -> None:
        super().__init__(bus, store)

    def find(self, task_id: str, principal: Any) -> TaskEntry | None:
        """Return the task of that id, if it is `principal`'s own; None is the answer for both faults."""
        task = self._tasks.get(task_id)
        return task if task is not None and task.owner.admits(principal) else None

    async def recover(self) -> None:
        """Take up what the store has for this bus. What was running when it was left is reported failed."""
        if isinstance(self.store, LeasedTaskStore):
            self.store.on_lapse(self.name, self.review)
        for record in await self.store.take_up(self.name):
            self._take_up(record, "The server stopped while the task was running")

    def _take_up(self, record: TaskRecord, lost: str) -> None:
        ttl, counted_to = record.ttl_ms / 1000, owner_stored(record.owner)
        task = TaskEntry(record, BoundPrincipal.stored(record.owner), ttl, counted_to)
        self.bus.system.spawn(TaskActor, task, self, None, lost)

    async def seek(self, task_id: str, ended: str) -> str | None:
        """Find who has a task of a process that has ended; take it up if nobody has. What was running is reported failed.

        Returns:
            The process that has it; None if it is here, or nowhere.

        Raises:
            ServerOverloaded: It cannot be known now, since the store is down.
        """
        if task_id in self._tasks:
            await trio.lowlevel.checkpoint()
            return None
        try:
            record = await self._breaker.call(partial(self.store.claim, task_id, ended, self.name))
        except StoreDownError as down:
            raise store_down() from down
        if record is None or record.bus != self.name:
            return None if record is None else record.bus
        if task_id not in self._tasks:  # somebody else may have been faster
            self._take_up(record, process_lost().message)
        return None

    async def leave_store(self) -> None:
        """Leave what is in the store to whoever opens it next."""
        try:
            with trio.CancelScope(shield=True), trio.fail_after(self.bus.limits.store_deadline):
                await self.store.leave(self.name)
        except Exception:  # noqa: BLE001 - a store is somebody else's code, and the bus has closed
            _log.exception("the task store failed when the server left it")

    # -- the beginning ---------------------------------------------------------------------------

    async def begin(self, call: CallActor) -> bool:
        """Make a call a task, if it may become one: durable in the store before its client hears of it (TX-4).

        Returns:
            Whether it is one now.

        Raises:
            RuntimeError: The call waits for its client elsewhere, or begins already.
            ServerOverloaded: There is no room for it, or the store is down, and the tool does without no task.
        """
        support = call.handler.task_support
        if call.task_id is not None:
            return True
        if support is None or not declares(call.context.client_capabilities, call.context.revision):
            return False
        if call.unreachable or call.becoming_task:
            await trio.lowlevel.checkpoint_if_cancelled()  # a request that was cancelled has ended as well
            raise RuntimeError(
                "begin_task(): this call waits for its client, or begins already, in another of its tasks"
            )
        owner = call.context.owner
        try:
            self._make_room(owner)
        except ServerOverloaded:
            if support.required:
                raise
            return False
        task = self._make(call, support, owner)
        call.becoming_task = True
        self._kept.enter(owner, task)
        self._running.enter(owner, task)
        try:
            await self._keep(task)
        except BaseException as error:
            self._take_back(call, task)
            call.deliver(Park())
            if not isinstance(error, StoreDownError):
                raise
            if support.required:
                raise store_down() from error
            return False
        if call.unreachable:
            # A handler that shields itself goes on without its client, which would never hear of the task.
            self._take_back(call, task)
            with suppress(StoreDownError):
                await self.delete(task.record.id)
            return False
        self._hand_over(call, task)
        return True

    def _take_back(self, call: CallActor, task: TaskEntry) -> None:
        """Have a call go on as the request that it was."""
        self._forget(task)
        call.becoming_task = False

    def _hand_over(self, call: CallActor, task: TaskEntry) -> None:
        """Have a call go on as a task, of which its client is told."""
        call.task_id = task.record.id
        created = task.record.encode()[:-1] + call.result_suffix.task
        self.bus.system.spawn(TaskActor, task, self, call)
        call.address.tell(BecomeTask(task.address, created))

    def _make_room(self, owner: Hashable) -> None:
        """Make room for a task, if need be with results of whoever has most.

        Raises:
            ServerOverloaded: There is none for one of this owner's.
        """
        if self.closed is not None:
            raise ServerOverloaded(self.closed)
        limit = self.bus.limits.max_running_tasks
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
            self.bus.limit_monitor.note(option, owner, "a task was refused")
            raise overloaded(full, why) from None

    def _make_room_in_bytes(self, owner: Hashable) -> None:
        sizes, own = self._sizes, self._sizes.get(owner, 0)
        while self._size >= self.bus.limits.task_bytes:
            largest = max(sizes, key=sizes.__getitem__)
            displaced = self._kept.find_idle(largest) if sizes[largest] > own else None
            if displaced is None:
                raise NoRoomError(past_share=own * len(sizes) > self._size)
            self._kept.leave(displaced)
            self._displaced("task_bytes", displaced)

    def _displaced(self, option: str, task: TaskEntry) -> None:
        self._add(task, -task.record.size)
        self.bus.limit_monitor.note(option, task.counted_to, "the result of a task made room")
        task.address.tell(Expire())

    def _make(self, call: CallActor, support: TaskSupport, counted_to: Hashable) -> TaskEntry:
        limits = self.bus.limits
        ttl = limits.task_ttl if support.ttl is None else support.ttl
        poll = limits.task_poll_interval if support.poll_interval is None else support.poll_interval
        owner, now = BoundPrincipal(call.context.principal), time.time()
        task_id = self.bus.new_name()
        record = TaskRecord(
            id=task_id,
            owner=owner.digest,
            status=TaskStatus.WORKING,
            message=None,
            created=now,
            updated=now,
            ttl_ms=round(ttl * 1000),
            poll_ms=round(poll * 1000),
            bus=self.name,
        )
        return TaskEntry(record, owner, ttl, counted_to)

    async def _keep(self, task: TaskEntry) -> None:
        # If the store keeps it only past the deadline, it is of a task that nobody heard of, and goes after the next restart.
        await self.put(task.record, None)
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            with suppress(StoreDownError):
                await self.delete(task.record.id)
            raise

    def follow(self, task_id: str, message: Follow) -> None:
        """Have a new listen told how a task is, which is there: the listen was granted it in this very turn. For the listen."""
        self._tasks[task_id].address.tell(message)

    def say(self, call: CallActor, message: str | None) -> None:
        """Show what a call that is a task is doing; harmless if it is none."""
        task = None if call.task_id is None else self._tasks.get(call.task_id)
        if task is not None:
            task.address.tell(SetTaskMessage(message))

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Begin no more tasks, and fail those that wait for their client, which can answer no more."""
        self.closed = _SHUTDOWN
        for task in tuple(self._tasks.values()):
            task.address.tell(CloseTask(_SHUTDOWN, waiting=True))

    def end_all(self) -> None:
        """Fail all tasks that still run, and let go of the rest."""
        for task in tuple(self._tasks.values()):
            task.address.tell(CloseTask(_SHUTDOWN))

    async def wait_idle(self) -> None:
        """Wait until no task has a handler that runs."""
        while self._running:
            await self._changed.wait()

    async def wait_none(self) -> None:
        """Wait until all tasks have left."""
        while self._tasks:
            await self._changed.wait()
