"""Locks, events and queues of asyncio in a handler: as soon as one has to wait, the log says which of trio to write."""

import asyncio
import logging

import pytest
import trio

from mcpbus import Server
from mcpbus.testing import open_client


async def contend(lock):
    async with lock:
        await trio.sleep(1)


def queue_that_is_full():
    queue = asyncio.Queue(1)
    queue.put_nowait(1)
    return queue


WAITING = {
    "lock": (asyncio.Lock, contend),
    "semaphore": (lambda: asyncio.Semaphore(1), contend),
    "condition": (asyncio.Condition, contend),
    "event": (asyncio.Event, lambda event: event.wait()),
    "queue that is empty": (asyncio.Queue, lambda queue: queue.get()),
    "queue that is full": (queue_that_is_full, lambda queue: queue.put(2)),
    "barrier": (lambda: asyncio.Barrier(3), lambda barrier: barrier.wait()),
}


@pytest.mark.parametrize("name", WAITING)
async def test_a_primitive_of_asyncio_that_has_to_wait_is_named_with_the_remedy(name, autojump_clock, caplog):
    make, wait = WAITING[name]
    server, primitive = Server("s"), make()

    @server.tool
    async def work() -> str:
        await wait(primitive)
        return "done"

    caplog.set_level(logging.ERROR)
    results = []
    async with open_client(server) as client, trio.open_nursery() as nursery:

        async def call():
            results.append((await client.call_tool("work")).get("isError", False))

        nursery.start_soon(call)
        nursery.start_soon(call)
    assert True in results
    told = [record.getMessage() for record in caplog.records]
    assert told
    assert all(
        "handlers run on trio; write trio.Lock(), trio.Semaphore(), trio.Event()" in each for each in told
    )
