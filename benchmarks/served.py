"""One of the servers that are compared, as a process of its own: ``python -m benchmarks.served SERVER APP PORT``.

SERVER is ``hypercorn`` (plain, on trio) or ``mcpbus`` (as ``mcpbus serve`` runs it). APP is ``bare``, an ASGI application
that reads the request and answers with fixed bytes, or ``mcpbus``, which serves an echo tool.
"""

import argparse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as hypercorn_serve

from benchmarks.exchange import RESULT
from mcpbus import ServeOptions, Server
from mcpbus.program import until_signalled
from mcpbus.serving import serve as mcpbus_serve

server = Server("bench", version="1")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


async def bare(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """Read a request and answer it with the bytes that mcpbus would answer: the least that an ASGI server can be asked."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(RESULT)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": RESULT})


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server", choices=("hypercorn", "mcpbus"))
    parser.add_argument("app", choices=("bare", "mcpbus"))
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    app: Any = bare if arguments.app == "bare" else server.asgi()
    bind = f"127.0.0.1:{arguments.port}"
    run: Callable[[], Awaitable[None]]
    if arguments.server == "hypercorn":
        config = Config()
        config.bind = [bind]
        config.loglevel = "WARNING"
        config.keep_alive_max_requests = 2**63  # its default closes a connection after 1,000 requests
        run = partial(hypercorn_serve, app, config)
    else:
        # As `mcpbus serve` and `server.run` do it.
        run = partial(until_signalled, "bench", partial(mcpbus_serve, app, ServeOptions(bind=bind)))
    trio.run(run)


if __name__ == "__main__":
    main()
