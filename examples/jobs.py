"""A job runner: a question first, a live log, and an end when the client wants it: ``python examples/jobs.py``."""

import subprocess
from functools import partial

import trio

from mcpbus import AcceptedElicitation, Context, Server, ToolError

server = Server("jobs", instructions="Runs commands on this machine. Its user is asked about each.")


@server.tool
async def run(command: list[str], ctx: Context) -> int:
    """Run a program with its arguments, log its lines while it runs, and return its exit status."""
    answer = await ctx.elicit(f"Run {' '.join(command)}?", bool)
    if not isinstance(answer, AcceptedElicitation) or not answer.data:
        raise ToolError("the user does not want it")
    async with trio.open_nursery() as nursery:  # when the call is cancelled, so is the process
        start = partial(
            trio.run_process, command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        process: trio.Process = await nursery.start(start)
        assert process.stdout is not None
        said, rest = 0, b""
        async for data in process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                said += 1
                await ctx.info(line.decode(errors="replace"))
                await ctx.progress(said, message="lines")
        if rest:
            await ctx.info(rest.decode(errors="replace"))
        return await process.wait()


if __name__ == "__main__":
    server.run()
