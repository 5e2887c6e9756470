"""The tasks that serve calls in process: one after the other, and one for each eager task that waits."""

import contextvars
from contextlib import asynccontextmanager

import mcpbus_actors as actors
import pytest
import trio
from mcpbus_actors import EagerTask, testing

from mcpbus.transports.hosts import Hosts


@asynccontextmanager
async def hosting():
    """Tasks that do what is put: async functions, each hosted until it waits, and then to its end."""
    eager_tasks = []

    def take(function, scope):
        eager = EagerTask(scope, coroutine=function(), context=contextvars.copy_context())
        eager_tasks.append(eager)
        if not eager.start():
            return eager
        return eager if eager.cancelled else None

    async with actors.open_system("test") as system:
        hosts = Hosts(system, take)
        hosts.eager = eager_tasks
        yield hosts, system
        hosts.close()
        await testing.settle(system)
        assert (system.statistics().actors, system.statistics().tasks) == (0, 0)


def tasks(system):
    return system.statistics().tasks


@pytest.mark.eagerness
async def test_one_task_does_what_does_not_wait_in_order(autojump_clock):
    async with hosting() as (hosts, system):
        done = []

        def does(number):
            async def do():
                done.append(number)

            return do

        for number in range(50):
            hosts.put(does(number))
        assert done == []
        await testing.settle(system)
        assert done == list(range(50))
        assert tasks(system) == 1


async def test_what_waits_holds_nobody_up_and_its_task_is_used_again(autojump_clock):
    async with hosting() as (hosts, system):
        done = []

        def naps(number):
            async def nap():
                await trio.sleep(10 - number)
                done.append(number)

            return nap

        for _ in range(3):
            for number in range(5):
                hosts.put(naps(number))
            await trio.sleep(11)
            assert done == [4, 3, 2, 1, 0]
            done.clear()
            # One that serves at any time, beside those that wait.
            assert tasks(system) <= 6


async def test_not_all_tasks_are_kept_that_were_ever_needed(autojump_clock):
    async with hosting() as (hosts, system):

        async def nap():
            await trio.sleep(1)

        for _ in range(100):
            hosts.put(nap)
        await testing.settle(system)
        assert tasks(system) >= 100
        await trio.sleep(2)
        assert tasks(system) <= 20


@pytest.mark.parametrize("waits", [True, False])
async def test_an_eager_task_that_is_cancelled_does_not_harm_those_after_it(waits, autojump_clock):
    async with hosting() as (hosts, _):
        done = []

        async def cancels_itself():
            hosts.eager[0].cancel()
            if waits:
                await trio.sleep_forever()

        async def naps():
            await trio.sleep(1)
            done.append("nap")

        for function in (cancels_itself, naps, naps):
            hosts.put(function)
        await trio.sleep(2)
        hosts.put(naps)
        await trio.sleep(2)
        assert done == ["nap"] * 3


async def test_after_the_end_nothing_is_done_but_what_waits_goes_on(autojump_clock):
    async with hosting() as (hosts, system):
        done = []

        async def naps():
            await trio.sleep(1)
            done.append("nap")

        async def closes():
            hosts.put(never)
            hosts.close()
            hosts.put(never)

        async def never():
            done.append("never")

        hosts.put(naps)
        await testing.settle(system)
        hosts.put(closes)
        await trio.sleep(2)
        assert done == ["nap"]
        hosts.put(never)
        await testing.settle(system)
        assert done == ["nap"]
        assert tasks(system) == 0


async def test_the_end_of_the_system_ends_them_all(autojump_clock):
    ended = []

    async def hangs():
        try:
            await trio.sleep_forever()
        finally:
            ended.append("hung")

    def take(function, scope):
        eager = EagerTask(scope, coroutine=function(), context=contextvars.copy_context())
        return None if eager.start() else eager

    with trio.fail_after(1):
        async with actors.open_system("test") as system:
            hosts = Hosts(system, take)
            hosts.put(hangs)
            await testing.settle(system)
            hosts.put(hangs)
            await testing.settle(system)
    assert ended == ["hung"] * 2


async def test_tasks_that_fail_end_the_system_with_what_they_raised(autojump_clock):
    """Whoever asks would wait for ever otherwise."""

    def take(_thing, _scope):
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        async with actors.open_system() as system:
            Hosts(system, take).put("a thing")
            with trio.fail_after(60):
                await trio.sleep_forever()
