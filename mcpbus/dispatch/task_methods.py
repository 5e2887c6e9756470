"""What is asked about a task: tasks/get, tasks/update and tasks/cancel (rules TX-5 to TX-10)."""

from typing import Any, ClassVar

import msgspec
from mcpbus_actors import AskFailedError, AskRefusedError, AskTimeoutError

from mcpbus.core.call import CallActor
from mcpbus.core.hub import hub_of
from mcpbus.core.request_context import RequestContext
from mcpbus.core.tasks.messages import CancelTask, Update
from mcpbus.core.tasks.table import TaskEntry
from mcpbus.dispatch.runner import Runner
from mcpbus.features.catalogue import FeatureSet
from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.extensions import declares, undeclared, unknown_task

_ANSWER_SECONDS = 30.0


class TaskParams(msgspec.Struct, frozen=True, rename="camel"):
    """tasks/get and tasks/cancel."""

    task_id: str


class UpdateTaskParams(msgspec.Struct, frozen=True, rename="camel"):
    """tasks/update."""

    task_id: str
    input_responses: dict[str, Any]


class _TaskRequest(msgspec.Struct, frozen=True):
    """What these methods have in common; see `mcpbus.core.call.Handler`."""

    params: Any

    replayable: ClassVar[bool] = False
    rounds: ClassVar[bool] = False
    own_rounds: ClassVar[bool] = False
    task_support: ClassVar[None] = None

    def find(self, call: CallActor) -> TaskEntry:
        """Return the task.

        Raises:
            ProtocolError: -32602: there is none, or it is somebody else's.
        """
        task = hub_of(call.bus).tasks.find(self.params.task_id, call.context.principal)
        if task is None:
            raise unknown_task()
        return task


class TaskGet(_TaskRequest, frozen=True):
    """Tells how a task is."""

    async def run(self, call: CallActor) -> bytes:
        """See `Handler.run`."""
        return (await hub_of(call.bus).tasks.detail(self.find(call)))[:-1] + call.result_suffix.plain


class TaskUpdate(_TaskRequest, frozen=True):
    """Brings answers to what a task asks."""

    async def run(self, call: CallActor) -> bytes:
        """See `Handler.run`."""
        try:
            fault = await self.find(call).address.ask(Update(self.params.input_responses), _ANSWER_SECONDS)
        except AskRefusedError:
            raise unknown_task() from None
        except (AskFailedError, AskTimeoutError):
            raise internal_error() from None
        if fault is not None:
            raise fault
        return call.result_suffix.alone


class TaskCancel(_TaskRequest, frozen=True):
    """Tells a task's handler to end; harmless if it has ended."""

    async def run(self, call: CallActor) -> bytes:
        """See `Handler.run`."""
        self.find(call).address.tell(CancelTask())
        return call.result_suffix.alone


def prepare_get(
    params: TaskParams, context: RequestContext, _features: FeatureSet, _runner: Runner
) -> TaskGet:
    """Prepare tasks/get.

    Raises:
        ProtocolError: -32021: the request did not declare the extension.
    """
    _require_extension(context)
    return TaskGet(params)


def prepare_update(
    params: UpdateTaskParams, context: RequestContext, _features: FeatureSet, _runner: Runner
) -> TaskUpdate:
    """Prepare tasks/update; raises as `prepare_get`."""
    _require_extension(context)
    return TaskUpdate(params)


def prepare_cancel(
    params: TaskParams, context: RequestContext, _features: FeatureSet, _runner: Runner
) -> TaskCancel:
    """Prepare tasks/cancel; raises as `prepare_get`."""
    _require_extension(context)
    return TaskCancel(params)


def _require_extension(context: RequestContext) -> None:
    if not declares(context.client_capabilities, context.revision):
        raise undeclared()
