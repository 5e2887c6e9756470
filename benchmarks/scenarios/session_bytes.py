"""What Python's allocator gives out for an idle legacy session, and what of it comes back.

Sessions are opened through the ASGI application, without a server around it, and left alone. What was allocated for them is divided
by their number. Then all of them are deleted, and what has not come back is divided too.
"""

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import trio
import trio.testing

from benchmarks.scenarios.scenario import Figures, Inside, Metric
from mcpbus import Limits, Server
from mcpbus.transports.asgi import AsgiApp

SESSIONS = 5_000
_HEADERS = (
    (b"host", b"localhost"),
    (b"accept", b"application/json, text/event-stream"),
    (b"content-type", b"application/json"),
)
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
_INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class SessionBytes(Inside):
    """Sessions are opened, left alone, and deleted."""

    name = "session-bytes"
    in_quick = False
    title = "Memory allocated for an idle session"
    what = "What tracemalloc counts for a legacy session without a stream, after `initialize` and `initialized` over ASGI."
    metrics = (
        Metric("idle", "bytes of an idle session"),
        Metric("left", "bytes that it leaves when it is deleted"),
    )
    sizes = {0: 1}

    def cost(self, sizes: Sequence[int], seconds: float) -> float:  # noqa: ARG002  as long as it takes
        """Return about how many seconds a turn takes."""
        return 4.0

    def turn(self, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002  as long as it takes
        """Measure once."""
        yield 0, trio.run(measure)


async def measure(count: int = SESSIONS) -> Figures:
    """Open and delete sessions, and return the bytes of one."""
    server = Server("bench")
    async with server.open(limits=Limits(max_sessions=2 * count)) as bus:
        app = bus.asgi()
        await _open_and_delete(app, count // 10)  # what is made once, at the first session, is made now
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        ids = [await _open(app) for _ in range(count)]
        gc.collect()
        idle = tracemalloc.get_traced_memory()[0]
        if bus.statistics().sessions != count:
            raise RuntimeError(f"{bus.statistics()} after {count} sessions were opened")
        await _delete(app, ids)
        ids.clear()
        gc.collect()
        left = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    return {"idle": (idle - before) / count, "left": (left - before) / count}


async def _open_and_delete(app: AsgiApp, count: int) -> None:
    await _delete(app, [await _open(app) for _ in range(count)])


async def _open(app: AsgiApp) -> bytes:
    """Open a session as a client does, and return its id."""
    headers = await _request(app, "POST", _INITIALIZE)
    session_id = headers[b"mcp-session-id"]
    await _request(app, "POST", _INITIALIZED, session_id)
    return session_id


async def _delete(app: AsgiApp, ids: list[bytes]) -> None:
    for session_id in ids:
        await _request(app, "DELETE", None, session_id)
    await trio.testing.wait_all_tasks_blocked()


async def _request(
    app: AsgiApp, verb: str, message: dict[str, Any] | None, session_id: bytes | None = None
) -> dict[bytes, bytes]:
    """Make a request, and return the headers of its answer.

    Raises:
        RuntimeError: It failed.
    """
    headers = [*_HEADERS]
    if session_id is not None:
        headers += [(b"mcp-session-id", session_id), (b"mcp-protocol-version", b"2025-11-25")]
    body = b"" if message is None else msgspec.json.encode(message)
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    answer: dict[bytes, bytes] = {}

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop()
        await trio.sleep_forever()
        raise AssertionError

    async def send(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        if event["type"] == "http.response.start":
            if event["status"] >= 300:
                raise RuntimeError(f"{verb} was answered with {event['status']}")
            answer.update(event["headers"])

    scope = {"type": "http", "method": verb, "path": "/mcp", "headers": headers}
    await app(scope, receive, send)
    return answer
