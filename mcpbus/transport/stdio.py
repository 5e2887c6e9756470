"""stdio: newline-delimited messages on the process's own standard input and output.

While the server runs, standard output belongs to the protocol alone: what the program prints goes to standard
error instead.
"""

import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import trio

from mcpbus.owners import STDIO
from mcpbus.transport.channel import run_channel

if TYPE_CHECKING:
    from mcpbus.bus import Bus

_CHUNK_BYTES = 64 * 1024
TOO_LONG = b"\x00"
"""What stands for a line that was longer than it may be: no JSON, so it is answered with a parse error."""


async def run_stdio(bus: "Bus", max_line_bytes: int = 4 * 1024 * 1024) -> None:
    """Serve the process's standard input and output until the input ends.

    Args:
        bus: The bus to attach to.
        max_line_bytes: The longest message that is read; a longer one is answered with an error.
    """
    with _take_over() as (stdin, stdout):
        source, sink = _open(stdin), _open(stdout)
        async with source, sink:
            await run_channel(bus, read_lines(source, max_line_bytes), sink.send_all, None, STDIO)


async def read_lines(
    source: "trio.abc.ReceiveStream | _Blocking", max_line_bytes: int
) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, without their ends and without empty ones; `TOO_LONG` for one that is too long."""
    buffer = bytearray()
    skipping = False
    while True:
        chunk = await source.receive_some(_CHUNK_BYTES)
        if not chunk:
            if buffer.strip() and not skipping:
                yield bytes(buffer)
            return
        searched = len(buffer)
        buffer += chunk
        start = 0
        while (end := buffer.find(b"\n", max(start, searched))) >= 0:
            line = bytes(buffer[start:end]).strip()
            start = end + 1
            if skipping or len(line) > max_line_bytes:
                yield TOO_LONG
            elif line:
                yield line
            skipping = False
        del buffer[:start]
        if len(buffer) > max_line_bytes:
            buffer.clear()
            skipping = True


@contextmanager
def _take_over() -> Iterator[tuple[int, int]]:
    """Lend out descriptors of standard input and output; meanwhile 1 is standard error and 0 is empty."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    try:
        yield stdin, stdout
    finally:
        sys.stdout.flush()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.close(stdin)
        os.close(stdout)


def _open(descriptor: int) -> "trio.lowlevel.FdStream | _Blocking":
    """Open a copy of a descriptor: without threads where that disturbs nobody."""
    copy = os.dup(descriptor)
    status, error = os.fstat(copy), os.fstat(2)
    pipe = stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
    # Non-blocking mode belongs to the open file, not to the descriptor: standard error must not share it.
    if pipe and (status.st_dev, status.st_ino) != (error.st_dev, error.st_ino):
        return trio.lowlevel.FdStream(copy)
    return _Blocking(copy)


class _Blocking:
    """A file or a terminal, read and written in worker threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def receive_some(self, max_bytes: int) -> bytes:
        return await trio.to_thread.run_sync(os.read, self._descriptor, max_bytes, abandon_on_cancel=True)

    async def send_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = await trio.to_thread.run_sync(os.write, self._descriptor, view, abandon_on_cancel=True)
            view = view[written:]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # A thread may still be reading; the descriptor goes with the process.
        await trio.lowlevel.checkpoint()
