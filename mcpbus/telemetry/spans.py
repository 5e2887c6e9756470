"""The spans of requests: an observer of a watch."""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, time_ns
from typing import Final

import attrs
import trio
from opentelemetry import propagate
from opentelemetry.context import Context, attach, get_current
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)

from mcpbus.client.tracing import TRACER
from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.core.receipt import Fate, FateKind
from mcpbus.core.request_context import Life, RequestContext
from mcpbus.core.watching import WatchedReceipt
from mcpbus.features.input_requests.requests import InputRequest
from mcpbus.telemetry import names
from mcpbus.telemetry.attributes import (
    common_attributes,
    failure_attributes,
    span_attributes,
    span_name,
)
from mcpbus.telemetry.client_spans import ClientSpans
from mcpbus.telemetry.instruments import Instruments
from mcpbus.watch.records import ANSWERED

_log = logging.getLogger("mcpbus")

MOST_EVENTS: Final = 32
"""Notifications of one request that are events of its span; further ones are counted by fate and reason."""
REPLY_SECONDS: Final = 5.0
"""How long an ended span waits for the fate of the reply."""
_MOST_SUSPENDED: Final = 1_000
_NOTHING: Final = Context()


@attrs.define(eq=False)
class _Operation:
    """One request that has a span.

    Attributes:
        span: Its span.
        context: The context that has it, with the client's baggage.
        attributes: Those that its metrics have, too.
        ended: When its handler ended, in nanoseconds since 1970; None while it runs.
        events: How many notifications are events of the span.
        counted: The further ones, by fate.
    """

    span: Span
    context: Context
    attributes: dict[str, str | int]
    ended: int | None = None
    events: int = 0
    counted: Counter[Fate] = attrs.Factory(Counter)


class Spans:
    """Makes a SERVER span of each request, and records its duration; an observer of a `Watch`.

    A span begins with the request and ends with its handler. It is exported once the reply has its fate, or five seconds later.

    Args:
        tracer: Makes the spans.
        instruments: Take the durations.
        clients: Makes the spans of requests that handlers send.
    """

    def __init__(self, tracer: Tracer, instruments: Instruments, clients: ClientSpans) -> None:
        self._tracer = tracer
        self._clients = clients
        self._instruments = instruments
        self._fields = propagate.get_global_textmap().fields
        self._operations: dict[Life, _Operation] = {}
        self._waiting: dict[Life, float] = {}
        self._suspended: OrderedDict[Life, SpanContext] = OrderedDict()
        self._questions: dict[int, Sequence[Callable[[BaseException | None], None]]] = {}
        self._wake = trio.Event()
        self._complaints = RateLimitedLogger(_log)

    # -- what a watch tells ----------------------------------------------------------------------

    def began(self, life: Life) -> None:
        """See `Watch`. The span is current in the context of the handler from now on, and in what it starts."""
        operation = self._start(life, get_current())
        if operation is not None:
            attach(operation.context)
            TRACER.set(self._clients)

    def settled(self, receipt: WatchedReceipt, fate: Fate) -> None:
        """See `Watch`."""
        if fate.kind is FateKind.DELIVERED:
            self._instruments.delivered(receipt.method, receipt.ended - receipt.made)
        life = receipt.life
        if life is None:
            return
        operation = self._operations.get(life)
        if operation is None and life.seconds is None:
            # A retry carries on a call that has begun before, and begins no handler.
            operation = self._start(life, _NOTHING)
        if operation is None or not operation.span.is_recording():
            return
        if operation.events < MOST_EVENTS:
            operation.events += 1
            attributes = {names.METHOD: receipt.method, **_fate_attributes(fate)}
            operation.span.add_event(names.NOTIFICATION_EVENT, attributes)
        else:
            operation.counted[fate] += 1

    def listening(self, life: Life) -> None:
        """See `Watch`. The span of a listen ends here: it may last for hours, and an open span is seen by no one."""
        operation = self._start(life, get_current())
        if operation is not None:
            operation.ended = time_ns()
            self._instruments.ended(perf_counter() - life.began, operation.attributes, operation.context)
            self._finish(life, operation)

    def ended(self, life: Life) -> None:
        """See `Watch`."""
        operation = self._operations.get(life)
        if operation is None:
            operation = self._start(life, get_current() if life.first is None else _NOTHING)
            if operation is None:
                return
        operation.ended = time_ns()
        failure = failure_attributes(life)
        span = operation.span
        if span.is_recording():
            span.set_attributes({names.OUTCOME: life.outcome or "", names.MESSAGES: life.said, **failure})
            if failure:
                span.set_status(StatusCode.ERROR)
        attributes = {**operation.attributes, **failure}
        self._instruments.ended(life.seconds or 0.0, attributes, operation.context)
        self._note_suspended(life, span)
        if life.reply is not None or life.outcome not in ANSWERED:
            self._finish(life, operation)
        else:
            self._waiting[life] = trio.current_time() + REPLY_SECONDS
            self._wake.set()

    def replied(self, life: Life, _fate: Fate) -> None:
        """See `Watch`."""
        operation = self._operations.get(life)
        if operation is not None and operation.ended is not None:
            self._finish(life, operation)

    def asked(self, life: Life, questions: Mapping[str, InputRequest]) -> None:
        """See `Watch`."""
        # The request of a task has ended, and left texts alone.
        revision = life.facts.revision if life.context is None else life.context.revision.name
        self._questions[id(questions)] = self._clients.ask(questions, revision)

    def answered(
        self, _life: Life, questions: Mapping[str, InputRequest], error: BaseException | None
    ) -> None:
        """See `Watch`."""
        for end in self._questions.pop(id(questions), ()):
            end(error)

    # -- how -------------------------------------------------------------------------------------

    async def finish_late(self) -> None:
        """End the spans whose replies get no fate in time, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._waiting:
                life, due = next(iter(self._waiting.items()))
                await trio.sleep_until(due)
                if life in self._waiting:
                    self._finish_contained(life)

    def close(self) -> None:
        """End the spans that are open."""
        for life in tuple(self._operations):
            self._finish_contained(life)

    def _finish_contained(self, life: Life) -> None:
        """End a span where no watch contains the fault of a span processor."""
        try:
            self._finish(life, self._operations[life])
        except Exception as error:  # noqa: BLE001 - the user's own processor, and no request's
            self._complaints.warn("a span could not be ended", exc_info=error)

    def _start(self, life: Life, ambient: Context) -> _Operation | None:
        """Begin the span of a request.

        Args:
            life: Its record.
            ambient: The context whose span is its parent, if the client names none.
        """
        request = life.context
        if request is None:
            return None
        parent, links = self._parent(request, ambient)
        if life.first is not None and (first := self._suspended.get(life.first)) is not None:
            links.append(Link(first, {names.LINK: "resumes"}))
        common = common_attributes(life, request)
        span = self._tracer.start_span(
            span_name(common),
            parent,
            SpanKind.SERVER,
            span_attributes(common, life, request),
            links,
            time_ns() - int((perf_counter() - life.began) * 1e9),
        )
        operation = _Operation(span, set_span_in_context(span, parent), common)
        self._operations[life] = operation
        return operation

    def _parent(self, request: RequestContext, ambient: Context) -> tuple[Context, list[Link]]:
        """Return the context of the parent, and a link to the ambient span if the client names another one."""
        meta = request.routing.meta.values
        # They are a client's, and a propagator expects texts.
        carrier = {key: value for key in self._fields if isinstance(value := meta.get(key), str)}
        if not carrier:
            return ambient, []
        parent = propagate.extract(carrier, ambient)
        here = get_current_span(ambient).get_span_context()
        named = get_current_span(parent).get_span_context()
        # They are the same one for a client in the same process that has telemetry.
        if here.is_valid and (named.trace_id, named.span_id) != (here.trace_id, here.span_id):
            return parent, [Link(here)]
        return parent, []

    def _note_suspended(self, life: Life, span: Span) -> None:
        """Remember the span of a suspended call, for the retry that resumes it."""
        first = life.first or life
        if life.outcome != "suspended":
            self._suspended.pop(first, None)
        elif first not in self._suspended:
            self._suspended[first] = span.get_span_context()
            if len(self._suspended) > _MOST_SUSPENDED:
                self._suspended.popitem(last=False)

    def _finish(self, life: Life, operation: _Operation) -> None:
        del self._operations[life]
        self._waiting.pop(life, None)
        span = operation.span
        if span.is_recording():
            for fate, count in operation.counted.items():
                span.add_event(names.NOTIFICATIONS_EVENT, {**_fate_attributes(fate), names.COUNT: count})
            if life.reply is not None:
                span.add_event(names.REPLY_EVENT, _fate_attributes(life.reply))
            elif life.outcome in ANSWERED:
                span.add_event(names.REPLY_EVENT, {names.FATE: "pending"})
        span.end(operation.ended)


def _fate_attributes(fate: Fate) -> Mapping[str, str]:
    if fate.reason is None:
        return {names.FATE: fate.kind.value}
    return {names.FATE: fate.kind.value, names.REASON: fate.reason.name}


def current_ids() -> dict[str, str]:
    """Return the ids of the current span as a log has them: ``trace_id`` and ``span_id``; nothing if there is none."""
    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}
