"""What is asked about a task: tasks/get, tasks/update and tasks/cancel (rules TX-5 to TX-10)."""

from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import msgspec
from mcpbus_actors import AskFailedError, AskRefusedError, AskTimeoutError

from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.task_extension import declares, undeclared, unknown_task
from mcpbus.tasks.task import CancelTask, Task, Update

if TYPE_CHECKING:
    from mcpbus.call import Call
    from mcpbus.inbound import Caller

_ANSWER_SECONDS = 30.0


class TaskParams(msgspec.Struct, frozen=True, rename="camel"):
    """tasks/get and tasks/cancel."""

    task_id: str


class UpdateTaskParams(msgspec.Struct, frozen=True, rename="camel"):
    """tasks/update."""

    task_id: str
    input_responses: dict[str, Any]


@attrs.frozen
class _TaskRequest:
    """What these methods have in common; see `mcpbus.call.Handler`."""

    caller: "Caller"
    params: Any

    replayable: ClassVar[bool] = False
    task_support: ClassVar[None] = None

    def find(self, call: "Call") -> Task:
        """Return the task.

        Raises:
            ProtocolError: -32602: there is none, or it is somebody else's.
        """
        task = call.bus.tasks.find(self.params.task_id, self.caller.principal)
        if task is None:
            raise unknown_task()
        return task

    @property
    def acknowledgement(self) -> bytes:
        """The result that says nothing."""
        return b"{" + self.caller.tail.plain.removeprefix(b",")


class TaskGet(_TaskRequest):
    """Tells how a task is."""

    async def run(self, call: "Call") -> bytes:
        """See `Handler.run`."""
        return (await call.bus.tasks.detail(self.find(call)))[:-1] + self.caller.tail.plain


class TaskUpdate(_TaskRequest):
    """Brings answers to what a task asks."""

    async def run(self, call: "Call") -> bytes:
        """See `Handler.run`."""
        try:
            fault = await self.find(call).address.ask(Update(self.params.input_responses), _ANSWER_SECONDS)
        except AskRefusedError:
            raise unknown_task() from None
        except (AskFailedError, AskTimeoutError):
            raise internal_error() from None
        if fault is not None:
            raise fault
        return self.acknowledgement


class TaskCancel(_TaskRequest):
    """Tells a task's handler to end; harmless if it has ended."""

    async def run(self, call: "Call") -> bytes:
        """See `Handler.run`."""
        self.find(call).address.tell(CancelTask())
        return self.acknowledgement


def prepare_get(params: TaskParams, caller: "Caller") -> TaskGet:
    """Prepare tasks/get.

    Raises:
        ProtocolError: -32021: the request did not declare the extension.
    """
    _require_extension(caller)
    return TaskGet(caller, params)


def prepare_update(params: UpdateTaskParams, caller: "Caller") -> TaskUpdate:
    """Prepare tasks/update; raises as `prepare_get`."""
    _require_extension(caller)
    return TaskUpdate(caller, params)


def prepare_cancel(params: TaskParams, caller: "Caller") -> TaskCancel:
    """Prepare tasks/cancel; raises as `prepare_get`."""
    _require_extension(caller)
    return TaskCancel(caller, params)


def _require_extension(caller: "Caller") -> None:
    if not declares(caller.client_capabilities, caller.revision):
        raise undeclared()
