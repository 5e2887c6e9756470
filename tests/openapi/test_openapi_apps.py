"""Web applications that are called in process: FastAPI and Starlette, on asyncio and on trio."""

from collections import defaultdict
from contextlib import asynccontextmanager

import anyio
import pytest
import sniffio
import trio
from fastapi import FastAPI, Request
from pydantic import BaseModel

from mcpbus import Server
from mcpbus.testing import open_client


class Item(BaseModel):
    name: str
    size: int = 1


class Events:
    """What happens in the application, in either loop, which trio can wait for."""

    def __init__(self):
        self.noted = []
        self._token = trio.lowlevel.current_trio_token()
        self._events = defaultdict(trio.Event)

    def append(self, word):
        self.noted.append(word)
        self._token.run_sync_soon(self._events[word].set)

    async def wait(self, word):
        with trio.fail_after(10):
            await self._events[word].wait()


def make_app(events):
    @asynccontextmanager
    async def lifespan(_):
        events.append("started")
        yield {"shelf": {}}
        events.append("stopped")

    app = FastAPI(title="Shop", version="3", lifespan=lifespan)

    @app.put("/items/{item_id}")
    async def put_item(item_id: str, item: Item, request: Request) -> Item:
        request.state.shelf[item_id] = item
        return item

    @app.get("/items/{item_id}")
    def get_item(item_id: str, request: Request, double: bool = False) -> Item:
        item = request.state.shelf[item_id]
        return Item(name=item.name, size=item.size * (1 + double))

    @app.get("/loop")
    async def which_loop(request: Request) -> str:
        return f"{sniffio.current_async_library()} {request.url}"

    @app.get("/wait")
    async def wait() -> str:
        events.append("waiting")
        try:
            await anyio.sleep(60)
        except BaseException:
            events.append("cancelled")
            raise
        return "done"

    return app


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
async def test_its_operations_are_tools(loop):
    events = []
    server = Server.from_asgi(make_app(events), loop=loop, exclude=["wait"])
    assert (server.name, server.version, events) == ("Shop", "3", [])
    async with open_client(server) as client:
        assert events == ["started"]
        assert [tool["name"] for tool in await client.list_tools()] == ["get_item", "put_item", "which_loop"]
        put = await client.call_tool("put_item", {"item_id": "a/b", "body": {"name": "cup"}})
        assert put["isError"]  # its route takes no slash
        await client.call_tool("put_item", {"item_id": "a", "body": {"name": "cup", "size": 2}})
        got = await client.call_tool("get_item", {"item_id": "a", "double": True})
        assert got["structuredContent"] == {"name": "cup", "size": 4}
        named = await client.call_tool("which_loop")
        assert named["structuredContent"] == f"{loop} http://localhost/loop"
        wrong = await client.call_tool("put_item", {"item_id": "a", "body": {"name": 5}})
        assert "5 is not of type" in wrong["content"][0]["text"]
    assert events == ["started", "stopped"]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
async def test_a_cancelled_call_cancels_its_request(loop):
    events = Events()
    server = Server.from_asgi(make_app(events), loop=loop)
    async with open_client(server) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "wait")
            await events.wait("waiting")
            nursery.cancel_scope.cancel()
        await events.wait("cancelled")


async def test_an_exception_of_the_application_is_for_the_log(caplog):
    server = Server.from_asgi(make_app([]), loop="trio")
    async with open_client(server) as client:
        result = await client.call_tool("get_item", {"item_id": "nothing"})
    assert result["isError"]
    assert "KeyError" not in result["content"][0]["text"]
    assert "KeyError: 'nothing'" in caplog.text


async def bare(scope, receive, send):
    """Answers without a lifespan, and without a document of its own."""
    assert scope["type"] == "http"
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


DOCUMENT = {"openapi": "3.0.0", "paths": {"/a": {"get": {}}}}


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
async def test_any_application_will_do_with_a_document(loop, caplog):
    caplog.set_level("INFO", "mcpbus")
    server = Server.from_asgi(bare, document=DOCUMENT, loop=loop, name="bare")
    async with open_client(server) as client:
        result = await client.call_tool("get_a")
    assert result["content"] == [{"type": "text", "text": "/a"}]
    assert "served without a lifespan" in caplog.text


@pytest.mark.parametrize(
    ("app", "options", "error", "said"),
    [
        (bare, {}, TypeError, r"function has no openapi\(\), as FastAPI has: give document="),
        (5, {}, TypeError, "app is an ASGI application, not int"),
        (bare, {"loop": "curio", "document": DOCUMENT}, ValueError, "loop is one of 'asyncio', 'trio'"),
        (bare, {"base_url": "x", "document": DOCUMENT}, ValueError, "base_url is an address"),
    ],
)
def test_what_is_no_application_is_refused(app, options, error, said):
    with pytest.raises(error, match=said):
        Server.from_asgi(app, **options)


async def test_an_application_that_does_not_start_says_why():
    async def broken(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    server = Server.from_asgi(broken, document=DOCUMENT, loop="trio")
    with pytest.RaisesGroup(
        pytest.RaisesExc(RuntimeError, match="the application did not start: no database"),
        allow_unwrapped=True,
        flatten_subgroups=True,
    ):
        async with open_client(server):
            pass


async def test_an_application_has_a_time_to_stop(autojump_clock):
    async def stuck(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await trio.sleep_forever()

    async with open_client(Server.from_asgi(stuck, document=DOCUMENT, loop="trio")):
        before = trio.current_time()
    assert trio.current_time() - before == pytest.approx(30, abs=1)
