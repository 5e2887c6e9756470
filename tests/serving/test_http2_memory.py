"""What one client that does not read may cost over HTTP/2 (hypercorn 0.18 buffers 138 MB in 2 s)."""

import json
import tracemalloc

import h2.events
import pytest
import trio
from peers import Http2, head_of, serving

from mcpbus import Context, Limits, Reason, Server
from mcpbus.serving import ServerCounters
from tests.at_home import ONE_BUDGET

STREAMS = 60
PIECE = 10_000
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "stalled", "version": "1"},
    "io.modelcontextprotocol/logLevel": "info",
}


async def flood(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(500):  # 5 MB
        await send({"type": "http.response.body", "body": bytes(PIECE), "more_body": True})


async def no_windows(peer):
    """Leave the streams without a window, and open the connection's as far as it goes."""
    peer.acknowledges = False
    peer.connection.update_settings({4: 0})  # INITIAL_WINDOW_SIZE
    peer.connection.increment_flow_control_window(2**30)
    await peer.flush()


@pytest.mark.parametrize("streams", [1, STREAMS])
async def test_what_waits_for_windows_is_what_was_said_last(streams):
    counters, most = ServerCounters(), streams * PIECE
    async with serving(flood, counters=counters, write_deadline=3600, drain_timeout=0) as served:
        peer = await Http2(await served.connect()).start()
        await no_windows(peer)
        for _ in range(streams):
            await peer.until_stream(await peer.request(), h2.events.ResponseReceived)
        await trio.testing.wait_all_tasks_blocked()
        assert most / 2 < counters.buffered <= most
        # One whose window opens gets on, whatever the others hold.
        peer.connection.increment_flow_control_window(200_000, 1)
        await peer.flush()
        while len(peer.bodies[1]) < 200_000:
            await peer.step()
        assert counters.buffered <= most
        await peer.stream.aclose()
        while counters.open:
            await trio.testing.wait_all_tasks_blocked()
        assert counters.buffered == 0


@ONE_BUDGET
async def test_a_stalled_stream_costs_its_outbox_and_no_more():
    """A handler that says 16 MB on each of several streams finishes, and little of it is kept."""
    server, finished = Server("chatty"), 0
    outbox, streams, line = 64 * 1024, 5, "x" * 16_000

    @server.tool
    async def chatter(ctx: Context) -> str:
        nonlocal finished
        for _ in range(1000):
            await ctx.log("info", line)
        finished += 1
        return "done"

    counters = ServerCounters()
    async with (
        server.open(limits=Limits(outbox_bytes=outbox), drain_timeout=0) as bus,
        serving(bus.asgi(), counters=counters, write_deadline=3600, drain_timeout=0) as served,
    ):
        peer = await Http2(await served.connect()).start()
        await no_windows(peer)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body["params"] = {"name": "chatter", "arguments": {}, "_meta": CLAIM}
        head = [
            *head_of("POST", "/mcp")[:3],
            (":authority", "127.0.0.1"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "chatter"),
        ]
        tracemalloc.start()
        try:
            for _ in range(streams):
                stream_id = await peer.request(headers=head, end=False)
                await peer.send_data(stream_id, json.dumps(body).encode(), end=True)
                await peer.until_stream(stream_id, h2.events.ResponseReceived)
            while finished < streams:
                await trio.testing.wait_all_tasks_blocked()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert bus.statistics().discarded.keys() == {Reason.OVERFLOW}
        assert counters.buffered <= streams * outbox
        # The outbox, the batch that is being written, and the same batch encoded.
        assert kept / streams < 3 * outbox + 64 * 1024
