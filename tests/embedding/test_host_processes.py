"""The warning at the start of an ASGI host with several processes, which share no sessions."""

import os
import subprocess
import sys
import types

import pytest

from mcpbus.process.host_processes import Host, find_host

PROGRAM = """
import mcpbus.asyncio
from mcpbus import Server

server = Server("s")
on_trio = server.asgi()
on_asyncio = mcpbus.asyncio.asgi(server)
stateless = mcpbus.asyncio.asgi(server, sessions="stateless")
"""
UVICORN = ("-m", "uvicorn", "--port", "0")
HYPERCORN = ("-m", "hypercorn", "--bind", "127.0.0.1:0")
ENDED = {"uvicorn": "Waiting for child process", "hypercorn": ""}


def started(tmp_path, command, app, environment=()):
    """Start a host, and return the lines of its standard error until it runs."""
    (tmp_path / "hosted.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, *command, f"hosted:{app}"],
        cwd=tmp_path,
        env={**os.environ, **dict(environment)},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    lines, running = [], 0
    try:
        for line in process.stderr:
            lines.append(line)
            running += "Application startup complete" in line or "Running on" in line
            if running == (2 if "2" in (*command, *dict(environment).values()) else 1):
                break
    finally:
        process.terminate()
        lines += process.stderr
        process.wait()
        process.stderr.close()
    return "".join(lines)


@pytest.mark.parametrize(
    ("command", "app", "environment"),
    [
        ((*UVICORN, "--workers", "2"), "on_asyncio", ()),
        (UVICORN, "on_asyncio", [("WEB_CONCURRENCY", "2")]),
        ((*HYPERCORN, "--workers", "2"), "on_asyncio", ()),
        ((*HYPERCORN, "--workers", "2", "-k", "trio"), "on_trio", ()),
    ],
)
def test_each_of_several_processes_is_warned_of(command, app, environment, tmp_path):
    told = started(tmp_path, command, app, environment)
    assert told.count(f"{command[1]} runs 2 processes, which share no sessions") == 2


@pytest.mark.parametrize(
    ("command", "app"),
    [
        (UVICORN, "on_asyncio"),
        ((*UVICORN, "--reload"), "on_asyncio"),
        ((*UVICORN, "--workers", "2"), "stateless"),
        ((*HYPERCORN, "-k", "trio"), "on_trio"),
    ],
)
def test_others_are_not_warned_of(command, app, tmp_path):
    assert "share no sessions" not in started(tmp_path, command, app)


def forked(name, function, **given):
    """Call a function of a host that asks who started it, as gunicorn is not installed here."""
    module = types.ModuleType(name)
    module.find_host = find_host
    exec(f"def {function}(self=None, config=None): return find_host()", vars(module))
    return getattr(module, function)(**given)


@pytest.mark.parametrize(
    ("name", "function", "given", "found"),
    [
        (
            "gunicorn.arbiter",
            "spawn_worker",
            {"self": types.SimpleNamespace(num_workers=4)},
            Host("gunicorn", 4),
        ),
        ("gunicorn.arbiter", "spawn_worker", {"self": types.SimpleNamespace(num_workers=1)}, None),
        ("gunicorn.arbiter", "spawn_worker", {"self": None}, None),
        ("gunicorn.arbiter", "run", {"self": types.SimpleNamespace(num_workers=4)}, None),
        ("uvicorn._subprocess", "subprocess_started", {"config": types.SimpleNamespace(workers="x")}, None),
        ("mine", "spawn_worker", {"self": types.SimpleNamespace(num_workers=4)}, None),
    ],
)
def test_the_function_that_starts_a_process_tells(name, function, given, found):
    assert forked(name, function, **given) == found
    assert find_host() is None
