"""The demo behind tokens: ``make demo AUTH=1``, ``python -m examples.authorized``.

It serves an issuer of its own beside it, on the next port, which agrees to everything: connect any MCP client, which logs in by itself. What
it needs to have a secret told it asks for when it comes to that.
"""

import os
import sys
import time
from functools import partial
from typing import Any

import trio

from examples.agreeable import AgreeableIssuer
from mcpbus import Context, ServeOptions
from mcpbus.auth import JwtVerifier, Principal, ResourceServer
from mcpbus.core.concurrency import background
from mcpbus.demo import server
from mcpbus.process.program import serve_until_signalled
from mcpbus.serving import CannotListenError, serve
from mcpbus.testing.issuer import InMemoryIssuer


async def tell_secret(ctx: Context[Any, Principal]) -> str:
    """Tell a secret to whoever may hear it."""
    return f"The demo is written in Python, {ctx.principal.subject}."


async def serve_both(
    host: str,
    port: int,
    *,
    shutdown: trio.Event | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the demo, and the issuer on the next port.

    Args:
        host: Where.
        port: Where the demo is.
        shutdown: Set it to end.
        task_status: Reports the demo's URL.

    Raises:
        CannotListenError: One of the two ports is taken.
    """
    issuer = InMemoryIssuer(f"http://{host}:{port + 1}", clock=time.time)
    issuer.resource = f"http://{host}:{port}/mcp"
    verifier = JwtVerifier(issuer.url)
    server.auth = ResourceServer(issuer.resource, verifier, scopes=["demo"], name="The demo of mcpbus")
    server.add_tool(tell_secret, scopes=["demo:secret"])
    agreeable, options = AgreeableIssuer(issuer), ServeOptions(bind=f"{host}:{port + 1}")
    async with background() as nursery:
        await nursery.start(lambda task_status: serve(agreeable, options, task_status=task_status))
        form = "-d grant_type=client_credentials -d 'scope=demo demo:secret'"
        sys.stderr.write(f"get a token by: curl -s {issuer.url}/token {form}\n")
        await server.serve(bind=f"{host}:{port}", shutdown=shutdown, task_status=task_status)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    where, _, number = os.environ.get("BIND", "127.0.0.1:8000").rpartition(":")
    try:
        trio.run(serve_until_signalled, lambda: server.name, partial(serve_both, where, int(number)))
    except CannotListenError as error:
        sys.exit(f"Error: {error}")
