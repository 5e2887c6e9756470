"""A request for which an author's function runs: found and checked at once, run in a task of its own, answered in bytes.

Whatever goes wrong in the function is translated here, once: a `ToolError` for the model, a `ProtocolError` for the
client, everything else for the server's log alone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Never, TypeAlias

import msgspec
import trio
from mcpbus_actors import split_failure

from mcpbus.core.call import CallActor
from mcpbus.core.context import Context
from mcpbus.dispatch.runner import Runner
from mcpbus.features.arguments import InvalidArgumentsError
from mcpbus.features.catalogue import FeatureSet
from mcpbus.features.completion import NOTHING, Completer, encode_completion
from mcpbus.features.content import ToolResult
from mcpbus.features.errors import CallTimeoutError, ResourceNotFoundError, ToolError
from mcpbus.features.extension import ExtensionMethod
from mcpbus.features.input_requests.input_required import InputRequired
from mcpbus.features.prompt import RegisteredPrompt
from mcpbus.features.resource import RegisteredResource
from mcpbus.features.tool import Tool, error_result
from mcpbus.protocol.errors import (
    INTERNAL_ERROR,
    ProtocolError,
    internal_error,
    invalid_params,
    resource_not_found,
    sole_cause,
)
from mcpbus.protocol.extensions import TaskSupport
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.revisions import InvalidArguments

_log = logging.getLogger("mcpbus")

_SEVERAL = "several servers have it; put the name of one behind '://', as in its lists"

_OF_ASYNCIO = ("no running event loop", "asyncio")
# A lock, an event or a queue of asyncio that has to wait, where no loop of asyncio runs. Until then it works.
_ASYNCIO_WAITS = "'NoneType' object has no attribute 'create_future'"
_TO_ASYNCIO = ": handlers run on trio, and this one awaits what only asyncio can run; write await mcpbus.asyncio.to_asyncio(function, ...)"

_TO_TRIO_WAITS = (
    ": a lock, an event or a queue of asyncio waits, and handlers run on trio; write trio.Lock(), trio.Semaphore(), trio.Event() or "
    "trio.open_memory_channel() for it"
)

_OF_TRIO = "must be called from async context"
# What asyncio says of a schedule point, which is due at times.
_TRIO_YIELDED = "Task got bad yield: <class 'trio."
_TO_TRIO = ": what asyncio runs reaches trio, and ctx, through await mcpbus.asyncio.to_trio(ctx.info, ...)"


_FURTHER: Final = (InputRequired, ToolResult)
"""What a tool may return that is more than a value."""


# None of these is kept from the garbage collector: what a tool has in its closure may know the contexts of its calls.
class ToolCall(msgspec.Struct, frozen=True):
    """tools/call of one tool."""

    runner: Runner
    tool: Tool
    arguments: msgspec.Raw | dict[str, Any]

    rounds = True
    own_rounds = False

    @property
    def label(self) -> str:
        """What is called, for people."""
        return f"tools/call {self.tool.name}"

    @property
    def replayable(self) -> bool:
        """See `Handler.replayable`."""
        return self.tool.replay

    @property
    def task_support(self) -> TaskSupport | None:
        """See `Handler.task_support`."""
        return self.tool.task

    async def run(self, call: CallActor) -> bytes | InputRequired:
        """See `Handler.run`; what goes wrong in the tool is a result, which the model gets to see."""
        tool, revision = self.tool, call.context.revision
        try:
            arguments = tool.arguments.decode(self.arguments)
            if tool.task is not None and not tool.task.deferred:
                await Context(call).begin_task()
            value = await self.runner.call(tool.function, call, "tools/call", tool.name, arguments)
            if isinstance(value, _FURTHER):
                if isinstance(value, InputRequired):
                    return value
                if value.is_error:
                    call.context.note_failure("tool_error", "isError")
            return tool.encode_result(value, revision, call.result_suffix)
        except InvalidArgumentsError as error:
            text = f"Invalid arguments for tool {tool.name}: {error}"
            if revision.invalid_arguments is InvalidArguments.ERROR:
                raise invalid_params(text) from error
            call.context.note_failure("tool_error", type(error).__name__)
            return error_result(text, call.result_suffix)
        except BaseException as error:  # noqa: BLE001  # told apart there
            return self._tell(_failure(error, self.label), call)

    def _tell(self, error: BaseException, call: CallActor) -> bytes:
        """Tell what the tool raised to the model, to the client, or to the log.

        Not where it was caught: with a name there, exception and frame would keep each other for the garbage collector.
        """
        name, tail, cause = self.tool.name, call.result_suffix, sole_cause(error)
        timed_out = isinstance(cause, CallTimeoutError)
        call.context.note_failure("timeout" if timed_out else "tool_error", type(cause).__name__)
        if isinstance(cause, ToolError) and (text := str(cause)).strip():
            return error_result(text, tail)
        if timed_out:
            return error_result(f"Tool {name} {cause}", tail)
        if isinstance(cause, ProtocolError):
            try:
                _raise_sole(cause)
            finally:
                del error, cause  # the traceback holds this frame: without this, a cycle
        _log_failure(self.label, error)
        return error_result(f"Tool {name} failed", tail)


class PromptGet(msgspec.Struct, frozen=True):
    """prompts/get of one prompt."""

    runner: Runner
    prompt: RegisteredPrompt
    arguments: Mapping[str, Any]

    replayable = True
    rounds = True
    own_rounds = False
    task_support = None

    @property
    def label(self) -> str:
        """What is called, for people."""
        return f"prompts/get {self.prompt.name}"

    async def run(self, call: CallActor) -> bytes | InputRequired:
        """See `Handler.run`."""
        prompt = self.prompt
        try:
            value = await self.runner.call(prompt.function, call, "prompts/get", prompt.name, self.arguments)
            if isinstance(value, InputRequired):
                return value
            return prompt.encode_result(value, call.context.revision, call.result_suffix)
        except BaseException as error:  # noqa: BLE001  # translated
            _raise_translated(_failure(error, self.label), self.label)


_Found: TypeAlias = tuple[RegisteredResource, Mapping[str, str | list[str]]]


class _Asked:
    """The results of one request to read a resource.

    Attributes:
        answers: The results of the servers that have it.
        missing: The reason of a server that has it not.
        failure: The error of a server that may have it.
        scope: Encloses the questions.
    """

    __slots__ = ("answers", "failure", "missing", "scope")

    def __init__(self) -> None:
        self.answers: list[bytes | InputRequired] = []
        self.missing = ""
        self.failure: ProtocolError | None = None
        self.scope = trio.CancelScope()


class ResourceRead(msgspec.Struct, frozen=True):
    """resources/read of one URI, by all resources that may have it, with its variables: one server has to know it, and no other one."""

    runner: Runner
    uri: str
    found: Sequence[_Found]

    replayable = True
    rounds = True
    own_rounds = False
    task_support = None

    @property
    def label(self) -> str:
        """What is called, for people."""
        return f"resources/read {self.uri}"

    async def run(self, call: CallActor) -> bytes | InputRequired:
        """See `Handler.run`. Several servers are asked at the same time: one that does not answer costs its timeout once."""
        found: dict[object, list[_Found]] = {}
        for each in self.found:
            found.setdefault(each[0].function.server, []).append(each)
        asked = _Asked()
        if len(found) == 1:
            await self._ask(call, self.found, asked)
        else:
            async with trio.open_nursery() as nursery:
                asked.scope = nursery.cancel_scope
                for of_server in found.values():
                    nursery.start_soon(self._ask, call, of_server, asked)
        failure, asked.failure = asked.failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback holds this frame: without this, a cycle
        if len(asked.answers) == 1:
            return asked.answers[0]
        # Of several none is believed: a server must not answer for what is another one's.
        why = _SEVERAL if asked.answers else asked.missing
        raise resource_not_found(self.uri, call.context.revision.resource_not_found, why)

    async def _ask(self, call: CallActor, found: Sequence[_Found], asked: "_Asked") -> None:
        """Read what one server has; the first of its resources that exists is the answer."""
        for resource, variables in found:
            try:
                asked.answers.append(await self._read(call, resource, variables))
            except BaseException as error:  # noqa: BLE001  # translated
                if self._is_missing(_failure(error, self.label), asked):
                    continue
            return

    def _is_missing(self, error: BaseException, asked: "_Asked") -> bool:
        """Return whether a resource does not exist. If it may exist, the other servers are not believed, and need not answer."""
        cause = sole_cause(error)
        if isinstance(cause, ResourceNotFoundError):
            asked.missing = str(cause)
            return True
        try:
            _raise_translated(error, self.label)
        except ProtocolError as failure:
            asked.failure = asked.failure or failure
        finally:
            del error, cause  # as above
        asked.scope.cancel()
        return False

    async def _read(
        self, call: CallActor, resource: RegisteredResource, variables: Mapping[str, str | list[str]]
    ) -> bytes | InputRequired:
        value = await self.runner.call(
            resource.function, call, "resources/read", self.uri, resource.bind(variables)
        )
        if isinstance(value, InputRequired):
            return value
        return resource.encode_result(value, self.uri, call.context.revision, call.result_suffix)


class Complete(msgspec.Struct, frozen=True):
    """completion/complete of one argument; without a function there is nothing to propose."""

    runner: Runner
    ref: str
    completer: Completer | None
    value: str
    chosen: dict[str, str]

    replayable = False
    rounds = False
    own_rounds = False
    task_support = None

    @property
    def label(self) -> str:
        """What is called, for people."""
        return f"completion/complete {self.ref}"

    async def run(self, call: CallActor) -> bytes | InputRequired:
        """See `Handler.run`."""
        completer = self.completer
        if completer is None:
            return encode_completion(NOTHING, call.result_suffix)
        try:
            arguments = completer.bind(self.value, self.chosen)
            value = await self.runner.call(
                completer.function, call, "completion/complete", self.ref, arguments
            )
            return completer.encode_result(value, call.result_suffix)
        except BaseException as error:  # noqa: BLE001  # translated
            _raise_translated(_failure(error, self.label), self.label)


class ExtensionCall(msgspec.Struct, frozen=True):
    """A request of a method that an extension defines."""

    runner: Runner
    method: ExtensionMethod
    params: msgspec.Raw

    replayable = False
    rounds = False
    own_rounds = False
    task_support = None

    @property
    def label(self) -> str:
        """What is called, for people."""
        return self.method.name

    async def run(self, call: CallActor) -> bytes | InputRequired:
        """See `Handler.run`."""
        method = self.method
        try:
            arguments = method.decode(self.params)
            value = await self.runner.call(method.function, call, method.name, method.name, arguments)
            if isinstance(value, InputRequired):
                return value
            return method.encode_result(value, call.result_suffix)
        except InvalidArgumentsError as error:
            raise invalid_params(f"{error} - at `params`") from error
        except BaseException as error:  # noqa: BLE001  # translated
            _raise_translated(_failure(error, self.label), self.label)


class ListElsewhere(msgspec.Struct, frozen=True):
    """A page of a list that upstream servers may have changed, or that is another one for each client."""

    name: ListName
    label: str
    features: Callable[[], FeatureSet]
    answer: Callable[[FeatureSet], bytes]
    first: bool
    """Whether it is the first page: further ones are of the list that the first one began."""

    replayable = False
    rounds = False
    own_rounds = False
    task_support = None

    async def run(self, call: CallActor) -> bytes:
        """Ask the upstream servers, and answer with what they have for this client."""
        if self.first:
            async with trio.open_nursery() as nursery:
                for refresh in self.features().refreshing(call.context, self.name):
                    nursery.start_soon(refresh, call.bus.budget)
        return self.answer(self.features().seen_by(call.context))


def _failure(error: BaseException, label: str) -> BaseException:
    """Return the function's own failure; what is not its own is raised on, and what failed beside that logged.

    Raises:
        trio.Cancelled: The call was cancelled.
        KeyboardInterrupt: The user ends the program.
    """
    failure, rest = split_failure(error)
    if rest is None:
        return error
    if failure is not None:
        _log_failure(label, failure)
    try:
        raise rest
    finally:
        del error, failure, rest  # their tracebacks hold this frame: without this, a cycle


def _raise_translated(error: BaseException, label: str) -> Never:
    cause = sole_cause(error)
    if isinstance(cause, ProtocolError):
        try:
            _raise_sole(cause)
        finally:
            del error, cause  # the traceback holds this frame: without this, a cycle
    if isinstance(cause, CallTimeoutError):
        raise ProtocolError(INTERNAL_ERROR, f"{label} {cause}") from error
    _log_failure(label, error)
    raise internal_error() from error


def _raise_sole(cause: ProtocolError) -> Never:
    """Raise an exception that was found in a group, or is all that there was."""
    context = cause.__context__
    try:
        raise cause
    finally:
        cause.__context__ = context  # and not the group, which holds it
        del cause, context  # as above


def _log_failure(label: str, error: BaseException) -> None:
    _log.error("%s failed%s", label, _hint(sole_cause(error)), exc_info=error)


def is_of_asyncio(error: BaseException) -> bool:
    """Whether it is what functions of asyncio raise on trio."""
    return _hint(error) not in {"", _TO_TRIO}


def _hint(error: BaseException) -> str:
    """What to write instead, for what functions of asyncio raise on trio, and those of trio on asyncio."""
    if not isinstance(error, RuntimeError | TypeError | AttributeError):
        return ""
    text = str(error)
    if text == _ASYNCIO_WAITS:
        return _TO_TRIO_WAITS
    if text == _OF_TRIO or text.startswith(_TRIO_YIELDED):
        return _TO_TRIO
    return _TO_ASYNCIO if any(word in text for word in _OF_ASYNCIO) else ""
