"""Twenty thousand sessions come and go, and the process is as it was."""

import gc
import json
import sys

import trio
from wire import ACCEPT, LEGACY, initialize, message

from mcpbus import Limits, Server
from mcpbus.transports import asgi
from tests.at_home import OWN_WAY, REMEMBERED

pytestmark = OWN_WAY

SESSIONS = 20_000
AT_ONCE = 1_000
# What is kept or let go of from one round to the next: caches, free lists, and the thousand deadlines that trio may have
# in its heap after their scopes have ended. One object that each session leaves behind would be twice as many.
TOLERATED_BLOCKS = SESSIONS // 2


class Endpoint:
    """An ASGI application, called without a server between."""

    def __init__(self, app):
        self.app = app

    async def request(self, verb, body=None, session=None):
        """One exchange; returns the status, the headers and the body."""
        fields = ACCEPT | {"host": "localhost"}
        if session is not None:
            fields["mcp-session-id"] = session
        headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        scope = {"type": "http", "method": verb, "path": "/mcp", "headers": headers}
        arrived = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]
        sent = []

        async def receive():
            if not arrived:
                await trio.sleep_forever()
            return arrived.pop()

        async def send(event):
            sent.append(event)

        await self.app(scope, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(event["body"] for event in sent[1:])

    async def open(self):
        status, headers, _ = await self.request("POST", initialize())
        assert status == 200
        session = headers[b"mcp-session-id"].decode()
        assert (await self.request("POST", message("notifications/initialized"), session))[0] == 202
        return session


def make_server():
    server = Server("transient")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.resource("config://app")
    async def config() -> str:
        return "config"

    return server


async def come_and_go(endpoint, number):
    """What a short session does: some in full, most only open and close."""
    session = await endpoint.open()
    if number % 10 == 0:
        call = message("tools/call", {"name": "echo", "arguments": {"text": "x"}}, 1)
        subscribe = message("resources/subscribe", {"uri": "config://app"}, 2)
        for body in (call, subscribe, message("ping", id=3)):
            assert (await endpoint.request("POST", body, session))[0] == 200
    return session


async def round_of(endpoint, size):
    """Open and close sessions; returns how many memory blocks Python had meanwhile."""
    sessions = [await come_and_go(endpoint, number) for number in range(size)]
    meanwhile = sys.getallocatedblocks()
    for session in sessions:
        assert (await endpoint.request("DELETE", session=session))[0] == 204
    return meanwhile


@REMEMBERED
async def test_twenty_thousand_sessions(monkeypatch):
    monkeypatch.setattr(asgi, "MOST_RECALLED", AT_ONCE // 10)  # so many heads come again in a round
    async with make_server().open(limits=Limits(max_sessions=AT_ONCE)) as bus:
        endpoint = Endpoint(bus.asgi())
        await round_of(endpoint, AT_ONCE)  # fills every cache and free list
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(SESSIONS // AT_ONCE):
            meanwhile = await round_of(endpoint, AT_ONCE)
        gc.collect()
        after = sys.getallocatedblocks()
        left = bus.statistics()
    assert (left.sessions, left.requests, left.actors) == (0, 0, 0)
    assert not bus.sessions
    assert left.emitted == left.delivered + sum(left.discarded.values())
    assert meanwhile - before > AT_ONCE * 10  # sessions do take memory, and this is where one would see it
    assert after - before < TOLERATED_BLOCKS


async def test_sessions_that_only_their_clients_forgot_go_too(autojump_clock):
    """Without DELETE: by the idle timeout, and the ones that never became ready sooner."""
    async with make_server().open(limits=Limits(idle_timeout=1800, initialize_timeout=60)) as bus:
        endpoint = Endpoint(bus.asgi())
        for _ in range(100):
            await endpoint.open()
            assert (await endpoint.request("POST", initialize(LEGACY)))[0] == 200
        assert bus.statistics().sessions == 200
        await trio.sleep(61)
        assert bus.statistics().sessions == 100
        await trio.sleep(1800)
        assert bus.statistics().sessions == 0
        assert bus.statistics().actors == 0
