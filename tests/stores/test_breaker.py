"""A store that is down is left alone, by all together."""

import contextlib
import logging
from functools import partial

import pytest
import trio
import trio.testing

from mcpbus import Limits
from mcpbus.core.concurrency import WrapBaseExceptions
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.stores.circuit_breaker import CircuitBreaker, StoreDownError
from mcpbus.core.stores.protocol import Promise

LIMITS = Limits(store_deadline=2, store_pause=30)


@pytest.fixture
def breaker():
    return CircuitBreaker("event store", LIMITS, LimitMonitor())


async def answer(value="kept", seconds=0.0):
    await trio.sleep(seconds)
    return value


async def fail():
    await trio.lowlevel.checkpoint()
    raise OSError("disk full")


async def is_down(breaker, function):
    # A stray Cancelled would end the test, and nothing else.
    with (
        pytest.raises(StoreDownError),
        WrapBaseExceptions("the breaker"),
    ):
        await breaker.call(function)
    return True


async def test_what_a_store_answers_is_passed_on(breaker, autojump_clock):
    assert await breaker.call(partial(answer, 7, seconds=1.9)) == 7
    assert not breaker.open


async def raise_system_exit():
    raise SystemExit(3)


async def raise_cancelled_that_it_has_kept():
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept = error
    raise kept


@pytest.mark.parametrize(
    "function", [fail, trio.sleep_forever, raise_system_exit, raise_cancelled_that_it_has_kept]
)
async def test_after_a_failure_nobody_waits_and_one_line_says_so(function, breaker, autojump_clock, caplog):
    assert await is_down(breaker, function)
    start = trio.current_time()
    for _ in range(100):
        assert breaker.open
        assert await is_down(breaker, answer)
    assert trio.current_time() == start
    assert [record.levelname for record in caplog.records] == [
        "WARNING" if function is trio.sleep_forever else "ERROR"
    ]
    assert "event store" in caplog.text


@pytest.mark.parametrize("function", [fail, trio.sleep_forever])
async def test_those_who_wait_already_are_let_go_with_the_first(function, breaker, autojump_clock, caplog):
    ended = []

    async def call(function, begin):
        await trio.sleep(begin)
        await is_down(breaker, function)
        ended.append(trio.current_time() - start)

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, function, 0.5)
        for _ in range(10):
            nursery.start_soon(call, trio.sleep_forever, 0.2 if function is fail else 0.6)
    assert ended == pytest.approx([0.5 if function is fail else 2.5] * 11)
    assert len(caplog.records) == 1


async def test_past_the_pause_one_call_tries_while_others_are_still_refused(breaker, autojump_clock, caplog):
    caplog.set_level(logging.INFO)
    await is_down(breaker, fail)
    await trio.sleep(30)
    assert not breaker.open
    async with trio.open_nursery() as nursery:
        nursery.start_soon(breaker.call, partial(answer, seconds=1))
        await trio.testing.wait_all_tasks_blocked()
        assert breaker.open
        assert await is_down(breaker, answer)
    assert await breaker.call(answer) == "kept"
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


async def test_a_try_that_fails_begins_the_pause_anew(breaker, autojump_clock, caplog):
    await is_down(breaker, fail)
    await trio.sleep(30)
    await is_down(breaker, trio.sleep_forever)
    assert breaker.open
    await trio.sleep(29)
    assert breaker.open
    await trio.sleep(1)
    assert await breaker.call(answer) == "kept"
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_a_cancellation_waits_for_the_store_but_not_past_its_deadline(breaker, autojump_clock):
    start, kept = trio.current_time(), []

    async def keep(seconds):
        kept.append(await answer(seconds, seconds))

    for seconds, until in ((1, 1), (60, 2)):
        with trio.move_on_after(0.5):
            with contextlib.suppress(StoreDownError):
                await breaker.call(partial(keep, seconds))
            await trio.sleep_forever()
        assert trio.current_time() - start == until
        start = trio.current_time()
    assert kept == [1]


# -- without a task that waits ---------------------------------------------------------------------


def fail_at_once():
    raise OSError("disk full")


def promise_ended(error=None):
    return Promise(ended=True, error=error)


@pytest.mark.parametrize(
    ("function", "done"),
    [
        (answer, True),
        (partial(answer, seconds=1.9), True),
        (promise_ended, True),
        (fail, False),
        (trio.sleep_forever, False),
        (raise_system_exit, False),
        (fail_at_once, False),
        (Promise, False),
        (partial(promise_ended, OSError("disk full")), False),
        (partial(promise_ended, SystemExit(3)), False),
    ],
)
async def test_whoever_cannot_wait_is_told_once_what_the_store_has_done(
    function, done, breaker, autojump_clock, caplog
):
    told = []
    breaker.begin(function, told.append)
    await breaker.wait_idle()
    assert told == [done]
    assert breaker.open is not done
    breaker.begin(answer, told.append)
    assert told == [done] if done else [done, False]
    assert len(caplog.records) == (0 if done else 1)
    await breaker.wait_idle()


async def test_what_is_promised_is_given_up_with_the_first_that_is_too_slow(breaker, autojump_clock, caplog):
    told, late, promises = [], [], [Promise(), Promise()]
    breaker.begin(lambda: promises[0], told.append)
    await trio.sleep(1)
    breaker.begin(lambda: promises[1], late.append)
    await trio.sleep(0.9)
    assert (told, late) == ([], [])
    await trio.sleep(0.2)
    assert (told, late) == ([False], [False])
    for promise in promises:
        promise.end()
    assert (told, late) == ([False], [False])
    assert len(caplog.records) == 1


async def test_each_promise_has_all_of_its_time(breaker, autojump_clock):
    told, first, second = [], Promise(), Promise()
    breaker.begin(lambda: first, told.append)
    await trio.sleep(1.5)
    breaker.begin(lambda: second, told.append)
    first.end()
    await trio.sleep(1.9)
    second.end()
    assert told == [True, True]


async def test_past_the_pause_a_promise_is_what_tries(breaker, autojump_clock, caplog):
    caplog.set_level(logging.INFO)
    await is_down(breaker, fail)
    await trio.sleep(30)
    told, promise = [], Promise()
    breaker.begin(lambda: promise, told.append)
    assert breaker.open
    promise.end()
    assert told == [True]
    assert not breaker.open
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
