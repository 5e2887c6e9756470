"""The official SDK's client loses streams, and comes back to them by the last event that it saw."""

from contextlib import asynccontextmanager
from functools import partial

import httpx2
import pytest
import trio
from mcp import types
from mcp.client.streamable_http import streamable_http_client
from sdk_client import DEADLINE, TOLERATED, connected, served

from mcpbus.stores import MemoryEventStore, SqliteEventStore
from tests.typescript.asking_server import make_server

pytestmark = TOLERATED

RESUMABLE = "2025-11-25"
DELAY_MS = 20


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr("mcp.client.streamable_http.DEFAULT_RECONNECTION_DELAY_MS", DELAY_MS)


class Wire(httpx2.AsyncBaseTransport):
    """HTTP whose streams can be cut in the middle, as a network does, and that notes which were gone on from."""

    def __init__(self):
        self.resumed = []
        self.came_back = trio.Event()
        self._inner = httpx2.AsyncHTTPTransport()
        self._open = []

    async def handle_async_request(self, request):
        if "last-event-id" in request.headers:
            self.resumed.append(request.headers["last-event-id"])
            self.came_back.set()
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = Cut(response.stream)
            self._open.append(response.stream)
        return response

    async def aclose(self):
        await self._inner.aclose()

    def cut(self):
        """Break every stream that is open."""
        for stream in self._open:
            stream.scope.cancel()
        self._open.clear()


class Cut(httpx2.AsyncByteStream):
    """A stream that ends with an error once its scope is cancelled, whether or not somebody reads at that moment."""

    def __init__(self, stream):
        self.scope = trio.CancelScope()
        self._stream = stream

    async def __aiter__(self):
        chunks = aiter(self._stream)
        while not self.scope.cancel_called:
            with trio.CancelScope() as reading:
                self.scope = reading
                chunk = await anext(chunks, None)
            if reading.cancelled_caught:
                break
            if chunk is None:
                return
            yield chunk
        raise httpx2.ReadError("the network is gone")

    async def aclose(self):
        await self._stream.aclose()


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryEventStore()
    else:
        events = SqliteEventStore(tmp_path / "events.db")
        yield events
        events.close()


@asynccontextmanager
async def resuming(store):
    wire = Wire()
    with trio.fail_after(DEADLINE):
        async with (
            served(make_server(), event_store=store) as server,
            httpx2.AsyncClient(transport=wire, timeout=DEADLINE) as http,
            connected("http", streamable_http_client(server.url, http_client=http), RESUMABLE) as link,
        ):
            yield link, wire, server


class Progress:
    """What a call reported, and the moment at which there was as much as wanted."""

    def __init__(self, wanted):
        self.seen = []
        self.enough = trio.Event()
        self._wanted = wanted

    async def __call__(self, progress, _total, _message):
        self.seen.append(progress)
        if progress == self._wanted:
            self.enough.set()
        await trio.lowlevel.checkpoint()


def changes(link):
    return sum(isinstance(said, types.ToolListChangedNotification) for said in link.heard.messages)


async def test_the_server_ends_the_stream_in_the_middle_of_a_call(store):
    async with resuming(store) as (link, wire, _), trio.open_nursery() as nursery:
        progress = Progress(1)

        async def leave():
            result = await link.call("leave", progress)
            assert result.content[0].text == "left and came back"

        nursery.start_soon(leave)
        await wire.came_back.wait()
        await link.call("came_back")
    assert progress.seen == [1, 2, 3]
    assert len(wire.resumed) == 1


async def test_the_network_ends_the_streams_in_the_middle_of_a_call():
    async with resuming(MemoryEventStore()) as (link, wire, server), trio.open_nursery() as nursery:
        progress = Progress(2)

        async def count():
            result = await link.call("count", progress, until="counted over a broken stream", steps=2)
            assert result.content[0].text == "counted"

        await link.call("grow", name="grown_before")
        await link.heard.of(types.ToolListChangedNotification)
        nursery.start_soon(count)
        await progress.enough.wait()
        wire.cut()
        await link.call("signal", name="counted over a broken stream")
        # What is said to the session while its GET stream is gone is not lost either.
        await link.call("grow", name="grown_in_the_break")
        await link.heard.until(lambda _: changes(link) == 2)
    assert progress.seen == [1, 2]
    assert len(wire.resumed) == 2
    assert server.bus.statistics().requests == 0


async def test_a_call_that_was_cancelled_is_not_come_back_to_for_ever():
    async with resuming(MemoryEventStore()) as (link, wire, server):
        running = Progress(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(link.call, "hang", running, name="cancelled"))
            await running.enough.wait()
            nursery.cancel_scope.cancel()
        assert (await link.call("happened", name="cancelled")).content[0].text == "true"
        while len(wire.resumed) < 2:  # noqa: ASYNC110 - the client tells nobody
            await trio.sleep(DELAY_MS / 1000)
        await trio.sleep(10 * DELAY_MS / 1000)
        # MISBEHAVIOUR: it comes back to a call that it cancelled itself, and takes a 204 for a failure that might pass.
        assert len(wire.resumed) == 2
        assert server.bus.statistics().requests == 0
