"""OpenTelemetry: spans and metrics of what a server does, read from its watch. The only door to `opentelemetry`."""

try:
    import opentelemetry as _opentelemetry  # noqa: F401 - to say what is missing
except ImportError as error:
    raise ImportError(
        f"telemetry needs {error.name}, which mcpbus itself does without: pip install 'mcpbus-server[otel]'",
        name=error.name,
    ) from None

from mcpbus.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
