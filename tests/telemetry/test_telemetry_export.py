"""`mcpbus serve --otel`: what a collector gets over HTTP, and what the command says of mistakes."""

import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner
from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from mcpbus.cli import main
from mcpbus.telemetry import sdk

PROGRAM = """
from mcpbus import Server

server = Server("shop")


@server.tool
async def reserve(city: str) -> str:
    return city
"""
TRACE = "0af7651916cd43dd8448eb211c80319c"
KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


@pytest.fixture
def collector():
    """An address to send to, and what was sent, by path."""
    got = {path: [] for path in KINDS}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got[self.path].append(KINDS[self.path].FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join()


def environment(**more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}, **more}


@pytest.mark.once("it is about a program")
def test_a_collector_gets_spans_and_metrics(tmp_path, collector):
    address, got = collector
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "mcpbus", "serve", str(file), "--otel", "--bind", "127.0.0.1:0"]
    env = environment(OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_EXPORTER_OTLP_COMPRESSION="none")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as server:
        url = (
            next(line for line in server.stderr if " is served at " in line)
            .split(" is served at ")[1]
            .split()[0]
        )
        calling = [sys.executable, "-m", "mcpbus", "call", url, "reserve", "city=a secret"]
        subprocess.run(calling, check=True, capture_output=True)
        server.send_signal(signal.SIGTERM)
        assert "rror" not in server.stderr.read()
        assert server.wait(timeout=30) in {0, -signal.SIGTERM}
    spans = {
        span.name: (resource, span)
        for request in got["/v1/traces"]
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    resource, span = spans["tools/call reserve"]
    assert "service.instance.id" in {each.key for each in resource.resource.attributes}
    assert ("service.name", "shop") in {
        (each.key, each.value.string_value) for each in resource.resource.attributes
    }
    attributes = {each.key: each.value.string_value for each in span.attributes}
    assert attributes["network.transport"] == "tcp"
    assert attributes["network.protocol.name"] == "http"
    assert attributes["client.address"] == "127.0.0.1"
    assert [event.name for event in span.events] == ["mcpbus.reply"]
    metrics = {
        metric.name
        for request in got["/v1/metrics"]
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert {"mcp.server.operation.duration", "mcpbus.messages"} <= metrics
    assert "a secret" not in str(got)


def test_what_the_program_has_configured_is_left_alone(monkeypatch):
    given = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: given)
    monkeypatch.setattr(trace, "set_tracer_provider", pytest.fail)
    sdk.configure("shop", {"OTEL_TRACES_EXPORTER": "nothing"})


def test_nothing_is_sent_if_the_environment_says_so(monkeypatch):
    monkeypatch.setattr(trace, "set_tracer_provider", pytest.fail)
    sdk.configure("shop", {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"})


@pytest.mark.once("it is about a program")
def test_a_server_without_its_collector_ends_in_seconds(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "mcpbus", "serve", str(file), "--otel", "--bind", "127.0.0.1:0"]
    # Nothing listens there.
    env = environment(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as server:
        while " is served at " not in server.stderr.readline():
            pass
        server.send_signal(signal.SIGTERM)
        began = time.monotonic()
        server.stderr.read()
        assert server.wait(timeout=30) in {0, -signal.SIGTERM}
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {"service.name", "service.instance.id"}),
        ({"OTEL_SERVICE_NAME": "x"}, {"service.instance.id"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=x,service.instance.id=1"}, set()),
    ],
)
def test_the_resource_of_the_environment_is_left_as_it_is(given, found):
    assert set(sdk._resource("shop", given)) == found


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "is 'zipkin': it is otlp or none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "is 'grpc': it is http/protobuf"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc", "is 'grpc': it is http/protobuf"),
    ],
)
def test_a_variable_that_names_what_is_not_here_is_refused(variable, value, fault):
    with pytest.raises(ValueError, match=rf"^{variable} {fault}$"):
        sdk.configure("shop", {variable: value})


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    ended = CliRunner().invoke(main, ["demo", "--otel"])
    assert ended.exit_code == 2
    assert "--otel: opentelemetry.sdk.metrics is missing: pip install opentelemetry-sdk" in ended.output
