"""`mcpbus install`: entries in the files of MCP clients, and what else is in these files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcpbus.cli import client_files, main
from mcpbus.client.stdio import connect_process

SOURCE = 'from mcpbus import Server\nserver = Server("weather")\nother = Server("other")\n'


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a server, which is the current one, and a home."""
    for name in ("work", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "here_weather.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "here_weather", raising=False)
    return tmp_path


def run(*arguments, status=0):
    result = CliRunner().invoke(main, ["install", *arguments])
    assert "Traceback" not in result.output
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def read(file):
    return json.loads(Path(file).read_text())


FILE = "here_weather.py:server"


def program(place):
    target = f"{place}/work/{FILE}"
    return {"type": "stdio", "command": sys.executable, "args": ["-m", "mcpbus", "stdio", target]}


@pytest.mark.parametrize(
    ("client", "file", "member", "typed"),
    [
        ("claude-code", "work/.mcp.json", "mcpServers", True),
        ("cursor", "home/.cursor/mcp.json", "mcpServers", False),
        ("vscode", "work/.vscode/mcp.json", "servers", True),
    ],
)
def test_each_client_is_told_in_its_own_file_and_form(client, file, member, typed, place):
    told = run(client, FILE)
    assert told.startswith(f"added weather in {place / file}.")
    entry = program(place) if typed else {k: v for k, v in program(place).items() if k != "type"}
    assert read(place / file) == {member: {"weather": entry}}
    assert run(client, FILE, "--env", "A=b=c", "--name", "other").startswith("added other in")
    assert run(client, FILE, "--env", "A=b=c").startswith("replaced weather in")
    assert read(place / file)[member] == {
        name: {**entry, "env": {"A": "b=c"}} for name in ("weather", "other")
    }
    url = {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer x"}}
    run(client, "https://a.example/mcp", "--header", "Authorization: Bearer x")
    assert read(place / file)[member]["a.example"] == ({"type": "http", **url} if typed else url)


@pytest.mark.parametrize(
    ("platform", "folder"),
    [("darwin", "home/Library/Application Support/Claude"), ("win32", "home/AppData/Roaming/Claude")],
)
def test_claude_desktop_has_its_file_where_its_system_has_such(platform, folder, place, monkeypatch):
    monkeypatch.setattr(client_files.sys, "platform", platform)
    monkeypatch.setenv("APPDATA", str(place / "home/AppData/Roaming"))
    assert "is Claude Desktop installed?" in run("claude-desktop", FILE, status=1)
    (place / folder).parent.mkdir(parents=True)
    run("claude-desktop", FILE)
    [(name, entry)] = read(place / folder / "claude_desktop_config.json")["mcpServers"].items()
    assert (name, entry["command"], "type" in entry) == ("weather", sys.executable, False)
    run("claude-desktop", "https://a.example/mcp", "--header", "Authorization: Bearer x", "--header", "B: c")
    assert read(place / folder / "claude_desktop_config.json")["mcpServers"]["a.example"] == {
        "command": sys.executable,
        "args": ["-m", "mcpbus", "stdio", "https://a.example/mcp"],
        "env": {"MCPBUS_STDIO_HEADER": "Authorization: Bearer x\nB: c"},
    }


def test_where_nobody_knows_the_file_the_entry_can_be_printed(place, monkeypatch):
    monkeypatch.setattr(client_files.sys, "platform", "linux")
    monkeypatch.delenv("APPDATA", raising=False)
    assert "--print shows what to put there" in run("claude-desktop", FILE, status=1)
    assert json.loads(run("claude-desktop", FILE, "--print"))["mcpServers"]["weather"]["args"][0] == "-m"


@pytest.mark.parametrize("arguments", [["mcp-json", FILE], ["claude-code", FILE, "--print"]])
def test_what_is_printed_is_not_written(arguments, place):
    assert json.loads(run(*arguments)) == {"mcpServers": {"weather": program(place)}}
    assert list(place.glob("*/.*")) == []


def test_what_else_is_in_a_file_is_kept_and_so_are_its_rights_and_its_link(place):
    real = place / "home" / "dotfiles.json"
    real.write_text('\ufeff{"z": [1, "\xe9"], "mcpServers": {"old": {"command": "x"}}, "a": null}', "utf-8")
    real.chmod(0o640)
    link = place / "work" / ".mcp.json"
    link.symlink_to(real)
    run("claude-code", FILE)
    assert link.is_symlink()
    assert list(read(real)) == ["z", "mcpServers", "a"]
    assert (read(real)["z"], list(read(real)["mcpServers"])) == ([1, "\xe9"], ["old", "weather"])
    assert real.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in real.parent.iterdir()] == ["dotfiles.json"]


def test_a_file_that_gets_secrets_is_private(place):
    file = place / "work" / ".mcp.json"
    run("claude-code", FILE)
    assert file.stat().st_mode & 0o777 == 0o600
    for secret in (["--env", "TOKEN=x"], ["--header", "Authorization: Bearer x"]):
        file.chmod(0o644)
        target = FILE if secret[0] == "--env" else "https://a.example/mcp"
        run("claude-code", target, *secret)
        assert file.stat().st_mode & 0o777 == 0o600


def test_no_entry_of_concurrent_commands_is_lost(place):
    program = "import sys; sys.stdin.read(); from mcpbus.cli import main; main()"
    commands = [
        [sys.executable, "-c", program, "install", "claude-code", "stdio:cat", "--name", f"n{n}"]
        for n in range(8)
    ]
    running = [subprocess.Popen(each, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for each in commands]
    for each in running:
        each.stdin.close()
    assert [each.wait() for each in running] == [0] * 8
    assert sorted(read(place / "work" / ".mcp.json")["mcpServers"]) == [f"n{n}" for n in range(8)]


def test_links_in_a_circle_are_an_error(place):
    file = place / "work" / ".mcp.json"
    file.symlink_to(".other.json")
    (place / "work" / ".other.json").symlink_to(".mcp.json")
    assert "cannot be written: Too many levels of symbolic links" in run("claude-code", FILE, status=1)
    assert file.is_symlink()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "it is no JSON without comments"),
        ('{"mcpServers": {} /* mine */}', "it is no JSON without comments"),
        ("[]", "it is not an object"),
        ('{"mcpServers": []}', "its mcpServers is not an object"),
        ("\udcff", "it is no JSON without comments"),
        ("[" * 100_000, "it is no JSON without comments"),
        ('{"a": 1e999}', "it is no JSON without comments: the number 1e999 is too large to be kept"),
        ('{"a": [-1e999]}', "it is no JSON without comments: the number -1e999 is too large to be kept"),
        ('{"a": Infinity}', "it is no JSON without comments: Infinity is no number"),
        ('{"a": NaN}', "it is no JSON without comments: NaN is no number"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "it is no JSON without comments: it has two members 'b'"),
        ('{"a": "\\ud800"}', "'utf-8' codec can't encode character"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_as_it_was(text, told, place):
    file = place / "work" / ".mcp.json"
    data = text.encode(errors="surrogateescape")
    file.write_bytes(data)
    assert f"{file} was left as it is: {told}" in run("claude-code", FILE, status=1)
    assert file.read_bytes() == data


def test_a_file_that_is_empty_is_as_good_as_none(place):
    (place / "work" / ".mcp.json").write_text("\n")
    run("claude-code", FILE)
    assert read(".mcp.json")["mcpServers"]


def test_a_file_that_cannot_be_written_is_as_it_was(place, monkeypatch):
    file = place / "work" / ".mcp.json"
    file.write_text("{}")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    assert f"{file} cannot be written: No space left on device" in run("claude-code", FILE, status=1)
    assert file.read_text() == "{}"
    assert [found.name for found in file.parent.glob(".mcp*")] == [".mcp.json"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cursor", "nothing.py"], "there is no file 'nothing.py'"),
        (["cursor", "here_weather.py"], "has several servers"),
        (["cursor", "stdio:npx -y a"], "say what the client is to call it: --name NAME"),
        (["cursor", FILE, "--env", "A"], "write it as NAME=VALUE"),
        (["cursor", FILE, "--env", "A B=c"], "write it as NAME=VALUE"),
        (["cursor", FILE, "--header", "A: b"], "--header is for a TARGET that is a URL"),
        (["cursor", "http://a", "--env", "A=b"], "--env is for a TARGET that is a program"),
        (["emacs", FILE], "'emacs' is not one of"),
        (["cursor", "none.json"], "there is no file 'none.json'"),
    ],
)
def test_what_cannot_be_is_told(arguments, told, place):
    assert told in run(*arguments, status=2)
    assert list(place.glob("*/.*")) == []


def test_all_servers_of_a_file_are_one_program(place):
    (place / "work" / "desk.json").write_text("{}")
    assert json.loads(run("mcp-json", "desk.json", "--env", "A=b"))["mcpServers"]["desk"] == {
        "type": "stdio",
        "command": sys.executable,
        "args": ["-m", "mcpbus", "stdio", f"{place}/work/desk.json"],
        "env": {"A": "b"},
    }


def test_a_program_is_named_as_it_is(place):
    entry = json.loads(run("mcp-json", "stdio:npx -y 'a b'", "--name", "n"))["mcpServers"]["n"]
    assert entry == {"type": "stdio", "command": "npx", "args": ["-y", "a b"]}


@pytest.mark.parametrize("target", [FILE, "here_weather:server"])
async def test_the_entry_starts_the_server_wherever_its_client_is(target, place, monkeypatch):
    entry = json.loads(run("mcp-json", target))["mcpServers"]["weather"]
    monkeypatch.chdir("/")
    async with connect_process([entry["command"], *entry["args"]], env=entry.get("env")) as client:
        assert (await client.describe()).name == "weather"
