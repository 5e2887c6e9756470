"""The queue of messages that a server has not taken yet."""

import gc
import weakref
from contextlib import suppress

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.client import outgoing
from mcpbus.client.errors import DisconnectedError
from mcpbus.client.outgoing import SendQueue
from mcpbus.client.pending import PendingRequest


@attrs.frozen(eq=False)
class Message:
    size: int
    request: PendingRequest | None = None


@pytest.fixture
def sizes():
    return []


@pytest.fixture
def queue(sizes):
    made = SendQueue("files")
    made.on_waiting = sizes.append
    return made


async def test_messages_are_taken_in_order_and_their_bytes_are_counted_until_then(queue, sizes):
    first, second = Message(3), Message(4)
    queue.put(first)
    queue.put(second)
    assert [await queue.take(), await queue.take(), queue.size] == [first, second, 0]
    assert sizes == [3, 7, 7, 7]
    queue.written(second)
    queue.written(first)
    assert sizes[4:] == [3, 0]


async def test_a_request_leaves_the_queue_when_its_call_ends(queue, sizes):
    pending, last = PendingRequest(), Message(1)
    queue.put(Message(100, pending))
    queue.put(last)
    pending.settle(DisconnectedError("it was cancelled"))
    assert (queue.size, len(queue), await queue.take()) == (1, 1, last)
    assert sizes == [100, 101, 1, 1]


async def test_the_failure_of_a_request_is_not_left_to_the_garbage_collector():
    async def fail():
        pending = PendingRequest()
        pending.settle(DisconnectedError("it reads nothing"))
        error = weakref.ref(pending.result)
        with suppress(DisconnectedError):
            await pending.wait()
        return error

    gc.disable()
    try:
        error = await fail()
        assert error() is None
    finally:
        gc.enable()


async def test_a_request_that_was_taken_is_not_counted_again_when_its_call_ends(queue, sizes):
    pending = PendingRequest()
    queue.put(Message(100, pending))
    queue.written(await queue.take())
    pending.settle(b"{}")
    assert sizes == [100, 100, 0]


@pytest.mark.parametrize(("most", "value"), [("MOST_WAITING", 2), ("MOST_WAITING_BYTES", 9)])
async def test_a_queue_that_is_full_accepts_no_more(queue, most, value, monkeypatch):
    monkeypatch.setattr(outgoing, most, value)
    queue.put(Message(4))
    queue.put(Message(5))
    with pytest.raises(DisconnectedError, match="files reads nothing: 2 messages with 9 bytes wait for it"):
        queue.put(Message(1))
    assert queue.size == 9


async def test_a_burst_may_be_longer_than_all_that_may_wait_while_a_message_is_written(
    queue, monkeypatch, autojump_clock
):
    monkeypatch.setattr(outgoing, "MOST_WAITING_BYTES", 9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.take)
        await wait_all_tasks_blocked()
        for _ in range(4):
            queue.put(Message(9))
        with pytest.raises(DisconnectedError, match="reads nothing"):
            queue.put(Message(1))
    with pytest.raises(DisconnectedError, match="reads nothing"):
        queue.put(Message(1))
    for _ in range(3):
        await queue.take()
    queue.put(Message(9))


async def test_one_message_may_be_longer_than_all_that_may_wait(queue, monkeypatch):
    monkeypatch.setattr(outgoing, "MOST_WAITING_BYTES", 9)
    queue.put(Message(40))
    with pytest.raises(DisconnectedError):
        queue.put(Message(1))


async def test_requests_are_withdrawn_together_and_their_calls_fail(queue):
    pending, notification = PendingRequest(), Message(1)
    queue.put(Message(5, pending))
    queue.put(notification)
    queue.withdraw("memory is full")
    with pytest.raises(DisconnectedError, match="memory is full"):
        await pending.wait()
    assert (queue.size, await queue.take()) == (1, notification)


async def test_a_closed_queue_is_emptied_and_ends(queue, autojump_clock):
    message, taken = Message(1), []

    async def take():
        while (each := await queue.take()) is not None:
            taken.append(each)
        taken.append("end")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await wait_all_tasks_blocked()
        queue.put(message)
        queue.close()
    assert taken == [message, "end"]
    with pytest.raises(DisconnectedError, match="the client was closed"):
        queue.put(message)
