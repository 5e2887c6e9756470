"""A client's cancel against what the server does at the same moment, and a connection that is lost."""

import pytest
import trio
from staging import CLAIM, methods, short, staged, tool

from mcpbus.core.receipt import DELIVERED, Fate
from mcpbus.protocol.routes import Reason

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
CANCELLED = Fate.discarded(Reason.CANCELLED)


async def cancel(session, request_id):
    await session.notify("notifications/cancelled", {"requestId": request_id}).ended()


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_cancel_before_the_reply_silences_the_request(revision, autojump_clock):  # C-3
    async with staged() as stage:
        session = await stage.probe.initialize(revision)
        post = session.request("tools/call", tool(), id=7)
        call = await stage.call()
        await cancel(session, 7)
        await post.ended()
        # Its POST must have an answer all the same: a stream with nothing in it.
        assert (post.status, post.is_stream, post.messages) == (200, True, [])
        await stage.quiet()
        assert call.outcome == "cancelled"
        assert (await call.ctx.info("late")).fate == CANCELLED
        await stage.assert_nothing_is_left()


async def test_another_notification_that_names_a_request_does_not_cancel_it(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool(), id=7)
        call = await stage.call()
        await session.notify("notifications/other", {"requestId": 7}).ended()
        call.finish()
        assert (await post.reply())["id"] == 7


async def test_a_cancel_of_a_stream_that_has_begun_ends_it_without_a_reply(autojump_clock):  # C-3
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool(), id=7)
        call = await stage.call()
        await call.ctx.info("first")
        await post.message()
        await cancel(session, 7)
        await post.ended()
        assert methods(post) == ["notifications/message"]
        await stage.assert_nothing_is_left()


async def test_a_cancel_purges_the_outbox_and_leaves_a_taken_batch(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool(), id=7)
        call = await stage.call()
        post.stall()
        taken = await call.ctx.info("taken")
        await stage.quiet()
        waiting = await call.ctx.info("waiting")
        await cancel(session, 7)
        assert (taken.fate, waiting.fate) == (None, CANCELLED)
        post.resume()
        await post.ended()
        assert taken.fate == DELIVERED
        assert [m["params"]["data"] for m in post.messages] == ["taken"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_cancel_on_a_shared_channel_purges_what_waits_for_that_request_alone(
    era, autojump_clock
):  # T-8
    async with staged() as stage, stage.wire("2025-11-25") as wire:
        meta = {"_meta": {**CLAIM, "io.modelcontextprotocol/logLevel": "info"}} if era == "modern" else {}
        for number in (1, "1"):
            await wire.say("tools/call", {**tool(repr(number)), **meta}, number)
        mine, other = await stage.call("1"), await stage.call("'1'")
        wire.stall()
        taken = await mine.ctx.info("taken")
        await stage.quiet()
        waiting = [await call.ctx.info("waiting") for call in (mine, other, mine)]
        await wire.say("notifications/cancelled", {"requestId": 1})
        await stage.quiet()
        assert [receipt.fate for receipt in [taken, *waiting]] == [None, CANCELLED, None, CANCELLED]
        assert (mine.outcome, other.outcome) == ("cancelled", "running")
        wire.resume()
        other.finish()
        await stage.quiet()
        assert short(wire.got) == ["notifications/message", "notifications/message", "1"]


async def test_a_cancel_after_the_reply_is_in_the_outbox_is_ignored(autojump_clock):  # C-4
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool(), id=7)
        call = await stage.call()
        post.stall()
        await call.ctx.info("being written")
        await stage.quiet()
        call.finish()
        await stage.quiet()
        await cancel(session, 7)
        post.resume()
        assert (await post.reply())["result"]["content"][0]["text"] == "held "
        await stage.assert_nothing_is_left()


async def test_a_cancel_of_an_unknown_or_misspelt_id_does_nothing(autojump_clock):  # C-4
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool(), id=1)
        call = await stage.call()
        await cancel(session, "1")
        await cancel(session, 2)
        await session.notify("notifications/cancelled", {"requestId": [1]}).ended()
        call.finish()
        assert (await post.reply())["id"] == 1


async def test_a_session_cannot_cancel_what_another_session_or_a_modern_post_runs(autojump_clock):  # C-2, X-5
    async with staged() as stage:
        one, other = await stage.probe.initialize(), await stage.probe.initialize()
        mine = one.request("tools/call", tool("mine"), id=1)
        modern = stage.probe.request("tools/call", tool("modern"), id=1)
        await cancel(other, 1)
        await stage.probe.post(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
            {"mcp-protocol-version": "2026-07-28"},
        ).ended()
        for key in ("mine", "modern"):
            (await stage.call(key)).finish()
        assert (await mine.reply())["id"] == (await modern.reply())["id"] == 1


@pytest.mark.parametrize("revision", [*LEGACY, "2026-07-28"])
async def test_a_cancel_on_a_shared_channel_reaches_the_request_in_both_eras(revision, autojump_clock):
    async with staged() as stage, stage.bus.connect(revision=revision) as client:
        with trio.move_on_after(5):
            await client.call_tool("hold")
        await stage.quiet()
        assert stage.calls[""].outcome == "cancelled"
        assert (await client.call_tool("quick"))["content"][0]["text"] == "quick"
        assert stage.bus.statistics().requests == 0


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("revision", LEGACY)
async def test_a_legacy_request_runs_on_when_its_connection_is_lost(revision, begun, autojump_clock):  # W-15
    async with staged() as stage:
        session = await stage.probe.initialize(revision)
        post = session.request("tools/call", tool(), id=7)
        call = await stage.call()
        if begun:
            await call.ctx.info("begun")
            await post.message()
        post.disconnect()
        await stage.quiet()
        assert call.outcome == "running"
        assert (await call.ctx.info("gone")).fate == Fate.discarded(Reason.NO_STREAM)
        # It is still in flight: its id is taken, and it can be cancelled.
        again = await session.request("tools/call", tool("again"), id=7).reply()
        assert again["error"]["code"] == -32600
        call.finish()
        await stage.quiet()
        assert call.outcome == "returned"
        assert stage.books()[1]["NO_STREAM"] == 2
        await stage.assert_nothing_is_left()


async def test_an_abandoned_legacy_request_is_cancelled_after_five_minutes(autojump_clock, caplog):
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool())
        call = await stage.call()
        post.disconnect()
        await trio.sleep(299)
        assert call.outcome == "running"
        await trio.sleep(2)
        assert call.outcome == "cancelled"
        assert "abandoned" in caplog.text
        await stage.assert_nothing_is_left()


async def test_a_lost_request_can_still_be_cancelled(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool(), id=3)
        call = await stage.call()
        post.disconnect()
        await stage.quiet()
        await cancel(session, 3)
        await stage.quiet()
        assert call.outcome == "cancelled"
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("response", ["auto", "json", "sse"])
async def test_a_modern_request_is_cancelled_by_a_disconnect_at_once(
    response, autojump_clock
):  # C-6
    async with staged(response=response) as stage:
        post = stage.probe.request("tools/call", tool(), log_level="debug")
        call = await stage.call()
        post.disconnect()
        await stage.quiet()
        assert call.outcome == "cancelled"
        assert (await call.ctx.info("late")).fate == CANCELLED
        await stage.assert_nothing_is_left()


async def test_a_modern_disconnect_during_a_write_loses_the_batch(autojump_clock):
    async with staged() as stage:
        post = stage.probe.request("tools/call", tool(), log_level="debug")
        call = await stage.call()
        post.stall()
        taken = await call.ctx.info("taken")
        await stage.quiet()
        waiting = await call.ctx.info("waiting")
        post.disconnect()
        await stage.quiet()
        assert (taken.fate, waiting.fate) == (Fate.discarded(Reason.LOST), CANCELLED)
        assert call.outcome == "cancelled"
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_takes_nothing_for_the_write_deadline_loses_its_connection(begun, autojump_clock):
    async with staged() as stage:
        post = stage.probe.request("tools/call", tool(), log_level="debug")
        call = await stage.call()
        if begun:
            await call.ctx.info("begun")
            await post.message()
        post.stall()
        lost = await call.ctx.info("lost")
        await trio.sleep(29)
        assert call.outcome == "running"
        await trio.sleep(2)
        assert lost.fate == Fate.discarded(Reason.LOST)
        assert call.outcome == "cancelled"
        post.disconnect()
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_a_client_that_does_not_take_an_immediate_answer_is_given_up_too(method, autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request(method, {"name": "quick"})
        post.stall()
        await trio.sleep(31)
        assert stage.books() == ({}, {"LOST": 1})
        post.disconnect()
        await stage.assert_nothing_is_left()


async def test_a_quiet_call_becomes_a_stream_after_the_keep_alive_time(autojump_clock):
    async with staged() as stage:
        post = stage.probe.request("tools/call", tool())
        call = await stage.call()
        await trio.sleep(14)
        assert post.status is None
        await trio.sleep(2)
        assert (post.status, post.is_stream, post.comments) == (200, True, 1)
        await trio.sleep(15)
        assert post.comments == 2
        call.finish()
        assert (await post.reply())["result"]


async def test_what_is_said_after_the_reply_is_discarded_and_stays_off_the_stream(autojump_clock):  # P-4, P-9
    async with staged() as stage:
        post = stage.probe.request("tools/call", tool(), log_level="debug", progress_token="t")
        call = await stage.call()
        await call.ctx.progress(1)
        call.finish()
        await post.reply()
        for receipt in (await call.ctx.info("late"), await call.ctx.progress(2)):
            assert receipt.fate == Fate.discarded(Reason.FINISHED)
        await stage.quiet()
        assert methods(post)[:-1] == ["notifications/progress"]
