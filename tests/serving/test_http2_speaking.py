"""Handlers that speak now and then over HTTP/2: what they say is written at once, and in order, whatever the client has room for."""

from contextlib import asynccontextmanager

import h2.events
import pytest
import trio
from h2.settings import SettingCodes
from houses import assert_nothing_is_left
from test_http2_serving import Client, Owner, Tools
from trio.testing import wait_all_tasks_blocked
from wires import Wire

from mcpbus import Context, Limits, ServeOptions
from mcpbus.core.outbox import Outbox
from mcpbus.core.receipt import DELIVERED, Fate, Location
from mcpbus.protocol.routes import Reason
from mcpbus.serving.http2.connection import Http2Connection
from mcpbus.serving.http2.connection_writer import ConnectionWriter
from mcpbus.serving.http2.response_writer import Http2ResponseWriter
from mcpbus.serving.http2.sender import Http2Sender
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.served_app import ServedApp
from mcpbus.testing.over_http1 import WireReactor

LOST = Fate.discarded(Reason.LOST)


class WireOwner(Owner):
    """Who has accepted a connection that can be polled."""

    def close(self):
        self.closed = trio.current_time()
        self.stream.close()


@asynccontextmanager
async def connected(tools, event_store=None, **limits):
    """A client whose connection is written at once, as far as it has room."""
    reactor = WireReactor()
    async with (
        tools.server.open(limits=Limits(**limits), event_store=event_store, drain_timeout=0) as bus,
        trio.open_nursery() as nursery,
    ):
        service = HttpServer(ServedApp(bus.asgi()), ServeOptions(), reactor)
        wire = Wire(reactor)
        owner = WireOwner(wire)
        connection = Http2Connection(service, wire, owner, reactor)
        for task in (service.run, connection.run):
            nursery.start_soon(task)
        client = Client(bus, wire.near, connection, owner)
        client.wire = wire
        await client.start()
        yield client
        nursery.cancel_scope.cancel()


def add_slow_chat(tools, before=lambda _: None):
    """A tool with a second before each report but the first, and something that is done then; and what it noted."""
    notes = []

    @tools.server.tool
    async def chat(ctx: Context) -> str:
        await ctx.info("0")
        try:
            for number in (1, 2, 3):
                await trio.sleep(1)
                before(number)
                notes.append(await ctx.info(f"{number}" + "." * 500))
        except trio.Cancelled:
            notes.append("cancelled")
            raise
        return "said"

    return notes


async def assert_all_is_said_in_order(client, stream_id):
    await client.until_stream(stream_id, h2.events.StreamEnded)
    body = client.bodies[stream_id]
    places = [body.index(word) for word in (b'"0"', b'"1..', b'"2..', b'"3..', b'"said"')]
    assert places == sorted(places)
    await wait_all_tasks_blocked()


async def test_what_is_said_now_and_then_is_written_at_once_without_an_outbox(autojump_clock, monkeypatch):
    queued, put = [], Outbox.put
    monkeypatch.setattr(Outbox, "put", lambda outbox, message: queued.append(message) or put(outbox, message))
    tools, fates = Tools(), []
    notes = add_slow_chat(tools, lambda _: fates.extend(receipt.fate for receipt in notes[-1:]))
    async with connected(tools) as client:
        await assert_all_is_said_in_order(client, await client.call("chat"))
        assert fates == [DELIVERED] * 2
        assert client.bus.ledger.delivered == 5
        assert len(queued) == 2  # what comes first, and the reply
        assert_nothing_is_left(client.bus)


@pytest.mark.parametrize("room", [0, 10, 700])
async def test_a_connection_that_has_no_room_now_and_then_gets_all_of_it_in_order(room, autojump_clock):
    def leave_room(number):
        if number == 2:
            client.wire.room = room

    tools = Tools()
    notes = add_slow_chat(tools, leave_room)
    async with connected(tools) as client:
        stream_id = await client.call("chat")
        await wait_all_tasks_blocked()
        await trio.sleep(4)
        whole = 2 if room == 700 else 1
        assert [receipt.fate for receipt in notes] == [DELIVERED] * whole + [None] * (3 - whole)
        assert notes[whole].location is Location.WRITING
        client.wire.make_room()
        await assert_all_is_said_in_order(client, stream_id)
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 3
        assert_nothing_is_left(client.bus)


async def test_a_client_that_opens_too_little_of_a_window_gets_all_of_it_in_order(autojump_clock):
    tools = Tools()
    notes = add_slow_chat(tools)
    async with connected(tools) as client:
        client.acknowledges = False
        client.connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
        await client.flush()
        stream_id = await client.call("chat")
        await wait_all_tasks_blocked()
        await trio.sleep(4)
        assert [receipt.fate for receipt in notes] == [DELIVERED, None, None]
        assert [receipt.location for receipt in notes[1:]] == [Location.WRITING, Location.OUTBOX]
        client.connection.increment_flow_control_window(10_000, stream_id)
        await client.flush()
        await assert_all_is_said_in_order(client, stream_id)
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 3
        assert_nothing_is_left(client.bus)


async def test_a_client_that_opens_no_window_for_too_long_is_given_up(autojump_clock):
    tools = Tools()
    notes = add_slow_chat(tools)
    async with connected(tools, write_deadline=5) as client:
        client.acknowledges = False
        client.connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
        await client.flush()
        reset = await client.until_stream(await client.call("chat"), h2.events.StreamReset)
        assert reset is not None
        assert 5 <= trio.current_time() < 10
        await wait_all_tasks_blocked()
        assert [receipt.fate for receipt in notes[:2]] == [DELIVERED, LOST]
        assert_nothing_is_left(client.bus)


async def test_a_client_that_takes_a_long_reply_slowly_gets_all_of_it(autojump_clock):
    tools = Tools()

    @tools.server.tool
    async def recite(ctx: Context) -> str:
        await ctx.info("a long one")
        await trio.sleep(1)
        return "x" * 500_000

    async with connected(tools, write_deadline=5) as client:
        client.acknowledges = False
        stream_id = await client.call("recite")
        await trio.sleep(2)
        for _ in range(20):
            client.connection.increment_flow_control_window(30_000)
            client.connection.increment_flow_control_window(30_000, stream_id)
            await client.flush()
            await trio.sleep(1)
        assert await client.until_stream(stream_id, h2.events.StreamEnded) is not None
        assert len(client.bodies[stream_id]) > 500_000


async def test_what_several_say_at_a_time_is_one_write_for_all_but_the_first(autojump_clock):
    tools, writes = Tools(), []

    async with connected(tools) as client:
        notes = add_slow_chat(tools)
        send_now = client.server._writer._sends_now
        client.server._writer._sends_now = lambda data: writes.append(trio.current_time()) or send_now(data)
        ids = [await client.call("chat") for _ in range(4)]
        await trio.sleep(1.5)
        assert len([time for time in writes if time >= 1]) == 2
        for stream_id in ids:
            await assert_all_is_said_in_order(client, stream_id)
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 12


async def test_a_client_that_has_gone_is_lost_what_is_said(autojump_clock):
    tools = Tools()
    notes = add_slow_chat(
        tools, lambda number: client.wire.near.receive_stream.close() if number == 2 else None
    )
    async with connected(tools) as client:
        await client.call("chat")
        await wait_all_tasks_blocked()
        await trio.sleep(4)
        assert (notes[0].fate, notes[-1]) == (DELIVERED, "cancelled")
        assert client.bus.ledger.discarded[Reason.LOST] == 1
        assert_nothing_is_left(client.bus)


async def test_what_there_is_no_memory_to_write_ends_its_stream_and_is_not_raised_to_who_speaks(
    autojump_clock, monkeypatch
):
    def leave_no_memory(number):
        if number == 2:
            scarce.setattr(Http2ResponseWriter, "_send_one", encode)

    def encode(*_):
        scarce.undo()
        raise MemoryError

    tools = Tools()
    notes = add_slow_chat(tools, leave_no_memory)
    with monkeypatch.context() as scarce:
        async with connected(tools) as client:
            assert await client.until_stream(await client.call("chat"), h2.events.StreamReset)
            await wait_all_tasks_blocked()
            assert (notes[0].fate, notes[1:]) == (DELIVERED, ["cancelled"])
            assert_nothing_is_left(client.bus)


@pytest.mark.parametrize("step", [(ConnectionWriter, "_send_now"), (Http2Sender, "data_to_send")])
@pytest.mark.parametrize("waits", [True, False])
async def test_what_there_is_no_memory_to_write_ends_its_connection_and_is_not_raised_to_who_speaks(
    waits, step, autojump_clock, monkeypatch, caplog
):
    """Its bytes are lost, and what would come after them could not be read."""

    def fail(*_):
        monkeypatch.undo()
        raise MemoryError

    tools, notes = Tools(), []

    @tools.server.tool
    async def chat(ctx: Context) -> str:
        if waits:
            await trio.sleep(1)
        monkeypatch.setattr(*step, fail)
        try:
            notes.append(await ctx.info("first"))
            await trio.sleep_forever()
        finally:
            notes.append("cancelled")

    async with connected(tools) as client:
        await client.call("chat")
        await trio.sleep(2)
        assert client.owner.closed == float(waits)
        assert [getattr(note, "fate", note) for note in notes] == [LOST, "cancelled"]
        assert caplog.messages == ["what a connection had to say could not be written"]
        assert_nothing_is_left(client.bus)


async def test_a_quiet_stream_is_kept_alive_since_the_last_thing_that_was_said(autojump_clock):
    tools = Tools()

    @tools.server.tool
    async def chat(ctx: Context) -> str:
        await ctx.info("first")
        await trio.sleep(10)
        await ctx.info("second")
        await trio.sleep(20)
        return "said"

    async with connected(tools, keep_alive=15) as client:
        stream_id = await client.call("chat")
        await client.until_stream(stream_id, h2.events.StreamEnded)
        lines = [line[:5] for line in client.bodies[stream_id].splitlines() if line]
        assert lines == [b"data:", b"data:", b":", b"data:"]
