"""A client that takes what is written to it slowly, but steadily, loses nothing, wherever its session is."""

import pytest
import trio
from several import open_buses, quiet

from mcpbus import DELIVERED, Limits, Server
from mcpbus.core.limits import SLICE_BYTES
from mcpbus.core.receipt import LOST

WRITE_DEADLINE = 30.0
SLICES = 7


async def read_slowly(app, session, seconds, sent):
    """Read the GET stream of a session through ASGI, and take each message of the server after so many seconds."""

    async def receive():
        await trio.sleep_forever()

    async def send(message):
        await trio.sleep(seconds if len(message.get("body", b"")) > 100 else 0)
        sent.append(message)

    fields = {"host": "localhost", "accept": "text/event-stream", "mcp-session-id": session.id}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }
    await app(scope, receive, send)


@pytest.mark.parametrize("where", ["here", "over a link"])
@pytest.mark.parametrize(
    ("seconds", "fate"), [(0.9 * WRITE_DEADLINE, DELIVERED), (1.1 * WRITE_DEADLINE, LOST)]
)
async def test_a_write_has_its_deadline_for_each_slice(where, seconds, fate, autojump_clock):
    limits = Limits(write_deadline=WRITE_DEADLINE)
    async with open_buses(lambda: Server("slow"), limits=limits) as (buses, probes):
        session = await probes[0].initialize()
        here, there = [bus.asgi() for bus in buses]  # they all make the same endpoints
        app, sent = here if where == "here" else there, []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_slowly, app, session, seconds, sent)
            await quiet(buses)
            inside = buses[0].sessions[session.id]
            receipt = inside.notify("notifications/x", {"text": "x" * (SLICES - 1) * SLICE_BYTES})
            await trio.sleep(SLICES * seconds + 1)
            assert receipt.fate == fate
            ended = fate == LOST
            assert (sent[-1].get("more_body") is False) == ended, "the stream goes on"
            body = b"".join(message.get("body", b"") for message in sent)
            assert (body.count(b"x" * SLICE_BYTES) >= SLICES - 1) is not ended
            nursery.cancel_scope.cancel()
