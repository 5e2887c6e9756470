"""Public servers from the package index, each as its own program and served by `mcpbus serve`: lists and results are the same."""

import re
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import attrs
import pytest
import trio

from mcpbus import ProtocolError
from mcpbus.cli.targets import find_script
from mcpbus.client import connect_http, connect_process

LEGACY, MODERN = "2025-11-25", "2026-07-28"
LISTS = ("list_tools", "list_prompts", "list_resources", "list_resource_templates")
SECONDS = 60


@attrs.frozen
class Public:
    """A public server.

    Attributes:
        program: Its console script.
        kind: What it was written with.
        tool: A tool of it.
        given: The arguments of a call.
        arguments: Its command line.
        old: Whether its own transport knows no 2026-07-28.
    """

    program: str
    kind: str
    tool: str
    given: dict
    arguments: tuple = ()
    old: bool = False


SERVERS = [
    Public("mcp-server-git", "SDK 2", "git_log", {"repo_path": "."}, ("--repository", ".")),
    Public("mcp-server-fetch", "SDK 2", "fetch", {"url": "{page}"}, ("--allow-private-ips",)),
    Public(
        "mcp-server-time",
        "SDK 2",
        "convert_time",
        {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC"},
    ),
    Public("excel-mcp-server", "SDK 2", "list_workbooks", {"directory": "{folder}"}, ("stdio",)),
    Public(
        "sample-mcp-server", "FastMCP 4", "calculate", {"expression": "2 + 2 * 10"}, ("--transport", "stdio")
    ),
    Public("word_mcp_server", "FastMCP 4", "list_available_documents", {"directory": "."}),
    Public(
        "mcp-server-sqlite",
        "SDK 1, low level",
        "read_query",
        {"query": "SELECT 1 + 1 AS two"},
        ("--db-path", "notes.db"),
        old=True,
    ),
    Public("mcp-server-calculator", "SDK 1, FastMCP", "calculate", {"expression": "6 * 7"}, old=True),
    Public("random-number-mcp", "FastMCP 2", "random_choices", {"population": ["a"], "k": 3}, old=True),
    Public(
        "unit-converter-mcp",
        "FastMCP 2",
        "convert_length",
        {"value": 1, "from_unit": "kilometer", "to_unit": "meter"},
        old=True,
    ),
]


@pytest.fixture(params=[each for each in SERVERS if find_script(each.program)], ids=lambda each: each.program)
def public(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "first"], check=True)
    return tmp_path


class Page(BaseHTTPRequestHandler):
    """A page, and nothing else: no robots.txt either."""

    def do_GET(self):
        self.send_response(200 if self.path == "/page" else 404)
        self.send_header("content-type", "text/plain")
        self.end_headers()
        self.wfile.write(b"a page")

    def log_message(self, *_):
        """Be silent."""


@pytest.fixture
def page():
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/page"
        server.shutdown()
        thread.join()


def beside(program):
    return str(Path(sys.executable).parent / program)


@asynccontextmanager
async def served(public, folder):
    """Serve it by `mcpbus serve`, and yield its URL and what was logged."""
    command = [beside("mcpbus"), "serve", public.program, "--bind", "127.0.0.1:0", "--", *public.arguments]
    process = await trio.lowlevel.open_process(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=folder
    )
    said = b""
    try:
        while b"(Ctrl-C to stop)" not in said:
            data = await process.stderr.receive_some()
            assert data, said.decode()
            said += data
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drop, process.stderr)
            yield said.decode().split(" is served at ")[1].split()[0], said.decode()
            nursery.cancel_scope.cancel()
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


async def drop(stream):
    async for _ in stream:
        pass


async def seen_by(client, public, given):
    """The lists of a server, and the results of three calls."""
    lists = {name: await listed(client, name) for name in LISTS}
    calls = [dated(await client.call_tool(public.tool, given)) for _ in range(3)]
    assert calls[0].get("isError") is not True
    assert calls[0] == calls[1] == calls[2]
    return lists, calls


async def listed(client, name):
    """A list of a server; the code of its error if it has none of that kind."""
    try:
        return await getattr(client, name)()
    except ProtocolError as error:
        return error.code


def dated(result):
    """A result without what differs by the day, and without what only one revision has."""
    text = re.sub(r"\d{4}-\d\d-\d\d|Mon|Tues|Wednes|Thurs|Fri|Satur|Sun", "", repr(result["content"]))
    return {"content": text, "structured": "structuredContent" in result, "isError": result.get("isError")}


async def test_lists_and_results_are_those_of_its_own_transport(public, folder, page):
    given = {
        name: value.format(page=page, folder=folder) if isinstance(value, str) else value
        for name, value in public.given.items()
    }
    own, hosted = {}, {}

    async def ask_own(revision):
        command = [beside(public.program), *public.arguments]
        async with connect_process(
            command, revision=revision, cwd=folder, on_stderr=lambda _: None
        ) as client:
            own[revision] = await seen_by(client, public, given)

    async def ask_hosted():
        async with served(public, folder) as (url, said):
            assert f"{public.program} runs a " in said
            assert "mcpbus hosts it in this process" in said
            for revision in (LEGACY, MODERN):
                async with connect_http(url, revision=revision) as client:
                    hosted[revision] = await seen_by(client, public, given)

    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for revision in (LEGACY,) if public.old else (LEGACY, MODERN):
                nursery.start_soon(partial(ask_own, revision))
            nursery.start_soon(ask_hosted)
    assert hosted[LEGACY] == own[LEGACY]
    assert hosted[MODERN] == own[LEGACY if public.old else MODERN]
