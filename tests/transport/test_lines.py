"""A channel of lines: what comes in one piece is taken in order, by tasks of the bus, and read on when all of it is."""

import contextvars
import json
from contextlib import asynccontextmanager

import pytest
import trio
from channels import INITIALIZED, call, house, initialize, notification, request

from mcpbus import Context
from mcpbus.core.sessions.messages import CancelRequest
from mcpbus.transports.lines import run_channel

VARIABLE = contextvars.ContextVar("variable", default="unset")
BATCHES = "2025-03-26"


class Client:
    """The other end of the lines.

    Attributes:
        got: What was said to it.
        writes: How many messages there were in each write.
        reads: Set unless it takes nothing.
        ended: When the channel had ended; None before that.
        scope: That in which the channel is served.
    """

    def __init__(self):
        self.got = []
        self.writes = []
        self.reads = trio.Event()
        self.reads.set()
        self.ended = None
        self.scope = trio.CancelScope()
        self._into, self._pieces = trio.open_memory_channel(5_000)

    def say(self, *messages):
        """Say all of it in one piece."""
        self.say_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def say_bytes(self, piece):
        self._into.send_nowait(piece)

    def hang_up(self):
        self._into.close()

    @property
    def waiting(self):
        """How many pieces have not been read."""
        return self._pieces.statistics().current_buffer_used

    @property
    def ids(self):
        """What came, in short: the id of a reply, or the method of a notification."""
        return [message.get("id", message.get("method")) for message in self.got]

    async def run(self, bus, draining=None):
        with self.scope:
            await run_channel(bus, self._pieces, self._write, draining=draining)
        self.ended = trio.current_time()

    async def _write(self, data):
        await self.reads.wait()
        messages = [json.loads(line) for line in data.splitlines()]
        self.got += messages
        self.writes.append(len(messages))


@asynccontextmanager
async def served(revision=None, draining=None, **options):
    """Serve a client; nothing is left in the end."""
    async with house(**options) as home:
        client = Client()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run, home.bus, draining)
            if revision is not None:
                client.say(initialize(revision), INITIALIZED)
                await home.quiet()
                client.got.clear()
            client.writes.clear()
            yield home, client
            client.hang_up()
        await home.assert_nothing_is_left()


def pings(*ids):
    return [request(each, "ping") for each in ids]


async def test_what_comes_in_one_piece_is_answered_in_order_and_in_one_write(autojump_clock):
    async with served() as (home, client):
        client.say(*pings(*range(10)))
        await home.quiet()
        assert client.ids == list(range(10))
        assert client.writes == [10]


async def test_after_some_messages_in_a_row_others_have_their_turn(autojump_clock):
    async with served() as (home, client):
        client.say(*pings(*range(100)))
        await home.quiet()
        assert client.ids == list(range(100))
        assert max(client.writes) <= 32  # twice as many, if the writer's turn came after the next row


async def test_a_handler_that_waits_holds_nobody_up(autojump_clock):
    """Neither what came in the same piece, nor what comes after it."""
    async with served() as (_, client):
        naps = [call(n, "nap", {"seconds": 10 - n}, modern=True) for n in range(3)]
        client.say(naps[0], *pings(10), naps[1], *pings(11), naps[2], *pings(12))
        client.say(*pings(13))
        await trio.sleep(1)
        assert client.ids == [10, 11, 12, 13]
        await trio.sleep(10)
        assert client.ids == [10, 11, 12, 13, 2, 1, 0]


async def test_handlers_that_wait_begin_in_order_and_several_in_a_turn(autojump_clock):
    async with served(BATCHES) as (home, client):
        begun = []

        @home.bus.server.tool
        async def wait_once(number: int) -> str:
            begun.append(number)
            await trio.lowlevel.checkpoint()
            return ""

        def some(beginning):
            calls = [call(n, "wait_once", {"number": n}) for n in range(beginning, beginning + 40)]
            return [*calls[:20], pings(1000 + beginning), *calls[20:]]

        client.say(*some(0))  # those who run them are there from then on
        await home.quiet()
        client.say(*some(40))
        turns = 0
        while len(begun) < 80:
            await trio.lowlevel.checkpoint()
            turns += 1
        assert begun == list(range(80))
        assert turns < 30
        await home.quiet()
        assert {each for each in client.ids if isinstance(each, int)} == {*range(80), 1000, 1040}


async def test_what_is_said_comes_before_the_reply_and_in_order(autojump_clock):  # T-5
    async with served() as (home, client):
        client.say(call(1, "count", modern=True, token="t"), *pings(2))
        await home.quiet()
        progress = "notifications/progress"
        assert [each for each in client.ids if each != 2] == [progress, progress, 1]
        steps = [message["params"]["progress"] for message in client.got if message.get("method") == progress]
        assert steps == [1, 2]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_call_that_cancels_itself_does_no_harm_to_the_next_line(waits, autojump_clock):
    async with served("2025-11-25") as (home, client):
        outcomes = []

        @home.bus.server.tool
        async def give_up(ctx: Context) -> str:
            if waits:
                await trio.sleep(1)
            ctx.session.address.tell(CancelRequest(ctx.request_id))
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                outcomes.append("cancelled")
                raise
            return ""

        await home.quiet()
        client.got.clear()
        client.say(call(1, "give_up"), call(2, "nap", {"seconds": 2}), call(3, "give_up"), *pings(4))
        await trio.sleep(5)
        assert client.ids == [4, 2]
        assert outcomes == ["cancelled"] * 2


async def test_lines_and_an_array_are_taken_in_order(autojump_clock):
    async with served(BATCHES) as (home, client):
        client.say(*pings(1, 2), pings(3, 4), *pings(5), pings(6), *pings(7))
        await home.quiet()
        assert client.ids == [1, 2, 3, 4, 5, 6, 7]


async def test_many_arrays_hold_nobody_up(autojump_clock):
    async with served(BATCHES) as (_, client):
        client.say(*([each] for each in pings(*range(100))))
        turns = 0
        while len(client.ids) < 100:
            await trio.lowlevel.checkpoint()
            turns += 1
        assert turns > 50


async def test_a_long_line_waits_for_others_that_bring_much_and_what_follows_for_it(autojump_clock):
    async with served() as (home, client):
        async with home.bus.budget.line:
            client.say(*pings(1), request(2, "ping", {"x": "x" * 20_000}), *pings(3))
            await home.quiet()
            assert client.ids == [1]
        await home.quiet()
        assert client.ids == [1, 2, 3]


@pytest.mark.parametrize("ended", [True, False])
async def test_a_line_that_is_too_long_is_told_so_in_its_place(ended, autojump_clock):
    async with served(draining=trio.CancelScope(relative_deadline=5)) as (home, client):
        client.say_bytes(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n"')
        for _ in range(4 * 1024):
            client.say_bytes(b"x" * 1024)
        client.say_bytes(b'"\n{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n' if ended else b'"')
        client.hang_up()
        await home.quiet()
        assert client.ids == [1, None, 2] if ended else [1, None]
        assert client.got[1]["error"] == {
            "code": -32600,
            "message": "Invalid request: the line is longer than 4194304 bytes, and was not read",
        }


async def test_a_line_that_a_byte_of_zero_is_was_read(autojump_clock):
    async with served() as (home, client):
        client.say_bytes(b"\0\n")
        await home.quiet()
        assert client.got[0]["error"]["code"] == -32700


@pytest.mark.parametrize("batched", [False, True])
async def test_a_client_that_reads_nothing_is_not_read_further(batched, autojump_clock):
    most, number = 50_000, 500
    async with served(BATCHES, limits={"outbox_bytes": most}) as (home, client):
        client.reads = trio.Event()
        swells = [call(n, "swell", {"size": 1_000, "seconds": 0}) for n in range(number)]
        client.say(*([swells] if batched else swells))
        client.say(*pings(number))
        await trio.sleep(5)
        # What may wait, what was begun before it did, and what is being written, which is there twice.
        assert most < home.bus.budget.held < 2 * (most + 3 * 16 * 1_200)
        assert client.waiting == 1
        client.reads.set()
        await trio.sleep(5)
        assert sorted(client.ids) == list(range(number + 1))


async def test_no_more_is_answered_than_may_wait_by_handlers_that_do_not_wait(autojump_clock):
    async with served(limits={"outbox_bytes": 50_000}) as (home, client):

        @home.bus.server.tool
        async def large() -> str:
            return "x" * 20_000

        client.reads = trio.Event()
        client.say(*(call(n, "large", modern=True) for n in range(10)))
        await trio.sleep(5)
        # Three are too many; what is being written is there twice.
        assert home.bus.budget.held < 2 * 4 * 21_000
        client.reads.set()
        await trio.sleep(5)
        assert client.ids == list(range(10))


@pytest.mark.parametrize("batched", [False, True])
async def test_nothing_more_begins_once_nobody_is_connected(batched, autojump_clock):
    async with served(BATCHES) as (home, client):
        begun = []

        @home.bus.server.tool
        async def begin(number: int) -> str:
            begun.append(number)
            if number == 3:
                client.scope.cancel()
            return ""

        calls = [call(n, "begin", {"number": n}) for n in range(1, 500)]
        client.say(*([calls] if batched else calls))
        await home.quiet()
        assert client.ended is not None
        # Others still begin in the few turns in which the connection ends, 16 in each.
        assert len(begun) < 250


@pytest.mark.parametrize("batched", [False, True])
async def test_who_leaves_without_having_read_keeps_nobody_waiting_for_that(batched, autojump_clock):
    async with served(BATCHES, limits={"outbox_bytes": 50_000}) as (home, client):
        client.reads = trio.Event()
        swells = [call(n, "swell", {"size": 10_000, "seconds": 0}) for n in range(100)]
        client.say(*([swells] if batched else swells))
        await trio.sleep(5)
        assert home.bus.budget.held > 50_000
        client.scope.cancel()
        await home.assert_nothing_is_left()


async def test_the_end_waits_for_no_handlers_clean_up_and_others_are_served_meanwhile(autojump_clock):
    async with served() as (home, client):
        cleaned = []

        @home.bus.server.tool
        async def stubborn() -> str:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(10)
                cleaned.append(trio.current_time())
            return ""

        begun = trio.current_time()
        client.say(call(1, "stubborn", modern=True), call(2, "stubborn", modern=True))
        await trio.sleep(1)
        client.say(notification("notifications/cancelled", {"requestId": 1}), *pings(3))
        await trio.sleep(1)
        assert client.ids == [3]
        client.hang_up()
        await trio.sleep(1)
        assert client.ended == begun + 2
        await trio.sleep(20)
        assert cleaned == [begun + 11, begun + 12]


async def test_handlers_may_end_after_the_end_of_input_that_came_with_them(autojump_clock):
    async with served(draining=trio.CancelScope(relative_deadline=5)) as (_, client):
        begun = trio.current_time()
        client.say(
            *(call(n, "nap", {"seconds": n}, modern=True) for n in (3, 1)), call(9, "hang", modern=True)
        )
        client.hang_up()
        await trio.sleep(10)
        assert client.ids == [1, 3, 9]
        assert "error" in client.got[-1]
        assert client.ended == begun + 5


async def test_handlers_see_the_context_variables_of_whoever_serves(autojump_clock):
    VARIABLE.set("outer")
    async with served() as (home, client):

        @home.bus.server.tool
        async def look(wait: bool) -> str:
            if wait:
                await trio.sleep(1)
            seen = VARIABLE.get()
            VARIABLE.set("changed")
            return seen

        client.say(*(call(n, "look", {"wait": n % 2 == 0}, modern=True) for n in range(6)))
        await trio.sleep(5)
        assert [message["result"]["content"][0]["text"] for message in client.got] == ["outer"] * 6
    assert VARIABLE.get() == "outer"
