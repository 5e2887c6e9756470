"""What the documents show of a terminal is what the commands print."""

import re
import shlex
import subprocess
import sys

import pytest
from click.testing import CliRunner
from doc_blocks import DOCUMENTS, ROOT, fenced

from mcpbus.cli import main
from mcpbus.client import stdio

URL = "http://127.0.0.1:8000/mcp"
BLOCKS = [block for document in DOCUMENTS for block in fenced(document, "console")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the server that the README begins with."""
    folder = tmp_path_factory.mktemp("console")
    (folder / "weather.py").write_text(fenced(ROOT / "README.md", "python")[0].text)
    return folder


@pytest.fixture(scope="module")
def url(folder):
    """The same, served."""
    command = [sys.executable, "-m", "mcpbus", "serve", "weather.py", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as served:
        for line in served.stderr:
            if found := re.search(r"is served at (\S+)", line):
                yield found[1]
                break
        served.kill()
        served.stderr.read()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.file.stem}:{block.line}")
def test_a_command_prints_what_is_shown(block, folder, request, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "weather", raising=False)
    monkeypatch.setattr(stdio, "_PROBE_SECONDS", 60)
    command, shown = block.text.split("\n", 1)
    if URL in command:
        command = command.replace(URL, request.getfixturevalue("url"))
    command = command.replace("stdio:mcpbus", f"stdio:{sys.executable} -m mcpbus")
    prompt, program, *arguments = shlex.split(command)
    assert (prompt, program) == ("$", "mcpbus")
    assert CliRunner().invoke(main, arguments, prog_name="mcpbus").output == shown


def test_there_is_something_to_run():
    assert len(BLOCKS) > 5
