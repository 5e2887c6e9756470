"""What an event store does, and what a task store does, and no more than that.

How a store tells of the end of what it was asked for, without a task that waits for it.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import attrs
import msgspec
import trio

from mcpbus.core.tasks.record import TaskRecord
from mcpbus.protocol.keywords import Explained


class Replay(msgspec.Struct, metaclass=Explained, frozen=True):
    """What followed an event on its stream.

    Attributes:
        events: The later events in order, each one JSON-RPC message.
        finished: Whether the stream has said all that it had to say.
    """

    events: Sequence[bytes]
    finished: bool


class EventStore(Protocol):
    """Keeps the events of streams, each numbered from 1 within its stream.

    Every call names the session: a store never gives one session's events to another. Streams are named by
    unguessable texts. A store may drop the oldest events to keep its bounds; it then knows that they are gone.
    Whatever it raises ends the resumability of that stream, as does an `append` that is cancelled at its deadline, and
    the store is left alone for a while; live writing goes on. After that it is asked for nothing of that stream again, so
    it may keep what it was given, or not.
    """

    def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> Awaitable[None]:
        """Keep events, the first of them numbered `first`; `final` if they end the stream.

        Of one stream it is asked for the next events only when it has kept those before.

        A coroutine as a rule. For one that returns a `mcpbus.stores.Promise` no task is needed that waits for it.
        """

    async def replay(self, session: str, stream: str, after: int) -> Replay | None:
        """Return what followed event `after`; None if the stream is not known, or part of that was dropped."""

    async def forget(self, session: str) -> None:
        """Drop all streams of a session, in a time that grows with what these have, and not with what others have."""


class TaskClaimedError(Exception):
    """Another bus has a task, since the one that had it was taken to have ended."""


class TaskStore(Protocol):
    """Keeps tasks, each with what came of it.

    A bus that opens takes up what is there and is no other open bus's, and reports what was still running of that as
    failed, since what ran it is gone. Who else is open is the store's to know: by a lock on its file, which lets in one
    process at a time, or where processes share it by whatever tells that one of them lives. The bus decides when a task is deleted; a store drops nothing by itself. A call that raises, or is
    cancelled at its deadline (`Limits.store_deadline`), has the store left alone for a while.
    """

    async def put(self, record: TaskRecord, payload: bytes | None) -> None:
        """Keep a task in place of what is kept of it; when this returns, it is durable.

        Args:
            record: The task.
            payload: Its encoded result or error, if it has one.

        Raises:
            TaskClaimedError: It is not of `record.bus` any more.
        """

    async def payload(self, task_id: str) -> bytes | None:
        """Return the encoded result or error of a task; None if there is none."""

    async def delete(self, task_id: str) -> None:
        """Forget a task. Harmless if it is not there."""

    async def take_up(self, bus: str) -> Sequence[TaskRecord]:
        """Return the tasks that a bus which opens is to take up, and let no other one have them from now on.

        Args:
            bus: Its name, which no bus before it had; the tasks that it puts later carry it.
        """

    async def claim(self, task_id: str, ended: str, bus: str) -> TaskRecord | None:
        """Give a task of a bus that has ended to another one, unless somebody else was faster.

        Args:
            task_id: The task.
            ended: The bus that has ended.
            bus: The bus that is to have it.

        Returns:
            What is kept of it, with the bus that has it now; None if there is no such task.
        """

    async def leave(self, bus: str) -> None:
        """Note that a bus has closed: what it leaves is for whoever opens next. Not called if the process ends first."""


@runtime_checkable
class LeasedTaskStore(TaskStore, Protocol):
    """A `TaskStore` that processes share, for which a bus lives as long as it is heard of.

    A bus that stood still, or was cut off, may not have been heard of for so long that another one took its tasks, and lives. It finds
    out when such a task ends, since the store refuses what came of it; where the store has this method, as soon as that can be known.
    """

    def on_lapse(self, bus: str, tell: Callable[[], object]) -> None:
        """Have a bus told each time when its lease lasts again after it had lapsed, or may have.

        Asked before `take_up`, and over with `leave`. No schedule point.

        Args:
            bus: Its name.
            tell: Called in trio's thread, and has the bus look at what has become of its tasks. It does not raise.
        """


@attrs.define(eq=False)
class Promise:
    """What a store does that was asked to keep something. To be awaited; or to be heard of, by one at most.

    Attributes:
        ended: Whether it has ended.
        result: What came of it.
        error: What was raised, if anything was.
        told: Called in trio's thread when it ends, if it has not.
    """

    ended: bool = False
    result: Any = None
    error: BaseException | None = None
    told: Callable[[], object] | None = None

    def end(self) -> None:
        """Say that it has ended. In trio's thread."""
        self.ended = True
        told, self.told = self.told, None
        if told is not None:
            told()

    def withdraw(self) -> None:
        """Take note that nobody wants to hear of it any more."""
        self.told = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._wait().__await__()

    async def _wait(self) -> Any:
        if self.ended:
            await trio.lowlevel.checkpoint()
        else:
            self.told = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        if self.error is not None:
            raise self.error
        return self.result

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self.withdraw()
        return trio.lowlevel.Abort.SUCCEEDED
