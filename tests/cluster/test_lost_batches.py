"""Batches of revision 2025-03-26 whose process is lost: each request has one reply, which may say that it is lost."""

import json

import pytest
import trio
from several import at, open_buses, quiet
from test_forwarding import make

from mcpbus import Limits
from mcpbus.testing import MemoryDirectory

BOTH, JSON, EVENTS = "application/json, text/event-stream", "application/json", "text/event-stream"
LOST = -32603


def request(number, method, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number, name, token=None):
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return request(number, "tools/call", name=name, **meta)


def post(session, messages, accept):
    headers = {"mcp-session-id": session.id, "accept": accept}
    return session._probe.post(messages, headers)


def replies(recording):
    """What each request was answered."""
    said = [(each["id"], each.get("error", {}).get("code")) for each in recording.messages if "id" in each]
    assert len(said) == len({number for number, _ in said})
    return dict(said)


@pytest.mark.parametrize("accept", [BOTH, JSON, EVENTS], ids=["both", "array", "events"])
async def test_of_which_nothing_was_said_each_request_is_lost_and_runs_once(accept, autojump_clock):
    directory, ran = MemoryDirectory(), []
    async with open_buses(lambda: make(ran), directory=directory) as (buses, probes):
        session = at(await probes[0].initialize("2025-03-26"), probes[1])
        lost = post(session, [call(1, "hold"), call(2, "hold"), {"jsonrpc": "2.0", "id": 3}], accept)
        await quiet(buses)
        await directory.cut()
        await lost.ended()
        assert lost.headers["content-type"] == (EVENTS if accept == EVENTS else JSON)
        assert replies(lost)[1] == replies(lost)[2] == LOST
        assert lost.complete
        assert [len(session.in_flight) for session in buses[0].sessions.values()] == [2]


@pytest.mark.parametrize("accept", [BOTH, JSON, EVENTS], ids=["both", "array", "events"])
async def test_what_was_answered_is_not_lost(accept, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize("2025-03-26"), probes[1])
        many = [request(number, "ping") for number in range(20)]
        lost = post(session, [*many, call("counts", "count", token="t"), call("holds", "hold")], accept)
        await quiet(buses)
        await trio.sleep(0.5)
        await directory.cut()
        await lost.ended()
        said = dict.fromkeys(range(20)) | {"counts": LOST, "holds": LOST}
        if accept == JSON:  # whose elements were held back
            said = dict.fromkeys([*range(20), "counts", "holds"], LOST)
        assert replies(lost) == said
        assert lost.complete


async def test_an_array_that_has_begun_is_ended(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory, limits=Limits(outbox_bytes=100_000)) as (buses, probes):
        session = at(await probes[0].initialize("2025-03-26"), probes[1])
        long = [request(n, "tools/call", name="echo", arguments={"text": "x" * 60_000}) for n in range(3)]
        lost = post(session, [*long, call("holds", "hold")], JSON)
        await quiet(buses)
        await directory.cut()
        await lost.ended()
        assert isinstance(json.loads(lost.body), list)
        assert replies(lost) == {0: None, 1: None, 2: None, "holds": LOST}


async def test_one_without_requests_is_asked_again(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (_, probes):
        session = at(await probes[0].initialize("2025-03-26"), probes[1])
        said = post(session, [{"jsonrpc": "2.0", "method": "notifications/x"}], BOTH)
        await directory.cut()
        assert (await said.ended()).status == 202
