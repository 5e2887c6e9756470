"""The programs in `examples/`, which are what users write, do what they say."""

import asyncio
import importlib
import json
import sqlite3
import sys
from pathlib import Path

import httpx
import pytest
import trio
import uvicorn

from mcpbus.protocol.revisions import LATEST
from mcpbus.testing import open_bus, open_client, open_probe

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE = 60
"""Seconds after which a test that hangs is ended: many more than one takes on a machine that has much else to do."""


@pytest.fixture
def load(monkeypatch):
    """Import an example anew."""
    monkeypatch.syspath_prepend(EXAMPLES)
    loaded = []

    def load(name):
        for each in ("watcher", name):
            monkeypatch.delitem(sys.modules, each, raising=False)
        loaded.append(name)
        return importlib.import_module(name)

    yield load
    for name in ("watcher", *loaded):
        sys.modules.pop(name, None)


def text_of(result):
    return result["content"][0]["text"]


def lines_of(folder, names):
    text = "".join((folder / f"{name}.py").read_text() for name in names)
    return sum(not line.isspace() for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("names", [("database",), ("jobs",), ("watcher", "watcher_fastapi"), ("notes",)])
def test_each_is_at_most_as_long_as_with_fastmcp(names):
    assert lines_of(EXAMPLES, names) <= lines_of(EXAMPLES / "fastmcp", names)


# -- database ------------------------------------------------------------------------------------


@pytest.fixture
def database(load, tmp_path, monkeypatch):
    example = load("database")
    monkeypatch.setattr(example, "FILE", str(tmp_path / "books.db"))
    with sqlite3.connect(example.FILE) as file:
        file.execute("CREATE TABLE books (title TEXT, year INTEGER)")
        file.execute("INSERT INTO books VALUES ('Emma', 1815)")
    file.close()
    return example


async def test_a_database_is_explored(database):
    async with open_client(database.server) as client:
        read = await client.request("resources/read", {"uri": "db://tables/books"})
        assert json.loads(read["contents"][0]["text"]) == {
            "columns": {"title": "TEXT", "year": "INTEGER"},
            "rows": 1,
        }
        found = await client.call_tool("query", {"sql": "SELECT title FROM books"})
        assert found["structuredContent"] == [{"title": "Emma"}]
        for tool, sql, why in (
            ("query", "DELETE FROM books", "readonly"),
            ("change", "DELETE FROM music", "no such table: music"),
        ):
            refused = await client.call_tool(tool, {"sql": sql})
            assert (refused["isError"], why in text_of(refused)) == (True, True)


async def test_who_watches_a_table_is_told_of_its_changes(database):
    async with (
        open_client(database.server) as client,
        client.listen(uris=["db://tables/books"]) as changes,
    ):
        changed = await client.call_tool("change", {"sql": "UPDATE books SET year = 1816"})
        assert changed["structuredContent"] == 1
        method, params = await anext(changes)
        assert (method, params["uri"]) == ("notifications/resources/updated", "db://tables/books")


# -- jobs ----------------------------------------------------------------------------------------

SCRIPT = "import time; print('first', flush=True); print('second', flush=True); time.sleep({})"


def command(seconds):
    return {"command": [sys.executable, "-c", SCRIPT.format(seconds)]}


@pytest.mark.parametrize("consents", [True, False])
async def test_a_job_runs_if_its_user_wants_it(consents, load):
    async def on_input_request(method, params):
        return {"action": "accept", "content": {"value": consents}}

    lines = []

    def on_notification(method, params):
        if method == "notifications/message":
            lines.append(params["data"])

    capabilities = {"elicitation": {"form": {}}}
    async with (
        open_bus(load("jobs").server) as bus,
        bus.connect(capabilities=capabilities, on_input_request=on_input_request) as client,
    ):
        result = await client.call_tool("run", command(0), on_notification=on_notification, log_level="info")
    assert result.get("isError", False) is not consents
    assert lines == (["first", "second"] if consents else [])


async def test_a_job_says_what_it_says_while_it_runs_and_ends_with_its_call(load):
    async def on_input_request(method, params):
        return {"action": "accept", "content": {"value": True}}

    capabilities = {"elicitation": {"form": {}}}
    with trio.fail_after(DEADLINE):
        async with (
            open_bus(load("jobs").server) as bus,
            bus.connect(capabilities=capabilities, on_input_request=on_input_request) as client,
        ):
            with trio.CancelScope() as scope:

                def on_notification(method, params):
                    if params.get("data") == "second":
                        scope.cancel()

                await client.call_tool(
                    "run", command(3600), on_notification=on_notification, log_level="info"
                )
            assert scope.cancelled_caught


# -- watcher -------------------------------------------------------------------------------------


async def test_changes_in_a_folder_are_told_in_a_trio_program(load, tmp_path, monkeypatch):
    example = load("watcher")
    monkeypatch.setattr(example, "FOLDER", tmp_path)
    with trio.fail_after(DEADLINE):
        async with (
            open_client(example.server) as client,
            client.listen(uris=["files:///a"]) as changes,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(write_until_cancelled, tmp_path / "a")
            method, params = await anext(changes)
            assert (method, params["uri"]) == ("notifications/resources/updated", "files:///a")
            nursery.cancel_scope.cancel()
            read = await client.request("resources/read", {"uri": "files:///"})
            assert json.loads(read["contents"][0]["text"]) == ["a"]


async def write_until_cancelled(file):
    """Change a file again and again: when it is first watched, nobody tells."""
    for n in range(10**6):
        file.write_text(str(n))
        await trio.sleep(0.1)


def test_changes_in_a_folder_are_told_in_fastapi_under_uvicorn(load, tmp_path, monkeypatch):
    web = load("watcher_fastapi")
    for module in (web, sys.modules["watcher"]):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    meta = {
        "io.modelcontextprotocol/protocolVersion": LATEST.name,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    }
    params = {"notifications": {"resourceSubscriptions": ["files:///a"]}, "_meta": meta}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": LATEST.name,
        "mcp-method": "subscriptions/listen",
    }

    async def main():
        host = uvicorn.Server(uvicorn.Config(web.web, port=0, log_level="error", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(host.serve())
        while not host.started:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)
        port = host.servers[0].sockets[0].getsockname()[1]
        told = []
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client,
            client.stream("POST", "/files/mcp", json=listen, headers=headers) as stream,
        ):
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    told.append(json.loads(line[5:])["method"])
                    if len(told) == 2:
                        break
                    assert (await client.put("/a", content=b"hello")).status_code == 200
        host.should_exit = True
        await serving
        assert told[1] == "notifications/resources/updated"

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert (tmp_path / "a").read_bytes() == b"hello"


# -- notes ---------------------------------------------------------------------------------------


@pytest.fixture
def notes(load, monkeypatch):
    monkeypatch.setenv("TOKENS", "ada:secret bob:hidden")
    return load("notes").server


async def test_each_user_has_notes_and_tools_of_their_own(notes, autojump_clock):
    async with open_bus(notes) as bus:
        listed = {}
        for user in ("ada", "bob"):
            async with bus.connect(principal=user) as client:
                listed[user] = [tool["name"] for tool in await client.list_tools()]
                await client.call_tool("write", {"text": f"by {user}"})
                if user == "ada":
                    continue
                assert (await client.call_tool("write"))["structuredContent"] == ["by bob"]
    assert listed == {"ada": ["draft", "write", "everybody"], "bob": ["draft", "write"]}


async def test_drafts_last_as_long_as_their_session(notes, autojump_clock):
    async with open_bus(notes) as bus:
        async with bus.connect(principal="ada", revision="2025-11-25") as client:
            await client.call_tool("draft", {"text": "a"})
            assert (await client.call_tool("draft", {"text": "b"}))["structuredContent"] == {"result": 2}
        async with bus.connect(principal="ada", revision="2025-11-25") as client:
            await client.call_tool("draft", {"text": "c"})
            assert (await client.call_tool("write"))["structuredContent"] == {"result": ["c"]}


async def test_who_calls_too_often_has_to_wait(notes, autojump_clock):
    async with open_bus(notes) as bus, bus.connect(principal="ada") as client:
        failed = [(await client.call_tool("write")).get("isError", False) for _ in range(7)]
        assert failed == [False] * 5 + [True] * 2
        await trio.sleep(1)
        assert "isError" not in await client.call_tool("write")


async def test_nobody_comes_in_without_a_token(notes, autojump_clock):
    async with open_bus(notes) as bus, open_probe(bus.asgi()) as probe:
        assert (await probe.request("tools/list").ended()).status == 401
        right = {"authorization": "Bearer secret"}
        assert (await probe.request("tools/list", headers=right).ended()).status == 200


async def test_a_pet_store_offers_its_operations(load):
    store = load("petstore")
    async with open_client(store.server) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        assert [*tools] == ["list_pets", "get_pet", "order_pet"]
        assert tools["list_pets"]["description"] == "List Pets\n\nList the pets that are for sale."
        assert tools["get_pet"]["annotations"]["readOnlyHint"]
        cats = await client.call_tool("list_pets", {"kind": ["cat"]})
        assert cats["structuredContent"] == [{"name": "Tom", "kind": "cat", "price": 50}]
        await client.call_tool("order_pet", {"body": {"pet": "rex"}})
        again = await client.call_tool("order_pet", {"body": {"pet": "rex"}})
        assert again["isError"]
        assert again["content"][0]["text"] == '409 Conflict: {"detail":"rex is not for sale"}'
