"""Several buses of one server in one process, linked in memory."""

import copy
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import zip_longest

import trio.testing

from mcpbus.testing import MemoryDirectory, open_bus, open_probe, wait_until_idle


@asynccontextmanager
async def open_buses(make, count=2, *, directory=None, limits=None, stores=(), task_store=None, **http):
    """Open so many buses, each of a server of its own that `make` makes; yields them, with a probe of each.

    Each has the next of the event stores, or none, and all of them the one task store, or each its own.
    """
    directory = directory or MemoryDirectory()
    async with AsyncExitStack() as stack:
        buses, probes = [], []
        for _, store in zip_longest(range(count), stores):
            opening = open_bus(
                make(), limits=limits, cluster=directory.cluster(), event_store=store, task_store=task_store
            )
            bus = await stack.enter_async_context(opening)
            buses.append(bus)
            probes.append(await stack.enter_async_context(open_probe(bus.asgi(**http))))
        try:
            yield buses, probes
            for bus in buses:
                assert bus.ledger.balance() == 0
        finally:
            for probe in probes:
                probe.disconnect()


def at(session, probe):
    """The same session, whose requests go to this probe."""
    moved = copy.copy(session)
    moved._probe = probe
    return moved


async def quiet(buses):
    """Wait until nothing more happens unless time passes or a client acts."""
    for bus in buses:
        await wait_until_idle(bus)
    await trio.testing.wait_all_tasks_blocked()


async def kill(bus, directory):
    """Have a process end without a word, as far as the others can tell."""
    bus.session_directory.records = bus.tell_elsewhere = None
    directory._living.pop(bus.node.home)
    bus.node._cluster = bus.node.links._cluster = MemoryDirectory().cluster()
    bus.node.records._entries.clear()
    for links in [*bus.node.links.by_home.values()]:
        for link in links:
            link.close()
    await quiet([bus])
