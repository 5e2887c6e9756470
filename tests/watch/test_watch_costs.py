"""What a watch costs a short call: nothing while it is off, and a bounded number of bytecodes while it is on."""

import subprocess
import sys
from pathlib import Path

import mcpbus_actors
import pytest
import trio

import mcpbus
from mcpbus import Server
from mcpbus.testing import open_bus
from mcpbus.watch import Watch

PACKAGES = tuple(str(Path(package.__file__).parent) for package in (mcpbus, mcpbus_actors))
MOST_ON = 700


async def bytecodes(watch):
    """Count the bytecodes of ours that one short call takes."""
    server, counts = Server("s"), []

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGES):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counts[-1] += event == "opcode"
        return trace

    async with open_bus(server, watch=watch) as bus, bus.connect() as client:
        for _ in range(20):
            await client.call_tool("add", {"a": 1, "b": 2})
        for _ in range(5):
            counts.append(0)
            before = sys.gettrace()
            sys.settrace(trace)
            try:
                await client.call_tool("add", {"a": 1, "b": 2})
            finally:
                sys.settrace(before)
    return min(counts)


@pytest.mark.unwatched
def test_a_watch_keeps_to_its_budget():
    off, on = trio.run(bytecodes, None), trio.run(bytecodes, Watch())
    assert off > 500
    assert off < on <= off + MOST_ON


def test_a_bus_that_nothing_watches_has_none_of_it():
    program = (
        "import trio, sys; from mcpbus import Server; from mcpbus.testing import open_client\n"
        "server = Server('s'); server.add_tool(lambda: None, name='t')\n"
        "async def main():\n"
        "    async with open_client(server) as client: await client.call_tool('t')\n"
        "trio.run(main); print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not [
        name for name in ended.stdout.split() if name.startswith(("mcpbus.watch", "mcpbus.core.watching"))
    ]
