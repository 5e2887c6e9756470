"""The commands of a client against a server whose every text tries to steer the terminal."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unicodedata import category

import click
import pytest
from click.testing import CliRunner
from hostile_server import EVIL, FORM

from mcpbus.cli import input_requests, inspect
from mcpbus.cli.connecting import Patience
from mcpbus.protocol.printable import printable

HOSTILE = f"stdio:{sys.executable} {Path(__file__).parent / 'hostile_server.py'}"
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
STYLE = re.compile(r"\x1b\[[01]m")


def unsafe(text):
    """The unsafe characters of what a terminal got, apart from line ends and from our own bold."""
    return {each for each in STYLE.sub("", text).replace("\r\n", "\n") if category(each) in UNSAFE} - {"\n"}


def screen_of(*arguments, typed=b""):
    """Run a command at a terminal, with its echo off, and type at once; return its status and what it wrote."""
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    program = (
        "import sys, termios; mode = termios.tcgetattr(0); mode[3] &= ~termios.ECHO; termios.tcsetattr(0, 0, mode)\n"
        "from mcpbus.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=theirs, stdout=theirs, stderr=theirs
    ) as it:
        os.close(theirs)
        screen = b""
        with suppress(OSError):  # it has ended
            while True:
                screen += os.read(ours, 4096)
    os.close(ours)
    return it.returncode, screen.decode()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["inspect"], 0),
        (["inspect", "--json"], 0),
        *[(["list", kind], 0) for kind in ("tools", "prompts", "resources", "templates")],
        (["read", "a://b"], 0),
        (["read", "a://b", "--json"], 0),
        (["call", "tell", "--json"], 1),
        (["call", "tell"], 1),
        (["call", "fail"], 1),
        (["call", "a"], 2),
    ],
)
def test_no_text_of_a_server_steers_the_terminal(arguments, status):
    command, *rest = arguments
    ended, screen = screen_of(command, HOSTILE, *rest)
    assert unsafe(screen) == set()
    assert ended == status
    assert "[2J" in screen


def test_no_form_of_a_server_steers_the_terminal():
    ended, screen = screen_of("call", HOSTILE, "ask", typed=b"accept\n\n\n\n")
    assert unsafe(screen) == set()
    assert "The server asks: a\N{REPLACEMENT CHARACTER}[2J" in screen
    assert ended == 0


def test_a_default_is_shown_safely_and_answered_as_it_is(monkeypatch):
    answers = []
    command = click.command()(lambda: answers.append(input_requests._ask_form(FORM)))
    CliRunner().invoke(command, input="accept\n\n\n\n", catch_exceptions=False)
    assert answers[0]["content"][f"one{EVIL}"] == EVIL


@pytest.mark.parametrize(
    "kind", [ZeroDivisionError, click.ClickException, click.UsageError, click.BadParameter]
)
def test_whatever_ends_a_command_does_not_steer_the_terminal(kind, tmp_path):
    # Its file is one of a library: what is raised in the files of an author is told in a sentence.
    source = f"def fail():\n    raise {kind.__name__}({EVIL!r})"
    (tmp_path / "run.py").write_text(
        "import click\nfrom mcpbus.cli import main, serve\n"
        f"exec(compile({source!r}, click.__file__, 'exec'), names := {{**vars(click), **vars(__builtins__)}})\n"
        "serve.render = names['fail']\nmain(['routes'])\n"
    )
    ended = subprocess.run([sys.executable, tmp_path / "run.py"], check=False, capture_output=True, text=True)
    assert ended.returncode
    assert printable(EVIL)[:5] in ended.stderr
    assert unsafe(ended.stderr) == set()
    assert ("Traceback" in ended.stderr) == (kind is ZeroDivisionError)


async def test_the_time_to_read_schemas_is_limited(mock_clock, monkeypatch):
    read = []

    def label(part, _root):
        mock_clock.jump(1)
        read.append(part)
        return "any"

    monkeypatch.setattr(inspect, "label", label)
    tools = [{"name": "t", "inputSchema": {"properties": {f"a{n}": {} for n in range(1000)}}}] * 10
    patience = Patience(60, float("inf"))
    with patience.scope:
        await inspect._all_rows("tools", tools)
    assert patience.scope.cancelled_caught
    assert len(read) == 60
