"""The GET stream of a session: opened late, taken over by a newer one, lost during a write."""

import pytest
import trio
from staging import methods, staged, tool

from mcpbus import Server
from mcpbus.core.message_stream import UnsentReturned
from mcpbus.core.receipt import DELIVERED, Fate, Location
from mcpbus.core.sessions.messages import OpenGet
from mcpbus.protocol.routes import Reason, StreamKind
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import StreamEndedError, open_bus, open_probe, over_http1, wait_until_idle
from tests.at_home import KEPT_AS_WELL

TOOLS = "notifications/tools/list_changed"
LOST = Fate.discarded(Reason.LOST)


def data(recording):
    return [m.get("params", {}).get("n") for m in recording.messages]


async def opened(stage, session):
    get = await session.get().begun()
    await stage.quiet()
    return get


async def test_a_newer_get_takes_over_and_the_older_one_ends(autojump_clock):  # W-21
    async with staged() as stage:
        session = await stage.probe.initialize()
        old = await opened(stage, session)
        new = await opened(stage, session)
        with pytest.raises(StreamEndedError):
            await old.message(timeout=5)
        assert old.complete
        receipt = stage.bus.tools_changed()[0]
        assert (await new.message())["method"] == TOOLS
        assert await receipt.settled(1) == DELIVERED
        assert old.messages == []
        new.disconnect()
        await stage.assert_nothing_is_left()


async def test_a_take_over_during_a_write_loses_the_batch_moves_the_rest_and_makes_changes_anew(
    autojump_clock,
):
    async with staged() as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        old = await opened(stage, session)
        old.stall()
        change = stage.bus.tools_changed()[0]
        written = [change, inside.notify("notifications/x", {"n": 1})]
        await stage.quiet()
        # Whatever the writer took first is being written now; this waits behind it.
        being_written = [receipt for receipt in written if receipt.location is Location.WRITING]
        waiting = [inside.notify("notifications/x", {"n": n}) for n in (2, 3, 4)]
        assert change in being_written
        emitted = stage.bus.statistics().emitted
        new = await opened(stage, session)
        assert {receipt.fate for receipt in being_written} == {None}, "the write may come to its end"
        await trio.sleep(2)
        assert [receipt.fate for receipt in being_written] == [LOST] * len(being_written)
        assert [receipt.fate for receipt in waiting] == [DELIVERED] * 3
        assert [n for n in data(new) if n in {2, 3, 4}] == [2, 3, 4]
        # The change was made anew, as a message of its own; a custom notification was not.
        assert methods(new).count(TOOLS) == 1
        assert stage.bus.statistics().emitted == emitted + 1
        assert old.messages == []
        new.disconnect()
        old.disconnect()


@KEPT_AS_WELL
async def test_a_get_that_is_lost_during_a_write_has_its_changes_held_for_the_next(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        old = await opened(stage, session)
        old.stall()
        first = stage.bus.tools_changed()[0]
        await stage.quiet()
        log, note = inside.log("error", "waiting"), inside.notify("notifications/x", {"n": 1})
        old.disconnect()
        await stage.quiet()
        assert first.fate == LOST
        assert log.fate == Fate.discarded(Reason.NO_STREAM)
        assert note.location is Location.HELD
        assert stage.books()[0] == {Location.HELD: 2}
        new = await opened(stage, session)
        assert methods(new) == [TOOLS, "notifications/x"]
        assert note.fate == DELIVERED


async def test_a_get_that_takes_nothing_for_the_write_deadline_is_lost_like_any_other(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        old = await opened(stage, session)
        old.stall()
        receipt = stage.bus.tools_changed()[0]
        await trio.sleep(31)
        assert receipt.fate == LOST
        assert stage.books()[0] == {Location.HELD: 1}
        assert (await (await opened(stage, session)).message())["method"] == TOOLS


async def test_a_get_stream_has_nothing_of_requests_and_a_request_nothing_of_the_session(
    autojump_clock,
):  # W-9, W-18, W-19, X-7
    async with staged() as stage:
        session = await stage.probe.initialize()
        get = await opened(stage, session)
        post = session.request("tools/call", tool(), progress_token="t")
        call = await stage.call()
        await call.ctx.info("in request")
        await call.ctx.progress(1)
        await call.ctx.notify("notifications/x")
        inside = stage.bus.sessions[session.id]
        inside.log("info", "outside")
        inside.notify("notifications/y")
        stage.bus.tools_changed()
        call.finish()
        await post.reply()
        await stage.quiet()
        assert methods(get) == ["notifications/message", "notifications/y", TOOLS]
        assert methods(post)[:-1] == ["notifications/message", "notifications/progress", "notifications/x"]


def get_stream(stage, inside):
    """A GET stream whose connection has not begun to write."""
    stream = stage.bus.open_stream(StreamKind.STANDALONE, inside)
    return stream, OpenGet(stream)


async def test_what_is_said_since_a_take_over_waits_for_the_stream_that_was_taken_over_and_no_older_one(
    autojump_clock,
):
    async with staged() as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        oldest, opens = get_stream(stage, inside)
        inside.address.tell(opens)
        inside.address.tell(get_stream(stage, inside)[1])
        inside.notify("notifications/x", {"n": 1})

        def take_over():
            inside.address.tell(get_stream(stage, inside)[1])
            inside.notify("notifications/x", {"n": 2})
            # Only now its connection lets go of it, and nothing was lost.
            inside.address.tell(UnsentReturned(oldest, (), ()))

        stage.in_one_turn(take_over)
        new = await opened(stage, session)
        assert data(new) == [1, 2]


async def test_an_unsubscribe_during_a_take_over_purges_what_the_older_one_had(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        await session.request("resources/subscribe", {"uri": "res://a"}).reply()
        inside.address.tell(get_stream(stage, inside)[1])
        [update] = stage.bus.resource_updated("res://a")

        def take_over():
            inside.address.tell(get_stream(stage, inside)[1])
            inside.unsubscribe("res://a")

        stage.in_one_turn(take_over)
        assert update.fate == Fate.discarded(Reason.NOT_SUBSCRIBED)


async def test_a_session_that_ends_during_a_take_over_discards_what_was_said_since(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        inside.address.tell(get_stream(stage, inside)[1])
        said = []

        def take_over():
            inside.address.tell(get_stream(stage, inside)[1])
            said.append(inside.notify("notifications/x"))
            inside.close()

        stage.in_one_turn(take_over)
        assert said[0].fate == Fate.discarded(Reason.SESSION_ENDED)
        assert stage.books()[0] == {}


async def test_a_full_get_outbox_collapses_changes_then_loses_logs_then_the_newcomer(autojump_clock, caplog):
    async with staged(limits={"outbox_items": 3}) as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        get = await opened(stage, session)
        get.stall()
        inside.notify("notifications/plug")
        await stage.quiet()
        changes = [stage.bus.tools_changed()[0] for _ in range(3)]
        log = inside.log("error", "x")
        notes = [inside.notify("notifications/x", {"n": n}) for n in range(3)]
        fates = [receipt.fate for receipt in [*changes, log, *notes]]
        superseded, overflow = Fate.discarded(Reason.SUPERSEDED), Fate.discarded(Reason.OVERFLOW)
        assert fates == [superseded, superseded, None, overflow, None, None, overflow]
        assert stage.bus.statistics().limits_reached == {"outbox_items": 3}
        [line] = caplog.messages
        assert f"by {inside.owner}: " in line
        get.resume()
        await stage.quiet()
        assert methods(get) == ["notifications/plug", TOOLS, "notifications/x", "notifications/x"]


async def test_an_unsubscribe_purges_what_waits_for_that_resource(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        for uri in ("res://a", "res://b"):
            await session.request("resources/subscribe", {"uri": uri}).reply()
        get = await opened(stage, session)
        get.stall()
        stage.bus.sessions[session.id].notify("notifications/plug")
        await stage.quiet()
        updates = [stage.bus.resource_updated(uri)[0] for uri in ("res://a/x", "res://b")]
        await session.request("resources/unsubscribe", {"uri": "res://a"}).reply()
        assert [receipt.fate for receipt in updates] == [Fate.discarded(Reason.NOT_SUBSCRIBED), None]
        get.resume()
        await stage.quiet()
        assert [m.get("params", {}).get("uri") for m in get.messages] == [None, "res://b"]


async def test_what_is_said_during_a_take_over_is_bounded(autojump_clock):
    async with staged(limits={"outbox_items": 3}) as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        inside.address.tell(get_stream(stage, inside)[1])
        said = []

        def take_over():
            inside.address.tell(get_stream(stage, inside)[1])
            said.extend(inside.notify("notifications/x", {"n": n}) for n in range(4))

        stage.in_one_turn(take_over)
        assert [receipt.fate for receipt in said] == [None] * 3 + [Fate.discarded(Reason.OVERFLOW)]
        assert stage.bus.statistics().limits_reached == {"outbox_items": 1}


async def test_a_get_that_is_superseded_during_a_write_ends_in_order_once_that_is_done(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        old = await opened(stage, session)
        old.stall()
        receipt = stage.bus.sessions[session.id].notify("notifications/x", {"n": 1})
        await stage.quiet()
        new = await opened(stage, session)
        old.resume()
        await old.ended()
        assert (old.complete, data(old), receipt.fate) == (True, [1], DELIVERED)
        assert new.messages == []


@pytest.mark.parametrize("shell", ["asgi", "http1", "http2"])
async def test_each_of_many_gets_at_once_has_a_head_and_an_end(shell, autojump_clock):
    """All but the last are superseded before their heads are sent, or a moment later."""
    async with open_bus(Server("gets")) as bus, open_probe(bus.asgi(), shell=shell) as probe:
        session = await probe.initialize()
        gets = [session.get() for _ in range(10)]
        await trio.sleep(1)
        await session.delete().ended()
        for get in gets:
            await get.ended()
        assert {(get.status, get.complete) for get in gets} == {(200, True)}


@pytest.mark.at_home("a link has one fate for a whole write")
async def test_the_messages_that_the_client_took_of_a_write_are_delivered_whatever_becomes_of_the_rest(
    monkeypatch, autojump_clock
):
    async with open_bus(Server("gets")) as bus, open_probe(bus.asgi(), shell="http1") as probe:
        session = await probe.initialize()
        get = await session.get().begun()
        await wait_until_idle(bus)
        send_now = over_http1._Http1Wire.send_now

        def take_some(wire, piece):
            if len(piece) < 5_000:
                return send_now(wire, piece)
            taken = send_now(wire, piece[: len(piece) * 6 // 10])
            get.stall()
            return taken

        monkeypatch.setattr(over_http1._Http1Wire, "send_now", take_some)
        get.stall()
        receipts = [bus.sessions[session.id].notify("notifications/x", {"n": 0})]
        await wait_until_idle(bus)
        large = [{"n": n, "text": "x" * 2_000} for n in range(1, 6)]
        receipts += [bus.sessions[session.id].notify("notifications/x", each) for each in large]
        get.resume()
        await wait_until_idle(bus)
        assert [receipt.fate for receipt in receipts] == [DELIVERED] * 3 + [None] * 3
        get.disconnect()
        await wait_until_idle(bus)
        assert [receipt.fate for receipt in receipts] == [DELIVERED] * 3 + [LOST] * 3
        assert data(get) == [0, 1, 2]


async def test_a_session_whose_client_waits_while_the_process_is_stopped_is_not_given_up(autojump_clock):
    async with staged(limits={"idle_timeout": 60}) as stage:
        session = await stage.probe.initialize()
        await stage.quiet()
        autojump_clock.jump(100)
        for _ in range(10):  # a connection is accepted, and a request read
            await trio.lowlevel.checkpoint()
        assert "result" in await session.request("ping").reply()
        await trio.sleep(100)
        assert not stage.bus.sessions


@pytest.mark.at_home("the connection waits at the process that the client is connected to")
async def test_nor_is_a_stream_to_which_its_client_has_come_back_meanwhile(autojump_clock):
    async with staged(event_store=MemoryEventStore()) as stage:
        session = await stage.probe.initialize()
        get = await opened(stage, session)
        inside = stage.bus.sessions[session.id]
        inside.notify("notifications/x", {"n": 1})
        await get.message()
        event = get.body.decode().rpartition("id: ")[2].partition("\n")[0]
        get.disconnect()
        await stage.quiet()
        autojump_clock.jump(stage.bus.limits.abandoned_timeout + 10)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        [(stream, _)] = inside.streams._live.values()
        again = await session.get(event).begun()
        receipt = inside.notify("notifications/x", {"n": 2})
        await again.message()
        assert (stream.stopped, receipt.fate) == (False, DELIVERED)
