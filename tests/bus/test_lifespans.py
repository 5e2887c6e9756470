"""A lifespan that ends its server by itself is heard of: nobody would know why the program has come to its end."""

import subprocess
import sys
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from mcpbus import Server


@asynccontextmanager
async def cancelled_after_a_while(server):
    with trio.move_on_after(60):
        yield None


@asynccontextmanager
async def cancelled_by_its_task(server):
    async with trio.open_nursery() as nursery:

        async def give_up():
            await trio.sleep(60)
            nursery.cancel_scope.cancel()

        nursery.start_soon(give_up)
        yield None


@asynccontextmanager
async def forgiving(server):
    with suppress(Exception):
        yield None


@pytest.mark.parametrize("lifespan", [cancelled_after_a_while, cancelled_by_its_task, forgiving])
@pytest.mark.parametrize("mounted", [False, True])
async def test_a_lifespan_that_ends_its_server_says_so(lifespan, mounted, autojump_clock):
    server = Server("below", lifespan=lifespan)
    above = Server("above")
    above.mount(server)

    async def live():
        async with (above if mounted else server).open():
            await trio.sleep(61)
            raise ValueError("it is over")

    with pytest.raises(RuntimeError, match=r"^the lifespan of server 'below' has ended the server") as raised:
        await live()
    assert repr(raised.value.__cause__) == ("ValueError('it is over')" if lifespan is forgiving else "None")


async def test_one_that_is_cancelled_together_with_its_server_says_nothing(autojump_clock):
    @asynccontextmanager
    async def lifespan(server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                yield None
            finally:
                nursery.cancel_scope.cancel()

    with trio.move_on_after(60) as scope:
        async with Server("below", lifespan=lifespan).open():
            await trio.sleep_forever()
    assert scope.cancelled_caught


FAILING = """
from contextlib import asynccontextmanager
import trio.testing
from mcpbus import Server

async def refresh():
    await trio.testing.wait_all_tasks_blocked()  # it is served
    raise LookupError("no settings") from ValueError("no file")

@asynccontextmanager
async def lifespan(server):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refresh)
        yield

Server("failing", lifespan=lifespan).run(bind="127.0.0.1:0")
"""


def test_a_program_tells_the_cause_of_what_ends_it_and_nothing_of_what_is_around_it():
    ended = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith("\nLookupError: no settings\n")
    assert "ValueError: no file\n\nThe above exception was the direct cause" in ended.stderr
    assert "ExceptionGroup" not in ended.stderr
