"""What comes of those who wait for a client, or speak through it, when it is left, its server goes, or their own code fails."""

import json
from contextlib import asynccontextmanager

import pytest
import trio
from test_bad_servers import HELLO, MODERN, TAKEN, events, result, speaking
from test_clients_on_the_wire import over_http, over_stdio
from trio.testing import wait_all_tasks_blocked
from wire_server import make_server

from mcpbus.client.client import Client
from mcpbus.client.errors import DisconnectedError
from mcpbus.client.http import connect_http
from mcpbus.protocol.revisions import REVISIONS

ROOTS = {"roots": {}}
OLD, NEW = REVISIONS["2025-11-25"], REVISIONS["2026-07-28"]


@asynccontextmanager
async def in_process(revision=NEW.name, **options):
    async with make_server().open() as bus, bus.connect(revision=revision, **options) as client:
        yield client


EVERYWHERE = pytest.mark.parametrize("connect", [in_process, over_http, over_stdio])
BOTH_ERAS = pytest.mark.parametrize("revision", [OLD.name, NEW.name])


@EVERYWHERE
@BOTH_ERAS
async def test_who_waits_for_a_client_that_is_left_is_told(connect, revision):
    told, begun = [], trio.Event()

    async def wait(waiting):
        try:
            await waiting
        except DisconnectedError as error:
            told.append(error)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery, connect(revision=revision) as client:
            nursery.start_soon(wait, client.next_notification())
            nursery.start_soon(wait, client.call_tool("hang", on_notification=lambda *_: begun.set()))
            await begun.wait()
    assert len(told) == 2


@EVERYWHERE
async def test_a_client_that_was_left_says_so(connect):
    async with connect() as client:
        pass
    with pytest.raises(DisconnectedError):
        await client.list_tools()
    with pytest.raises(DisconnectedError):
        await client.notify("notifications/initialized")
    with pytest.raises(DisconnectedError):
        await client.next_notification()


class Wall:
    """A server that does not answer; and its client."""

    def __init__(self, nursery, revision=OLD, on_input_request=None, capabilities=ROOTS, **options):
        self.heard = []
        options = {"capabilities": capabilities, "on_input_request": on_input_request, **options}
        self.client = Client(revision, self.send, nursery, **options)

    def send(self, message, pending):
        self.heard.append(message)
        if pending is not None:
            pending.begun = True

    def say(self, method, **params):
        self.client.receive(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))


@asynccontextmanager
async def walled(**options):
    async with trio.open_nursery() as nursery:
        yield Wall(nursery, **options)
        nursery.cancel_scope.cancel()


async def test_each_of_several_who_wait_for_notifications_has_one(autojump_clock):
    taken = []

    async def take(client):
        taken.append((await client.next_notification())[1]["number"])

    async with walled() as wall:
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(take, wall.client)
                await wait_all_tasks_blocked()
                for number in range(3):
                    wall.say("notifications/resources/updated", number=number)
    assert sorted(taken) == [0, 1, 2]


@EVERYWHERE
@BOTH_ERAS
async def test_what_a_listener_raises_ends_its_call_and_no_other(connect, revision):
    def fail(*_):
        raise ValueError("I cannot draw that")

    async with connect(revision=revision) as client:
        with pytest.raises(ValueError, match="I cannot draw that"):
            await client.call_tool("hang", on_notification=fail)
        assert await client.list_tools()


async def test_a_call_whose_listener_fails_is_cancelled(autojump_clock):
    async with walled() as wall:

        async def fail():
            with pytest.raises(ZeroDivisionError):
                await wall.client.request("tools/call", {"name": "a"}, on_notification=lambda *_: 1 / 0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await wait_all_tasks_blocked()
            nursery.start_soon(wall.client.request, "ping")
            await wait_all_tasks_blocked()
            wall.say("notifications/progress", progressToken=1, progress=1)
            wall.say("notifications/progress", progressToken=1, progress=2)
            wall.client.answered(2, b"{}")  # which the other call has waited for all the same
    assert [message.method for message in wall.heard] == ["tools/call", "ping", "notifications/cancelled"]


async def test_a_handshake_is_given_up_without_a_word(autojump_clock):  # L-13
    async with walled() as wall:
        wall.client.adopt(OLD)
        with trio.move_on_after(1) as scope:
            await wall.client.initialize()
    assert scope.cancelled_caught
    assert [message.method for message in wall.heard] == ["initialize"]


async def test_a_cancellation_stays_one_where_the_server_takes_nothing(autojump_clock):
    async with walled() as wall:
        with trio.move_on_after(1) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wall.client.request, "tools/list")
                await wait_all_tasks_blocked()

                def refuse(*_):
                    raise DisconnectedError("it reads nothing")

                wall.client._put = refuse
    assert scope.cancelled_caught


async def test_neither_an_answer_nor_a_cancellation_holds_up_a_call():
    asked, cancelled, over = trio.Event(), trio.Event(), trio.Event()

    async def ping(stream):
        await stream.send_all(events('data: {"jsonrpc": "2.0", "id": "q", "method": "ping"}\n\n'))
        await over.wait()

    def late(seen):
        async def never(stream):
            seen.set()
            await over.wait()

        return never

    with trio.fail_after(20):
        async with (
            speaking(HELLO, TAKEN, ping, late(asked), late(cancelled), result({})) as (url, sent),
            connect_http(url, revision=OLD.name) as client,
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.list_tools)
                await asked.wait()
                nursery.cancel_scope.cancel()
            await cancelled.wait()
            assert await client.request("ping") == {}
            over.set()
    assert '"id":"q","result":{}' in sent[3]
    assert "notifications/cancelled" in sent[4]


async def test_what_was_said_last_is_accepted_before_the_session_is_ended():
    asked, left = trio.Event(), trio.Event()

    async def later(stream):
        asked.set()
        await left.wait()
        sent.append("accepted")
        await stream.send_all(TAKEN)

    async def leave():
        async with connect_http(url, revision=OLD.name) as client:
            await client.notify("notifications/roots/list_changed")
            await asked.wait()

    async with speaking(HELLO, TAKEN, later) as (url, sent), trio.open_nursery() as nursery:
        nursery.start_soon(leave)
        await asked.wait()
        await wait_all_tasks_blocked(0.01)
        left.set()
    assert sent[-2] == "accepted"
    assert sent[-1].startswith("DELETE ")


async def test_a_call_that_is_given_up_before_it_is_sent_is_never_sent():
    accept = trio.Event()

    async def later(stream):
        await accept.wait()
        await stream.send_all(TAKEN)

    async with (
        speaking(HELLO, TAKEN, later, result({})) as (url, sent),
        connect_http(url, revision=OLD.name) as client,
        trio.open_nursery() as nursery,
    ):
        await client.notify("notifications/roots/list_changed")
        nursery.start_soon(client.list_tools)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            accept.set()
            await client.request("ping")
    assert "tools/list" not in "".join(sent)


async def test_what_a_client_that_is_cancelled_said_last_is_said_before_the_session_is_ended():
    asked, scope = trio.Event(), trio.CancelScope()

    async def never(stream):
        asked.set()
        await trio.sleep_forever()

    async def use():
        with scope:
            async with connect_http(url, revision=OLD.name) as client:
                await client.list_tools()

    with trio.fail_after(20):
        async with speaking(HELLO, TAKEN, never) as (url, sent), trio.open_nursery() as nursery:
            nursery.start_soon(use)
            await asked.wait()
            scope.cancel()
    assert "notifications/cancelled" in sent[-2]
    assert sent[-1].startswith("DELETE ")


async def test_a_client_is_left_though_a_call_is_not_answered():
    asked = trio.Event()

    async def never(stream):
        asked.set()
        await trio.sleep_forever()

    async def fails():
        with pytest.raises(DisconnectedError, match="the client was closed"):
            await client.list_tools()

    with trio.fail_after(20):
        async with (
            speaking(HELLO, TAKEN, never) as (url, _),
            trio.open_nursery() as nursery,
            connect_http(url, revision=OLD.name) as client,
        ):
            nursery.start_soon(fails)
            await asked.wait()


async def test_the_answer_to_a_call_that_is_given_up_is_left_at_once():  # which is how 2026-07-28 cancels it over HTTP
    asked, left = trio.Event(), trio.Event()

    async def never(stream):
        asked.set()
        assert await stream.receive_some() == b""
        left.set()

    with trio.fail_after(20):
        async with (
            speaking(result(MODERN), never) as (url, _),
            connect_http(url, revision=NEW.name) as client,
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.list_tools)
                await asked.wait()
                nursery.cancel_scope.cancel()
            await left.wait()
