"""The server of a soak, a program of its own: tools that fail in all ways, ask, last, speak and say much, and one that tells the books."""

import asyncio
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from mcpbus import Context, Limits, ServeOptions, Server
from mcpbus.protocol.errors import ProtocolError
from mcpbus.stores import MemoryEventStore

PATIENCE = float(os.environ.get("SOAK_PATIENCE", "10"))
"""Seconds after which whatever waits for a client is given up, so that a soak sees that too."""

LIMITS = Limits(
    idle_timeout=PATIENCE,
    initialize_timeout=PATIENCE,
    abandoned_timeout=PATIENCE,
    input_timeout=PATIENCE,
    suspended_timeout=PATIENCE,
    held_timeout=PATIENCE,
    task_ttl=PATIENCE,
    keep_alive=1.0,
    write_deadline=PATIENCE,
    max_running_tasks=10,
    max_tasks=50,
    max_suspended_calls=20,
    outbox_items=100,
    outbox_bytes=200_000,
)
FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}

server = Server("soak", version="1")


class OwnError(BaseException):
    """An exception that is not one of Exception's."""


async def _never_caught() -> None:
    raise trio.TooSlowError


def _raising(error: Callable[[], BaseException]) -> Callable[[], Any]:
    async def fail() -> None:
        raise error()

    return fail


async def _nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_never_caught)


async def _cancelled_by_itself() -> None:
    with trio.fail_after(0.01):
        await trio.sleep_forever()


async def _stray_cancelled() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except BaseException as error:
            stray = error
            raise
    raise stray


async def _blocked() -> None:
    time.sleep(0.02)  # noqa: ASYNC251 - this is what it is about
    raise RuntimeError


async def _stubborn() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(0.2)
    raise RuntimeError


async def _foreign() -> None:
    with trio.move_on_after(5):
        await asyncio.sleep(0)


async def _exit_in_thread() -> None:
    await trio.to_thread.run_sync(sys.exit, 3)


def _endless() -> Any:
    return _endless()


FAULTS: dict[str, Callable[[], Any]] = {
    "an exception": _raising(ValueError),
    "an error of the protocol": _raising(lambda: ProtocolError(-32000, "no")),
    "SystemExit": _raising(lambda: SystemExit(2)),
    "a BaseException of its own": _raising(OwnError),
    "GeneratorExit": _raising(GeneratorExit),
    "MemoryError": _raising(MemoryError),
    "asyncio's Cancelled": _raising(asyncio.CancelledError),
    "a group": _raising(lambda: BaseExceptionGroup("", [OwnError(), ValueError()])),
    "an exception in a nursery": _nursery,
    "a deadline of its own": _cancelled_by_itself,
    "a stray Cancelled": _stray_cancelled,
    "blocking": _blocked,
    "a shield": _stubborn,
    "a foreign await": _foreign,
    "an exit in a thread": _exit_in_thread,
    "endless recursion": _endless,
}


@server.tool
async def fail(ctx: Context, kind: str, first: str = "") -> str:
    """Fail, after a wait or a word, or at once."""
    if first == "wait":
        await trio.sleep(0.01)
    elif first == "word":
        await ctx.progress(1)
    await FAULTS[kind]()
    return "did not fail"


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def say(ctx: Context, times: int, size: int = 10, pause: float = 0.0) -> str:
    for n in range(times):
        await ctx.progress(n, times)
        receipt = await ctx.info("x" * size)
        if n % 7 == 0:
            with trio.move_on_after(0.1):
                await receipt.settled()
        await trio.sleep(pause)
    return "said"


@server.tool
async def big(size: int) -> str:
    return "x" * size


@server.tool
async def wait(seconds: float) -> str:
    await trio.sleep(seconds)
    return "waited"


@server.tool
def block(seconds: float) -> str:
    time.sleep(seconds)
    return "blocked a thread"


@server.tool
async def ask(ctx: Context, times: int = 1) -> str:
    for n in range(times):
        await ctx.elicit(f"number {n}", FORM)
    return "asked"


async def work(ctx: Context, asks: bool, fault: str = "") -> str:
    await trio.sleep(0.1)
    if asks:
        await ctx.elicit("go on?", FORM)
    if fault:
        await FAULTS[fault]()
    return "worked"


server.features.add_tool(work, name="work", task="optional")


@server.tool
async def change(ctx: Context, what: str) -> str:
    """Something changes, of which all are told who listen."""
    if what == "tool":
        server.add_tool(lambda: 1, name="extra")
        server.remove_tool("extra")
    elif what == "wait":
        with trio.move_on_after(0.2):
            await ctx.bus.resource_updated("res://a").settled()
    else:
        ctx.bus.resource_updated("res://a")
        ctx.bus.prompts_changed()
    return "changed"


@server.tool
async def inside(ctx: Context, tool: str, arguments: dict[str, Any], revision: str) -> str:
    """Call another tool as a client in process, which may leave too soon."""
    with trio.move_on_after(0.5):
        async with ctx.bus.connect(revision=revision) as client:
            await client.call_tool(tool, arguments)
    return "called"


def _kilobytes() -> int:
    """The memory that the process has, as the system counts it."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") // 1024


@server.tool
async def books(ctx: Context, thorough: bool = False) -> dict[str, int]:
    """What the server holds: the same again whenever it has nothing to do."""
    if thorough:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
    now, bus = ctx.bus.statistics(), ctx.bus
    return {
        "missing": bus.ledger.balance(),
        "emitted": now.emitted,
        "pending": sum(now.pending.values()),
        "sessions": now.sessions,
        "requests": now.requests,
        "actors": now.actors,
        "tasks": now.tasks,
        "parked": len(bus.parked_calls),
        "kept": len(bus.tasks),
        "topics": len(bus.topics),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - the shortest way
        "kilobytes": _kilobytes(),
    }


@server.resource("res://a")
async def resource() -> str:
    return "content"


@server.prompt
async def review(code: str) -> str:
    return code


async def main() -> None:
    options = ServeOptions(keep_alive_timeout=PATIENCE, write_deadline=PATIENCE)
    store = MemoryEventStore(max_items=2000)
    async with (
        server.open(limits=LIMITS, event_store=store, drain_timeout=2) as bus,
        trio.open_nursery() as nursery,
    ):

        async def serve(task_status: trio.TaskStatus[list[str]]) -> None:
            await bus.serve(bind="127.0.0.1:0", options=options, task_status=task_status)

        (url,) = await nursery.start(serve)
        print(url, flush=True)  # noqa: T201 - this is how the soak finds it


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run("stdio", limits=LIMITS)
    else:
        trio.run(main)
