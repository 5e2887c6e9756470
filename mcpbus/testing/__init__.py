"""What tests of a server need: clients in the same process, with no socket, no thread and no real time.

Tests that only call are shortest with `open_client`; with pytest-trio's ``autojump_clock`` fixture, what sleeps
takes no time::

    async def test_forecast(autojump_clock):
        async with open_client(server) as client:
            result = await client.call_tool("forecast", {"city": "Bergen", "days": 1})
            assert result["structuredContent"] == [{"day": 1, "weather": "rain"}]

Tests of what goes over HTTP, on which stream and when, drive the server's ASGI application with an `AsgiProbe`. Each
`Recording` is one HTTP exchange as its client sees it; a client may stall, or go away, at any moment::

    async def test_progress_comes_while_the_tool_runs(autojump_clock):
        async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
            session = await probe.initialize("2025-11-25")
            arguments = {"city": "Bergen"}
            call = session.request("tools/call", {"name": "forecast", "arguments": arguments}, progress_token=1)
            assert (await call.message())["method"] == "notifications/progress"
            call.disconnect()

Tests of what tokens allow have an `InMemoryIssuer` in memory, which needs the extra ``mcpbus-server[auth]``::

    async def test_alice_may_not_write(autojump_clock):
        issuer = InMemoryIssuer()
        server = Server("files", auth=issuer.protect())

        @server.tool(scopes=["files:write"])
        async def write() -> str:
            return "written"

        async with open_bus(server) as bus, open_probe(bus.asgi(), headers=issuer.bearer("alice")) as probe:
            call = probe.request("tools/call", {"name": "write", "arguments": {}})
            assert (await call.ended()).status == 403

Plain functions run on the trio thread meanwhile, so that a test is the same each time it runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcpbus.testing.memory_directory import MemoryDirectory
from mcpbus.testing.opening import open_bus, open_client, wait_until_idle
from mcpbus.testing.probe import AsgiProbe, LegacyHttpSession, open_probe
from mcpbus.testing.recording import Recording, StreamEndedError

if TYPE_CHECKING:
    from mcpbus.testing.issuer import InMemoryIssuer
else:

    def __getattr__(name: str) -> Any:
        """Import what needs the extra ``auth`` when it is asked for, and not before."""
        if name == "InMemoryIssuer":
            import_module("mcpbus.auth")  # which says what to install
            return import_module("mcpbus.testing.issuer").InMemoryIssuer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AsgiProbe",
    "InMemoryIssuer",
    "LegacyHttpSession",
    "MemoryDirectory",
    "Recording",
    "StreamEndedError",
    "open_bus",
    "open_client",
    "open_probe",
    "wait_until_idle",
]
