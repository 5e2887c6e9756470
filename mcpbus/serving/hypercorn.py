"""Serving under hypercorn, through its public interface alone: an alternative to our own server, for who trusts it more."""

import logging
import os
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Final

import trio

from mcpbus.serving.asgi import AsgiApp, Drainable
from mcpbus.serving.options import ServeOptions

_NO_LIMIT: Final = 2**63
"""hypercorn ends a connection after so many requests."""


async def serve_under_hypercorn(
    app: AsgiApp,
    options: ServeOptions,
    sockets: Iterable[socket.socket],
    *,
    shutdown: trio.Event,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Serve an application under hypercorn's worker for trio, until `shutdown` is set; then drain it first.

    Args:
        app: The application.
        options: How it is served.
        sockets: What is listened on.
        shutdown: As for `serve`.
        task_status: As for `serve`.
    """
    from hypercorn.config import Config  # noqa: PLC0415 - our own server does without it
    from hypercorn.trio import serve  # noqa: PLC0415

    async def wait_and_drain() -> None:
        await shutdown.wait()
        if isinstance(app, Drainable):
            await app.drain(options.drain_timeout)

    config = _configure(Config(), options)
    config.bind = [f"fd://{os.dup(sock.fileno())}" for sock in sockets]
    served: Any = app  # it knows scopes by classes of its own
    await serve(served, config, shutdown_trigger=wait_and_drain, task_status=task_status, mode="asgi")


def _configure(config: Any, options: ServeOptions) -> Any:
    """Say our options in hypercorn's words."""
    config.certfile = options.certfile
    config.keyfile = options.keyfile
    if options.ca_certs is not None:
        config.ca_certs, config.verify_mode = options.ca_certs, ssl.CERT_REQUIRED
    config.graceful_timeout = options.drain_timeout
    config.keep_alive_timeout = options.keep_alive_timeout
    config.keep_alive_max_requests = _NO_LIMIT
    config.websocket_ping_interval = options.websocket_ping_interval
    config.h11_max_incomplete_size = options.max_head_bytes
    config.h2_max_header_list_size = options.max_head_bytes
    config.ssl_handshake_timeout = options.tls_handshake_timeout
    config.include_server_header = False
    config.errorlog = logging.getLogger("mcpbus.serving.hypercorn")
    return config
