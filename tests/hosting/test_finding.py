"""How commands find a server of another SDK in a file, and serve it."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import mcpbus
from mcpbus.cli import main
from mcpbus.cli.targets import load_server

SERVERS = Path(__file__).parent / "servers"

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def write(folder, text):
    file = folder / "found_here.py"
    file.write_text(text)
    return str(file)


def test_the_log_names_the_object_and_that_it_is_hosted(caplog):
    with caplog.at_level(logging.INFO, "mcpbus"):
        server = load_server(str(SERVERS / "notes.py"))
    assert isinstance(server, mcpbus.Hosted)
    assert caplog.messages == [
        f"{SERVERS / 'notes.py'}:mcp is a MCPServer of the official SDK: mcpbus hosts it in this process, on asyncio"
    ]


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("mcp = MCPServer('a')", "", "a"),
        ("mcp = MCPServer('a'); other = MCPServer('b')", ":other", "b"),
        ("mcp = MCPServer('a'); hosted = mcpbus.host(mcp, loop='trio')", "", "a"),
        ("mcp = MCPServer('a'); low = mcp._lowlevel_server; hosted = mcpbus.host(mcp)", "", "a"),
    ],
)
def test_a_file_has_one_server_or_names_it(text, name, found, tmp_path):
    file = write(tmp_path, f"import mcpbus\nfrom mcp.server.mcpserver import MCPServer\n{text}\n")
    assert load_server(file + name).name == found


def test_of_several_servers_one_is_to_be_named(tmp_path):
    file = write(
        tmp_path, "from mcp.server.mcpserver import MCPServer\na = MCPServer('a')\nb = MCPServer('b')\n"
    )
    with pytest.raises(LookupError, match="has several servers: name one of"):
        load_server(file)


def test_a_pipelined_handshake_on_stdio_is_answered_in_order():
    messages = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "a"}}},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    command = [sys.executable, "-m", "mcpbus", "stdio", str(SERVERS / "notes.py")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["structuredContent"] == {"result": "a"}
    assert "ERROR" not in done.stderr


def test_a_command_calls_a_tool(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    ran = CliRunner().invoke(main, ["call", str(SERVERS / "notes.py"), "echo", "text=hi"])
    assert (ran.exit_code, ran.stdout) == (0, "hi\n")
