"""A server inside a larger ASGI application, which runs no lifespan but its own."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
import trio
from channels import ws
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from mcpbus import Server
from mcpbus.testing import open_probe


def make_server(happened, name="inner"):
    @asynccontextmanager
    async def lifespan(server):
        happened.append(f"{server.name} opened")
        yield {"name": server.name}
        happened.append(f"{server.name} closed")

    server = Server(name, lifespan=lifespan)

    @server.tool(thread=False)
    def who() -> str:
        return name

    return server


def mounted(app, prefix="/tools", **options):
    async def hello(request):
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/", hello), Mount(prefix, app)], **options)


@asynccontextmanager
async def started(web):
    async with web.router.lifespan_context(web):
        yield


async def said_by(probe):
    reply = await probe.request("tools/call", {"name": "who"}).reply()
    return reply["result"]["content"][0]["text"]


@pytest.mark.parametrize(("prefix", "path"), [("/tools", "/tools/mcp"), ("", "/mcp"), ("/a/b", "/a/b/mcp")])
async def test_it_is_open_within_the_lifespan_that_the_outer_one_was_given(prefix, path, autojump_clock):
    happened = []
    app = make_server(happened).asgi()
    web = mounted(app, prefix, lifespan=app.lifespan)
    async with started(web), open_probe(web, path=path) as probe:
        assert happened == ["inner opened"]
        assert (await probe.send("GET", target="/").ended()).body == b"hello"
        assert await said_by(probe) == "inner"
        session = await probe.initialize()
        get = await session.get().begun()
        app.bus.tools_changed()
        assert (await get.message())["method"] == "notifications/tools/list_changed"
    assert happened == ["inner opened", "inner closed"]


async def test_http_sse_and_websockets_are_mounted_with_it(autojump_clock):
    app = make_server([]).asgi()
    web = mounted(app, lifespan=app.lifespan)
    async with started(web), open_probe(web, path="/tools/mcp") as probe:
        sse = probe.send("GET", headers={"accept": "text/event-stream"}, target="/tools/sse")
        await sse.begun()
        await trio.testing.wait_all_tasks_blocked()
        assert sse.body.startswith(b"event: endpoint\ndata: /tools/sse?session_id=")
        sse.disconnect()
        async with ws(web, "2025-11-25", path="/tools/mcp") as client:
            assert client.accepted


async def test_several_are_opened_in_one_lifespan(autojump_clock):
    happened = []
    first, second = make_server(happened, "first").asgi(), make_server(happened, "second").asgi(path="/")

    @asynccontextmanager
    async def lifespan(_web):
        async with first.lifespan(), second.lifespan():
            yield

    web = Starlette(routes=[Mount("/first", first), Mount("/second", second)], lifespan=lifespan)
    async with started(web):
        async with open_probe(web, path="/first/mcp") as probe:
            assert await said_by(probe) == "first"
        async with open_probe(web, path="/second/") as probe:
            assert await said_by(probe) == "second"
    assert happened == ["first opened", "second opened", "second closed", "first closed"]


async def test_it_may_be_opened_anew_when_it_has_ended(autojump_clock):
    app = make_server([]).asgi()
    web = mounted(app, lifespan=app.lifespan)
    for _ in range(2):
        async with started(web), open_probe(web, path="/tools/mcp") as probe:
            assert await said_by(probe) == "inner"
        with pytest.raises(
            RuntimeError, match="there is a bus from the start of the ASGI lifespan to its end"
        ):
            _ = app.bus


async def test_where_nobody_opened_it_each_client_and_the_log_are_told_how(autojump_clock, caplog):
    web = mounted(make_server([]).asgi())
    async with started(web), open_probe(web, path="/tools/mcp") as probe:
        answer = await probe.send("POST", b"{}").ended()
        assert answer.status == 500
        assert b"lifespan=app.lifespan" in answer.body
    assert "lifespan=app.lifespan" in caplog.text


def test_under_asyncio_it_does_not_open_and_says_what_would():
    app = make_server([]).asgi()
    raised = []

    async def start():
        try:
            async with app.lifespan():
                pass
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=lambda: asyncio.run(start()))
    thread.start()
    thread.join()
    assert "hypercorn -k trio" in raised[0]
