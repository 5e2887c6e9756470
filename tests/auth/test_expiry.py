"""What a client listens on ends when its token expires, and not before; a client that comes back with a new one goes on."""

import pytest
import trio
from channels import call, sse, ws
from guarded import guarded, make_server

from mcpbus import Context, Limits
from mcpbus.auth import StaticTokenVerifier
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import InMemoryIssuer, open_bus, open_probe, wait_until_idle

GOOD = ["files:read"]
LEEWAY = 30.0
LISTEN = {"notifications": {"toolsListChanged": True}}


async def ended_after(recording):
    """After how many seconds something ended."""
    before = trio.current_time()
    await recording.ended(timeout=10_000)
    return trio.current_time() - before


async def test_a_get_stream_ends_and_says_when_to_come_back(autojump_clock):
    async with guarded() as it:
        token = it.issuer.bearer("ada", GOOD, lifetime=100)
        session = await it.probe.initialize(headers=token)
        get = await session.get().begun()
        assert await ended_after(get) == pytest.approx(100 + LEEWAY, abs=1)
        assert get.complete
        assert b"retry: 1000\n" in get.body
        it.bus.tools_changed()
        await it.quiet()
        newer = it.issuer.bearer("ada", GOOD)
        fields = {"accept": "text/event-stream", "mcp-session-id": session.id, **newer}
        again = it.probe.send("GET", headers=fields)
        assert (await again.message())["method"] == "notifications/tools/list_changed"


async def test_an_older_stream_that_expires_leaves_a_newer_one_alone(autojump_clock):
    async with guarded() as it:
        session = await it.probe.initialize(headers=it.issuer.bearer("ada", GOOD, lifetime=100))
        await session.get().begun()
        fields = {"accept": "text/event-stream", "mcp-session-id": session.id}
        newer = it.probe.send("GET", headers={**fields, **it.issuer.bearer("ada", GOOD, lifetime=500)})
        assert await ended_after(newer) == pytest.approx(500 + LEEWAY, abs=1)


async def test_a_listen_ends_with_its_result(autojump_clock):
    async with guarded() as it:
        token = it.issuer.bearer("ada", GOOD, lifetime=100)
        listen = await it.probe.request("subscriptions/listen", LISTEN, headers=token).begun()
        assert await ended_after(listen) == pytest.approx(100 + LEEWAY, abs=1)
        assert "result" in listen.messages[-1]


async def test_the_connection_of_http_sse_ends_unless_its_client_brings_a_newer_token(autojump_clock):
    async with guarded() as it:
        token = it.issuer.bearer("ada", GOOD, lifetime=100)
        async with sse(it.probe, "2024-11-05", **token) as client:
            assert await ended_after(client.stream) == pytest.approx(100 + LEEWAY, abs=1)
        token = it.issuer.bearer("ada", GOOD, lifetime=100)
        async with sse(it.probe, "2024-11-05", **token) as client:
            await trio.sleep(50)
            older = it.issuer.bearer("ada", GOOD, lifetime=20)
            newer = it.issuer.bearer("ada", GOOD, lifetime=500)
            for number, later in enumerate((newer, older, token)):
                assert (await client.post(call(number, "whoami"), **later).ended()).status == 202
            assert await ended_after(client.stream) == pytest.approx(500 + LEEWAY, abs=1)


async def test_a_websocket_ends(autojump_clock):
    async with guarded() as it:
        token = it.issuer.bearer("ada", GOOD, lifetime=100)
        async with ws(it.app, "2025-11-25", **token) as client:
            await trio.sleep(100 + LEEWAY - 2)
            assert client.close is None
            await trio.sleep(4)
            assert client.close == 1000


async def test_streams_may_be_made_to_outlive_their_tokens(autojump_clock):
    async with guarded(limits={"stream_outlives_token": True}) as it:
        token = it.issuer.bearer("ada", GOOD, lifetime=100)
        session = await it.probe.initialize(headers=token)
        get = await session.get().begun()
        listen = await it.probe.request("subscriptions/listen", LISTEN, headers=token).begun()
        async with sse(it.probe, "2024-11-05", **token) as client:
            await trio.sleep(1000)
            assert not get.over
            assert not listen.over
            assert not client.stream.over


async def test_a_call_is_not_cut_off_where_its_client_could_not_come_back(autojump_clock):
    server = make_server()

    @server.tool
    async def nap(ctx: Context) -> str:
        await ctx.info("begun")
        await trio.sleep(1000)
        return "rested"

    async with guarded(server=server) as it:
        token = it.issuer.bearer("ada", GOOD, lifetime=100)
        session = await it.probe.initialize(headers=token)
        for answer in (
            session.request("tools/call", {"name": "nap", "arguments": {}}),
            it.probe.request("tools/call", {"name": "nap", "arguments": {}}, headers=token),
        ):
            assert (await answer.reply(timeout=2000))["result"]["content"][0]["text"] == "rested"


@pytest.mark.parametrize("line", ["call", "get"])
async def test_with_an_event_store_a_client_comes_back_to_the_stream_itself(line, autojump_clock):
    issuer = InMemoryIssuer()
    server = make_server(auth=issuer.protect(scopes=GOOD))

    @server.tool
    async def nap(ctx: Context) -> str:
        await trio.sleep(200)
        await ctx.info("half")
        await trio.sleep(200)
        return "rested"

    async with open_bus(server, event_store=MemoryEventStore()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25", headers=issuer.bearer("ada", GOOD, lifetime=100))
        if line == "call":
            first = session.request("tools/call", {"name": "nap", "arguments": {}})
        else:
            first = session.get()
        assert await ended_after(first) == pytest.approx(100 + LEEWAY, abs=1)
        assert b"retry: 1000\n" in first.body
        fields = {
            "accept": "text/event-stream",
            "mcp-session-id": session.id,
            "last-event-id": first.event_ids[-1],
        }
        refused = await probe.send("GET", headers=fields).ended()
        assert refused.status == 401
        other = await probe.send("GET", headers={**fields, **issuer.bearer("bob", GOOD)}).ended()
        assert other.status == 404
        newer = probe.send("GET", headers={**fields, **issuer.bearer("ada", GOOD, lifetime=150)})
        if line == "call":
            assert (await newer.message(timeout=500))["method"] == "notifications/message"
        else:
            await newer.begun()
        before_end = await ended_after(newer)
        assert before_end <= 150 + LEEWAY + 1
        if line == "call":
            fields["last-event-id"] = newer.event_ids[-1]
            last = probe.send("GET", headers={**fields, **issuer.bearer("ada", GOOD)})
            assert (await last.reply(timeout=500))["result"]["content"][0]["text"] == "rested"
        else:
            assert before_end == pytest.approx(150 + LEEWAY, abs=1)
        await wait_until_idle(bus)


async def test_a_get_stream_that_was_superseded_and_is_resumed_ends_with_its_token(autojump_clock):
    issuer = InMemoryIssuer()
    server = make_server(auth=issuer.protect(scopes=GOOD))
    async with open_bus(server, event_store=MemoryEventStore()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25", headers=issuer.bearer("ada", GOOD))
        first = await session.get().begun()
        await session.get().begun()
        await first.ended()
        fields = {
            "accept": "text/event-stream",
            "mcp-session-id": session.id,
            "last-event-id": first.event_ids[-1],
        }
        resumed = probe.send("GET", headers={**fields, **issuer.bearer("ada", GOOD, lifetime=100)})
        assert await ended_after(resumed) == pytest.approx(100 + LEEWAY, abs=1)
        assert resumed.status == 200
        await wait_until_idle(bus)


async def test_a_batch_is_not_cut_off_since_no_client_of_its_revision_could_be_told_to_come_back(
    autojump_clock,
):
    issuer = InMemoryIssuer()
    server = make_server(auth=issuer.protect(scopes=GOOD))

    @server.tool
    async def nap(ctx: Context) -> str:
        await ctx.info("begun")
        await trio.sleep(400)
        return "rested"

    called = {"method": "tools/call", "params": {"name": "nap", "arguments": {}}}
    async with open_bus(server, event_store=MemoryEventStore()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-03-26", headers=issuer.bearer("ada", GOOD))
        batch = [{"jsonrpc": "2.0", "id": number, **called} for number in range(2)]
        fields = {"mcp-session-id": session.id, **issuer.bearer("ada", GOOD, lifetime=100)}
        answer = await probe.post(batch, fields).ended(timeout=500)
        assert sorted(message["id"] for message in answer.messages if "id" in message) == [0, 1]


async def test_a_token_whose_end_is_not_known_ends_nothing(autojump_clock):
    async with guarded(verifier=lambda _: StaticTokenVerifier({"a": "files:read"})) as it:
        token = {"authorization": "Bearer a"}
        listen = await it.probe.request("subscriptions/listen", LISTEN, headers=token).begun()
        await trio.sleep(50_000)
        assert not listen.over


def test_by_default_nothing_outlives_its_token():
    assert not Limits().stream_outlives_token
