"""`mcpbus read` and `mcpbus watch`: what a resource holds, and what changes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcpbus.cli import main
from mcpbus.client import stdio

SERVER = """
from mcpbus import Server

server = Server("shelf")
server.resource("shelf://text")(lambda: "one\\x1b[31m two")
server.tool(name="paint")(lambda: "\\x1b[31mred")
server.resource("shelf://bytes", mime_type="image/png")(lambda: bytes(range(256)))
"""

CHANGING = """
import json, sys

def say(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)

def changed(meta):
    say(method="notifications/tools/list_changed", params=meta)
    say(method="notifications/resources/updated", params={"uri": "shelf://a", **meta})

for line in sys.stdin:
    message = json.loads(line)
    method, known = message["method"], message.get("id")
    if method == "server/discover" and sys.argv[1] == "2026-07-28":
        say(id=known, result={"supportedVersions": [sys.argv[1]], "capabilities": {}, "resultType": "complete"})
    elif method == "subscriptions/listen":
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": known}}
        wanted = message["params"]["notifications"]
        assert wanted["resourceSubscriptions"] == ["shelf://a"], wanted
        say(method="notifications/subscriptions/acknowledged", params={"notifications": wanted, **meta})
        changed(meta)
        break
    elif method == "initialize":
        info = {"name": "old", "version": "1"}
        say(id=known, result={"protocolVersion": sys.argv[1], "capabilities": {}, "serverInfo": info})
    elif method == "resources/subscribe":
        assert message["params"] == {"uri": "shelf://a"}, message
        say(id=known, result={})
        changed({})
        break
    elif known is not None:
        say(id=known, error={"code": -32601, "message": "Method not found"})
"""


@pytest.fixture(autouse=True)
def plenty_of_time_to_start(monkeypatch):
    monkeypatch.setattr(stdio, "_PROBE_SECONDS", 60)


@pytest.fixture
def shelf(tmp_path):
    file = tmp_path / "shelf.py"
    file.write_text(SERVER)
    return str(file)


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def test_a_text_is_printed_as_it_is(shelf):
    assert run("read", shelf, "shelf://text").stdout == "one\x1b[31m two"


def test_what_a_tool_returns_is_printed_as_it_is_too(shelf):
    assert run("call", shelf, "paint").stdout == "\x1b[31mred\n"


def test_bytes_are_written_as_they_are_where_nobody_reads_them(shelf):
    assert run("read", shelf, "shelf://bytes").stdout_bytes == bytes(range(256))


def test_all_of_a_resource_is_json(shelf):
    [content] = json.loads(run("read", shelf, "shelf://bytes", "--json").stdout)
    assert (content["uri"], content["mimeType"]) == ("shelf://bytes", "image/png")


def test_a_resource_that_is_not_there_is_told(shelf):
    result = run("read", shelf, "shelf://none")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "shelf://none" in result.stderr


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_changes_are_lines_of_json_until_the_server_ends(revision, tmp_path):
    file = Path(tmp_path / "changing.py")
    file.write_text(CHANGING)
    result = run("watch", f"stdio:{sys.executable} {file} {revision}", "shelf://a")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"method": "notifications/tools/list_changed", "params": {}},
        {"method": "notifications/resources/updated", "params": {"uri": "shelf://a"}},
    ]
    assert result.exit_code == 1
    listening, error = result.stderr.splitlines()
    assert (listening, error[:7]) == ("listening, until Ctrl-C", "Error: ")


@pytest.mark.parametrize("command", ["read", "watch"])
def test_a_uri_that_the_locale_could_not_decode_is_refused(shelf, command):
    result = run(command, shelf, "shelf://\udcff")
    assert result.exit_code == 2
    assert r"'shelf://\udcff' is not in UTF-8, as JSON is" in result.stderr


def test_ctrl_c_ends_listening_as_it_was_told(shelf):
    take = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from mcpbus.cli import main; main()"
    command = [sys.executable, "-c", take, "watch", shelf]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr.readline() == "listening, until Ctrl-C\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60) == ("", "")
    assert child.returncode == 0
