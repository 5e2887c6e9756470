"""What the heads of answers say: whose session it is, and that streams are passed on at once."""

import pytest

from mcpbus import Context, Server
from mcpbus.testing import open_bus, open_probe

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
server = Server("heads", version="1")


@server.tool
async def speak(ctx: Context) -> str:
    await ctx.progress(1)
    return "said"


CALL = {"name": "speak", "arguments": {}}


@pytest.mark.parametrize("revision", LEGACY)
async def test_the_session_is_named_by_the_answer_to_initialize_alone(revision, autojump_clock):  # W-28
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(revision)
        get = await session.get().begun()
        answers = [
            await session.request("ping").ended(),
            await session.request("tools/call", CALL, progress_token="t").ended(),
            await session.notify("notifications/progress").ended(),
            get,
        ]
        assert [answer.status for answer in answers] == [200, 200, 202, 200]
        assert not any("mcp-session-id" in answer.headers for answer in answers)
        get.disconnect()


async def test_session_ids_are_visible_ascii_and_not_to_be_guessed(autojump_clock):  # W-29, W-30
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        ids = [(await probe.initialize()).id for _ in range(50)]
    assert all(0x21 <= ord(character) <= 0x7E for each in ids for character in each)
    assert len({each[:16] for each in ids}) == 50, "128 bits are 22 characters at least"
    assert min(map(len, ids)) >= 22


async def test_a_modern_request_has_no_session_whatever_it_names(autojump_clock):  # D-8
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        for named in (session.id, "nobody"):
            answer = await probe.request("tools/list", headers={"mcp-session-id": named}).ended()
            assert (answer.status, "mcp-session-id" in answer.headers) == (200, False)


@pytest.mark.parametrize("modern", [True, False])
async def test_proxies_are_told_to_pass_streams_on_at_once(modern, autojump_clock):
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        if modern:
            opened = probe.request("subscriptions/listen", {"notifications": {}})
            called = probe.request("tools/call", CALL, progress_token="t")
        else:
            session = await probe.initialize()
            opened, called = session.get(), session.request("tools/call", CALL, progress_token="t")
        for stream in (await opened.begun(), await called.ended()):
            assert stream.is_stream
            assert stream.headers["x-accel-buffering"] == "no"
        opened.disconnect()


@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": "garbage", "tracestate": 5, "baggage": ["x"]},
        {"traceparent": None},
        {"traceparent": "00-0-0-00"},
        {"a b/c": 1, "": 2, "mcp.dev/x": {}},
    ],
)
async def test_what_a_request_says_beside_harms_nothing(meta, autojump_clock):  # B-4, B-5
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        for call in (
            probe.request("tools/call", {**CALL, "_meta": meta}),
            session.request("tools/call", {**CALL, "_meta": meta}),
        ):
            assert (await call.reply())["result"]["content"] == [{"type": "text", "text": "said"}]


TRACED = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
    "tracestate": "vendor=value",
    "baggage": "user=ada",
}


async def test_a_handler_reads_where_a_request_belongs_in_a_trace(autojump_clock):  # B-3
    traced, seen = Server("s"), []

    @traced.tool
    async def look(ctx: Context) -> None:
        seen.append({name: ctx.meta.get(name) for name in TRACED})

    async with open_bus(traced) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        for client in (probe, session):
            await client.request("tools/call", {"name": "look", "_meta": TRACED}).reply()
    assert seen == [TRACED, TRACED]


@pytest.mark.parametrize("extensions", [{"com.example/x": {}}, {"com.example/x": {"deep": [1]}}, {}])
async def test_who_has_extensions_that_nobody_knows_here_is_served_as_anybody(
    extensions, autojump_clock
):  # B-6
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        reply = await probe.request("tools/call", CALL, capabilities={"extensions": extensions}).reply()
        assert reply["result"]["content"] == [{"type": "text", "text": "said"}]
        offered = await probe.request("server/discover", capabilities={"extensions": extensions}).reply()
        assert "com.example/x" not in offered["result"]["capabilities"].get("extensions", {})
