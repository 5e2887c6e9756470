"""What worker threads say arrives in order, before what they return and ask, and mostly without being waited for."""

import threading

import pytest
import trio
import trio.testing
from staging import staged

from mcpbus import SyncContext
from mcpbus.core import sync_context
from mcpbus.core.from_thread import FromThread
from mcpbus.core.receipt import DELIVERED, Location


async def run_in_thread(function, *args):
    with trio.fail_after(30):
        return await trio.to_thread.run_sync(function, *args)


async def test_what_is_posted_is_called_in_order_and_before_what_is_waited_for():
    there, got = FromThread(), []

    def work():
        for number in range(100):
            there.post(lambda number=number: got.append((number, threading.get_ident())))
        return there.run(lambda: list(got))

    expected = [(number, threading.get_ident()) for number in range(100)]
    assert await run_in_thread(work) == expected == got


async def test_what_an_async_function_is_waited_for_comes_after_what_was_posted():
    there, got = FromThread(), []

    async def count():
        await trio.lowlevel.checkpoint()
        return len(got)

    def work():
        there.post(lambda: got.append(1))
        return there.wait(count)

    assert await run_in_thread(work) == 1


async def test_what_is_waited_for_briefly_comes_after_what_was_posted_and_may_not_end():
    there, got = FromThread(), []

    async def count():
        await trio.lowlevel.checkpoint()
        got.append(len(got))

    def work():
        there.post(lambda: got.append("posted"))
        return there.wait_briefly(count, 30), there.wait_briefly(trio.sleep_forever, 0)

    assert await run_in_thread(work) == (True, False)
    assert got == ["posted", 1]


@pytest.mark.posting
async def test_nobody_is_woken_while_somebody_looks_now_and_then(mock_clock):
    there, got, woken = FromThread(), [], []
    token = there._token

    class Token:
        def run_sync_soon(self, function):
            woken.append(function)
            token.run_sync_soon(function)

    there._token = Token()

    def post(*numbers):
        thread = threading.Thread(
            target=lambda: [there.post(lambda number=number: got.append(number)) for number in numbers]
        )
        thread.start()
        thread.join()

    post(1, 2, 3)
    assert (got, len(woken)) == ([], 1)
    while not got:
        await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    post(4, 5)
    await trio.testing.wait_all_tasks_blocked()
    assert (got, len(woken)) == ([1, 2, 3], 1)
    mock_clock.jump(0.001)
    await trio.testing.wait_all_tasks_blocked()
    assert (got, len(woken)) == ([1, 2, 3, 4, 5], 1)
    mock_clock.jump(0.001)
    await trio.testing.wait_all_tasks_blocked()
    post(6)
    assert len(woken) == 2
    while len(got) < 6:
        await trio.lowlevel.checkpoint()


@pytest.mark.posting
async def test_what_is_posted_at_the_very_moment_when_nobody_looks_any_more_is_found(monkeypatch, mock_clock):
    there, got, take = FromThread(), [], FromThread.take

    def take_late(self):
        found = take(self)
        if not found and "late" not in got:
            self._posted.append(lambda: got.append("late"))
        return found

    monkeypatch.setattr(FromThread, "take", take_late)
    thread = threading.Thread(target=lambda: there.post(lambda: got.append("early")))
    thread.start()
    thread.join()
    while not got:
        await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(0.001)
    await trio.testing.wait_all_tasks_blocked()
    assert got == ["early", "late"]


async def test_what_is_posted_while_nobody_waits_for_the_thread_is_found():
    there, got, done = FromThread(), [], trio.Event()

    def work():
        for number in range(3):
            there.post(lambda number=number: got.append(number))
            threading.Event().wait(0.003)
        there.post(done.set)

    threading.Thread(target=work).start()
    with trio.fail_after(60):
        await done.wait()
    assert got == [0, 1, 2]


@pytest.mark.posting
async def test_what_cannot_be_done_is_logged_and_the_rest_is_done(caplog):
    there, got = FromThread(), []

    def fail():
        raise MemoryError

    def work():
        there.post(fail)
        there.post(lambda: got.append(1))

    await run_in_thread(work)
    there.take()
    assert got == [1]
    assert "what a thread had posted could not be done" in caplog.text


def test_nothing_is_posted_to_a_run_that_has_ended():
    async def make():
        return FromThread()

    there = trio.run(make)
    for _ in range(2):
        with pytest.raises(trio.RunFinishedError):
            there.post(print)


def test_nothing_is_run_in_the_thread_of_a_run_that_has_ended():
    async def make():
        return FromThread()

    there = trio.run(make)
    with pytest.raises(trio.RunFinishedError):
        there.run(list)


async def call(stage, **arguments):
    """Call the tool `says` from a client that wants to hear everything, and return what it was told."""
    params = {"name": "says", "arguments": arguments}
    post = stage.probe.request("tools/call", params, progress_token=1)
    with trio.fail_after(30):
        await post.ended()
    await stage.quiet()
    assert stage.books()[0] == {}
    return [message["params"]["progress"] for message in post.messages[:-1]], post.messages[-1]["result"]


async def test_what_a_plain_function_says_comes_before_its_result_and_has_its_fate():
    async with staged() as stage:
        receipts = []
        stage.server.runner.inline = False

        @stage.server.tool
        def says(ctx: SyncContext, times: int) -> str:
            receipts.append(ctx.progress(0))
            while receipts[0].fate is None:  # from now on it is looked again, a moment later
                threading.Event().wait(0.0001)
            receipts.extend(ctx.progress(number) for number in range(1, times))
            with pytest.raises(ValueError, match="finite"):
                ctx.progress(float("inf"))
            return "said"

        heard, result = await call(stage, times=10)
        assert heard == list(range(10))
        assert result["content"][0]["text"] == "said"
        assert {receipt.fate for receipt in receipts} == {DELIVERED}


async def test_a_plain_function_that_says_more_than_may_wait_for_its_client_loses_none_of_it(monkeypatch):
    monkeypatch.setattr(sync_context, "_PATIENCE_SECONDS", 30)
    async with staged(limits={"outbox_items": 8}) as stage:
        receipts = []
        stage.server.runner.inline = False

        @stage.server.tool
        def says(ctx: SyncContext) -> str:
            receipts.extend(ctx.progress(number) for number in range(300))
            return "said"

        heard, _ = await call(stage)
        assert heard == list(range(300))
        assert [receipt.fate for receipt in receipts] == [DELIVERED] * 300


async def test_what_a_plain_function_says_at_length_is_counted_before_it_goes_on(monkeypatch):
    """What is posted waits where nobody knows how long it is."""
    monkeypatch.setattr(sync_context, "_PATIENCE_SECONDS", 30)
    async with staged() as stage:
        stage.server.runner.inline = False
        places = []

        @stage.server.tool
        def says(ctx: SyncContext) -> str:
            places.extend([ctx.progress(number, message="x" * 10_000).location for number in range(50)])
            return "said"

        heard, _ = await call(stage)
        assert heard == list(range(50))
        assert Location.MAILBOX not in places


async def test_a_slow_client_is_waited_for_once(monkeypatch):
    waited, wait_briefly, given_up = [], FromThread.wait_briefly, trio.Event()

    def note(there, *args):
        waited.append(wait_briefly(there, *args))
        if not waited[-1]:
            trio.from_thread.run_sync(given_up.set)
        return waited[-1]

    monkeypatch.setattr(sync_context, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(FromThread, "wait_briefly", note)
    async with staged(limits={"outbox_items": 8}) as stage:
        stage.server.runner.inline = False

        @stage.server.tool
        def says(ctx: SyncContext) -> str:
            for number in range(300):
                ctx.progress(number)
            return "said"

        post = stage.probe.request("tools/call", {"name": "says", "arguments": {}}, progress_token=1)
        post.stall()
        with trio.fail_after(30):
            await given_up.wait()
            post.resume()
            await post.ended()
        assert post.messages[-1]["result"]["content"][0]["text"] == "said"
        assert waited.count(False) == 1
        assert not waited[-1]


def test_what_is_posted_when_trio_is_about_to_end_is_called_and_ends_nothing_else():
    got, kept = [], []

    async def post_at_the_end(there):
        try:
            yield
        finally:  # trio ends this when it starts no tasks any more
            there.post(lambda: got.append(1))

    async def main():
        kept.append(post_at_the_end(FromThread()))
        await anext(kept[0])

    trio.run(main)
    assert got == [1]
