"""A script of ten seconds, and log lines that all arrived at the end.

The system: a server that runs scripts, each for ten seconds or so, and logs each step.

What went wrong: notifications were queued until the handler returned, so that the client saw the whole log at once, after the
script. Meanwhile not even the head of the response had been sent, nothing kept the connection alive, and proxies cut it.

What must hold: a notification leaves while its handler still runs, one turn of the scheduler after it was made, and the head of
the answer goes with it. Where the handler says nothing for a while, comments keep the stream alive.

Here a script logs its steps, and another one says nothing; keep-alive comments are due every 0.2 s instead of every 15 s.

The second act, with software of others before and after, is examples/hosted/live.py.
"""

import trio

from examples.failures.client import HttpClient
from examples.failures.stage import Show, run, serving
from mcpbus import Context, Limits, Server

server = Server("scripts")


@server.tool
async def run_script(ctx: Context, steps: int = 10, interval: float = 0.5) -> str:
    """Run a script; each step reports progress and a log line, then takes `interval` seconds."""
    for step in range(1, steps + 1):
        await ctx.progress(step, total=steps, message=f"step {step} of {steps}")
        await ctx.info(f"step {step}: still running")
        await trio.sleep(interval)
    return f"{steps} steps done"


@server.tool
async def think(seconds: float = 1.0) -> str:
    """Say nothing for some seconds, then answer."""
    await trio.sleep(seconds)
    return "42"


async def demonstrate(show: Show) -> None:
    """Serve, call both tools, and show what arrives when."""
    async with serving(server, limits=Limits(keep_alive=0.2)) as (_, url):
        client = HttpClient(url)
        await client.initialize()
        for name, arguments in (("run_script", {"steps": 3, "interval": 0.5}), ("think", {"seconds": 0.7})):
            show(f"calling {name}")
            async with client.open("tools/call", {"name": name, "arguments": arguments}) as answer:
                show(f"  the head: {answer.status} {answer.headers['content-type']}")
                async for message in answer.events:
                    if message is None:
                        show("  a comment keeps the stream alive")
                    elif "result" in message:
                        show(f"  the result: {message['result']['content'][0]['text']}")
                    else:
                        show(f"  {message['method']} {message['params']}")


if __name__ == "__main__":
    run(demonstrate)
