"""What is installed: it claims no name that a user's own modules may have."""

import email
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.test_layers import DOORS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

PROGRAM = """
import actors
import mcpbus, mcpbus_actors
from mcpbus import Server

server = Server("mine")

@server.tool
async def where() -> list[str]:
    return [actors.MINE, mcpbus.__file__, mcpbus_actors.__file__]

server.run("stdio")
"""
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "where",
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [built] = folder.glob("*.whl")
    return built


def test_it_installs_two_packages_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"mcpbus", "mcpbus_actors"}


def test_the_page_of_the_inspector_is_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert "mcpbus/inspector/page.html" in archive.namelist()


def test_what_the_commands_need_is_no_extra(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert {*metadata.get_all("Provides-Extra")} >= {"auth", "cluster", "otel", "reload"}
    assert {*metadata.get_all("Provides-Extra")}.isdisjoint(
        {"asking", "client", "http2", "hypercorn", "schemas"}
    )
    needed = [each for each in metadata.get_all("Requires-Dist") if "extra ==" not in each]
    names = {re.match(r"[\w-]+", each)[0] for each in needed}
    assert names >= {"cryptography", "h2", "httpx2", "hypercorn", "jsonschema-rs", "wsproto"}


def test_each_library_that_is_imported_without_an_extra_is_required():
    """The doors of `test_layers` name all third parties, and where each one comes in."""
    required = {re.match(r"[\w-]+", each)[0].replace("-", "_") for each in PROJECT["dependencies"]}
    of_extras = {
        "anyio": "coredis",
        "coredis": "coredis",
        "joserfc": "joserfc",
        "opentelemetry": "opentelemetry-api",
        "watchfiles": "watchfiles",
        "yaml": "pyyaml",
    }
    # Of Python, for type checkers alone, and of pydantic itself.
    others = {"asyncio", "sqlite3", "typing_extensions", "annotated_types", "pydantic_core"}
    # A hosted server has brought the SDK that it was made with.
    hosted = {"fastmcp", "mcp", "mcp_types", "starlette"}
    assert {*DOORS} - required - others - hosted - {*of_extras} == set()
    extras = " ".join(each for several in PROJECT["optional-dependencies"].values() for each in several)
    assert all(each in extras for each in of_extras.values())


def test_a_server_runs_beside_a_module_of_its_author_that_is_called_actors(wheel, tmp_path):
    installed, own = tmp_path / "installed", tmp_path / "own"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    own.mkdir()
    (own / "actors.py").write_text("MINE = 'stage and screen'")
    (own / "server.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, own / "server.py"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=own,
        input=json.dumps(CALL),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    reply = json.loads(ended.stdout)
    mine, *packages = reply["result"]["structuredContent"]
    assert mine == "stage and screen"
    assert [Path(file).parent for file in packages] == [installed / "mcpbus", installed / "mcpbus_actors"]
