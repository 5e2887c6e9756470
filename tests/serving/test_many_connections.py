"""How many connections there may be, and whose makes room."""

import errno
import resource
import socket
from contextlib import asynccontextmanager

import pytest
import trio
from houses import call, make_server
from peers import receive_all, receive_until, serving
from test_tls import FILES

from mcpbus.protocol.principals import LOCAL, Peer
from mcpbus.serving import ServeOptions, ServerCounters, acceptor
from mcpbus.serving.acceptor import most_connections

HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
OK = b'{"status":"ok"}'
HELD = call("speak")


@asynccontextmanager
async def opened(**options):
    """A bus, served; what its tool `speak` says first comes at once, and the rest never."""
    async with (
        make_server().open(drain_timeout=0) as bus,
        serving(bus.asgi(), **options) as served,
    ):
        served.bus = bus
        yield served


async def get(stream):
    await stream.send_all(HEALTH)
    return await receive_until(stream, OK)


async def hold(served):
    """Have a call served on a connection of its own that does not end."""
    stream = await served.connect()
    await stream.send_all(HELD)
    await receive_until(stream, b"progress")
    return stream


@pytest.fixture
def peers(monkeypatch):
    """From where the connections come that are accepted from now on, one after the other; the last one for ever."""
    names = []

    def next_peer(_stream):
        name = names.pop(0) if len(names) > 1 else names[0] if names else None
        return (LOCAL if name is None else Peer(name)), f"{name}"

    monkeypatch.setattr(acceptor, "_peer", next_peer)
    return names


async def which_close(streams, count):
    """Wait until so many of the connections are closed, and return for each whether it is."""
    closed = [False] * len(streams)

    async def watch(index):
        await receive_all(streams[index])
        closed[index] = True
        if sum(closed) == count:
            nursery.cancel_scope.deadline = trio.current_time() + 0.05  # for one more

    async with trio.open_nursery() as nursery:
        for index in range(len(streams)):
            nursery.start_soon(watch, index)
    return closed


async def test_a_newcomer_takes_the_place_of_the_connection_that_was_idle_for_longest():
    counters = ServerCounters()
    async with opened(counters=counters, max_connections=3) as served:
        streams = [await served.connect() for _ in range(3)]
        for stream in (streams[0], streams[2], streams[1], streams[0]):
            await get(stream)
        await get(await served.connect())
        assert await which_close(streams, 1) == [False, False, True]
        assert (counters.open, counters.displaced, counters.turned_away) == (3, 1, 0)


async def test_connections_that_say_nothing_or_not_enough_make_room_too():
    async with opened(max_connections=3) as served:
        silent, slow, idle = [await served.connect() for _ in range(3)]
        await slow.send_all(b"GET /health HTTP/1.1\r\n")
        await get(idle)
        for _ in range(2):
            await get(await served.connect())
        assert await which_close([silent, slow, idle], 2) == [True, True, False]


async def test_one_that_is_served_makes_no_room_and_a_newcomer_is_told_so():
    counters = ServerCounters()
    async with opened(counters=counters, max_connections=2) as served:
        for _ in range(2):
            stream = await hold(served)
        newcomer = await served.connect()
        await newcomer.send_all(HEALTH)
        answer = await receive_all(newcomer)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in answer
        assert b"\r\nconnection: close\r\n" in answer
        assert (counters.open, counters.turned_away) == (2, 1)
        served.bus.server.go_on.set()
        await receive_until(stream, b"spoken")
        await get(await served.connect())


async def test_one_address_leaves_connections_to_others(peers):
    counters = ServerCounters()
    peers.append("bob")
    async with opened(counters=counters, max_connections=20) as served:
        for _ in range(18):
            await hold(served)
        refused = await served.connect()
        await refused.send_all(HEALTH)
        assert (await receive_all(refused)).startswith(b"HTTP/1.1 429 ")
        peers[:] = ["alice"]
        alice = [await served.connect(), await served.connect()]
        # She may have one of what is kept, and then takes her own idle one's place.
        await get(alice[1])
        assert await which_close(alice, 1) == [True, False]
        assert (counters.open, counters.turned_away) == (19, 1)


async def test_nobody_goes_for_an_address_that_has_more(peers):
    peers.append("bob")
    async with opened(max_connections=6) as served:
        bobs = [await served.connect() for _ in range(4)]
        await get(bobs[-1])
        peers[:] = ["alice"]
        alices = [await served.connect() for _ in range(4)]
        await get(alices[-1])
        assert await which_close(bobs, 1) == [True, False, False, False]
        assert await which_close(alices, 1) == [True, False, False, False]


@pytest.mark.parametrize("secure", [False, True])
async def test_one_that_does_not_come_to_its_tls_handshake_makes_room(secure):
    files = FILES if secure else {}
    async with opened(max_connections=1, **files) as served:
        first, second = await served.connect(), await served.connect()
        assert await which_close([first, second], 1) == [True, False]


async def test_without_descriptors_idle_connections_make_room_and_the_server_goes_on(monkeypatch, caplog):
    faults = [errno.EMFILE] * 3 + [errno.ECONNABORTED] * 3
    accept = socket.socket.accept

    def fail(listening):
        accepted, address = accept(listening)
        if len(idle) == 4 and faults:
            accepted.close()
            raise OSError(faults.pop(0), "no")
        return accepted, address

    monkeypatch.setattr(socket.socket, "accept", fail)
    monkeypatch.setattr(acceptor, "ROOM_SECONDS", 0.01)
    idle, counters = [], ServerCounters()
    async with opened(counters=counters) as served:
        for _ in range(4):
            stream = await served.connect()
            await get(stream)
            idle.append(stream)
        for _ in range(6):
            await served.connect()
        await get(await served.connect())
        assert (counters.displaced, faults) == (3, [])
        assert await which_close(idle, 3) == [True, True, True, False]
        warnings = [
            record.getMessage() for record in caplog.records if "max_connections" in record.getMessage()
        ]
        assert warnings == [
            "max_connections was reached: a connection could not be accepted: Too many open files"
        ]


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(64, 32), (128, 64), (1024, 896), (65_536, 57_344), (resource.RLIM_INFINITY, 100_000)],
)
def test_by_default_some_descriptors_are_kept_back(descriptors, connections, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, resource.RLIM_INFINITY))
    assert most_connections() == connections


def test_there_is_at_least_one():
    with pytest.raises(ValueError, match="max_connections"):
        ServeOptions(max_connections=0)
