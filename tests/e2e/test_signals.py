"""SIGTERM, SIGHUP and Ctrl-C: the program drains, and is gone soon after the drain's deadline, whatever clients do."""

import re
import signal
from contextlib import asynccontextmanager

import pytest
import trio
from wire import DEADLINE, LEGACY, MODERN, Served, call, modernized, program

from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

DRAIN = 1.0
SOON = DEADLINE / 2  # without waiting for a client, or for the drain's deadline where that is longer
SIGNALS = pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])


class Running:
    """The program, and what it has written to standard error."""

    def __init__(self, process):
        self.process = process
        self.errors = b""

    async def serves(self):
        """Wait until it does; return where. It has chosen a port that was free then, and says which."""
        await self.wrote(b" (Ctrl-C to stop)\n")
        self.served = Served(None, re.search(rb" is served at (\S+)", self.errors)[1].decode())
        return self.served

    async def wrote(self, word):
        while word not in self.errors:
            data = await self.process.stderr.receive_some()
            assert data, self.errors.decode()
            self.errors += data

    async def rest(self):
        """What it writes to standard error from now on, until it ends."""
        return b"".join([data async for data in self.process.stderr])

    async def ended(self):
        """Wait for its end; returns after how many seconds it came."""
        begun = trio.current_time()
        await self.process.wait()
        return trio.current_time() - begun


@asynccontextmanager
async def running(drain=DRAIN, *more):
    async with program("-m", "program_app", "http", drain, "127.0.0.1:0", *more) as process:
        run = Running(process)
        served = await run.serves()
        try:
            yield run
        finally:
            served.close()


@SIGNALS
async def test_an_idle_program_ends_at_once(signum):
    async with running(drain=DEADLINE) as run:
        run.process.send_signal(signum)
        assert await run.ended() < SOON
        assert run.process.returncode == 0


@SIGNALS
async def test_clients_that_stall_do_not_delay_it(signum):
    """One that reads no more of its answer, one of its GET stream, one that is silent, one in the middle of a request."""
    async with running() as run:
        served = run.served
        flooded, get, silent, partial = [await served.peer(receive_buffer=4096) for _ in range(4)]
        session = await silent.open_session()
        body = call("flood", id=1)
        body["params"]["_meta"] = {"io.modelcontextprotocol/logLevel": "info"}
        await flooded.send(*modernized(body))
        await get.send(None, session, verb="GET")
        await get.head()
        await partial.stream.send_all(partial.request(*modernized(body))[:-10])
        await run.wrote(b"FLOODED")
        run.process.send_signal(signum)
        assert await run.ended() < SOON
        assert run.process.returncode == 0


@SIGNALS
async def test_a_request_that_ends_in_time_is_answered(signum):
    async with running(drain=DEADLINE) as run:
        peer = await run.served.peer()
        await peer.send(*modernized(call("short", id=1, token=1)))
        await peer.head()
        await peer.said()
        run.process.send_signal(signum)
        assert (await peer.said())["result"]["content"][0]["text"] == "finished"
        assert await peer.said() is None
        assert await run.ended() < SOON
        assert run.process.returncode == 0


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_request_that_does_not_is_told_why(era):
    async with running(0.1, "patient") as run:
        peer = await run.served.peer()
        body, headers = call("stubborn", id=1, token=1), {}
        if era == MODERN:
            body, headers = modernized(body)
        else:
            headers = await peer.open_session()
        await peer.send(body, headers)
        await peer.head()
        await peer.said()
        run.process.send_signal(signal.SIGTERM)
        error = (await peer.said())["error"]
        assert (error["code"], error["message"]) == (-32603, "The server is shutting down")
        assert await peer.said() is None
        assert await run.ended() < SOON
        await run.wrote(b"CANCELLED")


async def test_a_listen_ends_with_its_result():
    async with running(drain=DEADLINE) as run:
        peer = await run.served.peer()
        listen = {"jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen"}
        listen["params"] = {"notifications": {"toolsListChanged": True}}
        await peer.send(*modernized(listen))
        await peer.head()
        await peer.said()
        run.process.send_signal(signal.SIGTERM)
        assert (await peer.said())["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "L"
        assert await peer.said() is None
        assert await run.ended() < SOON


async def test_a_second_signal_ends_it_at_once():
    async with running(drain=3600) as run:
        peer = await run.served.peer()
        await peer.send(*modernized(call("stubborn", id=1, token=1)))
        await peer.head()
        await peer.said()
        run.process.send_signal(signal.SIGINT)
        await _until_it_refuses(run)
        run.process.send_signal(signal.SIGINT)
        assert await run.ended() < SOON
        assert run.process.returncode == -signal.SIGINT


async def test_a_log_that_nobody_reads_delays_neither_clients_nor_the_end():
    async with running() as run:
        peer = await run.served.peer()
        for n in range(150):
            assert (await peer.modern(call("fail", id=n))).json["result"]["isError"]
        run.process.send_signal(signal.SIGTERM)
        assert await run.ended() < SOON
        assert run.process.returncode == 0


async def _until_it_refuses(run):
    while True:
        try:
            (await run.served.peer()).stream.socket.close()
        except OSError:
            return
        await trio.sleep(0.01)
