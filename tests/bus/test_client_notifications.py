"""What clients tell a server, given to the function that its author registered for it."""

import pytest
import trio
from staging import CLAIM, staged

from mcpbus import ClientNotification, Server
from mcpbus.core.sessions.session import SessionStage
from mcpbus.features.errors import RegistrationError

ROOTS = "notifications/roots/list_changed"
CUSTOM = "notifications/acme/moved"
PARAMS = {"to": "oslo", "deep": [{"er": 1}]}


def listen(server, method=CUSTOM, **options):
    """Register a function that keeps what it is given, and return where."""
    told = []

    @server.on_notification(method, **options)
    async def hear(notification: ClientNotification) -> None:
        told.append(notification)

    return told


def message(method, params=PARAMS):
    return {"jsonrpc": "2.0", "method": method, "params": params}


async def by_header(head):
    return head.headers.get("x-user")


@pytest.mark.parametrize("method", [ROOTS, CUSTOM])
async def test_what_a_client_says_in_its_session_is_given_with_that(method, autojump_clock):
    async with staged(authenticate=by_header) as stage:
        told = listen(stage.server, method)
        session = await stage.probe.initialize(headers={"x-user": "ann"})
        assert (await session.notify(method, PARAMS).ended()).status == 202
        await stage.quiet()
        (notification,) = told
        assert (notification.method, notification.params, notification.principal) == (method, PARAMS, "ann")
        assert notification.session is stage.bus.sessions[session.id]
        await stage.assert_nothing_is_left()


async def test_initialized_is_given_once_the_session_is_ready(autojump_clock):
    async with staged() as stage:
        stages = []

        @stage.server.on_notification("notifications/initialized")
        async def hear(notification: ClientNotification) -> None:
            stages.append(notification.session.stage)

        await stage.probe.initialize()
        await stage.quiet()
        assert stages == [SessionStage.READY]
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("way", ["stateless", "modern"])
async def test_without_a_session_it_is_given_as_well(way, autojump_clock):
    async with staged(
        authenticate=by_header, http={"sessions": "stateless"} if way == "stateless" else None
    ) as stage:
        told = listen(stage.server)
        fields = {"x-user": "bob"}
        params = PARAMS
        if way == "modern":
            fields |= {"mcp-protocol-version": "2026-07-28", "mcp-method": CUSTOM}
            params = PARAMS | {"_meta": CLAIM}
        assert (await stage.probe.post(message(CUSTOM, params), fields).ended()).status == 202
        await stage.quiet()
        assert [(each.params, each.session, each.principal) for each in told] == [(params, None, "bob")]
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("revision", ["2025-11-25", None])
async def test_on_a_channel_it_is_given_with_the_session_if_that_was_initialized(revision, autojump_clock):
    async with staged() as stage:
        told = listen(stage.server)
        async with stage.wire(revision) as wire:
            await wire.say(CUSTOM, PARAMS)
            await stage.quiet()
        assert [each.params for each in told] == [PARAMS]
        assert (told[0].session is not None) is (revision is not None)


async def test_in_process_it_is_given_without_params_if_there_were_none(autojump_clock):
    async with staged() as stage:
        told = listen(stage.server)
        async with stage.bus.connect() as client:
            await client.notify(CUSTOM)
            await stage.quiet()
        assert [each.params for each in told] == [{}]


async def test_each_message_of_a_batch_is_given(autojump_clock):  # J-27
    async with staged() as stage:
        told = listen(stage.server)
        session = await stage.probe.initialize("2025-03-26")
        batch = [message(CUSTOM, {"n": n}) for n in range(3)]
        answer = await stage.probe.post(batch, {"mcp-session-id": session.id}).ended()
        assert (answer.status, answer.body) == (202, b"")
        await stage.quiet()
        assert sorted(each.params["n"] for each in told) == [0, 1, 2]


async def test_what_nobody_registered_for_is_ignored(autojump_clock):
    async with staged() as stage:
        told = listen(stage.server)
        session = await stage.probe.initialize()
        assert (await session.notify("notifications/acme/other").ended()).status == 202
        await stage.quiet()
        assert told == []
        assert stage.bus.statistics().requests == 0


async def test_a_function_that_takes_too_long_is_cancelled_and_its_place_given_back(autojump_clock, caplog):
    async with staged() as stage:
        ends = []

        @stage.server.on_notification(CUSTOM, timeout=3)
        async def linger(_notification):
            try:
                await trio.sleep_forever()
            finally:
                ends.append(trio.current_time())

        session = await stage.probe.initialize()
        begun = trio.current_time()
        session.notify(CUSTOM)
        await stage.quiet()
        assert stage.bus.statistics().requests == 1
        await trio.sleep(4)
        assert ends == [begun + 3]
        assert "was not done within 3 seconds" in caplog.text
        await stage.assert_nothing_is_left()


async def test_what_a_function_raises_is_logged_and_harms_nobody(autojump_clock, caplog):
    async with staged() as stage:

        @stage.server.on_notification(CUSTOM)
        async def fail(_notification):
            raise ValueError("mine")

        session = await stage.probe.initialize()
        assert (await session.notify(CUSTOM).ended()).status == 202
        await stage.quiet()
        assert "ValueError: mine" in caplog.text
        await stage.assert_nothing_is_left()


async def test_no_more_run_at_once_in_a_session_than_requests_may(autojump_clock):
    async with staged(limits={"max_requests_per_session": 2}) as stage:
        begun = []

        @stage.server.on_notification(CUSTOM)
        async def linger(notification):
            begun.append(notification.params["n"])
            await trio.sleep(5)

        session = await stage.probe.initialize()
        for n in range(3):
            await session.notify(CUSTOM, {"n": n}).ended()
        await stage.quiet()
        assert begun == [0, 1]
        await trio.sleep(6)
        await session.notify(CUSTOM, {"n": 3}).ended()
        await stage.quiet()
        assert begun == [0, 1, 3]


async def test_a_function_ends_with_the_session_that_it_runs_for(autojump_clock):
    async with staged() as stage:
        ends = []

        @stage.server.on_notification(CUSTOM)
        async def linger(_notification):
            try:
                await trio.sleep_forever()
            finally:
                ends.append("cancelled")

        session = await stage.probe.initialize()
        await session.notify(CUSTOM).ended()
        await stage.quiet()
        await session.delete().ended()
        await stage.quiet()
        assert ends == ["cancelled"]
        await stage.assert_nothing_is_left()


async def test_a_drain_waits_for_a_function(autojump_clock):
    ends = []
    async with staged(drain_timeout=5) as stage:

        @stage.server.on_notification(CUSTOM)
        async def linger(_notification):
            await trio.sleep(4)
            ends.append("done")

        await stage.probe.post(
            {**message(CUSTOM), "params": {"_meta": CLAIM}},
            {"mcp-protocol-version": "2026-07-28", "mcp-method": CUSTOM},
        ).ended()
    assert ends == ["done"]


async def test_what_cannot_be_started_gives_its_place_back(autojump_clock, monkeypatch, caplog):
    async with staged() as stage:
        told = listen(stage.server)
        session = await stage.probe.initialize()

        def no_memory(*_):
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr("mcpbus.dispatch.dispatcher.NotificationActor", no_memory)
            assert (await session.notify(CUSTOM).ended()).status == 202
        await stage.quiet()
        assert "was not given to anybody" in caplog.text
        assert (told, stage.bus.statistics().requests) == ([], 0)


def test_what_cannot_be_registered_is_refused_when_it_is():
    server = Server("s")
    listen(server)
    for method, options in [
        ("notifications/cancelled", {}),
        ("tools/call", {}),
        (CUSTOM, {}),
        (ROOTS, {"timeout": 0}),
    ]:
        with pytest.raises(RegistrationError):
            server.on_notification(method, **options)
    with pytest.raises(RegistrationError, match="not an async function"):
        server.on_notification(ROOTS)(lambda _: None)


async def test_of_a_function_that_is_done_in_time_nothing_is_logged(autojump_clock, caplog):
    async with staged() as stage:
        told = listen(stage.server)
        session = await stage.probe.initialize()
        await session.notify(CUSTOM).ended()
        await stage.quiet()
        assert (len(told), caplog.text) == (1, "")
