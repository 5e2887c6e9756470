"""Authors' code that raises what is no `Exception`: it fails as any other, and the log says why."""

import asyncio

import pytest
import trio

from mcpbus import ProtocolError, Server
from mcpbus.testing import open_client


class OddError(BaseException):
    """A class of somebody's own."""


async def stray_cancelled():
    """Keep the `Cancelled` of one scope, and raise it when that is over, as a cache of failures does."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept = error
    raise kept


async def raise_(error):
    raise error


async def raise_in_nursery(error):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raise_, error)


FAULTS = {
    "SystemExit": lambda: raise_(SystemExit(3)),
    "a class of one's own": lambda: raise_(OddError("odd")),
    "GeneratorExit": lambda: raise_(GeneratorExit("odd")),
    "asyncio": lambda: raise_(asyncio.CancelledError("odd")),
    "a group": lambda: raise_(BaseExceptionGroup("odd", [OddError(), ValueError()])),
    "in a nursery": lambda: raise_in_nursery(OddError("odd")),
    "Cancelled": stray_cancelled,
    "asyncio's sleep": lambda: asyncio.sleep(0),
}
LATE = pytest.mark.parametrize("late", [False, True], ids=["at once", "after a wait"])
FAULT = pytest.mark.parametrize("fault", FAULTS)


def make_server(fault, late, **options):
    server = Server("odd", version="1", **options)

    async def fail(*_):
        if late:
            await trio.sleep(1)
        await FAULTS[fault]()

    @server.tool
    async def tool() -> str:
        return await fail()

    @server.tool(timeout=60)
    async def in_time() -> str:
        return await fail()

    @server.resource("res://a")
    async def resource() -> str:
        return await fail()

    @server.prompt
    async def prompt(code: str) -> str:
        return await fail()

    @server.completion("prompt", "code")
    async def complete(value: str) -> list[str]:
        return await fail()

    @server.tool
    async def echo() -> str:
        return "well"

    return server, fail


CALLS = {
    "prompt": lambda client: client.request("prompts/get", {"name": "prompt", "arguments": {"code": "x"}}),
    "resource": lambda client: client.request("resources/read", {"uri": "res://a"}),
    "completion": lambda client: client.request(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": {"name": "code", "value": ""}},
    ),
}
LABELS = {
    "prompt": "prompts/get prompt",
    "resource": "resources/read res://a",
    "completion": "completion/complete prompt",
}


def assert_logged(caplog, label, fault=None):
    (record,) = caplog.records
    failed, _, hint = record.getMessage().partition(": ")
    assert (record.name, failed) == ("mcpbus", f"{label} failed")
    assert ("mcpbus.asyncio.to_asyncio" in hint) == (fault == "asyncio's sleep")
    assert record.exc_info[2] is not None


@pytest.mark.parametrize("name", ["tool", "in_time"])
@LATE
@FAULT
async def test_a_tool_has_failed(fault, late, name, caplog, autojump_clock):
    server, _ = make_server(fault, late)
    async with open_client(server) as client:
        result = await client.call_tool(name)
        assert result["isError"]
        assert result["content"][0]["text"] == f"Tool {name} failed"
        assert_logged(caplog, f"tools/call {name}", fault)
        assert (await client.call_tool("echo"))["content"][0]["text"] == "well"


@pytest.mark.parametrize("what", CALLS)
@LATE
@FAULT
async def test_anything_else_is_an_internal_error(fault, late, what, caplog, autojump_clock):
    server, _ = make_server(fault, late)
    async with open_client(server) as client:
        with pytest.raises(ProtocolError) as raised:
            await CALLS[what](client)
        assert (raised.value.code, raised.value.message) == (-32603, "Internal error")
        assert_logged(caplog, LABELS[what], fault)
        assert (await client.call_tool("echo"))["content"][0]["text"] == "well"


@LATE
@FAULT
async def test_middleware_fails_the_call_that_it_is_around(fault, late, caplog, autojump_clock):
    async def middleware(invocation, call_next):
        if invocation.name == "tool":
            await fail()
        return await call_next(invocation)

    server, fail = make_server(fault, late, middleware=[middleware])
    async with open_client(server) as client:
        assert (await client.call_tool("tool"))["isError"]
        assert_logged(caplog, "tools/call tool", fault)
        assert (await client.call_tool("echo"))["content"][0]["text"] == "well"


@pytest.mark.parametrize(
    "error", [SystemExit(3), OddError(), asyncio.CancelledError(), MemoryError()], ids=repr
)
async def test_a_plain_function_fails_in_its_thread(error, caplog):
    server = Server("odd", version="1")

    @server.tool
    def tool() -> str:
        raise error

    async with server.open() as bus, bus.connect() as client:
        assert (await client.call_tool("tool"))["isError"]
        assert_logged(caplog, "tools/call tool")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_call_that_is_cancelled_and_fails_at_that_leaves_its_failure_in_the_log(
    revision, caplog, autojump_clock
):
    server = Server("odd", version="1")

    @server.tool
    async def tool() -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            raise BaseExceptionGroup("both", [error, OddError("odd")]) from None

    async with open_client(server, revision=revision) as client:
        with trio.move_on_after(1):
            await client.call_tool("tool")
        await trio.sleep(1)
        assert_logged(caplog, "tools/call tool")
