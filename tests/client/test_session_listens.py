"""Listening to changes: as one writes it for 2026-07-28, and in the older revisions, which have no listens but subscriptions."""

import json

import pytest
import trio
from test_client_ends import walled
from trio.testing import wait_all_tasks_blocked

from mcpbus import Server
from mcpbus.client.errors import DisconnectedError
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.revisions import REVISIONS, Era
from mcpbus.testing import open_client

OLDER = [name for name, revision in REVISIONS.items() if revision.era is Era.LEGACY]
UPDATED, TOOLS = "notifications/resources/updated", "notifications/tools/list_changed"


def make_shelf():
    server = Server("shelf")

    @server.resource("shelf://{name}")
    async def read(name: str) -> str:
        return name

    @server.resource("shelf://box/{name}")
    async def read_box(name: str) -> str:
        return name

    server.tool(name="first")(lambda: "first")
    return server


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_listen_hears_what_it_names_in_each_revision(revision, autojump_clock):
    server = make_shelf()
    async with (
        open_client(server, revision=revision) as client,
        client.listen(tools=True, uris=["shelf://a", "shelf://box"]) as changes,
    ):
        told = changes.acknowledged["notifications"]
        assert (told["toolsListChanged"], told["resourceSubscriptions"]) == (
            True,
            ["shelf://a", "shelf://box"],
        )
        for uri in ("shelf://b", "shelf://box/1", "shelf://a"):
            server.resource_updated(uri)
        server.tool(name="second")(lambda: "second")
        with trio.fail_after(10):
            heard = [await anext(changes) for _ in range(3)]
        assert sorted((method, params.get("uri")) for method, params in heard[:2]) == [
            (UPDATED, "shelf://a"),
            (UPDATED, "shelf://box/1"),
        ]
        assert heard[2][0] == TOOLS
        assert not client.notifications


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_listen_ends_with_its_client(revision, autojump_clock):
    async with open_client(make_shelf(), revision=revision) as client, client.listen(tools=True) as changes:
        client.disconnected()
        with trio.fail_after(10):
            assert [change async for change in changes] == []
        with pytest.raises(DisconnectedError):
            async with client.listen(tools=True):
                pass


async def test_only_2026_07_28_has_tasks_to_listen_to(autojump_clock):
    async with open_client(make_shelf(), revision="2025-11-25") as client:
        with pytest.raises(ValueError, match="2025-11-25 has no tasks to listen to"):
            async with client.listen(task_ids=["1"]):
                pass


def asked(wall):
    """What was asked of a server, and of which resource."""
    return [(each.method, json.loads(bytes(each.params)).get("uri")) for each in wall.heard]


async def answer(wall, **said):
    """Answer what a server was asked last."""
    await wait_all_tasks_blocked()
    wall.client.receive(json.dumps({"jsonrpc": "2.0", "id": wall.heard[-1].id, **said}))
    await wait_all_tasks_blocked()


async def listen(wall, *uris, left=None, task_status=trio.TASK_STATUS_IGNORED, **lists):
    async with wall.client.listen(uris=uris, **lists) as changes:
        task_status.started(changes)
        await left.wait()


@pytest.mark.parametrize("last", [False, True])
async def test_a_resource_is_told_of_until_the_last_listen_to_it_is_left(last, autojump_clock):
    lefts = trio.Event(), trio.Event()
    async with walled(revision=REVISIONS["2025-11-25"]) as wall, trio.open_nursery() as nursery:
        for left in lefts:
            nursery.start_soon(lambda left=left: listen(wall, "res://a", left=left))
            await answer(wall, result={})
        lefts[0].set()
        await wait_all_tasks_blocked()
        if last:
            lefts[1].set()
            await wait_all_tasks_blocked()
        subscribed = [("resources/subscribe", "res://a")] * 2
        assert asked(wall) == subscribed + [("resources/unsubscribe", "res://a")] * last
        lefts[1].set()


async def test_each_of_several_listens_hears_what_it_names(autojump_clock):
    left = trio.Event()
    async with walled(revision=REVISIONS["2025-11-25"]) as wall, trio.open_nursery() as nursery:
        both, lists = [
            await nursery.start(lambda wanted=wanted, **status: listen(wall, left=left, **wanted, **status))
            for wanted in ({"tools": True, "prompts": True}, {"tools": True})
        ]
        wall.say("notifications/prompts/list_changed")
        wall.say(TOOLS)
        wall.say("notifications/resources/list_changed")
        left.set()
        wall.client.disconnected()
        assert [method async for method, _ in both] == ["notifications/prompts/list_changed", TOOLS]
        assert [method async for method, _ in lists] == [TOOLS]
        assert [method for method, _ in wall.client.notifications] == ["notifications/resources/list_changed"]


async def test_a_subscription_that_is_refused_is_raised_and_what_was_subscribed_to_is_given_back(
    autojump_clock,
):
    async with walled(revision=REVISIONS["2025-11-25"]) as wall, trio.open_nursery() as nursery:

        async def refused():
            with pytest.raises(ProtocolError, match="no such resource"):
                await listen(wall, "res://a", "res://b")

        nursery.start_soon(refused)
        await answer(wall, result={})
        await answer(wall, error={"code": -32002, "message": "no such resource"})
        assert asked(wall)[2:] == [("resources/unsubscribe", "res://a")]
        wall.say(UPDATED, uri="res://a")
        assert len(wall.client.notifications) == 1


async def test_who_gives_up_listening_before_the_answer_came_is_subscribed_to_nothing(autojump_clock):
    async with walled(revision=REVISIONS["2025-11-25"]) as wall, trio.open_nursery() as nursery:
        nursery.start_soon(listen, wall, "res://a")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert asked(wall)[-1] == ("resources/unsubscribe", "res://a")


@pytest.mark.parametrize(
    ("named", "changed", "heard"),
    [
        ("res://a", "res://a", True),
        ("res://a", "res://a/b", True),
        ("res://a/", "res://a/b", True),
        ("res://a", "res://ab", False),
        ("res://a/b", "res://a", False),
        ("res://a", 5, False),
    ],
)
async def test_who_listens_to_a_resource_hears_of_those_below_it_too(named, changed, heard, autojump_clock):
    left = trio.Event()
    async with walled(revision=REVISIONS["2025-11-25"]) as wall, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: listen(wall, named, left=left))
        await answer(wall, result={})
        wall.say(UPDATED, uri=changed)
        assert (not wall.client.notifications) is heard
        left.set()


@pytest.mark.parametrize("revision", OLDER)
async def test_a_resource_is_heard_of_until_its_last_listen_ends_in_whatever_spelling(
    revision, autojump_clock
):
    server = make_shelf()
    async with (
        open_client(server, revision=revision) as client,
        client.listen(uris=["shelf://\u00e9"]) as kept,
    ):
        async with client.listen(uris=["shelf://%C3%A9"]):
            pass
        server.resource_updated("shelf://%c3%a9")
        with trio.fail_after(10):
            assert await anext(kept) == (UPDATED, {"uri": "shelf://%c3%a9"})
