"""A call through a proxy to a hosted server, which asks and has spans of its own, is one trace: in a program, since FastMCP takes the global provider."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from contextlib import asynccontextmanager

import trio
from fastmcp import Context, FastMCP
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcpbus import Proxy, host

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
app = FastMCP("hosted")


@app.tool
async def reserve(ctx: Context) -> str:
    await ctx.elicit("Sure?", response_type=bool)
    with trace.get_tracer("author").start_as_current_span("ask the hotel"):
        return "a room"


async def answer(*_):
    return {"action": "accept", "content": {"value": True}}


async def main(loop, revision):
    asking = {"capabilities": {"elicitation": {}}, "on_input_request": answer}
    async with host(app, loop=loop).open(telemetry=True) as there:

        @asynccontextmanager
        async def connect(*, capabilities, **_):
            async with there.connect(capabilities=capabilities) as client:
                yield client

        async with (
            Proxy(connect).open(telemetry=True) as here,
            here.connect(revision=revision, **asking) as client,
        ):
            await client.call_tool("reserve")


def show(span, depth):
    print("  " * depth + f"{span.instrumentation_scope.name} {span.kind.name} {span.name}")
    for child in spans:
        if child.parent is not None and child.parent.span_id == span.context.span_id:
            show(child, depth + 1)


trio.run(main, *sys.argv[1:])
spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time)
show(next(span for span in spans if span.name == "tools/call reserve" and span.parent is None), 0)
"""
TREE = """\
mcpbus SERVER tools/call reserve
  mcpbus CLIENT tools/call reserve
    mcpbus SERVER tools/call reserve
      fastmcp SERVER tools/call reserve
        mcpbus CLIENT elicitation/create
        author INTERNAL ask the hotel
  mcpbus CLIENT elicitation/create
  mcpbus CLIENT tools/call reserve
    mcpbus SERVER tools/call reserve
"""


@pytest.mark.once("it is about a program")
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_call_through_a_proxy_to_a_hosted_server_is_one_trace(loop, revision):
    command = [sys.executable, "-c", PROGRAM, loop, revision]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == TREE
