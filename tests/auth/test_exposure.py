"""What the log and the command line say of who is let in."""

import logging

import pytest
import trio
from click.testing import CliRunner

from mcpbus import Server
from mcpbus.auth import JwtVerifier, ResourceServer, StaticTokenVerifier
from mcpbus.cli import main

OPEN = "0.0.0.0:0 is served without authorization: whoever reaches it may use it"


async def serve(server, *binds):
    async with server.open() as bus, trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: bus.serve(bind=binds, task_status=task_status))
        nursery.cancel_scope.cancel()


async def authenticate(head):
    return "ada"


@pytest.mark.parametrize(
    ("options", "binds", "said"),
    [
        ({}, ["0.0.0.0:0"], [OPEN]),
        ({}, ["127.0.0.1:0", "0.0.0.0:0"], [OPEN]),
        ({}, ["127.0.0.1:0", "localhost:0"], []),
        ({"authenticate": authenticate}, ["0.0.0.0:0"], []),
        (
            {"auth": ResourceServer("https://mcp.example.com", JwtVerifier("https://id.example.com"))},
            ["0.0.0.0:0"],
            [],
        ),
    ],
)
async def test_the_log_says_once_that_everybody_is_let_in(options, binds, said, caplog):
    caplog.set_level(logging.WARNING, "mcpbus")
    await serve(Server("files", **options), *binds)
    assert caplog.messages == said


async def test_a_unix_socket_is_on_this_machine(tmp_path, caplog):
    await serve(Server("files"), f"unix:{tmp_path / 'socket'}")
    assert caplog.messages == []


async def test_tokens_for_development_are_not_served_to_others():
    server = Server(
        "files", auth=ResourceServer("http://localhost:8000/mcp", StaticTokenVerifier({"a": "b"}))
    )
    await serve(server, "127.0.0.1:0")
    async with server.open() as bus:
        with pytest.raises(ValueError, match="on this machine alone"):
            await bus.serve(bind="0.0.0.0:0")


FILES = """
from mcpbus import Server
server = Server("files")

async def authenticate(head):
    return "ada"

private = Server("private", authenticate=authenticate)
"""


def run(tmp_path, monkeypatch, *arguments):
    """Run the command line; return what it says, and the servers that it would have run."""
    (tmp_path / "files.py").write_text(FILES)
    monkeypatch.chdir(tmp_path)
    ran = []
    monkeypatch.setattr(Server, "run", lambda self, **_: ran.append(self))
    result = CliRunner().invoke(main, ["serve", *arguments])
    return " ".join(result.output.split()), ran


def test_the_command_line_has_a_server_ask_for_tokens(tmp_path, monkeypatch):
    issuers = ["--issuer", "https://id.example.com", "--issuer", "https://other.example.com"]
    scopes = ["--scope", "files:read", "--scope", "files:write"]
    resource = ["--resource", "https://mcp.example.com/mcp"]
    said, [server] = run(tmp_path, monkeypatch, "files.py:server", *resource, *issuers, *scopes)
    assert said == ""
    assert server.auth.metadata == {
        "resource": "https://mcp.example.com/mcp",
        "authorization_servers": ["https://id.example.com", "https://other.example.com"],
        "scopes_supported": ["files:read", "files:write"],
        "bearer_methods_supported": ["header"],
    }


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--resource", "https://mcp.example.com"], "tokens need both --resource"),
        (["--issuer", "https://id.example.com"], "tokens need both --resource"),
        (["--scope", "a"], "tokens need both --resource"),
        (["--resource", "http://mcp.example.com", "--issuer", "https://id.example.com"], "it must be https"),
        (
            ["--resource", "https://mcp.example.com", "--issuer", "id.example.com"],
            "issuer is 'id.example.com'",
        ),
    ],
)
def test_what_the_command_line_refuses(arguments, why, tmp_path, monkeypatch):
    said, ran = run(tmp_path, monkeypatch, "files.py:server", *arguments)
    assert why in said
    assert ran == []


def test_a_server_that_knows_whom_it_lets_in_is_left_alone(tmp_path, monkeypatch):
    arguments = ["--resource", "https://mcp.example.com", "--issuer", "https://id.example.com"]
    said, ran = run(tmp_path, monkeypatch, "files.py:private", *arguments)
    assert "the server says itself whom it lets in" in said
    assert ran == []
