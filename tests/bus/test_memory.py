"""How much is kept in memory for clients: each kind of it counts, those that hold the most go, and in the end all is given back."""

import json
import tracemalloc
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing
from staging import CLAIM, HELLO, staged, tool

from mcpbus import Context, Limits, Reason, Server
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.testing import open_bus, open_probe, wait_until_idle
from mcpbus.transports.duplex import DuplexChannel
from tests.at_home import ONE_BUDGET

pytestmark = ONE_BUDGET


def speaker():
    server = Server("s", version="1")

    @server.tool
    async def large(size: int) -> str:
        return "x" * size

    return server


def request(request_id, name, **arguments):
    params = {"name": name, "arguments": arguments, "_meta": CLAIM}
    body = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
    return json.dumps(body).encode()


class Remote:
    """A client on a shared channel that comes over a network.

    Attributes:
        reads: Whether it takes what is said.
        got: What it has taken.
        took_all: What the channel's writer said in the end; None until then.
    """

    def __init__(self, channel, *, reads=True):
        self.channel = channel
        self.reads = reads
        self.got = []
        self.took_all = None

    async def run(self):
        with self.channel:
            self.took_all = await self.channel.write(self._take)

    async def _take(self, lines):
        if not self.reads:
            await trio.sleep_forever()
        self.got += lines

    async def call(self, request_id, size):
        await self.channel.receive(request(request_id, "large", size=size))
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def remote(bus, *, spared=False, **options):
    client = Remote(DuplexChannel(bus, None, spared=spared), **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        await trio.testing.wait_all_tasks_blocked()
        yield client
        nursery.cancel_scope.cancel()


async def test_what_waits_on_a_stream_counts_until_it_is_written(autojump_clock):
    async with staged() as stage, stage.wire("2025-11-25") as wire:
        before = stage.bus.statistics().held_bytes
        wire.stall()
        for n in range(40):
            await wire.say("tools/call", tool(name="quick"), n)
        await wait_until_idle(stage.bus)
        assert stage.bus.statistics().held_bytes > before + 40 * 128
        wire.resume()
        await wait_until_idle(stage.bus)
        assert stage.bus.statistics().held_bytes == before
        assert len(wire.got) == 40


async def test_a_subscription_counts_until_it_is_taken_back(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        held = [stage.bus.budget.held]
        for verb in ("subscribe", "unsubscribe", "unsubscribe"):
            await session.request(f"resources/{verb}", {"uri": "res://a"}).reply()
            held.append(stage.bus.budget.held)
        assert held[0] == held[2] == held[3] < held[1]


async def test_what_waits_on_a_connection_is_counted_to_whoever_has_it(autojump_clock, caplog):
    async with staged(limits={"outbox_items": 1}) as stage, stage.wire("2025-11-25") as wire:
        [session] = stage.bus.sessions.values()
        wire.stall()
        for n in range(3):
            session.notify("notifications/x", {"n": n})
            await stage.quiet()
        [line] = caplog.messages
        assert line.startswith(f"outbox_items was reached by {session.owner}: ")


async def test_the_stream_for_which_the_most_waits_is_ended_and_no_other(autojump_clock):
    async with (
        open_bus(speaker(), limits=Limits(memory_bytes=100_000)) as bus,
        remote(bus, reads=False) as stalled,
        remote(bus) as reading,
        remote(bus, reads=False) as small,
    ):
        await small.call(1, 10)
        await stalled.call(1, 30_000)
        await stalled.call(2, 30_000)
        assert stalled.took_all is None
        await stalled.call(3, 30_000)
        assert stalled.took_all is False
        assert (reading.took_all, small.took_all) == (None, None)
        await reading.call(1, 30_000)
        assert len(reading.got) == 1
        now = bus.statistics()
        assert now.limits_reached == {"memory_bytes": 1}
        assert {reason: n for reason, n in now.discarded.items() if n} == {Reason.OVERFLOW: 2, Reason.LOST: 1}
        assert now.held_bytes == 0, "what the small one has not read is too little to count"
    assert bus.budget.held == 0


async def test_a_connection_that_is_spared_stays_however_much_waits_on_it(autojump_clock):
    async with (
        open_bus(speaker(), limits=Limits(memory_bytes=100_000)) as bus,
        remote(bus, reads=False, spared=True) as stalled,
    ):
        for number in range(3):
            await stalled.call(number, 90_000)
        assert stalled.took_all is None
        assert bus.budget.full
    assert bus.budget.held == 0


async def test_long_answers_that_fall_due_in_one_turn_of_the_scheduler_are_not_all_kept(autojump_clock):
    server, go_on, calls, size = Server("s", version="1"), trio.Event(), 300, 100_000

    @server.tool
    async def late() -> str:
        await go_on.wait()
        return "x" * size

    async with (
        open_bus(server, limits=Limits(memory_bytes=10 * size)) as bus,
        remote(bus, reads=False) as stalled,
    ):
        for number in range(calls):
            await stalled.channel.receive(request(number, "late"))
        await trio.testing.wait_all_tasks_blocked()
        assert bus.statistics().requests == calls
        tracemalloc.start()
        try:
            go_on.set()  # to end what is said then takes the dispatcher more turns than it has on one stack
            await wait_until_idle(bus)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert bus.statistics().limits_reached == {"memory_bytes": 1}
        assert most < 30 * size
    assert bus.budget.held == 0


class Restless:
    """Tells itself what it is told, for ever: from then on the system is behind."""

    def __init__(self, cell):
        self.cell = cell

    def handle(self, message):
        self.cell.address.tell(message)


@pytest.mark.parametrize("waits", [False, True])
async def test_long_answers_count_before_the_next_one_is_made_though_the_system_is_behind(
    waits, autojump_clock
):
    server, size, held, go_on = Server("s", version="1"), 100_000, [], trio.Event()

    @server.tool
    async def answer() -> str:
        if waits:
            await go_on.wait()
        held.append(bus.budget.held)
        return "x" * size

    async def call(client):
        with trio.CancelScope() as scope:
            eager = client.channel.take_now(request(1, "answer"), scope)
            if eager is not None:
                await eager.finish()

    async with (
        open_bus(server) as bus,
        remote(bus, reads=False) as first,
        remote(bus, reads=False) as second,
        remote(bus, reads=False) as third,
        trio.open_nursery() as nursery,
    ):
        if not waits:
            bus.system.spawn(Restless).tell("on and on")
        for client in (first, second, third):
            nursery.start_soon(call, client)
        if waits:
            await trio.testing.wait_all_tasks_blocked()
            bus.system.spawn(Restless).tell("on and on")
            go_on.set()
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert len(held) == 3
        assert held[2] > size


async def test_what_is_ended_as_its_writer_takes_it_is_not_written(autojump_clock):
    async with open_bus(speaker(), limits=Limits(memory_bytes=100_000)) as bus:
        client = Remote(DuplexChannel(bus, None))
        await client.call(1, 40_000)
        await client.call(2, 40_000)
        await client.run()
        assert client.got == []
        now = bus.statistics()
        assert (now.discarded[Reason.LOST], now.held_bytes) == (2, 0)


# -- what a client makes the bus keep ------------------------------------------------------------------------------------

LARGE = 20_000


def keeper():
    """A server whose clients can make it keep something of each kind."""
    server = Server("keeper", version="1")

    @server.resource("res://{+path}")
    async def resource(path: str) -> str:
        return path

    @server.tool
    async def wait(data: str) -> str:
        await trio.sleep(1000)
        return data

    @server.tool
    async def ask(data: str, ctx: Context, question: str = "?" * LARGE) -> str:
        await ctx.elicit(question, str)
        return data

    return server


def uris(count):
    return [f"res://{n}/" + "x" * (LARGE // count) for n in range(count)]


async def capabilities(probe):
    await probe.initialize(capabilities={"experimental": {"x": "x" * LARGE}})


async def subscriptions(probe):
    session = await probe.initialize()
    for uri in uris(4):
        await session.request("resources/subscribe", {"uri": uri}).ended()


async def held(probe):
    await probe.initialize()
    [session] = probe.bus.sessions.values()
    session.notify("notifications/x", {"x": "x" * LARGE})


async def arguments(probe):
    probe.request("tools/call", {"name": "wait", "arguments": {"data": "x" * LARGE}})


async def legacy_arguments(probe):
    session = await probe.initialize()
    session.request("tools/call", {"name": "wait", "arguments": {"data": "x" * LARGE}})


async def questions(probe):
    params = {"name": "ask", "arguments": {"data": ""}}
    await probe.request("tools/call", params, capabilities={"elicitation": {}}).ended()


async def listen(probe):
    probe.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris(4)}})


KINDS = [capabilities, subscriptions, held, arguments, legacy_arguments, questions, listen]


@asynccontextmanager
async def kept(**limits):
    async with (
        open_bus(keeper(), limits=Limits(**limits), drain_timeout=0) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        probe.bus = bus
        yield bus, probe
    assert bus.budget.held == 0


@pytest.mark.parametrize("keep", KINDS)
async def test_what_a_client_makes_the_bus_keep_counts_until_it_is_gone(keep, autojump_clock):
    async with kept() as (bus, probe):
        await keep(probe)
        await wait_until_idle(bus)
        assert LARGE < bus.statistics().held_bytes < 2 * LARGE


@pytest.mark.parametrize("keep", KINDS)
async def test_whatever_is_the_largest_goes_when_there_is_too_much(keep, autojump_clock):
    async with kept(memory_bytes=LARGE - 1) as (bus, probe):
        await keep(probe)
        await wait_until_idle(bus)
        # Questions and acknowledgements are written, too, and meanwhile are there for the client's sake twice over.
        assert set(bus.statistics().limits_reached) == {"memory_bytes"}
        assert bus.statistics().held_bytes < 2_000
        reply = await probe.request("tools/call", {"name": "ask", "arguments": {"data": ""}}).reply()
        assert "elicitation" in reply["error"]["message"], "served like any other"


async def test_short_arguments_count_as_soon_as_their_handler_waits(autojump_clock):
    async with kept(memory_bytes=16_000) as (bus, probe):
        calls = []
        for _ in range(5):
            calls.append(probe.request("tools/call", {"name": "wait", "arguments": {"data": "x" * 3000}}))
            await wait_until_idle(bus)
        assert bus.statistics().limits_reached == {"memory_bytes": 1}
        assert 12_000 < bus.statistics().held_bytes < 16_000
        [ended] = [call for call in calls if call.over]
        assert "keeps too much in memory" in ended.messages[0]["error"]["message"]


@pytest.mark.parametrize(("revision", "largest"), [("2025-11-25", 0), ("2026-07-28", 4)])
async def test_a_client_that_its_call_asks_is_told_why_the_call_ends(revision, largest, autojump_clock):
    async with kept(memory_bytes=21_000) as (bus, probe):
        declared, calls = {"elicitation": {}}, []
        for number in range(5):
            size = 9000 if number == largest else 3000
            params = {"name": "ask", "arguments": {"data": "x" * size, "question": "?"}}
            if revision == "2025-11-25":
                client = await probe.initialize(revision, capabilities=declared)
                calls.append(client.request("tools/call", params))
            else:
                calls.append(probe.request("tools/call", params, capabilities=declared))
            await wait_until_idle(bus)
        assert bus.statistics().limits_reached == {"memory_bytes": 1}
        error = calls[largest].messages[-1]["error"]
        assert "keeps too much in memory" in error["message"]


async def test_while_too_much_is_kept_that_may_not_end_newcomers_are_refused(autojump_clock):
    async with kept(memory_bytes=1000) as (bus, probe):
        output = bus.budget.account("standard output")
        output.hold(1251)  # what is kept for owners that hold little is used up, too
        for recording in (
            probe.request("tools/call", {"name": "wait", "arguments": {"data": ""}}),
            probe.request("subscriptions/listen", {"notifications": {}}),
        ):
            assert (await recording.ended()).status == 503
            assert "try again later" in recording.messages[0]["error"]["message"]
        assert (await probe.request("server/discover").ended()).status == 200, (
            "what keeps nothing is answered"
        )
        with pytest.raises(AssertionError, match="answered 503"):
            await probe.initialize()
        output.close()
        await probe.initialize()


async def test_a_request_that_would_be_too_much_by_itself_is_refused_before_it_is_looked_into(autojump_clock):
    async with kept(memory_bytes=5_000_000) as (bus, probe):
        data = {"name": "wait", "arguments": {"data": [[]] * 100_000}}
        refused = await probe.request("tools/call", data).ended()
        assert (refused.status, refused.messages[0]["error"]["code"]) == (400, -32602)
        assert "bytes of memory, more than there may be" in refused.messages[0]["error"]["message"]
        assert bus.statistics().limits_reached == {"memory_bytes": 1}


@pytest.mark.parametrize(("memory_bytes", "counts"), [(1_000_000, True), (100_000_000, False)])
async def test_what_a_long_request_brings_counts_before_its_handler_gets_it_unless_there_is_room_in_any_case(
    memory_bytes, counts, autojump_clock
):
    server = Server("s", version="1")

    @server.tool
    async def count(numbers: list[int]) -> int:
        return bus.budget.held

    limits = Limits(memory_bytes=memory_bytes)
    async with open_bus(server, limits=limits) as bus, open_probe(bus.asgi()) as probe:
        numbers = [0] * LARGE_BYTES
        reply = await probe.request(
            "tools/call", {"name": "count", "arguments": {"numbers": numbers}}
        ).reply()
        held = int(reply["result"]["content"][0]["text"])
        assert held > 32 * len(numbers) if counts else held == 0
        assert bus.budget.held == 0


@pytest.mark.parametrize("shell", ["asgi", "http1"])
@pytest.mark.parametrize("sizes", [(3_000_000, 2_900_000), (2_900_000, 3_000_000)])
async def test_of_two_requests_that_are_too_much_together_one_is_ended(sizes, shell, autojump_clock):
    async with (
        open_bus(keeper(), limits=Limits(memory_bytes=5_000_000), drain_timeout=0) as bus,
        open_probe(bus.asgi(), shell=shell) as probe,
    ):
        calls = []
        for size in sizes:
            calls.append(probe.request("tools/call", {"name": "wait", "arguments": {"data": "x" * size}}))
            await trio.sleep(1)
        [ended] = [call for call in calls if call.over]
        # The larger one; but the first, where the second was not all there yet when there was too much.
        assert ended is calls[0 if shell == "http1" else sizes.index(max(sizes))]
        assert "too much" in ended.messages[0]["error"]["message"].lower()
        assert bus.statistics().requests == 1
        assert bus.statistics().held_bytes < max(sizes) + LARGE, "what was ended counts no more"


@pytest.mark.parametrize("shell", ["asgi", "http1"])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_handler_that_is_ended_in_its_own_turn_harms_no_other(waits, shell, autojump_clock):
    server = Server("s", version="1")
    ended = trio.Event()

    @server.tool
    async def greedy(data: str) -> str:
        account = bus.budget.account("a thing")
        account.hold(100_000)  # with which the request is the largest of what is too much
        try:
            if waits:
                await trio.sleep_forever()
            return "done"
        finally:
            account.close()
            ended.set()

    @server.tool
    async def nap() -> str:
        await trio.sleep(1)
        return "slept"

    async with (
        open_bus(server, limits=Limits(memory_bytes=1_000_000)) as bus,
        open_probe(bus.asgi(), shell=shell) as probe,
    ):
        largest = probe.request("tools/call", {"name": "greedy", "arguments": {"data": "x" * 900_000}})
        other = probe.request("tools/call", {"name": "nap", "arguments": {}})
        assert "too much" in (await largest.reply())["error"]["message"]
        assert (await other.reply())["result"]["content"][0]["text"] == "slept"
        await ended.wait()
        assert bus.statistics().requests == 0


async def test_a_session_that_could_not_be_registered_gives_back_what_was_counted_for_it(autojump_clock):
    async with staged() as stage:

        @stage.server.on_session
        async def refuse(session):
            assert session.account.held
            raise RuntimeError

        async with stage.wire() as wire:
            for _ in range(2):
                await wire.say("initialize", {**HELLO, "capabilities": {"x": {}}}, 1)
                await wait_until_idle(stage.bus)
            assert [message["error"]["code"] for message in wire.got] == [-32603, -32603]
            assert stage.bus.budget.held == 0


@asynccontextmanager
async def reached(server, **http):
    """A bus that serves on loopback, and a function that connects to it."""
    limits = Limits(memory_bytes=http.pop("memory_bytes", 64 * 1024 * 1024))
    async with open_bus(server, limits=limits) as bus, trio.open_nursery() as nursery:
        [url] = await nursery.start(partial(bus.serve, bind="127.0.0.1:0", **http))
        yield bus, partial(trio.open_tcp_stream, "127.0.0.1", urlsplit(url).port)
        nursery.cancel_scope.cancel()


def posted(method, params, name=None):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": CLAIM}}
    data = json.dumps(body).encode()
    fields = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": CLAIM["io.modelcontextprotocol/protocolVersion"],
        "mcp-method": method,
        "content-length": str(len(data)),
        **({} if name is None else {"mcp-name": name}),
    }
    lines = ["POST /mcp HTTP/1.1", *(f"{key}: {value}" for key, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


async def test_a_listen_does_not_keep_the_text_of_its_request():
    names = [f"res://{n:04}" + "x" * 5_000 for n in range(200)]
    size, server = 200 * 5_000, Server("s", version="1")
    server.resource("res://{n}")(lambda n: n)
    data = posted("subscriptions/listen", {"notifications": {"resourceSubscriptions": names}})
    with trio.fail_after(20):
        async with reached(server) as (bus, connect):
            tracemalloc.start()
            try:
                streams = [await connect() for _ in range(3)]
                for stream in streams:
                    await stream.send_all(data)
                    left = size
                    while left > 0:
                        piece = await stream.receive_some()
                        assert piece
                        left -= len(piece)
                await wait_until_idle(bus)
                now, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert bus.statistics().listens == 3
            for stream in streams:
                await stream.aclose()
            assert now < 3 * size * 1.5


@pytest.mark.parametrize("response", ["auto", "sse"])
@pytest.mark.parametrize("long", [10, 200_000])
async def test_an_answer_that_is_given_up_is_freed_though_its_client_does_not_read(response, long):
    megabyte, server = 1024 * 1024, Server("s", version="1")

    @server.tool
    async def large(size: int, pad: str) -> str:
        return "x" * size

    data = posted(
        "tools/call", {"name": "large", "arguments": {"size": 20 * megabyte, "pad": "y" * long}}, "large"
    )
    with trio.fail_after(20):
        async with reached(server, response=response, memory_bytes=50 * megabyte) as (bus, connect):
            stream = await connect()
            await stream.send_all(data)
            while bus.budget.held < 20 * megabyte:
                await trio.lowlevel.checkpoint()
            other = bus.budget.account("a test")
            other.hold(40 * megabyte)
            with trio.fail_after(10):  # sooner than a write misses its deadline
                while bus.budget.held > 40 * megabyte:
                    await trio.lowlevel.checkpoint()
            other.close()
            await stream.aclose()
