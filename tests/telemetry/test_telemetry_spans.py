"""Spans of requests: whose children they are, what they say, and what they never say."""

import json
import logging
import threading

import pytest
import trio
import trio.lowlevel
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mcpbus import Context, ProtocolError, Server, SyncContext, ToolError
from mcpbus.cli.options import JsonFormatter
from mcpbus.telemetry import Telemetry
from mcpbus.telemetry import spans as spans_module
from mcpbus.testing import open_bus

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MODERN, LEGACY = "2026-07-28", "2025-11-25"


class Traced:
    """A provider, and the spans that it has exported."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")
        self.telemetry = Telemetry(tracer_provider=self.provider, meter_provider=MeterProvider())

    def named(self, name):
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name):
        [span] = self.named(name)
        return span


@pytest.fixture
def traced():
    return Traced()


def shop(traced):
    server = Server("shop")
    mark = traced.tracer.start_as_current_span

    @server.tool
    async def look(secret: str) -> str:
        with mark("in the tool"):
            pass

        async def child():
            with mark("in a task"):
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        return secret

    @server.tool
    def count(ctx: SyncContext) -> str:
        with mark("in a thread"):
            return threading.current_thread().name

    @server.tool
    async def talk(times: int, ctx: Context) -> None:
        for turn in range(times):
            # Each second one does not increase.
            await ctx.progress(turn // 2)
            await trio.sleep(0.1)
        await trio.sleep(1)

    @server.tool
    async def fail() -> None:
        raise ToolError("the secret of the tool")

    @server.resource("notes://one")
    async def one() -> str:
        return "1"

    @server.prompt
    async def greet() -> str:
        return "hello"

    return server


def parent_of(span):
    return (
        None
        if span.parent is None
        else (format(span.parent.trace_id, "032x"), format(span.parent.span_id, "016x"))
    )


async def look(client, meta):
    params = {"name": "look", "arguments": {"secret": "x"}, "_meta": meta}
    return await client.request("tools/call", params)


def context_of(span):
    return format(span.context.trace_id, "032x"), format(span.context.span_id, "016x")


@pytest.mark.one_shell("a client in process has no address")
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_span_says_what_the_conventions_ask_for(revision, traced, autojump_clock):
    async with (
        open_bus(shop(traced), telemetry=traced.telemetry) as bus,
        bus.connect(revision=revision) as client,
    ):
        await client.call_tool("look", {"secret": "very secret"})
        await client.read_resource("notes://one")
        await client.get_prompt("greet")
    span = traced.one("tools/call look")
    assert span.kind is SpanKind.SERVER
    assert span.status.status_code is StatusCode.UNSET
    attributes = dict(span.attributes)
    assert attributes.pop("jsonrpc.request.id").isdigit()
    session = attributes.pop("mcp.session.id", None)
    assert (session is None) == (revision == MODERN)
    assert session is None or len(session) == 8
    assert attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": revision,
        "gen_ai.tool.name": "look",
        "gen_ai.operation.name": "execute_tool",
        "mcpbus.outcome": "ok",
        "mcpbus.messages": 0,
    }
    [reply] = span.events
    assert (reply.name, dict(reply.attributes)) == ("mcpbus.reply", {"mcpbus.fate": "delivered"})
    assert traced.one("resources/read").attributes["mcp.resource.uri"] == "notes://one"
    assert traced.one("prompts/get greet").attributes["gen_ai.prompt.name"] == "greet"
    everything = "".join(each.to_json() for each in traced._exporter.get_finished_spans())
    assert "very secret" not in everything


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
@pytest.mark.parametrize("sent", [True, False])
async def test_the_client_names_the_parent(revision, sent, traced, autojump_clock):
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b", "baggage": "k=v"} if sent else {}
    async with (
        open_bus(shop(traced), telemetry=traced.telemetry) as bus,
        bus.connect(revision=revision) as client,
    ):
        await look(client, meta)
    server = traced.one("tools/call look")
    assert parent_of(server) == ((TRACE, PARENT) if sent else None)
    assert parent_of(traced.one("in the tool")) == parent_of(traced.one("in a task")) == context_of(server)


async def test_a_span_in_a_worker_thread_is_a_child(traced):
    server = shop(traced)
    async with server.open(telemetry=traced.telemetry) as bus, bus.connect() as client:
        await client.call_tool("count")
    assert parent_of(traced.one("in a thread")) == context_of(traced.one("tools/call count"))


@pytest.mark.one_shell("a WebSocket has no ambient span")
async def test_the_ambient_span_is_the_parent_or_a_link(traced, autojump_clock):
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    async with open_bus(shop(traced), telemetry=traced.telemetry) as bus, bus.connect() as client:
        with traced.tracer.start_as_current_span("ambient") as ambient:
            await client.call_tool("look", {"secret": "x"})
            await look(client, meta)
            await client.list_tools()
    assert parent_of(traced.one("tools/list")) == context_of(ambient)
    alone, both = traced.named("tools/call look")
    assert parent_of(alone) == context_of(ambient)
    assert alone.links == ()
    assert parent_of(both) == (TRACE, PARENT)
    assert [link.context for link in both.links] == [ambient.get_span_context()]


@pytest.mark.parametrize("value", [5, None, ["00"], {"a": 1}, "", "00-x", f"00-{'0' * 32}-{PARENT}-01"])
async def test_a_parent_that_is_none_harms_nothing(value, traced, autojump_clock, caplog):
    meta = {"traceparent": value, "tracestate": value, "baggage": value}
    async with open_bus(shop(traced), telemetry=traced.telemetry) as bus, bus.connect() as client:
        for _ in range(2):
            await look(client, meta)
    assert [parent_of(span) for span in traced.named("tools/call look")] == [None, None]
    assert [record for record in caplog.records if record.name == "mcpbus"] == []


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_notifications_are_events_with_their_fate_and_then_counts(revision, traced, autojump_clock):
    async with (
        open_bus(shop(traced), telemetry=traced.telemetry) as bus,
        bus.connect(revision=revision) as client,
    ):
        params = {"name": "talk", "arguments": {"times": 50}, "_meta": {"progressToken": 1}}
        await client.request("tools/call", params)
    span = traced.one("tools/call talk")
    said = [event for event in span.events if event.name == "mcpbus.notification"]
    assert len(said) == spans_module.MOST_EVENTS
    assert {"mcp.method.name", "mcpbus.fate"} <= set(said[0].attributes)
    counted = [event for event in span.events if event.name == "mcpbus.notifications"]
    assert (
        len(said) + sum(event.attributes["mcpbus.count"] for event in counted)
        == span.attributes["mcpbus.messages"]
    )
    fates = {(event.attributes["mcpbus.fate"], event.attributes.get("mcpbus.reason")) for event in said}
    assert fates == {("delivered", None), ("discarded", "NOT_INCREASING")}
    assert span.events[-1].name == "mcpbus.reply"


async def test_a_failure_has_a_type_and_no_text(traced, autojump_clock):
    async with open_bus(shop(traced), telemetry=traced.telemetry) as bus, bus.connect() as client:
        await client.call_tool("fail")
        with pytest.raises(ProtocolError):
            await client.call_tool("a client's text")
        with pytest.raises(ProtocolError):
            await client.request("text/of_client", {})
    failed = traced.one("tools/call fail")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "ToolError"
    assert "rpc.response.status_code" not in failed.attributes
    unknown = traced.one("tools/call (unknown)")
    assert unknown.attributes["rpc.response.status_code"] == unknown.attributes["error.type"] == "-32602"
    assert traced.one("(unknown)").attributes["error.type"] == "-32601"
    everything = "".join(each.to_json() for each in traced._exporter.get_finished_spans())
    assert "the secret of the tool" not in everything
    assert "of_client" not in everything
    assert "client's text" not in everything


async def test_a_call_that_is_cancelled_ends_its_span(traced, autojump_clock):
    async with open_bus(shop(traced), telemetry=traced.telemetry) as bus, bus.connect() as client:
        with trio.move_on_after(0.5):
            await client.call_tool("talk", {"times": 0})
    span = traced.one("tools/call talk")
    assert span.attributes["mcpbus.outcome"] == "cancelled"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_retry_has_a_span_that_is_linked_to_the_first(traced, autojump_clock):
    server = Server("asking")

    async def answer(*_):
        return {"action": "accept", "content": {"value": True}}

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        await ctx.progress(1)
        with traced.tracer.start_as_current_span("after the answer"):
            return "done"

    async with (
        open_bus(server, telemetry=traced.telemetry) as bus,
        bus.connect(capabilities={"elicitation": {}}, on_input_request=answer) as client,
    ):
        await client.call_tool("ask")
        [observer] = bus.watch._observers
        assert not observer._operations
        assert not observer._suspended
    assert [event.name for event in traced.named("tools/call ask")[1].events] == [
        "mcpbus.notification",
        "mcpbus.reply",
    ]
    first, retry = traced.named("tools/call ask")
    assert first.attributes["mcpbus.outcome"] == "suspended"
    [link] = retry.links
    assert (link.context, dict(link.attributes)) == (first.get_span_context(), {"mcpbus.link": "resumes"})
    assert parent_of(retry) is None
    assert parent_of(traced.one("after the answer")) == context_of(first)


async def test_a_listen_has_a_span_as_soon_as_it_is_there(traced, autojump_clock):
    async with (
        open_bus(shop(traced), telemetry=traced.telemetry) as bus,
        bus.connect() as client,
        client.listen(tools=True),
    ):
        await trio.sleep(3_600)
        span = traced.one("subscriptions/listen")
    assert traced.one("subscriptions/listen") is span
    assert span.end_time - span.start_time < 1e9


async def test_a_span_waits_five_seconds_for_the_fate_of_the_reply(traced, autojump_clock, monkeypatch):
    server = shop(traced)
    async with open_bus(server, telemetry=traced.telemetry) as bus, bus.connect() as client:
        monkeypatch.setattr(bus.watch.records, "replied", lambda *_: None)
        monkeypatch.setattr(bus.ledger, "_replied", lambda *_: None)
        await client.call_tool("look", {"secret": "x"})
        await client.call_tool("look", {"secret": "x"})
        await trio.sleep(spans_module.REPLY_SECONDS - 1)
        assert traced.named("tools/call look") == []
        await trio.sleep(2)
        first, second = traced.named("tools/call look")
    for span in (first, second):
        assert [dict(event.attributes) for event in span.events] == [{"mcpbus.fate": "pending"}]


@pytest.mark.one_shell("a connection ends with the server")
async def test_what_is_open_at_the_end_is_ended(traced, autojump_clock):
    async with (
        trio.open_nursery() as nursery,
        open_bus(shop(traced), telemetry=traced.telemetry, drain_timeout=0) as bus,
    ):

        async def call():
            async with bus.connect() as client:
                with pytest.raises(ProtocolError):
                    await client.call_tool("talk", {"times": 0})

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
    assert traced.one("tools/call talk").end_time is not None


async def test_a_server_in_a_server_is_one_trace(traced, autojump_clock):
    inner, outer = shop(traced), Server("outer")
    async with open_bus(inner, telemetry=traced.telemetry) as inside:

        @outer.tool
        async def relay() -> None:
            async with inside.connect() as client:
                await client.call_tool("look", {"secret": "x"})

        async with open_bus(outer, telemetry=traced.telemetry) as bus, bus.connect() as client:
            await client.call_tool("relay")
    served, sent = traced.named("tools/call look")
    assert (served.kind, sent.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert parent_of(served) == context_of(sent)
    assert parent_of(sent) == context_of(traced.one("tools/call relay"))


async def test_nothing_is_current_outside_a_handler(traced, autojump_clock):
    async with open_bus(shop(traced), telemetry=traced.telemetry) as bus, bus.connect() as client:
        await client.call_tool("look", {"secret": "x"})
        assert not trace.get_current_span().get_span_context().is_valid


async def test_an_entry_of_the_log_in_json_has_the_ids_of_the_span(traced, autojump_clock, caplog):
    entries = []

    class Handler(logging.Handler):
        def emit(self, record):
            entries.append(json.loads(JsonFormatter().format(record)))

    log, handler = logging.getLogger("shop"), Handler()
    server = Server("shop")

    @server.tool
    async def one() -> None:
        log.warning("in the tool")

    log.addHandler(handler)
    try:
        async with open_bus(server, telemetry=traced.telemetry) as bus, bus.connect() as client:
            await client.call_tool("one")
        log.warning("outside")
    finally:
        log.removeHandler(handler)
    inside, outside = entries
    assert (inside["trace_id"], inside["span_id"]) == context_of(traced.one("tools/call one"))
    assert not {"trace_id", "span_id"} & set(outside)
