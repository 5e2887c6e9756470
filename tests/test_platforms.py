"""What a system does not have is done without, or told in a sentence; and each system and Python is tried somewhere."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

# As on Windows. What trio itself is made of here it keeps.
WITHOUT = """
import select, signal, socket, sys
from functools import partial
import trio

epoll, socket.socketpair = select.epoll, partial(socket.socketpair, socket.AF_UNIX)
for module, name in [
    (select, "epoll"), (select, "poll"), (signal, "SIGHUP"), (socket, "AF_UNIX"), (trio.lowlevel, "FdStream"),
]:
    delattr(module, name)
sys.modules |= {"fcntl": None, "resource": None, "termios": None}
import mcpbus.serving.run
select.epoll = epoll

import http.client
from mcpbus import Server, ServeOptions

server = Server("everywhere")

@server.tool
async def echo(text: str) -> str:
    return text

def ask(url):
    connection = http.client.HTTPConnection(url.split("/")[2])
    connection.request("GET", "/health")
    return connection.getresponse().read().decode()

async def over_http():
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(lambda task_status: server.serve(bind="127.0.0.1:0", task_status=task_status))
        print(await trio.to_thread.run_sync(ask, url), file=sys.stderr)
        nursery.cancel_scope.cancel()

trio.run(over_http)
for options in ({"bind": "unix:/tmp/mcpbus-nowhere"}, {"workers": 2}):
    try:
        server.run(**options)
    except Exception as error:
        print(type(error).__name__, error, file=sys.stderr)
server.run("stdio")
"""

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "echo",
        "arguments": {"text": "hi"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


def test_a_system_that_lacks_what_posix_has_is_served_all_the_same():
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT], input=json.dumps(CALL), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    health, unix, workers, *_ = ended.stderr.splitlines()
    assert health == '{"status":"ok"}'
    assert unix.startswith(
        "CannotListenError cannot listen on unix:/tmp/mcpbus-nowhere: there are no Unix sockets"
    )
    assert workers.startswith("CannotListenError there are no Unix sockets on this system")
    assert json.loads(ended.stdout)["result"]["content"][0]["text"] == "hi"


def test_each_python_that_is_named_is_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {found[1] for each in project["classifiers"] if (found := re.search(r"Python :: (3\.\d+)", each))}
    workflow = (ROOT / ".github/workflows/tests.yml").read_text()
    tried = re.search(r"python: \[(.*)\]", workflow)[1]
    assert {each.strip(' "') for each in tried.split(",")} == named
    assert min(named, key=lambda each: int(each[2:])) == project["requires-python"].removeprefix(">=")
