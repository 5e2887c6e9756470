"""Failure 5: what a handler says leaves while it runs, and a silent handler's client is kept in the picture."""

import pytest
import trio

from examples.failures import live
from examples.failures.client import HttpClient
from examples.failures.stage import serving
from mcpbus import Context, Limits, Server
from mcpbus.protocol.revisions import LATEST, LATEST_LEGACY

HOUR = 3600


@pytest.fixture(params=[LATEST_LEGACY.name, LATEST.name])
def revision(request):
    return request.param


async def test_the_first_step_arrives_while_the_script_has_hours_to_go(revision):
    arguments = {"steps": 2, "interval": HOUR}
    with trio.fail_after(60):
        async with serving(live.server) as (bus, url):
            client = HttpClient(url, revision=revision)
            if revision == LATEST_LEGACY.name:
                await client.initialize()
            async with client.open("tools/call", {"name": "run_script", "arguments": arguments}) as answer:
                first, second = await anext(answer), await anext(answer)
                assert bus.statistics().requests == 1
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert first["params"] | {"progressToken": ""} == {
        "progressToken": "",
        "progress": 1,
        "total": 2,
        "message": "step 1 of 2",
    }
    assert second["params"] == {"level": "info", "data": "step 1: still running"}


async def test_each_line_is_there_before_the_handler_says_the_next(revision):
    """The handler goes on only once its client has read the line: one that is held back would block both."""
    server = Server("lines")
    read, lines = trio.open_memory_channel[None](0)

    @server.tool
    async def talk(ctx: Context) -> str:
        for line in range(20):
            await ctx.info(line)
            await lines.receive()
        return "done"

    with trio.fail_after(60):
        async with serving(server) as (_, url):
            client = HttpClient(url, revision=revision)
            if revision == LATEST_LEGACY.name:
                await client.initialize()
            arrived = []
            async with client.open("tools/call", {"name": "talk", "arguments": {}}) as answer:
                async for message in answer:
                    if "result" in message:
                        break
                    arrived.append(message["params"]["data"])
                    await read.send(None)
    assert arrived == list(range(20))


async def test_a_silent_handler_has_its_answer_begun_and_kept_alive():
    with trio.fail_after(60):
        async with serving(live.server, limits=Limits(keep_alive=0.02)) as (_, url):
            client = HttpClient(url)
            await client.initialize()
            async with client.open("tools/call", {"name": "think", "arguments": {"seconds": HOUR}}) as answer:
                assert [await anext(answer.events), await anext(answer.events)] == [None, None]
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
