"""Connections whose clients say nothing: over a network they end in time, and in the same process or on stdio they stay."""

from contextlib import asynccontextmanager

import pytest
import trio
from channels import INITIALIZED, house, initialize, request, sse, ws
from test_channel import lines

from mcpbus.transports.duplex import DuplexChannel

SOON, LATE = 55, 10


@asynccontextmanager
async def over_websocket(home):
    async with ws(home.app) as client:

        async def say(message):
            client.say(message)

        yield say, lambda: client.sent[-1] != {"type": "returned"}


@asynccontextmanager
async def over_sse(home):
    async with sse(home.probe) as client:
        yield client.say, lambda: not client.stream.complete


BOTH = pytest.mark.parametrize("connect", [over_websocket, over_sse])


@BOTH
async def test_a_silent_connection_ends(connect, autojump_clock):
    async with house() as home, connect(home) as (_, is_open):
        await trio.sleep(SOON)
        assert is_open()
        assert len(home.bus.session_directory.shares) == 1
        await trio.sleep(LATE)
        assert not is_open()
        await home.assert_nothing_is_left()
        assert (len(home.bus.session_directory.shares), home.bus.session_directory.shares.owners) == (0, 0)


@BOTH
@pytest.mark.parametrize("modern", [False, True])
async def test_one_that_has_asked_something_stays(connect, modern, autojump_clock):
    async with house() as home, connect(home) as (say, is_open):
        await trio.sleep(SOON)
        await say(request(1, "server/discover" if modern else "ping", modern=modern))
        await trio.sleep(10_000)
        assert is_open()


@BOTH
async def test_one_that_does_not_finish_its_handshake_ends_and_one_that_does_stays(connect, autojump_clock):
    async with house() as home, connect(home) as (say, is_open), connect(home) as (say_too, is_open_too):
        await trio.sleep(SOON)
        await say(initialize("2025-11-25"))
        await say_too(initialize("2025-11-25"))
        await trio.sleep(SOON)
        await say_too(INITIALIZED)
        assert is_open()
        await trio.sleep(LATE)
        assert (is_open(), is_open_too()) == (False, True)
        await trio.sleep(10_000)
        assert is_open_too()


async def test_what_is_in_the_same_process_or_on_stdio_may_be_silent(autojump_clock):
    async with house() as home, home.bus.connect(), lines(home):
        with DuplexChannel(home.bus, None, spared=True):
            await trio.sleep(10_000)
            await home.quiet()
            assert len(home.bus.session_directory.shares) == 3
