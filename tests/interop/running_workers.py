"""Runs `interop_workers` for the clients of one server that is several processes."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[str]:
    """Run the program, and yield its URL once all of its processes serve."""
    command = [sys.executable, "-m", "tests.interop.interop_workers", "127.0.0.1:0", str(count)]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stderr is not None
    try:
        said = b""
        while b"workers (Ctrl-C" not in said:
            data = await process.stderr.receive_some()
            assert data, said.decode()
            said += data
        yield said.decode().split(" is served at ")[1].split()[0]
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()
