"""A process whose server is cut short, without a drain: what others have asked of it ends in order, before the server has."""

import logging

import trio
from several import at, quiet
from test_forwarding import call, make

from mcpbus.testing import MemoryDirectory, open_bus, open_probe


class CutShortError(Exception):
    """What its program raises."""


def make_slow():
    """A server of which a handler takes a while to end."""
    server = make()

    @server.tool
    async def linger() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    return server


async def _fail_after(cut):
    await cut.wait()
    raise CutShortError


async def serve(directory, cut, *, task_status):
    """Serve, with a session, until it is cut short."""
    try:
        async with (
            open_bus(make_slow(), cluster=directory.cluster()) as bus,
            open_probe(bus.asgi()) as probe,
        ):
            task_status.started(await probe.initialize())
            await _fail_after(cut)
    except* CutShortError:
        pass


async def test_what_others_have_asked_ends_and_says_nothing_to_the_log(autojump_clock, caplog):
    directory, cut = MemoryDirectory(), trio.Event()
    async with open_bus(make_slow(), cluster=directory.cluster()) as here, open_probe(here.asgi()) as probe:
        async with trio.open_nursery() as nursery:
            session = at(await nursery.start(serve, directory, cut), probe)
            await trio.sleep(2)  # they dial each other
            calls = [call(session, tool, token="t") for tool in ("hold", "count", "linger", "work")]
            session.get()
            await quiet([here])
            cut.set()
            for _ in range(20):  # others do not know yet that it ends
                calls.append(call(session, "echo", text="x"))
                await trio.sleep(0.1)
        for each in calls:
            await each.ended()
            assert each.status in {200, 503}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
