"""What a handler says over HTTP/2 before it waits goes out with its reply; where its events are kept, once the store has all of it."""

import json
import re
from contextlib import asynccontextmanager

import h2.events
import pytest
import trio
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from houses import HELLO
from test_http2_serving import Tools
from test_http2_speaking import LOST, connected
from trio.testing import wait_all_tasks_blocked

from mcpbus import Context
from mcpbus.core.receipt import DELIVERED, STORED, Location
from mcpbus.serving.http2 import request_table, send_stream
from mcpbus.serving.http2.connection_writer import ConnectionWriter
from mcpbus.serving.http2.send_scheduler import Http2SendScheduler
from mcpbus.serving.http2.sender import Http2Sender
from mcpbus.stores import MemoryEventStore
from tests.bus.promising import PromisingStore


@pytest.fixture(autouse=True)
def _no_call_is_long(monkeypatch):
    monkeypatch.setattr(request_table, "thread_time", lambda: 0.0)
    monkeypatch.setattr(request_table, "perf_counter", lambda: 0.0)


@asynccontextmanager
async def opened(tools, event_store=None):
    async with connected(tools, event_store) as client:
        client.bus.clock = trio.current_time
        yield client
        await wait_all_tasks_blocked()
        assert client.bus.statistics().pending == {}
        assert client.bus.ledger.balance() == 0


def add_chat(tools, *, waits=False):
    """A tool that says three things; and what it noted."""
    notes = []

    @tools.server.tool
    async def chat(ctx: Context) -> str:
        notes.clear()
        notes.extend([await ctx.info(f"{number}" + "." * 500) for number in (1, 2, 3)])
        if waits:
            await trio.sleep(1)
        return "said"

    return notes


async def answer(client, stream_id):
    """Wait for an answer; return its fields and its body."""
    await client.until_stream(stream_id, h2.events.StreamEnded)
    (head,) = [e for e in client.events[stream_id] if isinstance(e, h2.events.ResponseReceived)]
    await wait_all_tasks_blocked()
    return dict(head.headers), client.bodies[stream_id].decode()


async def ask(client, method, params, *fields):
    """Make a legacy request."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    about = [*client.head("POST", "/mcp"), ("content-type", "application/json")]
    accept = ("accept", "application/json, text/event-stream")
    stream_id = await client.request(headers=[*about, accept, *fields], end=False)
    await client.send_data(stream_id, body, end=True)
    return stream_id


class Session:
    """A client whose events are kept, and of whose calls it is known that they are brief."""

    def __init__(self, client, notes, session_id):
        self.client = client
        self.notes = notes
        self._field = ("mcp-session-id", session_id)

    @property
    def fates(self):
        return [receipt.fate for receipt in self.notes]

    async def call(self):
        stream_id = await ask(self.client, "tools/call", {"name": "chat"}, self._field)
        await wait_all_tasks_blocked()
        return stream_id


async def begin(client, notes):
    fields, _ = await answer(client, await ask(client, "initialize", HELLO))
    return Session(client, notes, fields["mcp-session-id"])


def numbers_in(body):
    return re.findall(r"^id: \S+\.(\d+)$", body, re.MULTILINE)


async def test_it_is_one_answer_once_such_calls_are_known_to_be_brief(autojump_clock):
    tools = Tools()
    notes = add_chat(tools)
    async with opened(tools) as client:
        for whole in (False, True):
            fields, body = await answer(client, await client.call("chat"))
            assert ("content-length" in fields) is whole
            assert body.count("data: ") == 4
            assert [receipt.fate for receipt in notes] == [DELIVERED] * 3
        assert client.bus.ledger.delivered == 8


async def test_a_handler_that_waits_after_all_has_said_it_before(autojump_clock):
    tools = Tools()
    notes = add_chat(tools, waits=True)
    async with opened(tools) as client:
        await answer(client, await client.call("chat"))
        stream_id = await client.call("chat")
        await client.until_stream(stream_id, h2.events.DataReceived)
        assert [receipt.fate for receipt in notes] == [DELIVERED] * 3
        fields, body = await answer(client, stream_id)
        assert (body.count("data: "), "content-length" in fields) == (4, False)


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_client_that_opens_too_little_of_a_window_gets_all_of_it_unless_it_leaves(
    leaves, autojump_clock
):
    tools = Tools()
    notes = add_chat(tools)
    async with opened(tools) as client:
        await answer(client, await client.call("chat"))
        client.acknowledges = False
        client.connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
        await client.flush()
        stream_id = await client.call("chat")
        await wait_all_tasks_blocked()
        assert [receipt.location for receipt in notes] == [Location.WRITING] * 3
        if leaves:
            client.connection.reset_stream(stream_id, ErrorCodes.CANCEL)
        else:
            client.connection.increment_flow_control_window(10_000, stream_id)
        await client.flush()
        if not leaves:
            assert (await answer(client, stream_id))[1].count("data: ") == 4
        await wait_all_tasks_blocked()
        assert [receipt.fate for receipt in notes] == [LOST if leaves else DELIVERED] * 3


async def test_what_is_kept_is_one_answer_once_the_store_has_it(autojump_clock):
    tools, store = Tools(), PromisingStore()
    notes = add_chat(tools)
    async with opened(tools, store) as client:
        session = await begin(client, notes)
        stream_id = await session.call()
        assert client.bus.statistics().pending == {Location.WRITING: 4}
        assert len(store.asked) == 1
        store.keep()
        fields, body = await answer(client, stream_id)
        assert "content-length" in fields
        assert numbers_in(body) == ["0", "1", "2", "3", "4"]
        assert session.fates == [DELIVERED] * 3


async def test_a_store_that_answers_at_once_has_no_answer_wait(autojump_clock):
    tools = Tools()
    notes = add_chat(tools)
    async with opened(tools, MemoryEventStore()) as client:
        session = await begin(client, notes)
        fields, body = await answer(client, await session.call())
        assert "content-length" in fields
        assert numbers_in(body) == ["0", "1", "2", "3", "4"]
        assert session.fates == [DELIVERED] * 3


@pytest.mark.parametrize("kept", [True, False])
async def test_what_is_being_kept_for_a_client_that_leaves_is_stored_or_lost(kept, autojump_clock):
    tools, store = Tools(), PromisingStore()
    notes = add_chat(tools)
    async with opened(tools, store) as client:
        session = await begin(client, notes)
        stream_id = await session.call()
        client.connection.reset_stream(stream_id, ErrorCodes.CANCEL)
        await client.flush()
        await wait_all_tasks_blocked()
        assert session.fates == [None] * 3
        store.keep(None if kept else OSError("disk full"))
        assert session.fates == [STORED if kept else LOST] * 3


@pytest.mark.failing
@pytest.mark.parametrize("kind", [MemoryEventStore, PromisingStore])
async def test_where_there_is_no_memory_to_write_what_is_kept_it_is_stored(kind, autojump_clock, monkeypatch):
    """And neither the store nor others that wait for it hear of that."""

    def say_answer(*_):
        scarce.undo()
        raise MemoryError

    tools, store = Tools(), kind()
    notes = add_chat(tools)
    async with opened(tools, store) as client:
        session = await begin(client, notes)
        with monkeypatch.context() as scarce:
            scarce.setattr(Http2SendScheduler, "say_answer", say_answer)
            stream_id = await session.call()
            if kind is PromisingStore:
                store.keep()
            fields, _ = await answer(client, stream_id)
        assert fields[":status"] == "500"
        assert session.fates == [STORED] * 3


@pytest.mark.failing
@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_stream_whose_head_cannot_be_said_ends_as_its_client_is_told(
    is_modern, autojump_clock, monkeypatch
):
    """What is said on it has nowhere to go."""

    def fail(*_):
        scarce.undo()
        raise MemoryError

    tools = Tools()
    notes = add_chat(tools, waits=True)
    async with opened(tools) as client:
        session = await begin(client, notes)
        with monkeypatch.context() as scarce:
            scarce.setattr(send_stream, "encode_head", fail)
            stream_id = await (client.call("chat") if is_modern else session.call())
            fields, body = await answer(client, stream_id)
        assert (fields[":status"], body) == ("500", "the server failed\n")
        await trio.sleep(2)
        assert client.bus.statistics().requests == 0
        assert session.fates == ([] if is_modern else [LOST, LOST, LOST])


@pytest.mark.failing
@pytest.mark.parametrize(
    "step", [(ConnectionWriter, "flush_now"), (ConnectionWriter, "_send_now"), (Http2Sender, "data_to_send")]
)
async def test_an_answer_that_there_is_no_memory_to_write_has_one_fate(
    step, autojump_clock, monkeypatch, caplog
):
    def fail(*_):
        scarce.undo()
        raise MemoryError

    tools = Tools()
    async with opened(tools) as client:
        await client.call("wait")
        await wait_all_tasks_blocked()
        await trio.sleep(1)
        with monkeypatch.context() as scarce:
            scarce.setattr(*step, fail)
            tools.go_on.set()
            await wait_all_tasks_blocked()
        now = client.bus.statistics()
        assert (now.delivered, dict(now.discarded)) == (0, {LOST.reason: 1})
        assert "could not be written" in caplog.text
