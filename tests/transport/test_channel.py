"""The shared channel itself, on lines in memory: as stdio has it, without a process."""

import json
from contextlib import asynccontextmanager

import pytest
import trio
from channels import INITIALIZED, House, call, house, initialize, request
from mcpbus_actors import EagerTask

from mcpbus import Context, Server
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.sessions.session import SessionStage
from mcpbus.protocol.routes import Reason
from mcpbus.testing import open_bus
from mcpbus.transports.duplex import DuplexChannel
from mcpbus.transports.lines import run_channel

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])


class Lines:
    """The other end of a channel."""

    def __init__(self):
        self.got = []
        self.breaks = False
        self.reads = trio.Event()
        self.reads.set()
        self.into, self.source = trio.open_memory_channel(10_000)

    def say(self, *messages):
        for message in messages:
            self.into.send_nowait(json.dumps(message).encode() + b"\n")

    async def write(self, data):
        await self.reads.wait()
        if self.breaks:
            raise trio.BrokenResourceError
        self.got += [json.loads(line) for line in data.splitlines()]


@asynccontextmanager
async def lines(home, revision="2025-11-25"):
    client = Lines()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_channel, home.bus, client.source, client.write)
        client.say(initialize(revision), INITIALIZED)
        await home.quiet()
        yield client
        client.into.close()


async def test_the_books_balance_when_writes_end_while_the_bus_is_busy(autojump_clock):
    """With so many replies at once, a later batch is being written when the end of an earlier write is handled."""
    async with house(limits={"max_requests_per_session": 5000}) as home, lines(home) as client:
        client.say(*(call(n, "hang") for n in range(1, 3001)))
        await home.quiet()
        next(iter(home.bus.sessions.values())).close()
        await trio.sleep(1)
        await home.quiet()
        now = home.bus.statistics()
        assert len(client.got) == 3001
        assert (now.emitted, now.delivered, dict(now.pending)) == (3001, 3001, {})


async def test_what_is_said_before_the_client_ends_its_input_is_written(autojump_clock):
    async with house() as home:
        async with lines(home) as client:
            client.say(*(request(n, "ping") for n in range(1, 100)))
        assert [m["id"] for m in client.got] == list(range(100))
        await home.assert_nothing_is_left()


async def test_a_write_that_came_to_its_end_is_no_loss_however_long_it_took(autojump_clock):
    """As to a socket whose client moves all the while, or when the process was stopped."""
    async with house() as home:
        with DuplexChannel(home.bus, None) as channel:

            async def send(lines):
                with trio.CancelScope(shield=True):
                    await trio.sleep(100)

            await channel.receive(json.dumps(request(1, "ping")).encode())
            channel.end()
            assert await channel.write(send)
        await home.assert_nothing_is_left()
        assert home.bus.statistics().delivered == 1


@pytest.mark.parametrize(("seconds", "whole"), [(29, True), (31, False)])
async def test_a_slow_client_is_waited_for_after_the_end_as_long_as_it_moves(seconds, whole, autojump_clock):
    """Before the end it is waited for in any case."""
    async with house() as home:
        into, source = trio.open_memory_channel(10)
        written = []

        async def write(data):
            if not written:
                await trio.sleep(1000)
                into.close()
            await trio.sleep(seconds)
            written.append(bytes(data))

        async def large() -> str:
            return "x" * 500_000

        home.bus.server.add_tool(large)
        into.send_nowait(json.dumps(call(1, "large", modern=True)).encode() + b"\n")
        assert await run_channel(home.bus, source, write) is whole
        assert home.bus.statistics().limits_reached == ({} if whole else {"write_deadline": 1})
        if whole:
            assert json.loads(b"".join(written))["id"] == 1
            assert len(written) > 3
        await home.assert_nothing_is_left()


@pytest.mark.parametrize("limits", [{"max_sessions": 1}, {}])
async def test_a_channel_that_is_refused_leaves_nothing(limits, autojump_clock):
    async with house(limits=limits) as home, lines(home):
        await home.quiet()
        if not limits:
            await home.bus.drain(0)
            await home.quiet()
        before = home.bus.statistics().actors
        with pytest.raises(ServerOverloaded):
            DuplexChannel(home.bus, None)
        assert home.bus.statistics().actors == before


@pytest.mark.dormancy
@pytest.mark.eagerness
@ERAS
async def test_a_handler_that_waits_has_no_actor(modern, autojump_clock):
    async with house() as home, lines(home) as client:
        before = home.bus.system.statistics().spawned
        client.say(call(1, "nap", {"seconds": 1}, modern=modern))
        await trio.sleep(2)
        assert [message["id"] for message in client.got] == [0, 1]
        assert home.bus.system.statistics().spawned == before


@pytest.mark.parametrize(
    ("ends", "modern", "reason"),
    [
        ("client", False, Reason.SESSION_ENDED),
        ("client", True, Reason.SESSION_ENDED),
        ("write", False, Reason.SESSION_ENDED),
        ("write", True, Reason.CANCELLED),
        ("session", False, Reason.FINISHED),
        ("session", True, Reason.FINISHED),
    ],
)
async def test_the_end_of_a_connection_ends_what_waits_on_it_whoever_ends_that(
    ends, modern, reason, autojump_clock
):
    receipts = []
    async with house() as home:

        @home.bus.server.tool
        async def last_words(ctx: Context) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    receipts.append(await ctx.notify("notifications/example/end"))

        async with lines(home) as client:
            client.say(call(1, "last_words", modern=modern))
            await home.quiet()
            if ends == "write":
                client.breaks = True
                client.say(request(2, "ping"))
            elif ends == "session":
                next(iter(home.bus.sessions.values())).close()  # which is said to its client
            await home.quiet()
        await home.quiet()
        (receipt,) = receipts
        assert receipt.fate.reason is reason
        await home.assert_nothing_is_left()


@ERAS
async def test_a_handler_that_begins_when_its_session_has_ended_ends_with_the_connection(
    modern, autojump_clock
):
    outcomes = []
    async with house(outcomes=outcomes) as home:
        with DuplexChannel(home.bus, None) as channel:
            await channel.receive(json.dumps(initialize("2025-11-25")).encode())
            channel.end()
            message = json.dumps(call(1, "hang", modern=modern)).encode()
            with trio.fail_after(1), trio.CancelScope() as scope:
                eager = channel.take_now(message, scope)
                assert isinstance(eager, EagerTask)
                channel.close()
                await eager.finish()
            assert outcomes == [" ended"]
        await home.assert_nothing_is_left()


async def test_a_channel_that_nobody_serves_ends_with_its_block(autojump_clock):
    async with house() as home:
        with DuplexChannel(home.bus, None) as channel:
            await channel.receive(json.dumps(request(1, "ping")).encode())
            assert home.bus.statistics().actors == 2
        await home.assert_nothing_is_left()


@pytest.mark.parametrize("batched", [False, True])
async def test_whoever_does_not_read_long_answers_is_not_read_further(batched, autojump_clock):
    most, number = 50_000, 500
    async with house(limits={"outbox_bytes": most}) as home, lines(home, "2025-03-26") as client:
        client.got.clear()
        client.reads = trio.Event()
        calls = [call(n, "swell", {"size": 1_000, "seconds": 0}) for n in range(1, number + 1)]
        client.say(*([calls] if batched else calls))
        await trio.sleep(5)
        # What may wait, what was begun before it did, and what is being written, which is there twice.
        assert most < home.bus.budget.held < 2 * (most + 3 * 16 * 1_200)
        assert home.bus.statistics().requests == 0
        client.reads.set()
        await trio.sleep(5)
        assert sorted(message["id"] for message in client.got) == list(range(1, number + 1))


async def test_what_a_session_has_of_its_own_no_request_of_2026_07_28_on_its_connection_is_told(
    autojump_clock,
):  # M-9
    server = Server("s")

    @server.tool
    async def common() -> str:
        return "common"

    @server.on_session
    async def inject(session):
        session.add_tool(lambda: "own", name="own")

    async with open_bus(server) as bus:
        home = House(bus, None, None)
        async with lines(home) as client:
            ask = [("tools/list", {}), ("tools/call", {"name": "own"})]
            client.say(*(request(f"old {method}", method, params) for method, params in ask))
            client.say(*(request(f"new {method}", method, params, modern=True) for method, params in ask))
            await home.quiet()
            said = {message["id"]: message for message in client.got}
    listed = {
        era: [tool["name"] for tool in said[f"{era} tools/list"]["result"]["tools"]] for era in ("old", "new")
    }
    assert listed == {"old": ["common", "own"], "new": ["common"]}
    assert "result" in said["old tools/call"]
    assert said["new tools/call"]["error"]["code"] == -32602


@pytest.mark.parametrize("refused", [False, True])
async def test_messages_behind_initialize_wait_until_it_is_answered(refused, autojump_clock):
    server = Server("s")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.on_session
    async def prepare(_session):
        await trio.sleep(5)
        if refused:
            raise ValueError("no session today")

    async with open_bus(server) as bus:
        home = House(bus, None, None)
        async with lines(home) as client:
            client.say(call(1, "add", {"a": 1, "b": 2}))
            assert client.got == []
            await trio.sleep(6)
            await home.quiet()
            outcomes = [(message["id"], "result" in message) for message in client.got]
            assert outcomes == [(0, not refused), (1, not refused)]
            stage = next(iter(bus.session_directory.shares)).stage
            assert stage is (SessionStage.CONNECTED if refused else SessionStage.READY)


async def test_a_receiver_in_process_that_asks_again_for_each_response_lets_other_tasks_run(autojump_clock):
    async with house() as home:
        with DuplexChannel(home.bus, None, spared=True) as channel:
            got = []

            def receive(data, _request_id):
                got.append(data)
                assert len(got) < 10_000, "no other task has run"
                channel.take_now(json.dumps(request(len(got), "ping")).encode(), trio.CancelScope())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.deliver, receive)
                await channel.take(json.dumps(initialize("2025-11-25")).encode())
                for _ in range(100):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            assert len(got) > 10


async def test_a_message_whose_client_goes_while_it_waits_is_not_taken(autojump_clock, monkeypatch):
    """Neither the first in line, which waits for room, nor the second, which waits for its turn."""

    async def wait_for_ever(_channel):
        await trio.sleep_forever()

    monkeypatch.setattr(DuplexChannel, "wait_writable", wait_for_ever)
    taken, gone = [], []

    async def leave(scope):
        await trio.sleep(1)
        scope.cancel()

    async def bring(channel):
        with pytest.raises(trio.BrokenResourceError, match="went away"):
            async with channel.turn(100, leave):
                taken.append(channel)
        gone.append(trio.current_time())

    async with house() as home:
        with DuplexChannel(home.bus, None) as channel:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bring, channel)
                nursery.start_soon(bring, channel)
            assert (taken, len(gone), channel._line.locked()) == ([], 2, False)
