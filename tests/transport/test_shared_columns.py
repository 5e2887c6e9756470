"""The columns io, SSE-A and ws of the routing tables: what each kind of message does is the same on all three."""

import json
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from channels import (
    CLAIM,
    INITIALIZED,
    call,
    house,
    initialize,
    notification,
    request,
    sse,
    ws,
)

from mcpbus import Context
from mcpbus.protocol.routes import Reason
from mcpbus.transports.lines import run_channel

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@attrs.define
class Line:
    """A client, whatever carries it."""

    say: object
    got: object
    leave: object


@asynccontextmanager
async def over_stdio(home):
    into, source = trio.open_memory_channel(100)
    got = []

    async def write(data):
        await trio.lowlevel.checkpoint()
        got.extend(json.loads(line) for line in data.splitlines())

    async def say(message):
        await into.send(json.dumps(message).encode() + b"\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_channel, home.bus, source, write)
        yield Line(say, lambda: got, into.close)
        into.close()


@asynccontextmanager
async def over_sse(home):
    async with sse(home.probe) as client:

        async def say(message):
            await client.say(message)

        yield Line(say, lambda: client.stream.messages, client.stream.disconnect)


@asynccontextmanager
async def over_websocket(home):
    async with ws(home.app) as client:

        async def say(message):
            client.say(message)
            await trio.lowlevel.checkpoint()

        yield Line(say, lambda: client.messages, client.disconnect)


TRANSPORTS = pytest.mark.parametrize("connect", [over_stdio, over_sse, over_websocket])


@asynccontextmanager
async def opened(connect, revision=None):
    async with house() as home:

        @home.bus.server.tool
        async def speak(ctx: Context) -> str:
            home.ctx = ctx
            await ctx.progress(1)
            await ctx.info("line")
            await ctx.notify("notifications/x-said", {"in": "request"})
            home.proceed = trio.Event()
            await home.proceed.wait()
            return "spoken"

        async with connect(home) as line:
            if revision is not None:
                await line.say(initialize(revision))
                await home.quiet()
                await line.say(INITIALIZED)
                await home.quiet()
            yield home, line


def methods(line):
    return [m.get("method", m.get("id")) for m in line.got()]


@TRANSPORTS
@pytest.mark.parametrize("revision", LEGACY)
async def test_everything_for_a_legacy_client_goes_on_its_one_channel(connect, revision, autojump_clock):
    async with opened(connect, revision) as (home, line):
        await line.say(request(1, "resources/subscribe", {"uri": "res://a"}))
        await line.say(call(2, "speak", token="t"))
        await home.quiet()
        (session,) = home.bus.sessions.values()
        home.bus.tools_changed()
        home.bus.resource_updated("res://a")
        session.log("info", "outside")
        session.notify("notifications/x-said", {"in": "session"})
        home.proceed.set()
        await home.quiet()
        assert methods(line) == [
            0,
            1,
            "notifications/progress",
            "notifications/message",
            "notifications/x-said",
            "notifications/tools/list_changed",
            "notifications/resources/updated",
            "notifications/message",
            "notifications/x-said",
            2,
        ]
        late = await home.ctx.info("after the reply")
        assert late.fate.reason is Reason.FINISHED


@TRANSPORTS
async def test_a_request_to_the_client_and_its_cancelled_go_on_the_channel_too(connect, autojump_clock):
    async with opened(connect, "2025-11-25") as (home, line):
        await line.say(call(1, "ask"))
        await home.quiet()
        asked = line.got()[-1]
        assert asked["method"] == "roots/list"
        await line.say(notification("notifications/cancelled", {"requestId": 1}))
        await home.quiet()
        cancelled = line.got()[-1]
        assert (cancelled["method"], cancelled["params"]["requestId"]) == (
            "notifications/cancelled",
            asked["id"],
        )
        assert methods(line) == [0, "roots/list", "notifications/cancelled"]


@TRANSPORTS
async def test_a_modern_client_gets_what_it_asked_for_and_no_request(connect, autojump_clock):
    async with opened(connect) as (home, line):
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["res://a"]}
        await line.say(request("l", "subscriptions/listen", {"notifications": wanted, "_meta": CLAIM}))
        meta = {**CLAIM, "io.modelcontextprotocol/logLevel": "info", "progressToken": "t"}
        await line.say(request(1, "tools/call", {"name": "speak", "arguments": {}, "_meta": meta}))
        await home.quiet()
        home.bus.tools_changed()
        home.bus.prompts_changed()  # nobody asked for it
        home.bus.resource_updated("res://a")
        home.proceed.set()
        await home.quiet()
        await line.say(call(2, "ask", modern=True))
        await home.quiet()
        await home.bus.drain(1)
        await home.quiet()
        assert methods(line) == [
            "notifications/subscriptions/acknowledged",
            "notifications/progress",
            "notifications/message",
            "notifications/x-said",
            "notifications/tools/list_changed",
            "notifications/resources/updated",
            1,
            2,
            "l",
        ]
        stamped = [m["params"] for m in line.got() if "list_changed" in m.get("method", "")]
        assert [p["_meta"]["io.modelcontextprotocol/subscriptionId"] for p in stamped] == ["l"]


@TRANSPORTS
async def test_the_end_of_the_connection_is_the_end_of_the_session(connect, autojump_clock):
    """Situation e: handlers are cancelled, what they say then is discarded, a question is refused."""
    async with opened(connect, "2025-11-25") as (home, line):
        await line.say(call(1, "speak"))
        await line.say(call(2, "ask"))
        await home.quiet()
        (session,) = home.bus.sessions.values()
        ctx = home.ctx
        line.leave()
        await trio.sleep(1)
        await home.quiet()
        assert home.bus.statistics().requests == 0
        assert (await ctx.info("late")).fate.reason is Reason.SESSION_ENDED
        assert session.log("info", "late").fate.reason is Reason.SESSION_ENDED
        assert len(home.bus.tools_changed()) == 0
        assert (home.bus.sessions, home.bus.ledger.balance()) == ({}, 0)


@TRANSPORTS
async def test_before_initialized_changes_are_held_and_log_lines_wait_for_nothing_else(
    connect, autojump_clock
):
    async with opened(connect) as (home, line):
        await line.say(initialize("2025-11-25"))
        await home.quiet()
        (session,) = home.bus.sessions.values()
        session.log("info", "now")
        home.bus.tools_changed()
        home.bus.tools_changed()
        session.log("info", "later")
        await home.quiet()
        assert methods(line) == [0, "notifications/message"]
        await line.say(INITIALIZED)
        await home.quiet()
        changed = "notifications/tools/list_changed"
        assert methods(line) == [0, "notifications/message", changed, "notifications/message"]
