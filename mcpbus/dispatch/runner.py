"""Runs what authors wrote: coroutines in place, plain functions in worker threads, both under middleware and a timeout.

Makes what a function depends on, and cleans up after it, in the order of its plan.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs
import trio

from mcpbus.core.call import CallActor
from mcpbus.core.context import Context
from mcpbus.core.fair_limiter import FairLimiter
from mcpbus.core.sync_context import SyncContext
from mcpbus.core.worker_threads import worker_threads
from mcpbus.features.dependencies import Plan, ProviderKind, Step
from mcpbus.features.errors import CallTimeoutError
from mcpbus.features.function import Function, MountOrigin
from mcpbus.features.option_types import check_kinds
from mcpbus.features.tool import Tool

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


@attrs.frozen
class Invocation:
    """One call of an author's function, as middleware sees it."""

    context: Context
    method: str
    """``tools/call``, ``prompts/get``, ``resources/read`` or ``completion/complete``; or one of an extension."""
    name: str
    """Of the tool or prompt; the URI that is read; the prompt or URI template that is completed; an extension's method."""
    arguments: Mapping[str, Any]
    """The function's keyword arguments, decoded and checked, without the context, and without what it depends on."""
    tool: Tool | None = None
    """The tool that is called, if it is one."""


CallNext: TypeAlias = Callable[[Invocation], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Invocation, CallNext], Awaitable[Any]]
"""Wraps every call: ``async def middleware(invocation, call_next)``.

It returns what the function returns, before that is encoded: `await call_next(invocation)`, or something else of the
same kind. It may pass on another invocation (`attrs.evolve(invocation, arguments=...)`), and what it raises counts as
raised by the function. The first in the server's list is the outermost.
"""


class Runner:
    """Calls functions for one server.

    Args:
        max_threads: how many plain functions run at once; further ones wait for a thread.
        middleware: wraps each call, the first outermost.

    Attributes:
        middleware: As given.
        inline: True runs every plain function on the trio thread, for tests: deterministic, under any clock.
        overrides: What is called instead of functions that others depend on, for tests.
    """

    def __init__(self, max_threads: int = 40, middleware: Sequence[Middleware] = ()) -> None:
        check_kinds("Server", {"max_threads": max_threads})
        if max_threads < 1:
            raise ValueError(f"max_threads is at least 1, not {max_threads}")
        self.inline = False
        self.overrides: Mapping[Any, Callable[..., Any]] = {}
        self._threads = max_threads
        self.middleware = tuple(middleware)
        self._middleware = tuple(reversed(middleware))
        # The threads of one trio run are counted: one that was abandoned when its run ended never gives its
        # place back, and must not take it from the next run.
        self._places: trio.lowlevel.RunVar[FairLimiter] = trio.lowlevel.RunVar("mcpbus threads")

    def waits(self, function: Function) -> bool:
        """Whether a call of `function` may wait for something, itself or in the middleware around it."""
        return bool(self._middleware) or function.waits

    def call(
        self, function: Function, call: CallActor, method: str, name: str, arguments: Mapping[str, Any]
    ) -> Awaitable[Any]:
        """Call `function`; to be awaited for what it, or the middleware around it, returns.

        A cancelled or timed out plain function keeps its thread until it returns; its result is dropped. It is waited for only where
        something that it depends on is to be closed after it by another task or thread.

        Args:
            function: the function.
            call: what its context speaks through.
            method: see `Invocation`.
            name: see `Invocation`.
            arguments: see `Invocation`.

        Raises:
            CallTimeoutError: the function did not end in time; the time that it waits for the client is included.
            Exception: whatever the function raises.
        """
        if self._middleware or function.wrapped:
            tool: Tool | None = getattr(call.handler, "tool", None)
            invocation = Invocation(Context(call), method, name, arguments, tool)
            return self._call_wrapped(function, call, invocation)
        signature = function.signature
        if signature.context is not None:
            arguments = _with_context(function, arguments, Context(call))
        if signature.asynchronous:
            return signature.function(**arguments)  # type: ignore[no-any-return]  # it is asynchronous
        return self._in_thread(call, partial(signature.function, **arguments), thread=function.thread)

    async def _call_wrapped(self, function: Function, call: CallActor, invocation: Invocation) -> Any:
        step: CallNext = partial(self._call_invoked, function, call)
        for origin in function.origins:
            for middleware in reversed(origin.middleware):
                step = partial(_wrap, middleware, step)
            step = partial(_enter, origin, step)
        for middleware in self._middleware:
            step = partial(_wrap, middleware, step)
        if function.timeout is None:
            return await step(invocation)
        with trio.move_on_after(function.timeout) as scope:
            return await step(invocation)
        assert scope.cancelled_caught  # noqa: S101  # nothing else leaves the block without a result
        raise CallTimeoutError(function.timeout)

    def _call_invoked(self, function: Function, call: CallActor, invocation: Invocation) -> Awaitable[Any]:
        arguments = _with_context(function, invocation.arguments, invocation.context)
        run = partial(function.signature.function, **arguments)
        plan, asynchronous = function.signature.dependencies, function.signature.asynchronous
        if plan is not None and self.overrides:
            plan = plan.replacing(self.overrides)
        if plan is not None and (asynchronous or not plan.runs_within(function.thread)):
            return self._call_depending(plan, function, call, run, invocation.context)
        if asynchronous:
            return run()  # type: ignore[no-any-return]  # it is asynchronous
        if plan is not None:
            run = partial(_run_depending, plan, function, run, invocation.context)
        return self._in_thread(call, run, thread=function.thread)

    async def _call_depending(
        self, plan: Plan, function: Function, call: CallActor, run: Callable[..., Any], context: Context
    ) -> Any:
        in_thread: Any = partial(self._in_thread, call)
        async with AsyncExitStack() as stack:
            run = partial(run, **await provide(plan, context, stack, in_thread))
            if function.signature.asynchronous:
                return await run()
            result = await in_thread(run, thread=function.thread, abandon=not plan.opens)
            await trio.lowlevel.checkpoint_if_cancelled()
            return result
        raise _swallowed(function)

    async def _in_thread(
        self,
        call: CallActor,
        run: Callable[[], Any],
        *,
        thread: bool,
        abandon: bool = True,
        placed: bool = True,
    ) -> Any:
        if self.inline or not thread:
            return run()
        place: Any
        if placed:
            place = self.places().place(call.context.owner, call.bus.limit_monitor)
        else:
            place = trio.CapacityLimiter(1)
        try:
            if abandon:
                return await worker_threads().run(run, place)
            return await trio.to_thread.run_sync(run, limiter=place)
        finally:
            call.bus.from_thread.take()  # what it has said comes before what it returns

    def places(self) -> FairLimiter:
        """Return the places of functions in threads in this trio run."""
        try:
            return self._places.get()
        except LookupError:
            places = FairLimiter(
                self._threads, option="max_threads", waited="a plain function waited for a thread"
            )
            self._places.set(places)
            return places


def _run_depending(plan: Plan, function: Function, run: Callable[..., Any], context: Context) -> Any:
    with ExitStack() as stack:
        return run(**provide_plainly(plan, context, stack))
    raise _swallowed(function)


def _swallowed(function: Function) -> RuntimeError:
    return RuntimeError(
        f"{function.signature.owner} raised, and one of its dependencies has caught that; let it pass, with try and finally"
    )


def _with_context(function: Function, arguments: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """Return the keyword arguments of a function, with the context if it takes one."""
    name = function.signature.context
    if name is None:
        return arguments
    return {**arguments, name: context if function.signature.asynchronous else SyncContext(context)}


def _enter(origin: MountOrigin, call_next: CallNext, invocation: Invocation) -> Awaitable[Any]:
    """Go on as within a mounted server: with its own name for what is called, and what its lifespan yielded."""
    below = Invocation(
        invocation.context.within(origin.server),
        invocation.method,
        origin.name_below(invocation.name),
        invocation.arguments,
        origin.item if invocation.tool is not None else None,
    )
    return call_next(below)


def _wrap(middleware: Middleware, call_next: CallNext, invocation: Invocation) -> Awaitable[Any]:
    return middleware(invocation, call_next)
