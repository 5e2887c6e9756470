"""Programs as targets: functions and installed programs that return or run a server, which is hosted in their own event loop."""

import importlib
import logging
import signal
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from mcp.server.lowlevel import Server

import mcpbus
from mcpbus.cli import main, targets
from mcpbus.cli.targets import load_server, with_arguments

FILE = Path(__file__).parent / "servers" / "programs.py"


def load(function):
    return load_server(f"{FILE}:{function}")


async def loop_of(server):
    async with server.open() as bus, bus.connect() as client:
        return (await client.call_tool("loop"))["structuredContent"]["result"]


async def test_a_program_runs_on_its_own_loop_until_the_server_is_closed(capsys, caplog):
    with caplog.at_level(logging.INFO, "mcpbus"):
        server = load("main --name 'a b'")
    happened = sys.modules["programs"].happened
    assert server.name == "a b"
    assert await loop_of(server) == happened[0]
    assert happened[1:] == ["closed", "ended"]
    assert capsys.readouterr() == ("", "starting\n")
    name = f"{FILE}:main"
    assert caplog.messages == [
        f"{name} runs a MCPServer of the official SDK: mcpbus hosts it in this process, on the asyncio loop of the program"
    ]
    with pytest.raises(RuntimeError, match="main has ended, and its server with it: load it again"):
        await loop_of(server)


async def test_an_async_function_keeps_its_loop():
    server = load("make_async")
    assert await loop_of(server) == sys.modules["programs"].happened[0]


async def test_a_function_may_return_its_server(caplog):
    with caplog.at_level(logging.INFO, "mcpbus"):
        server = load("make")
    assert await loop_of(server)
    assert await loop_of(server), "no program has ended"
    assert caplog.messages[0].endswith("mcpbus hosts it in this process, on asyncio")


async def test_a_lowlevel_server_has_the_options_of_its_program():
    server = load("lowlevel")
    async with server.open() as bus, bus.connect(revision="2025-11-25") as client:
        described = await client.describe()
        assert (described.name, described.version) == ("outer", "9.9")
        assert described.instructions == "By program."
        assert described.capabilities["tools"] == {"listChanged": True}
        assert await client.list_tools() == []


@pytest.mark.parametrize(("function", "kind"), [("over_http", mcpbus.Hosted), ("of_mcpbus", mcpbus.Server)])
def test_programs_over_http_and_of_mcpbus_are_served_alike(function, kind):
    assert type(load(function)) is kind


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("exits", "exits exited with status 3 before it ran an MCP server"),
        ("exits_with_text", "exited before it ran an MCP server: no database"),
        ("main --nonsense", "main exited with status 2 before it ran an MCP server"),
        ("returns_nothing", "returns_nothing returned and ran no MCP server"),
        ("returns_a_number", "returned a value of type int and ran no MCP server"),
        ("serves_web", "serves HTTP by itself, with uvicorn: name its server instead, as in weather.py:mcp"),
        ("on_trio", "runs its server on trio, and mcpbus hosts programs on asyncio alone"),
        ("needs_arguments", "needs_arguments is of type function, not a mcpbus.Server"),
        ("happened x", "happened is of type list, not a mcpbus.Server"),
    ],
)
def test_a_program_that_runs_no_server_is_explained(function, message):
    with pytest.raises(LookupError, match=message):
        load(function)


def test_a_program_that_fails_raises_its_own_error():
    with pytest.raises(ValueError, match="out of order"):
        load("raises")


def test_all_is_as_it_was_once_a_program_has_started():
    before = (
        sys.argv,
        signal.signal,
        Server.run,
        mcpbus.Server.run,
        vars(sys.modules["mcp.server.stdio"]).copy(),
    )
    load("main")
    with pytest.raises(LookupError):
        load("exits")
    after = sys.argv, signal.signal, Server.run, mcpbus.Server.run, vars(sys.modules["mcp.server.stdio"])
    assert before == after


async def test_a_program_that_breaks_ends_its_server():
    server = load("breaks")
    with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True, allow_unwrapped=True):
        async with server.open():
            sys.modules["programs"].break_now()
            await trio.sleep(10)


async def test_a_program_that_fails_as_it_ends_is_logged(caplog):
    await loop_of(load("fails_at_end"))
    assert "fails_at_end failed as it ended: ValueError('not closed')" in caplog.text


@pytest.fixture
def script(monkeypatch):
    """An installed program."""
    monkeypatch.setattr(sys, "path", [str(FILE.parent), *sys.path])
    monkeypatch.delitem(sys.modules, "programs", raising=False)
    point = EntryPoint("notes-server", "programs:main", "console_scripts")
    monkeypatch.setattr(targets, "entry_points", lambda group, name: [point] if name == point.name else [])
    return point.name


def test_an_installed_program_is_a_target_with_arguments(script):
    ran = CliRunner().invoke(main, ["inspect", f"{script} --name quoted"])
    assert ran.stdout.startswith("quoted, ")
    ran = CliRunner().invoke(main, ["install", "mcp-json", script, "--", "--name", "a b"])
    assert f"{script} --name 'a b'" in ran.stdout
    assert '"a b": {' in ran.stdout


def test_a_program_that_is_not_installed_here_is_explained():
    ran = CliRunner().invoke(main, ["serve", "notes-nowhere"])
    assert "nor a program that is installed beside mcpbus: one of elsewhere is written" in ran.output
    ran = CliRunner().invoke(main, ["serve", "http://127.0.0.1:1/mcp", "--", "x"])
    assert "arguments after TARGET are for a program or a function here" in ran.output


def test_a_server_takes_no_arguments():
    with pytest.raises(LookupError, match="is a server, which takes no arguments: only a function does"):
        load_server(with_arguments(f"{FILE.parent / 'notes.py'}:mcp", ["--x"]))


def test_a_module_without_a_server_names_its_main_function(script):
    with pytest.raises(
        LookupError, match="programs has no server; if its function main runs one, write programs:main"
    ):
        load_server("programs")
    assert importlib.import_module("programs")
