"""The connection of a link, of which what is there is taken, and what the kernel takes is given, without waiting."""

import os
from typing import Final

import trio

_READ_BYTES: Final = 256 * 1024
_HAS_DESCRIPTORS: Final = os.name == "posix"
"""Elsewhere a socket is nothing to read and write."""


class NonblockingStream:
    """A connection, as its link uses it.

    `trio.SocketStream` asks the kernel first whether something is there, which mostly is not so; and each write is a turn of the
    scheduler.

    Args:
        stream: The connection.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._descriptor = None
        if _HAS_DESCRIPTORS and isinstance(stream, trio.SocketStream):
            self._descriptor = stream.socket.fileno()

    @property
    def is_quick(self) -> bool:
        """Whether that can be done with this one."""
        return self._descriptor is not None

    async def receive(self) -> bytes:
        """Wait for bytes, and return them; `b""` at the end.

        Raises:
            OSError: The connection was lost; or it is one of trio's own errors.
        """
        if self._descriptor is None:
            return bytes(await self._stream.receive_some(_READ_BYTES))
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            if self._descriptor is None:
                raise trio.ClosedResourceError("the connection was closed as something came")
            try:
                return os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                continue

    def send_now(self, data: bytearray) -> int:
        """Give the kernel what it takes, and return how much that was. No schedule point."""
        if self._descriptor is None:
            return 0
        try:
            return os.write(self._descriptor, data)
        except OSError:  # it takes nothing now, or never: whoever waits for it is told
            return 0

    async def send_all(self, data: bytes | bytearray) -> None:
        """See `trio.abc.SendStream`."""
        await self._stream.send_all(data)

    async def close(self) -> None:
        """Close it at once."""
        self._descriptor = None
        await trio.aclose_forcefully(self._stream)
