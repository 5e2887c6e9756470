"""`Telemetry`: with which providers a server makes spans and metrics."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import cached_property
from typing import Final

import trio
from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Tracer, TracerProvider

from mcpbus.client.tracing import TRACER
from mcpbus.core.concurrency import background
from mcpbus.core.hub import Hub
from mcpbus.telemetry.client_spans import ClientSpans
from mcpbus.telemetry.instruments import Instruments
from mcpbus.telemetry.spans import Spans
from mcpbus.watch.watch import Watch

_log = logging.getLogger("mcpbus")

SCOPE: Final = "mcpbus"
"""The name of the tracer and the meter."""
_FLUSH_SECONDS: Final = 2.0


class Telemetry:
    """Spans and metrics of a server: ``server.run(telemetry=Telemetry(...))``; `True` in its place has the global providers.

    Several servers of one process share one of these: the names of its instruments are unique for each meter provider.

    Args:
        tracer_provider: Makes the tracer; the global provider if not given.
        meter_provider: Makes the meter; the global provider if not given.

    Raises:
        TypeError: One of these is no provider.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        for name, given, method in (
            ("tracer_provider", tracer_provider, "get_tracer"),
            ("meter_provider", meter_provider, "get_meter"),
        ):
            if given is not None and not hasattr(given, method):
                raise TypeError(f"Telemetry: {name} is a provider of OpenTelemetry, not {given!r}")
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider

    @cached_property
    def _instruments(self) -> Instruments:
        return Instruments(metrics.get_meter(SCOPE, meter_provider=self._meter_provider))

    def observing(self, bus: Hub) -> AbstractContextManager[None]:
        """Observe a bus that is open."""
        return self._instruments.observing(bus)

    def make_spans(self) -> Spans:
        """Return an observer for a watch."""
        return Spans(self._tracer(), self._instruments, self._client_spans)

    @contextmanager
    def tracing_clients(self) -> Iterator[None]:
        """Have a CLIENT span of each request that a `mcpbus.Client` sends within the block, and in tasks that are started there.

        Handlers of a server with telemetry have this already, and so have proxies and gateways.
        """
        token = TRACER.set(self._client_spans)
        try:
            yield
        finally:
            TRACER.reset(token)

    @cached_property
    def _client_spans(self) -> ClientSpans:
        return ClientSpans(self._tracer(), self._instruments)

    def _tracer(self) -> Tracer:
        return trace.get_tracer(SCOPE, tracer_provider=self._tracer_provider)

    async def flush(self) -> None:
        """Have the exporters send what they hold, for two seconds at most."""
        providers = (
            self._tracer_provider or trace.get_tracer_provider(),
            self._meter_provider or metrics.get_meter_provider(),
        )
        with trio.move_on_after(_FLUSH_SECONDS, shield=True):
            async with trio.open_nursery() as nursery:
                for provider in providers:
                    flush = getattr(provider, "force_flush", None)  # those of the SDK have it
                    if flush is not None:
                        nursery.start_soon(_flush, flush)


async def _flush(flush: Callable[[int], object]) -> None:
    try:
        await trio.to_thread.run_sync(flush, int(_FLUSH_SECONDS * 1000), abandon_on_cancel=True)
    except Exception:  # noqa: BLE001 - of the exporter: the server ends as ever
        _log.exception("the telemetry could not be sent")


_GLOBAL: Final = Telemetry()


def check_telemetry(telemetry: object) -> None:
    """Refuse what makes no spans.

    Raises:
        TypeError: It is no such thing; the message says what to write.
    """
    if not isinstance(telemetry, bool | Telemetry):
        raise TypeError(f"telemetry is True, or a mcpbus.telemetry.Telemetry(...), not {telemetry!r}")


@asynccontextmanager
async def telemetry_opened(telemetry: Telemetry | bool, watch: Watch) -> AsyncIterator[Callable[[Hub], None]]:
    """Make spans and metrics of a server that is opened within the block.

    Args:
        telemetry: With which providers; True for the global ones.
        watch: The watch that it is opened with.

    Yields:
        What observes its bus, once that is open.
    """
    given = telemetry if isinstance(telemetry, Telemetry) else _GLOBAL
    spans = given.make_spans()
    async with background() as nursery:
        nursery.start_soon(spans.finish_late)
        with ExitStack() as stack:
            try:
                with watch.observed_by(spans):
                    yield lambda bus: stack.enter_context(given.observing(bus))
            finally:
                spans.close()
                await given.flush()
                nursery.cancel_scope.cancel()
