"""What handlers keep for a session, and what runs when it has ended."""

import pytest
import trio

from mcpbus import Context, Limits, RegistrationError, Server
from mcpbus.testing import open_bus, open_probe, wait_until_idle

IDLE = 1800


def counting(log, server=None):
    server = server or Server("s")

    @server.tool
    async def count(ctx: Context) -> int:
        ctx.session.state["count"] = ctx.session.state.get("count", 0) + 1
        return ctx.session.state["count"]

    @server.on_session_end
    async def leave(session):
        await trio.lowlevel.checkpoint()
        log.append(session.state.get("count"))

    return server


async def count(client):
    return (await client.call_tool("count"))["content"][0]["text"]


async def test_each_session_has_a_state_of_its_own(autojump_clock):
    log = []
    async with open_bus(counting(log)) as bus:
        async with (
            bus.connect(revision="2025-11-25") as one,
            bus.connect(revision="2025-11-25") as other,
        ):
            assert [await count(one), await count(one), await count(other)] == ["1", "2", "1"]
            assert log == []
        await wait_until_idle(bus)
        assert sorted(log) == [1, 2]
        assert bus.statistics().limits_reached == {}


async def deleted(_bus, session):
    await session.delete().ended()


async def closed(bus, session):
    bus.sessions[session.id].close()


async def idle(_bus, _session):
    await trio.sleep(IDLE + 1)


@pytest.mark.parametrize("end", [deleted, closed, idle])
async def test_the_hook_runs_however_a_session_ends(end, autojump_clock):
    log = []
    async with open_bus(counting(log)) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25")
        await session.request("tools/call", {"name": "count", "arguments": {}}).reply()
        await end(bus, session)
        await wait_until_idle(bus)
        assert log == [1]
        assert not bus.sessions


async def test_a_drain_waits_for_the_hooks_as_long_as_it_waits_for_requests(autojump_clock):
    log = []
    server = Server("s")

    @server.on_session_end
    async def leave(session):
        for number in range(10):
            log.append(number)
            await trio.sleep(1)

    async with open_bus(server, drain_timeout=3.5) as bus, open_probe(bus.asgi()) as probe:
        await probe.initialize("2025-11-25")
    assert log == [0, 1, 2, 3]


async def test_it_does_not_run_for_a_session_that_was_refused(autojump_clock):
    log = []
    server = counting(log)

    @server.on_session
    async def refuse(session):
        raise ValueError

    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        refused = await probe.post(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        ).ended()
        assert "error" in refused.messages[0]
        await wait_until_idle(bus)
    assert log == []


async def test_one_hook_that_fails_keeps_no_other_from_running(caplog, autojump_clock):
    log = []
    server = Server("s")

    @server.on_session_end
    async def stumble(session):
        raise ValueError("of no use")

    async with open_bus(counting(log, server)) as bus:
        async with bus.connect(revision="2025-11-25") as client:
            await count(client)
        await wait_until_idle(bus)
    assert log == [1]
    assert "of no use" in caplog.text


async def test_all_hooks_together_have_a_limit(autojump_clock):
    log = []
    server = Server("s")

    @server.on_session_end
    async def stay(session):
        await trio.sleep_forever()

    async with open_bus(counting(log, server)) as bus:
        async with bus.connect(revision="2025-11-25"):
            pass
        await trio.sleep(bus.limits.on_session_timeout - 1)
        assert bus.statistics().limits_reached == {}
        await trio.sleep(2)
        assert bus.statistics().limits_reached == {"on_session_timeout": 1}
        assert bus.statistics().actors == 0
    assert log == []


def test_a_plain_function_is_refused():
    with pytest.raises(RegistrationError, match=r"on_session_end: .* is not an async function"):
        Server("s").on_session_end(lambda session: None)


async def test_hooks_run_for_as_many_sessions_at_once_as_there_may_be(autojump_clock):
    begun, ended = [], []
    server = Server("s")

    @server.on_session_end
    async def leave(session):
        begun.append(session)
        try:
            await trio.sleep(5)
        finally:
            ended.append(session)

    async with open_bus(server, limits=Limits(max_sessions=3)) as bus:
        for _ in range(20):
            async with bus.connect(revision="2025-11-25"):
                pass
            await wait_until_idle(bus)
            assert len(begun) - len(ended) <= 3
        assert begun[:17] == ended  # those that have run for longest were cut short
        assert bus.statistics().limits_reached["max_sessions"] == 17
        await trio.sleep(5)
    assert len(begun) == len(ended) == 20


async def test_nobodys_hook_is_cut_short_for_an_owner_that_has_more(autojump_clock):
    whole = []
    server = Server("s")

    @server.on_session_end
    async def leave(session):
        await trio.sleep(5)
        whole.append(session.principal)

    async with open_bus(server, limits=Limits(max_sessions=3)) as bus:
        for principal in ("few", *["many"] * 9):
            async with bus.connect(revision="2025-11-25", principal=principal):
                pass
            await wait_until_idle(bus)
        await trio.sleep(5)
    assert sorted(whole) == ["few", "many", "many"]
