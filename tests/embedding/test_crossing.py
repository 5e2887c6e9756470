"""What asyncio runs, awaited in trio, and the other way round."""

import asyncio
import threading
from contextvars import ContextVar

import pytest
import trio

from mcpbus import Context, Server
from mcpbus.asyncio import to_asyncio, to_trio
from mcpbus.testing import open_client

WHO = ContextVar("who", default="nobody")


async def echo(*args):
    await asyncio.sleep(0)
    return args


async def fail():
    await asyncio.sleep(0)
    raise KeyError("there")


class Patient:
    """Waits for ever on its side, and is slow to end."""

    def __init__(self, sleep):
        self.sleep = sleep
        self.began = threading.Event()
        self.ended = False

    async def wait(self):
        self.began.set()
        try:
            await self.sleep(3600)
        except BaseException as error:
            if isinstance(error, trio.Cancelled):
                with trio.CancelScope(shield=True):
                    await self.sleep(0.01)
            else:
                await self.sleep(0.01)
            self.ended = True
            raise


async def test_what_asyncio_runs_is_awaited_in_trio():
    assert await to_asyncio(echo, 1, "two") == (1, "two")
    with pytest.raises(KeyError, match="there"):
        await to_asyncio(fail)


async def test_all_calls_have_one_loop_whose_thread_is_not_this_one():
    async def where():
        return asyncio.get_running_loop(), threading.get_ident()

    first = await to_asyncio(where)
    assert await to_asyncio(where) == first
    assert first[1] != threading.get_ident()


async def test_calls_run_at_the_same_time():
    met = asyncio.Barrier(2)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(to_asyncio, met.wait)


async def test_what_is_called_there_has_the_callers_context():
    async def who():
        before = WHO.get()
        WHO.set("changed")
        return before

    WHO.set("ada")
    assert (await to_asyncio(who), WHO.get()) == ("ada", "ada")


def test_the_loop_ends_with_the_run():
    left = Patient(asyncio.sleep)

    async def main():
        async def leave():
            tasks.append(asyncio.create_task(left.wait()))
            return asyncio.get_running_loop()

        return await to_asyncio(leave)

    tasks = []
    for _ in range(2):  # a second run has a loop of its own
        left.began.clear()
        loop = trio.run(main)
        assert loop.is_closed()
        assert "mcpbus asyncio" not in [thread.name for thread in threading.enumerate()]
    assert left.ended


async def test_whoever_is_cancelled_in_trio_cancels_in_asyncio_and_waits():
    patient = Patient(asyncio.sleep)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(to_asyncio, patient.wait)
            await trio.to_thread.run_sync(patient.began.wait)
            scope.cancel()
    assert (scope.cancelled_caught, patient.ended) == (True, True)


async def test_nothing_is_begun_for_whoever_is_cancelled_already():
    began = []

    async def begin():
        began.append(1)

    with trio.CancelScope() as scope:
        scope.cancel()
        await to_asyncio(begin)
    await to_asyncio(echo)
    assert began == []


async def test_what_ends_in_time_is_not_lost_to_a_cancellation():
    token = trio.lowlevel.current_trio_token()

    async def insist():
        token.run_sync_soon(scope.cancel)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "done"

    with trio.CancelScope() as scope:
        done = await to_asyncio(insist)
    assert done == "done"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (asyncio.CancelledError(), "was cancelled in asyncio"),
        (SystemExit(3), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (BaseException("odd"), "odd"),
    ],
)
async def test_what_is_no_exception_there_is_one_here_and_the_loop_goes_on(error, told):
    async def end():
        raise error

    with pytest.raises(RuntimeError, match=told):
        await to_asyncio(end)
    assert await to_asyncio(echo) == ()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_a_task_left_behind_that_stops_the_loop_stops_nobody_elses(error, caplog):
    async def stop():
        raise error

    async def there():
        left.append(asyncio.create_task(stop()))
        await asyncio.sleep(0)
        return await echo(1)

    left = []
    assert await to_asyncio(there) == (1,)
    assert await to_asyncio(echo, 2) == (2,)
    assert left[0].exception() is error
    assert "the asyncio loop was stopped, and goes on" in caplog.text


async def test_who_stops_the_loop_stops_nobody_elses_call(caplog):
    async def there():
        asyncio.get_running_loop().stop()
        return await echo(1)

    assert await to_asyncio(there) == (1,)
    assert "stopped before" in caplog.text


async def test_what_trio_runs_is_awaited_in_asyncio():
    async def here(value):
        await trio.lowlevel.checkpoint()
        return value, threading.get_ident(), WHO.get()

    async def raising():
        raise KeyError("here")

    async def there():
        with pytest.raises(KeyError, match="here"):
            await to_trio(raising)
        return await to_trio(here, 1)

    WHO.set("grace")
    assert await to_asyncio(there) == (1, threading.get_ident(), "grace")


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=repr)
async def test_what_is_no_exception_here_is_one_there(error):
    async def end():
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await to_asyncio(to_trio, end)


async def test_whoever_is_cancelled_in_asyncio_cancels_in_trio_and_waits():
    patient = Patient(trio.sleep)

    async def there():
        waiting = asyncio.ensure_future(to_trio(patient.wait))
        await asyncio.to_thread(patient.began.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return patient.ended

    assert await to_asyncio(there)


async def test_a_cancellation_goes_both_ways_through():
    patient = Patient(trio.sleep)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(to_asyncio, to_trio, patient.wait)
            await trio.to_thread.run_sync(patient.began.wait)
            scope.cancel()
    assert (scope.cancelled_caught, patient.ended) == (True, True)


async def test_what_trio_ends_in_time_still_leaves_its_caller_cancelled():
    async def insist():
        try:
            await trio.sleep(3600)
        except trio.Cancelled:
            return "done"

    async def there():
        waiting = asyncio.create_task(to_trio(insist))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return waiting.cancelled()

    assert await to_asyncio(there)


async def test_in_the_wrong_place_each_says_where_it_belongs():
    with pytest.raises(RuntimeError, match="in a task of trio await the function itself"):
        await to_trio(echo)
    with pytest.raises(RuntimeError, match="in a coroutine of asyncio await the function itself"):
        await to_asyncio(lambda: to_asyncio(echo))


def test_an_asyncio_program_without_trio_is_told_where_there_is_one():
    with pytest.raises(RuntimeError, match=r"in the lifespan of mcpbus.asyncio.asgi\(server\)"):
        asyncio.run(to_trio(trio.sleep, 0))


WRONG = {"a loop that is missing": lambda: asyncio.sleep(1), "a future": lambda: asyncio.sleep(0)}


@pytest.mark.parametrize("waiting", WRONG)
@pytest.mark.parametrize("nested", [False, True])
async def test_a_handler_that_awaits_asyncio_is_told_of_the_way(waiting, nested, caplog):
    server = Server("s")

    @server.tool
    async def lookup() -> str:
        if nested:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(WRONG[waiting])
        await WRONG[waiting]()
        return ""

    async with open_client(server) as client:
        assert (await client.call_tool("lookup"))["isError"]
    assert "write await mcpbus.asyncio.to_asyncio(function, ...)" in caplog.messages[0]


async def test_a_callback_of_asyncio_speaks_to_the_client():
    server = Server("s")

    @server.tool
    async def load(ctx: Context) -> str:
        async def library(on_progress):
            await asyncio.sleep(0)
            await on_progress(1)
            return "loaded"

        async def on_progress(done):
            await to_trio(ctx.progress, done)

        return await to_asyncio(library, on_progress)

    said = []

    async with open_client(server) as client:
        result = await client.call_tool("load", on_notification=lambda *each: said.append(each))
    assert result["content"][0]["text"] == "loaded"
    assert [(method, params["progress"]) for method, params in said] == [("notifications/progress", 1)]
