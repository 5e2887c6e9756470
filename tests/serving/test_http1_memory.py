"""What clients may cost over HTTP/1.1 that do not read."""

import tracemalloc

import trio
from houses import call
from peers import serving

from mcpbus import Limits, Server
from mcpbus.protocol.routes import Reason
from tests.at_home import ONE_BUDGET

CLIENTS = 40
MEGABYTE = 1024 * 1024


@ONE_BUDGET
async def test_long_answers_of_calls_that_end_in_one_turn_of_the_scheduler_are_not_all_kept():
    server, begun, go_on = Server("late"), trio.Semaphore(0), trio.Event()
    long = "x" * MEGABYTE

    @server.tool
    async def late() -> str:
        begun.release()
        await go_on.wait()
        return long

    limits = Limits(memory_bytes=4 * MEGABYTE)
    async with (
        server.open(limits=limits, drain_timeout=0) as bus,
        serving(bus.asgi(), drain_timeout=0) as served,
    ):
        for _ in range(CLIENTS):
            await (await served.connect(receive_buffer=4096)).send_all(call("late"))
        for _ in range(CLIENTS):
            await begun.acquire()
        tracemalloc.start()
        try:
            go_on.set()
            await trio.testing.wait_all_tasks_blocked()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < CLIENTS / 2 * MEGABYTE
        now = bus.statistics()
        assert now.limits_reached["memory_bytes"] > 1
        assert (now.delivered, now.discarded.keys()) == (0, {Reason.LOST})
        given_up = now.limits_reached["memory_bytes"]
        assert now.discarded[Reason.LOST] == given_up

        whole = []
        async with trio.open_nursery() as nursery:
            for stream in served.streams:
                nursery.start_soon(_read, stream, whole)
        assert (whole.count(True), whole.count(False)) == (CLIENTS - given_up, given_up)


async def _read(stream, whole):
    """Note whether an answer comes whole; one that was given up ends with its connection."""
    size = 0
    try:
        while size < MEGABYTE and (piece := await stream.receive_some()):
            size += len(piece)
    except trio.BrokenResourceError:
        size = 0
    whole.append(size >= MEGABYTE)
