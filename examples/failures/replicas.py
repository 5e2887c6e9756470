"""Several replicas, and a session that only one of them knew.

The system: a server on a Rust SDK, run as several replicas behind a load balancer.

What went wrong: `initialize` reached one replica and the next request another. That one had never heard of the session,
answered 404 "Session not found" and dropped the connection.

What must hold: with ``sessions="stateless"`` every POST is answered by itself. The handshake works and opens nothing; any
request may go to any replica, and a `tools/call` is answered even where no `initialize` ever was. Requests of revision
2026-07-28 need no sessions at all.

Here two servers that share nothing stand behind a load balancer, which sends each connection to the next of them.

Where sessions are wanted, ``--workers`` has several processes serve as one: each request comes to any of them, and is served by the one
that has its session. In the third act that one is killed between two calls, and another one goes on with the session.
"""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import cycle

import attrs
import trio

from examples.failures.client import Exchange, HttpClient, Message
from examples.failures.stage import Show, run, serving
from mcpbus import Context, Server
from mcpbus.core.concurrency import background
from mcpbus.protocol.revisions import LATEST


async def place_order(item: str, ctx: Context) -> str:
    """Place an order; any replica may take it."""
    await ctx.progress(1, total=1, message="asking the warehouse")
    return f"{item}: ordered at {ctx.bus.name}"


async def process() -> int:
    """Say which process has the session."""
    return os.getpid()


def make_replica(name: str = "replicas") -> Server:
    """Make one replica: a server of its own, with the tools that all of them have."""
    server = Server(name)
    server.add_tool(place_order)
    server.add_tool(process)
    return server


server = make_replica()
"""What each process of the third act serves."""


@asynccontextmanager
async def balanced(*ports: int) -> AsyncIterator[int]:
    """Balance connections between ports, each connection to the next one; yield the port of the balancer."""
    turns = cycle(ports)

    async def forward(client: trio.SocketStream) -> None:
        replica = await trio.open_tcp_stream("127.0.0.1", next(turns))
        async with replica, trio.open_nursery() as nursery:
            nursery.start_soon(_pipe, client, replica)
            await _pipe(replica, client)
            nursery.cancel_scope.cancel()

    async with background() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, forward, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def _pipe(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
    except trio.BrokenResourceError:
        return


@attrs.frozen
class ScriptStep:
    """One request of the script, and how it was answered."""

    what: str
    answer: Exchange


async def script(url: str, show: Show) -> list[ScriptStep]:
    """Be a client that knows nothing of replicas; a second one that skips the handshake; and a modern one."""
    legacy, hasty, modern = HttpClient(url), HttpClient(url), HttpClient(url, revision=LATEST.name)
    steps: list[ScriptStep] = []

    def took(what: str, answer: Exchange) -> None:
        show(f"{what}: {answer.status} {_brief(answer.messages[-1])}")
        steps.append(ScriptStep(what, answer))

    took("initialize", await legacy.initialize())
    took("tools/list", await legacy.request("tools/list"))
    for client, kind in ((legacy, ""), (hasty, " without initialize"), (modern, " of 2026-07-28")):
        for _ in range(2):
            took(f"tools/call{kind}", await client.call("place_order", {"item": "a book"}))
    return steps


def _brief(message: Message) -> str:
    if "error" in message:
        return str(message["error"]["message"])
    return ", ".join(block["text"] for block in message["result"].get("content", ()))


async def demonstrate(show: Show, *, sessions: str = "stateless") -> list[ScriptStep]:
    """Serve two replicas behind a balancer, run the script, and show how each request is answered."""
    async with AsyncExitStack() as stack:
        ports = []
        for name in ("replica A", "replica B"):
            _, url = await stack.enter_async_context(serving(make_replica(name), sessions=sessions))
            ports.append(int(url.split(":")[2].split("/")[0]))
        port = await stack.enter_async_context(balanced(*ports))
        return await script(f"http://127.0.0.1:{port}/mcp", show)


@asynccontextmanager
async def serving_together(count: int) -> AsyncIterator[str]:
    """Serve with several processes that share their sockets, and yield the URL once all of them serve."""
    target = "examples.failures.replicas:server"
    command = [
        sys.executable,
        "-m",
        "mcpbus",
        "serve",
        target,
        "--workers",
        str(count),
        "--bind",
        "127.0.0.1:0",
    ]
    keeper = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
    assert keeper.stderr is not None
    try:
        said = b""
        while b"workers (Ctrl-C" not in said:
            data = await keeper.stderr.receive_some()
            if not data:
                raise RuntimeError(said.decode())
            said += data
        yield said.decode().split(" is served at ")[1].split()[0]
    finally:
        keeper.terminate()
        with trio.CancelScope(shield=True):
            await keeper.wait()
            await keeper.stderr.aclose()


async def outlive(show: Show) -> list[ScriptStep]:
    """Place orders in one session, and kill the process that has it in between."""
    steps: list[ScriptStep] = []

    async def order(item: str) -> None:
        step = ScriptStep("tools/call", await client.call("place_order", {"item": item}))
        show(f"{step.what}: {step.answer.status} {_brief(step.answer.messages[-1])}")
        steps.append(step)

    async with serving_together(2) as url:
        client = HttpClient(url)
        show(f"initialize: {(await client.initialize()).status}")
        await order("a book")
        owner = (await client.call("process")).text
        os.kill(int(owner), signal.SIGKILL)
        heir = await client.call("process")
        while "error" in heir.messages[-1]:  # it was on its way to the one that was being killed
            heir = await client.call("process")
        show(f"process {owner} has the session, and is killed; now {heir.text} has it")
        await order("a pen")
    return steps


async def compare(show: Show) -> None:
    """Show the same script with sessions, which is the failure, and without; and sessions that outlive their process."""
    show("with sessions:")
    await demonstrate(show, sessions="sessionful")
    show("stateless:")
    await demonstrate(show)
    if hasattr(signal, "SIGKILL"):
        show("with sessions, by several processes that serve as one:")
        await outlive(show)


if __name__ == "__main__":
    run(compare)
