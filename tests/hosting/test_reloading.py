"""A hosted server that is served again when its file has changed."""

import signal
import subprocess
import sys
import threading

import pytest

from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

TEXT = """
import sys
from mcp.server.mcpserver import MCPServer

name = "first"
{}
"""
OBJECT = "mcp = MCPServer(name)"
FUNCTION = "def main():\n    MCPServer(name + ''.join(sys.argv[1:])).run()"


@pytest.mark.parametrize(
    ("text", "target", "names"),
    [
        (OBJECT, ["notes.py"], ("first", "second")),
        (FUNCTION, ["notes.py:main", "--", "-x"], ("first-x", "second-x")),
    ],
    ids=["object", "program"],
)
def test_a_hosted_server_is_served_again_when_its_file_has_changed(text, target, names, tmp_path):
    file = tmp_path / "notes.py"
    file.write_text(TEXT.format(text))
    command = [sys.executable, "-m", "mcpbus", "serve", "--reload", "--bind", "127.0.0.1:0", *target]
    changed = threading.Event()

    def change():
        # Nothing reports from when on files are watched, and each change starts the server again.
        seconds = 1
        while not changed.is_set():
            file.write_text(TEXT.format(text).replace("first", "second"))
            seconds *= 2
            changed.wait(seconds)

    changes = threading.Thread(target=change)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as served:
        try:
            said = iter(served.stderr.readline, "")
            assert any(line.startswith(f"{names[0]} is served at http://") for line in said)
            changes.start()
            assert any(line.startswith(f"{names[1]} is served at http://") for line in said)
        finally:
            changed.set()
            if changes.ident is not None:
                changes.join()
            served.send_signal(signal.SIGTERM)
            served.stderr.read()
    assert served.returncode == 0
