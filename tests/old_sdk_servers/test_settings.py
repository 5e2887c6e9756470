"""Settings for HTTP of servers of version 1 of the official SDK, and of FastMCP 2: they hold where the options of serving leave a choice."""

import inspect
import logging
from functools import partial

import fastmcp
import httpx
import pytest
import trio
from click.testing import CliRunner
from mcp.server.fastmcp import FastMCP

import mcpbus
from mcpbus.cli import main
from mcpbus.cli.targets import load_server
from mcpbus.hosting.detect import find
from mcpbus.server_base import ServerBase
from mcpbus.serving import ServeOptions

pytestmark = pytest.mark.filterwarnings("ignore")

CHOSEN = {"host": "127.0.0.1", "port": 0, "streamable_http_path": "/here/", "json_response": True}
FOUND = {"bind": "127.0.0.1:0", "path": "/here", "response": "json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
INITIALIZE = {
    **LIST,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
}
BOTH = {"accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, {}),
        ({"host": "::1", "port": 9000}, {"bind": "[::1]:9000"}),
        ({"sse_path": "/events", "stateless_http": True}, {"sse_path": "/events", "sessions": "stateless"}),
        ({"streamable_http_path": "/"}, {"path": "/"}),
        (CHOSEN, FOUND),
    ],
)
def test_settings_other_than_the_defaults_are_found(settings, found):
    assert find(FastMCP("settings", **settings)).http_settings == found


def test_settings_of_fastmcp_2_are_found():
    if "port" in inspect.signature(fastmcp.FastMCP).parameters:
        assert find(fastmcp.FastMCP("settings", **CHOSEN)).http_settings == FOUND
    assert find(fastmcp.FastMCP("settings")).http_settings == {}


async def ask(served, path="/here"):
    """Serve, and return the status of a handshake, its content type, and whether it opened a session."""
    async with trio.open_nursery() as nursery, httpx.AsyncClient() as http:
        [url] = await nursery.start(served)
        answer = await http.post(url.rsplit("/", 1)[0] + path, json=INITIALIZE, headers=BOTH)
        nursery.cancel_scope.cancel()
    return answer.status_code, answer.headers["content-type"], "mcp-session-id" in answer.headers


async def test_a_server_is_served_by_its_settings():
    hosted = mcpbus.host(FastMCP("settings", **CHOSEN, stateless_http=True))
    assert await ask(hosted.serve) == (200, "application/json", False)


async def test_options_of_serving_go_before_settings():
    hosted = mcpbus.host(FastMCP("settings", **CHOSEN, stateless_http=True))
    given = partial(hosted.serve, path="/there", response="sse", sessions="sessionful")
    assert await ask(given, "/there") == (200, "text/event-stream", True)


@pytest.mark.parametrize(
    ("given", "bind"),
    [
        ({}, "127.0.0.1:0"),
        ({"bind": None}, "127.0.0.1:0"),
        ({"bind": "127.0.0.1:7000"}, "127.0.0.1:7000"),
        ({"options": ServeOptions(drain_timeout=1)}, "127.0.0.1:0"),
        ({"options": ServeOptions(bind="127.0.0.1:7000")}, None),
        ({"transport": "stdio"}, None),
    ],
)
def test_run_listens_where_the_settings_say_unless_told_otherwise(monkeypatch, given, bind):
    ran = []
    monkeypatch.setattr(ServerBase, "run", lambda _, **options: ran.append(options))
    mcpbus.host(FastMCP("settings", **CHOSEN)).run(**given)
    assert ran[0].get("bind") == bind


async def test_an_application_on_asyncio_has_the_path_and_the_form_of_the_settings(monkeypatch):
    made = []
    monkeypatch.setattr(ServerBase, "asgi", lambda _, **options: made.append(options))
    hosted = mcpbus.host(FastMCP("settings", **CHOSEN))
    mcpbus.asyncio.asgi(hosted)
    mcpbus.asyncio.asgi(hosted, response="auto")
    assert [(options["path"], options["response"]) for options in made] == [
        ("/here", "json"),
        ("/here", "auto"),
    ]
    assert not any("bind" in options for options in made)


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "with_settings.py"
    lines = "from mcp.server.fastmcp import FastMCP", "mcp = FastMCP('a', port=9000, json_response=True)"
    file.write_text("\n".join(lines))
    return str(file)


@pytest.mark.parametrize(
    ("options", "bind"),
    [
        ([], "127.0.0.1:9000"),
        (["--bind", "127.0.0.1:8000"], ("127.0.0.1:8000",)),
        (["--response", "sse"], "127.0.0.1:9000"),
    ],
)
def test_options_of_a_command_go_before_settings(monkeypatch, file, options, bind):
    ran = []
    monkeypatch.setattr(ServerBase, "run", lambda _, **given: ran.append(given))
    assert CliRunner().invoke(main, ["serve", file, *options]).exit_code == 0
    assert (ran[0]["bind"], ran[0]["response"]) == (bind, "sse" if "sse" in options else "json")


def test_the_log_line_of_a_server_names_its_settings(file, caplog):
    with caplog.at_level(logging.INFO, "mcpbus"):
        load_server(file)
    hosted = f"{file}:mcp is a FastMCP of the official SDK: mcpbus hosts it in this process, on asyncio"
    assert caplog.messages == [f"{hosted}; its settings for HTTP: bind 127.0.0.1:9000, response json"]
