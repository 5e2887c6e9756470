"""Requests that wait before they are served: until their body has arrived, or until their sender is known.

Such a request is an eager task. It holds no turn: the trio task that takes the turn stays with it, and another one takes the next.
"""

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TypeAlias

import trio
from mcpbus_actors import EagerTask

from mcpbus.core.admission import ServerOverloaded
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.transports import responses
from mcpbus.transports.response_sinks import ResponseSink

Served: TypeAlias = HttpResponse | EagerTask | None
"""A whole response to be written; or an eager task that waits; or None where the sink has the response, or will."""


def serve_later(sink: ResponseSink, work: Awaitable[Served]) -> EagerTask | None:
    """Serve a request by work that may wait. No schedule point.

    Args:
        sink: The place to answer.
        work: Returns the same as `Endpoint.respond`.

    Returns:
        The eager task if it waits, or if the sink's scope was cancelled: it is the host's.
    """
    scope = sink.scope
    eager = EagerTask(
        trio.CancelScope() if scope is None else scope, coroutine=_serve(sink, work), context=copy_context()
    )
    return None if eager.start() and not (scope is not None and scope.cancel_called) else eager


def serve_when_read(
    sink: ResponseSink, limit: int, serve: Callable[[bytes | None], Served]
) -> EagerTask | None:
    """Serve a request once its body has arrived. No schedule point.

    Args:
        sink: Reads the body, and is the place to answer.
        limit: The most bytes that the body may have.
        serve: Called with the body, or with None if that is longer.
    """
    return serve_later(sink, read(sink, limit, serve))


async def read(sink: ResponseSink, limit: int, serve: Callable[[bytes | None], Served]) -> Served:
    """Read the body of a request, and serve it; see `serve_when_read`."""
    try:
        body = await sink.read_body(limit)
    except ServerOverloaded as error:
        return responses.overload(error)
    except trio.BrokenResourceError:
        sink.lose()
        return None
    return serve(body)


async def _serve(sink: ResponseSink, work: Awaitable[Served]) -> None:
    try:
        served = await work
        if isinstance(served, HttpResponse):
            sink.finish(served)
            return
    except Exception as failure:  # noqa: BLE001 - the author's code; the sink reports it
        sink.fail(failure)
        return
    if served is not None:
        await served.finish()
