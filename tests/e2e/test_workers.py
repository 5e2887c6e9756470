"""Several processes that serve as one, over real sockets: which of them a connection comes to makes no difference."""

import os
import signal
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from wire import DEADLINE, Served, call, message, program

CHANGED = "notifications/tools/list_changed"


@asynccontextmanager
async def running():
    """The program, once all of its workers serve; yields its process and what reaches it."""
    async with program("workers_app.py", "127.0.0.1:0") as process:
        said = b""
        while b"workers (Ctrl-C" not in said:
            data = await process.stderr.receive_some()
            assert data, said.decode()
            said += data
        served = Served(None, said.decode().split(" is served at ")[1].split()[0])
        try:
            yield process, served
        finally:
            served.close()


async def pid(peer, session):
    """The process that serves a session."""
    answer = await peer.exchange(call("where", id=1), session)
    assert answer.status == 200, answer
    return int(answer.json["result"]["content"][0]["text"])


async def peers_of_both(served):
    """Connections to one worker and the other, each with a session that is there."""
    found = {}
    while len(found) < 2:
        peer = await served.peer()
        session = await peer.open_session()
        found.setdefault(await pid(peer, session), (peer, session))
    return found


async def gone(pids):
    """Wait until none of these processes is there."""
    for number in pids:
        with suppress(ProcessLookupError):
            while True:
                os.kill(number, 0)
                await trio.sleep(0.01)


async def test_workers_serve_as_one_until_they_are_told_to_end():
    async with running() as (process, served):
        found = await peers_of_both(served)
        (one, (peer, session)), (other, (far, elsewhere)) = found.items()
        assert await pid(far, session) == one
        assert await pid(peer, elsewhere) == other
        # A change that one tells reaches a session of the other, whose stream is at the first.
        listening = await served.peer()
        await listening.send(None, elsewhere, "GET")
        assert (await listening.head())[0] == 200
        assert (await peer.exchange(call("change", id=2), session)).status == 200
        assert (await listening.said())["method"] == CHANGED
        # When one of them ends, its sessions go on in another one, and another one begins.
        os.kill(one, signal.SIGKILL)
        while "error" in (answer := await far.exchange(message("ping", id=3), session)).json:
            assert b"has ended" in answer.body  # it may have been on its way there
        assert await pid(far, session) != one
        assert await pid(far, elsewhere) == other
        while len(found) < 3:
            found |= await peers_of_both(served)
        # What runs when the end comes is answered.
        await far.send(call("short", id=4, token="t"), elsewhere)
        assert (await far.head())[0] == 200
        assert (await far.said())["method"] == "notifications/progress"
        process.send_signal(signal.SIGTERM)
        assert (await far.said())["result"]["content"][0]["text"] == "finished"
        assert await process.wait() == 0
        await gone(found)


async def test_workers_end_with_who_keeps_them():
    async with running() as (process, served):
        found = await peers_of_both(served)
        process.kill()
        with trio.fail_after(DEADLINE):
            await gone(found)


@pytest.mark.parametrize("target", ["nowhere.py"])
async def test_workers_that_cannot_begin_end_the_program(target):
    async with program("-m", "mcpbus", "serve", target, "--workers", "2", "--bind", "127.0.0.1:0") as process:
        errors = b"".join([data async for data in process.stderr])
        assert await process.wait() == 2
        assert b"there is no file 'nowhere.py'" in errors
