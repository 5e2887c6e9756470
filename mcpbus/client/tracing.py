"""The seam by which requests that clients send get spans: a context variable, so that a client needs no option for it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol


class TracedRequest(Protocol):
    """A request that has a span.

    Attributes:
        params: Its parameters, whose ``_meta`` names the span.
    """

    params: dict[str, Any]

    def answered(self, result: Mapping[str, Any], /) -> None:
        """Note the result, in which a tool may have failed."""


class RequestTracer(Protocol):
    """Makes spans of requests. A fault of it harms no request."""

    def trace(
        self, method: str, params: dict[str, Any], revision: str, /
    ) -> AbstractContextManager[TracedRequest]:
        """Have a span of a request within the block."""


TRACER: ContextVar[RequestTracer | None] = ContextVar("mcpbus_request_tracer", default=None)
"""Traces the requests that are sent in this context; None for none."""
