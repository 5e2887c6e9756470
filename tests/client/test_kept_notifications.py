"""Notifications that nobody takes: limited in number and in memory, and the newest of them are kept."""

import json

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from test_client_ends import walled
from trio.testing import wait_all_tasks_blocked

from mcpbus.client import input_requests, kept_notifications, pending
from mcpbus.client.errors import DisconnectedError, MalformedAnswerError
from mcpbus.client.kept_notifications import KEPT_BYTES, KEPT_NOTIFICATIONS, KeptNotifications
from mcpbus.client.pending import ChangeSubscription
from mcpbus.protocol.jsonrpc import Undecodable
from mcpbus.protocol.large import weigh
from mcpbus.protocol.revisions import REVISIONS

LARGE = 3_000
"""Bytes of a notification of which a test keeps 30."""
UPDATED = "notifications/resources/updated"


def text_of(params):
    return msgspec.Raw(json.dumps(params).encode())


def put(queue, number, size):
    params = {"number": number, "text": "x" * size}
    return queue.add("a", params, text_of(params))


@given(
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["add", "take", "pop", "clear"])), max_size=60)
)
def test_the_newest_are_kept_within_both_limits_whatever_a_program_takes_out(steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_notifications, "KEPT_NOTIFICATIONS", 5)
        patch.setattr(kept_notifications, "KEPT_BYTES", 1_500)
        queue, expected, dropped = KeptNotifications(), [], 0
        for number, (size, step) in enumerate(steps):
            if step == "add":
                weight = weigh(text_of({"number": number, "text": "x" * size}))
                fits = put(queue, number, size)
                before = [*expected]
                while expected and (len(expected) > 4 or sum(w for _, w in expected) + weight > 1_500):
                    expected.pop(0)
                dropped += len(before) - len(expected)
                expected.append((number, weight))
                assert fits is (len(expected) == len(before) + 1)
            elif expected and step == "take":
                assert queue.take()[1]["number"] == expected.pop(0)[0]
            elif expected and step == "pop":
                assert queue.items.pop()[1]["number"] == expected.pop()[0]
            elif step == "clear":
                queue.items.clear()
                expected.clear()
            assert [params["number"] for _, params in queue.items] == [number for number, _ in expected]
            assert queue.dropped == dropped


def test_one_that_is_too_heavy_alone_is_not_kept_and_takes_the_place_of_none():
    queue = KeptNotifications()
    assert put(queue, 1, 5)
    assert not queue.add("a", {}, msgspec.Raw(b"[" * (KEPT_BYTES // 64)))
    assert (len(queue.items), queue.dropped) == (1, 1)
    assert put(queue, 3, 5)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(kept_notifications, "KEPT_BYTES", 100_000)


async def test_large_notifications_that_nobody_takes_are_bounded_in_bytes(small, autojump_clock):
    async with walled() as wall:
        for number in range(100):
            wall.say("notifications/other", number=number, text="x" * LARGE)
        kept = [params["number"] for _, params in wall.client.notifications]
        assert kept == [*range(100 - 30, 100)]
        assert wall.client.losses == 100 - 30
        assert (await wall.client.next_notification())[1]["number"] == 70


async def test_so_many_notifications_that_nobody_takes_are_counted_as_lost(autojump_clock):
    async with walled() as wall:
        for number in range(KEPT_NOTIFICATIONS + 3):
            wall.say("notifications/other", number=number)
        assert wall.client.losses == 3


async def test_who_waits_for_a_notification_that_is_too_large_to_keep_hears_that_one_was_lost(
    small, autojump_clock
):
    async with walled() as wall, trio.open_nursery() as nursery:

        async def wait():
            with pytest.raises(DisconnectedError, match="dropped"):
                await wall.client.next_notification()

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        wall.say("notifications/other", values=[[]] * 2_000)


@pytest.mark.parametrize(("size", "kept"), [(LARGE, 26), (1, KEPT_NOTIFICATIONS)])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_listen_that_nobody_reads_is_bounded_and_has_the_newest_changes(
    revision, size, kept, monkeypatch, autojump_clock
):
    monkeypatch.setattr(kept_notifications, "KEPT_BYTES", 100_000 if size > 1 else KEPT_BYTES)
    uri = "res://one"
    async with walled(revision=REVISIONS[revision]) as wall, trio.open_nursery() as nursery:
        listens = []

        async def listen():
            async with wall.client.listen(uris=[uri]) as each:
                listens.append(each)
                await trio.sleep_forever()

        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": wall.heard[0].id}}
        if revision == "2025-11-25":
            wall.client.receive(json.dumps({"jsonrpc": "2.0", "id": wall.heard[0].id, "result": {}}))
        else:
            wall.say("notifications/subscriptions/acknowledged", **meta, notifications={})
        await wait_all_tasks_blocked()
        for number in range(kept + 5):
            wall.say(UPDATED, **meta, uri=uri, number=number, text="x" * size)
        [one] = listens
        assert one.dropped == 5
        assert [(await anext(one))[1]["number"] for _ in range(kept)] == [*range(5, kept + 5)]
        nursery.cancel_scope.cancel()


async def test_a_change_that_comes_after_the_end_of_a_listen_is_not_kept(autojump_clock):
    listen = ChangeSubscription()
    listen.put("a", {}, text_of({}))
    listen.end()
    listen.put("b", {}, text_of({}))
    assert [method async for method, _ in listen] == ["a"]


async def test_who_is_cancelled_takes_no_change(autojump_clock):
    listen = ChangeSubscription()
    listen.put("a", {}, text_of({}))
    with trio.CancelScope() as scope:
        scope.cancel()
        await anext(listen)
    assert scope.cancelled_caught
    assert await anext(listen) == ("a", {})


def heavy():
    """A megabyte of JSON that takes 64 MiB of memory, and more, once it is decoded."""
    return b'{"a": [' + b"[]," * (750_000) + b"[]]}"


async def test_a_notification_whose_values_would_take_too_much_memory_is_not_decoded(
    monkeypatch, autojump_clock
):
    async with walled() as wall:
        monkeypatch.setattr("mcpbus.client.session._params", None)
        with pytest.raises(Undecodable, match="a notification takes more than 67,108,864 bytes of memory"):
            wall.client.receive(b'{"jsonrpc": "2.0", "method": "a", "params": %s}' % heavy())


async def test_the_data_of_an_error_whose_values_would_take_too_much_memory_is_not_decoded(autojump_clock):
    async with walled() as wall, trio.open_nursery() as nursery:

        async def ask():
            with pytest.raises(MalformedAnswerError, match="the data of an error takes more than"):
                await wall.client.request("tools/list")

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        error = b'{"code": -32603, "message": "no", "data": %s}' % heavy()
        wall.client.receive(b'{"jsonrpc": "2.0", "id": 1, "error": %s}' % error)


async def test_questions_that_wait_for_their_answers_are_bounded_in_bytes(monkeypatch, autojump_clock):
    monkeypatch.setattr(input_requests, "MOST_QUESTION_BYTES", 10_000)
    asked, answer = [], trio.Event()

    async def on_input_request(_method, params):
        asked.append(params["number"])
        await answer.wait()
        return {"roots": []}

    def ask(wall, number):
        params = {"number": number, "text": "x" * 3_000}
        wall.client.receive(
            json.dumps({"jsonrpc": "2.0", "id": number, "method": "roots/list", "params": params})
        )

    async with walled(on_input_request=on_input_request) as wall:
        for number in range(5):
            ask(wall, number)
        await wait_all_tasks_blocked()
        refused = [(each.id, each.error.message) for each in wall.heard]
        assert [number for number, _ in refused] == [3, 4]
        assert "10,000 bytes of memory, at once" in refused[0][1]
        answer.set()
        await wait_all_tasks_blocked()
        ask(wall, 5)  # there is a place again
        await wait_all_tasks_blocked()
    assert sorted(asked) == [0, 1, 2, 5]


def test_the_weight_of_a_short_message_is_not_counted(monkeypatch):
    monkeypatch.setattr(pending, "weigh", None)
    assert pending.weight_fault(text_of({"a": "x" * 500_000})) is None
