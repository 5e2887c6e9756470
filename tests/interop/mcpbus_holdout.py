"""A pytest plugin: runs the interaction suite of the official Python SDK with each of its servers hosted by mcpbus.

The suite is in the source distribution of `mcp`, which this repository does not contain. `make holdout` fetches and runs it.
Only tests with the suite's fixture `connect` run: it is the place where the transport is exchanged. `OWN=1` leaves the SDK's own
transports in place. `holdout_differences.txt` names the cells that fail, each with the rule of mcpbus that it meets.
"""

import os
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import sniffio
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

import mcpbus.asyncio
from mcpbus.hosted import host

BASE_URL = "http://127.0.0.1:8000"
MODERN = "2026-07-28"


def differences():
    """Map the name of each cell that fails to its rule."""
    named = {}
    rule = ""
    for line in Path(__file__).with_name("holdout_differences.txt").read_text().splitlines():
        if line.startswith("# "):
            rule = line.removeprefix("# ")
        elif line.strip():
            named[line.strip()] = rule
    return named


def pytest_collection_modifyitems(config, items):
    chosen = [item for item in items if "connect" in item.fixturenames]
    config.hook.pytest_deselected(items=[item for item in items if "connect" not in item.fixturenames])
    items[:] = chosen
    if os.environ.get("OWN"):
        return
    named = differences()
    for item in items:
        if (rule := named.get(item.nodeid)) is not None:
            item.add_marker(pytest.mark.xfail(reason=rule, strict=True))


def pytest_runtest_setup(item):
    if os.environ.get("OWN") or "connect" not in item.fixturenames:
        return
    factories = item.session.config.pluginmanager.get_plugin("mcpbus_holdout")
    conftest = next(
        module
        for module in item.session.config.pluginmanager.get_plugins()
        if hasattr(module, "_FACTORIES") and hasattr(module, "CellConnect")
    )
    conftest._FACTORIES.update(
        {
            "in-memory": factories.over_http,
            "streamable-http": factories.over_http,
            "streamable-http-stateless": factories.stateless,
            "sse": factories.over_sse,
        }
    )


@asynccontextmanager
async def _served(server, **options):
    """Yield the server as an application of the loop that runs."""
    stray = os.environ.get("STRAY", "adopt")
    if sniffio.current_async_library() == "trio":
        async with host(server, loop="trio", stray=stray).open() as bus:
            yield bus.asgi(**options)
    else:
        app = mcpbus.asyncio.asgi(host(server, stray=stray), **options)
        async with app.lifespan():
            yield app


@asynccontextmanager
async def over_http(server, *, spec_version, read_timeout_seconds=None, sessions="sessionful", **client):
    from tests.interaction.transports._bridge import StreamingASGITransport

    async with (
        _served(server, sessions=sessions) as app,
        httpx2.AsyncClient(transport=StreamingASGITransport(app), base_url=BASE_URL) as http,
        Client(
            streamable_http_client(f"{BASE_URL}/mcp", http_client=http),
            mode=spec_version if spec_version == MODERN else "legacy",
            read_timeout_seconds=read_timeout_seconds,
            **client,
        ) as connected,
    ):
        yield connected


def stateless(server, **options):
    return over_http(server, sessions="stateless", **options)


@asynccontextmanager
async def over_sse(server, *, spec_version, **client):
    from tests.interaction.transports._bridge import StreamingASGITransport

    async with _served(server, http_sse=True) as app:

        def make_http(headers=None, timeout=None, auth=None):
            return httpx2.AsyncClient(
                transport=StreamingASGITransport(app, cancel_on_close=False),
                base_url=BASE_URL,
                headers=headers,
                timeout=timeout,
                auth=auth,
            )

        transport = sse_client(f"{BASE_URL}/sse", httpx_client_factory=make_http)
        async with Client(transport, mode="legacy", **client) as connected:
            yield connected
