"""The upstream servers of the gateways under test, and the gateways: real processes, and the clients that look at them."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from tests.gateways import plans
from tests.gateways.alternating import serve_alternating
from tests.npm import NODE, ROOT, install

HERE = Path(__file__).parent
PACKAGES = Path("node_modules/@modelcontextprotocol")
SECONDS = 60
"""For a process to start."""


@attrs.frozen
class Upstream:
    """An upstream server, and the steps that show it."""

    target: dict[str, Any]
    """Its entry in the file of a gateway."""
    plan: list[plans.Step]
    alone: dict[str, Any] | None = None
    """Where a direct connection goes, if not to the target."""

    @property
    def direct(self) -> dict[str, Any]:
        return self.alone or self.target

    @property
    def argument(self) -> str:
        """What `mcpbus serve` takes for it alone."""
        return self.target.get("url") or f"stdio:{' '.join([self.target['command'], *self.target['args']])}"


def program(*command: str | Path) -> dict[str, Any]:
    first, *rest = map(str, command)
    return {"command": first, "args": rest}


def url_at(port: int) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{port}/mcp"}


def awkward(mode: str) -> dict[str, Any]:
    return program(sys.executable, HERE / "awkward_upstream.py", mode)


@asynccontextmanager
async def official_over_http(name: str) -> AsyncIterator[int]:
    """Run the official SDK's server over HTTP until the block ends; yield its port."""
    command = [sys.executable, HERE / "official_server.py", name, "http"]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        said = b""
        with trio.fail_after(SECONDS):
            while b"\n" not in said:
                part = await process.stdout.receive_some()
                assert part, "the server ended before it served"
                said += part
        yield int(re.search(rb":(\d+)/mcp", said)[1])
    finally:
        await _end(process)


async def _end(process: trio.Process) -> None:
    """End a process: kindly, and after a while by force."""
    process.terminate()
    with trio.CancelScope(shield=True):
        with trio.move_on_after(SECONDS):
            await process.wait()
            return
        process.kill()
        await process.wait()


@asynccontextmanager
async def upstreams(folder: Path) -> AsyncIterator[dict[str, Upstream]]:
    """Have all upstream servers that answer, by the names that a gateway gives them.

    Args:
        folder: What the one for files serves.
    """
    installed = install(HERE) / PACKAGES
    async with trio.open_nursery() as nursery, AsyncExitStack() as running:
        remote, *replicas = [
            await running.enter_async_context(official_over_http(name))
            for name in ("remote", "replicas", "replicas")
        ]
        port = await nursery.start(serve_alternating, replicas)
        everything = installed / "server-everything/dist/index.js"
        filesystem = installed / "server-filesystem/dist/index.js"
        yield {
            "everything": Upstream(program(NODE, everything), plans.everything()),
            "files": Upstream(program(NODE, filesystem, folder), plans.files(str(folder))),
            "official": Upstream(
                program(sys.executable, HERE / "official_server.py", "official", "stdio"),
                plans.official("official", one_process=True, own_process=True),
            ),
            "remote": Upstream(
                url_at(remote),
                plans.official("remote", one_process=True, own_process=False),
            ),
            "replicas": Upstream(
                url_at(port),
                plans.official("replicas", one_process=False, own_process=False),
                alone=url_at(replicas[0]),
            ),
            "floods": Upstream(awkward("floods"), plans.floods()),
        }
        nursery.cancel_scope.cancel()


@contextmanager
def hanging() -> Iterator[str]:
    """Listen at a URL, accept, and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


class Log:
    """The lines that a gateway writes to its standard error."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = trio.Event()

    async def follow(self, stream: trio.abc.ReceiveStream) -> None:
        """Take lines until the stream ends."""
        rest = b""
        async for part in stream:
            *lines, rest = (rest + part).split(b"\n")
            self.lines += [line.decode() for line in lines]
            self._more.set()
            self._more = trio.Event()

    async def until(self, pattern: str) -> re.Match[str]:
        """Wait for a line with a match, and return that."""
        for line in self.lines:
            if found := re.search(pattern, line):
                return found
        seen = len(self.lines)
        while True:
            await self._more.wait()
            for line in self.lines[seen:]:
                if found := re.search(pattern, line):
                    return found
            seen = len(self.lines)


@attrs.frozen
class Gateway:
    """A running `mcpbus serve`."""

    url: str
    log: Log


@asynccontextmanager
async def gateway(target: str | Path) -> AsyncIterator[Gateway]:
    """Run `mcpbus serve` until the block ends."""
    command = [sys.executable, "-m", "mcpbus", "serve", str(target), "--bind", "127.0.0.1:0"]
    process = await trio.lowlevel.open_process(
        [*command, "--trusted-proxy", "127.0.0.1"], stderr=subprocess.PIPE, cwd=ROOT
    )
    log = Log()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.follow, process.stderr)
        try:
            with trio.fail_after(SECONDS):
                url = (await log.until(r"is served at (http\S+)"))[1]
            yield Gateway(url, log)
        finally:
            await _end(process)
        nursery.cancel_scope.cancel()


def write_file(path: Path, entries: dict[str, dict[str, Any]]) -> Path:
    """Write the file of a gateway; return its path."""
    path.write_text(json.dumps({"mcpServers": entries}))
    return path
