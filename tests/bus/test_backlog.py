"""More is said than is handled at once: nothing that somebody waits for is refused, and nobody waits for long."""

import json
from collections import Counter
from contextlib import contextmanager
from unittest.mock import Mock

import pytest
import trio
import trio.lowlevel
from staging import OneTurn, staged, tool

from mcpbus import Context
from mcpbus.core.hub import may_drop
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbound import OutboundNotification, Progress
from mcpbus.core.outbox import BOUNDED, OutboundMessage
from mcpbus.core.receipt import DELIVERED, STORED, Fate, Location
from mcpbus.core.request_actor import RequestActor
from mcpbus.core.sessions.actor import SessionActor
from mcpbus.core.sessions.messages import CancelRequest, CloseSession, EndGet, OpenGet
from mcpbus.core.signals import Abort, Cancel, Ending, FailRequest, InputResponseReceived, Supersede
from mcpbus.core.subscription import SubscriptionActor
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.jsonrpc import JsonRpcResponse
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason, StreamKind
from mcpbus.stores import MemoryEventStore
from mcpbus.tasks import TASKS

TALKERS, LINES, CALLS = 6, 3_000, 400
ANSWER = b'{"action":"accept","content":{"value":"x"}}'


class Restless:
    """An actor that is never done: what tasks tell from now on waits until the scheduler comes round to it."""

    def __init__(self, cell):
        self._cell = cell

    def handle(self, message):
        self._cell.address.tell(message)


@contextmanager
def backlog(bus):
    restless = bus.system.spawn(Restless)
    restless.tell("go on")
    assert bus.system.dispatcher.behind
    yield
    bus.system.stop(restless)


def crowd(address, message):
    """Tell an actor so much that its mailbox takes no more of that, from within a turn."""
    while address.tell(message()) is None:
        pass


class Watch(trio.abc.Instrument):
    """Counts the turns of the scheduler, and those with a backlog."""

    def __init__(self, bus):
        self.turns = self.behind = 0
        self._dispatcher = bus.system.dispatcher

    def before_io_wait(self, timeout):
        self.turns += 1
        self.behind += self._dispatcher.behind


async def test_who_speaks_in_loops_harms_nobody_while_a_connection_ends_with_calls_in_flight(autojump_clock):
    """That end is more than is handled at once, and those who speak in loops never pause."""
    async with staged() as stage:
        receipts, watch = [], Watch(stage.bus)

        @stage.server.tool
        async def talk(ctx: Context) -> str:
            for number in range(LINES):
                receipts.append(await ctx.info(number))
            return "done"

        @stage.server.tool
        async def once() -> str:
            await trio.lowlevel.checkpoint()
            return "once"

        trio.lowlevel.add_instrument(watch)
        async with stage.bus.connect(revision="2025-11-25") as client, stage.wire("2025-11-25") as wire:
            for number in range(1, CALLS + 1):
                await wire.say("tools/call", tool(f"{number}"), number)
            calls = [await stage.call(f"{number}") for number in range(1, CALLS + 1)]
            receipts += [await call.ctx.info("held") for call in calls]
            async with trio.open_nursery() as nursery:
                for _ in range(TALKERS):
                    nursery.start_soon(client.call_tool, "talk")
                wire.hang_up()
                latest = 0
                for _ in range(20):
                    begun = watch.turns
                    await client.call_tool("once")
                    latest = max(latest, watch.turns - begun)
        trio.lowlevel.remove_instrument(watch)
        await stage.quiet()
        assert watch.behind, "there was no backlog"
        assert latest < 20
        fates = Counter(receipt.fate for receipt in receipts)
        assert fates[DELIVERED] >= TALKERS * LINES
        assert {fate.reason for fate in fates} <= {None, Reason.SESSION_ENDED, Reason.CANCELLED}
        await stage.assert_nothing_is_left()


async def test_whoever_speaks_into_a_backlog_loses_nothing_to_a_client_that_reads(autojump_clock):
    """However little may wait for the client, and however much is said without a pause."""
    async with staged(limits={"outbox_items": 8}) as stage:
        receipts = []

        @stage.server.tool
        async def talk(ctx: Context) -> str:
            receipts.extend([await ctx.info(number) for number in range(100)])
            return "done"

        async with stage.bus.connect(revision="2025-11-25") as client:
            with backlog(stage.bus):
                await client.call_tool("talk")
        assert {receipt.fate for receipt in receipts} == {DELIVERED}


@pytest.mark.parametrize("who", ["handlers", "a session"])
async def test_long_messages_that_are_said_into_a_backlog_do_not_wait_uncounted(who, autojump_clock):
    """One at most, whoever speaks: all others are where it is counted, and bounded, what waits."""
    async with staged(limits={"outbox_bytes": 50_000}) as stage:
        client = await stage.probe.initialize()
        session, line, told = stage.bus.sessions[client.id], "x" * 10_000, []
        for number in range(20):
            client.request("tools/call", tool(f"{number}"), id=number + 1)
        calls = [await stage.call(f"{number}") for number in range(20)]
        for call in calls:
            call.ctx._call.sink.address  # noqa: B018 - its request is active from now on
        waited = []

        async def say(call):
            waiting = [message for _, message in stage.bus.system.dispatcher.queue]
            waited.append(sum(len(getattr(message, "data", b"")) for message in waiting))
            speaker = call.ctx if who == "handlers" else session
            said = speaker.notify("notifications/x", {"line": line})
            told.append(await said if who == "handlers" else said)

        with backlog(stage.bus):
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(say, call)
        await stage.quiet()
        assert 10_000 < max(waited) < 11_000
        assert all(receipt.fate or receipt.location is not Location.MAILBOX for receipt in told)


async def test_long_messages_of_a_task_do_not_wait_uncounted_in_a_backlog_either(autojump_clock):
    """They are discarded, but not before its actor has seen them."""
    async with staged() as stage:
        waited, receipts = [], []

        async def say(ctx):
            waiting = [message for _, message in stage.bus.system.dispatcher.queue]
            waited.append(sum(len(getattr(message, "data", b"")) for message in waiting))
            receipts.append(await ctx.info("x" * 10_000))

        @stage.server.tool(task="required")
        async def talk(ctx: Context) -> str:
            with backlog(stage.bus):
                async with trio.open_nursery() as nursery:
                    for _ in range(20):
                        nursery.start_soon(say, ctx)
            return "done"

        able = {"extensions": {TASKS: {}}}
        async with stage.bus.connect(revision="2026-07-28", capabilities=able) as client:
            await client.call_tool("talk")
            await stage.quiet()
        assert 10_000 < max(waited) < 11_000
        assert {receipt.fate for receipt in receipts} == {Fate.discarded(Reason.IN_TASK)}


async def test_questions_of_modern_clients_are_all_answered_in_a_backlog(autojump_clock):
    async with staged() as stage:

        @stage.server.tool
        async def ask(ctx: Context, number: int) -> str:
            answers = [await ctx.elicit(f"{number} {n}", str) for n in range(3)]
            return " ".join(answer.data for answer in answers)

        async def on_input_request(method, params):
            return {"action": "accept", "content": {"value": params["message"]}}

        got = {}

        async def call(client, number):
            got[number] = (await client.call_tool("ask", {"number": number}))["content"][0]["text"]

        capabilities = {"elicitation": {}}
        async with stage.bus.connect(capabilities=capabilities, on_input_request=on_input_request) as client:
            with backlog(stage.bus):
                async with trio.open_nursery() as nursery:
                    for number in range(20):
                        nursery.start_soon(call, client, number)
        assert got == {number: f"{number} 0 {number} 1 {number} 2" for number in range(20)}
        await stage.assert_nothing_is_left()


def test_only_what_is_said_may_be_refused():
    actors = (RequestActor, SessionActor, MessageStream, SubscriptionActor)
    told = {kind for actor in actors for kind in getattr(actor, "HANDLERS", ()) or actor._HANDLERS}
    assert {kind for kind in told if may_drop(Mock(spec=kind))} == {OutboundNotification, Progress}
    for kind in MessageKind:
        assert may_drop(OutboundMessage(kind, Era.LEGACY, b"{}", None)) is (kind in BOUNDED)


class Crowded:
    """A stage with one of everything: a session with a GET stream and a call that asks, and a listen."""

    def __init__(self, stage):
        self.stage = stage
        self.asked = []

    async def open(self):
        stage = self.stage

        @stage.server.tool
        async def ask(ctx: Context) -> str:
            self.asked.append(await ctx.elicit("Name?", str))
            return "asked"

        self.client = await stage.probe.initialize(capabilities={"elicitation": {}})
        self.get = await self.client.get().begun()
        self.post = self.client.request("tools/call", tool(), id=7)
        self.asking = self.client.request("tools/call", {"name": "ask"}, id=8)
        self.listen = stage.probe.request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=9
        )
        self.question = (await self.asking.message())["id"]
        self.call = await stage.call()
        self.stream = self.call.ctx._call.sink.begin()
        self.session = stage.bus.sessions[self.client.id]
        [self.listening] = [slot.address for slot in stage.bus.listens]
        self.subscription = self.listening._mailbox._actor

    def request(self, request_id):
        return self.session.in_flight.find(request_id)

    async def is_over(self):
        await self.stage.quiet()
        assert self.stream.stopped

    def said(self, kind):
        receipt = self.stage.bus.ledger.emit("notifications/x")
        return OutboundNotification(
            kind, receipt, b'{"jsonrpc":"2.0","method":"notifications/x"}', None, LogLevel.INFO
        )

    def outgoing(self, kind, era):
        said = self.said(kind)
        return OutboundMessage(kind, era, said.data, said.receipt)

    def crowd(self, whom):
        """Fill a mailbox, from within a turn."""
        fillings = {
            "session": lambda: (self.session.address, lambda: self.said(MessageKind.SESSION_LOG)),
            "request": lambda: (self.request(7), lambda: self.said(MessageKind.LOG)),
            "asking": lambda: (self.request(8), lambda: self.said(MessageKind.LOG)),
            "stream": lambda: (self.stream.address, lambda: self.outgoing(MessageKind.LOG, Era.LEGACY)),
            "listen": lambda: (self.listening, lambda: self.said(MessageKind.LIST_CHANGED)),
            "listen stream": lambda: (
                self.subscription._stream.address,
                lambda: self.outgoing(MessageKind.LIST_CHANGED, Era.MODERN),
            ),
        }
        crowd(*fillings[whom]())


async def ends(recording):
    await recording.ended(timeout=1)


async def is_answered(recording):
    assert "id" in await recording.reply(timeout=1)


ESSENTIAL = {
    # what is done in one turn, while the mailbox of somebody whom it concerns is full; what must come of it
    "DELETE": (
        lambda it: (it.crowd("session"), it.session.address.tell(CloseSession(None))),
        lambda it: ends(it.get),
    ),
    "the end of a GET": (
        lambda it: (it.crowd("session"), it.session.address.tell(EndGet())),
        lambda it: ends(it.get),
    ),
    "a cancel, for the session": (
        lambda it: (it.crowd("session"), it.session.address.tell(CancelRequest(7))),
        lambda it: ends(it.post),
    ),
    "a cancel, for the request": (
        lambda it: (it.session.address.tell(CancelRequest(7)), it.crowd("request")),
        lambda it: ends(it.post),
    ),
    "a cancel, for the stream": (
        lambda it: (it.request(7).tell(Cancel()), it.crowd("stream")),
        lambda it: ends(it.post),
    ),
    "the end of a request": (
        lambda it: (it.crowd("request"), it.request(7).tell(FailRequest("why"))),
        lambda it: is_answered(it.post),
    ),
    "a reply": (
        lambda it: (it.request(7).tell(FailRequest("why")), it.crowd("stream")),
        lambda it: is_answered(it.post),
    ),
    "the end of a listen": (
        lambda it: (it.crowd("listen"), it.listening.tell(FailRequest("why"))),
        lambda it: is_answered(it.listen),
    ),
    "the result of a listen": (
        lambda it: (it.listening.tell(FailRequest("why")), it.crowd("listen stream")),
        lambda it: is_answered(it.listen),
    ),
    "an answer": (
        lambda it: (
            it.crowd("asking"),
            it.request(8).tell(InputResponseReceived(JsonRpcResponse(it.question, ANSWER))),
        ),
        lambda it: is_answered(it.asking),
    ),
    "a connection that has gone": (
        lambda it: (it.crowd("stream"), it.stream._writer.__exit__()),
        lambda it: it.is_over(),
    ),
}


@pytest.mark.parametrize(("deed", "outcome"), ESSENTIAL.values(), ids=ESSENTIAL)
async def test_a_full_mailbox_takes_what_somebody_waits_for(deed, outcome, autojump_clock):
    async with staged() as stage:
        it = Crowded(stage)
        await it.open()
        refused = []
        stage.bus.system.spawn(OneTurn).tell(lambda: refused.extend(deed(it)))
        assert refused == [None, None]
        await outcome(it)
        await stage.quiet()
        assert stage.bus.ledger.balance() == 0


# -- streams while there is a backlog ------------------------------------------------------------


async def opened(stage):
    """An HTTP session, from within, with a GET stream."""
    client = await stage.probe.initialize()
    get = await client.get().begun()
    await stage.quiet()
    return client, stage.bus.sessions[client.id], get


def newer_get(stage, session):
    """Open another GET stream of a session, and return its writing end."""
    stream = stage.bus.open_stream(StreamKind.STANDALONE, session)
    session.address.tell(OpenGet(stream))
    return stream, stream.attach()


def numbers(batch):
    return [json.loads(message.data)["params"]["n"] for message in batch]


@pytest.mark.parametrize("newer", [1, 2])
async def test_a_take_over_keeps_the_order_of_what_is_still_on_its_way_to_the_older_stream(
    newer, autojump_clock
):
    async with staged() as stage:
        _, session, get = await opened(stage)
        writers, receipts = [], []

        def say(numbers):
            receipts.extend(session.notify("notifications/x", {"n": n}) for n in numbers)

        def deed():
            say(range(5))
            for _ in range(newer):
                writers.append(newer_get(stage, session)[1])
                say(range(len(receipts), len(receipts) + 5))

        stage.bus.system.spawn(OneTurn).tell(deed)
        await stage.quiet()
        assert numbers(writers[-1].take_now()) == list(range(len(receipts)))
        writers[-1].settle_written()
        assert {receipt.fate for receipt in receipts} == {DELIVERED}
        assert (get.complete, get.messages) == (True, [])
        assert stage.bus.ledger.balance() == 0


async def test_an_unsubscribe_purges_what_is_between_two_streams(autojump_clock):
    async with staged() as stage:
        client, session, _ = await opened(stage)
        await client.request("resources/subscribe", {"uri": "res://a"}).reply()
        receipts, writers = [], []

        def deed():
            receipts.extend(stage.bus.resource_updated("res://a"))
            writers.append(newer_get(stage, session)[1])
            receipts.extend(stage.bus.resource_updated("res://a"))
            session.unsubscribe("res://a")

        stage.bus.system.spawn(OneTurn).tell(deed)
        await stage.quiet()
        assert [receipt.fate for receipt in receipts] == [Fate.discarded(Reason.NOT_SUBSCRIBED)] * 2
        assert writers[0].take_now() == []


@pytest.mark.parametrize("why", [None, "shutting down"])
async def test_no_get_outlives_its_session(why, autojump_clock):
    async with staged() as stage:
        _, session, get = await opened(stage)
        late = []

        def deed():
            session.address.tell(CloseSession(why))
            late.append(newer_get(stage, session)[0])

        stage.bus.system.spawn(OneTurn).tell(deed)
        late.append(newer_get(stage, session)[0])
        await stage.quiet()
        assert [stream.stopped for stream in late] == [True, True]
        await get.ended(timeout=1)


async def test_what_is_between_two_streams_when_its_session_ends_is_discarded(autojump_clock):
    async with staged() as stage:
        _, session, _ = await opened(stage)
        receipts = []

        def deed():
            receipts.append(session.notify("notifications/x"))
            newer_get(stage, session)
            receipts.append(session.notify("notifications/x"))
            session.address.tell(CloseSession(None))

        stage.bus.system.spawn(OneTurn).tell(deed)
        await stage.quiet()
        assert {receipt.fate for receipt in receipts} == {Fate.discarded(Reason.SESSION_ENDED)}
        assert stage.bus.ledger.balance() == 0


async def test_whoever_comes_back_to_a_stream_that_is_about_to_end_is_told(autojump_clock):
    async with staged() as stage:
        client = await stage.probe.initialize()
        client.request("tools/call", tool(), id=7)
        stream = (await stage.call()).ctx._call.sink.begin()
        got = []

        async def come_back():
            stream.address.tell(Abort(Ending.CLOSED, Reason.FINISHED))
            got.append(await stream.resume(trio.CancelScope()))

        async with trio.open_nursery() as nursery:
            with backlog(stage.bus):
                nursery.start_soon(come_back)
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
            await stage.quiet()
            nursery.cancel_scope.cancel()
        assert got == [None]


async def test_what_was_written_is_delivered_whatever_its_stream_was_told_before_it_hears_of_it(
    autojump_clock,
):
    async with staged() as stage:
        _, session, _ = await opened(stage)
        stream, writer = newer_get(stage, session)
        receipt = session.notify("notifications/x", {"n": 1})
        await stage.quiet()
        assert numbers(writer.take_now()) == [1]
        with backlog(stage.bus):
            stream.address.tell(Supersede())
            writer.settle_written()
        await stage.quiet()
        assert (stream.stopped, receipt.fate) == (True, DELIVERED)


async def test_what_was_written_when_the_system_closed_is_delivered(autojump_clock):
    async with staged() as stage:
        _, session, _ = await opened(stage)
        _, writer = newer_get(stage, session)
        receipt = session.notify("notifications/x", {"n": 1})
        await stage.quiet()
        writer.take_now()
        with backlog(stage.bus):
            writer.settle_written()
            stage.bus.system.close()
    assert receipt.fate == DELIVERED
    assert stage.bus.ledger.balance() == 0


async def test_what_was_stored_is_stored_whatever_its_stream_was_told_before_it_hears_of_it(autojump_clock):
    async with staged(event_store=MemoryEventStore()) as stage:
        _, session, _ = await opened(stage)
        stream, writer = newer_get(stage, session)
        receipt = session.notify("notifications/x", {"n": 1})
        await stage.quiet()
        with backlog(stage.bus), writer:
            writer.take_now()
            await writer.store_batch()
            stream.address.tell(Supersede())
        await stage.quiet()
        assert (stream.stopped, receipt.fate) == (True, STORED)


async def test_a_resource_is_subscribed_as_soon_as_its_client_is_told_so(autojump_clock):
    async with staged() as stage:
        _, session, _ = await opened(stage)
        with backlog(stage.bus):
            session.subscribe("res://a")
            assert len(stage.bus.resource_updated("res://a")) == 1
            session.unsubscribe("res://a")
            assert len(stage.bus.resource_updated("res://a")) == 0


async def test_nobody_subscribes_in_a_session_that_has_ended(autojump_clock):
    async with staged() as stage:
        _, session, _ = await opened(stage)
        session.subscribe("res://a")
        session.address.tell(CloseSession(None))
        session.subscribe("res://b")
        session.unsubscribe("res://a")
        assert len(stage.bus.topics) == 0
