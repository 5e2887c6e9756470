"""The end of an HTTP/2 connection's writer: after it, nothing writes or starts a task of the connection."""

import pytest
import trio
import trio.testing

from mcpbus.serving.http2.connection_writer import ConnectionWriter
from mcpbus.serving.write_coalescer import WriteCoalescer


class Gone:
    """A client that has disconnected."""

    def send_now(self, _data):
        raise trio.BrokenResourceError

    async def send_all(self, _data):
        raise trio.BrokenResourceError


class Pending:
    """One piece to write."""

    has_more = True
    busy = False

    def make_ready(self):
        self.has_more = False
        return b"x", []


class Owner:
    """Counts how often its loss was asked for."""

    lost = 0

    def lose_soon(self):
        self.lost += 1

    def lose(self):
        """Take the end that the writer's task has found as well."""

    def said_all(self):
        """Take the end of all writing."""


@pytest.mark.parametrize(("ended", "lost"), [(False, 1), (True, 0)], ids=["before its end", "after its end"])
async def test_a_failed_write_loses_the_connection_only_while_it_has_a_nursery(ended, lost, autojump_clock):
    owner = Owner()
    writer = ConnectionWriter(Gone(), Pending(), WriteCoalescer(None), owner)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()
        if ended:
            nursery.cancel_scope.cancel()
            await trio.lowlevel.cancel_shielded_checkpoint()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
        writer.flush_now()
        nursery.cancel_scope.cancel()
    assert owner.lost == lost
