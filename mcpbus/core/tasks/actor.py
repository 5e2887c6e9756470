"""The task actor: a call that was answered with a handle, from then on until its result is forgotten.

It carries the call in the place of the request that began it: the handler's questions become the task's
``inputRequests``, its end the task's result. It ends when the time to live is over, which begins anew when the
handler ends: what a task had to run, its result has to be fetched.
"""

import logging
import math
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any, ClassVar

import mcpbus_actors
import msgspec
from mcpbus_actors import ActorContext, Address, Failed, Outcome, StopReason, Succeeded, TaskEnded, Timer

from mcpbus.core.call import CallActor
from mcpbus.core.input_requests import InputRound, InputWithdrawn
from mcpbus.core.outbound import OutboundNotification, Progress
from mcpbus.core.signals import FailRequest, Finished
from mcpbus.core.stores.circuit_breaker import StoreDownError
from mcpbus.core.stores.protocol import TaskClaimedError
from mcpbus.core.tasks.messages import CancelTask, CloseTask, Expire, Follow, SetTaskMessage, TaskTakenOver
from mcpbus.core.tasks.record import TaskStatus, encode_error
from mcpbus.core.tasks.table import TaskEntry, TaskTable
from mcpbus.features.input_requests.errors import InputRequestError, cannot_ask
from mcpbus.features.schemas import python_types
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, invalid_params, quoted
from mcpbus.protocol.routes import Reason

_log = logging.getLogger("mcpbus")


class _WriteAgain(msgspec.Struct, frozen=True):
    """The store was down when it was to keep the result."""


class _Look(msgspec.Struct, frozen=True):
    """The questions that are open have changed in this turn."""


class TaskActor:
    """See the module.

    Args:
        cell: Its cell.
        task: The task.
        tasks: The table that it is in.
        call: What its call speaks through; None for a task that has no call any more, which is then reported
            failed unless it had ended.
        lost: Why it has none.
    """

    def __init__(
        self,
        cell: ActorContext[object],
        task: TaskEntry,
        tasks: TaskTable,
        call: CallActor | None,
        lost: str = "Internal error",
    ) -> None:
        self._cell = cell
        self._task = task
        self._tasks = tasks
        self._call = task.call = call
        self._asked: dict[str, tuple[InputRound, str]] = {}
        self._issued: set[str] = set()
        self._issued_for: dict[
            InputRound, list[str]
        ] = {}  # so that to withdraw one takes no look at all the others
        self._writing: mcpbus_actors.Task | None = None
        self._deleting: mcpbus_actors.Task | None = None
        self._reading: dict[mcpbus_actors.Task, Address[object]] = {}
        self._looking = False
        self._expired = False
        self._closing = False
        self._elsewhere = False
        task.address = cell.address
        tasks.enter(task)
        cell.on_stop(self._ended)
        self._timer: Timer = cell.after(max(0.0, task.record.seconds_left(time.time())), Expire())
        if call is None and not task.record.status.final:
            self._fail(ProtocolError(INTERNAL_ERROR, lost))
            self._settle()  # whoever else is left it will report the same
        elif task.before is not None:
            self._write()  # as an actor before this one was about to

    def handle(self, message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    # -- the call speaks -------------------------------------------------------------------------

    def _discard(self, said: OutboundNotification | Progress) -> None:
        said.receipt.discard(Reason.IN_TASK)

    def _say(self, message: SetTaskMessage) -> None:
        if not self._task.record.status.final:
            self._change(self._task.record.status, self._task.payload, message.message)

    def _ask(self, ask: InputRound) -> None:
        if self._tasks.closed is not None and not self._task.record.status.final:
            self._give_up(self._tasks.closed)
        if self._task.record.status.final:
            ask.fail(cannot_ask("its task has ended"))
        else:
            issued_for = self._issued_for[ask] = []
            for key in ask.unanswered:
                issued = self._issue(key)
                issued_for.append(issued)
                self._asked[issued] = ask, key
            self._look_soon()

    def _issue(self, key: str) -> str:
        """Return the key under which a question goes out: one that this task never had (rule TX-6)."""
        issued, count = key, 1
        while issued in self._issued:
            count += 1
            issued = f"{key}-{count}"
        self._issued.add(issued)
        return issued

    def _withdraw(self, message: InputWithdrawn) -> None:
        for issued in self._issued_for.pop(message.ask, ()):
            self._asked.pop(issued, None)
        self._look_soon()

    def _finished(self, message: Finished) -> None:
        self._tasks.finished(self._task)
        # Its arguments are not to be kept for as long as its result is.
        self._call = self._task.call = None
        self._asked.clear()
        self._issued_for.clear()
        if self._task.record.status.final:
            return
        if message.cancelled:
            self._end(TaskStatus.CANCELLED, None, "The task was cancelled")
        elif isinstance(message.result, ProtocolError):
            self._fail(message.result)
        else:
            self._end(TaskStatus.COMPLETED, message.result, None)

    # -- the client speaks -----------------------------------------------------------------------

    def _update(self, query: "mcpbus_actors.Ask[Any]") -> None:
        """Take answers. Those to questions that are not open are ignored, as SEP-2663 has it."""
        fitting = {key: answer for key, answer in query.message.answers.items() if key in self._asked}
        try:
            # All or none: what a client has to send again must not have been used.
            for issued, answer in fitting.items():
                ask, key = self._asked[issued]
                ask.questions[key].read(answer)
        except InputRequestError as error:
            query.reply(invalid_params(f"{error.message} - at `params.inputResponses` {quoted(issued)}"))
            return
        for issued, answer in fitting.items():
            ask, key = self._asked.pop(issued)
            ask.answer(key, answer)
            if ask.settled:
                self._issued_for.pop(ask, None)
            self._unended().answers.used[key] = python_types.encode(answer)
        self._look()
        query.reply(None)

    def _cancel(self, _message: CancelTask) -> None:
        if not self._task.record.status.final:
            self._unended().cancel()

    def _follow(self, message: Follow) -> None:
        record, payload = self._task.shown
        if record.size and payload is None:
            task = self._cell.start_task(_tell_of, self._tasks, self._task, context=Context())
            self._reading[task] = message.listener
        else:
            self._tasks.tell([message.listener], record.id, record.encode(payload))

    # -- the status ------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        """Follow what is asked in the same turn together: all that is open is shown each time."""
        if not self._looking:
            self._looking = True
            self._cell.after(0, _Look())

    def _look_now(self, _message: "_Look") -> None:
        self._looking = False
        self._look()

    def _look(self) -> None:
        """Follow the questions that are open."""
        if self._task.record.status.final:
            return
        if not self._asked:
            if self._task.record.status is TaskStatus.INPUT_REQUIRED:
                self._change(TaskStatus.WORKING, None, self._task.record.message)
            return
        requests = {
            issued: {"method": ask.questions[key].method, "params": ask.params[key]}
            for issued, (ask, key) in self._asked.items()
        }
        payload = python_types.encode(requests)
        if payload != self._task.payload:
            self._change(TaskStatus.INPUT_REQUIRED, payload, self._task.record.message)

    def _change(self, status: TaskStatus, payload: bytes | None, message: str | None) -> None:
        task = self._task
        size = len(payload or b"") if status.final else 0  # what ends does so once: until then it is 0
        task.payload = payload
        task.record = msgspec.structs.replace(
            task.record, status=status, message=message, updated=time.time(), size=size
        )
        self._tasks.changed(task, size)

    def _fail(self, error: ProtocolError) -> None:
        self._end(TaskStatus.FAILED, encode_error(error), error.message)

    def _end(self, status: TaskStatus, payload: bytes | None, message: str | None) -> None:
        task = self._task
        task.before = task.record, task.payload
        lived = max(0.0, time.time() - task.record.created)
        task.record = msgspec.structs.replace(task.record, ttl_ms=math.ceil((lived + task.ttl) * 1000))
        self._timer.cancel()
        self._timer = self._cell.after(task.ttl, Expire())
        self._change(status, payload, message)
        self._write()

    def _unended(self) -> CallActor:
        """The call of a task that has not ended."""
        assert self._call is not None  # noqa: S101 - a task without a call has failed from the beginning
        return self._call

    # -- the store -------------------------------------------------------------------------------

    def _write(self) -> None:
        put = self._tasks.put
        self._writing = self._cell.start_task(put, self._task.record, self._task.payload, context=Context())

    def _task_ended(self, message: TaskEnded) -> None:
        outcome = message.outcome
        if isinstance(outcome, Failed) and isinstance(outcome.exception, TaskClaimedError):
            self._refused()
            return
        if isinstance(outcome, Failed) and not isinstance(outcome.exception, StoreDownError):
            _log.error("a task could not be stored", exc_info=outcome.exception)
        listener = self._reading.pop(message.task, None)
        if listener is not None:
            if isinstance(outcome, Succeeded) and outcome.value is not None:
                self._tasks.tell([listener], self._task.record.id, outcome.value)
        elif message.task is self._deleting:
            self._cell.stop()
        else:
            self._written(outcome)

    def _written(self, outcome: Outcome) -> None:
        self._writing = None
        if isinstance(outcome, Succeeded) or not self._tasks.shared:
            self._settle()
        if isinstance(outcome, Succeeded):
            self._task.payload = None  # the store has it; where it failed, this is all there is
        if self._closing:
            self._cell.stop()
        elif self._expired:
            self._delete()
        elif isinstance(outcome, Failed):
            self._cell.after(self._tasks.bus.limits.store_pause, _WriteAgain())

    def _write_again(self, _message: _WriteAgain) -> None:
        if not self._expired and not self._elsewhere and self._writing is None:
            self._write()

    def _settle(self) -> None:
        """Let clients know how it ended: from now on nobody else can report another end."""
        if self._task.before is not None:
            self._task.before = None
            self._tasks.show(self._task)

    # -- another process has it --------------------------------------------------------------------

    def _refused(self) -> None:
        """Hear from the store that another process has it; what that made of it is to be found out."""
        self._writing = None
        if self._closing or self._expired:
            self._cell.stop()
        elif not self._task.settled:
            self._lose()
            self._tasks.review()

    def _taken(self, message: TaskTakenOver) -> None:
        """Show it from now on as who has it does, and end its handler."""
        task = self._task
        if task.settled:
            return
        self._lose()
        size, task.before = message.record.size - task.record.size, None
        task.record, task.payload = message.record, message.payload
        self._timer.cancel()
        self._timer = self._cell.after(max(0.0, task.record.seconds_left(time.time())), Expire())
        self._tasks.changed(task, size)

    def _lose(self) -> None:
        if self._elsewhere:
            return
        self._elsewhere = True
        if self._call is None:
            _log.warning(
                "a task ended when another process had already reported it failed; its result is dropped"
            )
        else:
            _log.warning("a task that runs here was reported failed by another process, and is cancelled")
            self._call.cancel()

    # -- the end ---------------------------------------------------------------------------------

    def _expire(self, _message: Expire) -> None:
        if self._task.record.status.final:
            self._expired = True
            if self._elsewhere:
                self._cell.stop()  # who has it deletes it
            elif self._writing is None and self._deleting is None:
                self._delete()
            return
        self._tasks.overdue(self._task)
        self._give_up(f"The task did not end within {self._task.ttl:g} s")

    def _end_with_error(self, message: FailRequest) -> None:
        if not self._task.record.status.final:
            self._give_up(message.why)

    def _give_up(self, why: str) -> None:
        self._fail(ProtocolError(INTERNAL_ERROR, why))
        self._unended().cancel()

    def _delete(self) -> None:
        delete = self._tasks.delete
        self._deleting = self._cell.start_task(delete, self._task.record.id, context=Context())

    def _close(self, message: CloseTask) -> None:
        status = self._task.record.status
        if message.waiting and status is not TaskStatus.INPUT_REQUIRED:
            return
        if not status.final:
            self._give_up(message.why)
            self._settle()  # those who listen are sent away in this turn; nobody can report anything else than that it failed
        if message.waiting:
            return
        self._closing = True
        if self._writing is None and self._deleting is None:
            self._cell.stop()

    def _ended(self, reason: StopReason) -> None:
        if self._call is not None:
            self._call.cancel()
        self._task.call = None
        self._tasks.leave(self._task)
        system = self._tasks.bus.system
        if reason is StopReason.FAILED and not system.closed:
            system.spawn(TaskActor, self._task, self._tasks, None)  # reports it

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        OutboundNotification: _discard,
        Progress: _discard,
        SetTaskMessage: _say,
        InputRound: _ask,
        InputWithdrawn: _withdraw,
        Finished: _finished,
        mcpbus_actors.Ask: _update,
        CancelTask: _cancel,
        FailRequest: _end_with_error,
        Follow: _follow,
        TaskEnded: _task_ended,
        _Look: _look_now,
        _WriteAgain: _write_again,
        TaskTakenOver: _taken,
        Expire: _expire,
        CloseTask: _close,
    }


async def _tell_of(tasks: TaskTable, task: TaskEntry) -> bytes | None:
    """Return how a task is, for a listen; None where its time was over meanwhile, or the store failed and said so."""
    try:
        return await tasks.detail(task)
    except ProtocolError:
        return None
