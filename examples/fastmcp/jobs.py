"""The job runner with FastMCP 4.1; it asks clients of 2025-11-25 and older."""

import asyncio
import subprocess

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.elicitation import AcceptedElicitation

mcp = FastMCP("jobs", instructions="Runs commands on this machine. Its user is asked about each.")


@mcp.tool
async def run(command: list[str], ctx: Context) -> int:
    """Run a program with its arguments, log its lines while it runs, and return its exit status."""
    answer = await ctx.elicit(f"Run {' '.join(command)}?", response_type=bool)
    if not isinstance(answer, AcceptedElicitation) or not answer.data:
        raise ToolError("the user does not want it")
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        said, rest = 0, b""
        while data := await process.stdout.read(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                said += 1
                await ctx.info(line.decode(errors="replace"))
                await ctx.report_progress(said, message="lines")
        if rest:
            await ctx.info(rest.decode(errors="replace"))
        return await process.wait()
    finally:  # when the call is cancelled, so is the process
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())


if __name__ == "__main__":
    mcp.run(transport="http")
