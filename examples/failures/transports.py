"""Two transports of one process, and a client that saw nothing.

The system: an editor extension that runs Stata. It served one MCP server through two transports of one process, Streamable
HTTP and HTTP+SSE.

What went wrong: a tool that was called over Streamable HTTP sent its progress and its log lines to "the" session, which was
that of the SSE client. The client that had called saw nothing until the result came.

What must hold: a notification carries the address of the request that caused it, and leaves on that request's own stream. It
does not matter which other clients are connected, over which transports, and no GET stream is needed.

Here one bus serves three clients: one calls over Streamable HTTP, one calls over HTTP+SSE while the first call runs, and one
only watches, over Streamable HTTP, with its GET stream open. In the end everybody is told that the tools have changed, so that
whoever had been sent anything by mistake would have it before that.

The second act, with software of others before and after, is examples/hosted/transports.py.
"""

from collections.abc import AsyncIterable
from urllib.parse import urljoin

import attrs
import trio

from examples.failures.client import HttpClient, Message
from examples.failures.sse_client import connect_sse
from examples.failures.stage import Show, run, serving
from mcpbus import Bus, Context, Server

server = Server("stata")


@server.tool
async def run_do_file(name: str, ctx: Context, lines: int = 3, interval: float = 0.1) -> str:
    """Run a do-file, and show each line of it while it runs.

    `interval` is the time that a line takes, in seconds.
    """
    for line in range(1, lines + 1):
        await ctx.progress(line, total=lines, message=f"{name}: line {line}")
        await ctx.info(f"{name}: . regress y x{line}")
        await trio.sleep(interval)
    return f"{name}: done"


@attrs.frozen
class TransportsResult:
    """What each client was sent.

    Attributes:
        http: On the answer to the call over Streamable HTTP.
        sse: On the stream of the client of HTTP+SSE, from its call on.
        watching: On the GET stream of the client that only watches.
    """

    http: list[Message]
    sse: list[Message]
    watching: list[Message]


async def script(bus: Bus, url: str, show: Show) -> TransportsResult:
    """Be the three clients."""
    seen = TransportsResult([], [], [])
    http, watcher = HttpClient(url), HttpClient(url)
    await http.initialize()
    await watcher.initialize()
    async with watcher.get() as watched, connect_sse(urljoin(url, "sse")) as sse:
        arguments: Message = {"name": "http.do"}
        async with http.open("tools/call", {"name": "run_do_file", "arguments": arguments}) as answer:
            async for message in answer:
                show(f"http:     {_brief(message)}")
                seen.http.append(message)
                if len(seen.http) == 1:
                    await sse.call("run_do_file", {"name": "sse.do", "interval": 0})
        bus.tools_changed()
        await _until_changed(sse, seen.sse, lambda line: show(f"http+sse: {line}"))
        await _until_changed(watched, seen.watching, lambda line: show(f"watching: {line}"))
    return seen


async def _until_changed(stream: AsyncIterable[Message], seen: list[Message], show: Show) -> None:
    async for message in stream:
        show(_brief(message))
        seen.append(message)
        if message.get("method") == "notifications/tools/list_changed":
            break


def _brief(message: Message) -> str:
    if "result" in message:
        return f"the result: {message['result']['content'][0]['text']}"
    params = message.get("params", {})
    return f"{message['method']} {params.get('message', params.get('data', params.get('progress', '')))}"


async def demonstrate(show: Show) -> None:
    """Serve, run the script, and show what arrives when."""
    async with serving(server) as (bus, url):
        await script(bus, url, show)


if __name__ == "__main__":
    run(demonstrate)
