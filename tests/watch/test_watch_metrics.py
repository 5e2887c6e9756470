"""The figures of a watched bus: each tool has a histogram and its failures, in the form that Prometheus reads."""

import re

import trio

from mcpbus import Server, ToolError
from mcpbus.metrics import exposition, lines_of_calls
from mcpbus.testing import open_bus
from mcpbus.watch import Watch

LINE = re.compile(r'[a-z_]+(\{([a-z]+="(?:[^"\\]|\\.)*",?)+\})? [\d.]+')


async def test_each_tool_has_its_durations_and_failures(autojump_clock):
    server, gate = Server("s"), trio.Event()

    @server.tool
    async def add() -> int:
        return 1

    @server.tool
    async def fail() -> int:
        raise ToolError("no")

    @server.tool
    async def wait() -> None:
        await gate.wait()

    async with (
        open_bus(server, watch=Watch()) as bus,
        trio.open_nursery() as nursery,
        bus.connect() as client,
    ):
        for tool in ("add", "add", "fail"):
            await client.call_tool(tool)
        nursery.start_soon(client.call_tool, "wait")
        await trio.sleep(1)
        page = exposition(bus.statistics(), None, bus.watch).decode()
        gate.set()
        await trio.sleep(1)
    own = page[page.index("# HELP mcpbus_operation_duration_seconds") :].splitlines()
    assert all(LINE.fullmatch(line) for line in own if not line.startswith("#"))
    labels = 'method="tools/call",name="add"'
    assert f"mcpbus_operation_duration_seconds_count{{{labels}}} 2" in own
    assert f'mcpbus_operation_duration_seconds_bucket{{{labels},le="+Inf"}} 2' in own
    assert f'mcpbus_operation_duration_seconds_bucket{{{labels},le="300.0"}} 2' in own
    assert 'mcpbus_operation_failures_total{method="tools/call",name="fail",error="ToolError"} 1' in own
    [oldest] = [line for line in own if line.startswith("mcpbus_oldest_request_seconds ")]
    assert float(oldest.split()[1]) > 0
    assert "mcpbus_operation" not in exposition(bus.statistics()).decode()


def test_a_name_with_any_character_stays_in_its_quotes():
    watch = Watch()
    watch.records.tallies.of("tools/call", 'a"b\\c\nd')
    lines = list(lines_of_calls(watch))
    assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#"))
    assert len(lines) == 2 * 4 + 15 + 2 + 2
