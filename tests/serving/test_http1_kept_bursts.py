"""What a handler says in a brief turn of a session whose events are kept goes out with its reply, once the store has all of it."""

import logging
import re
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from houses import HELLO, legacy, open_house
from lanes import get, post
from trio.testing import wait_all_tasks_blocked

from mcpbus import Context, Limits
from mcpbus.core.event_log import lost_request, parse_event_id
from mcpbus.core.receipt import DELIVERED, STORED, Fate, Location
from mcpbus.protocol import revisions
from mcpbus.protocol.errors import invalid_params
from mcpbus.protocol.routes import Reason
from mcpbus.serving import reactor
from mcpbus.stores import MemoryEventStore
from mcpbus.transports import inline_responses
from tests.at_home import ONE_PIECE
from tests.bus.promising import PromisingStore

LOST = Fate.discarded(Reason.LOST)


@attrs.define
class Stage:
    """A client with a session, whose turns are expected to be brief."""

    house: object
    client: object
    line: bytes
    notes: list

    @property
    def bus(self):
        return self.house.bus

    @property
    def session(self):
        (session,) = self.bus.sessions.values()
        return session

    @property
    def fates(self):
        return [receipt.fate for receipt in self.notes]

    async def call(self, reply=""):
        self.notes.clear()
        params = {"name": "chat", "arguments": {"reply": reply}, "_meta": {"progressToken": 1}}
        await self.client.say(legacy("tools/call", params, self.line))
        await wait_all_tasks_blocked()

    async def come_back(self, event_id):
        """Ask for what followed an event, on another connection; return the status, and the text."""
        other = await self.house.connect()
        fields = self.line, b"accept: text/event-stream", b"last-event-id: %b" % event_id.encode()
        await other.say(get("/mcp", *fields))
        status, _, body = await other.answer()
        return status, body.decode()


def ids_of(body):
    return re.findall(r"^id: (\S+)$", body if isinstance(body, str) else body.decode(), re.MULTILINE)


@asynccontextmanager
async def staged(monkeypatch, store, revision="2025-11-25", http=None, **limits):
    monkeypatch.setattr(reactor, "perf_counter", lambda: 0.0)
    async with open_house(event_store=store, limits=Limits(**limits), http=http) as house:
        house.bus.clock = trio.current_time
        notes = []

        @house.server.tool
        async def chat(ctx: Context, reply: str) -> str:
            notes.extend([await ctx.progress(number) for number in (1, 2, 3)])
            if reply == "error":
                raise invalid_params("no")
            return reply

        client = await house.connect()
        await client.say(legacy("initialize", HELLO | {"protocolVersion": revision}))
        await client.answer()
        line = b"mcp-session-id: %b" % next(iter(house.bus.sessions)).encode()
        stage = Stage(house, client, line, notes)
        await client.say(legacy("notifications/initialized", {}, line))
        await client.answer()
        yield stage
        await wait_all_tasks_blocked()
        statistics = house.bus.statistics()
        assert (statistics.requests, statistics.pending) == (0, {})
        assert house.bus.ledger.balance() == 0


@ONE_PIECE
async def test_all_of_it_is_one_answer_once_the_store_has_it_without_a_stream(autojump_clock, monkeypatch):
    store = PromisingStore()
    async with staged(monkeypatch, store) as stage:
        spawned = stage.bus.system.statistics().spawned
        await stage.call("said")
        assert [receipt.location for receipt in stage.notes] == [Location.WRITING] * 3
        assert stage.bus.statistics().pending == {Location.WRITING: 4}
        assert len(store.asked) == 1
        store.keep()
        status, fields, body = await stage.client.answer()
        assert (status, fields["content-type"]) == (200, "text/event-stream")
        assert "content-length" in fields
        assert [event_id.rpartition(".")[2] for event_id in ids_of(body)] == ["0", "1", "2", "3", "4"]
        assert stage.fates == [DELIVERED] * 3
        assert stage.bus.system.statistics().spawned == spawned
        assert stage.session.streams._live == {}
        # The next call of the connection is served as ever.
        await stage.call("again")
        store.keep()
        assert b"again" in (await stage.client.answer())[2]


@ONE_PIECE
@pytest.mark.parametrize("kind", [None, MemoryEventStore, PromisingStore])
async def test_it_has_a_line_in_the_access_log_as_any_whole_answer(kind, autojump_clock, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "mcpbus.access")
    async with staged(monkeypatch, kind and kind(), http={"access_log": True}) as stage:
        await stage.call("said")
        if kind is PromisingStore:
            assert "tools/call" not in caplog.records[-1].getMessage()  # it has not begun
            stage.bus.event_store.keep()
        _, fields, body = await stage.client.answer()
        assert "content-length" in fields
        assert f"POST /mcp tools/call chat: 200, {len(body)} bytes after" in caplog.records[-1].getMessage()
        assert stage.fates == [DELIVERED] * 3


@ONE_PIECE
@pytest.mark.parametrize("after", [0, 1, 3])
async def test_a_client_that_got_a_part_of_it_fetches_the_rest(after, autojump_clock, monkeypatch):
    async with staged(monkeypatch, MemoryEventStore()) as stage:
        await stage.call("said")
        _, fields, body = await stage.client.answer()
        assert "content-length" in fields
        events = ids_of(body)
        status, rest = await stage.come_back(events[after])
        assert (status, ids_of(rest)) == (200, events[after + 1 :])
        assert rest.endswith(body.decode().partition(f"id: {events[after + 1]}\n")[2])
        assert (await stage.come_back(events[-1]))[0] == 204


@ONE_PIECE
async def test_an_older_revision_is_not_told_where_it_begins(autojump_clock, monkeypatch):
    async with staged(monkeypatch, MemoryEventStore(), "2025-06-18") as stage:
        await stage.call("said")
        body = (await stage.client.answer())[2]
        assert [event_id.rpartition(".")[2] for event_id in ids_of(body)] == ["1", "2", "3", "4"]


@ONE_PIECE
async def test_where_several_processes_serve_its_name_tells_whose_request_it_answers(
    autojump_clock, monkeypatch
):
    async with staged(monkeypatch, MemoryEventStore()) as stage:
        stage.bus.process = "here"
        await stage.call("said")
        name, _ = parse_event_id(ids_of((await stage.client.answer())[2])[0])
        assert lost_request(name, "away", stage.session.id) == 1


@ONE_PIECE
@pytest.mark.parametrize("kept", [True, False])
async def test_what_is_being_kept_for_a_client_that_leaves_is_stored_or_lost(
    kept, autojump_clock, monkeypatch
):
    store = PromisingStore()
    async with staged(monkeypatch, store) as stage:
        counted = stage.bus.ledger.stored
        await stage.call("said")
        await stage.client.leave()
        await stage.client.over.wait()
        assert stage.fates == [None] * 3
        store.keep(None if kept else OSError("disk full"))
        assert stage.fates == [STORED if kept else LOST] * 3
        assert stage.bus.ledger.stored - counted == (4 if kept else 0)


@ONE_PIECE
@pytest.mark.parametrize("fails", [True, False])
async def test_where_the_store_fails_or_is_too_slow_it_goes_out_without_ids(
    fails, autojump_clock, monkeypatch
):
    store = PromisingStore()
    async with staged(monkeypatch, store, store_deadline=1) as stage:
        start = trio.current_time()
        await stage.call("said")
        if fails:
            store.keep(OSError("disk full"))
        _, _, body = await stage.client.answer()
        assert trio.current_time() - start == (0 if fails else 1)
        assert (body.count(b"data: "), ids_of(body)) == (4, [])
        assert stage.fates == [DELIVERED] * 3
        await stage.call("again")  # the store is left alone
        assert ids_of((await stage.client.answer())[2]) == []


@ONE_PIECE
async def test_a_store_that_is_full_drops_the_oldest_of_it(autojump_clock, monkeypatch):
    async with staged(monkeypatch, MemoryEventStore(max_items=2)) as stage:
        await stage.call("said")
        events = ids_of((await stage.client.answer())[2])
        assert (await stage.come_back(events[1]))[0] == 400
        assert ids_of((await stage.come_back(events[2]))[1]) == events[3:]


@ONE_PIECE
@pytest.mark.parametrize("goes", [True, False])
async def test_a_client_that_takes_little_gets_all_of_it_or_may_come_back(goes, autojump_clock, monkeypatch):
    async with staged(monkeypatch, MemoryEventStore()) as stage:
        stage.client.wire.room = 10
        await stage.call("said")
        assert stage.fates == [None] * 3
        if goes:
            await stage.client.leave()
            stage.client.stream.receive_stream.close()
        stage.client.wire.make_room()
        if goes:
            await stage.client.over.wait()
            await wait_all_tasks_blocked()
            assert stage.fates == [STORED] * 3
        else:
            assert len(ids_of((await stage.client.answer())[2])) == 5
            assert stage.fates == [DELIVERED] * 3


@ONE_PIECE
async def test_what_cannot_be_written_is_stored(autojump_clock, monkeypatch):
    store = PromisingStore()
    async with staged(monkeypatch, store) as stage:
        await stage.call("said")
        stage.client.stream.receive_stream.close()  # which nobody sees before it is written to
        store.keep()
        await stage.client.over.wait()
        assert stage.fates == [STORED] * 3


@ONE_PIECE
@pytest.mark.parametrize("reply", ["." * 4096, "error"])
async def test_a_reply_that_is_long_or_an_error_comes_on_a_stream(reply, autojump_clock, monkeypatch):
    store = PromisingStore()
    async with staged(monkeypatch, store) as stage:
        await stage.call(reply)
        while store.asked:
            store.keep()
            await wait_all_tasks_blocked()
        _, fields, body = await stage.client.answer()
        assert "transfer-encoding" in fields
        assert [event_id.rpartition(".")[2] for event_id in ids_of(body)] == ["0", "1", "2", "3", "4"]
        await wait_all_tasks_blocked()
        assert stage.fates == [DELIVERED] * 3


@ONE_PIECE
@pytest.mark.parametrize("kind", [MemoryEventStore, PromisingStore])
async def test_where_there_is_no_memory_for_the_answer_it_is_stored(kind, autojump_clock, monkeypatch):
    def encode(*_):
        raise MemoryError

    store = kind()
    async with staged(monkeypatch, store) as stage:
        with monkeypatch.context() as scarce:
            scarce.setattr(inline_responses, "encode_numbered", encode)
            await stage.call("said")
            if kind is PromisingStore:
                store.keep()
            assert (await stage.client.answer())[0] == 500
        assert stage.fates == [STORED] * 3


@ONE_PIECE
@pytest.mark.parametrize(
    ("kind", "module", "encoder"),
    [
        (None, inline_responses, "encode_events"),
        (None, revisions, "encode_result"),
        (MemoryEventStore, revisions, "encode_result"),
    ],
)
async def test_where_there_is_no_memory_before_it_is_kept_it_is_lost(
    kind, module, encoder, autojump_clock, monkeypatch
):
    def encode(*_):
        raise MemoryError

    async with staged(monkeypatch, kind and kind()) as stage:
        with monkeypatch.context() as scarce:
            scarce.setattr(module, encoder, encode)
            await stage.call("said")
            assert (await stage.client.answer())[0] == 500
        assert stage.fates == [LOST] * 3


@ONE_PIECE
async def test_a_session_that_ends_meanwhile_is_forgotten_and_its_client_answered(
    autojump_clock, monkeypatch
):
    store = PromisingStore()
    async with staged(monkeypatch, store) as stage:
        await stage.call("said")
        other = await stage.house.connect()
        await other.say(post(None, stage.line, path="/mcp", verb="DELETE"))
        assert (await other.answer())[0] == 204
        store.keep()
        assert b"said" in (await stage.client.answer())[2]
        assert stage.fates == [DELIVERED] * 3


@ONE_PIECE
async def test_a_bus_that_closes_waits_for_the_store(autojump_clock, monkeypatch):
    store, drained = PromisingStore(), trio.Event()
    async with staged(monkeypatch, store) as stage, trio.open_nursery() as nursery:
        await stage.call("said")
        assert stage.bus.statistics().requests == 0

        async def drain():
            await stage.bus.drain(0)
            drained.set()

        nursery.start_soon(drain)
        await trio.sleep(0.1)
        assert not drained.is_set()
        store.keep()
        await drained.wait()
        assert stage.fates == [DELIVERED] * 3
        assert b"said" in (await stage.client.answer())[2]


@ONE_PIECE
async def test_connections_that_are_lost_while_the_store_is_at_work_leave_it_stored(
    autojump_clock, monkeypatch
):
    store = PromisingStore()
    async with staged(monkeypatch, store) as stage:
        await stage.call("said")
        stage.client.connection.close()
        store.keep()
        assert stage.fates == [STORED] * 3
