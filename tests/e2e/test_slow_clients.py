"""Clients that stop reading, on real sockets: nobody else waits for them, and what they may cost is bounded."""

import pytest
import trio
from wire import DEADLINE, LEGACY, MODERN, call, message, modernized, serving

from mcpbus import Context, Limits, Reason, Server

# More than the kernel keeps for a client that does not read.
FLOOD = 16 * 1024 * 1024
LINE = "x" * 16 * 1024


def make_server():
    server = Server("slow")
    server.finished = trio.Event()

    @server.tool
    async def flood(ctx: Context) -> str:
        for n in range(FLOOD // len(LINE)):
            await ctx.log("info", f"{n} {LINE}")
        server.finished.set()
        return "done"

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def test_a_get_reader_that_stalls_delays_nobody():
    """Not even its own session, which answers at once."""
    async with serving(make_server(), limits=Limits(outbox_bytes=64 * 1024)) as served:
        peer, stalled = await served.peer(), await served.peer(receive_buffer=4096)
        session = await peer.open_session()
        await stalled.send(None, session, verb="GET")
        await stalled.head()
        (sender,) = served.bus.sessions.values()
        receipts = []
        # Until the kernel takes no more and the outbox is full, so that lines are discarded.
        while not served.bus.statistics().discarded:
            receipts.append(sender.log("info", LINE))
            assert len(receipts) < 4 * FLOOD // len(LINE)
            await trio.lowlevel.checkpoint()
        with trio.fail_after(DEADLINE):
            assert (await peer.exchange(message("ping", id=1), session)).json["result"] == {}
            assert (await peer.exchange(call("echo", {"text": "hi"}, id=2), session)).status == 200
        assert served.bus.statistics().discarded.keys() == {Reason.OVERFLOW}
        pending = [receipt for receipt in receipts if receipt.fate is None]
        assert len(pending) * len(LINE) <= 2 * 64 * 1024 + len(LINE)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_the_handler_of_a_post_reader_that_stalls_finishes(era):
    server = make_server()
    async with serving(server, limits=Limits(outbox_bytes=64 * 1024)) as served:
        stalled, other = await served.peer(receive_buffer=4096), await served.peer()
        body, headers = call("flood", id=1), {}
        if era == MODERN:
            body["params"]["_meta"] = {"io.modelcontextprotocol/logLevel": "info"}
            body, headers = modernized(body)
        else:
            headers = await other.open_session()
        await stalled.send(body, headers)
        await server.finished.wait()
        assert (await other.modern(call("echo", {"text": "hi"}, id=1))).status == 200
        assert served.bus.statistics().discarded.keys() == {Reason.OVERFLOW}
        # When it reads on, it gets what was kept for it, in order, and the reply.
        await stalled.head()
        lines = []
        while "id" not in (said := await stalled.said()):
            lines.append(int(said["params"]["data"].split()[0]))
        assert said["result"]["content"][0]["text"] == "done"
        assert lines == sorted(lines)
        assert 0 < len(lines) < FLOOD // len(LINE)


async def test_a_reader_that_stalls_for_too_long_loses_its_connection():
    server = make_server()
    async with serving(server, limits=Limits(outbox_bytes=64 * 1024, write_deadline=0.2)) as served:
        stalled = await served.peer(receive_buffer=4096)
        body = call("flood", id=1)
        body["params"]["_meta"] = {"io.modelcontextprotocol/logLevel": "info"}
        await stalled.send(*modernized(body))
        left = await served.quiet()
        assert left.requests == 0
        assert sum(left.pending.values()) == 0
        assert left.emitted == left.delivered + sum(left.discarded.values())


async def test_a_handler_that_blocks_its_client_blocks_nobody_else():
    server, release = make_server(), trio.Event()

    @server.tool
    async def wait() -> str:
        await release.wait()
        return "at last"

    async with serving(server) as served:
        blocked, other = await served.peer(), await served.peer()
        session = await other.open_session()
        await blocked.send(call("wait", id=1), session)
        for n in range(20):
            assert (await other.exchange(call("echo", {"text": "hi"}, id=n + 2), session)).status == 200
        assert (await other.modern(call("echo", {"text": "hi"}, id=1))).status == 200
        release.set()
        assert (await blocked.response()).json["result"]["content"][0]["text"] == "at last"
