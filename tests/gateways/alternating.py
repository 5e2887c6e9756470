"""A reverse proxy that sends each request to another replica than the one before, as one without session affinity does."""

from collections.abc import Iterator
from functools import partial
from itertools import cycle

import trio

_HEAD_BYTES = 65_536


async def serve_alternating(
    ports: list[int], *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; start with the port, on the loopback address.

    Args:
        ports: Where the replicas are, on the same address.
        task_status: Gets the port.
    """
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(listener.socket.getsockname()[1])
    await trio.serve_listeners(partial(_forward, cycle(ports)), [listener])


async def _forward(ports: Iterator[int], client: trio.SocketStream) -> None:
    """Forward the one request of a connection: the replica is asked to close it afterwards, so that each request has its own."""
    try:
        async with client, await trio.open_tcp_stream("127.0.0.1", next(ports)) as replica:
            head = b""
            while b"\r\n\r\n" not in head:
                part = await client.receive_some()
                if not part or len(head) > _HEAD_BYTES:
                    return
                head += part
            line, _, rest = head.partition(b"\r\n")
            await replica.send_all(line + b"\r\nConnection: close\r\n" + _without_connection(rest))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_pump, client, replica)
                await _pump(replica, client)
                nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        pass  # a client or a replica that leaves ends its connection alone


def _without_connection(rest: bytes) -> bytes:
    fields, end, body = rest.partition(b"\r\n\r\n")
    kept = [line for line in fields.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join(kept) + end + body


async def _pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    async for part in source:
        await sink.send_all(part)
    await sink.send_eof()
