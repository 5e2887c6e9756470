"""A channel of lines, as stdio has: each line is a message, however the input was cut, and the end of the input ends the connection."""

import contextvars
import math
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from typing import Final

import trio
from mcpbus_actors import Leader

from mcpbus.core.hub import Hub
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.principals import IN_PROCESS, Peer
from mcpbus.transports.duplex import DuplexChannel
from mcpbus.transports.inbound_queue import InboundQueue

TOO_LONG: Final = b"\n"
"""What stands for a line that was longer than it may be. No other line has a line break in it."""


class LineSplitter:
    """Puts lines together.

    Args:
        max_bytes: How long a line may be, without the line break.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unfinished = bytearray()
        self._skips = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that a piece completes, without their ends and without empty ones; `TOO_LONG` for one that is too long."""
        *ended, rest = piece.split(b"\n")
        if not ended:
            self._keep(rest)
            return []
        if self._unfinished or self._skips:
            ended[0] = self._finish(ended[0])
        self._keep(rest)
        return list(self._lines(ended))

    def end(self) -> list[bytes]:
        """Return what is a line although nothing ends it but the stream."""
        return list(self._lines([self._finish(b"")]))

    def _lines(self, ended: Iterable[bytes]) -> Iterable[bytes]:
        for line in ended:
            if len(line) > self._max_bytes or line == TOO_LONG:
                yield TOO_LONG
            elif line := line.strip():
                yield line

    def _finish(self, end: bytes) -> bytes:
        line = TOO_LONG if self._skips else bytes(self._unfinished + end)
        self._skips = False
        self._unfinished.clear()
        return line

    def _keep(self, beginning: bytes) -> None:
        """Keep what has come of a line, unless that is too much already."""
        if not self._skips:
            self._unfinished += beginning
        if len(self._unfinished) > self._max_bytes:
            self._unfinished.clear()
            self._skips = True


_SLICE: Final = 64 * 1024
_MOST_LINE_BYTES: Final = 4 * 1024 * 1024
_TOO_LONG: Final = invalid_request(f"the line is longer than {_MOST_LINE_BYTES} bytes, and was not read")


async def run_channel(
    bus: Hub,
    pieces: AsyncIterable[bytes],
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
        pieces: What the client sends, as it comes, none of it empty; each line is one JSON-RPC message. Its end is the end of the
            connection.
        send: Writes one or several messages, each followed by a line break, or a part of one that is very long.
        principal: Who the client is, if that is known.
        peer: From where it came.
        draining: In which requests that are in flight at the end of `pieces` may come to their own end. What its deadline
            leaves is answered with an error; cancelling it drops what is left. Without it, they are cancelled at once.

    What waits to be written at the end is written.

    Returns:
        Whether the client took all that was said.

    Raises:
        Overloaded: The bus takes no more connections.
    """
    splitter = LineSplitter(_MOST_LINE_BYTES)
    with DuplexChannel(bus, principal, peer, spared=True) as channel:
        said = _Said(bus, channel)
        try:
            async with trio.open_nursery() as nursery:
                writer = _LineWriter(channel, send, nursery.cancel_scope, bus.limits.write_deadline)
                nursery.start_soon(writer.run)
                async for piece in pieces:
                    await said.take(splitter.feed(piece))
                await said.take(splitter.end())
                channel.end(None if draining is None else await channel.drain(draining))
                writer.press()
        finally:
            said.end()
    if writer.whole is None:
        bus.limit_monitor.missed_write(channel.session.owner)
    return bool(writer.whole)


class _LineWriter:
    """Writes what is said on a channel, for as long as it takes, and in the end only as long as its client goes on to take it.

    Args:
        channel: The channel.
        send: As for `run_channel`.
        scope: Encloses all that is done for the channel, and ends with it.
        patience: How many seconds the client has for 64 KiB in the end.

    Attributes:
        whole: Whether the client took all that was said; None until that is known.
    """

    def __init__(
        self,
        channel: DuplexChannel,
        send: Callable[[bytes], Awaitable[None]],
        scope: trio.CancelScope,
        patience: float,
    ) -> None:
        self._channel = channel
        self._send = send
        self._scope = scope
        self._patience = patience
        self._pressed = False
        self.whole: bool | None = None

    async def run(self) -> None:
        """Write until the channel ends."""
        self.whole = await self._channel.write(self._write, deadline=math.inf)
        self._scope.cancel()

    def press(self) -> None:
        """Have the client take something in time from now on."""
        self._pressed = True
        self._be_patient()

    def _be_patient(self) -> None:
        if self._pressed:
            self._scope.deadline = trio.current_time() + self._patience

    async def _write(self, lines: list[bytes]) -> None:
        for piece in _cut(b"".join([b"%b\n" % line for line in lines])):
            self._be_patient()
            await self._send(piece)


class _Said:
    """What a client has said, line by line.

    It is taken by tasks of the bus, not by whoever reads: with that a handler would be cancelled before the bus hears of it, and would
    have it wait for its end.
    """

    def __init__(self, bus: Hub, channel: DuplexChannel) -> None:
        self._channel = channel
        self._lines: deque[bytes] = deque()
        self._intake = InboundQueue(channel, bus.budget, self._next_line)
        self._over = False
        self._more, self._taken = trio.Event(), trio.Event()
        Leader(self._wait, self._intake.take, self._lines).run_in(bus.system, contextvars.copy_context())

    async def take(self, lines: list[bytes]) -> None:
        """Have lines taken, and wait until they are. Their handlers may go on."""
        if lines:
            self._lines.extend(lines)
            self._intake.advance()
            self._taken = trio.Event()
            self._more.set()
            await self._taken.wait()

    def end(self) -> None:
        """Have nothing more taken. Handlers go on."""
        self._over = True
        self._lines.clear()
        self._intake.end()
        self._more.set()

    def _next_line(self) -> bytes | None:
        """Return the next line that is a message, having told of those before it that they are too long."""
        while self._lines:
            line = self._lines.popleft()
            if line != TOO_LONG:
                return line
            self._channel.refuse(_TOO_LONG)
        return None

    async def _wait(self) -> bool:
        """Wait for a line, and return whether there is one; for the leader."""
        await self._intake.wait_ready()
        while self._intake.next is None and not self._over:
            self._taken.set()
            self._more = trio.Event()
            await self._more.wait()
        return not self._over


def _cut(data: bytes) -> Iterator[bytes]:
    """Cut lines into pieces, between two of them wherever that is possible."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + _SLICE) + 1 or start + _SLICE
        yield data[start:end]
        start = end
