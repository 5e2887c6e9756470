"""Why what is said too late reaches nobody: each way in which something ends has a reason of its own."""

import json

import pytest
import trio
from mcpbus_actors import DeadLetterReason
from staging import CLAIM, staged, tool

from mcpbus import Context
from mcpbus.asking import InputUnavailableError
from mcpbus.core import hub
from mcpbus.core.message_builder import DRAWN_UP
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbound import OutboundNotification
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.receipt import DELIVERED, Fate
from mcpbus.core.sessions.messages import OpenGet
from mcpbus.core.signals import Finish
from mcpbus.dispatch import dispatcher
from mcpbus.protocol.jsonrpc import decode
from mcpbus.protocol.meta import SUBSCRIPTION_ID
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason, StreamKind
from mcpbus.stores import MemoryEventStore
from mcpbus.transports.duplex import DuplexChannel
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_writer import ResponseWriter
from mcpbus.transports.responses import GET_FORMAT


async def stalled_get(stage, session):
    """Open a GET stream whose client takes nothing."""
    get = await session.get().begun()
    await stage.quiet()
    get.stall()
    return get


async def answered(stage):
    session = await stage.probe.initialize()
    session.request("tools/call", tool(), id=7)
    call = await stage.call()
    call.finish()
    return call.ctx


async def failed(stage):
    session = await stage.probe.initialize()
    session.request("tools/call", tool(), id=7)
    call = await stage.call()
    call.finish(ValueError("no"))
    return call.ctx


async def cancelled(stage):
    session = await stage.probe.initialize()
    session.request("tools/call", tool(), id=7)
    call = await stage.call()
    await session.notify("notifications/cancelled", {"requestId": 7}).ended()
    return call.ctx


async def deleted(stage):
    session = await stage.probe.initialize()
    session.request("tools/call", tool(), id=7)
    call = await stage.call()
    await session.delete().ended()
    return call.ctx


async def closed(stage):
    session = await stage.probe.initialize()
    session.request("tools/call", tool(), id=7)
    call = await stage.call()
    stage.bus.sessions[session.id].close()
    return call.ctx


async def abandoned(stage):
    session = await stage.probe.initialize()
    post = session.request("tools/call", tool(), id=7)
    call = await stage.call()
    post.disconnect()
    await trio.sleep(stage.bus.limits.abandoned_timeout + 1)
    return call.ctx


async def left_by_a_modern_client(stage):
    post = stage.probe.request("tools/call", tool(), log_level="info")
    call = await stage.call()
    post.disconnect()
    return call.ctx


async def hung_up(stage):
    async with stage.wire("2025-11-25") as wire:
        await wire.say("tools/call", tool(), 1)
        return (await stage.call()).ctx


async def hung_up_by_a_modern_client(stage):
    async with stage.wire() as wire:
        meta = {**CLAIM, "io.modelcontextprotocol/logLevel": "info"}
        await wire.say("tools/call", {**tool(), "_meta": meta}, 1)
        return (await stage.call()).ctx


async def answered_at_once(stage):
    kept = []

    @stage.server.tool
    async def short(ctx: Context) -> str:
        kept.append(ctx)
        return "done"

    session = await stage.probe.initialize()
    await session.request("tools/call", {"name": "short"}).reply()
    return kept[0]


async def crashed(stage):
    def boom(*_):
        raise ValueError("boom")

    session = await stage.probe.initialize()
    post = session.request("tools/call", tool(), id=7)
    call = await stage.call()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DRAWN_UP, OutboundNotification, boom)
        await call.ctx.info("boom")
    await post.ended()
    return call.ctx


ENDS = {
    answered: Reason.FINISHED,
    failed: Reason.FINISHED,
    cancelled: Reason.CANCELLED,
    deleted: Reason.SESSION_ENDED,
    closed: Reason.FINISHED,
    abandoned: Reason.CANCELLED,
    left_by_a_modern_client: Reason.CANCELLED,
    hung_up: Reason.SESSION_ENDED,
    hung_up_by_a_modern_client: Reason.SESSION_ENDED,
    answered_at_once: Reason.FINISHED,
    crashed: Reason.INTERNAL_ERROR,
}


@pytest.mark.failing
@pytest.mark.parametrize(("end", "reason"), ENDS.items(), ids=lambda value: getattr(value, "__name__", ""))
async def test_what_a_handler_says_after_the_end_is_discarded_for_the_reason_of_it(
    end, reason, autojump_clock
):
    async with staged() as stage:
        ctx = await end(stage)
        await stage.quiet()
        with trio.CancelScope(shield=True):
            receipt = await ctx.info("late")
        assert receipt.fate == Fate.discarded(reason)


@pytest.mark.parametrize(
    ("discard", "reason"),
    [
        (DeadLetterReason.FULL, Reason.OVERFLOW),
        (DeadLetterReason.STOPPED, Reason.FINISHED),
        (DeadLetterReason.FAILED, Reason.INTERNAL_ERROR),
        (DeadLetterReason.CLOSED, Reason.SESSION_ENDED),
    ],
)
async def test_what_no_actor_handled_is_discarded_for_the_reason_of_that(discard, reason, autojump_clock):
    async with staged() as stage:
        said = OutboundNotification(MessageKind.LOG, stage.bus.ledger.emit("m"), b"{}")
        hub.settle(hub.DeadLetter(None, said, discard))
        assert said.receipt.fate == Fate.discarded(reason)


@pytest.mark.failing
async def test_what_waits_for_a_stream_that_crashes_failed_and_what_was_being_written_is_lost(autojump_clock):
    def boom(*_):
        raise ValueError("boom")

    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool(), id=7)
        call = await stage.call()
        post.stall()
        written = await call.ctx.info("being written")
        await stage.quiet()
        waiting = await call.ctx.info("waiting")
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(MessageStream.HANDLERS, Finish, boom)
            call.ctx._call.stream.address.tell(Finish())
        await stage.quiet()
        assert (written.fate, waiting.fate) == (
            Fate.discarded(Reason.LOST),
            Fate.discarded(Reason.INTERNAL_ERROR),
        )


async def test_what_is_said_to_a_stream_that_is_about_to_end_is_too_late(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        await stalled_get(stage, session)
        inside = stage.bus.sessions[session.id]
        stream = inside.address._mailbox._actor._delivery.get
        inside.notify("notifications/x")
        await stage.quiet()
        stream.address.tell(Finish())
        assert inside.notify("notifications/x").fate == Fate.discarded(Reason.FINISHED)


@pytest.mark.parametrize(("era", "reason"), [("legacy", "SESSION_ENDED"), ("modern", "CANCELLED")])
async def test_what_waits_for_a_shared_channel_that_breaks_is_discarded_as_its_era_has_it(
    era, reason, autojump_clock
):
    async with staged() as stage, stage.wire("2025-11-25") as wire:
        modern = {"_meta": {**CLAIM, "io.modelcontextprotocol/logLevel": "info"}}
        await wire.say("tools/call", {**tool(), **(modern if era == "modern" else {})}, 1)
        call = await stage.call()
        wire.stall()
        await call.ctx.info("being written")
        await stage.quiet()
        waiting = await call.ctx.info("waiting")
        stage.bus.system.stop(call.ctx._call.stream.address)
        assert waiting.fate == Fate.discarded(Reason[reason])
        assert (await call.ctx.info("late")).fate == Fate.discarded(Reason[reason])
        wire.resume()


async def test_what_waits_for_a_get_stream_that_ends_with_its_session_went_with_that(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        get = await stalled_get(stage, session)
        inside = stage.bus.sessions[session.id]
        written = inside.notify("notifications/x")
        await stage.quiet()
        waiting = inside.notify("notifications/x")
        await session.delete().ended()
        await stage.quiet()
        assert waiting.fate == Fate.discarded(Reason.SESSION_ENDED)
        assert inside.notify("notifications/x").fate == Fate.discarded(Reason.SESSION_ENDED)
        get.resume()
        await get.ended()
        assert written.fate == DELIVERED


async def test_what_is_held_for_a_session_that_ends_went_with_it(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        held = stage.bus.sessions[session.id].notify("notifications/x")
        await session.delete().ended()
        assert held.fate == Fate.discarded(Reason.SESSION_ENDED)


async def test_what_a_get_stream_had_that_nobody_returns_to_after_its_session_went_with_that(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        get = await stalled_get(stage, session)
        inside = stage.bus.sessions[session.id]
        inside.notify("notifications/x")
        await stage.quiet()
        waiting = inside.notify("notifications/x")
        inside.close()
        get.disconnect()
        await stage.quiet()
        assert waiting.fate == Fate.discarded(Reason.SESSION_ENDED)


@pytest.mark.eagerness
@pytest.mark.parametrize("found", [False, True])
async def test_a_handler_that_ends_the_program_leaves_no_request_behind(found, autojump_clock):
    async with staged() as stage:
        kept = []

        @stage.server.tool
        async def interrupted(ctx: Context) -> str:
            kept.append(ctx)
            if found:
                assert [slot.address.stopped for slot in stage.bus.admission] == [False]
            raise KeyboardInterrupt

        meta = {**CLAIM, "io.modelcontextprotocol/logLevel": "info"}
        params = {"name": "interrupted", "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        with DuplexChannel(stage.bus, None) as channel:
            _, request = channel.requests.judge(decode(json.dumps(body).encode()), dispatcher.admit)
            with pytest.raises(KeyboardInterrupt):
                request.run(trio.CancelScope())
            assert stage.bus.statistics().requests == 0
            assert stage.bus.statistics().emitted == found, "it is not answered twice"
            late = (await kept[0].info("late")).fate
            assert late == Fate.discarded(Reason.FINISHED if found else Reason.INTERNAL_ERROR)


# -- what an end takes with it -------------------------------------------------------------------


async def test_a_cancelled_listen_takes_with_it_what_waits_for_it_and_for_no_other(autojump_clock):
    async with staged() as stage, stage.wire() as wire:
        for number in (1, 2):
            wanted = {"notifications": {"toolsListChanged": True}, "_meta": CLAIM}
            await wire.say("subscriptions/listen", wanted, number)
        await stage.quiet()
        wire.stall()
        stage.bus.prompts_changed()
        taken = stage.bus.tools_changed()
        await stage.quiet()
        waiting = stage.bus.tools_changed()
        await wire.say("notifications/cancelled", {"requestId": 1})
        await stage.quiet()
        assert [receipt.fate for receipt in waiting] == [Fate.discarded(Reason.CANCELLED), None]
        wire.resume()
        await stage.quiet()
        assert [receipt.fate for receipt in [*taken, *waiting][:2]] == [DELIVERED] * 2
        assert waiting[1].fate == DELIVERED


async def test_of_a_listen_that_its_client_has_cancelled_nothing_more_is_said(autojump_clock):  # S-15
    async with staged() as stage, stage.wire() as wire:
        for number in (1, 2):
            wanted = {"notifications": {"toolsListChanged": True}, "_meta": CLAIM}
            await wire.say("subscriptions/listen", wanted, number)
        await stage.quiet()
        stage.bus.tools_changed()
        await stage.quiet()
        heard = len(wire.got)
        await wire.say("notifications/cancelled", {"requestId": 1})
        await stage.quiet()
        stage.bus.tools_changed()
        await stage.quiet()
        stamps = [m["params"]["_meta"][SUBSCRIPTION_ID] for m in wire.got[heard:]]
        assert stamps == [2], "neither a change nor a result of the first"


async def test_an_unsubscribe_of_a_session_leaves_the_updates_of_a_listen_on_the_same_channel(autojump_clock):
    async with staged() as stage, stage.wire("2025-11-25") as wire:
        await wire.say("resources/subscribe", {"uri": "res://a/b"}, 1)
        wanted = {"notifications": {"resourceSubscriptions": ["res://a/b"]}, "_meta": CLAIM}
        await wire.say("subscriptions/listen", wanted, 2)
        await stage.quiet()
        wire.stall()
        for session in stage.bus.sessions.values():
            session.notify("notifications/x")
        await stage.quiet()
        updates = stage.bus.resource_updated("res://a/b")
        await wire.say("resources/unsubscribe", {"uri": "res://a/b"}, 3)
        await stage.quiet()
        unwanted = Fate.discarded(Reason.NOT_SUBSCRIBED)
        assert sorted([receipt.fate for receipt in updates], key=bool) == [None, unwanted]
        wire.resume()
        await stage.quiet()
        assert {receipt.fate for receipt in updates} == {DELIVERED, unwanted}


async def test_a_request_that_is_answered_withdraws_what_it_asked(autojump_clock):
    async with staged() as stage:

        @stage.server.tool
        async def ended(ctx: Context) -> str:
            with pytest.raises(InputUnavailableError):
                await ctx.elicit("Name?", str)
            return "never"

        session = await stage.probe.initialize(capabilities={"elicitation": {}})
        post = session.request("tools/call", {"name": "ended"})
        question = await post.message()
        stage.bus.sessions[session.id].close()
        messages = [await post.message(), await post.message()]
        assert messages[0]["method"] == "notifications/cancelled"
        assert messages[0]["params"]["requestId"] == question["id"]
        assert messages[1]["error"]["code"] == -32603


async def test_a_question_that_a_cancellation_does_not_reach_fails_with_its_request(autojump_clock):
    async with staged() as stage:
        failed = []

        @stage.server.tool
        async def deaf(ctx: Context) -> str:
            with trio.CancelScope(shield=True):
                try:
                    await ctx.elicit("Name?", str)
                except InputUnavailableError:
                    failed.append(trio.current_time())
                await trio.sleep(5)
            return "never"

        session = await stage.probe.initialize(capabilities={"elicitation": {}})
        post = session.request("tools/call", {"name": "deaf"}, id=7)
        await post.message()
        now = trio.current_time()
        await session.notify("notifications/cancelled", {"requestId": 7}).ended()
        await trio.sleep(1)
        assert failed == [now]


# -- what was not written in time ----------------------------------------------------------------


async def test_what_missed_the_write_deadline_is_lost_and_nothing_is_written_after_it(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool(), id=7)
        call = await stage.call()
        post.stall()
        late = await call.ctx.info("late")
        await trio.sleep(stage.bus.limits.write_deadline - 1)
        assert late.fate is None
        waiting = await call.ctx.info("waiting")
        await trio.sleep(2)
        assert late.fate == Fate.discarded(Reason.LOST)
        assert waiting.fate == Fate.discarded(Reason.NO_STREAM)
        post.resume()
        await stage.quiet()
        assert post.messages == []


async def test_what_a_stream_that_can_be_come_back_to_loses_before_it_is_kept_is_lost(autojump_clock):
    async with staged(event_store=MemoryEventStore()) as stage:
        session = stage.bus.sessions[(await stage.probe.initialize()).id]
        stream = stage.bus.open_stream(StreamKind.STANDALONE, session)
        session.address.tell(OpenGet(stream))
        with stream.attach() as writer:
            stream.log.offer()
            receipt = session.notify("notifications/x")
            writer.take_now()
        assert receipt.fate == Fate.discarded(Reason.LOST)
        assert not stream.stopped


class Slow:
    """A response whose writes take their time, and cannot be cancelled where they are `stubborn`."""

    bounds_writes = False

    def __init__(self, seconds, *, stubborn):
        self.seconds = seconds
        self.stubborn = stubborn
        self.written = []

    def give_up(self):
        pass

    async def write(self, data, *, more):
        with trio.CancelScope(shield=self.stubborn):
            await trio.sleep(self.seconds)
        self.written.append(data)


@pytest.mark.parametrize(("cut", "stubborn"), [(False, False), (True, False), (True, True)])
async def test_what_is_written_too_late_or_as_its_connection_is_cut_is_lost(cut, stubborn, autojump_clock):
    """Also where the write of what was cut off returns as if nothing were."""
    async with staged() as stage:
        session = stage.bus.sessions[(await stage.probe.initialize()).id]
        stream = stage.bus.open_stream(StreamKind.STANDALONE, session)
        session.address.tell(OpenGet(stream))
        response = Slow(stage.bus.limits.write_deadline + (-1 if cut else 1), stubborn=stubborn)
        receipt = session.notify("notifications/x")
        with stream.attach() as writer, trio.CancelScope() as connection:
            response_writer = ResponseWriter(
                response, StreamedResponse(stream, writer, GET_FORMAT, None), started=True
            )
            if cut:
                connection.deadline = trio.current_time() + 1
            assert not await response_writer.step(connection, stage.bus.limits)
        assert len(response.written) == stubborn
        assert receipt.fate == Fate.discarded(Reason.LOST)


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_shared_channel_whose_client_takes_nothing_in_time_is_written_to_no_more(
    given_up, autojump_clock
):
    """Nor one that was given up meanwhile, where the write to it returns as if nothing were."""
    async with staged() as stage:
        written, whole = [], []
        seconds = stage.bus.limits.write_deadline

        async def send(batch):
            with trio.CancelScope(shield=given_up):
                await trio.sleep(seconds - 1 if given_up else seconds + 1)
            written.append(batch)

        async def write(channel):
            whole.append(await channel.write(send))

        with DuplexChannel(stage.bus, None) as channel, trio.fail_after(10 * seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write, channel)
                await channel.receive(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
                await trio.sleep(1)
                await channel.receive(b'{"jsonrpc":"2.0","id":2,"method":"ping"}')
                if given_up:
                    channel.writer.connection.cancel()
            assert whole == [False]
            assert len(written) == given_up
        assert stage.bus.statistics().delivered == 0
        assert stage.bus.statistics().discarded[Reason.LOST] == 1


async def test_a_message_has_the_reason_of_its_owner_even_as_an_outgoing_one(autojump_clock):
    async with staged() as stage:
        receipt = stage.bus.ledger.emit("m")
        message = OutboundMessage(MessageKind.LOG, Era.LEGACY, b"{}", receipt)
        hub.settle(hub.DeadLetter(None, message, DeadLetterReason.FAILED))
        assert receipt.fate == Fate.discarded(Reason.INTERNAL_ERROR)


async def test_what_waits_for_a_request_whose_session_its_client_deletes_says_so(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        post = session.request("tools/call", tool())
        call = await stage.call()
        await call.ctx.info("begun")
        await post.message()
        post.stall()
        await call.ctx.info("being written")
        await stage.quiet()
        waiting = await call.ctx.info("waiting")
        await session.delete().ended()
        assert waiting.fate == Fate.discarded(Reason.SESSION_ENDED)
