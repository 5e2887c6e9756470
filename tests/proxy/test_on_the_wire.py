"""Proxies of programs and of servers at a URL, ours and those of the official SDK, as people serve them from the command line."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
import trio
from click.testing import CliRunner

from mcpbus import Server
from mcpbus.cli import main
from mcpbus.client import connect_http, connect_process, stdio
from mcpbus.proxy import Proxy
from mcpbus.testing import open_client
from mcpbus.upstream.connection_pool import Isolation

CLIENT = Path(__file__).parents[1] / "client"
WIRE = str(CLIENT / "wire_server.py")
SDK = [sys.executable, str(CLIENT / "sdk_server.py")]
MCPBUS = [sys.executable, "-m", "mcpbus"]
OLD, NEW = "2025-11-25", "2026-07-28"


@pytest.fixture(autouse=True)
def plenty_of_time_to_start(monkeypatch):
    monkeypatch.setattr(stdio, "_PROBE_SECONDS", 60)


@contextmanager
def running(*command, until=r"(?:is served at|running on) (http://\S+)"):
    """A program, until the block ends: yields the URL that it says."""
    with subprocess.Popen([*command], stderr=subprocess.PIPE, text=True) as child:
        try:
            for line in child.stderr:
                if found := re.search(until, line):
                    yield found[1]
                    break
        finally:
            child.terminate()
            child.stderr.read()


async def answer(_method, _params):
    return {"action": "accept", "content": {"city": "oslo"}}


async def check(client):
    """What both servers have."""
    said = []
    assert {tool["name"] for tool in await client.list_tools()} >= {"forecast", "fail", "ask"}
    result = await client.call_tool(
        "forecast", {"city": "oslo"}, on_notification=lambda *each: said.append(each), log_level="info"
    )
    assert "rain" in result["content"][0]["text"]
    assert [params["progress"] for method, params in said if method.endswith("progress")] == [1, 2]
    assert (await client.call_tool("fail"))["isError"] is True
    assert "oslo" in (await client.call_tool("ask"))["content"][0]["text"]
    [resource] = await client.list_resources()
    assert "oslo" in (await client.read_resource(resource["uri"]))[0]["text"]
    assert [prompt["name"] for prompt in await client.list_prompts()] == ["pack"]


ASKED = {"capabilities": {"elicitation": {}}, "on_input_request": answer}


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("here", [OLD, NEW])
@pytest.mark.parametrize("command", [[sys.executable, WIRE], [*SDK, "stdio"]], ids=["mcpbus", "sdk"])
async def test_a_program_is_stood_for(command, here, there):
    with trio.fail_after(60):
        async with open_client(Proxy(command, revision=there), revision=here, **ASKED) as client:
            await check(client)


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize(
    "command", [[*MCPBUS, "serve", WIRE, "--bind", "127.0.0.1:0"], [*SDK, "http", "0"]], ids=["mcpbus", "sdk"]
)
async def test_a_server_at_a_url_is_stood_for(command, there):
    with running(*command) as url, trio.fail_after(60):
        endpoint = url if url.endswith("/mcp") else f"{url}/mcp"
        for here in (OLD, NEW):
            async with open_client(Proxy(endpoint, revision=there), revision=here, **ASKED) as client:
                await check(client)


async def test_a_program_is_served_over_http_and_that_over_standard_input_and_output():
    program = f"stdio:{sys.executable} {WIRE}"
    said = r"^wire is served at (http://\S+)"  # as it calls itself
    with running(*MCPBUS, "serve", program, "--bind", "127.0.0.1:0", until=said) as url, trio.fail_after(60):
        async with connect_http(url, **ASKED) as client:
            await check(client)
        for revision in (OLD, NEW):
            async with connect_process([*MCPBUS, "stdio", url], revision=revision, **ASKED) as client:
                await check(client)


async def until_listed(client, tool):
    """Wait until a tool is listed: a gateway does not wait for a program that is slow to start."""
    async with client.listen(tools=True) as changes:
        while tool not in [each["name"] for each in await client.list_tools()]:
            await anext(changes)


async def test_the_revision_that_is_spoken_to_the_other_server_can_be_fixed(tmp_path):
    """The official SDK's `ctx.elicit` asks in the older revisions alone: sessions, or where one of those is fixed, clients of all."""
    elicits = (
        "from mcp.server.mcpserver import Context, MCPServer\nfrom pydantic import BaseModel\nserver = MCPServer('s')\n"
        "class Place(BaseModel):\n    city: str\n"
        "@server.tool()\nasync def where(ctx: Context) -> str:\n    return (await ctx.elicit('Where?', Place)).data.city\nserver.run()"
    )
    (tmp_path / "server.py").write_text(elicits)
    entry = {"command": sys.executable, "args": [str(tmp_path / "server.py")], "revision": OLD}
    (tmp_path / "desk.json").write_text(json.dumps({"mcpServers": {"s": entry}}))
    program = f"stdio:{sys.executable} {tmp_path / 'server.py'}"
    for arguments, tool, revisions in (
        ([program], "where", [OLD]),
        ([program, "--revision", OLD], "where", [OLD, NEW]),
        ([str(tmp_path / "desk.json")], "s_where", [OLD, NEW]),
    ):
        for revision in revisions:
            with trio.fail_after(60):
                command = [*MCPBUS, "stdio", *arguments]
                async with connect_process(command, revision=revision, **ASKED) as client:
                    await until_listed(client, tool)
                    assert (await client.call_tool(tool))["content"][0]["text"] == "oslo"


@pytest.mark.parametrize("target", ["http://127.0.0.1:9/mcp", "stdio:program"])
@pytest.mark.parametrize("isolation", get_args(Isolation))
@pytest.mark.parametrize("command", [["serve"], ["stdio"]])
def test_the_owner_of_a_connection_can_be_chosen(command, isolation, target, monkeypatch):
    ran = []
    monkeypatch.setattr(Proxy, "run", lambda self, *_, **__: ran.append(self))
    for given in ([], ["--isolation", isolation]):
        ended = CliRunner().invoke(main, [*command, target, *given])
        assert ended.exit_code == 0, ended.output
    assert [each._terms.isolation for each in ran] == ["client", isolation]


async def test_a_gateway_over_stdio_follows_its_file(tmp_path):
    (tmp_path / "server.py").write_text(
        "from mcpbus import Server\nserver = Server('s')\n@server.tool\ndef now() -> str: return 'noon'"
    )
    file = tmp_path / "desk.json"
    entry = {"command": MCPBUS[0], "args": [*MCPBUS[1:], "stdio", "server.py"], "cwd": str(tmp_path)}
    file.write_text(json.dumps({"mcpServers": {"a": entry}}))
    with trio.fail_after(60):
        async with connect_process([*MCPBUS, "stdio", str(file), "--reload"]) as client:
            await until_listed(client, "a_now")
            file.write_text(json.dumps({"mcpServers": {"a": entry, "s": entry}}))
            await until_listed(client, "s_now")
            assert (await client.call_tool("s_now"))["content"][0]["text"] == "noon"


def test_the_log_has_no_line_for_each_request_to_a_url():
    with running(*MCPBUS, "serve", WIRE, "--bind", "127.0.0.1:0") as url:
        told = subprocess.run([*MCPBUS, "stdio", url], capture_output=True, text=True, input="", check=True)
    assert told.stderr == ""


async def test_what_a_proxy_has_started_ends_with_it(tmp_path):
    marker = tmp_path / "alive"
    source = (
        f"import pathlib, atexit; marker = pathlib.Path({str(marker)!r}); marker.touch(); atexit.register(marker.unlink)\n"
        "from mcpbus import Server; s = Server('s'); s.add_tool(lambda: 'x', name='x'); s.run('stdio')"
    )
    (tmp_path / "child.py").write_text(source)
    program = f"stdio:{sys.executable} {tmp_path / 'child.py'}"
    with running(*MCPBUS, "serve", program, "--bind", "127.0.0.1:0"):
        assert marker.exists()
    assert not marker.exists()


def run(*arguments, status=0):
    result = CliRunner().invoke(main, arguments)
    assert "Traceback" not in result.output
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def test_the_command_line_talks_to_all_servers_of_a_file(tmp_path):
    servers = {
        "a": {"command": sys.executable, "args": [WIRE]},
        "b": {"command": sys.executable, "args": [SDK[1], "stdio"]},
    }
    (tmp_path / "desk.json").write_text(json.dumps({"mcpServers": servers}))
    target = str(tmp_path / "desk.json")
    listed = run("list", target)
    assert "a_forecast" in listed
    assert "b_forecast" in listed
    assert "rain" in run("call", target, "b_forecast", "city=oslo")


@pytest.mark.parametrize(
    ("arguments", "told", "status"),
    [
        (
            ["stdio", "http://127.0.0.1:9/mcp"],
            "Error: 127.0.0.1 cannot be reached: cannot connect to http://127.0.0.1:9/mcp",
            1,
        ),
        (
            ["serve", "stdio:no-such-program"],
            "no-such-program cannot be reached: cannot start 'no-such-program': there is no such program on PATH",
            1,
        ),
        (["serve", f"stdio:{sys.executable} -c pass"], "ended with status 0 before it answered", 1),
        (["serve", "stdio:"], "write the command after stdio:", 2),
        (["serve", "https://"], "'https://' names no host", 2),
        (["serve", "none.json"], "there is no file 'none.json'", 2),
        (["serve", WIRE, "--header", "A: b"], "--header is for a TARGET that is a URL", 2),
        (["serve", WIRE, "--revision", OLD], "a server here speaks all of them", 2),
        (["serve", "desk.json", "--revision", OLD], "in a file each server may have its own", 2),
        (["stdio", WIRE, "--revision", NEW], "a server here speaks all of them", 2),
        (["serve", WIRE, "--isolation", "none"], "a server here has no connection to another one", 2),
        (["stdio", WIRE, "--isolation", "call"], "a server here has no connection to another one", 2),
        (["serve", "desk.json", "--isolation", "none"], "in a file each server may have its own", 2),
        (["stdio", WIRE, "--reload"], "--reload is for a TARGET that is a file which names servers", 2),
    ],
)
def test_what_cannot_be_reached_is_told_in_a_sentence(arguments, told, status):
    where = ["--bind", "127.0.0.1:0"] if arguments[0] == "serve" else []
    assert told in run(*arguments, *where, status=status)


def test_a_file_that_cannot_be_used_is_told_in_a_sentence(tmp_path):
    (tmp_path / "desk.json").write_text('{"mcpServers": {"a": {"command": "x", "args": 5}}}')
    assert "server 'a': args: Expected `array`, got `int`" in run(
        "serve", str(tmp_path / "desk.json"), status=2
    )


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("npx -y some-server", 'a command as a list, such as ["npx", "-y", "some-server"]'),
        (5, "this is of type int"),
        ({"a": {"command": "npx"}}, "of type dict; mcpbus.gateway.gateway() takes servers by their names"),
        (Server("s"), "target is the server 's' itself, which can be mounted as it is; or write bus.connect"),
    ],
)
def test_a_target_that_is_none_is_told_with_what_to_write(target, told):
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        Proxy(target)


async def test_two_proxies_one_behind_the_other():
    with running(*MCPBUS, "serve", WIRE, "--bind", "127.0.0.1:0") as url, trio.fail_after(60):
        first = Proxy(url, revision=OLD)
        async with first.open() as bus:
            second = Proxy(partial(bus.connect, revision=NEW))
            async with open_client(second, revision=OLD, **ASKED) as client:
                await check(client)


def test_the_log_has_no_token_of_a_url_whatever_becomes_of_the_server(tmp_path):
    log = tmp_path / "log"
    with running(*MCPBUS, "serve", WIRE, "--bind", "127.0.0.1:0") as url, log.open("w") as lines:
        target = f"http://ada:secret@{url.removeprefix('http://')}?token=secret"
        child = subprocess.Popen([*MCPBUS, "stdio", target], stdin=-1, stdout=-1, stderr=lines)
        try:
            child.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            child.stdin.flush()
            assert b'"id":1' in child.stdout.readline()
        finally:
            child.communicate()
        run("list", f"{url}?token=secret")
    told = log.read_text() + run("list", f"{url}?token=secret", status=1)
    assert f"cannot connect to {url}?..." in told
    assert "secret" not in told


def test_what_http_does_not_carry_is_logged_before_a_program_is_served():
    command = [*MCPBUS, "serve", f"stdio:{sys.executable} {WIRE} stdio", "--bind", "127.0.0.1:0"]
    with running(
        *command, until=r"(HTTP does not reach a program over standard input and output .*)"
    ) as line:
        assert "no tokens, no header fields, no get_access_token(), no custom routes" in line


async def test_a_file_is_followed_from_the_command_line(tmp_path):
    file = tmp_path / "desk.json"

    def write(*names):
        program = {"command": sys.executable, "args": [WIRE, "stdio"], "tools": ["forecast"]}
        file.write_text(json.dumps({"mcpServers": dict.fromkeys(names, program)}))

    write("one")
    with (
        running(*MCPBUS, "serve", str(file), "--reload", "--bind", "127.0.0.1:0") as url,
        trio.fail_after(120),
    ):
        async with connect_http(url) as client:
            assert [tool["name"] for tool in await client.list_tools()] == ["one_forecast"]
            async with client.listen(tools=True) as changes:
                write("two")
                async for _ in changes:
                    if [tool["name"] for tool in await client.list_tools()] == ["two_forecast"]:
                        break
