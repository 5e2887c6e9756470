"""What is kept for a client whose stream is not open yet, and what a session's hooks change."""

from itertools import pairwise

import pytest
import trio
from staging import CLAIM, HELLO, methods, short, staged, tool

from mcpbus import ProtocolError, Server
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.core.receipt import DELIVERED, Fate, Location
from mcpbus.features.errors import RegistrationError
from mcpbus.protocol.routes import Reason
from mcpbus.testing import open_bus, open_probe

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"


async def test_changes_wait_for_the_first_get_one_of_a_kind(autojump_clock):  # W-18, S-3
    async with staged() as stage:
        session = await stage.probe.initialize()
        for uri in ("res://a", "res://b"):
            await session.request("resources/subscribe", {"uri": uri}).reply()
        receipts = [
            change()[0]
            for change in (
                stage.bus.tools_changed,
                lambda: stage.bus.resource_updated("res://a"),
                stage.bus.prompts_changed,
                stage.bus.tools_changed,
                lambda: stage.bus.resource_updated("res://b"),
                lambda: stage.bus.resource_updated("res://a"),
            )
        ]
        superseded = Fate.discarded(Reason.SUPERSEDED)
        assert [r.fate for r in receipts] == [superseded, superseded, None, None, None, None]
        assert {r.location for r in receipts[2:]} == {Location.HELD}
        get = session.get()
        await stage.quiet()
        # The newer copy stands where it was made, at the end.
        assert methods(get) == [PROMPTS, TOOLS, UPDATED, UPDATED]
        assert [m["params"]["uri"] for m in get.messages[2:]] == ["res://b", "res://a"]
        assert {r.fate for r in receipts[2:]} == {DELIVERED}


async def test_what_is_held_expires_after_its_time_each_on_its_own(autojump_clock):
    async with staged(limits={"held_timeout": 100}) as stage:
        session = await stage.probe.initialize()
        first = stage.bus.tools_changed()[0]
        await trio.sleep(60)
        second = stage.bus.prompts_changed()[0]
        await trio.sleep(41)
        assert (first.fate, second.location) == (Fate.discarded(Reason.EXPIRED), Location.HELD)
        await trio.sleep(60)
        assert second.fate == Fate.discarded(Reason.EXPIRED)
        get = session.get()
        await stage.quiet()
        assert get.messages == []


async def test_no_more_is_held_than_there_may_be(autojump_clock):
    async with staged(limits={"held_items": 2}) as stage:
        session = await stage.probe.initialize()
        inside = stage.bus.sessions[session.id]
        receipts = [inside.notify("notifications/x", {"n": n}) for n in range(3)]
        assert [r.fate for r in receipts] == [Fate.discarded(Reason.OVERFLOW), None, None]
        log = inside.log("error", "not held")
        assert log.fate == Fate.discarded(Reason.NO_STREAM)
        get = session.get()
        await stage.quiet()
        assert [m["params"]["n"] for m in get.messages] == [1, 2]


@pytest.mark.at_home("the places of messages are those of the process that has the session")
@pytest.mark.parametrize(
    ("hold", "held"),
    [
        (lambda stage, _: stage.bus.tools_changed()[0], TOOLS),
        (lambda _, session: session.notify("notifications/x"), "notifications/x"),
    ],
)
async def test_before_initialized_logs_wait_for_nothing_but_what_is_older_on_the_same_stream(
    hold, held, autojump_clock
):  # L-8
    async with staged() as stage:
        session = await stage.probe.initialize(initialized=False)
        get = await session.get().begun()
        inside = stage.bus.sessions[session.id]
        early, waiting, late = inside.log("info", "early"), hold(stage, inside), inside.log("info", "late")
        await stage.quiet()
        assert (early.fate, waiting.location, late.location) == (DELIVERED, Location.HELD, Location.HELD)
        await session.notify("notifications/initialized").ended()
        after = inside.log("info", "after")
        await stage.quiet()
        assert methods(get) == [
            "notifications/message",
            held,
            "notifications/message",
            "notifications/message",
        ]
        assert [receipt.fate for receipt in (waiting, late, after)] == [DELIVERED] * 3


async def test_before_initialized_a_log_line_is_not_held_for_a_stream_that_is_not_there(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize(initialized=False)
        inside = stage.bus.sessions[session.id]
        inside.notify("notifications/x")
        assert inside.log("info", "early").fate == Fate.discarded(Reason.NO_STREAM)


async def test_an_unsubscribe_discards_what_is_held_for_it(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        for uri in ("res://a", "res://a/b"):
            await session.request("resources/subscribe", {"uri": uri}).reply()
        above = stage.bus.resource_updated("res://a")[0]
        # One copy for a session, whichever of its subscriptions cover it.
        [below] = stage.bus.resource_updated("res://a/b")
        await session.request("resources/unsubscribe", {"uri": "res://a"}).reply()
        assert above.fate == Fate.discarded(Reason.NOT_SUBSCRIBED)
        assert below.location is Location.HELD
        assert len(stage.bus.resource_updated("res://a")) == 0


async def test_what_is_held_has_one_timer_however_much_it_is(autojump_clock):
    async with staged() as stage:
        inside = stage.bus.sessions[(await stage.probe.initialize()).id]
        timers = []
        for n in range(3):
            inside.notify("notifications/x", {"n": n})
            timers.append(stage.bus.system.statistics().timers)
        assert timers == timers[:1] * 3


async def test_who_has_gone_is_told_of_nothing_that_it_subscribed_to(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        await session.request("resources/subscribe", {"uri": "res://a"}).reply()
        assert len(stage.bus.resource_updated("res://a")) == 1
        await session.delete().ended()
        assert len(stage.bus.resource_updated("res://a")) == 0


async def test_one_session_alone_is_told_of_a_resource_if_it_subscribed(autojump_clock):  # S-2
    async with staged() as stage:
        one, other, deaf = [await stage.probe.initialize() for _ in range(3)]
        streams = [await session.get().begun() for session in (one, other, deaf)]
        for session in (one, other):
            await session.request("resources/subscribe", {"uri": "res://a"}).reply()
        told = stage.bus.sessions[one.id].resource_updated("res://a/b")
        dropped = stage.bus.sessions[deaf.id].resource_updated("res://a/b")
        await stage.quiet()
        assert [methods(stream) for stream in streams] == [["notifications/resources/updated"], [], []]
        assert streams[0].messages[0]["params"] == {"uri": "res://a/b"}
        assert (told.fate, dropped.fate) == (DELIVERED, Fate.discarded(Reason.NOT_SUBSCRIBED))


async def test_what_one_session_is_told_of_a_resource_is_held_once_until_it_listens(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        await session.request("resources/subscribe", {"uri": "res://a"}).reply()
        inside = stage.bus.sessions[session.id]
        first, second = inside.resource_updated("res://a"), inside.resource_updated("res://a")
        stream = await session.get().begun()
        await stage.quiet()
        assert methods(stream) == ["notifications/resources/updated"]
        assert (first.fate, second.fate) == (Fate.discarded(Reason.SUPERSEDED), DELIVERED)


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", None])
async def test_that_something_elicited_is_complete_is_told_to_who_knows_of_its_id(
    revision, autojump_clock
):  # E-10
    async with staged() as stage, stage.wire(revision) as wire:
        await stage.quiet()
        [session] = stage.bus.session_directory.shares
        receipt = session.elicitation_complete("e1")
        await stage.quiet()
        if revision == "2025-11-25":
            assert receipt.fate == DELIVERED
            assert wire.got[0]["method"] == "notifications/elicitation/complete"
            assert wire.got[0]["params"] == {"elicitationId": "e1"}
        else:
            assert (receipt.fate, wire.got) == (Fate.discarded(Reason.NOT_IN_REVISION), [])


async def test_a_client_without_sessions_is_told_of_no_change(autojump_clock):  # W-48
    async with staged(http={"sessions": "stateless"}) as stage:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool()}
        post = stage.probe.post(body)
        call = await stage.call()
        assert len(stage.bus.tools_changed()) == 0
        said = await call.ctx.info("in request")
        call.finish()
        await post.ended()
        assert methods(post) == ["notifications/message", 1]
        assert await said.settled() == DELIVERED


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_json_only_answers_discard_what_a_request_says_and_tell_the_handler(
    revision, autojump_clock
):  # P-5, G-6
    async with staged(response="json") as stage:
        if revision == "2026-07-28":
            post = stage.probe.request("tools/call", tool(), log_level="debug", progress_token=1)
        else:
            session = await stage.probe.initialize(revision)
            post = session.request("tools/call", tool(), progress_token=1)
        call = await stage.call()
        for receipt in (
            await call.ctx.info("x"),
            await call.ctx.progress(1),
            await call.ctx.notify("notifications/x"),
        ):
            assert receipt.fate == Fate.discarded(Reason.NO_STREAM)
        call.finish()
        await post.ended()
        assert (post.is_stream, len(post.messages)) == (False, 1)


async def test_a_modern_client_gets_no_log_below_its_level_and_none_without_one(autojump_clock):  # G-7, G-8
    async with staged() as stage:
        posts = {
            key: stage.probe.request("tools/call", tool(key), log_level=key or None)
            for key in ("", "debug", "error")
        }
        fates = {}
        for key in posts:
            call = await stage.call(key)
            # The fate of one that was sent may be there already, or not: that is the writer's next turn.
            receipts = [await call.ctx.log(level, "x") for level in ("info", "error")]
            await stage.quiet()
            fates[key] = [receipt.fate for receipt in receipts]
            call.finish()
        sent, filtered = DELIVERED, Fate.discarded(Reason.FILTERED)
        assert fates == {"": [filtered, filtered], "debug": [sent, sent], "error": [filtered, sent]}
        levels = {
            key: [m["params"]["level"] for m in (await p.ended()).messages[:-1]] for key, p in posts.items()
        }
        assert levels == {"": [], "debug": ["info", "error"], "error": ["error"]}


# -- listens -------------------------------------------------------------------------------------


async def test_a_change_of_the_same_moment_comes_after_the_acknowledgement(autojump_clock):  # S-6, S-4
    async with staged() as stage:
        listens = [
            stage.probe.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=n)
            for n in range(20)
        ]
        for _ in range(6):
            # Some are heard of already and some not; whoever gets the change has its acknowledgement before it.
            stage.bus.tools_changed()
            await trio.lowlevel.checkpoint()
        await stage.quiet()
        for number, listen in enumerate(listens):
            assert methods(listen)[0] == "notifications/subscriptions/acknowledged"
            assert set(methods(listen)[1:]) <= {TOOLS}
            stamps = {m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for m in listen.messages}
            assert stamps == {number}
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()
        assert len(stage.bus.topics) == 0


async def test_listens_to_many_resources_take_turns(autojump_clock):
    named = [f"res://{n}" for n in range(1000)]
    async with staged() as stage:
        for n in range(5):
            stage.probe.request(
                "subscriptions/listen", {"notifications": {"resourceSubscriptions": named}}, id=n
            )
        entered = [0]
        while entered[-1] < 5 * len(named):
            await trio.lowlevel.checkpoint()
            entered.append(len(stage.bus.topics))
        assert max(after - before for before, after in pairwise(entered)) == len(named)
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()
        assert len(stage.bus.topics) == 0


@pytest.mark.parametrize("late", [False, True])
async def test_a_listen_that_ends_in_its_turn_leaves_nothing(late, monkeypatch, autojump_clock):
    gone = trio.Event()

    async def take_turn(_budget):
        with trio.CancelScope(shield=late):  # its turn can come in the moment in which its client leaves
            await gone.wait()

    monkeypatch.setattr(MemoryBudget, "take_turn", take_turn)
    async with staged() as stage:
        named = [f"res://{n}" for n in range(1000)]
        listen = stage.probe.request(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": named}}
        )
        await stage.quiet()
        listen.disconnect()
        await stage.quiet()
        gone.set()
        await stage.assert_nothing_is_left()
        assert (len(stage.bus.topics), stage.bus.budget.held) == (0, 0)


async def test_a_listen_that_is_ended_to_make_room_is_not_acknowledged_first(monkeypatch, autojump_clock):
    async def take_turn(_budget):
        await trio.sleep_forever()

    monkeypatch.setattr(MemoryBudget, "take_turn", take_turn)
    async with staged(limits={"memory_bytes": 400_000}) as stage:
        named = [f"res://{n}" for n in range(1000)]
        listen = stage.probe.request(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": named}}, id=1
        )
        assert "result" in await listen.reply()
        assert len(listen.messages) == 1  # an acknowledgement would be as long as what it names
        assert stage.bus.budget.held == 0


@pytest.mark.parametrize("turns", [0, 5, 1000])
async def test_those_that_bring_much_wait_for_those_that_make_room_but_not_for_long(turns):
    budget = MemoryBudget(100, LimitMonitor())

    async def leave():
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        account.close()

    async with trio.open_nursery() as nursery:
        account = budget.account("a test", lambda: nursery.start_soon(leave))
        account.hold(200)
        took = 0
        with trio.CancelScope() as scope:

            async def count():
                nonlocal took
                while True:
                    await trio.lowlevel.checkpoint()
                    took += 1

            async with trio.open_nursery() as counting:
                counting.start_soon(count)
                await budget.take_turn()
                scope.cancel()
        assert budget.full is (turns == 1000)
        assert took < 50


async def test_a_listen_gets_what_it_asked_for_and_nobody_without_a_listen_gets_anything(
    autojump_clock,
):  # S-9, S-10, S-11, X-10
    async with staged() as stage:
        filters = [
            {"toolsListChanged": True},
            {"promptsListChanged": True},
            {"resourceSubscriptions": ["res://a"]},
        ]
        listens = [stage.probe.request("subscriptions/listen", {"notifications": f}) for f in filters]
        post = stage.probe.request("tools/call", tool(), log_level="debug")
        call = await stage.call()
        assert [len(b) for b in (stage.bus.tools_changed(), stage.bus.prompts_changed())] == [1, 1]
        assert [len(stage.bus.resource_updated(u)) for u in ("res://a", "res://a/b", "res://b")] == [1, 1, 0]
        assert len(stage.bus.resources_changed()) == 0
        now = stage.bus.statistics()
        assert (now.requests, now.listens) == (4, 3)
        call.finish()
        await post.ended()
        await stage.quiet()
        assert [methods(listen)[1:] for listen in listens] == [[TOOLS], [PROMPTS], [UPDATED, UPDATED]]
        assert len(post.messages) == 1


async def test_a_server_without_resources_grants_no_subscription_to_one(autojump_clock):  # S-12
    server = Server("s", version="1")
    server.add_tool(extra)
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["res://a"]}
        listen = probe.request("subscriptions/listen", {"notifications": wanted})
        assert (await listen.message())["params"]["notifications"] == {"toolsListChanged": True}
        session = await probe.initialize()
        for method in ("resources/subscribe", "resources/unsubscribe"):
            refused = await session.request(method, {"uri": "res://a"}).reply()
            assert refused["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("wanted", "what"),
    [({"uris": ["res://a", "res://b", "res://c"]}, "resources"), ({"task_ids": ["a", "b", "c"]}, "tasks")],
)
async def test_a_listen_may_name_so_many_resources_and_tasks_and_no_more(wanted, what, autojump_clock):
    async with (
        staged(limits={"max_listened_resources": 2}) as stage,
        stage.bus.connect() as client,
    ):
        [(kind, names)] = wanted.items()
        async with client.listen(**{kind: names[:2]}):
            assert stage.bus.statistics().limits_reached == {}
        with pytest.raises(ProtocolError, match=f"at most 2 {what}"):
            async with client.listen(**wanted):
                pass
        assert stage.bus.statistics().limits_reached == {"max_listened_resources": 1}


async def test_a_listen_on_a_shared_channel_ends_with_its_result_alone(autojump_clock):  # C-8, S-13
    async with staged() as stage, stage.wire() as wire:
        for number in (1, "1"):
            wanted = {"notifications": {"toolsListChanged": number == 1}, "_meta": CLAIM}
            await wire.say("subscriptions/listen", wanted, number)
        await stage.quiet()
        stage.bus.tools_changed()
        await stage.bus.drain(1)
        await stage.quiet()
        stamps = [m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for m in wire.got[:3]]
        assert stamps == [1, "1", 1]
        assert short(wire.got[2:]) == [TOOLS, 1, "1"]
        assert stage.books() == ({}, {})


# -- on_session ----------------------------------------------------------------------------------


def extra() -> str:
    """Return what a session's own tool returns."""
    return "extra"


async def test_tools_that_a_hook_adds_are_part_of_the_first_list_and_announce_nothing(autojump_clock):
    async with staged() as stage:

        @stage.server.on_session
        async def inject(session):
            session.add_tool(extra)
            await trio.sleep(1)

        emitted = stage.bus.statistics().emitted
        session = await stage.probe.initialize()
        assert stage.bus.statistics().emitted == emitted + 1  # the InitializeResult
        names = [t["name"] for t in (await session.request("tools/list").reply())["result"]["tools"]]
        assert "extra" in names
        called = await session.request("tools/call", {"name": "extra", "arguments": {}}).reply()
        assert called["result"]["content"][0]["text"] == "extra"
        get = session.get()
        await stage.quiet()
        assert get.messages == []
        modern = await stage.probe.request("tools/list").reply()
        assert "extra" not in [t["name"] for t in modern["result"]["tools"]]


async def test_a_session_is_offered_what_sessions_alone_have_and_its_hooks_know_whose_it_is(autojump_clock):
    async with staged() as stage:
        clients = []

        @stage.server.on_session
        async def hook(session):
            clients.append((session.client_info, session.client_capabilities))

        hello = {**HELLO, "capabilities": {"roots": {}}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        [answer] = (await stage.probe.post(body).ended()).messages
        offered = answer["result"]["capabilities"]
        assert (offered["tools"], offered["logging"]) == ({"listChanged": True}, {})
        assert offered["resources"] == {"listChanged": True, "subscribe": True}
        assert clients == [(HELLO["clientInfo"], {"roots": {}})]


async def test_an_initialize_that_is_one_request_too_many_leaves_no_session_behind(autojump_clock):
    """With hooks it is a request like others, for which there may be no room, in a session that was opened for it."""
    async with staged(limits={"max_requests": 1}) as stage:

        @stage.server.on_session
        async def hook(session):
            await trio.sleep(1)

        first = stage.probe.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
        await stage.quiet()
        second = await stage.probe.post(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        ).ended()
        assert second.status == 503
        assert len(stage.bus.session_directory.shares) == 1
        assert (await first.ended()).status == 200
        await stage.quiet()
        assert (stage.bus.statistics().sessions, stage.bus.statistics().actors) == (1, 1)


async def test_an_initialize_on_a_shared_channel_has_its_id_to_itself_while_hooks_run(autojump_clock):
    async with staged() as stage, stage.wire() as wire:

        @stage.server.on_session
        async def hook(session):
            await trio.sleep(1)

        await wire.say("initialize", HELLO, 1)
        await stage.quiet()
        await wire.say("tools/call", {**tool(name="quick"), "_meta": CLAIM}, 1)
        await stage.quiet()
        assert wire.got == []  # the call waits until the id is free
        await trio.sleep(2)
        initialized, called = wire.got
        assert (initialized["id"], called["id"]) == (1, 1)
        assert initialized["result"]["serverInfo"]["name"] == "stage"
        assert "content" in called["result"]


async def test_a_tool_added_later_is_announced_to_its_session_alone(autojump_clock):  # W-20
    async with staged() as stage:
        mine, theirs = await stage.probe.initialize(), await stage.probe.initialize()
        gets = [mine.get(), theirs.get()]
        await stage.quiet()
        for name in ("one", "other"):
            stage.bus.sessions[mine.id].add_tool(extra, name=name)
            await stage.quiet()
        assert [methods(get) for get in gets] == [[TOOLS, TOOLS], []]
        offered = [
            {t["name"] for t in (await session.request("tools/list").reply())["result"]["tools"]}
            for session in (mine, theirs)
        ]
        assert offered[0] - offered[1] == {"one", "other"}


async def test_a_session_without_tools_of_its_own_has_none_to_take_away(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        with pytest.raises(RegistrationError, match="it has none"):
            stage.bus.sessions[session.id].remove_tool("quick")


@pytest.mark.parametrize("fault", ["raises", "too slow"])
@pytest.mark.parametrize("shared", [False, True])
async def test_a_hook_that_fails_has_the_session_refused_and_nothing_kept(
    fault, shared, autojump_clock, caplog
):
    async with staged() as stage:
        fails = True

        @stage.server.on_session
        async def hook(session):
            if fails and fault == "raises":
                raise RuntimeError("secret")
            if fails:
                await trio.sleep(11)

        if shared:
            with pytest.raises(ProtocolError) as caught:
                await stage.connect("2025-06-18")
            assert caught.value.code == -32603
            assert "secret" not in str(caught.value)
        else:
            answer = await stage.probe.post(
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
            ).ended()
            assert answer.messages[0]["error"]["code"] == -32603
            assert "secret" not in answer.body.decode()
            assert "mcp-session-id" not in answer.headers
        assert ("on_session hook" if fault == "raises" else "on_session_timeout") in caplog.text
        await stage.assert_nothing_is_left()
        assert (len(stage.bus.sessions), len(stage.bus.session_directory.shares)) == (0, 0)
        fails = False
        await stage.probe.initialize()


async def test_a_client_that_leaves_while_it_registers_leaves_nothing(autojump_clock):
    async with staged() as stage:
        outcome = []

        @stage.server.on_session
        async def hook(session):
            try:
                await trio.sleep(5)
                outcome.append("finished")
            except trio.Cancelled:
                outcome.append("cancelled")
                raise

        post = stage.probe.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
        await trio.sleep(1)
        assert len(stage.bus.session_directory.shares) == 1
        post.disconnect()
        await stage.quiet()
        assert outcome == ["cancelled"]
        await trio.sleep(10)
        assert (dict(stage.bus.sessions), len(stage.bus.session_directory.shares)) == ({}, 0)
        await stage.assert_nothing_is_left()


async def test_a_connection_that_closes_while_it_registers_leaves_nothing(autojump_clock, caplog):
    async with staged() as stage:

        @stage.server.on_session
        async def hook(session):
            await trio.sleep(5)

        async with stage.wire() as wire:
            await wire.say("initialize", HELLO, 1)
            await stage.quiet()
            assert len(stage.bus.session_directory.shares) == 1
            wire.hang_up()
        await stage.assert_nothing_is_left()
        assert (len(stage.bus.session_directory.shares), stage.bus.budget.held) == (0, 0)
        assert caplog.records == []


async def test_a_connection_that_registers_is_not_initialized_again_meanwhile(autojump_clock):
    async with staged() as stage:

        @stage.server.on_session
        async def hook(session):
            await trio.sleep(5)

        async with stage.wire() as wire:
            for request_id in (1, 2):
                await wire.say("initialize", HELLO, request_id)
            await wire.say("notifications/initialized", {})
            await wire.say("tools/list", {}, 3)
            await trio.sleep(6)
            answers = [(message["id"], "error" in message) for message in wire.got]
            assert answers == [(1, False), (2, True), (3, False)]
            # Over standard input, say, it may take its time from here on.
            await trio.sleep(1000)
            assert len(stage.bus.sessions) == 1


async def test_a_connection_that_could_not_be_registered_speaks_no_revision(autojump_clock):
    async with staged() as stage:

        @stage.server.on_session
        async def hook(session):
            raise RuntimeError

        async with stage.wire() as wire:
            await wire.say("initialize", {**HELLO, "protocolVersion": "2025-03-26"}, 1)
            await stage.quiet()
            # Of the revisions that begin with initialize this one alone has batches.
            await wire.send(b'[{"jsonrpc":"2.0","id":2,"method":"ping"}]')
            await stage.quiet()
            assert [message.get("id") for message in wire.got] == [1, None]


async def test_what_is_said_to_a_registering_session_is_held_and_a_broadcast_misses_it(autojump_clock):
    async with staged() as stage:
        receipts = []

        @stage.server.on_session
        async def hook(session):
            receipts.append(session.notify("notifications/x"))
            receipts.extend(stage.bus.tools_changed())
            stage.server.add_tool(extra)

        session = await stage.probe.initialize()
        assert [r.location for r in receipts] == [Location.HELD]
        get = session.get()
        await stage.quiet()
        # The tool was there before initialize was answered: its list is new to the client anyway.
        assert methods(get) == ["notifications/x"]


async def test_a_line_of_a_session_below_its_clients_level_is_filtered(autojump_clock):  # G-5
    async with staged() as stage:
        session = await stage.probe.initialize()
        get = await session.get().begun()
        inside = stage.bus.sessions[session.id]
        receipts = [inside.log(level, "line") for level in ("debug", "info", "warning")]
        await stage.quiet()
        assert [receipt.fate.reason for receipt in receipts] == [Reason.FILTERED, None, None]
        await session.request("logging/setLevel", {"level": "warning"}).reply()
        assert inside.log("info", "line").fate == Fate.discarded(Reason.FILTERED)
        assert [message["params"]["level"] for message in get.messages] == ["info", "warning"]


async def test_tools_that_sessions_alone_have_are_declared_to_them_and_changes_to_nobody_without_one(
    autojump_clock,
):
    server = Server("letters", version="1", capabilities=["prompts"])

    @server.on_session
    async def give(session):
        session.add_tool(extra)

    async with open_bus(server) as bus:
        async with open_probe(bus.asgi()) as probe:
            declared = (await probe.initialize()).initialize_result["capabilities"]
            assert declared["tools"] == {"listChanged": True}
        async with open_probe(bus.asgi(sessions="stateless")) as probe:
            hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
            [answer] = (await probe.post(hello).ended()).messages
            assert answer["result"]["capabilities"] == {"prompts": {}}
