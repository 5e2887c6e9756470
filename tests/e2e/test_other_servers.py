"""The ASGI application under servers that are not ours."""

import asyncio
import re
import socket
import threading
from functools import partial

import program_app
import pytest
import trio
import trio.testing
from wire import DEADLINE, Served, call, modernized, program

from mcpbus import ServeOptions, Server
from mcpbus.serving import CannotListenError
from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

HYPERCORN = "hypercorn -k trio"


async def test_plain_hypercorn_serves_it():
    async with program("-m", "hypercorn", "-k", "trio", "-b", "127.0.0.1:0", "program_app:app") as process:
        log = b""
        while not (found := re.search(rb"Running on (http://\S+)", log)):
            data = await process.stderr.receive_some()
            assert data, log.decode()
            log += data
        served = Served(None, found[1].decode() + "/mcp")
        peer = await served.peer()
        session = await peer.open_session()
        await peer.send(call("chatty", id=1, token=1), session)
        await peer.head()
        assert (await peer.said())["method"] == "notifications/progress"
        assert (await peer.said())["result"]["content"][0]["text"] == "said"
        assert await peer.said() is None
        assert (await peer.modern(call("echo", {"text": "hi"}, id=1))).status == 200
        served.close()
        process.terminate()
        await process.wait()
        assert process.returncode == 0


def test_the_lifespan_fails_under_asyncio_and_names_the_way_out():
    async def start():
        sent = []

        async def receive():
            return {"type": "lifespan.startup"}

        async def send(event):
            sent.append(event)

        await program_app.server.asgi()({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
        return sent

    (event,) = _in_asyncio(start)
    assert event["type"] == "lifespan.startup.failed"
    assert HYPERCORN in event["message"]


def test_without_a_lifespan_each_request_is_told():
    async def request():
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(event):
            sent.append(event)

        await program_app.server.asgi()(
            {"type": "http", "method": "POST", "path": "/mcp", "headers": []}, receive, send
        )
        return sent

    head, body = _in_asyncio(request)
    assert head["status"] == 500
    assert HYPERCORN in body["body"].decode()


def _in_asyncio(function):
    """Run where no trio runs."""
    results = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(function())))
    thread.start()
    thread.join(DEADLINE)
    return results[0]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("-m", "uvicorn", "--port", "0", "program_app:app"), id="uvicorn"),
        pytest.param(("-m", "hypercorn", "-b", "127.0.0.1:0", "program_app:app"), id="hypercorn-on-asyncio"),
    ],
)
async def test_a_server_without_trio_does_not_start(arguments):
    """uvicorn comes with the official SDK; hypercorn's own default is asyncio."""
    async with program(*arguments) as process:
        log = b""
        async with trio.open_nursery() as nursery:

            async def read():
                nonlocal log
                async for data in process.stderr:
                    log += data
                    if HYPERCORN.encode() in log:
                        return

            nursery.start_soon(read)
        assert HYPERCORN in log.decode(), log.decode()
        await process.wait()  # hypercorn's exit status is 0 all the same


async def test_the_same_app_may_be_started_again():
    """A lifespan that has ended leaves the server closed, to be opened anew."""
    app = program_app.server.asgi()
    for _ in range(2):
        sent = []
        to_app, from_server = trio.open_memory_channel(1)

        async def send(event, sent=sent):
            sent.append(event["type"])
            await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(app, {"type": "lifespan"}, from_server.receive, send)
            await to_app.send({"type": "lifespan.startup"})
            await to_app.send({"type": "lifespan.shutdown"})
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_mcpbus_serves_under_hypercorn_and_drains_first():
    server, shutdown, running = Server("under"), trio.Event(), trio.Event()

    @server.tool
    async def wait() -> str:
        running.set()
        await shutdown.wait()
        await trio.testing.wait_all_tasks_blocked(0.01)
        return "waited"

    async with trio.open_nursery() as nursery:
        options = ServeOptions(server="hypercorn", bind="127.0.0.1:0")
        (url,) = await nursery.start(partial(server.serve, options=options, shutdown=shutdown))
        served = Served(None, url)
        peer = await served.peer()
        with trio.fail_after(DEADLINE):
            await peer.send(*modernized(call("wait", id=1)))
            await running.wait()
            shutdown.set()
            assert (await peer.response()).json["result"]["content"][0]["text"] == "waited"
        served.close()


async def test_an_address_in_use_is_told_in_the_same_words():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotListenError, match=f"cannot listen on {bind}"):
            await Server("late").serve(options=ServeOptions(server="hypercorn", bind=bind))
