"""Waiting until no stream is open."""

import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.core.concurrency import ActiveCounter


async def test_whoever_waits_goes_on_once_the_last_stream_has_ended():
    streams = ActiveCounter()
    streams.opened()
    streams.opened()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(streams.wait_none)
        await wait_all_tasks_blocked()
        streams.ended()
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        streams.ended()
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks
        nursery.cancel_scope.cancel()


async def test_where_another_stream_has_opened_before_they_went_on_that_is_waited_for_too():
    streams = ActiveCounter()
    streams.opened()
    with trio.fail_after(60):  # in vain, and for ever, would be busy
        async with trio.open_nursery() as nursery:
            nursery.start_soon(streams.wait_none)
            await wait_all_tasks_blocked()
            streams.ended()
            streams.opened()
            await wait_all_tasks_blocked()
            assert nursery.child_tasks
            streams.ended()
