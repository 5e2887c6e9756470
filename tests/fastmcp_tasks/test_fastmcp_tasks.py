"""Background tasks of FastMCP, hosted: its own client begins, polls and cancels them over HTTP."""

from contextlib import asynccontextmanager

import anyio
import pytest
import trio
from fastmcp import Client, FastMCP
from fastmcp_tasks import TasksExtension, call_tool_task

import mcpbus
from mcpbus.asyncio import to_asyncio

pytestmark = pytest.mark.filterwarnings("ignore")

mcp = FastMCP("tasks")
mcp.add_extension(TasksExtension())


@mcp.tool(task=True)
async def double(number: int) -> int:
    await anyio.sleep(0.1)
    return 2 * number


@mcp.tool(task=True)
async def sleep() -> str:
    await anyio.sleep(60)
    return "done"


@asynccontextmanager
async def served():
    async with mcpbus.host(mcp).open(drain_timeout=0) as bus, trio.open_nursery() as nursery:
        [url] = await nursery.start(
            lambda task_status: bus.serve(bind="127.0.0.1:0", task_status=task_status)
        )
        yield url
        nursery.cancel_scope.cancel()


async def use_tasks(url):
    async with Client(url) as client:
        task = await call_tool_task(client, "double", {"number": 21})
        doubled = (await task.result()).data
        endless = await call_tool_task(client, "sleep", {})
        await endless.cancel()
        return doubled, (await endless.wait(timeout=10)).status


async def test_tasks_begin_end_and_are_cancelled():
    with trio.fail_after(30):
        async with served() as url:
            assert await to_asyncio(use_tasks, url) == (42, "cancelled")
