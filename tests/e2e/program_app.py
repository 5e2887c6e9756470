"""A module with a server, as a user has one: for hypercorn, uvicorn, signals and stdio."""

import os
import subprocess
import sys

import trio

from mcpbus import Context, Server

server = Server("program", version="1.0.0")


def tell(word: str) -> None:
    """Say how far we are, to the test that runs us."""
    sys.stderr.write(word + "\n")
    sys.stderr.flush()


@server.tool
async def chatty(ctx: Context) -> str:
    """Write to standard output in all the ways that there are."""
    print("printed")  # noqa: T201
    sys.stdout.write("written\n")
    os.write(1, b"written to the descriptor\n")
    await trio.run_process(["echo", "from a child"], capture_stdout=False)
    subprocess.run(["echo", "from another child"], check=True)  # noqa: ASYNC221
    await ctx.progress(1)
    return "said"


@server.tool
async def shut() -> str:
    """Close standard output, as libraries do that think it theirs."""
    sys.stdout.close()
    return "shut"


@server.tool
async def flood(ctx: Context) -> str:
    """Say more than a client that does not read can take, and go on for ever."""
    for _ in range(1000):
        await ctx.log("info", "x" * 16 * 1024)
    tell("FLOODED")
    await trio.sleep_forever()
    return "unreached"


@server.tool
async def stubborn(ctx: Context) -> str:
    """Hold on for a while when cancelled."""
    await ctx.progress(1)
    try:
        await trio.sleep_forever()
    finally:
        tell("CANCELLED")
    return "unreached"


@server.tool
async def short(ctx: Context) -> str:
    """End a little after the shutdown has begun."""
    await ctx.progress(1)
    while not ctx.bus.admission.closed:
        await trio.lowlevel.checkpoint()
    return "finished"


@server.tool
async def dawdle() -> str:
    """Let much else happen first."""
    for _ in range(100):
        await trio.lowlevel.checkpoint()
    return "done"


@server.tool(task="required")
async def survive(ctx: Context) -> str:
    """Go on in the drain, for ever."""
    while not ctx.bus.admission.closed:
        await trio.lowlevel.checkpoint()
    tell("DRAINING")
    await trio.sleep_forever()
    return "unreached"


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def fail() -> str:
    raise RuntimeError("a mistake that is told in the log at length " * 50)


app = server.asgi()

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio", drain_timeout=3600)  # what it would wait for has to fail
    else:
        from mcpbus import ServeOptions
        from mcpbus.core import hub
        from mcpbus.serving import run

        # A client that reads gets the last words, however seldom this process has a turn.
        if sys.argv[4:] == ["patient"]:
            run._LAST_WORDS_SECONDS = hub._FLUSH_SECONDS = 3600
        options = ServeOptions(drain_timeout=float(sys.argv[2]), write_deadline=3600)
        server.run("http", bind=sys.argv[3], options=options)
