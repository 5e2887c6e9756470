"""Handlers that speak now and then over a WebSocket: what they say is written at once, and in order, whatever the client takes."""

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from channels import call, notification
from rfc6455 import PING
from trio.testing import wait_all_tasks_blocked
from websocket_tunnels import tunnel_ws
from websocket_wires import wire_ws

from mcpbus import Context, Limits, Server
from mcpbus.core.outbox import Outbox
from mcpbus.core.receipt import DELIVERED, Fate, Location
from mcpbus.protocol.routes import Reason
from mcpbus.testing import open_bus

WAYS = {
    "turns": partial(wire_ws, turns=True),
    "tasks": partial(wire_ws, turns=False),
    "turns of HTTP/2": partial(tunnel_ws, turns=True),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def ws(request):
    return request.param


class Chat:
    """A tool with a second before each thing that it says, and what it noted."""

    def __init__(self):
        self.server = Server("chat", version="1")
        self.notes = []
        self.before = lambda _: None

        @self.server.tool
        async def chat(ctx: Context) -> str:
            try:
                for number in (1, 2, 3):
                    await trio.sleep(1)
                    self.before(number)
                    self.notes.append(await ctx.info(number))
            except trio.Cancelled:
                self.notes.append("cancelled")
                raise
            return "said"

    @property
    def fates(self):
        return [note if isinstance(note, str) else note.fate for note in self.notes]


@asynccontextmanager
async def chatting(ws, **limits):
    """A client that has asked for a chat."""
    chat = Chat()
    async with (
        open_bus(chat.server, limits=Limits(**limits)) as chat.bus,
        ws(chat.bus.asgi(), "2025-11-25") as client,
    ):
        client.say(call(1, "chat"))
        yield chat, client


async def assert_all_arrives_in_order(client):
    said = [await client.message() for _ in range(4)]
    assert [message["params"]["data"] for message in said[:3]] == [1, 2, 3]
    assert said[3]["result"]["content"][0]["text"] == "said"
    await wait_all_tasks_blocked()  # the server hears later than the client that it was written


@pytest.mark.parametrize("way", ["turns", "turns of HTTP/2"])
async def test_what_is_said_now_and_then_needs_no_outbox(way, autojump_clock, monkeypatch):
    queued, fates = [], []
    put = Outbox.put
    async with chatting(WAYS[way]) as (chat, client):
        await trio.sleep(0.5)
        monkeypatch.setattr(
            Outbox, "put", lambda outbox, message: queued.append(message) or put(outbox, message)
        )
        chat.before = lambda _: fates.extend(chat.fates[-1:])
        await assert_all_arrives_in_order(client)
        assert fates == [DELIVERED] * 2
        assert len(queued) == 1  # the reply
        assert chat.bus.ledger.balance() == 0


async def test_a_client_that_takes_nothing_for_a_while_gets_all_of_it_in_order(ws, autojump_clock):
    async with chatting(ws) as (chat, client):
        await trio.sleep(1.5)
        client.stall()
        await trio.sleep(3)
        assert chat.fates == [DELIVERED, None, None]
        assert [receipt.location for receipt in chat.notes[1:]] == [Location.WRITING, Location.OUTBOX]
        client.resume()
        await assert_all_arrives_in_order(client)
        assert chat.fates == [DELIVERED] * 3
        assert chat.bus.ledger.balance() == 0


async def test_a_client_that_takes_nothing_for_too_long_is_given_up(ws, autojump_clock):
    async with chatting(ws, write_deadline=5) as (chat, client):
        await trio.sleep(1.5)
        client.stall()
        await client.ended()
        await wait_all_tasks_blocked()
        assert 5 <= trio.current_time() < 10
        assert chat.fates[:2] == [DELIVERED, Fate.discarded(Reason.LOST)]
        assert chat.bus.statistics().limits_reached == {"write_deadline": 1}
        assert chat.bus.ledger.balance() == 0


async def test_nothing_is_said_once_a_close_has_been(autojump_clock):
    async with chatting(WAYS["turns"]) as (chat, client):
        await trio.sleep(1.5)
        client.send_bytes(b"\xff" * 10)  # no frame
        await client.ended()
        await wait_all_tasks_blocked()
        assert [message["params"]["data"] for message in client.messages[1:]] == [1]
        assert chat.fates == [DELIVERED, "cancelled"]
        assert chat.bus.ledger.balance() == 0


async def test_what_is_said_does_not_overtake_an_answer_to_a_ping(autojump_clock):
    async with chatting(WAYS["turns"]) as (chat, client):
        chat.before = lambda number: client.send(PING, b"are you there") if number == 2 else None
        await assert_all_arrives_in_order(client)
        assert chat.fates == [DELIVERED] * 3


async def test_what_a_cancelled_request_would_say_is_not_written(ws, autojump_clock):
    async with chatting(ws) as (chat, client):
        await trio.sleep(1.5)
        client.say(notification("notifications/cancelled", {"requestId": 1}))
        await trio.sleep(5)
        assert [message["params"]["data"] for message in client.messages[1:]] == [1]
        assert chat.fates == [DELIVERED, "cancelled"]


async def test_a_quiet_connection_is_pinged_since_the_last_thing_that_was_said(autojump_clock):
    ws = partial(wire_ws, turns=True, options={"websocket_ping_interval": 2})
    async with chatting(ws) as (_, client):
        await assert_all_arrives_in_order(client)
        assert client.pings == 0
        await trio.sleep(2.5)
        assert client.pings == 1
