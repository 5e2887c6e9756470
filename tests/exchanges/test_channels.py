"""The messages of an exchange are the same on a WebSocket and on lines, as stdio has them, and those of HTTP but for what HTTP adds."""

import json
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase

import pytest
import trio

from mcpbus.testing import wait_until_idle
from mcpbus.transports.lines import run_channel
from tests.exchanges import outcomes
from tests.exchanges.house import BODY_LIMIT, open_house
from tests.exchanges.responses import shorten
from tests.exchanges.steps import Ended, Send
from tests.exchanges.tables import EXCHANGES

RECORDS = outcomes.read()
PATIENCE = 30
"""Virtual seconds after which nothing more comes: past the keep-alive of a quiet stream."""

OF_THE_HEAD = "The head is wrong, and a message on a channel has none."
ONE_FORM = "HTTP may answer in JSON, which has no place for notifications."
DIFFERENCES = {
    "accept: *": OF_THE_HEAD,
    "content *": OF_THE_HEAD,
    "expect: *": OF_THE_HEAD,
    "host: *": OF_THE_HEAD,
    "initialize with a wrong session": OF_THE_HEAD,
    "mirrored*": OF_THE_HEAD,
    "origin: *": OF_THE_HEAD,
    "session id: *": OF_THE_HEAD,
    "site: *": OF_THE_HEAD,
    "verb: *": OF_THE_HEAD,
    "version of a session: *": OF_THE_HEAD,
    "claim: *": "A channel takes the revision from the message alone.",
    "modern body: *": "The head names 2026-07-28; on a channel the message has to, or is of the revision of the session.",
    "* JSON at plain: *": ONE_FORM,
    "batch as application/json: a burst": ONE_FORM,
    "listen: as JSON": ONE_FORM,
    "batch*": "HTTP refuses a batch as a whole, and a channel each message in it.",
    "body: a list": "As of a batch.",
    "body: empty": "A line without a message is skipped.",
    "body: a space": "A line without a message is skipped.",
    "body: a result and an error": "A response is never answered on a channel.",
    "body: an error that is a text": "A response is never answered on a channel.",
    "initialize within a session": "The words name the header, or the connection.",
}
"""Patterns of the exchanges whose messages differ from those over HTTP, each with the reason."""


def _bodies(exchange):
    """Return the messages that a client sends one after the other.

    None if the client does more, or sends what is no message on a channel: one of several lines, or one past the limit of its place,
    for which a WebSocket ends.
    """
    sent = [step for step in exchange.steps if isinstance(step, Send)]
    last = [step.request for step in sent if not step.quiet]
    if (
        exchange.place != "plain"
        or len(last) != 1
        or (last[0].verb, last[0].target) != ("POST", "/mcp")
        or not all(isinstance(step, Send | Ended) for step in exchange.steps)
        or any(b"\n" in step.request.body or len(step.request.body) > BODY_LIMIT for step in sent)
    ):
        return None
    return [step.request.body for step in sent]


PLAYED = {name: bodies for name, exchange in EXCHANGES.items() if (bodies := _bodies(exchange)) is not None}


@asynccontextmanager
async def _lines(house, got):
    into, source = trio.open_memory_channel(10)

    async def write(data):
        got.extend(json.loads(line) for line in data.splitlines())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_channel, house.bus, source, write)
        yield lambda body: into.send_nowait(body + b"\n")
        into.close()


@asynccontextmanager
async def _websocket(house, got):
    into, source = trio.open_memory_channel(10)
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "scheme": "ws",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "subprotocols": ["mcp"],
    }

    async def send(message):
        await trio.lowlevel.checkpoint()
        if message["type"] == "websocket.send":
            got.append(json.loads(message["text"]))

    async with trio.open_nursery() as nursery:
        into.send_nowait({"type": "websocket.connect"})
        nursery.start_soon(house.app, scope, source.receive, send)
        yield lambda body: into.send_nowait(
            {"type": "websocket.receive", "text": body.decode(errors="surrogateescape")}
        )
        into.send_nowait({"type": "websocket.disconnect", "code": 1000})


async def _play(house, channel, bodies):
    house.begin()
    got = []
    async with channel(house, got) as tell:
        for body in bodies:
            got.clear()
            tell(body)
            await wait_until_idle(house.bus)
        await trio.sleep(PATIENCE)
        await wait_until_idle(house.bus)
        found = shorten(list(got))
    assert house.bus.ledger.balance() == 0
    return found


def _over_http(name):
    outcome = RECORDS[name]["outcome"]
    answer = outcome.get("a.json", [])
    events = [event for event in outcome.get("a.events", []) if isinstance(event, dict)]
    return events or (answer if isinstance(answer, list) else [answer])


def _admitted(name):
    return [pattern for pattern in DIFFERENCES if fnmatchcase(name, pattern)]


@pytest.mark.once("opens its own channels")
async def test_each_exchange_has_the_same_messages_on_each_channel(autojump_clock):
    over_lines, over_websocket = {}, {}
    async with open_house("plain") as house:
        for name, bodies in PLAYED.items():
            over_lines[name] = await _play(house, _lines, bodies)
            if all(body.strip() and _is_text(body) for body in bodies):
                over_websocket[name] = await _play(house, _websocket, bodies)
    assert len(over_websocket) > 450
    assert [name for name, found in over_websocket.items() if found != over_lines[name]] == []
    different = {name for name, found in over_lines.items() if found != _over_http(name)}
    assert [name for name in different if not _admitted(name)] == []
    used = {pattern for name in different for pattern in _admitted(name)}
    assert [pattern for pattern in DIFFERENCES if pattern not in used] == []


def _is_text(body):
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
