"""How sessions and the bus end: by DELETE, by time, at the cap, by the server's wish, by a drain."""

from contextlib import suppress

import pytest
import trio
from staging import HELLO, Stage, methods, staged, tool

from mcpbus import ProtocolError
from mcpbus.client.errors import DisconnectedError
from mcpbus.core.receipt import DELIVERED, Fate, Location
from mcpbus.core.sessions.messages import Initialized, Registered
from mcpbus.core.sessions.session import SessionStage
from mcpbus.protocol.principals import LOCAL
from mcpbus.protocol.routes import Reason
from mcpbus.testing import open_bus, open_probe
from mcpbus.transports.lines import run_channel
from tests.at_home import HANDED_OVER, LIVES_ON

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
ENDED = Fate.discarded(Reason.SESSION_ENDED)


# -- DELETE --------------------------------------------------------------------------------------


async def test_a_delete_ends_what_is_in_flight_without_a_word_and_only_what_comes_later_gets_404(
    autojump_clock,
):
    async with staged() as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        silent = session.request("tools/call", tool("silent"))
        talking = session.request("tools/call", tool("talking"))
        call = await stage.call("talking")
        await call.ctx.info("first")
        await talking.message()
        assert (await session.delete().ended()).status == 204
        assert ((await silent.ended()).status, silent.body) == (200, b"")
        assert (await talking.ended()).complete
        assert methods(talking) == ["notifications/message"]
        await stage.quiet()
        assert [stage.calls[key].outcome for key in ("silent", "talking")] == ["cancelled"] * 2
        assert (await call.ctx.info("late")).fate == ENDED
        assert (await session.request("tools/list").ended()).status == 404
        await stage.assert_nothing_is_left()
        assert stage.bus.sessions == {}
        assert inside.stage is SessionStage.ENDED


async def test_a_delete_ends_the_get_stream_and_discards_what_is_held(autojump_clock):
    async with staged() as stage:
        one, other = await stage.probe.initialize(), await stage.probe.initialize()
        held = [receipt for receipt in stage.bus.tools_changed() if receipt.location is Location.HELD]
        get = await one.get().begun()
        await stage.quiet()
        await one.delete().ended()
        assert (await get.ended()).complete
        await other.delete().ended()
        assert sorted(str(receipt.fate) for receipt in held) == sorted([str(DELIVERED), str(ENDED)])
        await stage.assert_nothing_is_left()


async def test_a_delete_discards_what_waits_on_the_get_stream(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        get = await session.get().begun()
        await stage.quiet()
        get.stall()
        receipts = []
        for n in range(3):
            receipts.append(inside.notify("notifications/x", {"n": n}))
            await stage.quiet()
        await session.delete().ended()
        get.resume()
        await get.ended()
        assert receipts[-1].fate == ENDED
        await stage.assert_nothing_is_left()


async def test_a_delete_leaves_other_sessions_and_modern_requests_alone(autojump_clock):
    async with staged() as stage:
        one, other = await stage.probe.initialize(), await stage.probe.initialize()
        theirs = other.request("tools/call", tool("theirs"), id=1)
        modern = stage.probe.request("tools/call", tool("modern"), id=1)
        one.request("tools/call", tool("mine"), id=1)
        await one.delete().ended()
        for key in ("theirs", "modern"):
            (await stage.call(key)).finish()
        assert (await theirs.reply())["result"]
        assert (await modern.reply())["result"]


# -- time and the cap ----------------------------------------------------------------------------


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_session_that_never_sends_initialized_ends_after_a_minute(revision, autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize(revision, initialized=False)
        post = session.request("tools/call", tool())
        await trio.sleep(59)
        assert len(stage.bus.sessions) == 1
        await trio.sleep(2)
        assert stage.bus.sessions == {}
        assert (await post.reply())["error"]["code"] == -32603
        await stage.assert_nothing_is_left()


async def test_past_the_cap_the_oldest_that_never_sent_initialized_makes_room(autojump_clock):
    async with staged(limits={"max_sessions": 3}) as stage:
        ready = await stage.probe.initialize()
        older = await stage.probe.initialize(initialized=False)
        newer = await stage.probe.initialize(initialized=False)
        await stage.probe.initialize()
        assert older.id not in stage.bus.sessions
        assert {ready.id, newer.id} < set(stage.bus.sessions)
        await newer.notify("notifications/initialized").ended()
        await stage.probe.initialize()
        assert ready.id not in stage.bus.sessions
        assert (newer.id in stage.bus.sessions, len(stage.bus.sessions)) == (True, 3)


async def test_a_session_at_work_makes_no_room_and_a_newcomer_is_told_when_to_come_back(autojump_clock):
    async with staged(limits={"max_sessions": 2}) as stage:
        busy, listening = [await stage.probe.initialize() for _ in range(2)]
        busy.request("tools/call", tool())
        call = await stage.call()
        await listening.get().begun()
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        refused = await stage.probe.post(hello).ended()
        assert (refused.status, "mcp-session-id" in refused.headers) == (503, False)
        assert refused.headers["retry-after"] == "1"
        assert set(stage.bus.sessions) == {busy.id, listening.id}
        call.finish()
        await stage.quiet()
        await stage.probe.initialize()
        assert (listening.id in stage.bus.sessions, busy.id in stage.bus.sessions) == (True, False)


async def test_an_idle_session_ends_and_work_or_an_open_get_keep_it(autojump_clock):
    async with staged(limits={"abandoned_timeout": 10_000}) as stage:
        idle, busy, listening = [await stage.probe.initialize() for _ in range(3)]
        post = busy.request("tools/call", tool())
        call = await stage.call()
        get = await listening.get().begun()
        await trio.sleep(1790)
        assert len(stage.bus.sessions) == 3
        await trio.sleep(20)
        assert set(stage.bus.sessions) == {busy.id, listening.id}
        assert (await idle.request("ping").ended()).status == 404
        await trio.sleep(4000)
        assert set(stage.bus.sessions) == {busy.id, listening.id}
        call.finish()
        await post.ended()
        get.disconnect()
        # From now on both are idle, whatever their age.
        await trio.sleep(1790)
        assert set(stage.bus.sessions) == {busy.id, listening.id}
        await trio.sleep(20)
        assert stage.bus.sessions == {}
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize(
    "say",
    [
        lambda session: session.request("ping"),
        lambda session: session.notify("notifications/nothing"),
        lambda session: session.answer("a question that nobody asked", {}),
    ],
    ids=["request", "notification", "answer"],
)
async def test_whatever_a_client_says_is_activity(say, autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        for _ in range(4):
            await trio.sleep(1700)
            assert (await say(session).ended()).status in {200, 202}
        await trio.sleep(1810)
        assert stage.bus.sessions == {}


async def test_a_connection_that_is_initialized_has_no_time_to_watch(autojump_clock):
    async with staged() as stage:
        session, _ = stage.bus.open_channel(None, LOCAL, timed=True)
        assert stage.bus.system.statistics().timers == 1
        for message in (Registered(), Initialized()):
            session.address.tell(message)
        await trio.sleep(61)
        assert session.stage is SessionStage.READY
        assert stage.bus.system.statistics().timers == 0


# -- the server's wish ---------------------------------------------------------------------------


async def test_a_session_that_the_server_closes_answers_its_requests_with_an_error(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        get = await session.get().begun()
        post = session.request("tools/call", tool())
        call = await stage.call()
        last = inside.log("info", "last words")
        inside.close()
        error = (await post.reply())["error"]
        assert (error["code"], "closed by the server" in error["message"]) == (-32603, True)
        assert (await get.ended()).complete
        assert last.fate == DELIVERED
        assert call.outcome == "cancelled"
        assert inside.log("info", "late").fate == ENDED
        emitted = stage.bus.statistics().emitted
        inside.add_tool(lambda: 1, name="late")
        assert stage.bus.statistics().emitted == emitted, "whom would it be announced to"
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("calls", [1, 3])
async def test_a_shared_channel_that_the_server_closes_answers_its_requests_first(calls, autojump_clock):
    async with staged() as stage, stage.bus.connect(revision="2025-11-25") as client:
        errors = []

        async def call(key):
            try:
                await client.call_tool("hold", {"key": key})
            except (ProtocolError, DisconnectedError) as error:
                errors.append(getattr(error, "code", error))

        async with trio.open_nursery() as nursery:
            for number in range(calls):
                nursery.start_soon(call, str(number))
            await stage.quiet()
            [session] = stage.bus.sessions.values()
            session.close()
        assert errors == [-32603] * calls
        await stage.assert_nothing_is_left()


# -- drain ---------------------------------------------------------------------------------------


@HANDED_OVER
async def test_a_drain_ends_listens_with_their_result_and_lets_requests_finish(autojump_clock):
    async with staged() as stage:
        listen = stage.probe.request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="l"
        )
        await listen.message()
        session = await stage.probe.initialize()
        get = await session.get().begun()
        post = session.request("tools/call", tool("legacy"))
        modern = stage.probe.request("tools/call", tool("modern"))
        await stage.quiet()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.bus.drain, 5)
            # Listens end at once, with the requests still running.
            result = await listen.reply(timeout=1)
            assert (result["id"], "error" in result) == ("l", False)
            # So do GET streams, and no new one opens.
            assert (await get.ended(timeout=1)).complete
            assert (await session.get().ended(timeout=1)).status == 503
            refused = await stage.probe.request("tools/call", tool("new")).ended()
            assert refused.status == 503
            for key in ("legacy", "modern"):
                (await stage.call(key)).finish()
        assert trio.current_time() < 5
        assert (await post.reply())["result"]
        assert (await modern.reply())["result"]
        await stage.assert_nothing_is_left()


async def test_a_drain_answers_what_does_not_finish_in_time_with_an_error(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        posts = [
            session.request("tools/call", tool("legacy")),
            stage.probe.request("tools/call", tool("modern")),
        ]
        await stage.quiet()
        await stage.bus.drain(5)
        assert trio.current_time() == pytest.approx(5, abs=0.1)
        for post in posts:
            error = (await post.reply())["error"]
            assert (error["code"], "shutting down" in error["message"]) == (-32603, True)
        await stage.quiet()
        assert {call.outcome for call in stage.calls.values()} == {"cancelled"}
        await stage.assert_nothing_is_left()


@HANDED_OVER
async def test_a_session_is_idle_once_a_drain_has_ended_its_get(autojump_clock):
    async with staged(limits={"idle_timeout": 100, "abandoned_timeout": 10_000}) as stage:
        listening, busy = [await stage.probe.initialize() for _ in range(2)]
        await listening.get().begun()
        busy.request("tools/call", tool())
        call = await stage.call()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.bus.drain, 1000)
            await trio.sleep(1)
            said = stage.bus.sessions[listening.id].notify("notifications/x")
            assert said.location is Location.HELD, "as where no GET is open"
            await trio.sleep(200)
            assert set(stage.bus.sessions) == {busy.id}
            call.finish()


async def test_a_client_that_takes_nothing_does_not_delay_a_drain(autojump_clock):
    async with staged() as stage:
        post = stage.probe.request("tools/call", tool(), log_level="debug")
        call = await stage.call()
        post.stall()
        await call.ctx.info("stuck")
        listen = stage.probe.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        listen.stall()
        await stage.quiet()
        await stage.bus.drain(5)
        assert trio.current_time() == pytest.approx(5.25, abs=0.1)


async def _end_by_an_error(stage, ended, *, task_status):
    with suppress(ZeroDivisionError):
        async with open_bus(stage.server) as stage.bus:
            task_status.started(stage.bus.asgi(http_sse=True))
            await ended.wait()
            raise ZeroDivisionError


@pytest.mark.usefixtures("autojump_clock")
async def test_who_comes_to_a_bus_that_has_ended_by_an_error_is_told_to_come_again(nursery, caplog):
    stage, ended = Stage(), trio.Event()
    app = await nursery.start(_end_by_an_error, stage, ended)
    async with open_probe(app) as probe:
        ended.set()
        await stage.quiet()
        hello = {**HELLO, "protocolVersion": "2025-11-25"}
        news = [
            probe.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
            probe.request("tools/call", tool("modern")),
            probe.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
            probe.send("GET", target="/sse"),
        ]
        assert [(await new.ended()).status for new in news] == [503] * 4
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@LIVES_ON
@pytest.mark.usefixtures("autojump_clock")
async def test_a_session_is_gone_with_a_bus_that_has_ended_by_an_error(nursery, caplog):
    stage, ended = Stage(), trio.Event()
    app = await nursery.start(_end_by_an_error, stage, ended)
    async with open_probe(app) as probe:
        session = await probe.initialize()
        ended.set()
        await stage.quiet()
        assert (await session.request("tools/list").ended()).status == 404
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_bus_that_was_drained_is_not_drained_once_more_when_it_closes(autojump_clock):
    stage = Stage()
    sender, receiver = trio.open_memory_channel(1)

    async def stuck(_data):
        await trio.sleep_forever()

    async with trio.open_nursery() as outside:
        async with open_bus(stage.server) as stage.bus:
            outside.start_soon(run_channel, stage.bus, receiver, stuck)
            await sender.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            await stage.quiet()
            await stage.bus.drain(5)
            drained = trio.current_time()
            assert drained > 0
        assert trio.current_time() == drained
        outside.cancel_scope.cancel()


@HANDED_OVER
@pytest.mark.parametrize("finishes", [True, False])
@pytest.mark.parametrize("attempt", range(8))  # the scheduler chooses who runs first
async def test_what_a_closing_bus_still_says_reaches_its_clients(attempt, finishes, autojump_clock):
    stage = Stage()
    app = None

    async def late(*connection):
        await app(*connection)

    async def finish_later(calls):
        await trio.sleep(1)
        for call in calls:
            call.finish()

    async with open_probe(late) as probe, trio.open_nursery() as outside:
        async with open_bus(stage.server, drain_timeout=3) as stage.bus:
            app = stage.bus.asgi()
            session = await probe.initialize()
            get = await session.get().begun()
            posts = [
                session.request("tools/call", tool("legacy")),
                probe.request("tools/call", tool("modern")),
            ]
            listen = probe.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await listen.message()
            calls = [await stage.call(key) for key in ("legacy", "modern")]
            if finishes:
                outside.start_soon(finish_later, calls)
        for post in posts:
            assert ("result" if finishes else "error") in await post.reply()
        assert "result" in await listen.reply()
        assert (await get.ended()).complete
        assert stage.books() == ({}, {})
