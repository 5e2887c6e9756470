"""More is said than is handled at once: nothing that somebody waits for is refused, and nobody waits for long."""

from collections import Counter
from unittest.mock import Mock

import pytest
import trio
from staging import staged, tool

from mcpbus import Context
from mcpbus.emission import Emission, Progress
from mcpbus.fate import DELIVERED, Reason
from mcpbus.mailboxes import expendable
from mcpbus.outbox import BOUNDED, Outgoing
from mcpbus.protocol.jsonrpc import Response
from mcpbus.protocol.levels import LogLevel
from mcpbus.protocol.revisions import Era
from mcpbus.request import Answered, Cancel, End, RequestActor
from mcpbus.routing import Kind
from mcpbus.session import CancelRequest, Close, EndGet
from mcpbus.session_actor import SessionActor
from mcpbus.stream_actor import StreamActor
from mcpbus.subscription import SubscriptionActor

TALKERS, LINES, CALLS = 6, 3_000, 400
ANSWER = b'{"action":"accept","content":{"value":"x"}}'


class OneTurn:
    """An actor that does all that it is told to in one turn."""

    def __init__(self, cell):
        pass

    def handle(self, deed):
        deed()


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


def test_only_what_is_said_may_be_refused():
    actors = (RequestActor, SessionActor, StreamActor, SubscriptionActor)
    told = {kind for actor in actors for kind in actor._HANDLERS}
    assert {kind for kind in told if expendable(Mock(spec=kind))} == {Emission, Progress}
    for kind in Kind:
        assert expendable(Outgoing(kind, Era.LEGACY, b"{}", None)) is (kind in BOUNDED)


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
        self.stream = self.call.ctx._carrier.stream
        self.session = stage.bus.sessions[self.client.id]
        [self.listening] = [slot.address for slot in stage.bus.listens]
        self.subscription = self.listening._cell._actor

    def request(self, request_id):
        return self.session.in_flight.find(request_id)

    async def is_over(self):
        await self.stage.quiet()
        assert self.stream.over

    def said(self, kind):
        receipt = self.stage.bus.ledger.enter("notifications/x")
        return Emission(kind, receipt, b'{"jsonrpc":"2.0","method":"notifications/x"}', None, LogLevel.INFO)

    def outgoing(self, kind, era):
        said = self.said(kind)
        return Outgoing(kind, era, said.data, said.receipt)

    def crowd(self, whom):
        """Fill a mailbox, from within a turn."""
        fillings = {
            "session": lambda: (self.session.address, lambda: self.said(Kind.SESSION_LOG)),
            "request": lambda: (self.request(7), lambda: self.said(Kind.LOG)),
            "asking": lambda: (self.request(8), lambda: self.said(Kind.LOG)),
            "stream": lambda: (self.stream.address, lambda: self.outgoing(Kind.LOG, Era.LEGACY)),
            "listen": lambda: (self.listening, lambda: self.said(Kind.LIST_CHANGED)),
            "listen stream": lambda: (
                self.subscription._ticket.stream.address,
                lambda: self.outgoing(Kind.LIST_CHANGED, Era.MODERN),
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
        lambda it: (it.crowd("session"), it.session.address.tell(Close(None))),
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
        lambda it: (it.crowd("request"), it.request(7).tell(End("why"))),
        lambda it: is_answered(it.post),
    ),
    "a reply": (
        lambda it: (it.request(7).tell(End("why")), it.crowd("stream")),
        lambda it: is_answered(it.post),
    ),
    "the end of a listen": (
        lambda it: (it.crowd("listen"), it.listening.tell(End("why"))),
        lambda it: is_answered(it.listen),
    ),
    "the result of a listen": (
        lambda it: (it.listening.tell(End("why")), it.crowd("listen stream")),
        lambda it: is_answered(it.listen),
    ),
    "an answer": (
        lambda it: (it.crowd("asking"), it.request(8).tell(Answered(Response(it.question, ANSWER)))),
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
