"""A server with --inspect, read by `mcpbus top` and `mcpbus tape`, and by a program."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

PROGRAM = """
import trio
from mcpbus import Context, Server

server = Server("shop")


@server.tool
async def reserve(city: str, ctx: Context) -> str:
    await ctx.info("one moment")
    await poll_shelf()
    return city


async def poll_shelf():
    await trio.sleep(1000)
"""


def run(*arguments, env):
    command = [sys.executable, "-m", "mcpbus", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=60)


@pytest.fixture
def served(tmp_path):
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "run").mkdir(mode=0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run"), "PYTHONUNBUFFERED": "1"}
    env.pop("MCPBUS_INSPECT_TOKEN", None)
    options = ["--bind", "127.0.0.1:0", "--inspect", "127.0.0.1:0"]
    command = [sys.executable, "-m", "mcpbus", "serve", str(tmp_path / "shop.py"), *options]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    inspector = url = None
    while url is None or inspector is None:
        line = server.stderr.readline()
        assert line, "it has ended"
        if "inspector at " in line:
            inspector = line.split("inspector at ")[1].strip()
        if " is served at " in line:
            url = line.split(" is served at ")[1].split()[0]
    yield server, url, inspector, env
    if server.poll() is None:
        server.kill()
    server.communicate()


def test_three_hung_calls_have_names(served):
    server, url, inspector, env = served
    address, _, token = inspector.partition("#token=")
    command = [sys.executable, "-m", "mcpbus", "call", url, "reserve", "city=Lyon"]
    calls = [
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(3)
    ]
    try:
        shown = ""
        for _ in range(100):
            shown = run("top", address, "--once", env=env).stdout
            if shown.count("poll_shelf") == 3:
                break
            time.sleep(0.1)
        assert [line for line in shown.splitlines() if "tools/call reserve" in line and "poll_shelf" in line]
        assert shown.count("in poll_shelf") == 3
        assert "shop: 3 in flight" in shown
        tape = run("tape", inspector, "--tool", "reserve", "--json", env=env).stdout.splitlines()
        assert [json.loads(line)["method"] for line in tape] == ["notifications/message"] * 3
        lines = run("tape", address, "--request", str(json.loads(tape[0])["request"]), env=env).stdout
        assert " notifications/message by reserve #" in lines
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}requests")
        asked = urllib.request.Request(f"{address}requests", headers={"Authorization": f"Bearer {token}"})
        body = urllib.request.urlopen(asked).read()
        assert len(json.loads(body)["requests"]) == 3
        assert b"Lyon" not in body
        server.send_signal(signal.SIGTERM)
        log = server.communicate(timeout=60)[1]
        ended = [line for line in log.splitlines() if "the shutdown has ended tools/call reserve" in line]
        assert len(ended) == 3
        assert all(" at shop.py:" in line and line.endswith(" in poll_shelf") for line in ended)
        assert server.returncode == 0
        assert list(Path(env["XDG_RUNTIME_DIR"], "mcpbus").iterdir()) == []
    finally:
        for call in calls:
            call.kill()
            call.wait()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1", "no inspector at http://127.0.0.1:1: "),
        ("ftp://x", "ftp://x is no http:// or unix: address of an inspector"),
        ("unix:/nothing/there", "no inspector at unix:/nothing/there: "),
    ],
)
def test_where_there_is_none_it_is_said(url, why):
    ended = run("top", "--once", url, env={**os.environ})
    assert ended.returncode in {1, 2}
    assert why in ended.stderr


def test_an_address_that_others_reach_is_refused(tmp_path):
    (tmp_path / "shop.py").write_text(PROGRAM)
    ended = run("serve", str(tmp_path / "shop.py"), "--inspect", "0.0.0.0:9474", env={**os.environ})
    assert ended.returncode == 2
    assert "inspect is '0.0.0.0:9474', which other machines reach" in ended.stderr
