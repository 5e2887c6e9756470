"""A client that stops reading loses its connection, and delays nobody (hypercorn 0.18 waits for it for ever)."""

import os
import socket
from contextlib import suppress

import pytest
import trio
from peers import Http2, get, receive_until, respond, serving

from mcpbus.serving import ServerCounters
from mcpbus.serving.deadlines import DeadlineStream

PIECE = bytes(1024 * 1024)


class Flood:
    """Writes until it is told that the client has gone."""

    def __init__(self):
        self.disconnected = trio.Event()

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        if scope["path"] != "/flood":
            await respond(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, receive, nursery.cancel_scope)
            while True:
                await send({"type": "http.response.body", "body": PIECE, "more_body": True})

    async def _watch(self, receive, writing):
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnected.set()
        writing.cancel()


async def open_flood(served, protocol):
    stream = await served.connect(receive_buffer=4096)
    if protocol == "HTTP/1.1":
        await stream.send_all(b"GET /flood HTTP/1.1\r\nhost: test\r\n\r\n")
        await receive_until(stream, b"200")
    else:
        peer = Http2(stream)
        peer.connection.initiate_connection()
        peer.connection.increment_flow_control_window(2**30)
        # 4 is INITIAL_WINDOW_SIZE: flow control shall not spare the socket.
        peer.connection.update_settings({4: 2**30})
        await peer.request(path="/flood")


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
async def test_a_client_that_accepts_nothing_is_cut_off(protocol, caplog):
    app, counters = Flood(), ServerCounters()
    async with serving(app, counters=counters, write_deadline=0.2) as served:
        await open_flood(served, protocol)
        await app.disconnected.wait()
        assert b"200" in await get(await served.connect())
        served.shutdown.set()
        await served.ended.wait()
    assert counters.stalled == 1
    (line,) = [line for line in caplog.messages if "accepted nothing for 0.2 s" in line]
    assert line.startswith("write_deadline was reached by 127.0.0.1: ")


@pytest.mark.parametrize(("each", "whole"), [(1, False), (1000, False), (4096, True)])
async def test_the_time_for_a_slice_is_not_renewed_by_each_byte(each, whole, autojump_clock):
    """A client that accepts little, again and again, would hold a write for ever."""
    here, there = socket.socketpair()
    with here, there:
        stream = DeadlineStream(trio.SocketStream(trio.socket.from_stdlib_socket(here)), seconds=10)

        class Slow:
            socket = stream._stream.socket

            async def wait_send_all_might_not_block(self):
                await trio.sleep(2)

        stream._stream = Slow()
        stream.send_now = lambda data: min(each, len(data))
        if whole:
            await stream.send_all(bytes(100_000))
            assert trio.current_time() > 40
        else:
            with pytest.raises(trio.BrokenResourceError, match="accepted nothing for 10 s"):
                await stream.send_all(bytes(100_000))
            assert trio.current_time() == pytest.approx(10, abs=1)
            assert stream.stalled


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
async def test_a_stalled_write_does_not_delay_the_shutdown(protocol):
    async with serving(Flood(), write_deadline=3600, drain_timeout=0.1) as served:
        await open_flood(served, protocol)
        served.shutdown.set()
        with trio.fail_after(30):
            await served.ended.wait()


async def test_a_stalled_write_does_not_delay_a_cancellation():
    async with serving(Flood(), write_deadline=3600, drain_timeout=3600) as served:
        await open_flood(served, "HTTP/1.1")
    assert served.ended.is_set()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no such timeout")
async def test_what_the_kernel_has_taken_is_not_waited_for_either():
    told = trio.Event()

    async def answers(scope, receive, send):
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(16_000), "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async with serving(answers, write_deadline=0.1) as served:
        stream = await served.connect(receive_buffer=4096)
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        await told.wait()


class SlowStream:
    """Its kernel takes nothing at once, and its peer takes a while, in virtual time, before it reads all that is there."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.socket, self._other = trio.socket.socketpair()
        self._read = -fill(self.socket)

    async def wait_send_all_might_not_block(self):
        await trio.sleep(self.seconds)
        self._read += drain(self._other)

    @property
    def taken(self):
        self._read += drain(self._other)
        return self._read

    async def aclose(self):
        self.socket.close()
        self._other.close()


def fill(sock):
    """Write until the kernel takes no more, and return how much that was."""
    size = 0
    with suppress(BlockingIOError):
        while True:
            size += os.write(sock.fileno(), PIECE)
    return size


def drain(sock):
    """Read all that is there, and return how much that was."""
    size = 0
    with suppress(BlockingIOError):
        while data := os.read(sock.fileno(), len(PIECE)):
            size += len(data)
    return size


async def test_a_slow_client_that_moves_may_take_its_time(autojump_clock):
    below = SlowStream(seconds=9)
    await DeadlineStream(below, 10).send_all(PIECE)
    assert below.taken == len(PIECE)
    assert trio.current_time() > 10
    await below.aclose()


async def test_a_write_that_ran_out_of_time_resets_the_connection(autojump_clock):
    below = SlowStream(seconds=11)
    stream = DeadlineStream(below, 10)
    with pytest.raises(trio.BrokenResourceError, match="accepted nothing for 10 s"):
        await stream.send_all(b"data")
    assert stream.stalled
    assert below.socket.fileno() == -1
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"more")
    await below.aclose()


async def test_a_client_that_has_taken_it_while_the_process_was_stopped_is_not_cut_off(mock_clock):
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        stream, read = DeadlineStream(trio.SocketStream(ours), 10), -fill(ours)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, PIECE)
            while read < len(PIECE):
                await trio.testing.wait_all_tasks_blocked()
                read += drain(theirs)
                mock_clock.jump(100)
        assert read == len(PIECE)


async def test_an_abort_ends_a_write(autojump_clock):
    below = SlowStream(seconds=1000)
    stream = DeadlineStream(below, 3600)

    async def write():
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"data")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        stream.abort()
    assert trio.current_time() < 1000
    assert not stream.stalled
    await below.aclose()


async def test_a_cancellation_neither_cuts_a_write_nor_is_taken_for_a_stall(autojump_clock):
    below = SlowStream(seconds=5)
    stream = DeadlineStream(below, 10)
    with trio.move_on_after(1):
        await stream.send_all(b"data")
    assert below.taken == 4
    assert not stream.stalled
    await below.aclose()


async def test_what_fits_into_the_kernel_is_written_at_once():
    ours, theirs = trio.socket.socketpair()
    others = []

    async def another():
        others.append("had its turn")

    with ours, theirs:
        stream = DeadlineStream(trio.SocketStream(ours), 10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(another)
            with trio.CancelScope() as scope:
                scope.cancel()  # which is not what a write ends by
                await stream.send_all(b"data")
                await stream.send_all(b"more")
            assert others
        assert await theirs.recv(10) == b"datamore"


async def test_writing_to_what_is_closed_or_gone_says_so():
    ours, theirs = trio.socket.socketpair()
    stream = DeadlineStream(trio.SocketStream(ours), 10)
    theirs.close()
    with pytest.raises(trio.BrokenResourceError, match="was lost"):
        await stream.send_all(b"data")
    await stream.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await stream.send_all(b"data")
