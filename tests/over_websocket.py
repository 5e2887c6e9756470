"""What ``--shell=websocket`` puts in the place of a client in process: one over a WebSocket of mcpbus's own server, in memory.

A test takes part if it has such a client. One that sends an HTTP request is about HTTP, and one that says who its client is has that
from a program: over a WebSocket the request to upgrade says it. These are skipped at the very step; what they asserted before holds.
"""

import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from mcpbus import Bus
from mcpbus.client.client import Client
from mcpbus.client.wire import encode_message
from mcpbus.core.concurrency import background
from mcpbus.protocol.revisions import LATEST, REVISIONS, Era
from mcpbus.serving import ServeOptions
from mcpbus.serving.http1.connection import Http1Connection
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.served_app import ServedApp
from mcpbus.testing import probe
from mcpbus.testing.over_http1 import WireReactor

_connect_in_process = Bus.connect
_opened: list[object] = []


def install() -> None:
    """Have each client of `Bus.connect` speak over a WebSocket."""
    for folder in ("serving", "transport"):
        sys.path.append(str(Path(__file__).parent / folder))
    Bus.connect = _connect
    probe.AsgiProbe.send = _send_http


def _send_http(*_args, **_named):
    pytest.skip("sends an HTTP request")


@asynccontextmanager
async def _connect(bus, *, revision=LATEST.name, principal=None, capabilities=None, on_input_request=None):
    if revision not in REVISIONS:
        given = {"principal": principal, "capabilities": capabilities, "on_input_request": on_input_request}
        async with _connect_in_process(bus, revision=revision, **given) as client:
            yield client
        return
    if principal is not None or bus.backend.auth is not None or bus.backend.authenticate is not None:
        pytest.skip("says who its client is")
    async with background() as nursery:
        wire = await _open(bus, nursery)
        client = Client(
            REVISIONS[revision],
            lambda message, pending: _say(wire, message, pending),
            nursery,
            capabilities=dict(capabilities or {}),
            on_input_request=on_input_request,
        )
        nursery.start_soon(_deliver, wire, client)
        if client.revision.era is Era.LEGACY:
            await client.initialize()
        yield client
        await wire.disconnect()
        nursery.cancel_scope.cancel()


async def _open(bus, nursery):
    """Connect to the server of a bus, which is opened with the first client and outlives all: so do the handlers of tasks."""
    from websocket_wires import Owner, Wire, WireClient, _Over, upgrade

    lane = getattr(bus, "_lane_of_tests", None)
    if lane is None:
        lane = bus._lane_of_tests = HttpServer(ServedApp(bus.asgi()), ServeOptions(), WireReactor())
        trio.lowlevel.spawn_system_task(lane.run)
    wire = Wire(lane.reactor)
    client = WireClient(wire)
    owner = Owner(_Over(), wire, nursery)
    Http1Connection(lane, wire, owner, lane.reactor).begin()
    nursery.start_soon(client.listen)
    client.send_bytes(upgrade(b"host: localhost", b"sec-websocket-protocol: mcp"))
    await client.answered()
    await trio.sleep(0.001)  # whoever has said nothing is told by the clock, which stands still here
    if not client.accepted:
        pytest.skip("is refused, which over a WebSocket is an answer of HTTP")
    _opened.append(client)
    return client


def _say(wire, message, pending):
    wire.tell(text=encode_message(message).decode())
    if pending is not None:
        pending.begun = True


async def _deliver(wire, client):
    """Give the client what comes, until the connection ends."""
    heard = 0
    while not wire.over.is_set() or heard < len(wire.frames):
        await wire.has_more_than(heard)
        for text in wire.frames[heard:]:
            heard += 1
            client.receive(text)
    client.disconnected()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Report a test as skipped that was, from within a nursery, or that opened no WebSocket."""
    _opened.clear()
    try:
        result = yield
    except BaseExceptionGroup as group:
        skipped, _ = group.split(pytest.skip.Exception)
        if skipped is None:
            raise
        raise _first(skipped) from None
    if not _opened:
        pytest.skip("has no client over a WebSocket")
    return result


def _first(group):
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
