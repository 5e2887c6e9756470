"""A channel of lines, such as standard input and output: each message is one, and the client ends the connection by ending its input."""

import math
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from typing import Final

import trio

from mcpbus.core.hub import Hub
from mcpbus.protocol.owners import IN_PROCESS, Peer
from mcpbus.transports.duplex import Channel

_SLICE: Final = 64 * 1024


async def run_channel(
    bus: Hub,
    messages: AsyncIterable[bytes],
    send: Callable[[bytes], Awaitable[None]],
    principal: object = None,
    peer: Peer = IN_PROCESS,
    *,
    draining: trio.CancelScope | None = None,
) -> bool:
    """Serve one connection of lines until its client ends it, or the bus does.

    A client that does not read, or reads slowly, is waited for. Once it has ended the connection it has to take 64 KiB within
    the write deadline, and so on.

    Args:
        bus: The bus to attach to.
        messages: What the client sends, one JSON-RPC message each; its end is the end of the connection.
        send: Writes one or several messages, each followed by a line break, or a part of one that is very long.
        principal: Who the client is, if that is known.
        peer: From where it came.
        draining: In which requests that are in flight at the end of `messages` may come to their own end. What its deadline
            leaves is answered with an error; cancelling it drops what is left. Without it, they are cancelled at once.

    What waits to be written at the end is written.

    Returns:
        Whether the client took all that was said.

    Raises:
        Overloaded: The bus takes no more connections.
    """
    whole: bool | None = None
    ended = False

    async def write_lines(lines: list[bytes]) -> None:
        for piece in _cut(b"".join([b"%b\n" % line for line in lines])):
            be_patient()
            await send(piece)

    def be_patient() -> None:
        if ended:
            nursery.cancel_scope.deadline = trio.current_time() + bus.limits.write_deadline

    async def write() -> None:
        nonlocal whole
        whole = await channel.write(write_lines, deadline=math.inf)
        nursery.cancel_scope.cancel()

    with Channel(bus, principal, peer, spared=True) as channel:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            async for message in messages:
                await channel.receive(message)
            channel.end(None if draining is None else await channel.drain(draining))
            ended = True
            be_patient()
    if whole is None:
        bus.reached.missed_write(channel.session.owner)
    return bool(whole)


def _cut(data: bytes) -> Iterator[bytes]:
    """Cut lines into pieces, between two of them wherever that is possible."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + _SLICE) + 1 or start + _SLICE
        yield data[start:end]
        start = end
