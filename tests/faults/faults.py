"""What can go wrong in a handler: twenty kinds of it, each an async function that never comes to a good end."""

import argparse
import asyncio
import contextlib
import io

import trio

from mcpbus import ToolError


class OddError(BaseException):
    """A class of somebody's own."""


class MuteError(Exception):
    """An exception that cannot be printed."""

    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


class MuteToolError(ToolError):
    """A failure whose text cannot be had."""

    def __str__(self):
        raise OddError("no words")


async def raise_(error):
    raise error


async def kept_cancelled():
    """Return the `Cancelled` of a scope that is over, as a cache of failures keeps it."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error


async def stray():
    raise await kept_cancelled()


async def stray_in_group():
    raise BaseExceptionGroup("both", [await kept_cancelled(), ValueError("in a group")])


async def parse():
    with contextlib.redirect_stderr(io.StringIO()):
        argparse.ArgumentParser().parse_args(["--nonsense"])


async def run_asyncio():
    async def cancel_oneself():
        raise asyncio.CancelledError

    asyncio.run(cancel_oneself())


async def recurse():
    def deeper(n):
        return deeper(n + 1)

    deeper(0)


async def in_nursery(function):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(function)


async def leave():
    raise SystemExit(3)


async def sleep_in_scopes():
    with trio.move_on_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await asyncio.sleep(0)


async def too_slow():
    with trio.fail_after(0):
        await trio.sleep_forever()


async def no_json():
    return object()


async def without_end():
    value = []
    value.append(value)
    return value


async def never_again():
    """Throw away what a generator still had to do, which raises at that."""

    async def generate():
        try:
            yield 1
        finally:
            raise OddError("at the end")

    generator = generate()
    await anext(generator)
    await generator.aclose()


FAULTS = {
    "an exception": lambda: raise_(ValueError("wrong")),
    "no memory": lambda: raise_(MemoryError()),
    "no stack": recurse,
    "StopIteration": lambda: raise_(StopAsyncIteration()),
    "SystemExit": leave,
    "argparse": parse,
    "a class of one's own": lambda: raise_(OddError("odd")),
    "GeneratorExit": lambda: raise_(GeneratorExit()),
    "a generator's end": never_again,
    "asyncio's Cancelled": lambda: raise_(asyncio.CancelledError()),
    "asyncio.run": run_asyncio,
    "a group": lambda: raise_(BaseExceptionGroup("odd", [OddError("odd"), ValueError("wrong")])),
    "a task of a nursery": lambda: in_nursery(leave),
    "trio's Cancelled, kept": stray,
    "the same in a group": stray_in_group,
    "asyncio's sleep": lambda: asyncio.sleep(0),
    "the same in scopes": sleep_in_scopes,
    "too slow": too_slow,
    "no JSON": no_json,
    "no end of JSON": without_end,
    "an exception without words": lambda: raise_(MuteError()),
    "a failure without words": lambda: raise_(MuteToolError()),
}
"""By name; what they return, if they do, is no result."""
