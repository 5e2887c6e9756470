"""A handler that asks much at once: for each question as much is done as for the first one, and not more for each that is open."""

import sys
from pathlib import Path

import pytest
import trio

import mcpbus
from mcpbus import Context, Server
from mcpbus.testing import open_bus, settle

HOME = str(Path(mcpbus.__file__).parent)
TASKS = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}


class Work:
    """Counts the bytecodes of mcpbus that are run in its block."""

    def __enter__(self):
        self.done = 0
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _enter(self, frame, _event, _argument):
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, _frame, event, _argument):
        self.done += event == "opcode"
        return self._count


async def work_for(questions, revision, capabilities):
    """Tell what it takes that a handler asks so many questions at once, and is cancelled."""
    server = Server("curious")

    @server.tool(task="optional")
    async def ask(ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(questions):
                nursery.start_soon(ctx.elicit, "Why?", str)

    async def think(_method, _params):
        await trio.sleep_forever()

    async with open_bus(server) as bus:
        connected = bus.connect(revision=revision, capabilities=capabilities, on_question=think)
        async with connected as client, trio.open_nursery() as nursery:
            with Work() as work:
                if capabilities is TASKS:
                    handle = await client.call_tool("ask", {})
                    await settle(bus)
                    await client.request("tasks/cancel", {"taskId": handle["taskId"]})
                else:
                    nursery.start_soon(client.call_tool, "ask", {})
                    await settle(bus)
                    nursery.cancel_scope.cancel()
                await settle(bus)
    return work.done


@pytest.mark.parametrize(
    ("revision", "capabilities"),
    [
        pytest.param("2025-11-25", {"elicitation": {}}, id="legacy"),
        pytest.param("2026-07-28", TASKS, id="task"),
    ],
)
async def test_what_each_of_many_questions_takes_does_not_grow_with_their_number(
    revision, capabilities, autojump_clock
):
    few, many = [await work_for(number, revision, capabilities) for number in (60, 240)]
    assert many < 6 * few
