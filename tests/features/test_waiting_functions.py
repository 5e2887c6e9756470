"""Which functions cannot wait: what follows from that is in the tests of calls in process."""

import contextlib
import functools

import pytest
import trio

from mcpbus import Server


async def returns(text: str = "") -> str:
    return text


async def loops(count: int = 3) -> int:
    total = 0
    for number in [n async for n in _numbers()] if count < 0 else range(count):
        total += number
    return total


async def plain_loop(count: int = 3) -> list[int]:
    async def inner() -> int:
        return await returns()

    with contextlib.nullcontext():
        return [number for number in range(count) if inner]


async def awaits() -> str:
    return await returns()


async def sometimes(flag: bool = False) -> str:
    if flag:
        await trio.sleep(1)
    return ""


async def iterates() -> str:
    async for _ in _numbers():
        pass
    return ""


async def enters() -> str:
    async with trio.open_nursery():
        return ""


async def _numbers():
    yield 1


def plain() -> str:
    return ""


@functools.wraps(returns)
async def wrapper(**arguments) -> str:
    return await returns(**arguments)


class Owner:
    async def returns(self) -> str:
        return ""

    async def awaits(self) -> str:
        return await returns()


def waits(function, **options):
    server = Server("s")
    return server.add_tool(function, name="tool", **options).function.waits


@pytest.mark.parametrize("function", [returns, plain_loop, Owner().returns])
def test_an_async_function_without_an_await_cannot_wait(function):
    assert not waits(function)


@pytest.mark.parametrize(
    "function",
    [awaits, sometimes, loops, iterates, enters, plain, wrapper, Owner().awaits, functools.partial(awaits)],
)
def test_what_awaits_anywhere_and_whatever_is_no_async_function_may_wait(function):
    assert waits(function)


def test_a_function_with_a_timeout_may_wait():
    assert waits(returns, timeout=1)


async def test_middleware_may_wait_around_what_cannot():
    async def middleware(invocation, call_next):
        return await call_next(invocation)

    bare, wrapped = Server("bare"), Server("wrapped", middleware=[middleware])
    tools = [server.add_tool(returns, name="tool") for server in (bare, wrapped)]
    assert [s.runner.waits(t.function) for s, t in zip((bare, wrapped), tools, strict=True)] == [False, True]
