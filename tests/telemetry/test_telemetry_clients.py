"""Spans of requests that clients and proxies send, and one trace through a proxy."""

from contextlib import asynccontextmanager

import pytest
import trio
from opentelemetry import propagate
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanKind, StatusCode, set_span_in_context

from mcpbus import Context, ProtocolError, Proxy, Server, ToolError
from mcpbus.telemetry import Telemetry, client_spans
from mcpbus.testing import open_bus

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
REVISIONS = pytest.mark.parametrize("revision", [LEGACY, MODERN])


class Traced:
    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(tracer_provider=provider, meter_provider=MeterProvider([self.reader]))

    def spans(self, name, kind):
        return [
            span for span in self._exporter.get_finished_spans() if (span.name, span.kind) == (name, kind)
        ]

    def one(self, name, kind):
        [span] = self.spans(name, kind)
        return span


@pytest.fixture
def traced():
    return Traced()


def shop(metas):
    server = Server("shop")

    @server.tool
    async def look(ctx: Context) -> str:
        metas.append({key: value for key, value in ctx.meta.items() if "/" not in key})
        return "x"

    @server.tool
    async def fail() -> None:
        raise ToolError("the secret of the tool")

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    return server


def ids(context):
    return context.trace_id, context.span_id


@REVISIONS
async def test_a_request_of_a_client_has_a_span_that_the_server_continues(revision, traced, autojump_clock):
    metas = []
    async with (
        open_bus(shop(metas), telemetry=traced.telemetry) as bus,
        bus.connect(revision=revision) as client,
    ):
        with traced.telemetry.tracing_clients():
            await client.call_tool("look")
    sent, served = (traced.one("tools/call look", kind) for kind in (SpanKind.CLIENT, SpanKind.SERVER))
    assert ids(served.parent) == ids(sent.context)
    assert served.links == ()
    assert dict(sent.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": revision,
        "gen_ai.tool.name": "look",
        "gen_ai.operation.name": "execute_tool",
    }
    assert list(metas[0]) == ["traceparent"]
    [scope] = traced.reader.get_metrics_data().resource_metrics[0].scope_metrics
    [metric] = [each for each in scope.metrics if each.name == "mcp.client.operation.duration"]
    assert [point.attributes["gen_ai.tool.name"] for point in metric.data.data_points] == ["look"]


async def test_the_span_replaces_what_the_caller_named(traced, autojump_clock):
    metas = []
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b", "own": 1}
    params = {"name": "look", "arguments": {}, "_meta": meta}
    async with open_bus(shop(metas)) as bus, bus.connect() as client:
        with traced.telemetry.tracing_clients():
            await client.request("tools/call", params)
        await client.request("tools/call", params)
    sent = traced.one("tools/call look", SpanKind.CLIENT)
    carrier = {}
    propagate.inject(carrier, set_span_in_context(NonRecordingSpan(sent.context)))
    assert metas == [{**carrier, "own": 1}, meta]


async def test_without_telemetry_what_is_sent_is_as_the_caller_wrote_it(traced, autojump_clock):
    metas = []
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}
    async with open_bus(shop(metas)) as bus, bus.connect() as client:
        await client.call_tool("look")
        await client.request("tools/call", {"name": "look", "arguments": {}, "_meta": meta})
    assert metas == [{}, meta]


async def test_failures_have_their_types(traced, autojump_clock):
    async with open_bus(shop([])) as bus, bus.connect() as client:
        with traced.telemetry.tracing_clients():
            await client.call_tool("fail")
            with pytest.raises(ProtocolError):
                await client.call_tool("none")
            with trio.move_on_after(1):
                await client.call_tool("wait")
            with pytest.raises(TypeError):
                await client.request("tools/call", {"name": "look", "_meta": 5})
    failed, refused, cancelled = (
        traced.one(f"tools/call {name}", SpanKind.CLIENT) for name in ("fail", "none", "wait")
    )
    assert failed.attributes["error.type"] == "tool_error"
    assert refused.attributes["error.type"] == refused.attributes["rpc.response.status_code"] == "-32602"
    assert [span.status.status_code for span in (failed, refused)] == [StatusCode.ERROR] * 2
    assert "error.type" not in cancelled.attributes
    assert traced.spans("tools/call look", SpanKind.CLIENT) == []


@REVISIONS
@pytest.mark.parametrize("sent", [True, False])
async def test_a_call_through_a_proxy_is_one_trace(revision, sent, traced, autojump_clock):
    metas = []
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01", "own": 1} if sent else {"own": 1}
    async with open_bus(shop(metas), telemetry=traced.telemetry) as there:

        @asynccontextmanager
        async def connect(*, capabilities, **_):
            async with there.connect(revision=revision, capabilities=capabilities) as client:
                yield client

        async with (
            open_bus(Proxy(connect), telemetry=traced.telemetry) as here,
            here.connect() as client,
        ):
            await client.request("tools/call", {"name": "look", "arguments": {}, "_meta": meta})
    inner, outer = traced.spans("tools/call look", SpanKind.SERVER)
    passed_on = traced.one("tools/call look", SpanKind.CLIENT)
    assert ids(inner.parent) == ids(passed_on.context)
    assert ids(passed_on.parent) == ids(outer.context)
    if sent:
        assert format(outer.parent.trace_id, "032x") == TRACE
    else:
        assert outer.parent is None
    assert set(metas[0]) - {"progressToken"} == {"traceparent", "own"}


async def test_names_of_tools_are_bounded(traced, autojump_clock, monkeypatch):
    monkeypatch.setattr(client_spans, "_MOST_NAMES", 2)
    async with open_bus(shop([])) as bus, bus.connect() as client:
        with traced.telemetry.tracing_clients():
            for turn in range(4):
                with pytest.raises(ProtocolError):
                    await client.call_tool(f"none {turn}")
    assert len(traced.spans("tools/call (other)", SpanKind.CLIENT)) == 2


async def test_a_fault_of_tracing_harms_no_request(traced, autojump_clock, monkeypatch, caplog):
    def fail(*_):
        raise OSError("the propagator is broken")

    metas = []
    async with open_bus(shop(metas)) as bus, bus.connect() as client:
        with traced.telemetry.tracing_clients():
            monkeypatch.setattr(propagate, "inject", fail)
            await client.call_tool("look")
            with pytest.raises(ProtocolError):
                await client.call_tool("none")
    assert metas == [{}]
    assert {record.getMessage() for record in caplog.records} == {"a request could not be traced"}


def asking(**options):
    server = Server("asking")

    @server.tool
    async def choose(ctx: Context) -> str:
        return str(await ctx.elicit("The secret question?", str, **options))

    return server


async def accept(*_):
    await trio.sleep(7)
    return {"action": "accept", "content": {"value": "the secret answer"}}


@REVISIONS
async def test_a_question_has_a_span_until_its_answer_is_there(revision, traced, autojump_clock):
    async with (
        open_bus(asking(), telemetry=traced.telemetry) as bus,
        bus.connect(revision=revision, capabilities={"elicitation": {}}, on_input_request=accept) as client,
    ):
        await client.call_tool("choose")
        [observer] = bus.watch._observers
        assert not observer._questions
    question = traced.one("elicitation/create", SpanKind.CLIENT)
    first = traced.spans("tools/call choose", SpanKind.SERVER)[0]
    assert ids(question.parent) == ids(first.context)
    assert dict(question.attributes) == {
        "mcp.method.name": "elicitation/create",
        "mcp.protocol.version": revision,
    }
    everything = "".join(each.to_json() for each in traced._exporter.get_finished_spans())
    assert "secret" not in everything


async def test_a_question_that_nobody_answers_has_an_error(traced, autojump_clock):
    async def never(*_):
        await trio.sleep_forever()

    async with (
        open_bus(asking(timeout=5), telemetry=traced.telemetry) as bus,
        bus.connect(revision=LEGACY, capabilities={"elicitation": {}}, on_input_request=never) as client,
    ):
        with pytest.raises(ProtocolError):
            await client.call_tool("choose")
    question = traced.one("elicitation/create", SpanKind.CLIENT)
    assert question.attributes["error.type"] == "InputTimeoutError"
    assert question.status.status_code is StatusCode.ERROR


async def test_a_question_of_a_cancelled_call_ends_without_an_error(traced, autojump_clock):
    async def never(*_):
        await trio.sleep_forever()

    async with (
        open_bus(asking(), telemetry=traced.telemetry) as bus,
        bus.connect(revision=LEGACY, capabilities={"elicitation": {}}, on_input_request=never) as client,
    ):
        with trio.move_on_after(5):
            await client.call_tool("choose")
    question = traced.one("elicitation/create", SpanKind.CLIENT)
    assert question.status.status_code is StatusCode.UNSET
