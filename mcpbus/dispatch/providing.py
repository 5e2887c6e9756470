"""Makes what a function depends on, and cleans up after it, in the order of its plan."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from mcpbus.core.context import Context
from mcpbus.core.sync_context import SyncContext
from mcpbus.features.dependencies import Plan, ProviderKind, Step

T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a plain function in a worker thread, or in this one if `thread` is false, and waits for it.

    When the caller is cancelled it does not wait for the thread, unless `abandon` is false. It has a place among those that may be
    at work at once, unless `placed` is false.
    """

    async def __call__(  # noqa: D102
        self, function: Callable[[], T], *, thread: bool, abandon: bool, placed: bool = True
    ) -> T: ...


async def provide(
    plan: Plan, context: Context, stack: AsyncExitStack, in_thread: RunInThread
) -> dict[str, Any]:
    """Make what fills a function's parameters; leaving the stack cleans up.

    Args:
        plan: what it needs.
        context: given to those providers that take it.
        stack: what is entered.
        in_thread: runs plain providers.
    """
    made: list[Any] = []
    for step in plan.steps:
        call = partial(step.provider, **_arguments(step, made, context))
        match step.kind:
            case ProviderKind.COROUTINE:
                made.append(await call())
            case ProviderKind.ASYNC_MANAGER:
                made.append(await stack.enter_async_context(call()))
            case ProviderKind.VALUE:
                made.append(await in_thread(call, thread=step.thread, abandon=not plan.opens))
            case ProviderKind.MANAGER:
                made.append(await stack.enter_async_context(_InThread(call(), step.thread, in_thread)))
    return _named(plan.needs, made)


def provide_plainly(plan: Plan, context: Context, stack: ExitStack) -> dict[str, Any]:
    """Do the same for a plain function whose providers are all plain, in its own thread."""
    made: list[Any] = []
    for step in plan.steps:
        value = step.provider(**_arguments(step, made, context))
        made.append(stack.enter_context(value) if step.kind is ProviderKind.MANAGER else value)
    return _named(plan.needs, made)


def _arguments(step: Step, made: list[Any], context: Context) -> dict[str, Any]:
    arguments = _named(step.needs, made)
    if step.context is not None:
        arguments[step.context] = context if step.asynchronous else SyncContext(context)
    return arguments


def _named(needs: Mapping[str, int], made: list[Any]) -> dict[str, Any]:
    return {name: made[number] for name, number in needs.items()}


class _InThread:
    """A plain context manager that is entered and left in a worker thread."""

    def __init__(self, manager: Any, thread: bool, in_thread: RunInThread) -> None:
        self._manager = manager
        self._run = partial(in_thread, thread=thread, abandon=False)

    async def __aenter__(self) -> Any:
        return await self._run(self._manager.__enter__)

    async def __aexit__(self, *raised: object) -> Any:
        # What was opened is closed, also for a call that was cancelled; and while all places are taken, perhaps by those who wait for
        # that, such as for a connection of a pool.
        with trio.CancelScope(shield=True):
            return await self._run(partial(self._manager.__exit__, *raised), placed=False)
