"""The bytes of a connection: after what can be said no more, nothing is."""

from unittest.mock import Mock

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.serving.http1.connection import Http1Connection
from mcpbus.serving.http1.connection_io import ConnectionIO


class Stream:
    """A connection that takes what it is given as soon as it may."""

    def __init__(self):
        self.open = trio.Event()
        self.taken = b""

    async def send_all(self, data):
        await self.open.wait()
        self.taken += data

    def send_now(self, data):
        raise trio.BrokenResourceError


def wire_over(stream):
    return ConnectionIO(Mock(), stream, Mock())


async def test_a_connection_that_is_lost_is_gone():
    connection = Http1Connection(Mock(), Stream(), Mock(), Mock())
    connection.lose()
    assert connection.wire.gone


@pytest.mark.parametrize("end", ["lose", "close"])
async def test_a_connection_that_ends_while_it_is_written_to_is_gone_though_the_write_returns(end):
    stream = Stream()
    connection = Http1Connection(Mock(), stream, Mock(), Mock())
    wire = connection.wire
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.send, b"said")
        await wait_all_tasks_blocked()
        getattr(connection, end)()
        stream.open.set()
    assert (wire.gone, stream.taken) == (True, b"said")
    await wire.send(b"more")
    assert stream.taken == b"said"


async def test_a_connection_is_gone_where_not_all_was_sent():
    stream = Stream()
    wire = wire_over(stream)
    with trio.move_on_after(0.01):
        await wire.send(b"said")
    assert wire.gone
    stream.open.set()
    await wire.send(b"more")
    assert stream.taken == b""


async def test_a_connection_that_has_all_that_was_sent_takes_more():
    stream = Stream()
    stream.open.set()
    wire = wire_over(stream)
    await wire.send(b"one ")
    assert not wire.gone
    await wire.send(b"two")
    assert stream.taken == b"one two"


async def test_a_connection_that_is_broken_when_something_is_sent_at_once_is_gone():
    wire = wire_over(Stream())
    assert wire.send_now(b"said") is None
    assert wire.gone
