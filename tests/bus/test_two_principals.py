"""Whatever one principal has, another one finds room."""

import trio
from staging import HELLO, staged, tool

from mcpbus import Context
from tests.at_home import ONE_BUDGET

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}


async def authenticate(head):
    await trio.lowlevel.checkpoint()
    return head.headers.get(b"authorization")


def as_(who):
    return {"authorization": who}


def held(stage):
    return {who: stage.bus.session_directory.shares.held_by(who) for who in ("alice", "bob")}


async def test_one_principals_sessions_make_no_others_go(autojump_clock):
    async with staged(limits={"max_sessions": 20}, authenticate=authenticate) as stage:
        alice = await stage.probe.initialize(headers=as_("alice"))
        for _ in range(60):
            await stage.probe.initialize(headers=as_("bob"))
        assert (await alice.request("ping").ended()).status == 200
        assert held(stage) == {"alice": 1, "bob": 19}
        for _ in range(60):
            await stage.probe.initialize(headers=as_("alice"))
        assert held(stage) == {"alice": 10, "bob": 10}
        await stage.quiet()
        assert len(stage.bus.sessions) == 20
        assert stage.bus.statistics().limits_reached["max_sessions"] == 41 + 60


async def test_who_is_alone_may_have_all_sessions_and_what_only_listens_makes_room_for_who_has_little(
    autojump_clock, caplog
):
    async with staged(limits={"max_sessions": 20}, authenticate=authenticate) as stage:
        sessions = [await stage.probe.initialize(headers=as_("bob")) for _ in range(20)]
        streams = [await session.get().begun() for session in sessions]
        calling = sessions[0].request("tools/call", tool("hold"))
        call = await stage.call("hold")
        refused = await stage.probe.post(INITIALIZE, as_("bob")).ended()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.messages[0]["error"]["code"] == -32603
        assert [record.getMessage() for record in caplog.records] == [
            "max_sessions was reached by bob: a new session was refused"
        ]
        await stage.probe.initialize(headers=as_("alice"))
        await stage.probe.initialize(headers=as_("carol"))
        assert (held(stage)["alice"], held(stage)["bob"]) == (1, 18)
        await stage.quiet()
        assert [stream.complete for stream in streams[:4]] == [False, True, True, False]
        call.finish()
        assert "result" in await calling.reply()
        # Nobody who has as much as a tenth of what others have makes one of them lose what is of use.
        assert (await stage.probe.post(INITIALIZE, as_("alice")).ended()).status == 200
        await (await stage.probe.initialize(headers=as_("alice"))).get().begun()


async def test_owners_vanish_with_their_last_session(autojump_clock):
    async with staged(authenticate=authenticate) as stage:
        for who in "abc":
            session = await stage.probe.initialize(headers=as_(who))
            await session.delete().ended()
        await stage.quiet()
        assert (len(stage.bus.session_directory.shares), stage.bus.session_directory.shares.owners) == (0, 0)


async def test_one_principals_requests_leave_a_tenth_to_others(autojump_clock, caplog):
    async with staged(limits={"max_requests": 20}, authenticate=authenticate) as stage:
        taken = [
            stage.probe.request("tools/call", tool(f"{number}"), headers=as_("bob")) for number in range(18)
        ]
        await stage.quiet()
        refused = await stage.probe.request("tools/call", tool("more"), headers=as_("bob")).ended()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.messages[0]["error"]["code"] == -32603
        assert caplog.messages == ["max_requests was reached by bob: a request was refused"]
        alice = stage.probe.request("tools/call", tool("alice"), headers=as_("alice"))
        (await stage.call("alice")).finish()
        assert "result" in await alice.reply()
        taken[0].disconnect()
        await stage.quiet()
        (await stage.call("1")).finish()
        assert "result" in await taken[1].reply()


async def test_listens_have_bounds_of_their_own_and_take_no_room_from_requests(autojump_clock):
    filters = {"notifications": {"toolsListChanged": True}}
    async with staged(limits={"max_requests": 1, "max_listens": 20}, authenticate=authenticate) as stage:
        for _ in range(18):
            await stage.probe.request("subscriptions/listen", filters, headers=as_("bob")).begun()
        refused = await stage.probe.request("subscriptions/listen", filters, headers=as_("bob")).ended()
        assert (refused.status, stage.bus.statistics().limits_reached) == (429, {"max_listens": 1})
        await stage.probe.request("subscriptions/listen", filters, headers=as_("alice")).begun()
        statistics = stage.bus.statistics()
        assert (statistics.requests, statistics.listens) == (19, 19)
        call = stage.probe.request("tools/call", tool("x", "quick"), headers=as_("bob"))
        assert "result" in await call.reply()


async def test_in_one_session_past_its_bound_a_client_is_told_to_slow_down(autojump_clock):  # F-22
    async with staged(limits={"max_requests_per_session": 1}, authenticate=authenticate) as stage:
        session = await stage.probe.initialize(headers=as_("bob"))
        session.request("tools/call", tool("1"))
        await stage.quiet()
        refused = await session.request("tools/call", tool("2")).ended()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert stage.bus.statistics().limits_reached == {"max_requests_per_session": 1}


async def test_past_its_subscriptions_a_session_is_told_to_slow_down(autojump_clock):
    async with staged(limits={"max_subscriptions_per_session": 1}, authenticate=authenticate) as stage:
        session = await stage.probe.initialize(headers=as_("bob"))
        assert "result" in await session.request("resources/subscribe", {"uri": "res://a"}).reply()
        await stage.quiet()
        refused = await session.request("resources/subscribe", {"uri": "res://b"}).ended()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert stage.bus.statistics().limits_reached == {"max_subscriptions_per_session": 1}


@ONE_BUDGET
async def test_what_waits_for_one_principal_does_not_end_what_waits_for_another(autojump_clock):
    """Alice has the longest answer of all, and Bob more than she in many."""
    limits = {"memory_bytes": 1_000_000, "keep_alive": 1_000, "write_deadline": 1_000}
    async with staged(limits=limits, authenticate=authenticate, response="sse") as stage:
        text = "x" * 60_000

        @stage.server.tool
        async def recite(ctx: Context, times: int) -> str:
            for _ in range(times):
                await ctx.info(text)
            return "done"

        def ask(who, times):
            params = {"name": "recite", "arguments": {"times": times}}
            recording = stage.probe.request("tools/call", params, log_level="info", headers=as_(who))
            recording.stall()
            return recording

        alice = ask("alice", 3)
        bobs = [ask("bob", 2) for _ in range(8)]
        await stage.quiet()
        assert stage.bus.statistics().limits_reached["memory_bytes"] > 0
        for recording in (alice, *bobs):
            recording.resume()
        assert "result" in (await alice.ended()).messages[-1]
        await stage.quiet()
        assert not all(recording.complete for recording in bobs)


async def test_whoever_comes_while_the_server_drains_is_told_when_to_come_back(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        call = session.request("tools/call", tool())
        await stage.quiet()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.bus.drain, 5)
            await stage.quiet()
            asked = [
                stage.probe.send("GET", target="/health"),
                stage.probe.send("GET", headers={"accept": "text/event-stream"}, target="/sse"),
                stage.probe.post(INITIALIZE),
                stage.probe.request("tools/call", tool("2")),
                session.get(),
            ]
            for recording in asked:
                answer = await recording.ended()
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert (await call.ended()).messages[-1]["error"]["code"] == -32603
