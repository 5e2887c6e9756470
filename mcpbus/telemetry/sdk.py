"""The SDK of OpenTelemetry, configured from the environment for `mcpbus serve --otel`."""

import os
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from opentelemetry import metrics, trace

_EXPORTERS: Final = ("otlp", "none")
_PROTOCOL: Final = "http/protobuf"
_SIGNALS: Final = ("TRACES", "METRICS")


def configure(service: str, environment: Mapping[str, str] = os.environ) -> None:
    """Have spans and metrics sent by OTLP, unless the program has configured the SDK already.

    Endpoint, headers, sampler, intervals and resource are those of the variables of OpenTelemetry, such as
    ``OTEL_EXPORTER_OTLP_ENDPOINT``; of those that name an exporter and a protocol, it takes ``otlp``, ``none`` and ``http/protobuf``.

    Args:
        service: The name of the service, if the environment has none.
        environment: The variables.

    Raises:
        ImportError: A package is missing; the message says which to install.
        ValueError: A variable names what is not here.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"{error.name} is missing: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
            name=error.name,
        ) from None
    wanted = {signal: _exporter(signal, environment) for signal in _SIGNALS}
    resource = Resource.create(_resource(service, environment))
    # At the end, the server waits for the exporters. The SDK would wait again at the exit of the program, for ten seconds and more if there
    # is no collector.
    if wanted["TRACES"] == "otlp":
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    if wanted["METRICS"] == "otlp":
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        metrics.set_meter_provider(MeterProvider([reader], resource=resource, shutdown_on_exit=False))


def _resource(service: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the resource that the environment leaves out. Workers are told apart by the instance."""
    given = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = {"service.name": service, "service.instance.id": str(uuid4())}
    if environment.get("OTEL_SERVICE_NAME"):
        del resource["service.name"]
    return {name: value for name, value in resource.items() if f"{name}=" not in given}


def _exporter(signal: str, environment: Mapping[str, str]) -> str:
    """Return the exporter of a signal."""
    name = f"OTEL_{signal}_EXPORTER"
    exporter = environment.get(name) or "otlp"
    if exporter not in _EXPORTERS:
        raise ValueError(f"{name} is {exporter!r}: it is otlp or none")
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environment.get(variable) or _PROTOCOL
        if protocol != _PROTOCOL:
            raise ValueError(f"{variable} is {protocol!r}: it is {_PROTOCOL}")
    return exporter
