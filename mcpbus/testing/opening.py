"""Servers opened for a test, and clients in the same process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio
from mcpbus_actors.testing import settle as _settle

from mcpbus.protocol.revisions import LATEST

if TYPE_CHECKING:
    from mcpbus.bus import Bus
    from mcpbus.client.client import Client
    from mcpbus.cluster.directory import Cluster
    from mcpbus.core.limits import Limits
    from mcpbus.core.stores.protocol import EventStore, TaskStore
    from mcpbus.server import Server


@asynccontextmanager
async def open_bus(
    server: "Server",
    *,
    limits: "Limits | None" = None,
    event_store: "EventStore | None" = None,
    task_store: "TaskStore | None" = None,
    drain_seconds: float = 5.0,
    cluster: "Cluster | None" = None,
) -> AsyncIterator["Bus"]:
    """Open a server as `Server.open` does, with its plain functions run on the trio thread, all by trio's clock.

    Args:
        server: The server under test.
        limits: What clients may use.
        event_store: Keeps what legacy clients can come back for.
        task_store: Keeps tasks.
        drain_seconds: How long requests may go on when the block ends, in seconds of trio's clock.
        cluster: The others that serve the same, such as those of a `MemoryDirectory`.
    """
    inline, server.runner.inline = server.runner.inline, True
    try:
        opening = server.open(
            limits=limits,
            event_store=event_store,
            task_store=task_store,
            drain_seconds=drain_seconds,
            cluster=cluster,
        )
        async with opening as bus:
            bus.clock = trio.current_time
            yield bus
    finally:
        server.runner.inline = inline


@asynccontextmanager
async def open_client(
    server: "Server", *, revision: str = LATEST.name, principal: object = None, limits: "Limits | None" = None
) -> AsyncIterator["Client"]:
    """Open a server, and connect one client to it in process.

    Args:
        server: The server under test.
        revision: The protocol revision that the client speaks.
        principal: Who the client is.
        limits: What clients may use.

    Raises:
        ExceptionGroup: Whatever the block raises comes in one, as out of any nursery; expect an exception inside
            the block. A revision that there is not is a ValueError, a refused handshake a ProtocolError.
    """
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(open_bus(server, limits=limits))
        yield await stack.enter_async_context(bus.connect(revision=revision, principal=principal))


async def settle(bus: "Bus") -> None:
    """Wait until nothing more happens on a bus unless time passes or a client acts."""
    await _settle(bus.system)
