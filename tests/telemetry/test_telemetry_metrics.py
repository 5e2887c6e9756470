"""Metrics of requests and messages, and faults of telemetry, which harm no request."""

import sys

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from mcpbus import Context, ProtocolError, Server
from mcpbus.telemetry import Telemetry, names
from mcpbus.testing import open_bus
from mcpbus.watch.tallies import BOUNDS


def shop():
    server = Server("shop")

    @server.tool
    async def add(a: int, ctx: Context) -> int:
        await ctx.info("x")
        return a + 1

    @server.tool
    async def crash() -> None:
        raise LookupError("it is secret")

    @server.tool
    async def wait() -> None:
        await trio.sleep(100)

    return server


class Measured:
    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.telemetry = Telemetry(meter_provider=MeterProvider([self._reader]))

    def points(self, name):
        """Return the points of an instrument; none if it has none."""
        data = self._reader.get_metrics_data()
        scopes = data.resource_metrics[0].scope_metrics if data and data.resource_metrics else []
        return [
            point
            for scope in scopes
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def values(self, name, key):
        return {point.attributes.get(key): point.value for point in self.points(name)}


@pytest.fixture
def measured():
    return Measured()


async def call(bus, name, arguments=None):
    async with bus.connect() as client:
        return await client.call_tool(name, arguments or {})


@pytest.mark.one_shell("a client in process has no address")
async def test_durations_are_recorded_with_the_bounds_of_the_conventions(measured, autojump_clock):
    async with open_bus(shop(), telemetry=measured.telemetry) as bus:
        for _ in range(3):
            await call(bus, "add", {"a": 1})
        await call(bus, "crash")
        with pytest.raises(ProtocolError):
            await call(bus, "a client's text")
        points = measured.points(names.OPERATION_DURATION)
    found = {point.attributes["gen_ai.tool.name"]: point for point in points}
    assert set(found) == {"add", "crash", "(unknown)"}
    assert found["add"].count == 3
    assert tuple(found["add"].explicit_bounds) == BOUNDS
    assert dict(found["crash"].attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "gen_ai.tool.name": "crash",
        "gen_ai.operation.name": "execute_tool",
        "error.type": "LookupError",
    }
    assert found["(unknown)"].attributes["rpc.response.status_code"] == "-32602"


async def test_counts_are_those_of_the_bus(measured, autojump_clock):
    async with (
        open_bus(shop(), telemetry=measured.telemetry) as bus,
        bus.connect(revision="2025-11-25") as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.call_tool, "wait")
        await client.call_tool("add", {"a": 1})
        await trio.sleep(1)
        statistics = bus.statistics()
        fates = measured.values(names.MESSAGE_COUNT, names.FATE)
        assert fates["delivered"] == statistics.delivered > 0
        assert measured.values(names.REQUESTS, None) == {None: 1}
        assert measured.values(names.SESSIONS, None) == {None: statistics.sessions}
        assert measured.values(names.HELD, None) == {None: statistics.held_bytes}
        counts = {
            point.attributes["mcp.method.name"]: point.count
            for point in measured.points(names.DELIVERY_DURATION)
        }
        assert counts["notifications/message"] == 1
        nursery.cancel_scope.cancel()
    assert measured.points(names.REQUESTS) == []


async def test_several_servers_share_the_instruments(measured, autojump_clock, caplog):
    async with (
        open_bus(shop(), telemetry=measured.telemetry) as one,
        open_bus(shop(), telemetry=measured.telemetry) as two,
    ):
        await call(one, "add", {"a": 1})
        await call(two, "add", {"a": 1})
        delivered = one.statistics().delivered + two.statistics().delivered
        assert measured.values(names.MESSAGE_COUNT, names.FATE)["delivered"] == delivered
    assert caplog.records == []


class Failing(SpanProcessor):
    """Raises at each end of a span, as an exporter may that runs in it."""

    def on_start(self, span, parent_context=None):
        pass

    def on_end(self, span):
        raise OSError("the collector is gone")

    def shutdown(self):
        pass

    def force_flush(self, timeout_millis=30_000):
        raise OSError("the collector is gone")


def failing():
    provider = TracerProvider()
    provider.add_span_processor(Failing())
    return Telemetry(tracer_provider=provider, meter_provider=MeterProvider())


# By the real clock: the other one does not wait for threads.
async def test_a_processor_that_raises_harms_no_request(caplog):
    async with open_bus(shop(), telemetry=failing()) as bus:
        for _ in range(3):
            assert (await call(bus, "add", {"a": 1}))["structuredContent"] == 2
        assert bus.ledger.balance() == 0
    observer, flush = [record.getMessage() for record in caplog.records]
    assert observer.startswith("an observer of the watch raised, and is left out from now on: ")
    assert flush == "the telemetry could not be sent"


async def test_a_late_end_of_a_span_that_raises_harms_no_request(autojump_clock, caplog, monkeypatch):
    async with open_bus(shop(), telemetry=failing()) as bus:
        monkeypatch.setattr(bus.watch.records, "replied", lambda *_: None)
        monkeypatch.setattr(bus.ledger, "_replied", lambda *_: None)
        for _ in range(2):
            assert (await call(bus, "add", {"a": 1}))["structuredContent"] == 2
            await trio.sleep(10)
    assert next(record.getMessage() for record in caplog.records) == "a span could not be ended"


async def test_without_an_sdk_it_does_nothing(autojump_clock):
    async with open_bus(shop(), telemetry=True) as bus:
        assert (await call(bus, "add", {"a": 1}))["structuredContent"] == 2


@pytest.mark.unwatched
async def test_telemetry_implies_a_watch(autojump_clock):
    async with open_bus(shop(), telemetry=True) as bus:
        assert bus.watch.requests() == []
    async with open_bus(shop(), telemetry=False) as bus:
        with pytest.raises(RuntimeError, match="nothing watches this bus"):
            _ = bus.watch


@pytest.mark.parametrize("given", ["yes", 1, object(), Telemetry])
async def test_what_is_no_telemetry_is_refused(given):
    with pytest.raises(
        TypeError, match=r"^telemetry is True, or a mcpbus\.telemetry\.Telemetry\(\.\.\.\), not "
    ):
        shop().open(telemetry=given)


@pytest.mark.parametrize("name", ["tracer_provider", "meter_provider"])
def test_what_is_no_provider_is_refused(name):
    with pytest.raises(TypeError, match=rf"^Telemetry: {name} is a provider of OpenTelemetry, not 5$"):
        Telemetry(**{name: 5})


def test_what_to_install_is_told(monkeypatch):
    for name in [each for each in sys.modules if each.startswith("mcpbus.telemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"'mcpbus-server\[otel\]'$"):
        shop().open(telemetry=True)
