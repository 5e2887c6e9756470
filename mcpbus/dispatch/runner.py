"""Runs what authors wrote: coroutines in place, plain functions in worker threads, both under middleware and a timeout."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio

from mcpbus.core.call import CallActor
from mcpbus.core.context import Context
from mcpbus.core.places import FairLimiter
from mcpbus.core.sync_context import SyncContext
from mcpbus.core.worker_threads import worker_threads
from mcpbus.dispatch.providing import provide, provide_plainly
from mcpbus.features.dependencies import Plan
from mcpbus.features.errors import CallTimeoutError
from mcpbus.features.function import Function
from mcpbus.features.keywords import check_kinds
from mcpbus.features.origin import MountOrigin
from mcpbus.features.tool import Tool


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
