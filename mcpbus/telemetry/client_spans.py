"""The spans of requests that clients, proxies and gateways send."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import attrs
from opentelemetry import propagate
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context

from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.features.input_requests.requests import InputRequest
from mcpbus.protocol.errors import ProtocolError
from mcpbus.telemetry import names
from mcpbus.telemetry.attributes import Attributes, request_attributes, span_name, uri_attribute
from mcpbus.telemetry.instruments import Instruments

_log = logging.getLogger("mcpbus")

_MOST_NAMES: Final = 1_000
_OTHER: Final = "(other)"


@attrs.define(eq=False)
class _Request:
    """One request; a `TracedRequest`."""

    params: dict[str, Any]
    failed: bool = False

    def answered(self, result: Mapping[str, Any]) -> None:
        """See `TracedRequest`."""
        self.failed = result.get("isError") is True


class ClientSpans:
    """Makes a CLIENT span of each request, from when it is sent until its result is there; a `RequestTracer`.

    The span is named in the request's ``_meta``, in place of what is named there already.

    Args:
        tracer: Makes the spans.
        instruments: Take the durations.
    """

    def __init__(self, tracer: Tracer, instruments: Instruments) -> None:
        self._tracer = tracer
        self._instruments = instruments
        self._fields = propagate.get_global_textmap().fields
        self._names: set[str] = set()
        self._complaints = RateLimitedLogger(_log)

    @contextmanager
    def trace(self, method: str, params: dict[str, Any], revision: str) -> Iterator[_Request]:
        """See `RequestTracer`."""
        request, began = _Request(params), perf_counter()
        try:
            span, context, common = self._start(request, method, revision)
        except Exception as error:  # noqa: BLE001 - of a propagator or a processor, which are the user's
            self._complain(error)
            yield request
            return
        failure: Attributes = {}
        try:
            yield request
            if request.failed:
                failure = {names.ERROR: names.TOOL_ERROR}
        except ProtocolError as error:
            failure = {names.ERROR: str(error.code), names.STATUS_CODE: str(error.code)}
            raise
        except Exception as error:
            failure = {names.ERROR: type(error).__name__}
            raise
        finally:
            try:
                self._instruments.answered(perf_counter() - began, {**common, **failure}, context)
                if failure:
                    span.set_attributes(failure)
                    span.set_status(StatusCode.ERROR)
                span.end()
            except Exception as error:  # noqa: BLE001 - as above
                self._complain(error)

    def _start(self, request: _Request, method: str, revision: str) -> tuple[Span, Context, Attributes]:
        params, here = request.params, get_current()
        name = params.get("name")
        name = self._bounded(name) if isinstance(name, str) else None
        common = request_attributes(method, name, revision)
        attributes = {**common, **uri_attribute(method, params.get("uri"))}
        span = self._tracer.start_span(span_name(common), here, SpanKind.CLIENT, attributes)
        context = set_span_in_context(span, here)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, context)
        if carrier:
            given = params.get("_meta") or {}
            kept = {key: value for key, value in given.items() if key not in self._fields}
            request.params = {**params, "_meta": {**kept, **carrier}}
        return span, context, common

    def ask(
        self, questions: Mapping[str, InputRequest], revision: str
    ) -> list[Callable[[BaseException | None], None]]:
        """Begin a span of each question that a handler asks its client.

        Returns:
            Functions that end them, each with the exception with which the waiting ended, if any.
        """
        return [self._begin_question(each.method, revision) for each in questions.values()]

    def _begin_question(self, method: str, revision: str) -> Callable[[BaseException | None], None]:
        here, began = get_current(), perf_counter()
        attributes = request_attributes(method, None, revision)
        span = self._tracer.start_span(method, here, SpanKind.CLIENT, attributes)

        def end(error: BaseException | None) -> None:
            failure = {names.ERROR: type(error).__name__} if isinstance(error, Exception) else {}
            self._instruments.answered(
                perf_counter() - began, {**attributes, **failure}, set_span_in_context(span, here)
            )
            if failure:
                span.set_attributes(failure)
                span.set_status(StatusCode.ERROR)
            span.end()

        return end

    def _bounded(self, name: str) -> str:
        """Return a name of a tool or a prompt, of which there are not too many: a proxy passes on those that its clients send."""
        if name not in self._names:
            if len(self._names) >= _MOST_NAMES:
                return _OTHER
            self._names.add(name)
        return name

    def _complain(self, error: Exception) -> None:
        self._complaints.warn("a request could not be traced", exc_info=error)
