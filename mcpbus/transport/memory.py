"""A client in the same process: no sockets, no subprocess, the same rules as on every other shared channel.

For programs that embed a bus and call it themselves, and for tests.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from mcpbus.nursery import background
from mcpbus.protocol.revisions import REVISIONS, Era
from mcpbus.transport.channel import run_channel
from mcpbus.transport.client import Client, OnQuestion

if TYPE_CHECKING:
    from mcpbus.bus import Bus

_WAITING_MESSAGES = 64


@asynccontextmanager
async def connect(
    bus: "Bus",
    revision: str,
    principal: object = None,
    capabilities: Mapping[str, Any] | None = None,
    on_question: OnQuestion | None = None,
) -> AsyncIterator["Client"]:
    """Connect a client to a bus in process; see `Bus.connect`.

    Raises:
        ValueError: There is no such revision.
        ProtocolError: The server refused the handshake.
    """
    if revision not in REVISIONS:
        raise ValueError(f"revision is {revision!r}: it must be one of {', '.join(REVISIONS)}")
    sender, receiver = trio.open_memory_channel[bytes](_WAITING_MESSAGES)
    async with background() as nursery, sender:
        client = Client(REVISIONS[revision], sender, nursery, dict(capabilities or {}), on_question)
        nursery.start_soon(_serve, bus, receiver, client, principal)
        if client.revision.era is Era.LEGACY:
            await client.initialize()
        yield client
        sender.close()


async def _serve(
    bus: "Bus", receiver: trio.MemoryReceiveChannel[bytes], client: "Client", principal: object
) -> None:
    try:
        async with receiver:
            await run_channel(bus, receiver, client.receive, principal)
    finally:
        client.disconnected()
