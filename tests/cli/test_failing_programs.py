"""What the command line says of an author's program that fails: a sentence, the author's own lines, and nothing of what libraries did."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from mcpbus.cli import main

BEGIN = "from mcpbus import Server\n"
LIFESPAN = f"""{BEGIN}
from contextlib import asynccontextmanager

def connect():
    raise ConnectionRefusedError("no database at db:5432")

@asynccontextmanager
async def lifespan(server):
    connect()
    yield

server = Server("s", lifespan=lifespan)
"""

PROGRAMS = {
    "a lifespan": (
        LIFESPAN,
        (
            "ConnectionRefusedError: no database at db:5432\n"
            "  FILE, line 10, in lifespan\n"
            "  FILE, line 6, in connect"
        ),
    ),
    "the end of a lifespan": (
        LIFESPAN.replace("    connect()\n    yield", "    yield\n    connect()"),
        (
            "ConnectionRefusedError: no database at db:5432\n"
            "  FILE, line 11, in lifespan\n"
            "  FILE, line 6, in connect"
        ),
    ),
    "a registration": (
        f"{BEGIN}server = Server('s')\n@server.tool\nasync def add(a, *rest): ...\n",
        "tool 'add': parameter '*rest' cannot be given by name; name each argument\n  FILE, line 3, in <module>",
    ),
    "an import": (
        "import nothing_of_that_name\n",
        "ModuleNotFoundError: No module named 'nothing_of_that_name'\n  FILE, line 1, in <module>",
    ),
    "its syntax": ("x = (\n", "SyntaxError: '(' was never closed\n  FILE, line 1"),
    "an exception without words": ("raise ValueError\n", "ValueError\n  FILE, line 1, in <module>"),
    "a program that runs at import": (
        f"{BEGIN}Server('s').run()\n",
        (
            "RuntimeError: server.run() is called while FILE is imported: write if __name__ == '__main__': above it\n"
            "  FILE, line 2, in <module>"
        ),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_told_in_a_sentence_and_the_authors_lines(tmp_path, name):
    source, told = PROGRAMS[name]
    file = tmp_path / "failing.py"
    file.write_text(source)
    ended = CliRunner().invoke(main, ["list", str(file)])
    assert ended.exit_code == 1
    assert ended.stderr == f"Error: {told.replace('FILE', str(file))}\n"


def test_a_fault_of_ours_is_shown_whole(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("mcpbus.cli.serve.render", fail)
    fail.__code__ = fail.__code__.replace(co_filename=main.__class__.invoke.__code__.co_filename)
    assert isinstance(CliRunner().invoke(main, ["routes"]).exception, ZeroDivisionError)


@pytest.mark.parametrize("command", [[], ["-m", "mcpbus", "stdio"]])
def test_what_is_printed_before_the_protocol_begins_does_not_reach_the_client(tmp_path, command):
    file = tmp_path / "printing.py"
    file.write_text(
        f"print('at import')\n{BEGIN}server = Server('s')\nif __name__ == '__main__':\n    server.run('stdio')\n"
    )
    ended = subprocess.run(
        [sys.executable, *command, str(file)],
        input='{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == '{"jsonrpc":"2.0","id":1,"result":{}}\n'
    assert "at import" in ended.stderr


@pytest.mark.parametrize("command", ["serve", "stdio"])
def test_serving_tells_it_too(tmp_path, command):
    file = tmp_path / "failing.py"
    file.write_text(LIFESPAN)
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "mcpbus",
            command,
            str(file),
            *(["--bind", "127.0.0.1:0"] if command == "serve" else []),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == f"Error: {PROGRAMS['a lifespan'][1].replace('FILE', str(file))}\n"
