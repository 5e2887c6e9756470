"""An actor of the bus that raises: what it served ends with an error, and everything else goes on."""

import json
from unittest.mock import AsyncMock

import pytest
import trio
from mcpbus_actors import Address, LazyActor, TaskEnded
from staging import CLAIM, HELLO, methods, staged, tool

from mcpbus import Context
from mcpbus.asking import InputUnavailableError
from mcpbus.core.call import CallActor
from mcpbus.core.input_requests import InputRound
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.message_builder import DRAWN_UP
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbound import OutboundNotification
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.receipt import Fate, Location
from mcpbus.core.request_actor import RequestActor
from mcpbus.core.sessions.actor import SessionActor
from mcpbus.core.sessions.delivery import SessionDelivery
from mcpbus.core.sessions.manager import SessionManager
from mcpbus.core.sessions.messages import Unsubscribed
from mcpbus.core.sessions.migration import SessionMigration
from mcpbus.core.signals import DropRequest, InputResponseReceived
from mcpbus.core.subscription import SubscriptionActor
from mcpbus.protocol.routes import Reason
from mcpbus.transports.duplex import DuplexChannel

pytestmark = pytest.mark.failing

TOOLS = "notifications/tools/list_changed"


class BoomError(Exception):
    """What is raised inside an actor."""


@pytest.fixture
def crash(monkeypatch):
    """Have the next message of a type raise in an actor of a class, or only one that `when` chooses."""

    def arrange(actor, message, when=lambda actor, message: True):
        handlers = actor.HANDLERS if issubclass(actor, LazyActor) else actor._HANDLERS
        if actor is RequestActor:
            handlers = DRAWN_UP if message in DRAWN_UP else handlers
        original, armed = handlers[message], [True]

        def boom(self, received):
            if armed and when(self, received):
                armed.clear()
                raise BoomError(f"{actor.__name__} on {message.__name__}")
            return original(self, received)

        monkeypatch.setitem(handlers, message, boom)
        return armed

    return arrange


async def neighbours(stage):
    """Start what must not notice anything: a legacy and a modern call, a GET, a listen."""
    session = await stage.probe.initialize()
    posts = [session.request("tools/call", tool("n1")), stage.probe.request("tools/call", tool("n2"))]
    get = await session.get().begun()
    listen = stage.probe.request("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
    await stage.quiet()
    return posts, get, listen


async def assert_unharmed(stage, others):
    posts, get, listen = others
    for key in ("n1", "n2"):
        stage.calls[key].finish()
    for post in posts:
        assert (await post.reply())["result"]["content"][0]["text"].startswith("held n")
    stage.bus.prompts_changed()
    await stage.quiet()
    assert methods(get)[-1:] == methods(listen)[-1:] == ["notifications/prompts/list_changed"]
    stage.probe.disconnect()
    await stage.assert_nothing_is_left()
    assert len(stage.bus.topics) == 0


@pytest.mark.parametrize("era", ["legacy", "modern", "shared legacy", "shared modern"])
@pytest.mark.parametrize(
    ("actor", "message"), [(RequestActor, OutboundNotification), (RequestActor, TaskEnded)]
)
async def test_a_request_that_crashes_is_answered_with_an_internal_error(
    actor, message, era, crash, autojump_clock
):
    async with staged() as stage:
        others = await neighbours(stage)
        session = await stage.probe.initialize() if era == "legacy" else None
        crash(actor, message)
        if era.startswith("shared"):
            async with (
                stage.bus.connect(
                    revision="2025-11-25" if era == "shared legacy" else "2026-07-28"
                ) as client,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(poke, stage, message)
                with trio.fail_after(30), pytest.raises(Exception, match=r"-32603") as caught:
                    await client.call_tool("hold", {"key": "victim"}, log_level="debug")
                assert "BoomError" not in str(caught.value)
                assert (await client.call_tool("quick"))["content"]
        else:
            if session is not None:
                post = session.request("tools/call", tool("victim"))
            else:
                post = stage.probe.request("tools/call", tool("victim"), log_level="debug")
            await poke(stage, message)
            answer = await post.reply(timeout=10)
            assert answer["error"] == {"code": -32603, "message": "Internal error"}
        victim = stage.calls["victim"]
        await stage.quiet()
        assert victim.outcome == ("cancelled" if message is OutboundNotification else "returned")
        assert (await victim.ctx.info("late")).fate is not None
        await assert_unharmed(stage, others)


async def poke(stage, message):
    victim = await stage.call("victim")
    if message is OutboundNotification:
        receipt = await victim.ctx.info("boom")
        assert receipt.fate == Fate.discarded(Reason.INTERNAL_ERROR)
    else:
        await victim.ctx.info("said")  # otherwise there is nothing to do at its end that could fail
        victim.finish()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_request_that_crashes_when_it_has_been_answered_is_not_answered_again(
    era, monkeypatch, autojump_clock
):
    ended = RequestActor.HANDLERS[TaskEnded]

    def boom(self, message):
        ended(self, message)
        raise BoomError("too late")

    async with staged() as stage:
        if era == "legacy":
            post = (await stage.probe.initialize()).request("tools/call", tool("victim"))
        else:
            post = stage.probe.request("tools/call", tool("victim"), log_level="debug")
        victim = await stage.call("victim")
        await victim.ctx.info("begun")
        with monkeypatch.context() as patch:
            patch.setitem(RequestActor.HANDLERS, TaskEnded, boom)
            victim.finish()
            await post.ended()
        assert ["result" in message for message in post.messages] == [False, True]
        await stage.quiet()
        assert stage.books() == ({}, {})
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


async def test_a_request_that_crashes_withdraws_what_it_asked(crash, autojump_clock):
    async with staged() as stage:

        @stage.server.tool
        async def asks(ctx: Context) -> str:
            return repr(await ctx.elicit("?", str))

        session = await stage.probe.initialize(capabilities={"elicitation": {}})
        post = session.request("tools/call", {"name": "asks"}, id=7)
        question = await post.message()
        crash(RequestActor, InputResponseReceived)
        await session.answer(question["id"], {"action": "decline"}).ended()
        withdrawn, reply = await post.message(), await post.message()
        assert withdrawn["params"]["requestId"] == question["id"]
        assert (reply["id"], reply["error"]["code"]) == (7, -32603)
        assert stage.bus.sessions[session.id].questions == {}
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()


async def test_a_call_that_crashes_has_its_request_answered_with_an_internal_error(crash, autojump_clock):
    async with staged() as stage:
        others = await neighbours(stage)
        post = stage.probe.request("tools/call", tool("victim"), capabilities={"elicitation": {}})
        victim = await stage.call("victim")
        crash(CallActor, InputRound)
        with pytest.raises(InputUnavailableError):
            await victim.ctx.elicit("How many?", int)
        assert (await post.reply(timeout=10))["error"]["code"] == -32603
        await stage.quiet()
        assert victim.outcome == "cancelled"
        await assert_unharmed(stage, others)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_stream_that_crashes_ends_its_answer(era, crash, autojump_clock):
    async with staged() as stage:
        others = await neighbours(stage)
        if era == "legacy":
            post = (await stage.probe.initialize()).request("tools/call", tool("victim"))
        else:
            post = stage.probe.request("tools/call", tool("victim"), log_level="debug")
        victim = await stage.call("victim")
        crash(MessageStream, OutboundMessage)
        receipt = await victim.ctx.info("." * SHORT_BYTES)  # what is short is written without the stream
        assert receipt.fate == Fate.discarded(Reason.INTERNAL_ERROR)
        await post.ended(timeout=10)
        assert (post.status, post.messages[0]["error"]["code"]) == (500, -32603)
        # As with a lost connection: a modern request is cancelled, a legacy one runs on.
        await stage.quiet()
        assert victim.outcome == ("running" if era == "legacy" else "cancelled")
        victim.finish()
        await assert_unharmed(stage, others)


async def test_a_stream_that_has_begun_and_crashes_discards_what_waits(crash, autojump_clock):
    async with staged() as stage:
        post = stage.probe.request("tools/call", tool("victim"), log_level="debug")
        victim = await stage.call("victim")
        post.stall()
        first = await victim.ctx.info("being written")
        await stage.quiet()
        waiting = await victim.ctx.info("waiting")
        assert (first.location, waiting.location) == (Location.WRITING, Location.OUTBOX)
        crash(MessageStream, OutboundMessage)
        await victim.ctx.info("boom")
        assert (first.fate, waiting.fate) == (
            Fate.discarded(Reason.LOST),
            Fate.discarded(Reason.INTERNAL_ERROR),
        )
        post.resume()
        await post.ended(timeout=10)
        await stage.assert_nothing_is_left()


async def test_a_get_stream_that_crashes_gives_its_changes_back_and_the_next_one_has_them(
    crash, autojump_clock
):
    async with staged() as stage:
        session = await stage.probe.initialize()
        get = await session.get().begun()
        await stage.quiet()
        get.stall()
        first = stage.bus.tools_changed()[0]
        await stage.quiet()
        crash(MessageStream, OutboundMessage)
        boom = stage.bus.prompts_changed()[0]
        assert (first.fate, boom.fate) == (Fate.discarded(Reason.LOST), Fate.discarded(Reason.INTERNAL_ERROR))
        get.resume()
        await get.ended(timeout=10)
        again = session.get()
        await stage.quiet()
        assert methods(again) == [TOOLS]


async def test_a_session_that_crashes_answers_what_it_had_and_is_gone(crash, autojump_clock):
    async with staged() as stage:
        others = await neighbours(stage)
        session = await stage.probe.initialize()
        get = await session.get().begun()
        post = session.request("tools/call", tool("victim"))
        await stage.call("victim")
        stage.bus.sessions[session.id].notify("notifications/x")
        await session.request("resources/subscribe", {"uri": "res://a"}).reply()
        crash(SessionActor, Unsubscribed)
        await session.request("resources/unsubscribe", {"uri": "res://a"}).ended()
        assert (await post.reply(timeout=10))["error"]["code"] == -32603
        assert (await get.ended(timeout=10)).complete
        await stage.quiet()
        assert stage.calls["victim"].outcome == "cancelled"
        assert (await session.request("tools/list").ended()).status == 404
        assert session.id not in stage.bus.sessions
        await assert_unharmed(stage, others)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (SessionManager, "forget"),
        (Address, "tell"),
        (SessionDelivery, "end_streams"),
        (SessionMigration, "end"),
    ],
)
async def test_all_of_a_session_ends_whatever_a_part_of_it_raises(
    owner, name, autojump_clock, monkeypatch, caplog
):
    async with staged() as stage:
        session = await stage.probe.initialize()
        for name_of_call in ("one", "two"):
            session.request("tools/call", tool(name_of_call))
            await stage.call(name_of_call)
        [held] = stage.bus.tools_changed()
        whole, armed = getattr(owner, name), [True]

        def run_out(self, *args, **options):
            if armed and (owner is not Address or isinstance(args[0], DropRequest)):
                armed.clear()
                raise MemoryError
            return whole(self, *args, **options)

        monkeypatch.setattr(owner, name, run_out)
        await session.delete().ended()
        await stage.quiet()
        assert not armed
        assert held.fate == Fate.discarded(Reason.SESSION_ENDED)
        outcomes = ["running" if owner is Address else "cancelled", "cancelled"]
        assert [stage.calls[key].outcome for key in ("one", "two")] == outcomes
        assert "the end of a session failed in part" in caplog.text


async def test_a_shared_session_that_crashes_answers_what_it_had_and_ends_its_channel(crash, autojump_clock):
    async with staged() as stage:
        others = await neighbours(stage)
        async with stage.wire("2025-11-25") as wire:
            await wire.say("tools/call", tool("victim"), 1)
            await stage.call("victim")
            await wire.say("resources/subscribe", {"uri": "res://a"}, 2)
            await stage.quiet()
            crash(SessionActor, Unsubscribed)
            await wire.say("resources/unsubscribe", {"uri": "res://a"}, 3)
            await stage.quiet()
        assert [(m["id"], m.get("error", {}).get("code")) for m in wire.got] == [(2, None), (1, -32603)]
        await assert_unharmed(stage, others)


@pytest.mark.parametrize("shared", [False, True])
async def test_a_subscription_that_crashes_is_answered_with_an_error(shared, crash, autojump_clock):
    async with staged() as stage:
        others = await neighbours(stage)
        crash(SubscriptionActor, OutboundNotification, lambda actor, _: actor._granted.tools_list_changed)
        if shared:
            async with stage.bus.connect() as client, client.listen(tools=True) as listen:
                assert Fate.discarded(Reason.INTERNAL_ERROR) in [
                    receipt.fate for receipt in stage.bus.tools_changed()
                ]
                with trio.fail_after(5), pytest.raises(StopAsyncIteration):
                    await listen.__anext__()
                assert (await client.call_tool("quick"))["content"]
        else:
            wanted = {"notifications": {"toolsListChanged": True}}
            victim = stage.probe.request("subscriptions/listen", wanted)
            await stage.quiet()
            other = stage.probe.request("subscriptions/listen", wanted)
            await stage.quiet()
            fates = [receipt.fate for receipt in stage.bus.tools_changed()][1:]
            assert fates == [Fate.discarded(Reason.INTERNAL_ERROR), None]
            assert (await victim.reply(timeout=10))["error"]["code"] == -32603
            assert (await other.message())["method"].endswith("acknowledged")
            assert (await other.message())["method"] == TOOLS
        await assert_unharmed(stage, others)


async def test_a_crash_while_registering_leaves_no_session(crash, autojump_clock):
    async with staged() as stage:

        @stage.server.on_session
        async def hook(session):
            await trio.sleep(1)

        crash(RequestActor, TaskEnded)
        answer = await stage.probe.post(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        ).ended()
        assert answer.messages[0]["error"]["code"] == -32603
        assert "mcp-session-id" not in answer.headers
        await trio.sleep(61)
        assert stage.bus.sessions == {}
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("what", ["a call", "initialize"])
async def test_a_request_that_cannot_be_started_gives_its_place_back(what, autojump_clock, monkeypatch):
    def no_memory(_request):
        raise MemoryError

    async with staged() as stage:
        stage.server.on_session(AsyncMock())
        async with stage.wire("2025-11-25") as wire:
            with monkeypatch.context() as patch:
                if what == "a call":
                    patch.setattr(CallActor, "count", no_memory)  # as soon as its handler waits
                    await wire.say("tools/call", tool("victim"), 1)
                    await stage.quiet()
                    answer = wire.got[-1]
                else:
                    patch.setattr(RequestActor, "capacity", property(no_memory), raising=False)
                    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
                    answer = (await stage.probe.post(hello).ended()).messages[0]
            assert answer["error"]["code"] == -32603
            await stage.quiet()
            assert (len(stage.bus.admission), len(stage.bus.sessions), stage.bus.statistics().sessions) == (
                0,
                1,
                1,
            )
        await stage.assert_nothing_is_left()


async def test_a_handler_whose_request_cannot_wait_is_cancelled(autojump_clock, monkeypatch, caplog):
    """There is no memory to count the call as one that waits. What has begun comes to its end."""

    def no_memory(*_):
        raise MemoryError

    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**tool("victim"), "_meta": CLAIM}}
    async with staged() as stage:
        with DuplexChannel(stage.bus, None) as channel:
            with monkeypatch.context() as patch, trio.CancelScope() as scope:
                patch.setattr(CallActor, "count", no_memory)
                handler = channel.take_now(json.dumps(call).encode(), scope)
                await handler.finish()
            [answer] = [json.loads(message.data) for message in channel.writer.take_now()]
            channel.writer.settle_written()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        assert {call.outcome for call in stage.calls.values()} <= {"cancelled"}
        assert scope.cancelled_caught
        assert [record.message for record in caplog.records] == ["tools/call failed"]
        await stage.assert_nothing_is_left()


async def test_an_exception_in_a_handler_is_no_crash_of_an_actor(autojump_clock, caplog):
    async with staged() as stage:
        post = stage.probe.request("tools/call", tool("victim"))
        (await stage.call("victim")).finish(RuntimeError("secret"))
        result = (await post.reply())["result"]
        assert result["isError"]
        assert "secret" not in str(result)
        assert "secret" in caplog.text
        assert stage.bus.system.statistics().failures == 0
