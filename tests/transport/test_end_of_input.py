"""The client of stdio ends its input and goes on reading: what it has asked is answered, as far as that is possible without it."""

import json
from contextlib import asynccontextmanager

import pytest
import trio
from channels import INITIALIZED, call, house, initialize, request

from mcpbus import Context, InputUnavailableError
from mcpbus.testing import wait_until_idle
from mcpbus.transports.lines import run_channel

DRAIN = 5
LEGACY = "2025-11-25"


class Input:
    """All that a client says before it ends its input, and what it reads then."""

    def __init__(self, home, *messages, pause=0, draining=None):
        self.got = []
        self._bus = home.bus
        self._messages = messages
        self._pause = pause
        self._draining = draining or trio.CancelScope(relative_deadline=DRAIN)

    async def run(self):
        """Serve it; returns after how many seconds that ended."""
        begun = trio.current_time()
        assert await run_channel(self._bus, self._read(), self._write, draining=self._draining)
        return trio.current_time() - begun

    async def _read(self):
        for message in self._messages:
            yield json.dumps(message).encode() + b"\n"
        await trio.sleep(self._pause)

    async def _write(self, data):
        self.got += [json.loads(line) for line in data.splitlines()]


@asynccontextmanager
async def served():
    async with house() as home:
        yield home
        await home.assert_nothing_is_left()


@pytest.mark.parametrize("modern", [False, True])
async def test_what_is_in_flight_is_answered(modern, autojump_clock):
    async with served() as home:
        naps = [call(n, "nap", {"seconds": n}, modern=modern) for n in (3, 1, 2)]
        handshake = [] if modern else [initialize(LEGACY), INITIALIZED]
        client = Input(home, *handshake, *naps)
        assert await client.run() == 3
        assert [m["id"] for m in client.got] == [*[m["id"] for m in handshake[:1]], 1, 2, 3]
        assert all("result" in m for m in client.got)


@pytest.mark.parametrize("seconds", [DRAIN - 1, DRAIN + 1])
async def test_what_runs_for_a_notification_may_end(seconds, autojump_clock):
    async with served() as home:
        ends = []

        @home.bus.server.on_notification("notifications/acme/moved")
        async def hear(_notification):
            await trio.sleep(seconds)
            ends.append(seconds)

        moved = {"jsonrpc": "2.0", "method": "notifications/acme/moved"}
        assert await Input(home, initialize(LEGACY), INITIALIZED, moved).run() == min(seconds, DRAIN)
        assert ends == ([seconds] if seconds < DRAIN else [])


async def test_what_takes_too_long_is_answered_with_an_error(autojump_clock):
    async with served() as home:
        client = Input(
            home, call(1, "nap", {"seconds": DRAIN - 1}, modern=True), call(2, "hang", modern=True)
        )
        assert await client.run() == DRAIN
        rested, ended = client.got
        assert (rested["id"], rested["result"]["content"][0]["text"]) == (1, "rested")
        assert (ended["id"], ended["error"]["code"]) == (2, -32603)
        assert "took too long after the end of its client's input" in ended["error"]["message"]
        assert home.bus.statistics().limits_reached == {"drain_timeout": 1}


async def test_it_need_not_be_waited_for(autojump_clock):
    """As when the output was hung up too, or a signal came."""
    async with served() as home:
        draining = trio.CancelScope(relative_deadline=DRAIN)
        draining.cancel()
        client = Input(home, request(1, "ping"), call(2, "hang", modern=True), draining=draining)
        assert await client.run() == 0
        assert [m["id"] for m in client.got] == [1]
        assert home.bus.statistics().limits_reached == {}


@pytest.mark.parametrize("initialized", [True, False])
@pytest.mark.parametrize("seconds", [0, 2], ids=["before", "after"])
async def test_the_client_cannot_be_asked_any_more(seconds, initialized, autojump_clock):
    """Whether the handler asks before the end of the input or after it, and whether it may yet ask at all."""
    async with served() as home:

        async def inquire(ctx: Context) -> str:
            await trio.sleep(seconds)
            try:
                await ctx.list_roots()
            except InputUnavailableError as error:
                await trio.sleep(2)
                return str(error)

        home.bus.server.add_tool(inquire)
        handshake = [INITIALIZED] if initialized else []
        client = Input(home, initialize(LEGACY), *handshake, call(1, "inquire"), pause=1)
        assert await client.run() == max(seconds, 1) + 2
        _, *asked, reply = client.got
        assert reply["result"]["content"][0]["text"].startswith(
            "The client cannot be asked: it has ended its input"
        )
        assert [m["method"] for m in asked] == (
            ["roots/list", "notifications/cancelled"] if initialized and not seconds else []
        )


async def test_a_listen_ends_in_good_order(autojump_clock):
    async with served() as home:
        listen = request(1, "subscriptions/listen", {"notifications": {}}, modern=True)
        client = Input(home, listen, call(2, "nap", {"seconds": 1}, modern=True))
        assert await client.run() == 1
        acknowledged, ended, rested = client.got
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert (ended["id"], ended["result"]["resultType"]) == (1, "complete")
        assert rested["id"] == 2


async def test_it_ends_when_the_bus_does(autojump_clock):
    async with served() as home:
        client = Input(home, call(1, "hang", modern=True))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            await wait_until_idle(home.bus)
            await home.bus.drain(1)
        assert [m["error"]["message"] for m in client.got] == ["The server is shutting down"]
