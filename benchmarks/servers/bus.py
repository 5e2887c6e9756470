"""mcpbus as a server that is measured: ``python -m benchmarks.servers.bus SHELL PORT``.

SHELL is ``lane``, as ``mcpbus serve`` serves it, ``asgi``, an application of plain hypercorn on trio, or ``uvicorn``, an application
of uvicorn on asyncio.
"""

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import trio

from benchmarks.dialect import CHANGED_URI
from benchmarks.peers.peer import HOST, Setting
from benchmarks.servers.mixed import add_mixture
from benchmarks.servers.parts import add_parts
from benchmarks.servers.plain import serve_on_uvicorn, serve_plain
from mcpbus import Context, Limits, Proxy, Server
from mcpbus.cluster import RedisReplicas
from mcpbus.process.program import serve_until_signalled
from mcpbus.serving import ServeOptions
from mcpbus.stores import EventStore, MemoryEventStore, SqliteEventStore

if TYPE_CHECKING:
    from mcpbus.auth import ResourceServer


def _make_authorization() -> "ResourceServer | None":
    if Setting.AUTHORIZATION not in os.environ:
        return None
    # It brings pytest and cryptography: 30,000 objects, which the collector of garbage visits again and again in a process
    # whose program has not put them aside, such as one of plain hypercorn.
    from benchmarks.tokens import make_resource_server  # noqa: PLC0415

    return make_resource_server()


server = Server("bench", version="1", auth=_make_authorization())
add_mixture(server)
add_parts(server)
# Beyond the defaults, because ten thousand are measured, and some more are there before.
LIMITS = Limits(max_sessions=20_000, max_requests=20_000, max_listens=20_000)


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def process() -> str:
    """Say which process this is."""
    return str(os.getpid())


@server.tool
async def chatter(count: int, ctx: Context) -> str:
    """Report progress as often as asked for."""
    for number in range(1, count + 1):
        await ctx.progress(number, message=f"clock={time.monotonic_ns()}")
    return "said"


@server.tool
async def change(ctx: Context) -> str:
    """Announce one change to all who asked for it."""
    clock = time.monotonic_ns()
    ctx.bus.resource_updated(CHANGED_URI)
    return f"clock={clock}"


@server.resource(CHANGED_URI)
async def value() -> str:
    """What is changed."""
    return "value"


def main(shell: str, port: int) -> None:
    """Serve until terminated."""
    if Setting.WITHOUT in os.environ:
        # It imports all wires, of which a server for one of them needs few.
        from benchmarks.tricks import TRICKS  # noqa: PLC0415

        TRICKS[os.environ[Setting.WITHOUT]].take_out()
    with _event_store(os.environ.get(Setting.RESUMPTION)) as store:
        app: Any = {"limits": LIMITS, "event_store": store}
        if Setting.REDIS in os.environ:
            lease = float(os.environ.get(Setting.LEASE, "5"))
            app["cluster"] = RedisReplicas(os.environ[Setting.REDIS], link=f"{HOST}:0", lease=lease)
        if Setting.HTTP_SSE in os.environ:
            app["http_sse"] = True
        served = _served()
        if Setting.STDIO in os.environ:
            served.run("stdio")
        elif shell == "asgi":
            trio.run(serve_plain, served.asgi(**app), port)
        elif shell == "uvicorn":
            from mcpbus.asyncio import asgi  # noqa: PLC0415 - nothing else here imports asyncio

            serve_on_uvicorn(asgi(served, **app), port)
        elif Setting.WORKERS in os.environ:
            served.run(bind=f"{HOST}:{port}", workers=int(os.environ[Setting.WORKERS]), **app)
        else:
            if Setting.TWIN in os.environ:
                _start_twin(shell, port + 1)
            with _options(port) as options:
                serve = partial(served.serve, options=options, **app)
                trio.run(serve_until_signalled, lambda: "bench", serve)


def _served() -> Server:
    """Return the server above, or what stands for another one."""
    command = os.environ.get(Setting.PROXY)
    return server if command is None else Proxy(shlex.split(command))


def _start_twin(shell: str, port: int) -> None:
    """Start the same server once more, as a process of its own, and wait until it listens."""
    del os.environ[Setting.TWIN]
    twin = subprocess.Popen([sys.executable, "-m", __spec__.name, shell, str(port)])
    while twin.poll() is None:
        with suppress(ConnectionRefusedError), socket.create_connection((HOST, port)):
            return
        time.sleep(0.02)
    sys.exit("the second process does not start")


@contextmanager
def _options(port: int) -> Iterator[ServeOptions]:
    """Give the options of serving, with TLS if that is asked for."""
    bind = f"{HOST}:{port}"
    if Setting.TLS not in os.environ:
        yield ServeOptions(bind=bind)
        return
    from benchmarks.tls import make_certificate  # noqa: PLC0415 - it brings cryptography, as above

    with TemporaryDirectory() as folder:
        file = make_certificate(Path(folder))
        yield ServeOptions(bind=bind, certfile=file, keyfile=file)


@contextmanager
def _event_store(kind: str | None) -> Iterator[EventStore | None]:
    """Give the store of that kind: none, the one that says ``sqlite``, or the one in memory."""
    if kind != "sqlite":
        yield None if kind is None else MemoryEventStore(max_items=1_000_000)
        return
    with TemporaryDirectory() as folder, closing(SqliteEventStore(Path(folder) / "events")) as store:
        yield store


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
